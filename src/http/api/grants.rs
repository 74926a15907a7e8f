//! Money that nobody paid for, in pockets that may end.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ProblemDocument, Transaction};
use crate::allowance;
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::http::error::Problem;
use crate::http::extract::{Caller, IdempotencyKey, Json, LedgerPost, Named, NoParameters, Query};
use crate::idempotency::{self, Answer, Claim, Claimed, KeyReused};
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::ledger::PostedRow;
use crate::money::Currency;
use crate::pocket::{self, Grant};

/// A grant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantBody {
    /// Which of the tenant's wallets.
    #[schema(example = "CREDIT")]
    pub currency: String,
    /// Which part of the wallet; opened with its first grant, and keeps its rules.
    #[schema(example = "welcome")]
    pub pocket: String,
    /// How much, positive.
    #[schema(example = "500")]
    pub amount: String,
    /// The pocket's money is there while now is before this; for ever when left out.
    pub expires_at: Option<DateTime<Utc>>,
    /// 0 to 1000, lower is spent earlier among pockets that end at the same time; 100 when left out.
    pub priority: Option<i16>,
    /// What is booked; made from the Idempotency-Key when left out.
    pub reference: Option<String>,
    /// Why, in a sentence.
    pub reason: Option<String>,
}

/// A pocket that is taken back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VoidBody {
    /// Which of the tenant's wallets.
    #[schema(example = "CREDIT")]
    pub currency: String,
    /// Which pocket.
    #[schema(example = "welcome")]
    pub pocket: String,
    /// Why, in a sentence.
    pub reason: String,
}

/// What was booked.
#[derive(Debug, Serialize, ToSchema)]
pub struct VoidResult {
    /// The expiry rows; none when nothing was left.
    pub transactions: Vec<Transaction>,
}

/// Why neither is done.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Key(#[from] KeyReused),
    #[error(transparent)]
    Pocket(#[from] pocket::Refusal),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Key(reused) => reused.into(),
            Refusal::Pocket(refusal) => refusal.into(),
        }
    }
}

/// What is asked of a pocket.
enum Deed {
    Grant(Grant),
    Void { tenant_id: TenantId, pocket: Pocket, reason: Reason },
}

/// Does it under its key, in one transaction.
async fn perform(
    db: Database,
    clock: Clock,
    actor: Actor,
    claim: Claim,
    currency: Currency,
    deed: Deed,
) -> Result<Answer, Error<Refusal>> {
    let (clock, actor, claim, currency, deed) = (&clock, &actor, &claim, &currency, &deed);
    db.run("pocket_deed", |conn| {
        async move {
            let now = clock.now();
            match idempotency::claim(conn, claim, now).await.widen()? {
                Claimed::Answered(answer) => return Ok(answer),
                Claimed::Fresh => {}
            }
            let (status, body) = match deed {
                Deed::Grant(grant) => {
                    let row = pocket::grant(conn, grant, actor, now).await.widen()?;
                    (StatusCode::CREATED, serde_json::to_string(&Transaction::new(&row, currency)))
                }
                Deed::Void { tenant_id, pocket, reason } => {
                    let rows = pocket::void(conn, tenant_id, &currency.code, pocket, reason, now).await.widen()?;
                    (StatusCode::OK, serde_json::to_string(&void_result(&rows, currency)))
                }
            };
            let body = body.map_err(|error| Fault::new("a grant's answer can't be written").because(error))?;
            let answer = Answer { status: status.as_u16(), body, replayed: false };
            idempotency::finish_all(conn, &[(claim, &answer)]).await?;
            Ok(answer)
        }
        .scope_boxed()
    })
    .await
}

fn void_result(rows: &[PostedRow], currency: &Currency) -> VoidResult {
    VoidResult { transactions: rows.iter().map(|row| Transaction::new(row, currency)).collect() }
}

/// Grants money into a pocket. The same key with the same body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/grants", tag = "holds", request_body = GrantBody,
    params(("tenant_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 201, body = Transaction),
        (status = 404, description = "tenant_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "pocket_differs, pocket_closed, already_booked, idempotency_key_reused",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "wrong_sign, main_has_no_rules, expires_in_past", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn grant(
    caller: Caller<LedgerPost>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<GrantBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", &body.currency).await?;
    if body.priority.is_some_and(|priority| !(0..=1000).contains(&priority)) {
        return Err(Problem::invalid_field("priority", "must be 0 to 1000"));
    }
    let operation = format!("POST /v1/tenants/{tenant_id}/grants");
    let claim = Claim::new(caller.client.to_string(), key, operation, json.value);
    let pocket = super::field("pocket", Pocket::parse(body.pocket))?;
    if allowance::is_reserved(&pocket) || pocket == Pocket::set_aside() {
        return Err(Problem::invalid_field(
            "pocket",
            "is not for grants: allowances fill allowance:…, payments set-aside",
        ));
    }
    if body.reference.as_ref().is_some_and(|reference| reference.starts_with("allowance:")) {
        return Err(Problem::invalid_field("reference", "begins with allowance:, as only allowances' grants do"));
    }
    let reference = body.reference.unwrap_or_else(|| claim.reference("grant"));
    let grant = Grant {
        tenant_id,
        currency: currency.code.clone(),
        pocket,
        amount: super::amount("amount", &body.amount, &currency)?,
        priority: body.priority,
        expires_at: body.expires_at.map(|at| super::moment("expires_at", at)).transpose()?,
        reference: super::field("reference", Reference::parse(reference))?,
        reason: body.reason.map(|reason| super::field("reason", Reason::parse(reason))).transpose()?,
    };
    let app = &caller.app;
    let work = perform(app.db.clone(), app.clock.clone(), caller.actor(), claim, currency, Deed::Grant(grant));
    Ok(super::answered(app.run_to_end(work).await??))
}

/// Takes a granted pocket back: what is left and not held expires now. What was spent stays spent.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/pockets/void", tag = "holds", request_body = VoidBody,
    params(("tenant_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 200, body = VoidResult),
        (status = 404, description = "tenant_not_found, currency_not_found, pocket_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "pocket_closed, idempotency_key_reused", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn void(
    caller: Caller<LedgerPost>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<VoidBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", &body.currency).await?;
    let operation = format!("POST /v1/tenants/{tenant_id}/pockets/void");
    let claim = Claim::new(caller.client.to_string(), key, operation, json.value);
    let deed = Deed::Void {
        tenant_id,
        pocket: super::field("pocket", Pocket::parse(body.pocket))?,
        reason: super::field("reason", Reason::parse(body.reason))?,
    };
    let app = &caller.app;
    let work = perform(app.db.clone(), app.clock.clone(), caller.actor(), claim, currency, deed);
    Ok(super::answered(app.run_to_end(work).await??))
}
