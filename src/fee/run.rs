//! The run.
//!
//! It goes through the wallets that owe an undecided month in chunks, each one transaction: lock a chunk of
//! wallets in the order of their ids, passing over those that somebody else holds; read what they owe, in a
//! second statement; let the ledger decide which fees there is money for and write them; write the dues and
//! the events. Several workers and several processes share the work that way without waiting for each other;
//! those of one process take their chunks from one place, so that none of them is done before the others.
//! A wallet that was passed over isn't lost: at the end the run waits for it, and what it still can't get is
//! reported open.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chrono::{DateTime, NaiveDate, Utc};
use chrono_tz::Tz;
use scoped_futures::ScopedFutureExt as _;
use sqlx::PgConnection;
use tokio::sync::Mutex;

use super::owed::{Fee, Owed};
use super::store::{self, Decided, Owing, OwingWallet};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Remedy};
use crate::ids::{Actor, TenantId};
use crate::ledger::{self, LockedWallets, Shortage};
use crate::money::{Month, local_day};
use crate::outbox::{self, Event, EventKind};

/// How many wallets one transaction takes.
const CHUNK_WALLETS: i64 = 500;

/// How many wallets one transaction takes when it waits for each of them.
const WAITING_CHUNK_WALLETS: i64 = 20;

/// How often the run comes back for wallets that somebody else holds.
const WAITING_ROUNDS: u32 = 3;

/// Below this many decided dues a share of overdue ones says nothing.
const SHARE_MEANS_SOMETHING_FROM: u64 = 100;

/// How much may happen without a person saying yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Months of one subscription in one run.
    pub months_max: u32,
    /// Per cent of the dues that may turn out overdue.
    pub overdue_percent_max: u8,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { months_max: 1, overdue_percent_max: 50 }
    }
}

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Only months up to this one.
    pub period: Option<Month>,
    /// Do it all and roll it back.
    pub dry_run: bool,
    /// How many chunks at once.
    pub workers: u16,
    /// A person said yes to what is beyond the limits.
    pub confirmed: bool,
    /// The limits.
    pub limits: RunLimits,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { period: None, dry_run: false, workers: 4, confirmed: false, limits: RunLimits::default() }
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunReport {
    /// Months of subscriptions that were owed and undecided when it began.
    pub expected: u64,
    /// Dues that it charged.
    pub charged: u64,
    /// Dues that it found no money for.
    pub overdue: u64,
    /// Dues that another run decided meanwhile.
    pub by_others: u64,
    /// Months that are still undecided: somebody holds their wallets.
    pub open: u64,
}

/// What is seen of a run while it is on its way.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// Months owed when it began.
    pub expected: u64,
    /// Decided so far.
    pub decided: u64,
}

/// Why a run doesn't go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    /// Somebody would be charged for several months at once.
    #[error(
        "subscription {subscription_id} of {tenant_id} owes {months} months at once, and {allowed} is the limit: \
         say --yes (or raise HAMYON_FEES_MONTHS_MAX) if that is right. Nothing was charged"
    )]
    TooManyMonths {
        /// Which subscription.
        subscription_id: i64,
        /// Whose.
        tenant_id: String,
        /// How many months.
        months: i64,
        /// The limit.
        allowed: u32,
    },
    /// Too many have no money, which may mean that something is wrong.
    #[error(
        "{overdue} of {decided} dues are overdue, more than {allowed} per cent, so the run stopped: say --yes (or \
         raise HAMYON_FEES_OVERDUE_PERCENT_MAX) if that is right. What was decided stays decided"
    )]
    TooManyOverdue {
        /// How many are overdue.
        overdue: u64,
        /// Of how many.
        decided: u64,
        /// The limit in per cent.
        allowed: u8,
    },
}

/// The local days in all zones of the tenants: one look at the clock for the whole run.
#[derive(Debug, Clone)]
pub(super) struct Calendar {
    pub(super) zones: Vec<String>,
    pub(super) todays: Vec<NaiveDate>,
    pub(super) months: Vec<NaiveDate>,
}

impl Calendar {
    /// The days it is in `zones` at `now`, and the last month to look at.
    pub(super) fn at(now: DateTime<Utc>, zones: &[Tz], period: Option<Month>) -> Self {
        let mut calendar = Self { zones: Vec::new(), todays: Vec::new(), months: Vec::new() };
        for zone in zones {
            let mut today = local_day(now, *zone);
            if let Some(period) = period {
                today = today.min(period.last_day());
            }
            calendar.zones.push(zone.name().to_owned());
            calendar.todays.push(today);
            calendar.months.push(Month::of(today).first_day());
        }
        calendar
    }
}

/// How the work stands, for all workers.
#[derive(Debug, Default)]
struct Tally {
    charged: AtomicU64,
    overdue: AtomicU64,
    stopped: AtomicBool,
}

/// The wallets that are still to be looked at, for all workers. Who takes a chunk holds the place meanwhile:
/// that is a small part of the chunk's time, and nobody looks at a wallet that another one has taken.
#[derive(Debug)]
struct Wallets {
    after: Mutex<i64>,
    to: i64,
}

impl Wallets {
    const fn between((lowest, highest): (i64, i64)) -> Self {
        Self { after: Mutex::const_new(lowest.saturating_sub(1)), to: highest }
    }
}

/// What a chunk did.
struct ChunkDone {
    charged: u64,
    overdue: u64,
}

/// How a chunk's transaction ends when nothing is to stay of it.
enum ChunkEnd {
    RolledBack(ChunkDone),
    Ledger(ledger::Refusal),
}

impl From<ledger::Refusal> for ChunkEnd {
    fn from(refusal: ledger::Refusal) -> Self {
        Self::Ledger(refusal)
    }
}

/// Decides every month that is owed and undecided.
///
/// # Errors
/// [`RunRefusal`] when a limit is passed and nobody has said yes; a fault when the database fails. What was
/// decided before stays decided, and the next run goes on from there.
pub async fn run(
    db: &Database,
    clock: &Clock,
    options: RunOptions,
    progress: &(dyn Fn(Running) + Sync),
) -> Result<RunReport, Error<RunRefusal>> {
    let now = clock.now();
    let mut conn = db.pool().acquire().await?;
    let zones = store::tenant_zones(&mut conn).await?;
    let calendar = Calendar::at(now, &zones, options.period);
    let owing = store::survey_owed(&mut conn, &calendar).await?;
    let expected = months_of(&owing);
    if expected == 0 {
        return Ok(RunReport::default());
    }
    if !options.confirmed
        && let Some(worst) = worst_of(&owing)
        && worst.months > i64::from(options.limits.months_max)
    {
        return Err(Error::Refused(RunRefusal::TooManyMonths {
            subscription_id: worst.lowest_subscription,
            tenant_id: store::tenant_of_subscription(&mut conn, worst.lowest_subscription).await?,
            months: worst.months,
            allowed: options.limits.months_max,
        }));
    }
    if !options.dry_run {
        let months: BTreeSet<NaiveDate> = owing
            .iter()
            .flat_map(|owing| Month::of(owing.first).through(Month::of(owing.last)))
            .map(Month::first_day)
            .collect();
        store::insert_runs(&mut conn, &months.into_iter().collect::<Vec<_>>(), now).await?;
    }
    let range = store::wallet_range(&mut conn).await?;
    drop(conn);

    let tally = Tally::default();
    let decided = || tally.charged.load(Ordering::Relaxed).saturating_add(tally.overdue.load(Ordering::Relaxed));
    let report_progress = || progress(Running { expected, decided: decided() });
    let wallets = Wallets::between(range);
    let workers = (0..options.workers.max(1))
        .map(|_| work_through(db, &calendar, &options, &tally, now, &wallets, Waiting::PassOver, &report_progress));
    for outcome in futures::future::join_all(workers).await {
        outcome?;
    }
    let mut open = 0;
    if !options.dry_run && !tally.stopped.load(Ordering::Relaxed) {
        open = finish_open(db, &calendar, &options, &tally, now, range, &report_progress).await?;
    }
    let (charged, overdue) = (tally.charged.load(Ordering::Relaxed), tally.overdue.load(Ordering::Relaxed));
    if tally.stopped.load(Ordering::Relaxed) {
        return Err(Error::Refused(RunRefusal::TooManyOverdue {
            overdue,
            decided: charged.saturating_add(overdue),
            allowed: options.limits.overdue_percent_max,
        }));
    }
    if options.dry_run {
        // Nothing stays to be counted: what it didn't decide, somebody else holds.
        open = expected.saturating_sub(charged.saturating_add(overdue));
    }
    let known = charged.saturating_add(overdue).saturating_add(open);
    Ok(RunReport { expected, charged, overdue, by_others: expected.saturating_sub(known), open })
}

/// How many months that are, all together.
fn months_of(owing: &[Owing]) -> u64 {
    owing.iter().fold(0, |sum, owing| {
        let months = owing.months.saturating_mul(owing.subscriptions);
        sum.saturating_add(u64::try_from(months).unwrap_or_default())
    })
}

/// Where most months are owed at once, and among these the subscription that is the oldest.
fn worst_of(owing: &[Owing]) -> Option<&Owing> {
    owing.iter().max_by_key(|owing| (owing.months, Reverse(owing.lowest_subscription)))
}

/// Comes back for the wallets that were passed over: first for those that are free again, then waiting for the
/// others, so that one which is held for long holds up nobody else. Returns what is still open.
async fn finish_open(
    db: &Database,
    calendar: &Calendar,
    options: &RunOptions,
    tally: &Tally,
    now: DateTime<Utc>,
    range: (i64, i64),
    report_progress: &(dyn Fn() + Sync),
) -> Result<u64, Error<RunRefusal>> {
    for _ in 0..WAITING_ROUNDS {
        let mut conn = db.pool().acquire().await?;
        let open = months_of(&store::survey_owed(&mut conn, calendar).await?);
        drop(conn);
        if open == 0 || tally.stopped.load(Ordering::Relaxed) {
            return Ok(open);
        }
        let wallets = Wallets::between(range);
        work_through(db, calendar, options, tally, now, &wallets, Waiting::PassOver, report_progress).await?;
        let wallets = Wallets::between(range);
        match work_through(db, calendar, options, tally, now, &wallets, Waiting::Wait, report_progress).await {
            // Whoever holds the wallet holds it for longer than we wait; the next round may find it free.
            Err(Error::Fault(fault)) if fault.remedy() == Remedy::Wait => {
                tracing::warn!("a wallet could not be had in time: {}", fault.chain());
            }
            outcome => outcome?,
        }
    }
    let mut conn = db.pool().acquire().await?;
    Ok(months_of(&store::survey_owed(&mut conn, calendar).await?))
}

/// What to do about a wallet that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    PassOver,
    Wait,
}

#[expect(clippy::too_many_arguments, reason = "one worker's whole surroundings, used in two places")]
async fn work_through(
    db: &Database,
    calendar: &Calendar,
    options: &RunOptions,
    tally: &Tally,
    now: DateTime<Utc>,
    wallets: &Wallets,
    waiting: Waiting,
    report_progress: &(dyn Fn() + Sync),
) -> Result<(), Error<RunRefusal>> {
    while !tally.stopped.load(Ordering::Relaxed) {
        // A transaction that is repeated takes the wallets it took before.
        let taken = OnceLock::new();
        let taken = &taken;
        let done = db
            .run("fee_chunk", |conn| {
                async move {
                    let chunk_wallets = take(conn, calendar, wallets, taken, waiting).await?;
                    let done = decide_chunk(conn, calendar, &chunk_wallets, now).await?;
                    if options.dry_run { Err(Error::Refused(ChunkEnd::RolledBack(done))) } else { Ok(done) }
                }
                .scope_boxed()
            })
            .await;
        let done = match done {
            Ok(done) | Err(Error::Refused(ChunkEnd::RolledBack(done))) => done,
            Err(Error::Refused(ChunkEnd::Ledger(refusal))) => {
                return Err(Fault::new("the ledger refused a fee").because(refusal).into());
            }
            Err(Error::Fault(fault)) => return Err(fault.into()),
        };
        if taken.get().is_none() {
            return Ok(());
        }
        let charged = tally.charged.fetch_add(done.charged, Ordering::Relaxed).saturating_add(done.charged);
        let overdue = tally.overdue.fetch_add(done.overdue, Ordering::Relaxed).saturating_add(done.overdue);
        report_progress();
        if !options.dry_run {
            metrics::counter!("hamyon_fees_decided_total", "outcome" => "charged").increment(done.charged);
            metrics::counter!("hamyon_fees_decided_total", "outcome" => "overdue").increment(done.overdue);
        }
        let decided = charged.saturating_add(overdue);
        let share_passed =
            overdue.saturating_mul(100) > decided.saturating_mul(u64::from(options.limits.overdue_percent_max));
        if !options.confirmed && decided >= SHARE_MEANS_SOMETHING_FROM && share_passed {
            tally.stopped.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Locks the next chunk of wallets, or the same again.
async fn take(
    conn: &mut PgConnection,
    calendar: &Calendar,
    wallets: &Wallets,
    taken: &OnceLock<(i64, i64)>,
    waiting: Waiting,
) -> Result<Vec<OwingWallet>, Fault> {
    let limit = match waiting {
        Waiting::PassOver => CHUNK_WALLETS,
        Waiting::Wait => WAITING_CHUNK_WALLETS,
    };
    if let Some((after, to)) = taken.get() {
        return store::lock_owing_wallets(conn, calendar, *after, *to, limit, waiting).await;
    }
    let mut after = wallets.after.lock().await;
    let locked = store::lock_owing_wallets(conn, calendar, *after, wallets.to, limit, waiting).await?;
    if let Some(last) = locked.iter().map(|wallet| wallet.wallet_id).max() {
        taken.get_or_init(|| (*after, last));
        *after = last;
    }
    Ok(locked)
}

/// Decides what locked wallets owe, on a connection whose transaction the caller owns.
async fn decide_chunk(
    conn: &mut PgConnection,
    calendar: &Calendar,
    wallets: &[OwingWallet],
    now: DateTime<Utc>,
) -> Result<ChunkDone, Error<ChunkEnd>> {
    if wallets.is_empty() {
        return Ok(ChunkDone { charged: 0, overdue: 0 });
    }
    let owed = store::read_owed(conn, calendar, wallets).await?;
    let decided = decide(conn, owed, now).await?;
    let charged = decided.iter().filter(|due| due.charged).count();
    let overdue = decided.len().saturating_sub(charged);
    // A credit in another currency may be about to say that nothing is unpaid any more; see `pay_overdue`.
    let owing: BTreeSet<TenantId> =
        decided.iter().filter(|due| !due.charged).map(|due| due.fee.tenant_id.clone()).collect();
    if !owing.is_empty() {
        store::lock_tenants(conn, &owing.into_iter().collect::<Vec<_>>()).await?;
    }
    store::insert_dues(conn, &decided, now).await?;
    let events: Vec<Event> = decided
        .iter()
        .map(|due| due.fee.event(if due.charged { EventKind::FeeCharged } else { EventKind::FeeOverdue }))
        .collect();
    outbox::write(conn, &events, now).await?;
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Ok(ChunkDone { charged: count(charged), overdue: count(overdue) })
}

/// Lets the ledger charge what there is money for. A due of nothing is paid without a row.
async fn decide(conn: &mut PgConnection, owed: Vec<Owed>, now: DateTime<Utc>) -> Result<Vec<Decided>, Error<ChunkEnd>> {
    let mut decided = Vec::with_capacity(owed.len());
    let mut entries = Vec::with_capacity(owed.len());
    let mut charged_by = BTreeMap::new();
    // The chunk's own statement has locked them, when it found that they owe.
    let mut wallets = LockedWallets::default();
    for owed in owed {
        wallets.insert(owed.tenant_id.clone(), owed.currency.clone(), owed.wallet_id);
        let fee = Fee {
            subscription_id: owed.subscription_id,
            tenant_id: owed.tenant_id.clone(),
            currency: owed.currency.clone(),
            exponent: owed.exponent,
            month: owed.month,
            amount: owed.amount()?,
        };
        if !fee.amount.is_zero() {
            charged_by.insert(entries.len(), decided.len());
            entries.push(fee.entry()?);
        }
        let charged = fee.amount.is_zero();
        decided.push(Decided { fee, due_at: owed.due_at(), charged, charged_seq: None });
    }
    let rows = ledger::post_in_locked(conn, &wallets, &entries, Shortage::LeaveOut, &Actor::job("fees"), now)
        .await
        .map_err(Error::widen)?;
    for (index, row) in rows.into_iter().enumerate() {
        let due = charged_by.get(&index).and_then(|place| decided.get_mut(*place));
        if let (Some(row), Some(due)) = (row, due) {
            due.charged = true;
            due.charged_seq = Some(row.seq);
        }
    }
    Ok(decided)
}
