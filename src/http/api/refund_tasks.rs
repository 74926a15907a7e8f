//! Money on its way back to its payer.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::ProblemDocument;
use super::payment_cases::ListQuery;
use crate::audit::{Line, Who};
use crate::fault::{Error, Fault};
use crate::http::deed::{self, Deed};
use crate::http::error::Problem;
use crate::http::extract::{Caller, IdempotencyKey, Json, NoParameters, Query, SupportApprove, SupportWrite};
use crate::http::{PeerAddress, RequestId};
use crate::idempotency::{Answer, Claim};
use crate::ids::{Actor, Reason};
use crate::payment::prepaid::refund::{self, RefundTask};
use crate::payment::prepaid::{GiveBackRefusal, give_back};

/// A payment on its way back.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundTaskBody {
    /// Its number.
    pub task_id: i64,
    /// waiting, checking, refunded or failed. Tell the payer "refunded" only when it says so.
    pub status: String,
    /// Our id of the payment.
    pub payment_id: String,
    /// Whose.
    pub provider: String,
    /// The provider's id of the payment.
    pub external_id: String,
    /// Whose wallet it is in.
    pub tenant_id: String,
    /// Who gets it back, by the provider's id.
    pub payer: String,
    /// Why.
    pub why: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// How many calls there were.
    pub attempts: i32,
    /// What was wrong with the last one.
    pub last_problem: Option<String>,
    /// When it was confirmed.
    pub confirmed_at: Option<DateTime<Utc>>,
    /// By what: answer, statement or update.
    pub confirmed_by: Option<String>,
    /// Why it was given up.
    pub failure: Option<String>,
}

impl From<RefundTask> for RefundTaskBody {
    fn from(task: RefundTask) -> Self {
        Self {
            status: task.status().to_owned(),
            task_id: task.task_id,
            payment_id: task.payment_id.to_string(),
            provider: task.provider,
            external_id: task.external_id,
            tenant_id: task.tenant_id,
            payer: task.payer,
            why: task.why,
            created_at: task.created_at,
            attempts: task.attempts,
            last_problem: task.last_problem,
            confirmed_at: task.confirmed_at,
            confirmed_by: task.confirmed_by,
            failure: task.failure,
        }
    }
}

/// Some refund tasks.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundTaskPage {
    /// The newest first.
    pub items: Vec<RefundTaskBody>,
    /// Give it as `before` to get the next page; null on the last one.
    pub next: Option<i64>,
}

/// Lists payments on their way back, and those that have gone.
#[utoipa::path(get, path = "/v1/refund-tasks", tag = "bookings", params(ListQuery),
    responses((status = 200, body = RefundTaskPage)))]
pub async fn list(
    caller: Caller<SupportWrite>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<RefundTaskPage>, Problem> {
    let limit = query.limit()?;
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let tasks = refund::list(&mut conn, query.open.unwrap_or(false), query.before, limit).await?;
    let full = i64::try_from(tasks.len()) == Ok(limit);
    let next = tasks.last().map(|task| task.task_id).filter(|_| full);
    Ok(axum::Json(RefundTaskPage { items: tasks.into_iter().map(RefundTaskBody::from).collect(), next }))
}

/// A payment that is to go back to its payer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GiveBackBody {
    /// Our id of the payment, as `payment.performed` and the metadata of its row say it.
    #[schema(example = "42")]
    pub payment_id: String,
    /// Why, in a sentence.
    #[schema(example = "the buyer took the wrong package")]
    pub reason: String,
}

/// Gives a payment back to its payer, whole, through a provider that we call for it (Telegram Stars). Its money is set
/// aside at once; the task says when the payer has it. The same key with the same body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/refund-tasks", tag = "bookings", request_body = GiveBackBody,
    params(("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 201, body = RefundTaskBody),
        (status = 402, description = "insufficient_funds: it was spent", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "payment_gone, refund_asked, case_open, idempotency_key_reused",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "goes_through_provider, goes_through_booking, stays_spent, kept_elsewhere",
         body = ProblemDocument, content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<SupportApprove>,
    peer: PeerAddress,
    request_id: RequestId,
    _: Query<NoParameters>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<GiveBackBody>,
) -> Result<Response, Problem> {
    let number = json.body.payment_id.parse();
    let payment_id = number.map_err(|_| Problem::invalid_field("payment_id", "must be a number in quotes"))?;
    let reason = super::field("reason", Reason::parse(json.body.reason))?;
    let claim = Claim::new(caller.client.to_string(), key, "POST /v1/refund-tasks".to_owned(), json.value);
    let who = super::who(&caller, peer, request_id);
    let deed = GiveBack { payment_id, reason, who, actor: caller.actor() };
    match deed::perform(&caller.app, deed, claim).await {
        Ok(answer) => Ok(super::answered(answer)),
        Err(error) => Err(error.into()),
    }
}

/// The decision that a payment goes back, and who makes it.
#[derive(Debug)]
pub struct GiveBack {
    /// Which.
    pub payment_id: i64,
    /// Why.
    pub reason: Reason,
    /// Who, for the audit.
    pub who: Who,
    /// Who, for the ledger.
    pub actor: Actor,
}

impl Deed for GiveBack {
    const NAME: &'static str = "payment_give_back";
    type Refusal = GiveBackRefusal;

    fn who(&self) -> &Who {
        &self.who
    }

    async fn line(&self, conn: &mut PgConnection, refusal: Option<&GiveBackRefusal>) -> Result<Line, Fault> {
        let (payment, tenant_id) = deed::payment_words(conn, self.payment_id).await?;
        let about = format!("{payment} goes back to its payer");
        let words = deed::words(&about, refusal, Some(("reason", &self.reason)));
        Ok(Line { action: "payment.give_back", allowed: refusal.is_none(), tenant_id, words })
    }

    async fn perform(&self, conn: &mut PgConnection, now: DateTime<Utc>) -> Result<Answer, Error<GiveBackRefusal>> {
        let task = give_back(conn, self.payment_id, &self.reason, &self.actor, now).await?;
        Ok(deed::answer(StatusCode::CREATED, &RefundTaskBody::from(task))?)
    }
}
