//! The time, as a parameter.
//!
//! Nothing else in the crate asks the machine for the time, so a test can stand at 23:59 of the last day of
//! a month and move on by hand.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, DurationRound, TimeDelta, Utc};

/// Where the current time comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that a test moves.
    Manual(Arc<Mutex<DateTime<Utc>>>),
}

impl Clock {
    /// A clock that stands at `now` until [`Clock::advance`] moves it.
    #[must_use]
    pub fn manual(now: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(Mutex::new(now)))
    }

    /// The current time, cut to whole microseconds: what PostgreSQL can store, so that a time read back
    /// equals the time written.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        let now = match self {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
            Self::System => Utc::now(),
            Self::Manual(at) => *at.lock().unwrap_or_else(PoisonError::into_inner),
        };
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }

    /// The current time, cut to whole milliseconds: the unit in which Payme repeats answers.
    #[must_use]
    pub fn now_ms(&self) -> DateTime<Utc> {
        let now = self.now();
        now.duration_trunc(TimeDelta::milliseconds(1)).unwrap_or(now)
    }

    /// Moves a manual clock; a system clock can't be moved and stays.
    pub fn advance(&self, by: TimeDelta) {
        if let Self::Manual(at) = self {
            let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
            *at = at.checked_add_signed(by).unwrap_or(*at);
        }
    }
}
