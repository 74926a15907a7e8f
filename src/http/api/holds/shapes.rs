//! What is said about holds, in both directions.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::Transaction;
use crate::fault::Fault;
use crate::hold::{Ended, Hold, Outcome, Placed, Standing, Used};
use crate::money::{Currency, MinorUnits};

/// A job that wants money kept for it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHold {
    /// The job's own id: 1 to 64 of A-Z a-z 0-9 . _ : @ + - The same again is answered with the first hold.
    #[schema(example = "job-1")]
    pub hold_id: String,
    /// Whose money.
    #[schema(example = "acme")]
    pub tenant_id: String,
    /// Which of the tenant's wallets.
    #[schema(example = "CREDIT")]
    pub currency: String,
    /// How much, as decimal text; this or `tier`. Zero costs nothing and counts as a job at work.
    #[schema(example = "20")]
    pub amount: Option<String>,
    /// A tier, whose amount of now is fixed for this hold; this or `amount`.
    pub tier: Option<String>,
    /// Whether less will do when there isn't enough; refused only when there is nothing.
    pub allow_partial: Option<bool>,
    /// How many jobs of the tenant may be at work, with this one.
    #[schema(example = 3)]
    pub max_in_flight: Option<u32>,
    /// How long the hold lives when nobody comes back, in seconds.
    #[schema(example = 900)]
    pub ttl_secs: Option<i64>,
    /// The most the job may cost, as decimal text; what is available bounds it anyway.
    pub cost_cap: Option<String>,
    /// Where the job belongs. A new job of a session takes the place of the old one: one that hasn't begun is over, one
    /// that has is asked to stop and settles by what it used.
    pub session: Option<String>,
    /// While a job with this key is at work and not asked to stop, the answer is that job's hold, with `outcome` already_running.
    pub dedupe_key: Option<String>,
    /// For some seconds the answer to another job with this fingerprint is the first one's hold, with `outcome`
    /// duplicate. With a session, only within it.
    pub fingerprint: Option<String>,
    /// `priority` or `plain`; when left out, tenants with a paid subscription get priority.
    pub priority_class: Option<String>,
}

/// A sign of life.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeatBody {
    /// How long it counts, in seconds; a third of the hold's time and at most a minute when left out.
    pub lease_secs: Option<i64>,
}

/// What a call used: tokens of a model, or `cost_micro`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageBody {
    /// Unique within the hold; the same again is answered the same.
    #[schema(example = "call-1")]
    pub call_id: String,
    /// A model of the price book.
    pub model: Option<String>,
    /// Tokens that were read.
    pub input_tokens: Option<i64>,
    /// Tokens that were written.
    pub output_tokens: Option<i64>,
    /// Tokens that were read from a cache.
    pub cached_tokens: Option<i64>,
    /// Millionths of a US dollar.
    #[schema(example = 12000)]
    pub cost_micro: Option<i64>,
}

/// How a hold is settled.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// as_held, amount or by_usage.
    #[schema(example = "as_held")]
    pub mode: String,
    /// With mode amount: decimal text, zero to the cost cap.
    pub amount: Option<String>,
}

/// No fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {}

/// How a hold is cancelled.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelBody {
    /// Whether a worker who has begun is asked to stop; he hears it with his next heartbeat or call.
    pub cooperative: Option<bool>,
}

/// So much from one pocket.
#[derive(Debug, Serialize, ToSchema)]
pub struct Allocation {
    /// The pocket.
    pub pocket: String,
    /// How much.
    pub amount: String,
}

/// A hold.
#[derive(Debug, Serialize, ToSchema)]
pub struct HoldBody {
    /// The job's id.
    pub hold_id: String,
    /// placed, started, settled or released.
    pub status: String,
    /// Whose money.
    pub tenant_id: String,
    /// Which wallet.
    pub currency: String,
    /// How much it keeps, or kept.
    pub amount: String,
    /// From which pockets, in the order in which they are spent.
    pub allocations: Vec<Allocation>,
    /// The most the job may cost, but for its last call.
    pub cost_cap: String,
    /// The tier it was asked by.
    pub tier: Option<String>,
    /// The version of the price book its usage is reckoned by.
    pub price_version: Option<i32>,
    /// Which queue the job belongs into: priority or plain.
    pub queue: String,
    /// When it was placed.
    pub placed_at: DateTime<Utc>,
    /// Until when it counts, unless a lease lasts longer.
    pub expires_at: DateTime<Utc>,
    /// Whether it still keeps its money.
    pub live: bool,
    /// When a worker began.
    pub started_at: Option<DateTime<Utc>>,
    /// Until when the worker's last sign of life counts.
    pub lease_until: Option<DateTime<Utc>>,
    /// Whether the worker is asked to stop.
    pub cancel_requested: bool,
    /// What its calls used, in millionths of a US dollar.
    pub used_micro: i64,
    /// What it cost; null until it ends.
    pub charged: Option<String>,
    /// worker, reconciler, canceller or successor; null until it ends.
    pub settled_by: Option<String>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// In the answer to placing: placed, already_placed, already_running or duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// In the answer to what ended it: the rows that pay it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Vec<Transaction>>,
}

/// What a worker hears after a call.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsedBody {
    /// The job's id.
    pub hold_id: String,
    /// The call.
    pub call_id: String,
    /// What the call cost, in millionths of a US dollar.
    pub cost_micro: i64,
    /// What the job used, in millionths of a US dollar.
    pub used_micro: i64,
    /// What the job used, in the wallet's currency, rounded up.
    pub used: String,
    /// What it may still use now.
    pub remaining: String,
    /// Whether there shall be no further call: settle.
    pub stop: bool,
    /// Whether somebody asked to stop.
    pub cancel_requested: bool,
}

/// Some holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct HoldPage {
    /// The newest first.
    pub items: Vec<HoldBody>,
    /// Give it as `before` to get the next page; null on the last one.
    pub next: Option<String>,
}

/// Which holds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HoldListQuery {
    /// Only this tenant's.
    pub tenant_id: Option<String>,
    /// true: only those that haven't ended.
    pub unended: Option<bool>,
    /// The `next` of the page before.
    pub before: Option<String>,
    /// 1 to 500; 100 when left out.
    pub limit: Option<u16>,
}

/// Since when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatsQuery {
    /// The last so many days; 30 when left out.
    pub days: Option<u16>,
}

/// The numbers of one tier.
#[derive(Debug, Serialize, ToSchema)]
pub struct TierStatsBody {
    /// Its name; null for holds that were asked by an amount.
    pub tier: Option<String>,
    /// In which currency.
    pub currency: String,
    /// Placed.
    pub holds: i64,
    /// Settled.
    pub settled: i64,
    /// Released.
    pub released: i64,
    /// Ended by the reconciler.
    pub reconciled: i64,
    /// Settled for more than was held.
    pub over: i64,
    /// What settled holds kept in all.
    pub held: String,
    /// What they were charged in all.
    pub charged: String,
    /// What the middle one was charged.
    pub charged_p50: String,
    /// What nine of ten were charged at the most.
    pub charged_p90: String,
    /// What 99 of 100 were charged at the most.
    pub charged_p99: String,
}

/// The numbers of every tier.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatsBody {
    /// Holds placed since then are counted.
    pub since: DateTime<Utc>,
    /// One for a tier and currency.
    pub tiers: Vec<TierStatsBody>,
}

impl HoldBody {
    pub(super) fn new(hold: &Hold, currency: &Currency, now: DateTime<Utc>) -> Self {
        let text = |amount: MinorUnits| amount.to_text(currency.exponent);
        Self {
            hold_id: hold.hold_id.to_string(),
            status: hold.status().to_owned(),
            tenant_id: hold.tenant_id.to_string(),
            currency: hold.currency.to_string(),
            amount: text(hold.amount),
            allocations: hold
                .parts
                .iter()
                .map(|part| Allocation { pocket: part.pocket.to_string(), amount: text(part.amount) })
                .collect(),
            cost_cap: text(hold.cost_cap),
            tier: hold.tier.clone(),
            price_version: hold.price_version,
            queue: hold.queue.clone(),
            placed_at: hold.placed_at,
            expires_at: hold.expires_at,
            live: hold.is_live(now),
            started_at: hold.started_at,
            lease_until: hold.lease_until,
            cancel_requested: hold.cancel_asked_at.is_some(),
            used_micro: hold.used_micro,
            charged: hold.end.as_ref().map(|end| text(end.charged)),
            settled_by: hold.end.as_ref().map(|end| end.by.as_str().to_owned()),
            ended_at: hold.end.as_ref().map(|end| end.at),
            outcome: None,
            transactions: None,
        }
    }
}

/// The answer to a deed, in the currency of the hold.
pub(super) fn render(
    outcome: &Outcome,
    currency: &Currency,
    call_id: &str,
    now: DateTime<Utc>,
) -> Result<(u16, String), Fault> {
    let (status, body) = match outcome {
        Outcome::Placed(Placed { hold, standing, .. }) => {
            let mut body = HoldBody::new(hold, currency, now);
            body.outcome = Some(standing.as_str().to_owned());
            let status = if *standing == Standing::New { StatusCode::CREATED } else { StatusCode::OK };
            (status, serde_json::to_string(&body))
        }
        Outcome::Beaten(hold) => (StatusCode::OK, serde_json::to_string(&HoldBody::new(hold, currency, now))),
        Outcome::Used(used) => (
            if used.repeated { StatusCode::OK } else { StatusCode::CREATED },
            serde_json::to_string(&used_body(used, currency, call_id)),
        ),
        Outcome::Ended(Ended { hold, rows }) => {
            let mut body = HoldBody::new(hold, currency, now);
            let status = if hold.end.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
            if !rows.is_empty() {
                body.transactions = Some(rows.iter().map(|row| Transaction::new(row, currency)).collect());
            }
            (status, serde_json::to_string(&body))
        }
    };
    let body = body.map_err(|error| Fault::new("a hold's answer can't be written").because(error))?;
    Ok((status.as_u16(), body))
}

fn used_body(used: &Used, currency: &Currency, call_id: &str) -> UsedBody {
    UsedBody {
        hold_id: used.hold.hold_id.to_string(),
        call_id: call_id.to_owned(),
        cost_micro: used.cost_micro,
        used_micro: used.hold.used_micro,
        used: used.used.to_text(currency.exponent),
        remaining: used.remaining.to_text(currency.exponent),
        stop: used.stop,
        cancel_requested: used.hold.cancel_asked_at.is_some(),
    }
}
