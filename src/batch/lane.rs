//! Where batches for one wallet wait while a transaction of this process is at work on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{Batch, Refusal};
use crate::fault::Error;
use crate::idempotency::Answer;
use crate::ids::{Actor, TenantId};
use crate::money::CurrencyCode;

/// How many batches one transaction books at the most, and how many postings, unless one batch has more.
const BATCHES_MAX: usize = 64;
const ENTRIES_MAX: usize = 1_000;

/// Batches of one lane can be booked in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    tenant_id: TenantId,
    currency: CurrencyCode,
    actor: Actor,
    credit: bool,
}

impl Lane {
    /// The lane of a batch; none when it touches several wallets, or both takes and gives.
    pub fn of(batch: &Batch) -> Option<Self> {
        let first = batch.entries.first()?;
        let credit = first.amount.is_positive();
        batch
            .entries
            .iter()
            .all(|entry| {
                entry.tenant_id == first.tenant_id
                    && entry.currency == first.currency
                    && entry.amount.is_positive() == credit
            })
            .then(|| Self {
                tenant_id: first.tenant_id.clone(),
                currency: first.currency.clone(),
                actor: batch.actor.clone(),
                credit,
            })
    }
}

/// A batch and whom to tell.
pub struct Waiting {
    pub batch: Batch,
    pub answer: oneshot::Sender<Result<Answer, Error<Refusal>>>,
}

impl Waiting {
    /// Tells the caller, unless it has hung up: what was booked stays booked, and a repeat gets the answer.
    pub fn tell(self, answer: Result<Answer, Error<Refusal>>) {
        if self.answer.send(answer).is_err() {
            tracing::debug!("the caller of a batch is gone");
        }
    }
}

/// The lanes that somebody works off. An open lane may be empty: its transaction is under way.
#[derive(Default)]
pub struct Lanes(Mutex<HashMap<Lane, VecDeque<Waiting>>>);

impl std::fmt::Debug for Lanes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lanes").field("open", &self.lock().len()).finish()
    }
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<Lane, VecDeque<Waiting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a batch wait. `true` when it opened the lane, and the caller has to work it off.
    #[must_use]
    pub fn join(&self, lane: &Lane, waiting: Waiting) -> bool {
        let mut lanes = self.lock();
        if let Some(queue) = lanes.get_mut(lane) {
            queue.push_back(waiting);
            return false;
        }
        lanes.insert(lane.clone(), VecDeque::from([waiting]));
        true
    }

    /// The lane as the one who works it off holds it. Dropped, it is closed, and whoever waits in it still is
    /// told that the work broke off: so a panic shuts out nobody for good.
    pub fn keep_open(self: &Arc<Self>, lane: Lane) -> OpenLane {
        OpenLane { lanes: Arc::clone(self), lane, closed: false }
    }
}

/// See [`Lanes::keep_open`].
pub struct OpenLane {
    lanes: Arc<Lanes>,
    lane: Lane,
    closed: bool,
}

impl OpenLane {
    /// What the next transaction books, in the order of arrival; none when nothing waits, and the lane is closed
    /// then.
    pub fn take(&mut self) -> Option<Vec<Waiting>> {
        let mut lanes = self.lanes.lock();
        let queue = lanes.get_mut(&self.lane)?;
        let mut gathered: Vec<Waiting> = Vec::new();
        let mut entries: usize = 0;
        while let Some(next) = queue.front() {
            entries = entries.saturating_add(next.batch.entries.len());
            if !gathered.is_empty() && (gathered.len() >= BATCHES_MAX || entries > ENTRIES_MAX) {
                break;
            }
            gathered.extend(queue.pop_front());
        }
        if gathered.is_empty() {
            lanes.remove(&self.lane);
            self.closed = true;
            return None;
        }
        Some(gathered)
    }
}

impl Drop for OpenLane {
    fn drop(&mut self) {
        // A lane that was closed may be open again in other hands.
        if !self.closed {
            self.lanes.lock().remove(&self.lane);
        }
    }
}
