//! The run.
//!
//! It goes through the wallets that owe an undecided month in chunks, each one transaction: lock a chunk of
//! wallets in the order of their ids, passing over those that somebody else holds; read what they owe, in a
//! second statement; let the ledger decide which fees there is money for and write them; write the dues and
//! the events. Several workers and several processes share the work that way without waiting for each other;
//! those of one process take their chunks from one place, so that none of them is done before the others.
//! A wallet that was passed over isn't lost: at the end the run waits for it, and what it still can't get is
//! reported open.

mod report;
mod tally;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

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

pub use report::{RunLimits, RunOptions, RunRefusal, RunReport, Running};
use tally::{ChunkDone, Tally};

/// How many wallets one transaction takes.
const CHUNK_WALLETS: i64 = 500;

/// How many numbers of wallets one statement looks at. In a large book that is nearly decided it finds few that owe,
/// and has to come to its end all the same.
const SPAN_WALLETS: i64 = 20_000;

/// How many wallets one transaction takes when it waits for each of them.
const WAITING_CHUNK_WALLETS: i64 = 20;

/// How often the run comes back for wallets that somebody else holds.
const WAITING_ROUNDS: u32 = 3;

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

/// What all workers of a run share.
struct Shift<'a> {
    db: &'a Database,
    calendar: &'a Calendar,
    options: &'a RunOptions,
    tally: &'a Tally,
    now: DateTime<Utc>,
    expected: u64,
    progress: &'a (dyn Fn(Running) + Sync),
}

impl Shift<'_> {
    /// Whether another chunk may begin.
    fn goes_on(&self) -> bool {
        !self.tally.stopped.load(Ordering::Relaxed) && !self.options.stop.is_cancelled()
    }
}

/// Decides every month that is owed and undecided. `progress` hears of each chunk.
///
/// # Errors
/// [`RunRefusal`] when something is beyond a limit and nobody has said yes, which is told when the rest is done; a
/// fault when the database fails. What was decided before stays decided, and the next run goes on from there.
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
    let (owing, beyond): (Vec<Owing>, Vec<Owing>) = store::survey_owed(&mut conn, &calendar)
        .await?
        .into_iter()
        .partition(|owing| options.allows_months(owing.months_at_once));
    let expected = months_of(&owing);
    let months = months_in(&owing);
    let unconfirmed =
        if options.confirmed { Vec::new() } else { store::unconfirmed_months(&mut conn, &months).await? };
    let tally = Tally::starting_from(&unconfirmed);
    // What was stopped before is still stopped; a rehearsal says the numbers of the whole.
    tally.stopped.store(!options.dry_run && tally.is_beyond(options.limits), Ordering::Relaxed);
    if !options.dry_run {
        store::insert_runs(&mut conn, &months, now).await?;
        if options.confirmed {
            store::confirm_runs(&mut conn, &months, now).await?;
        }
    }
    drop(conn);

    let shift = Shift { db, calendar: &calendar, options: &options, tally: &tally, now, expected, progress };
    let mut open = 0;
    if let Some(range) = wallets_of(&owing) {
        let wallets = Wallets::between(range);
        let workers = (0..options.workers.max(1)).map(|_| work_through(&shift, &wallets, Waiting::PassOver));
        for outcome in futures::future::join_all(workers).await {
            outcome?;
        }
        if !options.dry_run && shift.goes_on() {
            open = finish_open(&shift, range).await?;
        } else {
            // Nothing of a rehearsal stays to be counted, and whoever stops doesn't look again.
            open = expected.saturating_sub(tally.decided());
        }
    }
    let report = RunReport::of(expected, tally.charged(), tally.overdue(), open);
    if !options.confirmed && tally.is_beyond(options.limits) && (options.dry_run || open > 0) {
        let (overdue, decided) = tally.unconfirmed();
        let allowed = options.limits.overdue_percent_max;
        return Err(Error::Refused(RunRefusal::TooManyOverdue {
            overdue,
            decided,
            allowed,
            report,
            dry_run: options.dry_run,
        }));
    }
    match worst_of(&beyond) {
        None => Ok(report),
        Some(worst) => Err(Error::Refused(RunRefusal::TooManyMonths {
            subscription_id: worst.lowest_subscription,
            tenant_id: store::tenant_of_subscription(&mut *db.pool().acquire().await?, worst.lowest_subscription)
                .await?,
            months: worst.months,
            allowed: options.limits.months_max,
            subscriptions: beyond.iter().fold(0, |sum, owing| sum.saturating_add(owing.subscriptions)),
            report,
            dry_run: options.dry_run,
        })),
    }
}

/// The months among them, the oldest first.
fn months_in(owing: &[Owing]) -> Vec<NaiveDate> {
    let months: BTreeSet<NaiveDate> = owing
        .iter()
        .flat_map(|owing| Month::of(owing.first).through(Month::of(owing.last)))
        .map(Month::first_day)
        .collect();
    months.into_iter().collect()
}

/// Between which wallets they are.
fn wallets_of(owing: &[Owing]) -> Option<(i64, i64)> {
    let lowest = owing.iter().map(|owing| owing.lowest_wallet).min()?;
    let highest = owing.iter().map(|owing| owing.highest_wallet).max()?;
    Some((lowest, highest))
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
async fn finish_open(shift: &Shift<'_>, range: (i64, i64)) -> Result<u64, Error<RunRefusal>> {
    for _ in 0..WAITING_ROUNDS {
        let open = still_open(shift).await?;
        if open == 0 || !shift.goes_on() {
            return Ok(open);
        }
        work_through(shift, &Wallets::between(range), Waiting::PassOver).await?;
        match work_through(shift, &Wallets::between(range), Waiting::Wait).await {
            // Whoever holds the wallet holds it for longer than we wait; the next round may find it free.
            Err(Error::Fault(fault)) if fault.remedy() == Remedy::Wait => {
                tracing::warn!("a wallet could not be had in time: {}", fault.chain());
            }
            outcome => outcome?,
        }
    }
    Ok(still_open(shift).await?)
}

/// How many months are undecided that the run may decide.
async fn still_open(shift: &Shift<'_>) -> Result<u64, Fault> {
    let mut conn = shift.db.pool().acquire().await?;
    let mut owing = store::survey_owed(&mut conn, shift.calendar).await?;
    owing.retain(|owing| shift.options.allows_months(owing.months_at_once));
    Ok(months_of(&owing))
}

/// What to do about a wallet that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    PassOver,
    Wait,
}

async fn work_through(shift: &Shift<'_>, wallets: &Wallets, waiting: Waiting) -> Result<(), Error<RunRefusal>> {
    let options = shift.options;
    while shift.goes_on() {
        // A transaction that is repeated takes the wallets it took before.
        let taken = OnceLock::new();
        let taken = &taken;
        let done = shift
            .db
            .run("fee_chunk", |conn| {
                async move {
                    let chunk_wallets = take(conn, shift, wallets, taken, waiting).await?;
                    let done = decide_chunk(conn, shift, &chunk_wallets).await?;
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
        shift.tally.add(&done);
        (shift.progress)(Running { expected: shift.expected, decided: shift.tally.decided() });
        if !options.dry_run {
            metrics::counter!("hamyon_fees_decided_total", "outcome" => "charged").increment(done.charged);
            metrics::counter!("hamyon_fees_decided_total", "outcome" => "overdue").increment(done.overdue);
            if !options.confirmed && shift.tally.is_beyond(options.limits) {
                shift.tally.stopped.store(true, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Locks the next chunk of wallets, or the same again. None of a stretch without any is a chunk, too.
async fn take(
    conn: &mut PgConnection,
    shift: &Shift<'_>,
    wallets: &Wallets,
    taken: &OnceLock<(i64, i64)>,
    waiting: Waiting,
) -> Result<Vec<OwingWallet>, Fault> {
    let limit = match waiting {
        Waiting::PassOver => CHUNK_WALLETS,
        Waiting::Wait => WAITING_CHUNK_WALLETS,
    };
    let calendar = shift.calendar;
    if let Some((after, to)) = taken.get() {
        return store::lock_owing_wallets(conn, calendar, *after, *to, limit, waiting).await;
    }
    let mut after = wallets.after.lock().await;
    if *after >= wallets.to {
        return Ok(Vec::new());
    }
    let span = after.saturating_add(SPAN_WALLETS).min(wallets.to);
    let locked = store::lock_owing_wallets(conn, calendar, *after, span, limit, waiting).await?;
    let is_full = i64::try_from(locked.len()).is_ok_and(|count| count >= limit);
    // With fewer than it may take it has seen the whole stretch.
    let to = if is_full { locked.iter().map(|wallet| wallet.wallet_id).max().unwrap_or(span) } else { span };
    taken.get_or_init(|| (*after, to));
    *after = to;
    Ok(locked)
}

/// Decides what locked wallets owe, on a connection whose transaction the caller owns.
async fn decide_chunk(
    conn: &mut PgConnection,
    shift: &Shift<'_>,
    wallets: &[OwingWallet],
) -> Result<ChunkDone, Error<ChunkEnd>> {
    if wallets.is_empty() {
        return Ok(ChunkDone::default());
    }
    let now = shift.now;
    let owed = store::read_owed(conn, shift.calendar, wallets, shift.options).await?;
    // All of them may wait for a person.
    if owed.is_empty() {
        return Ok(ChunkDone::default());
    }
    let decided = decide(conn, owed, now).await?;
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
    let mut done = ChunkDone::default();
    for due in &decided {
        let unconfirmed = u64::from(shift.tally.unconfirmed.contains(&due.fee.month.first_day()));
        let (all, of_unconfirmed) = if due.charged {
            (&mut done.charged, &mut done.unconfirmed_charged)
        } else {
            (&mut done.overdue, &mut done.unconfirmed_overdue)
        };
        *all = all.saturating_add(1);
        *of_unconfirmed = of_unconfirmed.saturating_add(unconfirmed);
    }
    Ok(done)
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
