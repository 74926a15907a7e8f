//! What stands around one tenant: wallets, payments and their calls, dues, and the balance over time.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::store::{self, CallLine, DueLine, OverdueSum, PaymentLine};
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::money::{Currency, CurrencyCode, MinorUnits};

/// How many points a balance over time is drawn from.
pub const HISTORY_POINTS: i32 = 60;

/// The currencies a tenant has a wallet in, so'm first.
///
/// # Errors
/// A fault.
pub async fn wallets_of(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<Currency>, Fault> {
    store::wallets_of(conn, tenant_id).await
}

/// The number of a wallet's last row.
///
/// # Errors
/// A fault.
pub async fn last_seq(conn: &mut PgConnection, tenant_id: &TenantId, currency: &CurrencyCode) -> Result<i64, Fault> {
    store::last_seq(conn, tenant_id, currency).await
}

/// A tenant's payments before one, the newest first.
///
/// # Errors
/// A fault.
pub async fn payments_of(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    before_id: Option<i64>,
    limit: i64,
) -> Result<Vec<PaymentLine>, Fault> {
    store::payments_of(conn, tenant_id, before_id, limit).await
}

/// What a provider asked about a payment and what we answered, in order.
///
/// # Errors
/// A fault.
pub async fn calls_of_payment(
    conn: &mut PgConnection,
    provider: &str,
    external_id: &str,
) -> Result<Vec<CallLine>, Fault> {
    store::calls_of(conn, provider, external_id).await
}

/// The last calls of providers that were answered with an error.
///
/// # Errors
/// A fault.
pub async fn refused_calls(conn: &mut PgConnection, limit: i64) -> Result<Vec<CallLine>, Fault> {
    store::refused_calls(conn, limit).await
}

/// A tenant's dues, the newest first.
///
/// # Errors
/// A fault.
pub async fn dues_of(conn: &mut PgConnection, tenant_id: &TenantId, limit: i64) -> Result<Vec<DueLine>, Fault> {
    store::dues_of(conn, tenant_id, limit).await
}

/// What is unpaid in the whole book, by currency.
///
/// # Errors
/// A fault.
pub async fn overdue_sums(conn: &mut PgConnection) -> Result<Vec<OverdueSum>, Fault> {
    store::overdue_sums(conn).await
}

/// After which row the newest rows of a kind begin, so many of them.
///
/// # Errors
/// A fault.
pub async fn before_newest_of_kind(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    kind: &str,
    rows: i64,
) -> Result<i64, Fault> {
    store::before_newest_of_kind(conn, tenant_id, currency, kind, rows).await
}

/// The balance after a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The row.
    pub seq: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// The balance after it.
    pub balance: MinorUnits,
}

/// The balance over time at evenly spread rows, the last one included. A wallet of a million rows takes as long
/// as one of sixty: each point is summed up from the checkpoint before it.
///
/// # Errors
/// A fault.
pub async fn history(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
) -> Result<Vec<Point>, Fault> {
    store::history(conn, tenant_id, currency, HISTORY_POINTS).await
}
