//! The scheduler only pokes.
//!
//! tokio-cron-scheduler starts a run at each tick, also while the one before is still running, and its
//! shutdown doesn't wait. So a tick does nothing but wake a loop of ours, one per job: ticks that come while
//! the job runs fall together into one, and stopping waits for the run to end.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_cron_scheduler::JobScheduler;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::app::App;
use crate::fault::Fault;

/// How many connections to the database a job is reckoned to need, so that others have some left.
const CONNECTIONS_OF_A_JOB: usize = 3;

/// The running jobs.
#[expect(missing_debug_implementations, reason = "the scheduler of the library has none")]
pub struct Scheduler {
    app: Arc<App>,
    ticks: JobScheduler,
    stop: CancellationToken,
    runners: Vec<JoinHandle<()>>,
}

impl Scheduler {
    /// Starts the jobs, each with a first run at once: what came due while nobody was there is made up.
    ///
    /// # Errors
    /// When a schedule can't be read or the scheduler doesn't start.
    pub async fn start(app: Arc<App>) -> anyhow::Result<Self> {
        let ticks = JobScheduler::new().await.context("the scheduler can't be made")?;
        let stop = CancellationToken::new();
        let mut runners = Vec::new();
        let connections = usize::try_from(app.db.pool().options().get_max_connections())?;
        let places = Arc::new(Semaphore::new((connections / CONNECTIONS_OF_A_JOB).max(1)));
        for job in Job::ALL {
            let poke = Arc::new(Notify::new());
            poke.notify_one();
            let poker = poke.clone();
            let tick = tokio_cron_scheduler::Job::new_async(job.schedule(), move |_, _| {
                let poker = poker.clone();
                Box::pin(async move { poker.notify_one() })
            })
            .with_context(|| format!("the schedule of {} can't be read", job.name()))?;
            ticks.add(tick).await.with_context(|| format!("{} can't be scheduled", job.name()))?;
            runners.push(tokio::spawn(run_when_poked(job, app.clone(), poke, stop.clone(), places.clone())));
        }
        ticks.start().await.context("the scheduler doesn't start")?;
        Ok(Self { app, ticks, stop, runners })
    }

    /// Stops the jobs, waiting for the runs that are on their way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.app.stopping.cancel();
        // However much waits, stopping doesn't wait for it.
        self.app.deliverer.stop();
        if self.ticks.shutdown().await.is_err() {
            tracing::warn!("the scheduler did not shut down cleanly");
        }
        for runner in self.runners {
            if runner.await.is_err() {
                tracing::error!("a job panicked");
            }
        }
    }
}

async fn run_when_poked(job: Job, app: Arc<App>, poke: Arc<Notify>, stop: CancellationToken, places: Arc<Semaphore>) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = poke.notified() => {}
        }
        let name = job.name();
        // A leader keeps a session beside those that its work needs; many at once would leave none to anybody.
        let place = if job.has_leader() { places.acquire().await.ok() } else { None };
        // A task of its own: a panic is a run that failed, and not the end of the job.
        let turn = tokio::spawn({
            let app = app.clone();
            async move { job.run(&app).await }
        });
        let outcome = turn.await.unwrap_or_else(|error| Err(Fault::new("the job panicked").because(error)));
        drop(place);
        let status = match outcome {
            Ok(0) => "idle",
            Ok(done) => {
                tracing::info!(job = name, done, "job {name} did {done}");
                "done"
            }
            Err(fault) => {
                tracing::error!(job = name, "job {name} failed and will run again: {}", fault.chain());
                "failed"
            }
        };
        metrics::counter!("hamyon_job_runs_total", "job" => name, "status" => status).increment(1);
    }
}
