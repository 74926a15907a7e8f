//! What the room is about: resources, slots, bookings, and the days of a weekly pattern.

use chrono::{DateTime, Datelike as _, NaiveDate, NaiveTime, TimeDelta, TimeZone as _, Utc, Weekday};
use chrono_tz::Tz;

use crate::fault::Fault;
use crate::ids::{OrderId, ResourceId};
use crate::money::{CurrencyCode, MinorUnits};
use crate::tenant::TimeZone;

/// What has slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The product's own id.
    pub resource_id: ResourceId,
    /// For people to read.
    pub name: String,
    /// A weekly pattern's hours are hours of this zone.
    pub time_zone: TimeZone,
    /// Who cancels at least so long before the start gets everything back.
    pub refund_until: TimeDelta,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// What a slot costs in one currency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price {
    /// The currency.
    pub currency: CurrencyCode,
    /// Minor units.
    pub amount: MinorUnits,
}

/// A slot to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSlot {
    /// When it begins.
    pub starts_at: DateTime<Utc>,
    /// When it ends.
    pub ends_at: DateTime<Utc>,
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub slot_id: i64,
    /// Whose time it is.
    pub resource_id: ResourceId,
    /// When it begins.
    pub starts_at: DateTime<Utc>,
    /// When it ends.
    pub ends_at: DateTime<Utc>,
}

/// A slot that nobody holds or has booked, with its prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeSlot {
    /// The slot.
    pub slot: Slot,
    /// What it costs.
    pub prices: Vec<Price>,
}

/// Which free slots.
#[derive(Debug, Clone)]
pub struct FreeSlotQuery {
    /// Only of this resource.
    pub resource_id: Option<ResourceId>,
    /// Only those that begin at this moment or later.
    pub from: Option<DateTime<Utc>>,
    /// Only those that begin before.
    pub to: Option<DateTime<Utc>>,
    /// Behind this place: a start and a number.
    pub after: Option<(DateTime<Utc>, i64)>,
    /// At most so many.
    pub limit: i64,
}

/// Where the money of a cancelled booking went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundTo {
    /// Back to the payer, through the provider.
    Payer,
    /// Into the tenant's wallet.
    Wallet,
    /// Nowhere.
    Nobody,
}

impl RefundTo {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Payer => "payer",
            Self::Wallet => "wallet",
            Self::Nobody => "none",
        }
    }

    /// Parses a column.
    ///
    /// # Errors
    /// A fault when there is no such place.
    pub fn from_column(text: &str) -> Result<Self, Fault> {
        match text {
            "payer" => Ok(Self::Payer),
            "wallet" => Ok(Self::Wallet),
            "none" => Ok(Self::Nobody),
            _ => Err(Fault::new("a stored refund goes nowhere that is known")),
        }
    }
}

/// Who has a slot for good, until it is cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// Its number.
    pub booking_id: i64,
    /// The slot.
    pub slot_id: i64,
    /// The order that got it.
    pub order_id: OrderId,
    /// The payment that paid for it.
    pub payment_id: i64,
    /// When.
    pub booked_at: DateTime<Utc>,
    /// When it was cancelled.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// Where its money went then.
    pub refund: Option<RefundTo>,
}

/// The same hours on some days of the week, in a resource's own zone.
#[derive(Debug, Clone)]
pub struct WeeklyPattern {
    /// On which days.
    pub weekdays: Vec<Weekday>,
    /// When the first slot of a day begins, by the local clock.
    pub starts: NaiveTime,
    /// How long each slot is.
    pub length: TimeDelta,
    /// How many slots follow each other on a day.
    pub times: u32,
    /// The first day.
    pub from: NaiveDate,
    /// The last day.
    pub to: NaiveDate,
}

impl WeeklyPattern {
    /// The slots of the pattern, each where the local clock shows its time. One that a change of the clocks takes away
    /// is left out; of an hour that comes twice the first is meant. A day's slots are of that day: none begins on the
    /// next one.
    #[must_use]
    pub fn slots(&self, zone: Tz) -> Vec<NewSlot> {
        let mut slots: Vec<NewSlot> = Vec::new();
        for day in self.from.iter_days().take_while(|day| *day <= self.to) {
            if !self.weekdays.contains(&day.weekday()) {
                continue;
            }
            let mut starts = day.and_time(self.starts);
            for _ in 0..self.times {
                if starts.date() != day {
                    break;
                }
                let begins = zone.from_local_datetime(&starts).earliest().map(|begins| begins.with_timezone(&Utc));
                // Clocks that go back bring the same hour again: the slots before it have taken it.
                let free = |begins: &DateTime<Utc>| slots.last().is_none_or(|last| last.ends_at <= *begins);
                if let Some(starts_at) = begins.filter(free)
                    && let Some(ends_at) = starts_at.checked_add_signed(self.length)
                {
                    slots.push(NewSlot { starts_at, ends_at });
                }
                let Some(next) = starts.checked_add_signed(self.length) else { break };
                starts = next;
            }
        }
        slots
    }
}
