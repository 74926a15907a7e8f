//! Payment links: where to send a payer's browser.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::http::error::Problem;
use crate::http::extract::{Caller, Json, NoParameters, PaymentsWrite, Query};
use crate::ids::{OrderId, TenantId};
use crate::money::CurrencyCode;
use crate::payment::{AccountRef, order};
use crate::provider::payme::link::Link;
use crate::tenant::{self, Locale};

/// A link to be made: for a tenant's wallet with an amount, or for an order with its own.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLink {
    /// payme
    #[schema(example = "payme")]
    pub provider: String,
    /// Whose wallet is topped up. Exactly one of tenant_id and order_id is given.
    #[schema(example = "acme")]
    pub tenant_id: Option<String>,
    /// Which order is paid.
    pub order_id: Option<String>,
    /// Decimal text in so'm; with tenant_id only.
    #[schema(example = "15000.00")]
    pub amount: Option<String>,
    /// uz, ru or en; the tenant's own when left out.
    pub locale: Option<String>,
    /// Where the browser goes afterwards. It proves nothing.
    pub return_url: Option<String>,
}

/// A link.
#[derive(Debug, Serialize, ToSchema)]
pub struct LinkBody {
    /// Where to send the browser.
    pub url: String,
}

/// Makes a payment link. Nothing is stored; the provider asks about everything when somebody pays.
#[utoipa::path(post, path = "/v1/payment-links", tag = "payments", request_body = NewLink,
    responses((status = 200, body = LinkBody),
        (status = 404, description = "tenant_not_found, order_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "link_not_possible, provider_not_configured", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    json: Json<NewLink>,
) -> Result<axum::Json<LinkBody>, Problem> {
    let body = json.body;
    if body.provider != "payme" {
        return Err(Problem::invalid_field("provider", "must be payme"));
    }
    let app = &caller.app;
    let links = app.settings.payme_links.as_ref().ok_or_else(|| {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "provider_not_configured",
            "The provider is not set up for links",
            "set HAMYON_PAYME_MERCHANT_ID to the cashbox's id",
        )
    })?;
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let currency = super::currency(app, "currency", CurrencyCode::uzs().as_str()).await?;
    let (account, tenant_id, amount) = match (body.tenant_id, body.order_id) {
        (Some(tenant_id), None) => {
            let tenant_id = super::field("tenant_id", TenantId::parse(tenant_id))?;
            let text = body.amount.ok_or_else(|| Problem::invalid_field("amount", "is needed with tenant_id"))?;
            (AccountRef::Wallet(tenant_id.clone()), tenant_id, super::amount("amount", &text, &currency)?)
        }
        (None, Some(order_id)) => {
            if body.amount.is_some() {
                return Err(Problem::invalid_field("amount", "an order has its own"));
            }
            let order_id = super::field("order_id", OrderId::parse(order_id))?;
            let order = order::find(&mut conn, &order_id)
                .await?
                .ok_or_else(|| Problem::not_found("order_not_found", format!("there is no order {order_id}")))?;
            (AccountRef::Order(order_id), order.tenant_id, order.amount)
        }
        _ => return Err(Problem::invalid("give exactly one of tenant_id and order_id")),
    };
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(|| Problem::unknown_tenant(&tenant_id))?;
    let locale = match &body.locale {
        Some(locale) => super::field("locale", Locale::parse(locale))?,
        None => tenant.locale,
    };
    let link = Link {
        merchant_id: &links.merchant_id,
        field: app.payme.account_field(&account),
        account: match &account {
            AccountRef::Wallet(tenant_id) => tenant_id.as_str(),
            AccountRef::Order(order_id) => order_id.as_str(),
        },
        amount,
        locale: Some(locale.as_str()),
        return_url: body.return_url.as_deref(),
    };
    Ok(axum::Json(LinkBody { url: link.url(&links.base_url)? }))
}
