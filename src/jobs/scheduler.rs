//! The scheduler only pokes.
//!
//! tokio-cron-scheduler starts a run at each tick, also while the one before is still running, and its
//! shutdown doesn't wait. So a tick does nothing but wake a loop of ours: ticks that come while the job runs
//! fall together into one, and stopping waits for the run to end.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_cron_scheduler::{Job, JobScheduler};
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Every minute. Seconds come first.
const PAYME_SWEEP_SCHEDULE: &str = "0 * * * * *";

/// The running jobs.
#[expect(missing_debug_implementations, reason = "the scheduler of the library has none")]
pub struct Scheduler {
    ticks: JobScheduler,
    stop: CancellationToken,
    runner: JoinHandle<()>,
}

impl Scheduler {
    /// Starts the jobs, each with a first run at once: what came due while nobody was there is made up.
    ///
    /// # Errors
    /// When the schedule can't be read or the scheduler doesn't start.
    pub async fn start(app: Arc<App>) -> anyhow::Result<Self> {
        let scheduler = JobScheduler::new().await.context("the scheduler can't be made")?;
        let poke = Arc::new(Notify::new());
        poke.notify_one();
        let poker = poke.clone();
        let job = Job::new_async(PAYME_SWEEP_SCHEDULE, move |_, _| {
            let poker = poker.clone();
            Box::pin(async move { poker.notify_one() })
        })
        .context("the schedule can't be read")?;
        scheduler.add(job).await.context("the job can't be added")?;
        scheduler.start().await.context("the scheduler doesn't start")?;
        let stop = CancellationToken::new();
        let runner = tokio::spawn(run_when_poked(app, poke, stop.clone()));
        Ok(Self { ticks: scheduler, stop, runner })
    }

    /// Stops the jobs, waiting for the run that is on its way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if self.ticks.shutdown().await.is_err() {
            tracing::warn!("the scheduler did not shut down cleanly");
        }
        if self.runner.await.is_err() {
            tracing::error!("a job panicked");
        }
    }
}

async fn run_when_poked(app: Arc<App>, poke: Arc<Notify>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = poke.notified() => {}
        }
        let status = match super::payme_sweep(&app).await {
            Ok(0) => "idle",
            Ok(swept) => {
                tracing::info!(swept, "timed out {swept} Payme transactions that nobody came back for");
                "done"
            }
            Err(fault) => {
                tracing::error!("the Payme sweep failed and will run again: {}", fault.chain());
                "failed"
            }
        };
        metrics::counter!("hamyon_job_runs_total", "job" => "payme_sweep", "status" => status).increment(1);
    }
}
