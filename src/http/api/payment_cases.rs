//! Payments that a person has to look at.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use crate::audit::{Line, Who};
use crate::fault::{Error, Fault};
use crate::http::deed::{self, Deed};
use crate::http::error::Problem;
use crate::http::extract::{
    Caller, IdempotencyKey, Json, Named, NoParameters, PathName, Query, SupportApprove, SupportWrite,
};
use crate::http::{PeerAddress, RequestId};
use crate::idempotency::{Answer, Claim};
use crate::ids::{Actor, InvalidName, Reason, TenantId};
use crate::payment::prepaid::case::{self, Case, CaseRefusal, Resolution};

/// The number of a case in a path.
#[derive(Debug)]
pub struct CaseNumber(pub i64);

impl PathName for CaseNumber {
    const NOT_FOUND: &'static str = "case_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        text.parse().map(Self).map_err(|_| InvalidName { what: "the case", rule: "must be a number" })
    }
}

/// Something a person has to look at.
#[derive(Debug, Serialize, ToSchema)]
pub struct CaseBody {
    /// Its number.
    pub case_id: i64,
    /// Whose money.
    #[schema(example = "telegram")]
    pub provider: String,
    /// mismatch, foreign_currency, refund_failed, lost_payment, unasked_refund, negative_balance, unread_update or
    /// unread_line.
    pub kind: String,
    /// What it is about, in the provider's own ids.
    pub subject: String,
    /// Our id of the payment.
    pub payment_id: Option<String>,
    /// What happened, and what somebody may do.
    pub why: String,
    /// When.
    pub opened_at: DateTime<Utc>,
    /// When somebody ended it.
    pub resolved_at: Option<DateTime<Utc>>,
    /// Who.
    pub resolved_by: Option<String>,
    /// refund, keep or closed.
    pub resolution: Option<String>,
    /// Why so.
    pub note: Option<String>,
}

impl From<Case> for CaseBody {
    fn from(case: Case) -> Self {
        Self {
            case_id: case.case_id,
            provider: case.provider,
            kind: case.kind,
            subject: case.subject,
            payment_id: case.payment_id.map(|payment_id| payment_id.to_string()),
            why: case.why,
            opened_at: case.opened_at,
            resolved_at: case.resolved_at,
            resolved_by: case.resolved_by,
            resolution: case.resolution,
            note: case.note,
        }
    }
}

/// Some cases.
#[derive(Debug, Serialize, ToSchema)]
pub struct CasePage {
    /// The newest first.
    pub items: Vec<CaseBody>,
    /// Give it as `before` to get the next page; null on the last one.
    pub next: Option<i64>,
}

/// Which of them.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// true: only those that aren't over.
    pub open: Option<bool>,
    /// The `next` of the page before.
    pub before: Option<i64>,
    /// 1 to 500; 100 when left out.
    limit: Option<u16>,
}

impl ListQuery {
    /// How many.
    ///
    /// # Errors
    /// A problem when it is out of bounds.
    pub fn limit(&self) -> Result<i64, Problem> {
        let limit = self.limit.unwrap_or(100);
        if limit == 0 || limit > 500 {
            return Err(Problem::invalid_field("limit", "must be 1 to 500"));
        }
        Ok(i64::from(limit))
    }
}

/// Lists what a person has to look at.
#[utoipa::path(get, path = "/v1/payment-cases", tag = "bookings", params(ListQuery),
    responses((status = 200, body = CasePage)))]
pub async fn list(
    caller: Caller<SupportWrite>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<CasePage>, Problem> {
    let limit = query.limit()?;
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let cases = case::list(&mut conn, query.open.unwrap_or(false), query.before, limit).await?;
    let full = i64::try_from(cases.len()) == Ok(limit);
    let next = cases.last().map(|case| case.case_id).filter(|_| full);
    Ok(axum::Json(CasePage { items: cases.into_iter().map(CaseBody::from).collect(), next }))
}

/// What a person decides about a case.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionBody {
    /// refund (the money goes back to its payer), keep (it stays), closed (there is nothing to move here).
    #[schema(example = "refund")]
    pub resolution: String,
    /// With keep: in whose wallet; in the one it is in when left out.
    pub tenant_id: Option<String>,
    /// Why, in a sentence.
    pub note: Option<String>,
}

/// Does what a person decided about a case. The same key with the same body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/payment-cases/{case_id}/resolve", tag = "bookings", request_body = ResolutionBody,
    params(("case_id" = i64, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 200, body = CaseBody),
        (status = 404, description = "case_not_found, tenant_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "case_resolved, idempotency_key_reused", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "case_has_no_money, case_money_waits", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn resolve(
    caller: Caller<SupportApprove>,
    peer: PeerAddress,
    request_id: RequestId,
    _: Query<NoParameters>,
    Named(CaseNumber(case_id)): Named<CaseNumber>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<ResolutionBody>,
) -> Result<Response, Problem> {
    let body = json.body;
    let tenant_id = body.tenant_id.map(|id| super::field("tenant_id", TenantId::parse(id))).transpose()?;
    let resolution = match (body.resolution.as_str(), tenant_id) {
        ("keep", tenant_id) => Resolution::Keep(tenant_id),
        (_, Some(_)) => return Err(Problem::invalid_field("tenant_id", "goes with keep only")),
        ("refund", None) => Resolution::Refund,
        ("closed", None) => Resolution::Close,
        _ => return Err(Problem::invalid_field("resolution", "must be refund, keep or closed")),
    };
    let note = body.note.map(|note| super::field("note", Reason::parse(note))).transpose()?;
    let claim =
        Claim::new(caller.client.to_string(), key, format!("POST /v1/payment-cases/{case_id}/resolve"), json.value);
    let who = super::who(&caller, peer, request_id);
    let deed = ResolveCase { case_id, resolution, note, who, actor: caller.actor() };
    match deed::perform(&caller.app, deed, claim).await {
        Ok(answer) => Ok(super::answered(answer)),
        Err(error) => Err(error.into()),
    }
}

/// A decision and who makes it.
#[derive(Debug)]
pub struct ResolveCase {
    /// About which case.
    pub case_id: i64,
    /// What.
    pub resolution: Resolution,
    /// Why.
    pub note: Option<Reason>,
    /// Who, for the audit.
    pub who: Who,
    /// Who, for the ledger.
    pub actor: Actor,
}

impl Deed for ResolveCase {
    const NAME: &'static str = "case_resolve";
    type Refusal = CaseRefusal;

    fn who(&self) -> &Who {
        &self.who
    }

    async fn line(&self, conn: &mut PgConnection, refusal: Option<&CaseRefusal>) -> Result<Line, Fault> {
        let (case_id, decision) = (self.case_id, self.resolution.as_str());
        let found = case::find(conn, case_id).await?;
        let (payment, tenant_id) = match found.as_ref().and_then(|case| case.payment_id) {
            Some(payment_id) => deed::payment_words(conn, payment_id).await?,
            None => (found.map(|case| format!("{} {}", case.kind, case.subject)).unwrap_or_default(), None),
        };
        let target = match &self.resolution {
            Resolution::Keep(Some(target)) => format!(" for {target}"),
            Resolution::Refund | Resolution::Keep(None) | Resolution::Close => String::new(),
        };
        let about = format!("case {case_id}: {decision}{target}; {payment}");
        let words = deed::words(&about, refusal, self.note.as_ref().map(|note| ("note", note)));
        Ok(Line { action: "case.resolve", allowed: refusal.is_none(), tenant_id, words })
    }

    async fn perform(&self, conn: &mut PgConnection, now: DateTime<Utc>) -> Result<Answer, Error<CaseRefusal>> {
        let case = case::resolve(conn, self.case_id, &self.resolution, self.note.as_ref(), &self.actor, now).await?;
        Ok(deed::answer(StatusCode::OK, &CaseBody::from(case))?)
    }
}
