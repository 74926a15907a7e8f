//! Ending what nobody came back for, and telling those who wait.
//!
//! Both take no input but the clock. An expired hold keeps nobody's money back any more (readers leave it out), so the
//! reconciler is only about what the work cost, and may be late.

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use sqlx::PgConnection;

use super::finish::{Conclusion, conclude, lock};
use super::state::{after, before};
use super::{EndedBy, Hold, HoldId, Refusal, Terms, place, store};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::ids::Actor;
use crate::ledger::{self, LockedWallet};
use crate::outbox::{self, EventKind};

/// How many holds one look takes.
const BATCH: i64 = 200;

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Their workers live: they got more time.
    pub extended: u64,
    /// They paid what they used, or what was held when their usage was lost.
    pub settled: u64,
    /// They cost nothing.
    pub released: u64,
    /// Started, and no usage: what was held was charged, and a person should look.
    pub usage_lost: u64,
    /// They couldn't be ended; the next round tries again.
    pub failed: u64,
}

/// What became of one hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Ended { settled: bool, usage_lost: bool },
    Extended,
    SomebodyElse,
}

/// Ends every hold whose time is over, in batches, the oldest first, each in a transaction of its own.
///
/// # Errors
/// A fault of looking; what was ended before it stays ended. A hold that can't be ended is counted and said, and stops
/// nobody else's.
pub async fn reconcile(db: &Database, clock: &Clock) -> Result<Reconciled, Fault> {
    let mut done = Reconciled::default();
    let mut after_hold: Option<(DateTime<Utc>, HoldId)> = None;
    loop {
        let mut conn = db.pool().acquire().await?;
        let batch = store::expired(&mut conn, clock.now(), after_hold.as_ref(), BATCH).await?;
        drop(conn);
        let Some(last) = batch.last() else { return Ok(done) };
        after_hold = Some(last.clone());
        for (_, hold_id) in &batch {
            let outcome = db
                .run("hold_reconcile", |conn| {
                    async move { reconcile_one(conn, hold_id, clock.now()).await }.scope_boxed()
                })
                .await;
            note(hold_id, outcome, &mut done);
        }
    }
}

fn note(hold_id: &HoldId, outcome: Result<Outcome, Error<Refusal>>, done: &mut Reconciled) {
    let name = match outcome {
        Ok(Outcome::SomebodyElse) => return,
        Ok(Outcome::Extended) => {
            done.extended = done.extended.saturating_add(1);
            "extended"
        }
        Ok(Outcome::Ended { settled: true, usage_lost }) => {
            done.settled = done.settled.saturating_add(1);
            if usage_lost {
                done.usage_lost = done.usage_lost.saturating_add(1);
                raise_alarm(hold_id);
                "usage_lost"
            } else {
                "settled"
            }
        }
        Ok(Outcome::Ended { settled: false, .. }) => {
            done.released = done.released.saturating_add(1);
            "released"
        }
        Err(Error::Refused(refusal)) => {
            done.failed = done.failed.saturating_add(1);
            tracing::error!(hold_id = hold_id.as_str(), "hold {hold_id} can't be reconciled: {refusal}");
            "failed"
        }
        Err(Error::Fault(fault)) => {
            done.failed = done.failed.saturating_add(1);
            tracing::error!(hold_id = hold_id.as_str(), "hold {hold_id} can't be reconciled: {}", fault.chain());
            "failed"
        }
    };
    metrics::counter!("hamyon_holds_reconciled_total", "outcome" => name).increment(1);
}

impl Outcome {
    pub(super) const fn is_usage_lost(self) -> bool {
        matches!(self, Self::Ended { usage_lost: true, .. })
    }
}

/// Says, after the commit, that a person should look.
pub(super) fn raise_alarm(hold_id: &HoldId) {
    tracing::error!(
        hold_id = hold_id.as_str(),
        "ALARM: hold {hold_id} was started and no usage is logged; what was held was charged. Look whether the work was \
         done, and refund it if not"
    );
}

async fn reconcile_one(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    now: DateTime<Utc>,
) -> Result<Outcome, Error<Refusal>> {
    let (locked, hold) = lock(conn, hold_id, now).await?;
    if hold.end.is_some() || hold.expires_at > now {
        return Ok(Outcome::SomebodyElse);
    }
    if hold.is_live(now) {
        let extended = Hold { expires_at: after(now, i64::from(hold.ttl_secs)), ..hold };
        store::set_lease(conn, &extended).await?;
        return Ok(Outcome::Extended);
    }
    end_expired(conn, &hold, &locked, now).await.widen()
}

/// Ends a hold whose time is over, on a connection whose transaction the caller owns.
///
/// H9: usage decides; none and never started costs nothing; started and no usage costs what was held, which its owner
/// agreed to when it was placed.
pub(super) async fn end_expired(
    conn: &mut PgConnection,
    hold: &Hold,
    locked: &LockedWallet,
    now: DateTime<Utc>,
) -> Result<Outcome, Error<ledger::Refusal>> {
    let mut conclusion = Conclusion::by_usage(hold, EndedBy::Reconciler)?;
    let usage_lost = !conclusion.settled && hold.started_at.is_some() && hold.calls == 0 && hold.amount.is_positive();
    if usage_lost {
        conclusion.settled = true;
        conclusion.cost = hold.amount;
    }
    conclude(conn, hold, locked, &conclusion, &Actor::job("holds"), now).await?;
    Ok(Outcome::Ended { settled: conclusion.settled, usage_lost })
}

/// Tells those whose job waits for a worker for some seconds, each once (H13). Returns how many.
///
/// # Errors
/// A fault.
pub async fn tell_waiting(db: &Database, clock: &Clock, terms: &Terms) -> Result<u64, Fault> {
    let mut told: u64 = 0;
    loop {
        let batch = db
            .run("hold_tell_waiting", |conn| {
                async move {
                    let now = clock.now();
                    let since = before(now, terms.waiting_secs);
                    let waiting = store::note_waiting(conn, since, now, BATCH).await?;
                    let events: Vec<_> =
                        waiting.iter().map(|hold| place::event(hold, EventKind::HoldWaiting)).collect();
                    outbox::write(conn, &events, now).await?;
                    Ok::<_, Error<std::convert::Infallible>>(waiting.len())
                }
                .scope_boxed()
            })
            .await;
        match batch {
            Ok(0) => return Ok(told),
            Ok(count) => told = told.saturating_add(u64::try_from(count).unwrap_or(u64::MAX)),
            Err(Error::Fault(fault)) => return Err(fault),
            Err(Error::Refused(never)) => match never {},
        }
    }
}
