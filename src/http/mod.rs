//! HTTP: every path in one list, and what surrounds every request.

mod api;
pub mod connections;
pub mod console;
mod deed;
mod error;
mod extract;
mod health;
mod openapi;
mod payme;
mod telegram;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument as _;
use uuid::Uuid;

pub use error::Problem;

use crate::app::App;
use crate::fault::Fault;
use crate::ids::ClientName;
use error::REQUEST_ID;

/// How long a request may take before its caller is told to come back.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Every path.
pub fn router(app: Arc<App>) -> Router {
    let v1 = Router::new()
        .route("/v1/currencies", get(api::currencies::list).post(api::currencies::create))
        .route("/v1/tenants", post(api::tenants::create))
        .route("/v1/tenants/{tenant_id}", get(api::tenants::get).patch(api::tenants::change))
        .route("/v1/tenants/{tenant_id}/balance", get(api::balance::get))
        .route("/v1/tenants/{tenant_id}/transactions", get(api::transactions::list))
        .route("/v1/tenants/{tenant_id}/subscriptions", get(api::subscriptions::list).post(api::subscriptions::create))
        .route("/v1/tenants/{tenant_id}/subscriptions/{subscription_id}/cancel", post(api::subscriptions::cancel))
        .route("/v1/plans", get(api::plans::list).post(api::plans::create))
        .route("/v1/plans/{plan_id}/prices", post(api::plans::change_price))
        .route("/v1/fee-runs", get(api::fee_runs::list).post(api::fee_runs::start))
        .route("/v1/fee-runs/{period}", get(api::fee_runs::get))
        .route("/v1/webhook-endpoints", get(api::webhooks::list).post(api::webhooks::create))
        .route("/v1/webhook-endpoints/{endpoint_id}", delete(api::webhooks::disable))
        .route("/v1/webhook-deliveries", get(api::webhooks::deliveries))
        .route("/v1/webhook-deliveries/{endpoint_id}/{event_id}/replay", post(api::webhooks::replay))
        .route("/v1/transactions/batch", post(api::batch::post))
        .route("/v1/orders", post(api::orders::create))
        .route("/v1/orders/{order_id}", get(api::orders::get))
        .route("/v1/orders/{order_id}/close", post(api::orders::close))
        .route("/v1/orders/{order_id}/invoice", post(api::orders::invoice))
        .route("/v1/resources", post(api::slots::create_resource))
        .route("/v1/slots", get(api::slots::list_free).post(api::slots::create))
        .route("/v1/slots/{slot_id}/withdraw", post(api::slots::withdraw))
        .route("/v1/bookings/{booking_id}", get(api::bookings::get))
        .route("/v1/bookings/{booking_id}/cancel", post(api::bookings::cancel))
        .route("/v1/refund-tasks", get(api::refund_tasks::list).post(api::refund_tasks::create))
        .route("/v1/payment-cases", get(api::payment_cases::list))
        .route("/v1/payment-cases/{case_id}/resolve", post(api::payment_cases::resolve))
        .route("/v1/tenants/{tenant_id}/refunds", post(api::support::refund))
        .route("/v1/tenants/{tenant_id}/adjustments", post(api::support::adjust))
        .route("/v1/support-requests", get(api::support::list))
        .route("/v1/support-requests/{request_id}", get(api::support::get))
        .route("/v1/support-requests/{request_id}/approve", post(api::support::approve))
        .route("/v1/support-requests/{request_id}/reject", post(api::support::reject))
        .route("/v1/support-requests/{request_id}/withdraw", post(api::support::withdraw))
        .route("/v1/tenants/{tenant_id}/grants", post(api::grants::grant))
        .route("/v1/tenants/{tenant_id}/pockets/void", post(api::grants::void))
        .route("/v1/tenants/{tenant_id}/activity", post(api::allowances::activity))
        .route("/v1/tenants/{tenant_id}/allowances", post(api::allowances::assign_to_tenant))
        .route("/v1/plans/{plan_id}/allowances", post(api::allowances::assign_to_plan))
        .route("/v1/allowances", get(api::allowances::list).post(api::allowances::create))
        .route("/v1/hold-tiers", get(api::hold_prices::list_tiers).post(api::hold_prices::set_tier))
        .route("/v1/price-books", get(api::hold_prices::get_book).post(api::hold_prices::write_book))
        .route("/v1/holds", get(api::holds::list).post(api::holds::place))
        .route("/v1/holds/stats", get(api::holds::stats))
        .route("/v1/holds/{hold_id}", get(api::holds::get))
        .route("/v1/holds/{hold_id}/start", post(api::holds::start))
        .route("/v1/holds/{hold_id}/heartbeat", post(api::holds::heartbeat))
        .route("/v1/holds/{hold_id}/usage", post(api::holds::report_usage))
        .route("/v1/holds/{hold_id}/settle", post(api::holds::settle))
        .route("/v1/holds/{hold_id}/release", post(api::holds::release))
        .route("/v1/holds/{hold_id}/cancel", post(api::holds::cancel))
        .route("/v1/payment-links", post(api::payment_links::create))
        .layer(middleware::from_fn(bound_time));
    Router::new()
        .merge(v1)
        .merge(console::router(&app))
        // Payme wants HTTP 200 for every method, so the door answers them all itself.
        .route("/payme", any(payme::answer))
        .route("/telegram/webhook", post(telegram::webhook))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .with_state(app)
        .merge(openapi::router())
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(|_| Problem::panicked().into_response()))
        .layer(middleware::from_fn(observe))
}

async fn no_such_path() -> Problem {
    Problem::not_found("path_not_found", "there is no such path; /docs lists them")
}

async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "The path doesn't know this method",
        "/docs lists the methods of each path",
    )
}

async fn bound_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::timed_out().into_response(),
    }
}

/// Where the token's extractor leaves the client's name for the request line.
#[derive(Debug, Clone, Default)]
pub struct SeenClient(Arc<Mutex<Option<String>>>);

impl SeenClient {
    fn set(&self, client: &ClientName) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.to_string());
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Gives the request an id, measures it, and writes its one line.
async fn observe(mut request: Request<Body>, next: Next) -> Response {
    let started = Instant::now();
    let request_id = request
        .headers()
        .get("x-request-id")
        .and_then(|value| value.to_str().ok())
        .filter(|value| !value.is_empty() && value.len() <= 64 && value.bytes().all(|byte| byte.is_ascii_graphic()))
        .map_or_else(|| Uuid::now_v7().to_string(), ToOwned::to_owned);
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let remote = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_string());
    let client = SeenClient::default();
    request.extensions_mut().insert(client.clone());
    request.extensions_mut().insert(RequestId(request_id.clone()));

    let span = tracing::info_span!("request", request_id);
    let mut response = REQUEST_ID.scope(request_id.clone(), next.run(request)).instrument(span).await;

    let status = response.status().as_u16();
    let elapsed = started.elapsed();
    metrics::counter!("hamyon_http_requests_total",
        "method" => known_method(&method), "route" => route.clone(), "status" => status.to_string())
    .increment(1);
    metrics::histogram!("hamyon_http_request_duration_seconds", "route" => route.clone()).record(elapsed);
    tracing::info!(
        request_id,
        %method,
        path,
        route,
        status,
        duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        client = client.get(),
        remote,
        "{method} {path} {status}"
    );
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

/// A caller may invent methods; a label may not have endless values.
fn known_method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "PATCH" => "PATCH",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Our id of a request.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Fault::new("a request has no id").into())
    }
}

/// Where a request comes from, as far as that is known.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub Option<IpAddr>);

impl FromRequestParts<Arc<App>> for PeerAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        let Some(ConnectInfo(peer)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() else { return Ok(Self(None)) };
        let forwarded = forwarded_for(&parts.headers);
        Ok(Self(Some(app.remote_address(peer.ip(), forwarded.as_deref()))))
    }
}

/// The whole list of forwarded addresses. A proxy may append a line of its own instead of extending the line
/// that came, and then the first line is what the caller himself wrote.
fn forwarded_for(headers: &HeaderMap) -> Option<String> {
    let lines: Vec<&str> = headers.get_all("x-forwarded-for").iter().map(|line| line.to_str().unwrap_or("")).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}
