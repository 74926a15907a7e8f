//! Work that nobody asks for.
//!
//! A job is a function without input: it looks at the database and brings it to where it should be, in steps
//! that are each whole. It may be killed, run late or run twice, and nothing is lost or done twice.

mod scheduler;

pub use scheduler::Scheduler;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;

use crate::allowance;
use crate::app::App;
use crate::fault::{Error, Fault};
use crate::fee::{self, RunOptions};
use crate::hold;
use crate::payment;
use crate::pocket;
use crate::provider::payme;

/// The jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Job {
    /// Times out Payme transactions that nobody came back for within twelve hours.
    PaymeSweep,
    /// Decides every month that is owed and undecided.
    FeeRun,
    /// Queues what tenants hear about unpaid fees.
    Reminders,
    /// Ends holds that nobody came back for.
    HoldReconcile,
    /// Tells those whose job waits for a worker.
    HoldWaiting,
    /// Books what is left in pockets whose time is over.
    PocketExpiry,
    /// Fills the allowances of those who are away, and tells them.
    AllowanceSweep,
    /// Delivers events.
    Outbox,
    /// Gives payments in stars back.
    TelegramRefunds,
    /// Reads the bots' own lists of payments against the book.
    TelegramReconcile,
}

impl Job {
    /// Every job.
    pub const ALL: [Self; 10] = [
        Self::PaymeSweep,
        Self::FeeRun,
        Self::Reminders,
        Self::HoldReconcile,
        Self::HoldWaiting,
        Self::PocketExpiry,
        Self::AllowanceSweep,
        Self::Outbox,
        Self::TelegramRefunds,
        Self::TelegramReconcile,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PaymeSweep => "payme_sweep",
            Self::FeeRun => "fee_run",
            Self::Reminders => "reminders",
            Self::HoldReconcile => "hold_reconcile",
            Self::HoldWaiting => "hold_waiting",
            Self::PocketExpiry => "pocket_expiry",
            Self::AllowanceSweep => "allowance_sweep",
            Self::Outbox => "outbox",
            Self::TelegramRefunds => "telegram_refunds",
            Self::TelegramReconcile => "telegram_reconcile",
        }
    }

    /// When it is poked. Seconds come first; the zone doesn't matter.
    #[must_use]
    pub const fn schedule(self) -> &'static str {
        match self {
            Self::PaymeSweep | Self::HoldReconcile | Self::PocketExpiry => "0 * * * * *",
            // Three in the morning in Tashkent.
            Self::AllowanceSweep => "0 0 22 * * *",
            Self::FeeRun | Self::Reminders => "0 */5 * * * *",
            Self::Outbox | Self::HoldWaiting => "*/2 * * * * *",
            Self::TelegramRefunds => "*/5 * * * * *",
            // A refund whose outcome is unknown waits for the list to be read.
            Self::TelegramReconcile => "30 * * * * *",
        }
    }

    /// The key of its advisory lock, so that one process of many runs it at a time. Deliveries are claimed one
    /// by one, so that job needs no leader.
    const fn leader_lock(self) -> Option<i64> {
        match self {
            Self::PaymeSweep => Some(0x68_61_6d_01),
            Self::FeeRun => Some(0x68_61_6d_02),
            Self::Reminders => Some(0x68_61_6d_03),
            Self::HoldReconcile => Some(0x68_61_6d_04),
            Self::PocketExpiry => Some(0x68_61_6d_05),
            Self::AllowanceSweep => Some(0x68_61_6d_11),
            Self::HoldWaiting | Self::Outbox => None,
            Self::TelegramRefunds => Some(0x68_61_6d_06),
            Self::TelegramReconcile => Some(0x68_61_6d_07),
        }
    }

    /// Whether one process of many runs it at a time, on a session of its own.
    #[must_use]
    pub const fn has_leader(self) -> bool {
        self.leader_lock().is_some()
    }

    /// Runs the job once, unless another process runs it. Returns how much it did.
    ///
    /// # Errors
    /// A fault; what was done before it stays done.
    pub async fn run(self, app: &App) -> Result<u64, Fault> {
        let Some(key) = self.leader_lock() else { return self.work(app).await };
        let Some(leader) = Leader::elect(app, key).await? else { return Ok(0) };
        let done = self.work(app).await;
        leader.step_down(key).await;
        done
    }

    async fn work(self, app: &App) -> Result<u64, Fault> {
        match self {
            Self::PaymeSweep => payment::sweep_expired(&app.db, &app.clock, payme::PROVIDER, app.payme.terms()).await,
            Self::FeeRun => fee_run(app).await,
            Self::Reminders => fee::remind(&app.db, &app.clock, &app.settings.reminders).await,
            Self::HoldReconcile => {
                let done = hold::reconcile(&app.db, &app.clock).await?;
                Ok(done.extended.saturating_add(done.settled).saturating_add(done.released))
            }
            Self::HoldWaiting => hold::tell_waiting(&app.db, &app.clock, &app.settings.holds).await,
            Self::PocketExpiry => pocket::sweep(&app.db, &app.clock).await,
            Self::AllowanceSweep => allowance::sweep(&app.db, &app.clock).await,
            Self::Outbox => app.deliverer.deliver_ready().await,
            Self::TelegramRefunds => app.telegram.give_back().await,
            Self::TelegramReconcile => app.telegram.reconcile().await,
        }
    }
}

/// The session that holds a job's lock, for as long as the job runs.
struct Leader(Option<PoolConnection<Postgres>>);

impl Leader {
    /// Takes the lock; nothing when another process has it.
    async fn elect(app: &App, key: i64) -> Result<Option<Self>, Fault> {
        let mut session = app.db.pool().acquire().await?;
        let leads: bool = sqlx::query_scalar("-- jobs::lead\nSELECT pg_try_advisory_lock($1)")
            .bind(key)
            .fetch_one(&mut *session)
            .await?;
        Ok(leads.then_some(Self(Some(session))))
    }

    /// Gives the lock back, and the session to the others.
    async fn step_down(mut self, key: i64) {
        let Some(session) = &mut self.0 else { return };
        let released =
            sqlx::query("-- jobs::step_down\nSELECT pg_advisory_unlock($1)").bind(key).execute(&mut **session).await;
        if released.is_ok() {
            drop(self.0.take());
        }
    }
}

/// A job that panics, and a session that doesn't answer: the lock ends with its session, so that is not used again.
impl Drop for Leader {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            drop(session.detach());
        }
    }
}

/// What is beyond a limit waits for a person: it is said each time, and nothing is lost by it.
async fn fee_run(app: &App) -> Result<u64, Fault> {
    let options = RunOptions { limits: app.settings.fee_limits, stop: app.stopping.clone(), ..RunOptions::default() };
    match fee::run(&app.db, &app.clock, options, &|_| {}).await {
        Ok(report) => Ok(report.charged.saturating_add(report.overdue)),
        Err(Error::Refused(refusal)) => {
            metrics::counter!("hamyon_fee_run_refusals_total", "limit" => refusal.limit()).increment(1);
            Err(Fault::new("the fee run needs a person").because(refusal))
        }
        Err(Error::Fault(fault)) => Err(fault),
    }
}
