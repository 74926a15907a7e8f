//! Webhook endpoints and what was delivered to them.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use crate::http::error::Problem;
use crate::http::extract::{Caller, Json, Named, NoParameters, Number, Query, SecondNumber, WebhooksWrite};
use crate::outbox::endpoint::{self, Endpoint};
use crate::outbox::{DeliveryRow, Replay, check_url};

/// An endpoint to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEndpoint {
    /// Where events are sent to.
    #[schema(example = "https://example.com/hooks")]
    pub url: String,
    /// The number of an endpoint that is off: this one gets every event which that one hasn't got.
    pub in_place_of: Option<i64>,
}

/// An endpoint.
#[derive(Serialize, ToSchema)]
pub struct EndpointBody {
    /// Its number.
    pub endpoint_id: i64,
    /// Where events are sent to.
    pub url: String,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
    /// When it was switched off.
    pub disabled_at: Option<DateTime<Utc>>,
    /// Verifies what is sent (Standard Webhooks); shown once, when it is registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// All endpoints.
#[derive(Debug, Serialize, ToSchema)]
pub struct EndpointList {
    /// The oldest first.
    pub items: Vec<EndpointBody>,
}

/// Which deliveries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeliveryQuery {
    /// dead, waiting or delivered; all when left out.
    state: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// 1 to 500; 100 when left out.
    limit: Option<u16>,
}

/// A delivery.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryBody {
    /// Where to.
    pub endpoint_id: i64,
    /// What.
    pub event_id: i64,
    /// Whose.
    pub tenant_id: String,
    /// The event's kind.
    pub kind: String,
    /// How often it was tried.
    pub attempts: i32,
    /// When it is tried next.
    pub next_attempt_at: DateTime<Utc>,
    /// When it arrived.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When it was given up.
    pub dead_at: Option<DateTime<Utc>>,
    /// The receiver's last HTTP status.
    pub last_status: Option<i32>,
    /// What was wrong the last time.
    pub last_problem: Option<String>,
}

/// Some deliveries.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryPage {
    /// The oldest first.
    pub items: Vec<DeliveryBody>,
    /// Give it as `after` to get the next page; null on the last one.
    pub next: Option<String>,
}

// By hand: a secret must not get into a log.
impl std::fmt::Debug for EndpointBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EndpointBody").field("endpoint_id", &self.endpoint_id).finish_non_exhaustive()
    }
}

impl EndpointBody {
    fn new(endpoint: Endpoint, secret: Option<String>) -> Self {
        Self {
            endpoint_id: endpoint.endpoint_id,
            url: endpoint.url,
            created_at: endpoint.created_at,
            disabled_at: endpoint.disabled_at,
            secret,
        }
    }
}

impl From<DeliveryRow> for DeliveryBody {
    fn from(row: DeliveryRow) -> Self {
        Self {
            endpoint_id: row.endpoint_id,
            event_id: row.event_id,
            tenant_id: row.tenant_id,
            kind: row.kind,
            attempts: row.attempts,
            next_attempt_at: row.next_attempt_at,
            delivered_at: row.delivered_at,
            dead_at: row.dead_at,
            last_status: row.last_status,
            last_problem: row.last_problem,
        }
    }
}

/// Registers an endpoint. Events that happen from now on are sent to it; in place of one that is off, all that it hasn't
/// got as well.
#[utoipa::path(post, path = "/v1/webhook-endpoints", tag = "webhooks", request_body = NewEndpoint,
    responses((status = 201, body = EndpointBody),
        (status = 404, description = "endpoint_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<WebhooksWrite>,
    _: Query<NoParameters>,
    json: Json<NewEndpoint>,
) -> Result<(StatusCode, axum::Json<EndpointBody>), Problem> {
    let url = check_url(&json.body.url, caller.app.settings.webhooks.allow_private)
        .map_err(|refusal| Problem::invalid_field("url", refusal))?;
    let (url, now, in_place_of) = (url.as_str(), caller.app.clock.now(), json.body.in_place_of);
    let (endpoint, secret) = caller
        .db()
        .run("endpoint_register", |conn| {
            async move {
                match in_place_of {
                    Some(other) => endpoint::register_in_place_of(conn, other, url, now).await,
                    None => Ok(endpoint::register(conn, url, now).await?),
                }
            }
            .scope_boxed()
        })
        .await?;
    let body = EndpointBody::new(endpoint, Some(secret.expose_secret().to_owned()));
    Ok((StatusCode::CREATED, axum::Json(body)))
}

/// Lists the endpoints, without their secrets.
#[utoipa::path(get, path = "/v1/webhook-endpoints", tag = "webhooks", responses((status = 200, body = EndpointList)))]
pub async fn list(caller: Caller<WebhooksWrite>, _: Query<NoParameters>) -> Result<axum::Json<EndpointList>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let endpoints = endpoint::list(&mut conn).await?;
    Ok(axum::Json(EndpointList { items: endpoints.into_iter().map(|it| EndpointBody::new(it, None)).collect() }))
}

/// Switches an endpoint off. What waits for it isn't sent any more.
#[utoipa::path(delete, path = "/v1/webhook-endpoints/{endpoint_id}", tag = "webhooks",
    params(("endpoint_id" = i64, Path)),
    responses((status = 204),
        (status = 404, description = "endpoint_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn disable(
    caller: Caller<WebhooksWrite>,
    _: Query<NoParameters>,
    Named(Number(endpoint_id)): Named<Number>,
) -> Result<StatusCode, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    if endpoint::disable(&mut conn, endpoint_id, caller.app.clock.now()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("endpoint_not_found", format!("there is no endpoint {endpoint_id} that is on")))
    }
}

/// Lists deliveries: the dead letters, what waits, what arrived.
#[utoipa::path(get, path = "/v1/webhook-deliveries", tag = "webhooks", params(DeliveryQuery),
    responses((status = 200, body = DeliveryPage)))]
pub async fn deliveries(
    caller: Caller<WebhooksWrite>,
    Query(query): Query<DeliveryQuery>,
) -> Result<axum::Json<DeliveryPage>, Problem> {
    if let Some(state) = &query.state
        && !matches!(state.as_str(), "dead" | "waiting" | "delivered")
    {
        return Err(Problem::invalid_field("state", "must be dead, waiting or delivered"));
    }
    let limit = query.limit.unwrap_or(100);
    if limit == 0 || limit > 500 {
        return Err(Problem::invalid_field("limit", "must be 1 to 500"));
    }
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let after = query.after.as_deref().map_or(Ok((0, 0)), cursor)?;
    let rows = endpoint::deliveries(&mut conn, query.state.as_deref(), after, i64::from(limit)).await?;
    let full = rows.len() == usize::from(limit);
    let next = rows.last().map(|row| format!("{}.{}", row.event_id, row.endpoint_id)).filter(|_| full);
    Ok(axum::Json(DeliveryPage { items: rows.into_iter().map(DeliveryBody::from).collect(), next }))
}

/// A place in the list: an event and an endpoint.
fn cursor(text: &str) -> Result<(i64, i64), Problem> {
    text.split_once('.')
        .and_then(|(event_id, endpoint_id)| Some((event_id.parse().ok()?, endpoint_id.parse().ok()?)))
        .ok_or_else(|| Problem::invalid_field("after", "must be the `next` of a page"))
}

/// Sends an event to an endpoint again.
#[utoipa::path(post, path = "/v1/webhook-deliveries/{endpoint_id}/{event_id}/replay", tag = "webhooks",
    params(("endpoint_id" = i64, Path), ("event_id" = i64, Path)),
    responses((status = 202),
        (status = 404, description = "delivery_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "endpoint_disabled", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn replay(
    caller: Caller<WebhooksWrite>,
    _: Query<NoParameters>,
    Named(Number(endpoint_id)): Named<Number>,
    SecondNumber(event_id): SecondNumber,
) -> Result<StatusCode, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    match endpoint::replay(&mut conn, endpoint_id, event_id, caller.app.clock.now()).await? {
        Replay::Queued => Ok(StatusCode::ACCEPTED),
        Replay::EndpointOff => Err(Problem::new(
            StatusCode::CONFLICT,
            "endpoint_disabled",
            "The endpoint is switched off",
            format!("nothing is sent to endpoint {endpoint_id} any more; register one in_place_of it"),
        )),
        Replay::Unknown => Err(Problem::not_found("delivery_not_found", "there is no such delivery")),
    }
}
