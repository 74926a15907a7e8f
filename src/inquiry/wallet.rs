//! What stands around one tenant: wallets, payments and their calls, dues, and the balance over time.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::store::{self, CallLine, DueLine, OverdueSum, PaymentLine};
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::ledger::Kind;
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

/// The numbers of a wallet's rows between two rows, the newest first, at most so many.
///
/// # Errors
/// A fault.
pub async fn seqs_before(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    kind: Option<&Kind>,
    between: (i64, i64),
    limit: i64,
) -> Result<Vec<i64>, Fault> {
    store::seqs_before(conn, tenant_id, currency, kind.map(Kind::as_str), between, limit).await
}

/// A payment by our number.
///
/// # Errors
/// A fault.
pub async fn find_payment(conn: &mut PgConnection, payment_id: i64) -> Result<Option<PaymentLine>, Fault> {
    store::find_payment(conn, payment_id).await
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
