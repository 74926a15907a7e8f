//! A wallet's balance, now or at a moment.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use crate::fault::Fault;
use crate::http::error::Problem;
use crate::http::extract::{Caller, LedgerRead, Named, Query};
use crate::ids::{Pocket, TenantId};
use crate::ledger;
use crate::money::{Currency, MinorUnits};
use crate::tenant;

/// Which wallet, and when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BalanceQuery {
    /// UZS when left out.
    currency: Option<String>,
    /// A moment (RFC 3339); now when left out.
    at: Option<DateTime<Utc>>,
}

/// What a wallet holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct BalanceBody {
    /// The wallet's currency.
    #[schema(example = "UZS")]
    pub currency: String,
    /// The sum of the rows.
    #[schema(example = "15000.00")]
    pub balance: String,
    /// Promised to work in progress.
    #[schema(example = "0.00")]
    pub held: String,
    /// What may be spent.
    #[schema(example = "15000.00")]
    pub available: String,
    /// The number of the last row that is counted.
    pub seq: i64,
    /// The moment.
    pub at: DateTime<Utc>,
    /// What each pocket holds, the empty ones left out.
    pub pockets: BTreeMap<String, String>,
    /// The same pockets with what of each is promised and may be spent, and their rules.
    pub by_pocket: Vec<PocketBalance>,
}

/// What a pocket holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct PocketBalance {
    /// The pocket.
    #[schema(example = "main")]
    pub pocket: String,
    /// The sum of its rows.
    pub balance: String,
    /// Promised to work in progress.
    pub held: String,
    /// What may be spent of it; nothing once its time is over.
    pub available: String,
    /// Lower is spent earlier; null for bought money, which is spent last.
    pub priority: Option<i16>,
    /// Its money is there while now is before this; null is for ever.
    pub expires_at: Option<DateTime<Utc>>,
}

fn by_pocket(balance: &ledger::Balance, currency: &Currency) -> Result<Vec<PocketBalance>, Fault> {
    let text = |amount: MinorUnits| amount.to_text(currency.exponent);
    // A pocket that others have emptied may still be one that a hold counts on.
    let held = balance.division.promised.iter().filter(|(_, promised)| promised.live.is_positive());
    let pockets: BTreeSet<&Pocket> = balance.pockets.keys().chain(held.map(|(pocket, _)| pocket)).collect();
    pockets
        .into_iter()
        .map(|pocket| {
            let amount = balance.pockets.get(pocket).copied().unwrap_or_default();
            let free = balance.division.free_in(pocket, amount)?;
            let rule = balance.division.rules.get(pocket);
            Ok(PocketBalance {
                pocket: pocket.to_string(),
                balance: text(amount),
                held: text(balance.division.held_of(pocket)),
                available: text(if *pocket == Pocket::set_aside() { MinorUnits::ZERO } else { free }),
                priority: rule.map(|rule| rule.priority),
                expires_at: rule.and_then(|rule| rule.ends_at),
            })
        })
        .collect()
}

/// The balance of a tenant's wallet.
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/balance", tag = "ledger",
    params(("tenant_id" = String, Path), BalanceQuery),
    responses((status = 200, body = BalanceBody),
        (status = 404, description = "tenant_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<LedgerRead>,
    Named(tenant_id): Named<TenantId>,
    Query(query): Query<BalanceQuery>,
) -> Result<axum::Json<BalanceBody>, Problem> {
    let currency = super::currency(&caller.app, "currency", query.currency.as_deref().unwrap_or("UZS")).await?;
    let at = query.at.map(|at| super::moment("at", at)).transpose()?;
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let balance = ledger::balance(&mut conn, &tenant_id, &currency.code, at, caller.app.clock.now()).await?;
    if balance.is_none() && tenant::find(&mut conn, &tenant_id).await?.is_none() {
        return Err(Problem::unknown_tenant(&tenant_id));
    }
    let text = |amount: MinorUnits| amount.to_text(currency.exponent);
    let at = at.unwrap_or_else(|| caller.app.clock.now());
    let by_pocket = balance.as_ref().map(|balance| by_pocket(balance, &currency)).transpose()?.unwrap_or_default();
    // A wallet that isn't opened yet holds nothing.
    let (held, available, seq, pockets, balance) = balance.map_or_else(
        || (MinorUnits::ZERO, MinorUnits::ZERO, 0, BTreeMap::new(), MinorUnits::ZERO),
        |balance| (balance.held, balance.available, balance.seq, balance.pockets, balance.balance),
    );
    Ok(axum::Json(BalanceBody {
        currency: currency.code.to_string(),
        balance: text(balance),
        held: text(held),
        available: text(available),
        seq,
        at,
        pockets: pockets.iter().map(|(pocket, sum)| (pocket.to_string(), text(*sum))).collect(),
        by_pocket,
    }))
}
