//! Work that nobody asks for.
//!
//! A job is a function without input: it looks at the database and brings it to where it should be, in steps
//! that are each whole. It may be killed, run late or run twice, and nothing is lost or done twice.

mod scheduler;

pub use scheduler::Scheduler;

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

    /// Runs the job once, unless another process runs it. Returns how much it did.
    ///
    /// # Errors
    /// A fault; what was done before it stays done.
    pub async fn run(self, app: &App) -> Result<u64, Fault> {
        let Some(key) = self.leader_lock() else { return self.work(app).await };
        // The lock belongs to a session, so the session is held for as long as the job runs.
        let mut leader = app.db.pool().acquire().await?;
        let leads: bool = sqlx::query_scalar("-- jobs::lead\nSELECT pg_try_advisory_lock($1)")
            .bind(key)
            .fetch_one(&mut *leader)
            .await?;
        if !leads {
            return Ok(0);
        }
        let done = self.work(app).await;
        let released =
            sqlx::query("-- jobs::step_down\nSELECT pg_advisory_unlock($1)").bind(key).execute(&mut *leader).await;
        if released.is_err() {
            // The lock ends with its session.
            drop(leader.detach());
        }
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

/// A run that stops at a limit waits for a person: it is said each time, and nothing is lost by it.
async fn fee_run(app: &App) -> Result<u64, Fault> {
    let options = RunOptions { limits: app.settings.fee_limits, ..RunOptions::default() };
    match fee::run(&app.db, &app.clock, options, &|_| {}).await {
        Ok(report) => Ok(report.charged.saturating_add(report.overdue)),
        Err(Error::Refused(refusal)) => Err(Fault::new("the fee run needs a person").because(refusal)),
        Err(Error::Fault(fault)) => Err(fault),
    }
}
