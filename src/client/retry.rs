//! Whether a request is sent again, and when.

use std::time::Duration;

/// "Too many requests": as many jobs are at work as may be.
pub(super) const TOO_MANY: u16 = 429;

/// The shortest time to wait for room.
const ROOM_WAIT_MIN: Duration = Duration::from_secs(1);

/// How patient a client is. Each wait is drawn at random from the upper half of its length, so that workers who lost the
/// service together don't come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often a request is sent at the most when no answer comes or the service can't (5xx), the first time included.
    pub attempts: u32,
    /// About how long to wait before the second attempt; before each further one twice as long.
    pub first_wait: Duration,
    /// The longest such wait. A `Retry-After` up to it is honoured; a longer one ends the call.
    pub longest_wait: Duration,
    /// How long a call may wait in all for room among the jobs at work (429 with `Retry-After`). Zero: it is refused at
    /// once.
    pub patience: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(8),
            patience: Duration::ZERO,
        }
    }
}

impl Retry {
    /// Nothing is sent twice.
    #[must_use]
    pub const fn never() -> Self {
        Self { attempts: 1, first_wait: Duration::ZERO, longest_wait: Duration::ZERO, patience: Duration::ZERO }
    }

    /// How long to wait before the next attempt; none when there is none. `status` is none when no answer came,
    /// `faults` counts the attempts that failed so, and `waited` is what was waited for room.
    pub(super) fn wait(
        &self,
        status: Option<u16>,
        retry_after: Option<Duration>,
        faults: u32,
        waited: Duration,
    ) -> Option<Duration> {
        match status {
            Some(TOO_MANY) => {
                let least = retry_after.unwrap_or_default().max(ROOM_WAIT_MIN);
                let wait = least.saturating_add(at_random(half(least)));
                (waited.saturating_add(wait) <= self.patience).then_some(wait)
            }
            Some(status) if status < 500 => None,
            _ => {
                let asked = retry_after.unwrap_or_default();
                (faults < self.attempts && asked <= self.longest_wait).then(|| self.backoff(faults).max(asked))
            }
        }
    }

    fn backoff(&self, faults: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(faults.saturating_sub(1));
        let most = half(self.first_wait.saturating_mul(doubled).min(self.longest_wait));
        most.saturating_add(at_random(most))
    }
}

fn half(time: Duration) -> Duration {
    time.checked_div(2).unwrap_or_default()
}

fn at_random(most: Duration) -> Duration {
    rand::random_range(Duration::ZERO..=most)
}
