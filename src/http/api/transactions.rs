//! A wallet's rows, in pages.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{ProblemDocument, Transaction};
use crate::http::error::Problem;
use crate::http::extract::{Caller, LedgerRead, Named, Query};
use crate::ids::{Pocket, TenantId};
use crate::ledger::{self, Kind, StatementQuery};
use crate::tenant;

/// The most rows of one page.
const LIMIT_MAX: u16 = 500;

/// Which rows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TransactionsQuery {
    /// UZS when left out.
    currency: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// 1 to 500 rows; 100 when left out.
    limit: Option<u16>,
    /// Only rows of this kind.
    kind: Option<String>,
    /// Only rows of this pocket.
    pocket: Option<String>,
}

/// Some rows, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionPage {
    /// The rows.
    pub items: Vec<Transaction>,
    /// Give it as `after` to get the next page; null on the last one.
    pub next: Option<String>,
}

/// The rows of a tenant's wallet, the oldest first.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/transactions", tag = "ledger",
    params(("tenant_id" = String, Path), TransactionsQuery),
    responses((status = 200, body = TransactionPage),
        (status = 404, description = "tenant_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn list(
    caller: Caller<LedgerRead>,
    Named(tenant_id): Named<TenantId>,
    Query(query): Query<TransactionsQuery>,
) -> Result<axum::Json<TransactionPage>, Problem> {
    let currency = super::currency(&caller.app, "currency", query.currency.as_deref().unwrap_or("UZS")).await?;
    let limit = query.limit.unwrap_or(100);
    if limit == 0 || limit > LIMIT_MAX {
        return Err(Problem::invalid_field("limit", format!("must be 1 to {LIMIT_MAX}")));
    }
    let after_seq = match &query.after {
        None => 0,
        Some(after) => after
            .parse::<i64>()
            .ok()
            .filter(|seq| *seq >= 0)
            .ok_or_else(|| Problem::invalid_field("after", "must be the `next` of another page"))?,
    };
    let kind = query.kind.as_deref().map(|kind| super::field("kind", Kind::parse(kind))).transpose()?;
    let pocket = query.pocket.map(|pocket| super::field("pocket", Pocket::parse(pocket))).transpose()?;
    let asked = StatementQuery { after_seq, limit: i64::from(limit), kind, pocket };
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let page = ledger::statement(&mut conn, &tenant_id, &currency.code, &asked).await?;
    if page.rows.is_empty() && tenant::find(&mut conn, &tenant_id).await?.is_none() {
        return Err(Problem::unknown_tenant(&tenant_id));
    }
    Ok(axum::Json(TransactionPage {
        items: page.rows.iter().map(|row| Transaction::new(row, &currency)).collect(),
        next: page.next_after_seq.map(|seq| seq.to_string()),
    }))
}
