//! Every statement about dues; in [`plans`] about plans and subscriptions, in [`runs`] about what is owed and who decides it.
//!
//! What a subscription owes is said once in SQL, in the migration's function `owed_through`: the last month
//! that is owed by a local day.

mod plans;
mod runs;

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use chrono_tz::Tz;
use sqlx::PgConnection;

use super::owed::Fee;
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::money::{CurrencyCode, Exponent, MinorUnits, Month};

pub use plans::{
    currency_exists, currency_of_subscription, find_overlapping, find_subscription_by_start, insert_plan, insert_price,
    insert_subscription, last_decided_month, list_plans, list_subscriptions, lock_prices, lock_subscription,
    plan_exists, read_plan, read_price_from, set_ended,
};
pub use runs::{
    Decided, Owing, OwingWallet, Unconfirmed, confirm_runs, count_run, find_run, insert_dues, insert_runs, list_runs,
    lock_owing_wallets, read_owed, survey_owed, tenant_of_subscription, unconfirmed_months,
};

fn zone_from_column(name: &str) -> Result<Tz, Fault> {
    name.parse().map_err(|_| Fault::new("a stored time zone is unknown"))
}

fn expect(rows: u64, expected: usize) -> Result<(), Fault> {
    if usize::try_from(rows) == Ok(expected) {
        Ok(())
    } else {
        Err(Fault::new("the database wrote another number of dues than was decided"))
    }
}

/// A due that isn't paid.
#[derive(Debug, Clone)]
pub struct UnpaidDue {
    /// Its number.
    pub due_id: i64,
    /// What it is for.
    pub fee: Fee,
    /// When it fell due.
    pub due_at: DateTime<Utc>,
    /// Since when it is overdue.
    pub overdue_at: DateTime<Utc>,
    /// Whether the tenant was told that access should be suspended.
    pub suspended: bool,
}

struct UnpaidRow {
    due_id: i64,
    subscription_id: i64,
    tenant_id: String,
    currency: String,
    exponent: i16,
    month: NaiveDate,
    amount: i64,
    due_at: DateTime<Utc>,
    overdue_at: Option<DateTime<Utc>>,
    suspended: bool,
}

impl TryFrom<UnpaidRow> for UnpaidDue {
    type Error = Fault;

    fn try_from(row: UnpaidRow) -> Result<Self, Fault> {
        Ok(Self {
            due_id: row.due_id,
            fee: Fee {
                subscription_id: row.subscription_id,
                tenant_id: TenantId::from_column(row.tenant_id)?,
                currency: CurrencyCode::from_column(row.currency)?,
                exponent: Exponent::from_column(row.exponent)?,
                month: Month::of(row.month),
                amount: MinorUnits::new(row.amount),
            },
            due_at: row.due_at,
            overdue_at: row.overdue_at.ok_or_else(|| Fault::new("an unpaid due isn't overdue"))?,
            suspended: row.suspended,
        })
    }
}

/// The unpaid dues of wallets, the oldest first within each.
pub async fn unpaid_of_wallets(
    conn: &mut PgConnection,
    wallets: &[(TenantId, CurrencyCode)],
) -> Result<Vec<UnpaidDue>, Fault> {
    let tenants: Vec<String> = wallets.iter().map(|(tenant_id, _)| tenant_id.to_string()).collect();
    let currencies: Vec<String> = wallets.iter().map(|(_, currency)| currency.to_string()).collect();
    sqlx::query_as!(
        UnpaidRow,
        r#"-- fee::unpaid_of_wallets
           SELECT d.due_id, d.subscription_id, d.tenant_id, d.currency, c.exponent, d.month, d.amount, d.due_at,
                  d.overdue_at, false AS "suspended!"
             FROM unnest($1::text[], $2::text[]) AS w (tenant_id, currency)
             JOIN dues d ON d.tenant_id = w.tenant_id AND d.currency = w.currency AND d.charged_at IS NULL
             JOIN currencies c ON c.code = d.currency
            ORDER BY d.tenant_id, d.currency, d.month, d.due_id"#,
        &tenants,
        &currencies,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(UnpaidDue::try_from)
    .collect()
}

pub async fn unpaid_of_tenant(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<UnpaidDue>, Fault> {
    sqlx::query_as!(
        UnpaidRow,
        r#"-- fee::unpaid_of_tenant
           SELECT d.due_id, d.subscription_id, d.tenant_id, d.currency, c.exponent, d.month, d.amount, d.due_at,
                  d.overdue_at,
                  EXISTS (SELECT FROM due_reminders r WHERE r.due_id = d.due_id AND r.step = 'suspended') AS "suspended!"
             FROM dues d
             JOIN currencies c ON c.code = d.currency
            WHERE d.tenant_id = $1 AND d.charged_at IS NULL
            ORDER BY d.month, d.due_id"#,
        tenant_id.as_str(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(UnpaidDue::try_from)
    .collect()
}

/// Locks tenants in the order of their ids, after their wallets.
pub async fn lock_tenants(conn: &mut PgConnection, tenants: &[TenantId]) -> Result<(), Fault> {
    let tenants: Vec<String> = tenants.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "-- fee::lock_tenants
         SELECT tenant_id FROM tenants WHERE tenant_id = ANY ($1) ORDER BY tenant_id FOR NO KEY UPDATE",
        &tenants,
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// What the tenants owe, in every currency: whose each due is.
pub async fn unpaid_of_tenants(conn: &mut PgConnection, tenants: &[TenantId]) -> Result<Vec<(i64, TenantId)>, Fault> {
    let tenants: Vec<String> = tenants.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "-- fee::unpaid_of_tenants
         SELECT due_id, tenant_id FROM dues WHERE tenant_id = ANY ($1) AND charged_at IS NULL",
        &tenants,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| Ok((row.due_id, TenantId::from_column(row.tenant_id)?)))
    .collect()
}

/// Whose of these dues were unpaid for so long that their tenants were told of their suspension.
pub async fn suspended_by(conn: &mut PgConnection, dues: &[i64]) -> Result<BTreeSet<TenantId>, Fault> {
    sqlx::query_scalar!(
        "-- fee::suspended_by
         SELECT DISTINCT d.tenant_id FROM dues d
           JOIN due_reminders r ON r.due_id = d.due_id AND r.step = 'suspended'
          WHERE d.due_id = ANY ($1)",
        dues,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(TenantId::from_column)
    .collect()
}

/// Marks dues as paid by rows.
pub async fn set_charged(conn: &mut PgConnection, paid: &[(i64, i64)], now: DateTime<Utc>) -> Result<(), Fault> {
    let dues: Vec<i64> = paid.iter().map(|(due_id, _)| *due_id).collect();
    let seqs: Vec<i64> = paid.iter().map(|(_, seq)| *seq).collect();
    let done = sqlx::query!(
        "-- fee::set_charged
         UPDATE dues d SET charged_at = $3, charged_seq = p.seq
           FROM unnest($1::bigint[], $2::bigint[]) AS p (due_id, seq)
          WHERE d.due_id = p.due_id AND d.charged_at IS NULL",
        &dues,
        &seqs,
        now,
    )
    .execute(conn)
    .await?;
    expect(done.rows_affected(), paid.len())
}

/// The zones of all tenants.
pub async fn tenant_zones(conn: &mut PgConnection) -> Result<Vec<Tz>, Fault> {
    sqlx::query_scalar!(
        "-- fee::tenant_zones
         SELECT DISTINCT time_zone FROM tenants ORDER BY time_zone"
    )
    .fetch_all(conn)
    .await?
    .iter()
    .map(|name| zone_from_column(name))
    .collect()
}

/// Locks dues that are unpaid for at least so many days and were not told this step yet.
pub async fn lock_dues_for_step(
    conn: &mut PgConnection,
    days: i32,
    step: &str,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<UnpaidDue>, Fault> {
    sqlx::query_as!(
        UnpaidRow,
        r#"-- fee::lock_dues_for_step
           SELECT d.due_id, d.subscription_id, d.tenant_id, d.currency, c.exponent, d.month, d.amount, d.due_at,
                  d.overdue_at, false AS "suspended!"
             FROM dues d
             JOIN currencies c ON c.code = d.currency
            WHERE d.charged_at IS NULL
              AND d.overdue_at <= $3::timestamptz - make_interval(days => $1)
              AND NOT EXISTS (SELECT FROM due_reminders r WHERE r.due_id = d.due_id AND r.step = $2)
            ORDER BY d.due_id
            LIMIT $4
              FOR NO KEY UPDATE OF d SKIP LOCKED"#,
        days,
        step,
        now,
        limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(UnpaidDue::try_from)
    .collect()
}

/// Notes the step for each of these dues and returns those it was new for. Somebody who had the same due a moment
/// ago may have told it: the statement that found the due can't see that, this one does.
pub async fn insert_reminders(
    conn: &mut PgConnection,
    dues: &[UnpaidDue],
    step: &str,
    now: DateTime<Utc>,
) -> Result<HashSet<i64>, Fault> {
    let ids: Vec<i64> = dues.iter().map(|due| due.due_id).collect();
    let noted = sqlx::query_scalar!(
        "-- fee::insert_reminders
         INSERT INTO due_reminders (due_id, step, queued_at) SELECT unnest($1::bigint[]), $2, $3
         ON CONFLICT (due_id, step) DO NOTHING
         RETURNING due_id",
        &ids,
        step,
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(noted.into_iter().collect())
}
