//! Holds: money promised to work in progress.
//!
//! The path names the job, so these calls happen once without an `Idempotency-Key`; one that is sent is honoured.

mod shapes;

use axum::response::Response;
use chrono::{DateTime, Utc};
use serde_json::Value;

use self::shapes::{
    BeatBody, CancelBody, HoldBody, HoldListQuery, HoldPage, NewHold, ReleaseBody, SettleBody, StatsBody, StatsQuery,
    TierStatsBody, UsageBody, UsedBody, render,
};
use super::ProblemDocument;
use crate::fault::Fault;
use crate::hold::{self, Ask, Asked, Call, Deed, End, HoldId, HoldQuery, Metered, Performance};
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
        currency,
        claim,
        render: Box::new(move |outcome, currency, now| render(outcome, currency, &call_id, now)),
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
        (status = 402, description = "insufficient_funds: an amount beyond what is held and what is available besides",
         body = ProblemDocument, content_type = "application/problem+json"),
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
