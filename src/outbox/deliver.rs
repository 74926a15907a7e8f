//! Delivering: claim and commit, then send, then record.
//!
//! No transaction is open while we wait for somebody else's server. A worker that dies between its claim and
//! its record leaves a claim that runs out, and the event is sent again: at least once, never nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use standardwebhooks::Webhook;

use super::address::{PublicResolver, check_literal};
use super::store::{self, Attempt, Claimed, Next};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::Fault;

/// How long to wait after the first, second, … attempt that failed; after the last one it is given up.
/// The schedule that Standard Webhooks recommends: about three days.
const BACKOFF_SECS: [i64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/// How much is claimed at once, how much of it for one receiver, and for how long.
const CLAIM_MAX: i64 = 64;
const CLAIM_PER_ENDPOINT_MAX: i64 = 16;
const CLAIM_TIME: TimeDelta = TimeDelta::seconds(60);

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
    db: Database,
    clock: Clock,
    client: reqwest::Client,
    allow_private: bool,
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
        Ok(Self { db, clock, client, allow_private: settings.allow_private })
    }

    /// Sends everything that waits and is ready now. Returns how many attempts were made.
    ///
    /// # Errors
    /// A fault of the database; what was sent stays sent, and may be sent again.
    pub async fn deliver_ready(&self) -> Result<u64, Fault> {
        let mut attempts: u64 = 0;
        // What is under way. A receiver that takes its time must not hold up the others, so each delivery is
        // recorded and its tenant's next one claimed as soon as it is done.
        let mut under_way = futures::stream::FuturesUnordered::new();
        loop {
            let claimed = self.claim().await?;
            attempts = attempts.saturating_add(u64::try_from(claimed.len()).unwrap_or(u64::MAX));
            for delivery in claimed {
                under_way.push(self.deliver(delivery));
            }
            match under_way.next().await {
                Some(outcome) => outcome?,
                None => return Ok(attempts),
            }
        }
    }

    async fn claim(&self) -> Result<Vec<Claimed>, Fault> {
        let now = self.clock.now();
        let until = now.checked_add_signed(CLAIM_TIME).unwrap_or(now);
        let mut conn = self.db.pool().acquire().await?;
        store::claim(&mut conn, CLAIM_MAX, CLAIM_PER_ENDPOINT_MAX, now, until).await
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
        let mut conn = self.db.pool().acquire().await?;
        store::record(&mut conn, &claimed, &attempt, next, now).await?;
        if gone && store::disable_endpoint(&mut conn, claimed.endpoint_id, now).await? {
            tracing::warn!(
                endpoint_id = claimed.endpoint_id,
                "webhook endpoint {} says 410 Gone and is switched off",
                claimed.endpoint_id
            );
        }
        Ok(())
    }

    async fn send(&self, claimed: &Claimed, now: DateTime<Utc>) -> Result<StatusCode, String> {
        let url: reqwest::Url = claimed.url.parse().map_err(|_| "the URL can't be read".to_owned())?;
        check_literal(&url, self.allow_private).map_err(|refusal| refusal.to_string())?;
        // The id is the same at every attempt: a receiver tells repeats by it.
        let id = format!("evt_{}", claimed.event_id);
        let timestamp = now.timestamp();
        let signature = Webhook::new(&claimed.secret)
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
