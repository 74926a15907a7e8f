//! Local months and days, and the instants at which they begin.
//!
//! "The first of the month" is the first in the tenant's own zone. A day begins at 00:00 local; where a change
//! of the clocks takes that moment away, it begins with the first moment that exists, and where the moment
//! comes twice, with the first of the two.

use chrono::{DateTime, Datelike as _, Days, Months, NaiveDate, NaiveTime, TimeDelta, TimeZone as _, Utc};
use chrono_tz::Tz;

use crate::ids::InvalidName;

/// A month of the calendar, in nobody's zone yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(NaiveDate);

impl Month {
    /// The month a day is in.
    #[must_use]
    pub fn of(day: NaiveDate) -> Self {
        Self(day.with_day(1).unwrap_or(day))
    }

    /// Parses `2026-12`.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let shape = text.len() == 7
            && text
                .bytes()
                .enumerate()
                .all(|(at, byte)| (at == 4) == (byte == b'-') && (at == 4 || byte.is_ascii_digit()));
        if !shape {
            return Err(InvalidName { what: "month", rule: "must be a month such as 2026-12" });
        }
        NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d")
            .map(Self)
            .map_err(|_| InvalidName { what: "month", rule: "must be a month such as 2026-12" })
    }

    /// Its first day.
    #[must_use]
    pub const fn first_day(self) -> NaiveDate {
        self.0
    }

    /// Its last day.
    #[must_use]
    pub fn last_day(self) -> NaiveDate {
        self.next().0.checked_sub_days(Days::new(1)).unwrap_or(self.0)
    }

    /// How many days it has.
    #[must_use]
    pub fn days(self) -> u32 {
        self.last_day().day()
    }

    /// The month after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add_months(Months::new(1)).unwrap_or(self.0))
    }

    /// The month before it.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.checked_sub_months(Months::new(1)).unwrap_or(self.0))
    }

    /// Every month from this one to the last.
    pub fn through(self, last: Self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |month| Some(month.next())).take_while(move |month| *month <= last)
    }

    /// The instant at which it begins in a zone.
    #[must_use]
    pub fn begins_at(self, zone: Tz) -> DateTime<Utc> {
        day_begins_at(self.0, zone)
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0.format("%Y-%m"))
    }
}

/// The instant at which a local day begins.
#[must_use]
pub fn day_begins_at(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    let midnight = day.and_time(NaiveTime::MIN);
    if let Some(instant) = zone.from_local_datetime(&midnight).earliest() {
        return instant.with_timezone(&Utc);
    }
    // Midnight is in a gap. Gaps begin and end on whole minutes and the longest, a day left out, has 24 hours.
    let mut minute = midnight;
    for _ in 0..2 * 24 * 60 {
        minute = minute.checked_add_signed(TimeDelta::minutes(1)).unwrap_or(minute);
        if let Some(instant) = zone.from_local_datetime(&minute).earliest() {
            return instant.with_timezone(&Utc);
        }
    }
    midnight.and_utc()
}

/// The local day it is at an instant: the latest one that has begun.
#[must_use]
pub fn local_day(instant: DateTime<Utc>, zone: Tz) -> NaiveDate {
    instant.with_timezone(&zone).date_naive()
}
