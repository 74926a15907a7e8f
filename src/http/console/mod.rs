//! `/console`: where the support desk works. Rendered here, whole pages, no script: a page that can't run code
//! can't be made to run somebody else's.
//!
//! Text from outside is escaped by the templates and stands in `<bdi>`, so that neither tags nor marks that turn
//! the direction of writing get out of it.

#![expect(clippy::trivially_copy_pass_by_ref, reason = "templates hand over what they show by reference")]

mod audit;
mod bookings;
mod calls;
mod chart;
mod desk;
mod dress;
mod fee_runs;
mod health;
mod hold;
mod holds;
mod login;
mod money;
mod overview;
mod page;
mod payment;
mod payments;
mod pockets;
mod refusals;
mod requests;
mod rows;
mod search;
mod session;
mod statement;
mod tenant;
mod transaction;
mod webhooks;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};

use crate::app::App;
use crate::staff::Role;

/// A path of the console, and who may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// `get` or `post`.
    pub method: &'static str,
    /// The path, with names in braces.
    pub path: &'static str,
    /// The smallest role; none for what everybody may see.
    pub needs: Option<Role>,
}

macro_rules! routes {
    ($($method:ident $path:literal $handler:path, $needs:expr;)+) => {
        /// Every path of the console.
        pub const ROUTES: &[Route] = &[$(Route { method: stringify!($method), path: $path, needs: $needs },)+];

        fn paths() -> Router<Arc<App>> {
            Router::new()$(.route($path, $method($handler)))+
        }
    };
}

routes! {
    get  "/console/login" login::form, None;
    post "/console/login" login::log_in, None;
    get  "/console/language/{code}" login::language, None;
    get  "/console/style.css" style, None;
    post "/console/logout" login::log_out, Some(Role::Viewer);
    get  "/console" search::page, Some(Role::Viewer);
    get  "/console/tenants/{tenant_id}" tenant::page, Some(Role::Viewer);
    get  "/console/tenants/{tenant_id}/statement.csv" statement::csv, Some(Role::Viewer);
    get  "/console/tenants/{tenant_id}/statement" statement::print, Some(Role::Viewer);
    get  "/console/tenants/{tenant_id}/{currency}/{seq}" transaction::page, Some(Role::Viewer);
    post "/console/tenants/{tenant_id}/refund/preview" desk::preview_refund, Some(Role::Agent);
    post "/console/tenants/{tenant_id}/refund" desk::refund, Some(Role::Agent);
    post "/console/tenants/{tenant_id}/adjustment/preview" desk::preview_adjustment, Some(Role::Agent);
    post "/console/tenants/{tenant_id}/adjustment" desk::adjust, Some(Role::Agent);
    get  "/console/requests" requests::list, Some(Role::Viewer);
    get  "/console/requests/{request_id}" requests::page, Some(Role::Viewer);
    post "/console/requests/{request_id}/approve" requests::approve, Some(Role::Approver);
    post "/console/requests/{request_id}/reject" requests::reject, Some(Role::Approver);
    post "/console/requests/{request_id}/withdraw" requests::withdraw, Some(Role::Agent);
    get  "/console/holds" holds::page, Some(Role::Viewer);
    get  "/console/holds/{hold_id}" hold::page, Some(Role::Viewer);
    get  "/console/bookings" bookings::slots, Some(Role::Viewer);
    get  "/console/orders/{order_id}" bookings::order, Some(Role::Viewer);
    get  "/console/refund-tasks" payments::refunds, Some(Role::Viewer);
    get  "/console/cases" payments::cases, Some(Role::Viewer);
    post "/console/cases/{case_id}/resolve" payments::resolve, Some(Role::Approver);
    get  "/console/payments/{payment_id}" payment::page, Some(Role::Viewer);
    post "/console/payments/{payment_id}/give-back" payments::give_back, Some(Role::Approver);
    get  "/console/fee-runs" fee_runs::page, Some(Role::Viewer);
    get  "/console/webhooks" webhooks::page, Some(Role::Viewer);
    post "/console/webhooks/{endpoint_id}/{event_id}/replay" webhooks::replay, Some(Role::Agent);
    get  "/console/health" health::page, Some(Role::Viewer);
    get  "/console/overview" overview::page, Some(Role::Viewer);
    get  "/console/audit" audit::page, Some(Role::Approver);
}

/// The console.
pub fn router(app: &Arc<App>) -> Router<Arc<App>> {
    paths()
        .route("/console/", any(no_such_page))
        .route("/console/{*rest}", any(no_such_page))
        .method_not_allowed_fallback(other_method)
        .layer(middleware::from_fn(super::bound_time))
        .layer(middleware::from_fn_with_state(app.clone(), dress::dress))
        .layer(middleware::from_fn(protect))
}

async fn no_such_page() -> StatusCode {
    StatusCode::NOT_FOUND
}

async fn other_method() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

/// Whether a path is a page that can be asked for by its address. Of the routes that fit, the one that names most of it
/// is taken, as by the router.
fn is_page(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').collect();
    let named = |route: &Route| {
        let pattern: Vec<&str> = route.path.split('/').collect();
        let fits = pattern.len() == segments.len()
            && pattern.iter().zip(&segments).all(|(wanted, given)| wanted.starts_with('{') || wanted == given);
        fits.then(|| pattern.iter().filter(|wanted| !wanted.starts_with('{')).count())
    };
    let most = ROUTES.iter().filter_map(named).max();
    most.is_some() && ROUTES.iter().any(|route| route.method == "get" && named(route) == most)
}

/// What a browser is told about every page: nothing from elsewhere, nothing that runs, no frames, nothing kept.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn style() -> Response {
    let headers = [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=300")];
    (headers, include_str!("style.css")).into_response()
}
