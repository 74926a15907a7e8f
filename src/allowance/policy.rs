//! When an allowance is filled, decided without the database.

use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use chrono_tz::Tz;

use crate::ids::Pocket;
use crate::money::{day_begins_at, local_day};

/// What the names of all cycles' pockets, and the references of their grants, begin with. Nobody else may put money
/// there: a pocket that is taken could never be filled, and bought money in it would end with the cycle.
const POCKET_PREFIX: &str = "allowance:";

/// Whether only allowances put money into the pocket.
#[must_use]
pub fn is_reserved(pocket: &Pocket) -> bool {
    pocket.as_str().starts_with(POCKET_PREFIX)
}

/// Over which time an amount is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// So many seconds from the activity that begins it.
    Rolling {
        /// How long.
        secs: i32,
    },
    /// The day in a zone.
    CalendarDay {
        /// Which zone.
        zone: Tz,
    },
}

/// The last time it was filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// Its number: counted for a rolling window, days since 1970 for a calendar day.
    pub number: i64,
    /// When it ends; none when its window hasn't begun.
    pub ends_at: Option<DateTime<Utc>>,
}

/// What activity does to an allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is filled.
    Nothing,
    /// A new cycle.
    Fill {
        /// Which.
        number: i64,
        /// When it begins.
        begun_at: DateTime<Utc>,
        /// When it ends.
        ends_at: DateTime<Utc>,
    },
}

/// What activity at `now` does. A clock that went back fills nothing twice.
#[must_use]
pub fn due(window: Window, last: Option<Cycle>, now: DateTime<Utc>) -> Due {
    match window {
        Window::Rolling { secs } => {
            let ends_at = now.checked_add_signed(TimeDelta::seconds(i64::from(secs))).unwrap_or(now);
            match last {
                None => Due::Fill { number: 1, begun_at: now, ends_at },
                Some(Cycle { number, ends_at: Some(ended) }) if now >= ended => {
                    Due::Fill { number: number.saturating_add(1), begun_at: now, ends_at }
                }
                Some(_) => Due::Nothing,
            }
        }
        Window::CalendarDay { zone } => {
            let day = local_day(now, zone);
            let number = day_number(day);
            if last.is_some_and(|last| last.number >= number) {
                return Due::Nothing;
            }
            let next = day.checked_add_days(Days::new(1)).unwrap_or(day);
            Due::Fill { number, begun_at: day_begins_at(day, zone), ends_at: day_begins_at(next, zone) }
        }
    }
}

/// Days since 1970.
fn day_number(day: NaiveDate) -> i64 {
    day.signed_duration_since(NaiveDate::default()).num_days()
}

/// What a cycle's pocket is called.
pub(super) fn pocket_name(allowance_id: &str, window: Window, number: i64) -> String {
    match window {
        Window::Rolling { .. } => format!("{POCKET_PREFIX}{allowance_id}:{number}"),
        Window::CalendarDay { .. } => {
            let day = NaiveDate::default().checked_add_signed(TimeDelta::days(number)).unwrap_or_default();
            format!("{POCKET_PREFIX}{allowance_id}:{day}")
        }
    }
}
