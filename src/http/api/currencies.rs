//! Units of account.

use axum::http::StatusCode;
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::http::error::Problem;
use crate::http::extract::{Caller, CurrenciesWrite, Json, LedgerRead, NoParameters, Query};
use crate::ledger::add_currency;
use crate::money::{Currency, CurrencyCode, Exponent};

/// A unit of account.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CurrencyBody {
    /// 1 to 16 of A-Z 0-9 _, beginning with a letter.
    #[schema(example = "MESSAGE")]
    pub code: String,
    /// Digits after the point, 0 to 8. Never changes.
    #[schema(example = 0)]
    pub exponent: u8,
}

/// All currencies.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurrencyList {
    /// By code.
    pub items: Vec<CurrencyBody>,
}

impl From<&Currency> for CurrencyBody {
    fn from(currency: &Currency) -> Self {
        Self { code: currency.code.to_string(), exponent: currency.exponent.digits() }
    }
}

/// Adds a unit of account of the product's own. The same again is answered the same.
#[utoipa::path(post, path = "/v1/currencies", tag = "currencies", request_body = CurrencyBody,
    responses((status = 201, body = CurrencyBody), (status = 200, description = "It was there", body = CurrencyBody),
        (status = 409, description = "currency_differs", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<CurrenciesWrite>,
    _: Query<NoParameters>,
    json: Json<CurrencyBody>,
) -> Result<(StatusCode, axum::Json<CurrencyBody>), Problem> {
    let currency = Currency {
        code: super::field("code", CurrencyCode::parse(json.body.code))?,
        exponent: super::field("exponent", Exponent::parse(json.body.exponent))?,
    };
    let asked = &currency;
    let new =
        caller.db().run("currency_add", |conn| async move { add_currency(conn, asked).await }.scope_boxed()).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(CurrencyBody::from(&currency))))
}

/// Lists the units of account.
#[utoipa::path(get, path = "/v1/currencies", tag = "currencies", responses((status = 200, body = CurrencyList)))]
pub async fn list(caller: Caller<LedgerRead>, _: Query<NoParameters>) -> Result<axum::Json<CurrencyList>, Problem> {
    let currencies = caller.app.currencies.list().await?;
    Ok(axum::Json(CurrencyList { items: currencies.iter().map(CurrencyBody::from).collect() }))
}
