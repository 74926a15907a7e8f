//! `/openapi.json`, and `/docs` where a person reads it. Everything is served from this program.

use axum::Router;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_swagger_ui::SwaggerUi;

use super::api;

/// The document.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Hamyon",
        description = "An event-sourced wallet ledger. Money is decimal text with a currency; times are RFC 3339; \
                       errors are RFC 9457 problems with a stable `code`; a request that moves money needs an \
                       `Idempotency-Key`.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        api::currencies::list,
        api::currencies::create,
        api::tenants::create,
        api::tenants::get,
        api::balance::get,
        api::transactions::list,
        api::batch::post,
        api::orders::create,
        api::orders::get,
        api::orders::close,
        api::payment_links::create,
    ),
    modifiers(&BearerToken),
    security(("token" = []))
)]
pub struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        components.add_security_scheme("token", scheme);
    }
}

pub fn router() -> Router {
    SwaggerUi::new("/docs").url("/openapi.json", Document::openapi()).into()
}
