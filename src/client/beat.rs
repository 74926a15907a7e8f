//! Saying that the work is alive, while it is.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{Client, Error, Problem, Retry};

/// Why the work should stop.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// Somebody asked for it. Settle by usage.
    CancelRequested,
    /// The service refuses signs of life: the hold has ended, its time is over, or the token isn't valid any more.
    Refused(Box<Problem>),
}

/// What the work hears of its hold while it runs.
#[derive(Debug, Clone)]
pub struct Pulse {
    heard: watch::Receiver<Option<Stop>>,
}

impl Pulse {
    /// Whether the work should stop, and why. To be asked between two calls.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        self.heard.borrow().clone()
    }

    /// Waits until the work should stop; for ever, if it never should.
    pub async fn stopped(&mut self) -> Stop {
        let heard = match self.heard.wait_for(Option::is_some).await {
            Ok(stop) => stop.clone(),
            Err(_) => None,
        };
        match heard {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }
}

/// What came of the work, and what was heard meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Beaten<T> {
    /// What the work came to.
    pub output: T,
    /// Whether it should have stopped, and why.
    pub stop: Option<Stop>,
}

impl Client {
    /// Runs `work` and says all the while, in a task of its own, that it is alive: at once, and then three times within
    /// each lease. `lease_secs` is how long a sign of life counts, 1 to 3600.
    ///
    /// The work decides what it does with a [`Stop`]; it isn't cut off. A sign that gets lost is made up by the next one.
    /// When the future is dropped, the signs end with it, and so does the lease: what nobody ends is ended by the
    /// reconciler.
    pub async fn while_beating<F: Future>(
        &self,
        hold_id: &str,
        lease_secs: u32,
        work: impl FnOnce(Pulse) -> F,
    ) -> Beaten<F::Output> {
        let every = Duration::from_secs(u64::from((lease_secs / 3).max(1)));
        // A sign that takes longer than the time to the next one is of no use.
        let quick = self.clone().with_retry(Retry::never()).with_timeout(self.timeout.min(every));
        let (tell, heard) = watch::channel(None);
        let beats =
            AbortOnDropHandle::new(tokio::spawn(keep_beating(quick, hold_id.to_owned(), lease_secs, every, tell)));
        let output = work(Pulse { heard: heard.clone() }).await;
        drop(beats);
        let stop = heard.borrow().clone();
        Beaten { output, stop }
    }
}

async fn keep_beating(
    client: Client,
    hold_id: String,
    lease_secs: u32,
    every: Duration,
    tell: watch::Sender<Option<Stop>>,
) {
    loop {
        match client.beat(&hold_id, Some(lease_secs)).await {
            // It goes on: the work has to live until it has settled.
            Ok(hold) if hold.cancel_requested => {
                tell.send_replace(Some(Stop::CancelRequested));
            }
            Err(Error::Refused(problem)) if is_for_good(&problem) => {
                tell.send_replace(Some(Stop::Refused(problem)));
                return;
            }
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(every).await;
    }
}

/// Whether no further sign of life will be taken. Anything else, also a refusal of something between us and the service,
/// may pass, and a job that fell silent over it would lose its hold.
fn is_for_good(problem: &Problem) -> bool {
    const OF_THE_HOLD: [&str; 4] = ["already_settled", "already_released", "hold_expired", "hold_not_found"];
    OF_THE_HOLD.contains(&problem.code.as_str()) || matches!(problem.status, 401 | 403 | 404)
}
