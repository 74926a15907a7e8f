//! Batches of postings, each under a key of its caller: all of it or nothing, once.
//!
//! # A hot wallet
//! Postings of one wallet happen one after another, each waiting for the disk while it holds the lock. So what
//! comes for a wallet while a transaction of this process is at work on it waits in a lane (see the file beside this one) and is
//! booked by the next transaction, together. That one keeps the order of arrival and changes no outcome: should
//! it be refused anything, or find a key that was used before, it is rolled back, and each batch is booked
//! alone. Only batches that can't influence each other but by the balance share a lane: all debits or all
//! credits of one wallet, since a credit pays what is overdue before the next debit has its turn.

mod lane;

use std::sync::Arc;

use scoped_futures::ScopedFutureExt as _;
use sqlx::PgConnection;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::funding;
use crate::idempotency::{self, Answer, Claim, Claimed, KeyReused};
use crate::ids::{Actor, TenantId};
use crate::ledger::{self, Entry, Kind, PostedRow};
use crate::payment::{self, ImportRefusal};

use lane::{Lane, Lanes, Waiting};

/// Turns the rows of a batch into the answer that is kept with its key.
pub type Render = Box<dyn Fn(&[PostedRow]) -> Result<String, Fault> + Send + Sync>;

/// What a caller wants to book.
pub struct Batch {
    /// The postings, at least one, in their order.
    pub entries: Vec<Entry>,
    /// The caller's key.
    pub claim: Claim,
    /// Who books.
    pub actor: Actor,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The body of the answer.
    pub render: Render,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Batch")
            .field("entries", &self.entries)
            .field("actor", &self.actor)
            .finish_non_exhaustive()
    }
}

/// Why a batch is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The key stands for another request.
    #[error(transparent)]
    Key(KeyReused),
    /// The ledger says no.
    #[error(transparent)]
    Ledger(ledger::Refusal),
    /// A top-up would stand for a payment and be of other money.
    #[error(transparent)]
    Import(ImportRefusal),
    /// What a booking cost goes back when the booking is cancelled.
    #[error(
        "row {seq} of {tenant_id} is what a booking cost that stands; cancel the booking, which frees its slot as well"
    )]
    GoesThroughBooking {
        /// Whose.
        tenant_id: TenantId,
        /// The row.
        seq: i64,
    },
}

impl From<KeyReused> for Refusal {
    fn from(reused: KeyReused) -> Self {
        Self::Key(reused)
    }
}

impl From<ledger::Refusal> for Refusal {
    fn from(refusal: ledger::Refusal) -> Self {
        Self::Ledger(refusal)
    }
}

impl From<ImportRefusal> for Refusal {
    fn from(refusal: ImportRefusal) -> Self {
        Self::Import(refusal)
    }
}

/// Why batches aren't booked together, which says nothing about any one of them.
enum Apart {
    UsedKey,
    Refused(Refusal),
}

impl From<Refusal> for Apart {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Books batches. A clone shares the lanes.
#[derive(Debug, Clone)]
pub struct Batches {
    db: Database,
    clock: Clock,
    tasks: TaskTracker,
    lanes: Arc<Lanes>,
}

impl Batches {
    /// `tasks` is where the work runs, whether or not its caller waits (L8).
    #[must_use]
    pub fn new(db: Database, clock: Clock, tasks: TaskTracker) -> Self {
        Self { db, clock, tasks, lanes: Arc::default() }
    }

    /// Books the batch, or answers what was answered under its key before. The work runs to its end when the
    /// caller hangs up.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing was written, and the key isn't bound.
    pub async fn post(&self, batch: Batch) -> Result<Answer, Error<Refusal>> {
        let (answer, answered) = oneshot::channel();
        let lane = Lane::of(&batch);
        let waiting = Waiting { batch, answer };
        let batches = self.clone();
        let span = tracing::Span::current();
        match lane {
            None => {
                self.tasks.spawn(async move { batches.book(vec![waiting]).await }.instrument(span));
            }
            Some(lane) => {
                if self.lanes.join(&lane, waiting) {
                    self.tasks.spawn(async move { batches.work_off(lane).await }.instrument(span));
                }
            }
        }
        answered.await.map_err(|error| Fault::new("the work panicked").because(error))?
    }

    /// Books what waits in a lane until nothing does.
    async fn work_off(&self, lane: Lane) {
        let mut open = self.lanes.keep_open(lane);
        while let Some(gathered) = open.take() {
            self.book(gathered).await;
        }
    }

    async fn book(&self, gathered: Vec<Waiting>) {
        if gathered.len() > 1 {
            match self.book_together(&gathered).await {
                Ok(answers) => {
                    for (waiting, answer) in gathered.into_iter().zip(answers) {
                        waiting.tell(Ok(answer));
                    }
                    return;
                }
                Err(Error::Refused(Apart::UsedKey)) => tracing::debug!("batches apart: a key was used before"),
                Err(Error::Refused(Apart::Refused(refusal))) => tracing::debug!("batches apart: {refusal}"),
                // Each finds out for itself, also whether a commit whose answer was lost came to pass.
                Err(Error::Fault(fault)) => tracing::warn!("batches apart after a fault: {}", fault.chain()),
            }
        }
        for waiting in gathered {
            let answer = self.book_alone(&waiting.batch).await;
            waiting.tell(answer);
        }
    }

    async fn book_alone(&self, batch: &Batch) -> Result<Answer, Error<Refusal>> {
        let clock = &self.clock;
        self.db
            .run("batch_post", |conn| {
                async move {
                    let now = clock.now();
                    match idempotency::claim(conn, &batch.claim, now).await.widen()? {
                        Claimed::Answered(answer) => Ok(answer),
                        Claimed::Fresh => {
                            let answers = post_claimed(conn, &[batch], now).await?;
                            answers.into_iter().next().ok_or_else(|| Fault::new("a batch has no answer").into())
                        }
                    }
                }
                .scope_boxed()
            })
            .await
    }

    async fn book_together(&self, gathered: &[Waiting]) -> Result<Vec<Answer>, Error<Apart>> {
        let clock = &self.clock;
        let batches: Vec<&Batch> = gathered.iter().map(|waiting| &waiting.batch).collect();
        let batches = &batches[..];
        self.db
            .run("batch_post_together", |conn| {
                async move {
                    let now = clock.now();
                    let claims: Vec<&Claim> = batches.iter().map(|batch| &batch.claim).collect();
                    if !idempotency::claim_all(conn, &claims, now).await? {
                        return Err(Error::Refused(Apart::UsedKey));
                    }
                    post_claimed(conn, batches, now).await.widen()
                }
                .scope_boxed()
            })
            .await
    }
}

/// Books batches of one actor whose keys are claimed, and keeps their answers.
async fn post_claimed(
    conn: &mut PgConnection,
    batches: &[&Batch],
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Vec<Answer>, Error<Refusal>> {
    let Some(first) = batches.first() else {
        return Ok(Vec::new());
    };
    let entries: Vec<Entry> = batches.iter().flat_map(|batch| batch.entries.iter().cloned()).collect();
    payment::check_imports(conn, &entries).await.widen()?;
    let rows = funding::post(conn, &entries, Vec::new(), &first.actor, now).await.widen()?;
    // Asked under the wallets' locks: a booking that was on its way when this began stands by now.
    for entry in entries.iter().filter(|entry| entry.kind == Kind::Refund) {
        if let Some(seq) = entry.original_seq
            && payment::is_of_standing_booking(conn, &entry.tenant_id, &entry.currency, seq).await?
        {
            let tenant_id = entry.tenant_id.clone();
            return Err(Error::Refused(Refusal::GoesThroughBooking { tenant_id, seq }));
        }
    }
    let mut rows = &rows[..];
    let mut answers = Vec::with_capacity(batches.len());
    for batch in batches {
        let (own, rest) = rows
            .split_at_checked(batch.entries.len())
            .ok_or_else(|| Fault::new("the ledger booked another number of rows than it was asked"))?;
        rows = rest;
        answers.push(Answer { status: batch.status, body: (batch.render)(own)?, replayed: false });
    }
    let finished: Vec<(&Claim, &Answer)> = batches.iter().map(|batch| &batch.claim).zip(&answers).collect();
    idempotency::finish_all(conn, &finished).await?;
    Ok(answers)
}
