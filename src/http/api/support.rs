//! Refunds, adjustments, and what waits for a second person.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{ProblemDocument, Transaction};
use crate::fault::Fault;
use crate::http::error::Problem;
use crate::http::extract::{
    Caller, IdempotencyKey, Json, Named, NoParameters, Number, Permission, Query, SupportApprove, SupportWrite,
};
use crate::http::{PeerAddress, RequestId};
use crate::idempotency::{Claim, Key};
use crate::ids::{Reason, TenantId};
use crate::support::{AdjustmentReason, Ask, Deed, Outcome, Performance, Request, RequestQuery, Rights, list_requests};

/// A debit to be given back, or a part of it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RefundBody {
    /// The number of the row that is given back.
    #[schema(example = 7)]
    pub transaction: i64,
    /// How much, at most what is left of it.
    #[schema(example = "50000.00")]
    pub amount: String,
    /// Which of the tenant's wallets; UZS when left out.
    pub currency: Option<String>,
    /// Why, in a sentence.
    #[schema(example = "charged for a month without service")]
    pub reason: String,
}

/// A correction of a wallet.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdjustmentBody {
    /// Which of the tenant's wallets.
    #[schema(example = "UZS")]
    pub currency: String,
    /// Signed; positive is a credit.
    #[schema(example = "-1000.00")]
    pub amount: String,
    /// goodwill, correction, duplicate_charge, missing_payment, migration, fraud or other.
    #[schema(example = "correction")]
    pub reason: String,
    /// What happened, in a sentence.
    pub note: String,
}

/// A decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionBody {
    /// Why, in a sentence.
    pub note: Option<String>,
}

/// A refund or an adjustment that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestBody {
    /// The number.
    pub request_id: i64,
    /// posted, waiting, rejected, withdrawn or expired.
    pub status: String,
    /// refund or adjustment.
    pub kind: String,
    /// Whose wallet.
    pub tenant_id: String,
    /// Which wallet.
    pub currency: String,
    /// Signed; positive is a credit.
    pub amount: String,
    /// The row a refund gives back.
    pub original: Option<i64>,
    /// Why.
    pub reason: String,
    /// More words.
    pub note: String,
    /// Who asked.
    pub requested_by: String,
    /// When.
    pub requested_at: DateTime<Utc>,
    /// Until when somebody may approve.
    pub expires_at: DateTime<Utc>,
    /// within_limit, approved, rejected or withdrawn.
    pub decision: Option<String>,
    /// By whom.
    pub decided_by: Option<String>,
    /// When.
    pub decided_at: Option<DateTime<Utc>>,
    /// Why.
    pub decision_note: Option<String>,
    /// The number of the row it became.
    pub posted: Option<i64>,
    /// The row itself, in the answer to what posted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<Transaction>,
}

/// Some requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestPage {
    /// The newest first.
    pub items: Vec<RequestBody>,
    /// Give it as `before` to get the next page; null on the last one.
    pub next: Option<i64>,
}

/// Which requests.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RequestListQuery {
    /// Only this tenant's.
    tenant_id: Option<String>,
    /// true: only those that nobody decided about.
    undecided: Option<bool>,
    /// The `next` of the page before.
    before: Option<i64>,
    /// 1 to 500; 100 when left out.
    limit: Option<u16>,
}

impl RequestBody {
    fn new(request: &Request, now: DateTime<Utc>) -> Self {
        Self {
            request_id: request.request_id,
            status: request.status(now).to_owned(),
            kind: request.kind.to_string(),
            tenant_id: request.tenant_id.to_string(),
            currency: request.currency.code.to_string(),
            amount: request.amount.to_text(request.currency.exponent),
            original: request.original_seq,
            reason: request.reason.clone(),
            note: request.note.clone(),
            requested_by: request.requested_by.clone(),
            requested_at: request.requested_at,
            expires_at: request.expires_at,
            decision: request.decision.map(|decision| decision.as_str().to_owned()),
            decided_by: request.decided_by.clone(),
            decided_at: request.decided_at,
            decision_note: request.decision_note.clone(),
            posted: request.posted_seq,
            transaction: None,
        }
    }
}

/// The answer to a deed: 201 when it was posted, 202 when it waits for a second person, 200 for a decision that
/// posts nothing.
pub fn render(outcome: &Outcome, now: DateTime<Utc>) -> Result<(u16, String), Fault> {
    let mut body = RequestBody::new(&outcome.request, now);
    body.transaction = outcome.row.as_ref().map(|row| Transaction::new(row, &outcome.request.currency));
    let status = match (&outcome.row, outcome.request.decision) {
        (Some(_), _) => StatusCode::CREATED,
        (None, None) => StatusCode::ACCEPTED,
        (None, Some(_)) => StatusCode::OK,
    };
    let text = serde_json::to_string(&body)
        .map_err(|error| Fault::new("a request's answer can't be written").because(error))?;
    Ok((status.as_u16(), text))
}

/// A deed of a program.
async fn perform<P: Permission>(
    caller: &Caller<P>,
    peer: PeerAddress,
    request_id: RequestId,
    claim: Claim,
    decides: bool,
    deed: Deed,
) -> Result<Response, Problem> {
    let app = &caller.app;
    let performance = Performance {
        db: app.db.clone(),
        clock: app.clock.clone(),
        limits: app.settings.support_limits.clone(),
        who: super::who(caller, peer, request_id),
        rights: Rights::Program { decides },
        claim,
        render,
    };
    let answer = app.run_to_end(performance.run(deed)).await??;
    Ok(super::answered(answer))
}

fn claim<P>(caller: &Caller<P>, key: Key, path: String, value: Value) -> Claim {
    Claim::new(caller.client.to_string(), key, path, value)
}

/// Gives back a debit, or asks a second person to. The same key with the same body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/refunds", tag = "support", request_body = RefundBody,
    params(("tenant_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 201, description = "posted", body = RequestBody),
        (status = 202, description = "above the limit: waits for a second person", body = RequestBody),
        (status = 404, description = "tenant_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "original_exceeded, idempotency_key_reused", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "original_unfit, goes_through_provider, wrong_sign", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn refund(
    caller: Caller<SupportWrite>,
    peer: PeerAddress,
    request_id: RequestId,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<RefundBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", body.currency.as_deref().unwrap_or("UZS")).await?;
    let amount = super::amount("amount", &body.amount, &currency)?;
    let reason = super::field("reason", Reason::parse(body.reason))?;
    let claim = claim(&caller, key, format!("POST /v1/tenants/{tenant_id}/refunds"), json.value);
    let ask = Ask::refund(tenant_id, currency, body.transaction, amount, reason);
    perform(&caller, peer, request_id, claim, false, Deed::Ask(ask)).await
}

/// Corrects a wallet, or asks a second person to. The same key with the same body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/adjustments", tag = "support", request_body = AdjustmentBody,
    params(("tenant_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 201, description = "posted", body = RequestBody),
        (status = 202, description = "above the limit: waits for a second person", body = RequestBody),
        (status = 402, description = "insufficient_funds", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "tenant_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "idempotency_key_reused", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "wrong_sign", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn adjust(
    caller: Caller<SupportWrite>,
    peer: PeerAddress,
    request_id: RequestId,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<AdjustmentBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", &body.currency).await?;
    let amount = super::amount("amount", &body.amount, &currency)?;
    let reason = super::field("reason", AdjustmentReason::parse(&body.reason))?;
    let note = note("note", body.note)?;
    let claim = claim(&caller, key, format!("POST /v1/tenants/{tenant_id}/adjustments"), json.value);
    let ask = Ask::adjustment(tenant_id, currency, amount, reason, &note);
    perform(&caller, peer, request_id, claim, false, Deed::Ask(ask)).await
}

/// A note that fits into the row's reason beside its code.
pub fn note(name: &str, text: String) -> Result<Reason, Problem> {
    if text.chars().count() > 400 {
        return Err(Problem::invalid_field(name, "must be 1 to 400 characters without control characters"));
    }
    super::field(name, Reason::parse(text))
}

/// Lists requests.
#[utoipa::path(get, path = "/v1/support-requests", tag = "support", params(RequestListQuery),
    responses((status = 200, body = RequestPage)))]
pub async fn list(
    caller: Caller<SupportWrite>,
    Query(query): Query<RequestListQuery>,
) -> Result<axum::Json<RequestPage>, Problem> {
    let limit = query.limit.unwrap_or(100);
    if limit == 0 || limit > 500 {
        return Err(Problem::invalid_field("limit", "must be 1 to 500"));
    }
    let query = RequestQuery {
        tenant_id: query.tenant_id.map(|id| super::field("tenant_id", TenantId::parse(id))).transpose()?,
        undecided: query.undecided.unwrap_or(false),
        before_id: query.before,
        limit: i64::from(limit),
        ..RequestQuery::default()
    };
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let now = caller.app.clock.now();
    let requests = list_requests(&mut conn, &query).await?;
    let full = requests.len() == usize::from(limit);
    let next = requests.last().map(|request| request.request_id).filter(|_| full);
    Ok(axum::Json(RequestPage { items: requests.iter().map(|request| RequestBody::new(request, now)).collect(), next }))
}

/// One request.
#[utoipa::path(get, path = "/v1/support-requests/{request_id}", tag = "support", params(("request_id" = i64, Path)),
    responses((status = 200, body = RequestBody),
        (status = 404, description = "request_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<SupportWrite>,
    _: Query<NoParameters>,
    Named(SupportRequest(request_id)): Named<SupportRequest>,
) -> Result<axum::Json<RequestBody>, Problem> {
    let query = RequestQuery { request_id: Some(request_id), limit: 1, ..RequestQuery::default() };
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let request = list_requests(&mut conn, &query)
        .await?
        .pop()
        .ok_or_else(|| Problem::not_found("request_not_found", format!("there is no request {request_id}")))?;
    Ok(axum::Json(RequestBody::new(&request, caller.app.clock.now())))
}

/// The number of a request in a path.
#[derive(Debug)]
pub struct SupportRequest(pub i64);

impl crate::http::extract::PathName for SupportRequest {
    const NOT_FOUND: &'static str = "request_not_found";
    fn parse(text: &str) -> Result<Self, crate::ids::InvalidName> {
        Number::parse(text).map(|number| Self(number.0))
    }
}

/// Approves what somebody else asked for, and posts it.
#[utoipa::path(post, path = "/v1/support-requests/{request_id}/approve", tag = "support", request_body = DecisionBody,
    params(("request_id" = i64, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 201, description = "posted", body = RequestBody),
        (status = 402, description = "insufficient_funds", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 403, description = "own_request, forbidden", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "request_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "already_decided, request_expired, original_exceeded", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn approve(
    caller: Caller<SupportApprove>,
    peer: PeerAddress,
    id: RequestId,
    _: Query<NoParameters>,
    Named(SupportRequest(request_id)): Named<SupportRequest>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<DecisionBody>,
) -> Result<Response, Problem> {
    let note = json.body.note.map(|text| note("note", text)).transpose()?;
    let claim = claim(&caller, key, format!("POST /v1/support-requests/{request_id}/approve"), json.value);
    perform(&caller, peer, id, claim, true, Deed::Approve { request_id, note }).await
}

/// Says no to what somebody else asked for.
#[utoipa::path(post, path = "/v1/support-requests/{request_id}/reject", tag = "support", request_body = DecisionBody,
    params(("request_id" = i64, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 200, body = RequestBody),
        (status = 403, description = "own_request, forbidden", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "request_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "already_decided, request_expired", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn reject(
    caller: Caller<SupportApprove>,
    peer: PeerAddress,
    id: RequestId,
    _: Query<NoParameters>,
    Named(SupportRequest(request_id)): Named<SupportRequest>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<DecisionBody>,
) -> Result<Response, Problem> {
    let note = json.body.note.map(|text| note("note", text)).transpose()?;
    let claim = claim(&caller, key, format!("POST /v1/support-requests/{request_id}/reject"), json.value);
    perform(&caller, peer, id, claim, true, Deed::Reject { request_id, note }).await
}

/// Takes back what the caller asked for.
#[utoipa::path(post, path = "/v1/support-requests/{request_id}/withdraw", tag = "support", request_body = DecisionBody,
    params(("request_id" = i64, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 200, body = RequestBody),
        (status = 403, description = "not_your_request", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "request_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "already_decided, request_expired", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn withdraw(
    caller: Caller<SupportWrite>,
    peer: PeerAddress,
    id: RequestId,
    _: Query<NoParameters>,
    Named(SupportRequest(request_id)): Named<SupportRequest>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<DecisionBody>,
) -> Result<Response, Problem> {
    let claim = claim(&caller, key, format!("POST /v1/support-requests/{request_id}/withdraw"), json.value);
    perform(&caller, peer, id, claim, false, Deed::Withdraw { request_id }).await
}
