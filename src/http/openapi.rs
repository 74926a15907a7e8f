//! `/openapi.json`, and `/docs` where a person reads it. Everything is served from this program.

use axum::Router;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
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
        api::orders::invoice,
        api::slots::create_resource,
        api::slots::create,
        api::slots::list_free,
        api::slots::withdraw,
        api::bookings::get,
        api::bookings::cancel,
        api::refund_tasks::list,
        api::refund_tasks::create,
        api::payment_cases::list,
        api::payment_cases::resolve,
        api::payment_links::create,
        api::tenants::change,
        api::plans::create,
        api::plans::list,
        api::plans::change_price,
        api::subscriptions::create,
        api::subscriptions::list,
        api::subscriptions::cancel,
        api::fee_runs::start,
        api::fee_runs::list,
        api::fee_runs::get,
        api::webhooks::create,
        api::webhooks::list,
        api::webhooks::disable,
        api::webhooks::deliveries,
        api::webhooks::replay,
        api::support::refund,
        api::support::adjust,
        api::support::list,
        api::support::get,
        api::support::approve,
        api::support::reject,
        api::support::withdraw,
        api::grants::grant,
        api::grants::void,
        api::allowances::create,
        api::allowances::list,
        api::allowances::assign_to_tenant,
        api::allowances::assign_to_plan,
        api::allowances::activity,
        api::hold_prices::set_tier,
        api::hold_prices::list_tiers,
        api::hold_prices::write_book,
        api::hold_prices::get_book,
        api::holds::place,
        api::holds::get,
        api::holds::list,
        api::holds::start,
        api::holds::heartbeat,
        api::holds::report_usage,
        api::holds::settle,
        api::holds::release,
        api::holds::cancel,
        api::holds::stats,
    ),
    components(schemas(api::ProblemDocument)),
    modifiers(&BearerToken, &EveryProblem),
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

/// What any path may answer, said once.
struct EveryProblem;

impl Modify for EveryProblem {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let problems = [
            ("400", "invalid_request, idempotency_key_missing"),
            ("401", "unauthorized"),
            ("403", "forbidden: the token lacks the scope"),
            ("413", "body_too_large"),
            ("415", "unsupported_media_type"),
            ("500", "internal, with a reference into the log"),
            ("503", "unavailable, timed_out: repeat with the same Idempotency-Key"),
        ];
        let content = || ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDocument"))).build();
        for item in openapi.paths.paths.values_mut() {
            for operation in [&mut item.get, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten() {
                for (status, description) in problems {
                    operation.responses.responses.entry(status.to_owned()).or_insert_with(|| {
                        ResponseBuilder::new()
                            .description(description)
                            .content("application/problem+json", content())
                            .build()
                            .into()
                    });
                }
            }
        }
    }
}

pub fn router() -> Router {
    SwaggerUi::new("/docs").url("/openapi.json", Document::openapi()).into()
}
