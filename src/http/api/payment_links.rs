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
use crate::provider::payme::link::{Link, LinkError};
use crate::tenant::{self, Locale};

/// The longest address to return to.
const RETURN_URL_CHARS_MAX: usize = 2_000;

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
    /// Where the browser goes afterwards: an http or https address of at most 2,000 characters. It proves nothing.
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
            if order.currency != currency.code {
                return Err(LinkError::OtherCurrency(order.currency).into());
            }
            (AccountRef::Order(order_id), order.tenant_id, order.amount)
        }
        _ => return Err(Problem::invalid("give exactly one of tenant_id and order_id")),
    };
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(|| Problem::unknown_tenant(&tenant_id))?;
    let locale = match &body.locale {
        Some(locale) => super::field("locale", Locale::parse(locale))?,
        None => tenant.locale,
    };
    if let Some(return_url) = &body.return_url {
        check_return_url(return_url)?;
    }
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

/// The link leads a payer's browser there, so it must be an address that a browser goes to, and no password may
/// stand in it for everybody to read.
fn check_return_url(text: &str) -> Result<(), Problem> {
    let wrong = |rule: &str| Err(Problem::invalid_field("return_url", rule));
    if text.chars().count() > RETURN_URL_CHARS_MAX {
        return wrong("must have at most 2,000 characters");
    }
    let url = reqwest::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match url {
        None => wrong("must be an address such as https://shop.example/thanks"),
        Some(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("may not hold a user name or a password")
        }
        Some(_) => Ok(()),
    }
}
