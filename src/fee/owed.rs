//! What is owed for a month, decided without the database.

use chrono::{DateTime, Datelike as _, NaiveDate, Utc};
use chrono_tz::Tz;
use serde_json::json;

use crate::fault::Fault;
use crate::ids::{InvalidName, Pocket, Reference, TenantId};
use crate::ledger::{Entry, Floor, Kind, Metadata};
use crate::money::{CurrencyCode, Exponent, MinorUnits, Month, day_begins_at, prorated};
use crate::outbox::{Event, EventKind};

/// What the first month costs when a subscription doesn't begin on the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstMonth {
    /// The whole price, at once.
    Full,
    /// The part of its remaining days, rounded half up, at once.
    Prorated,
    /// Nothing: fees begin on the next first.
    Free,
}

impl FirstMonth {
    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        match text {
            "full" => Ok(Self::Full),
            "prorated" => Ok(Self::Prorated),
            "free" => Ok(Self::Free),
            _ => Err(InvalidName { what: "first_month", rule: "must be full, prorated or free" }),
        }
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Prorated => "prorated",
            Self::Free => "free",
        }
    }

    /// The first month that costs anything.
    #[must_use]
    pub fn first_owed(self, started_on: NaiveDate) -> Month {
        let month = Month::of(started_on);
        match self {
            Self::Free if started_on.day() > 1 => month.next(),
            Self::Full | Self::Prorated | Self::Free => month,
        }
    }
}

/// A month of a subscription that is owed and not decided.
#[derive(Debug, Clone)]
pub struct Owed {
    /// Which subscription.
    pub subscription_id: i64,
    /// Whose.
    pub tenant_id: TenantId,
    /// The wallet that pays.
    pub wallet_id: i64,
    /// The tenant's zone.
    pub zone: Tz,
    /// In which currency.
    pub currency: CurrencyCode,
    /// The currency's digits, for people.
    pub exponent: Exponent,
    /// Which month.
    pub month: Month,
    /// The plan's price for that month.
    pub price: MinorUnits,
    /// When the subscription began.
    pub started_on: NaiveDate,
    /// What the first month costs.
    pub first_month: FirstMonth,
}

impl Owed {
    /// Whether this is the month in which the subscription began, and not on its first day.
    fn is_begun_month(&self) -> bool {
        self.started_on.day() > 1 && Month::of(self.started_on) == self.month
    }

    /// How much.
    ///
    /// # Errors
    /// A fault when the price is too large to be prorated.
    pub fn amount(&self) -> Result<MinorUnits, Fault> {
        match self.first_month {
            FirstMonth::Prorated if self.is_begun_month() => prorated(self.price, self.started_on),
            FirstMonth::Full | FirstMonth::Prorated | FirstMonth::Free => Ok(self.price),
        }
    }

    /// When it falls due: when the month begins in the tenant's zone, or when the subscription did.
    #[must_use]
    pub fn due_at(&self) -> DateTime<Utc> {
        if self.is_begun_month() { day_begins_at(self.started_on, self.zone) } else { self.month.begins_at(self.zone) }
    }
}

/// What the references of the run's own fees begin with. Nobody else may book one: a month whose reference is
/// taken could never be decided, and would stop the run for everybody.
pub const REFERENCE_PREFIX: &str = "fee:";

/// What a fee's row and event say, for a due of a run as well as for one paid later.
#[derive(Debug, Clone)]
pub struct Fee {
    /// Which subscription.
    pub subscription_id: i64,
    /// Whose.
    pub tenant_id: TenantId,
    /// In which currency.
    pub currency: CurrencyCode,
    /// The currency's digits.
    pub exponent: Exponent,
    /// Which month.
    pub month: Month,
    /// How much, positive.
    pub amount: MinorUnits,
}

impl Fee {
    /// The ledger's entry. Its reference closes the whole class of double charges.
    ///
    /// # Errors
    /// A fault when the amount has no opposite.
    pub fn entry(&self) -> Result<Entry, Fault> {
        let mut about = serde_json::Map::new();
        about.insert("subscription_id".to_owned(), self.subscription_id.into());
        about.insert("month".to_owned(), self.month.to_string().into());
        Ok(Entry {
            tenant_id: self.tenant_id.clone(),
            currency: self.currency.clone(),
            kind: Kind::SubscriptionFee,
            amount: self.amount.checked_neg().ok_or_else(|| Fault::new("a fee's amount has no opposite"))?,
            pocket: Pocket::main(),
            reference: Reference::parse(format!("{REFERENCE_PREFIX}{}:{}", self.subscription_id, self.month))
                .map_err(|error| Fault::new("a fee's reference breaks its rule").because(error))?,
            original_seq: None,
            reason: None,
            metadata: Metadata::from_object(&about)
                .map_err(|error| Fault::new("a fee's metadata breaks its rule").because(error))?,
            floor: Floor::Zero,
        })
    }

    /// An event about this fee.
    #[must_use]
    pub fn event(&self, kind: EventKind) -> Event {
        Event {
            tenant_id: self.tenant_id.clone(),
            kind,
            about: json!({
                "subscription_id": self.subscription_id,
                "month": self.month.to_string(),
                "amount": self.amount.to_text(self.exponent),
                "amount_minor_units": self.amount.get(),
                "currency": self.currency.as_str(),
            }),
        }
    }
}
