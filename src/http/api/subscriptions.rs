//! Subscriptions of a tenant.

use axum::http::StatusCode;
use chrono::NaiveDate;
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::fee::{self, FirstMonth, NewSubscription, Subscription};
use crate::http::error::Problem;
use crate::http::extract::{Caller, FeesWrite, Json, Named, NoParameters, Query, SecondNumber, TenantsRead};
use crate::ids::{OrderId, TenantId};
use crate::tenant;

/// A subscription to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRequest {
    /// Of which plan.
    #[schema(example = "standard")]
    pub plan_id: String,
    /// A day in the tenant's own zone.
    #[schema(example = "2026-12-10")]
    pub started_on: NaiveDate,
    /// What a first month costs that doesn't begin on the first: full, prorated or free; full when left out.
    #[schema(example = "prorated")]
    pub first_month: Option<String>,
}

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionBody {
    /// Its number.
    pub subscription_id: i64,
    /// Of which plan.
    pub plan_id: String,
    /// A day in the tenant's own zone.
    pub started_on: NaiveDate,
    /// full, prorated or free.
    pub first_month: String,
    /// The last day, if it ends.
    pub ended_on: Option<NaiveDate>,
}

/// A tenant's subscriptions.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionList {
    /// The oldest first.
    pub items: Vec<SubscriptionBody>,
}

/// When a subscription ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The last day, today or later in the tenant's zone; the last day of the paid month when left out.
    pub ended_on: Option<NaiveDate>,
}

impl From<Subscription> for SubscriptionBody {
    fn from(subscription: Subscription) -> Self {
        Self {
            subscription_id: subscription.subscription_id,
            plan_id: subscription.plan_id.to_string(),
            started_on: subscription.started_on,
            first_month: subscription.first_month.as_str().to_owned(),
            ended_on: subscription.ended_on,
        }
    }
}

/// Subscribes a tenant to a plan. The same again is answered the same.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/subscriptions", tag = "fees",
    params(("tenant_id" = String, Path)), request_body = SubscriptionRequest,
    responses((status = 201, body = SubscriptionBody), (status = 200, description = "It was there", body = SubscriptionBody),
        (status = 404, description = "tenant_not_found, plan_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "subscription_differs, subscription_overlaps, subscription_cancelled", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<FeesWrite>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    json: Json<SubscriptionRequest>,
) -> Result<(StatusCode, axum::Json<SubscriptionBody>), Problem> {
    let body = json.body;
    super::field("started_on", fee::check_start(body.started_on))?;
    let new = &NewSubscription {
        tenant_id,
        plan_id: super::field("plan_id", OrderId::parse(body.plan_id))?,
        started_on: body.started_on,
        first_month: match &body.first_month {
            None => FirstMonth::Full,
            Some(text) => super::field("first_month", FirstMonth::parse(text))?,
        },
    };
    let now = caller.app.clock.now();
    let (subscription, is_new) =
        caller.db().run("subscribe", |conn| async move { fee::subscribe(conn, new, now).await }.scope_boxed()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(subscription.into())))
}

/// A tenant's subscriptions.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/subscriptions", tag = "fees",
    params(("tenant_id" = String, Path)),
    responses((status = 200, body = SubscriptionList),
        (status = 404, description = "tenant_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn list(
    caller: Caller<TenantsRead>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
) -> Result<axum::Json<SubscriptionList>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    if tenant::find(&mut conn, &tenant_id).await?.is_none() {
        return Err(Problem::unknown_tenant(&tenant_id));
    }
    let subscriptions = fee::list_subscriptions(&mut conn, &tenant_id).await?;
    Ok(axum::Json(SubscriptionList { items: subscriptions.into_iter().map(SubscriptionBody::from).collect() }))
}

/// Ends a subscription with the month that is paid, or on a given day. Doing it again changes nothing.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/subscriptions/{subscription_id}/cancel", tag = "fees",
    params(("tenant_id" = String, Path), ("subscription_id" = i64, Path)), request_body = CancelRequest,
    responses((status = 200, body = SubscriptionBody),
        (status = 404, description = "subscription_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "subscription_ended, end_too_early", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn cancel(
    caller: Caller<FeesWrite>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    SecondNumber(subscription_id): SecondNumber,
    json: Json<CancelRequest>,
) -> Result<axum::Json<SubscriptionBody>, Problem> {
    let (tenant_id, ended_on, now) = (&tenant_id, json.body.ended_on, caller.app.clock.now());
    let subscription = caller
        .db()
        .run("subscription_cancel", |conn| {
            async move { fee::cancel(conn, tenant_id, subscription_id, ended_on, now).await }.scope_boxed()
        })
        .await?;
    Ok(axum::Json(subscription.into()))
}
