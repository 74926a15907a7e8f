//! Holds: money promised to work in progress.
//!
//! The path names the job, so these calls happen once without an `Idempotency-Key`; one that is sent is honoured.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{ProblemDocument, Transaction};
use crate::fault::Fault;
use crate::hold::{
    self, Ask, Asked, Call, Deed, End, Ended, Hold, HoldId, HoldQuery, Metered, Outcome, Performance, Placed, Standing,
    Used,
};
use crate::http::error::Problem;
use crate::http::extract::{
    Caller, HoldsWrite, Json, LedgerRead, Named, NoParameters, OptionalIdempotencyKey, OptionalJson, Query,
};
use crate::idempotency::{Claim, Key};
use crate::ids::TenantId;
use crate::money::{Currency, MinorUnits};

/// The longest time a hold may live without anybody coming back: a week.
const TTL_SECS_MAX: i32 = 604_800;
/// The longest lease of one sign of life.
const LEASE_SECS_MAX: i32 = 3_600;

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
    /// Where the job belongs. A new job of a session takes the place of the old one, which pays what it used.
    pub session: Option<String>,
    /// While a job with this key is at work, the answer is that job's hold, with `outcome` already_running.
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
    tenant_id: Option<String>,
    /// true: only those that haven't ended.
    unended: Option<bool>,
    /// The `next` of the page before.
    before: Option<String>,
    /// 1 to 500; 100 when left out.
    limit: Option<u16>,
}

/// Since when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatsQuery {
    /// The last so many days; 30 when left out.
    days: Option<u16>,
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
    fn new(hold: &Hold, currency: &Currency, now: DateTime<Utc>) -> Self {
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
fn render(outcome: &Outcome, currency: &Currency, call_id: &str, now: DateTime<Utc>) -> Result<(u16, String), Fault> {
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

/// Does a deed and runs to its end, whether or not the caller waits (L8).
async fn perform(
    caller: Caller<HoldsWrite>,
    currency: Currency,
    key: Option<Key>,
    operation: &str,
    value: Value,
    call_id: String,
    deed: Deed,
) -> Result<Response, Problem> {
    let claim = key.map(|key| Claim::new(caller.client.to_string(), key, operation.to_owned(), value));
    let performance = Performance {
        db: caller.app.db.clone(),
        clock: caller.app.clock.clone(),
        terms: caller.app.settings.holds,
        actor: caller.actor(),
        claim,
        render: Box::new(move |outcome, now| render(outcome, &currency, &call_id, now)),
    };
    let answer = caller.app.run_to_end(performance.run(deed)).await??;
    Ok(super::answered(answer))
}

/// A deed on a hold that is there: its currency is looked up, which it keeps.
async fn perform_on(
    caller: Caller<HoldsWrite>,
    hold_id: &HoldId,
    key: Option<Key>,
    verb: &str,
    value: Value,
    call_id: String,
    deed: impl FnOnce(&Currency) -> Result<Deed, Problem>,
) -> Result<Response, Problem> {
    let currency = currency_of(&caller, hold_id).await?;
    let deed = deed(&currency)?;
    perform(caller, currency, key, &format!("POST /v1/holds/{hold_id}/{verb}"), value, call_id, deed).await
}

async fn currency_of<P>(caller: &Caller<P>, hold_id: &HoldId) -> Result<Currency, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let code = hold::currency_of(&mut conn, hold_id)
        .await?
        .ok_or_else(|| Problem::from(hold::Refusal::UnknownHold(hold_id.clone())))?;
    drop(conn);
    super::currency(&caller.app, "currency", code.as_str()).await
}

/// Places a hold. The same job again is answered with the first hold.
#[utoipa::path(post, path = "/v1/holds", tag = "holds", request_body = NewHold,
    params(("Idempotency-Key" = Option<String>, Header, description = "Honoured when sent; hold_id is the key anyway")),
    responses((status = 201, description = "placed", body = HoldBody),
        (status = 200, description = "outcome: already_placed, already_running or duplicate", body = HoldBody),
        (status = 402, description = "insufficient_funds", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 403, description = "tenant_blocked, forbidden", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "cost_cap_exceeded: the tier asks for more", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "tenant_not_found, currency_not_found, tier_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "hold_differs, idempotency_key_reused", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 429, description = "too_many_in_flight, with Retry-After", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn place(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    json: Json<NewHold>,
) -> Result<Response, Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", &body.currency).await?;
    let asked = match (&body.amount, body.tier) {
        (Some(amount), None) => Asked::Amount(not_negative("amount", amount, &currency)?),
        (None, Some(tier)) => Asked::Tier(super::short_text("tier", tier)?),
        _ => return Err(Problem::invalid_field("amount", "give either amount or tier")),
    };
    if body.max_in_flight == Some(0) {
        return Err(Problem::invalid_field("max_in_flight", "must be 1 or more"));
    }
    let queue = match body.priority_class.as_deref() {
        None => None,
        Some("priority") => Some("priority"),
        Some("plain") => Some("plain"),
        Some(_) => return Err(Problem::invalid_field("priority_class", "must be priority or plain")),
    };
    let text = |name: &str, text: Option<String>| text.map(|text| super::short_text(name, text)).transpose();
    let budget = body.cost_cap.as_deref().map(|cap| not_negative("cost_cap", cap, &currency)).transpose()?;
    if let (Some(budget), Asked::Amount(amount)) = (budget, &asked)
        && budget < *amount
    {
        return Err(Problem::invalid_field("cost_cap", "must not be below amount"));
    }
    let ask = Ask {
        hold_id: super::field("hold_id", HoldId::parse(body.hold_id))?,
        tenant_id: super::field("tenant_id", TenantId::parse(body.tenant_id))?,
        currency: currency.code.clone(),
        asked,
        allow_partial: body.allow_partial.unwrap_or(false),
        max_in_flight: body.max_in_flight,
        ttl_secs: super::seconds("ttl_secs", body.ttl_secs, TTL_SECS_MAX)?,
        budget,
        session: text("session", body.session)?,
        dedupe_key: text("dedupe_key", body.dedupe_key)?,
        fingerprint: text("fingerprint", body.fingerprint)?,
        queue,
    };
    perform(caller, currency, key, "POST /v1/holds", json.value, String::new(), Deed::Place(Box::new(ask))).await
}

fn not_negative(name: &str, text: &str, currency: &Currency) -> Result<MinorUnits, Problem> {
    let amount = super::amount(name, text, currency)?;
    if amount.is_negative() { Err(Problem::invalid_field(name, "must not be negative")) } else { Ok(amount) }
}

/// A worker begins. Again, it is answered the same.
#[utoipa::path(post, path = "/v1/holds/{hold_id}/start", tag = "holds", params(("hold_id" = String, Path)),
    request_body(content = Option<BeatBody>),
    responses((status = 200, body = HoldBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "already_settled, already_released, hold_expired", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn start(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    OptionalJson(json): OptionalJson<BeatBody>,
) -> Result<Response, Problem> {
    let lease_secs = super::seconds("lease_secs", json.body.lease_secs, LEASE_SECS_MAX)?;
    let deed = Deed::Start { hold_id: hold_id.clone(), lease_secs };
    perform_on(caller, &hold_id, key, "start", json.value, String::new(), |_| Ok(deed)).await
}

/// A worker lives. The answer says whether somebody asked it to stop.
#[utoipa::path(post, path = "/v1/holds/{hold_id}/heartbeat", tag = "holds", params(("hold_id" = String, Path)),
    request_body(content = Option<BeatBody>),
    responses((status = 200, body = HoldBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "already_settled, already_released, hold_expired: stop working", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn heartbeat(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    OptionalJson(json): OptionalJson<BeatBody>,
) -> Result<Response, Problem> {
    let lease_secs = super::seconds("lease_secs", json.body.lease_secs, LEASE_SECS_MAX)?;
    let deed = Deed::Heartbeat { hold_id: hold_id.clone(), lease_secs };
    perform_on(caller, &hold_id, key, "heartbeat", json.value, String::new(), |_| Ok(deed)).await
}

/// Logs what a call used, once.
#[utoipa::path(post, path = "/v1/holds/{hold_id}/usage", tag = "holds", params(("hold_id" = String, Path)),
    request_body = UsageBody,
    responses((status = 201, body = UsedBody), (status = 200, description = "It was logged before", body = UsedBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "call_differs, cost_cap_reached, already_settled, already_released",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "not_metered, unknown_model, no_price_book, usage_too_large", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn report_usage(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    json: Json<UsageBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let call_id = super::short_text("call_id", body.call_id)?;
    let count = |name: &str, count: Option<i64>| match count {
        Some(count) if count < 0 => Err(Problem::invalid_field(name, "must not be negative")),
        count => Ok(count.unwrap_or_default()),
    };
    let input = count("input_tokens", body.input_tokens)?;
    let output = count("output_tokens", body.output_tokens)?;
    let cached = count("cached_tokens", body.cached_tokens)?;
    let names_tokens = body.input_tokens.is_some() || body.output_tokens.is_some() || body.cached_tokens.is_some();
    let metered = match (body.model, body.cost_micro) {
        (Some(model), None) if names_tokens => {
            Metered::Tokens { model: super::short_text("model", model)?, input, output, cached }
        }
        (None, Some(_)) if !names_tokens => Metered::CostMicro(count("cost_micro", body.cost_micro)?),
        _ => return Err(Problem::invalid_field("cost_micro", "give either cost_micro, or model with its tokens")),
    };
    let deed = Deed::Use { hold_id: hold_id.clone(), call: Call { call_id: call_id.clone(), metered } };
    perform_on(caller, &hold_id, key, "usage", json.value, call_id, |_| Ok(deed)).await
}

/// Settles a hold: what was held, an amount, or what its calls used. The same again is answered the same.
#[utoipa::path(post, path = "/v1/holds/{hold_id}/settle", tag = "holds", params(("hold_id" = String, Path)),
    request_body = SettleBody,
    responses((status = 200, body = HoldBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "already_settled, already_released, hold_expired", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "cost_cap_exceeded, not_metered", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn settle(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    json: Json<SettleBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let named = hold_id.clone();
    let deed = move |currency: &Currency| {
        let end = match (body.mode.as_str(), body.amount.as_deref()) {
            ("as_held", None) => End::AsHeld,
            ("by_usage", None) => End::ByUsage,
            ("amount", Some(amount)) => End::Amount(not_negative("amount", amount, currency)?),
            ("amount", None) => return Err(Problem::invalid_field("amount", "must be given with mode amount")),
            ("as_held" | "by_usage", Some(_)) => {
                return Err(Problem::invalid_field("amount", "belongs to mode amount only"));
            }
            _ => return Err(Problem::invalid_field("mode", "must be as_held, amount or by_usage")),
        };
        Ok(Deed::End { hold_id: named, end })
    };
    perform_on(caller, &hold_id, key, "settle", json.value, String::new(), deed).await
}

/// The work failed: nothing is paid, unless it used something. The same again is answered the same.
#[utoipa::path(post, path = "/v1/holds/{hold_id}/release", tag = "holds", params(("hold_id" = String, Path)),
    request_body(content = Option<ReleaseBody>),
    responses((status = 200, body = HoldBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "already_settled, already_released, hold_expired", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn release(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    OptionalJson(json): OptionalJson<ReleaseBody>,
) -> Result<Response, Problem> {
    let deed = Deed::End { hold_id: hold_id.clone(), end: End::Release };
    perform_on(caller, &hold_id, key, "release", json.value, String::new(), |_| Ok(deed)).await
}

/// Cancels a job that hasn't begun; of one that has, asks its worker to stop.
#[utoipa::path(post, path = "/v1/holds/{hold_id}/cancel", tag = "holds", params(("hold_id" = String, Path)),
    request_body(content = Option<CancelBody>),
    responses((status = 200, description = "cancelled", body = HoldBody),
        (status = 202, description = "its worker is asked to stop", body = HoldBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "already_started, already_settled, already_released, hold_expired",
         body = ProblemDocument, content_type = "application/problem+json")))]
pub async fn cancel(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
    OptionalIdempotencyKey(key): OptionalIdempotencyKey,
    OptionalJson(json): OptionalJson<CancelBody>,
) -> Result<Response, Problem> {
    let cooperative = json.body.cooperative.unwrap_or(false);
    let deed = Deed::End { hold_id: hold_id.clone(), end: End::Cancel { cooperative } };
    perform_on(caller, &hold_id, key, "cancel", json.value, String::new(), |_| Ok(deed)).await
}

/// One hold.
#[utoipa::path(get, path = "/v1/holds/{hold_id}", tag = "holds", params(("hold_id" = String, Path)),
    responses((status = 200, body = HoldBody),
        (status = 404, description = "hold_not_found", body = ProblemDocument, content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<LedgerRead>,
    _: Query<NoParameters>,
    Named(hold_id): Named<HoldId>,
) -> Result<axum::Json<HoldBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let hold = hold::find(&mut conn, &hold_id)
        .await?
        .ok_or_else(|| Problem::from(hold::Refusal::UnknownHold(hold_id.clone())))?;
    drop(conn);
    let currency = super::currency(&caller.app, "currency", hold.currency.as_str()).await?;
    Ok(axum::Json(HoldBody::new(&hold, &currency, caller.app.clock.now())))
}

/// Lists holds, the newest first.
#[utoipa::path(get, path = "/v1/holds", tag = "holds", params(HoldListQuery), responses((status = 200, body = HoldPage)))]
pub async fn list(
    caller: Caller<LedgerRead>,
    Query(query): Query<HoldListQuery>,
) -> Result<axum::Json<HoldPage>, Problem> {
    let limit = query.limit.unwrap_or(100);
    if limit == 0 || limit > 500 {
        return Err(Problem::invalid_field("limit", "must be 1 to 500"));
    }
    let before = query.before.as_deref().map(parse_cursor).transpose()?;
    let query = HoldQuery {
        tenant_id: query.tenant_id.map(|id| super::field("tenant_id", TenantId::parse(id))).transpose()?,
        unended: query.unended.unwrap_or(false),
        before,
        limit: i64::from(limit),
    };
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let holds = hold::list(&mut conn, &query).await?;
    drop(conn);
    let now = caller.app.clock.now();
    let full = holds.len() == usize::from(limit);
    let next =
        holds.last().filter(|_| full).map(|hold| format!("{}~{}", hold.placed_at.timestamp_micros(), hold.hold_id));
    let mut items = Vec::with_capacity(holds.len());
    for hold in &holds {
        let currency = super::currency(&caller.app, "currency", hold.currency.as_str()).await?;
        items.push(HoldBody::new(hold, &currency, now));
    }
    Ok(axum::Json(HoldPage { items, next }))
}

fn parse_cursor(text: &str) -> Result<(DateTime<Utc>, String), Problem> {
    text.split_once('~')
        .and_then(|(micros, hold_id)| {
            let placed_at = DateTime::from_timestamp_micros(micros.parse().ok()?)?;
            let placed_at = super::moment("before", placed_at).ok()?;
            Some((placed_at, HoldId::parse(hold_id).ok()?.to_string()))
        })
        .ok_or_else(|| Problem::invalid_field("before", "must be the `next` of another page"))
}

/// What was held against what was charged, by tier: whether the tiers are guessed well.
#[utoipa::path(get, path = "/v1/holds/stats", tag = "holds", params(StatsQuery),
    responses((status = 200, body = StatsBody)))]
pub async fn stats(
    caller: Caller<LedgerRead>,
    Query(query): Query<StatsQuery>,
) -> Result<axum::Json<StatsBody>, Problem> {
    let days = query.days.unwrap_or(30);
    if days == 0 || days > 3_650 {
        return Err(Problem::invalid_field("days", "must be 1 to 3650"));
    }
    let now = caller.app.clock.now();
    let since = now.checked_sub_days(chrono::Days::new(u64::from(days))).unwrap_or(now);
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let found = hold::stats(&mut conn, since).await?;
    drop(conn);
    let mut tiers = Vec::with_capacity(found.len());
    for one in found {
        let currency = super::currency(&caller.app, "currency", one.currency.as_str()).await?;
        let text = |amount: MinorUnits| amount.to_text(currency.exponent);
        tiers.push(TierStatsBody {
            tier: one.tier,
            currency: one.currency.to_string(),
            holds: one.holds,
            settled: one.settled,
            released: one.released,
            reconciled: one.reconciled,
            over: one.over,
            held: text(one.held),
            charged: text(one.charged),
            charged_p50: text(one.charged_p50),
            charged_p90: text(one.charged_p90),
            charged_p99: text(one.charged_p99),
        });
    }
    Ok(axum::Json(StatsBody { since, tiers }))
}
