//! Delivering: claim and commit, then send, then record.
//!
//! No transaction is open while we wait for somebody else's server. A worker that dies between its claim and
//! its record leaves a claim that runs out, and the event is sent again: at least once, never nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use scoped_futures::ScopedFutureExt as _;
use secrecy::ExposeSecret as _;
use standardwebhooks::Webhook;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::address::{PublicResolver, check_literal};
use super::store::{self, Attempt, Claimed, Next, Place};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};

/// How long to wait after the first, second, … attempt that failed; after the last one it is given up.
/// The schedule that Standard Webhooks recommends: about three days.
const BACKOFF_SECS: [i64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/// How much is claimed at once, how much of it for one receiver, and how much may be under way together.
const CLAIM_MAX: usize = 64;
const CLAIM_PER_ENDPOINT_MAX: i64 = 16;
const UNDER_WAY_MAX: usize = 1_024;

/// How many deliveries of each endpoint a claim looks at.
const LOOK_MAX: i64 = 200;

/// A claim lasts this much longer than a receiver may take.
const CLAIM_MARGIN: Duration = Duration::from_secs(50);

/// How long a new event may wait while receivers take their time.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How many connections recording may take: the others belong to those who move money.
const RECORDING_MAX: usize = 4;

/// How the deliverer behaves.
#[derive(Debug, Clone, Copy)]
pub struct DelivererSettings {
    /// Whether private addresses may be called.
    pub allow_private: bool,
    /// How long a receiver may take.
    pub timeout: Duration,
}

impl Default for DelivererSettings {
    fn default() -> Self {
        Self { allow_private: false, timeout: Duration::from_secs(10) }
    }
}

/// Sends what waits.
#[derive(Debug)]
pub struct Deliverer {
    sender: Arc<Sender>,
    stop: CancellationToken,
}

/// What every delivery needs.
#[derive(Debug)]
struct Sender {
    db: Database,
    clock: Clock,
    client: reqwest::Client,
    allow_private: bool,
    claim_time: TimeDelta,
    recording: Semaphore,
}

impl Deliverer {
    /// A deliverer with its own HTTP client.
    ///
    /// # Errors
    /// When the client can't be made.
    pub fn new(db: Database, clock: Clock, settings: DelivererSettings) -> Result<Self, Fault> {
        // Whoever comes second finds a provider installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .dns_resolver(Arc::new(PublicResolver { allow_private: settings.allow_private }))
            // A redirect could lead to where we don't call.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(settings.timeout)
            .user_agent(concat!("hamyon/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Fault::new("the HTTP client can't be made").because(error))?;
        let claim_time = TimeDelta::from_std(settings.timeout.saturating_add(CLAIM_MARGIN))
            .map_err(|error| Fault::new("a receiver may not take that long").because(error))?;
        let sender = Sender {
            db,
            clock,
            client,
            allow_private: settings.allow_private,
            claim_time,
            recording: Semaphore::new(RECORDING_MAX),
        };
        Ok(Self { sender: Arc::new(sender), stop: CancellationToken::new() })
    }

    /// Nothing more is claimed from now on; what is under way ends.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Sends everything that waits and is ready now. Returns how many attempts were made.
    ///
    /// # Errors
    /// A fault of the database. What was sent stays sent, and may be sent again.
    pub async fn deliver_ready(&self) -> Result<u64, Fault> {
        let mut attempts: u64 = 0;
        let mut fault = None;
        // A receiver that takes its time must hold up nobody else: each delivery is a task of its own, and more
        // is claimed as soon as one ends, and in any case after a while.
        let mut under_way = JoinSet::new();
        loop {
            if fault.is_none() && !self.stop.is_cancelled() {
                match self.sender.claim(UNDER_WAY_MAX.saturating_sub(under_way.len())).await {
                    Ok((claimed, parked)) => {
                        attempts = attempts.saturating_add(u64::try_from(claimed.len()).unwrap_or(u64::MAX));
                        for delivery in claimed {
                            let sender = self.sender.clone();
                            under_way.spawn(async move { sender.deliver(delivery).await });
                        }
                        if parked > 0 {
                            // What was parked was in the way of others.
                            continue;
                        }
                    }
                    Err(error) => fault = Some(error),
                }
            }
            let ended = tokio::select! {
                ended = under_way.join_next() => ended,
                () = tokio::time::sleep(LOOK_AGAIN_AFTER), if !under_way.is_empty() => continue,
            };
            let Some(ended) = ended else {
                return fault.map_or(Ok(attempts), Err);
            };
            for ended in std::iter::once(ended).chain(std::iter::from_fn(|| under_way.try_join_next())) {
                let outcome = ended.unwrap_or_else(|error| Err(Fault::new("a delivery panicked").because(error)));
                if let Err(error) = outcome {
                    // The others end and are recorded; the rest waits for the next time.
                    fault.get_or_insert(error);
                }
            }
        }
    }
}

impl Sender {
    /// Claims what is ready, and says how much was put out of the way.
    async fn claim(&self, room: usize) -> Result<(Vec<Claimed>, u64), Fault> {
        let now = self.clock.now();
        let until = now.checked_add_signed(self.claim_time).unwrap_or(now);
        let limit = i64::try_from(room.min(CLAIM_MAX)).unwrap_or(0);
        let mut conn = self.db.pool().acquire().await?;
        let claimed = store::claim(&mut conn, limit, CLAIM_PER_ENDPOINT_MAX, LOOK_MAX, now, until).await?;
        let blocked = store::find_blocked(&mut conn, LOOK_MAX, now).await?;
        drop(conn);
        if blocked.is_empty() {
            return Ok((claimed, 0));
        }
        let blocked = &blocked;
        let parked = self
            .db
            .run("outbox_park", |conn| {
                async move {
                    store::lock_order(conn, blocked).await?;
                    Ok::<_, Error<Infallible>>(store::park(conn, blocked).await?)
                }
                .scope_boxed()
            })
            .await;
        // What is claimed has to be sent, whatever became of the rest.
        Ok((claimed, parked.map_err(never_refused).unwrap_or_default()))
    }

    async fn deliver(&self, claimed: Claimed) -> Result<(), Fault> {
        let attempted_at = self.clock.now();
        let started = Instant::now();
        let outcome = self.send(&claimed, attempted_at).await;
        let now = self.clock.now();
        let (status, problem) = match &outcome {
            Ok(status) if status.is_success() => (Some(*status), None),
            Ok(status) if status.is_redirection() => (Some(*status), Some("a redirect is not followed".to_owned())),
            Ok(status) => (Some(*status), Some(format!("the receiver answered {}", status.as_u16()))),
            Err(problem) => (None, Some(problem.clone())),
        };
        let gone = status == Some(StatusCode::GONE);
        let next = match (&problem, gone) {
            (None, _) => Next::Delivered,
            (Some(_), true) => Next::Dead,
            (Some(_), false) => after_failure(claimed.attempts, now),
        };
        let attempt = Attempt {
            attempted_at,
            duration_ms: i32::try_from(started.elapsed().as_millis()).unwrap_or(i32::MAX),
            status: status.map(|status| i32::from(status.as_u16())),
            problem,
        };
        let result = match next {
            Next::Delivered => "delivered",
            Next::Retry(_) => "failed",
            Next::Dead => "dead",
        };
        metrics::counter!("hamyon_webhook_attempts_total", "result" => result).increment(1);
        let switched_off = self.record(&claimed, &attempt, next, gone, now).await?;
        if switched_off {
            tracing::warn!(
                endpoint_id = claimed.endpoint_id,
                "webhook endpoint {} says 410 Gone and is switched off",
                claimed.endpoint_id
            );
        }
        Ok(())
    }

    /// Records an attempt and lets the tenant's next event go, unless the endpoint is gone: then it is switched
    /// off in the same transaction, so that nobody claims more of it in between. Says whether it was.
    async fn record(
        &self,
        claimed: &Claimed,
        attempt: &Attempt,
        next: Next,
        gone: bool,
        now: DateTime<Utc>,
    ) -> Result<bool, Fault> {
        // The semaphore is never closed.
        let _turn = self.recording.acquire().await;
        let place = &[Place {
            endpoint_id: claimed.endpoint_id,
            tenant_id: claimed.tenant_id.clone(),
            event_id: claimed.event_id,
        }];
        self.db
            .run("outbox_record", |conn| {
                async move {
                    store::lock_order(conn, place).await?;
                    store::record(conn, claimed, attempt, next, now).await?;
                    for place in place {
                        store::wake_next(conn, place).await?;
                    }
                    let off = gone && store::disable_endpoint(conn, claimed.endpoint_id, now).await?;
                    Ok::<_, Error<Infallible>>(off)
                }
                .scope_boxed()
            })
            .await
            .map_err(never_refused)
    }

    async fn send(&self, claimed: &Claimed, now: DateTime<Utc>) -> Result<StatusCode, String> {
        let url: reqwest::Url = claimed.url.parse().map_err(|_| "the URL can't be read".to_owned())?;
        check_literal(&url, self.allow_private).map_err(|refusal| refusal.to_string())?;
        // The id is the same at every attempt: a receiver tells repeats by it.
        let id = format!("evt_{}", claimed.event_id);
        let timestamp = now.timestamp();
        let signature = Webhook::new(claimed.secret.expose_secret())
            .and_then(|webhook| webhook.sign(&id, timestamp, claimed.body.as_bytes()))
            .map_err(|_| "the secret can't sign".to_owned())?;
        let answer = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", signature)
            .body(claimed.body.clone())
            .send()
            .await
            .map_err(|error| Fault::new("the receiver could not be reached").because(error.without_url()).chain())?;
        Ok(answer.status())
    }
}

fn after_failure(attempts: i32, now: DateTime<Utc>) -> Next {
    let failed = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    match BACKOFF_SECS.get(failed) {
        Some(seconds) => Next::Retry(now.checked_add_signed(TimeDelta::seconds(*seconds)).unwrap_or(now)),
        None => Next::Dead,
    }
}

fn never_refused(error: Error<Infallible>) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        Error::Refused(never) => match never {},
    }
}
