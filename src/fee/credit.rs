//! A credit pays what is overdue (F5): oldest first, whole dues only, in the credit's own transaction.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::store::{self, UnpaidDue};
use crate::fault::{Error, Widen as _};
use crate::ids::{Actor, TenantId};
use crate::ledger::{self, Entry, Refusal, Shortage};
use crate::money::CurrencyCode;
use crate::outbox::{Event, EventKind};

/// Pays the overdue dues of wallets that have just been credited and are still locked, and says what
/// happened. The first due that can't be paid whole ends it for its wallet.
///
/// # Errors
/// A fault; the ledger has nothing to refuse here but what is left out.
pub async fn pay_overdue(
    conn: &mut PgConnection,
    wallets: &[(TenantId, CurrencyCode)],
    now: DateTime<Utc>,
) -> Result<Vec<Event>, Error<Refusal>> {
    if store::unpaid_of_wallets(conn, wallets).await?.is_empty() {
        return Ok(Vec::new());
    }
    // Rare from here on. Two credits of one tenant in two currencies must not both leave "access restored" to
    // the other, so the tenant is locked; what is unpaid is read after that.
    let tenants: BTreeSet<TenantId> = wallets.iter().map(|(tenant_id, _)| tenant_id.clone()).collect();
    let tenants: Vec<TenantId> = tenants.into_iter().collect();
    store::lock_tenants(conn, &tenants).await?;
    let unpaid = store::unpaid_of_wallets(conn, wallets).await?;
    let entries: Vec<Entry> = unpaid.iter().map(|due| due.fee.entry()).collect::<Result<_, _>>()?;
    let rows =
        ledger::post_or_leave_out(conn, &entries, Shortage::LeaveOutRest, &Actor::job("fees"), now).await.widen()?;
    let paid: Vec<(&UnpaidDue, i64)> =
        unpaid.iter().zip(&rows).filter_map(|(due, row)| row.as_ref().map(|row| (due, row.seq))).collect();
    if paid.is_empty() {
        return Ok(Vec::new());
    }
    store::set_charged(conn, &paid.iter().map(|(due, seq)| (due.due_id, *seq)).collect::<Vec<_>>(), now).await?;
    let mut events: Vec<Event> = paid.iter().map(|(due, _)| due.fee.event(EventKind::FeeCharged)).collect();
    let paying: BTreeSet<&TenantId> = paid.iter().map(|(due, _)| &due.fee.tenant_id).collect();
    let unpaid = store::unpaid_of_tenants(conn, &tenants).await?;
    let still_owing: BTreeSet<&TenantId> = unpaid.iter().map(|(_, tenant_id)| tenant_id).collect();
    let paid_dues: Vec<i64> = paid.iter().map(|(due, _)| due.due_id).collect();
    let was_suspended = store::suspended_by(conn, &paid_dues).await?;
    let unpaid_dues: Vec<i64> = unpaid.iter().map(|(due_id, _)| *due_id).collect();
    let still_suspended = store::suspended_by(conn, &unpaid_dues).await?;
    for tenant_id in paying {
        let payment_overdue = still_owing.contains(tenant_id);
        // Who was kept out is let in as soon as nothing is unpaid for so long any more, and told so at once.
        let is_let_in = was_suspended.contains(tenant_id) && !still_suspended.contains(tenant_id);
        if !payment_overdue || is_let_in {
            let about = json!({ "payment_overdue": payment_overdue });
            events.push(Event { tenant_id: tenant_id.clone(), kind: EventKind::AccessRestored, about });
        }
    }
    Ok(events)
}

/// What a tenant owes, the oldest first.
///
/// # Errors
/// A fault.
pub async fn overdue_of(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<UnpaidDue>, crate::fault::Fault> {
    store::unpaid_of_tenant(conn, tenant_id).await
}
