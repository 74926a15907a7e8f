//! What a tenant hears about an unpaid due: on day 0 (with the run itself), 3, 7, and that access should be
//! suspended. Each step once.

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde_json::json;

use super::store;
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::outbox::{self, Event, EventKind};

/// After how many days which step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReminderPolicy {
    /// Days after the due became overdue; day 0 is the run's own event.
    pub days: Vec<u16>,
    /// Days until access should be suspended.
    pub suspend_after_days: u16,
}

impl Default for ReminderPolicy {
    fn default() -> Self {
        Self { days: vec![0, 3, 7], suspend_after_days: 14 }
    }
}

/// Queues the reminders that are due and weren't queued yet. Returns how many. It takes no input but the
/// clock, so it may run as often and as late as it likes.
///
/// # Errors
/// A fault; what was queued before it stays queued.
pub async fn remind(db: &Database, clock: &Clock, policy: &ReminderPolicy) -> Result<u64, Fault> {
    let mut queued: u64 = 0;
    for day in policy.days.iter().filter(|day| **day > 0) {
        let step = format!("day_{day}");
        queued = queued.saturating_add(remind_step(db, clock, *day, &step, EventKind::FeeReminder).await?);
    }
    let suspended = remind_step(db, clock, policy.suspend_after_days, "suspended", EventKind::AccessSuspended).await?;
    Ok(queued.saturating_add(suspended))
}

async fn remind_step(db: &Database, clock: &Clock, day: u16, step: &str, kind: EventKind) -> Result<u64, Fault> {
    let mut queued: u64 = 0;
    loop {
        let batch = db
            .run("fee_remind", |conn| {
                async move {
                    let now: DateTime<Utc> = clock.now();
                    // The dues are locked, so a payment that comes at the same moment waits or has been seen.
                    let dues = store::lock_dues_for_step(conn, i32::from(day), step, now, 200).await?;
                    let noted = store::insert_reminders(conn, &dues, step, now).await?;
                    let events: Vec<Event> = dues
                        .iter()
                        .filter(|due| noted.contains(&due.due_id))
                        .map(|due| {
                            let mut event = due.fee.event(kind);
                            if let Some(about) = event.about.as_object_mut() {
                                about.insert("overdue_since".to_owned(), json!(due.overdue_at));
                                about.insert("day".to_owned(), json!(day));
                            }
                            event
                        })
                        .collect();
                    outbox::write(conn, &events, now).await?;
                    Ok::<_, Error<std::convert::Infallible>>((dues.len(), noted.len()))
                }
                .scope_boxed()
            })
            .await;
        let (found, told) = match batch {
            Ok(counts) => counts,
            Err(Error::Fault(fault)) => return Err(fault),
            Err(Error::Refused(never)) => match never {},
        };
        queued = queued.saturating_add(u64::try_from(told).unwrap_or(u64::MAX));
        if found == 0 {
            return Ok(queued);
        }
    }
}
