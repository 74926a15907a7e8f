//! The statements about allowances.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::policy::{Cycle, Window};
use super::service::{Allowance, Owner};
use crate::fault::Fault;
use crate::ids::{Pocket, TenantId};
use crate::money::{CurrencyCode, MinorUnits};
use crate::tenant::TimeZone;

pub async fn insert(conn: &mut PgConnection, new: &Allowance, now: DateTime<Utc>) -> Result<bool, Fault> {
    let kind = if new.window_secs.is_some() { "rolling" } else { "calendar_day" };
    let inserted = sqlx::query!(
        "-- allowance::insert
         INSERT INTO allowances (allowance_id, currency, window_kind, window_secs, time_zone, priority, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT ON CONSTRAINT allowances_pkey DO NOTHING",
        &new.allowance_id,
        new.currency.as_str(),
        kind,
        new.window_secs,
        new.time_zone.map(TimeZone::as_str),
        new.priority,
        now,
    )
    .execute(&mut *conn)
    .await?;
    if inserted.rows_affected() == 0 {
        return Ok(false);
    }
    let tiers: Vec<String> = new.tiers.iter().map(|(tier, _)| tier.clone()).collect();
    let amounts: Vec<i64> = new.tiers.iter().map(|(_, amount)| amount.get()).collect();
    sqlx::query!(
        "-- allowance::insert_tiers
         INSERT INTO allowance_tiers (allowance_id, tier, amount)
         SELECT $1, t.tier, t.amount FROM unnest($2::text[], $3::bigint[]) AS t (tier, amount)",
        &new.allowance_id,
        &tiers,
        &amounts,
    )
    .execute(conn)
    .await?;
    Ok(true)
}

pub async fn find(conn: &mut PgConnection, allowance_id: &str) -> Result<Option<Allowance>, Fault> {
    Ok(select(conn, Some(allowance_id)).await?.pop())
}

pub async fn list(conn: &mut PgConnection) -> Result<Vec<Allowance>, Fault> {
    select(conn, None).await
}

async fn select(conn: &mut PgConnection, id: Option<&str>) -> Result<Vec<Allowance>, Fault> {
    let rows = sqlx::query!(
        r#"-- allowance::select
           SELECT a.allowance_id, a.currency, a.window_secs, a.time_zone, a.priority,
                  array_agg(t.tier ORDER BY t.tier, t.amount) AS "tiers!", array_agg(t.amount ORDER BY t.tier, t.amount) AS "amounts!"
             FROM allowances a JOIN allowance_tiers t ON t.allowance_id = a.allowance_id
            WHERE $1::text IS NULL OR a.allowance_id = $1
            GROUP BY a.allowance_id ORDER BY a.allowance_id"#,
        id,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Allowance {
                allowance_id: row.allowance_id,
                currency: CurrencyCode::from_column(row.currency)?,
                window_secs: row.window_secs,
                time_zone: row.time_zone.as_deref().map(zone_from_column).transpose()?,
                priority: row.priority,
                tiers: row.tiers.into_iter().zip(row.amounts.into_iter().map(MinorUnits::new)).collect(),
            })
        })
        .collect()
}

fn zone_from_column(name: &str) -> Result<TimeZone, Fault> {
    TimeZone::parse(name).map_err(|error| Fault::new("a stored time zone is none").because(error))
}

pub async fn owner_exists(conn: &mut PgConnection, owner: &Owner) -> Result<bool, Fault> {
    let (tenant_id, plan_id) = ids(owner);
    Ok(sqlx::query_scalar!(
        r#"-- allowance::owner_exists
           SELECT EXISTS (SELECT FROM tenants WHERE tenant_id = $1) OR EXISTS (SELECT FROM plans WHERE plan_id = $2) AS "exists!""#,
        tenant_id,
        plan_id,
    )
    .fetch_one(conn)
    .await?)
}

fn ids(owner: &Owner) -> (Option<&str>, Option<&str>) {
    match owner {
        Owner::Tenant(tenant_id) => (Some(tenant_id.as_str()), None),
        Owner::Plan(plan_id) => (None, Some(plan_id.as_str())),
    }
}

pub async fn insert_assignment(
    conn: &mut PgConnection,
    owner: &Owner,
    id: &str,
    tier: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let (tenant_id, plan_id) = ids(owner);
    sqlx::query!(
        "-- allowance::insert_assignment
         INSERT INTO allowance_assignments (allowance_id, tier, tenant_id, plan_id, created_at) VALUES ($1, $2, $3, $4, $5)",
        id,
        tier,
        tenant_id,
        plan_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An allowance that a tenant has now, and when it was last filled.
#[derive(Debug)]
pub struct Assigned {
    pub allowance_id: String,
    pub tier: String,
    pub amount: MinorUnits,
    pub currency: CurrencyCode,
    pub window: Window,
    pub priority: i16,
    pub last: Option<Cycle>,
}

/// What a tenant has now: its own assignments, and those of the plans it subscribes to today for allowances of which
/// nothing is said of the tenant itself. Of several plans the newest assignment applies.
pub async fn assigned(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    now: DateTime<Utc>,
    currency: Option<&CurrencyCode>,
) -> Result<Vec<Assigned>, Fault> {
    let rows = sqlx::query!(
        r#"-- allowance::assigned
           SELECT a.allowance_id, t.tier, t.amount, a.currency, a.window_secs, a.priority,
                  coalesce(a.time_zone, owner.time_zone) AS "time_zone!",
                  last.cycle AS "last_cycle?", last.ends_at AS "last_ends_at?"
             FROM tenants owner
            CROSS JOIN LATERAL (
                  SELECT DISTINCT ON (s.allowance_id) s.allowance_id, s.tier
                    FROM (SELECT allowance_id, tier, assignment_id, 0 AS rank
                            FROM allowance_assignments WHERE tenant_id = owner.tenant_id
                           UNION ALL
                          SELECT p.allowance_id, p.tier, p.assignment_id, 1 AS rank
                            FROM subscriptions b
                           CROSS JOIN LATERAL (
                                 SELECT DISTINCT ON (x.allowance_id) x.allowance_id, x.tier, x.assignment_id
                                   FROM allowance_assignments x WHERE x.plan_id = b.plan_id
                                  ORDER BY x.allowance_id, x.assignment_id DESC) p
                           WHERE b.tenant_id = owner.tenant_id
                             AND b.started_on <= ($2 AT TIME ZONE owner.time_zone)::date
                             AND (b.ended_on IS NULL OR b.ended_on >= ($2 AT TIME ZONE owner.time_zone)::date)
                             AND p.tier IS NOT NULL) s
                   ORDER BY s.allowance_id, s.rank, s.assignment_id DESC) mine
             JOIN allowances a ON a.allowance_id = mine.allowance_id
             JOIN allowance_tiers t ON t.allowance_id = mine.allowance_id AND t.tier = mine.tier
             LEFT JOIN LATERAL (
                  SELECT c.cycle, c.ends_at FROM allowance_cycles c
                   WHERE c.tenant_id = owner.tenant_id AND c.allowance_id = a.allowance_id
                   ORDER BY c.cycle DESC LIMIT 1) last ON true
            WHERE owner.tenant_id = $1 AND ($3::text IS NULL OR a.currency = $3)
            ORDER BY a.allowance_id"#,
        tenant_id.as_str(),
        now,
        currency.map(CurrencyCode::as_str),
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let window = match row.window_secs {
                Some(secs) => Window::Rolling { secs },
                None => Window::CalendarDay { zone: zone_from_column(&row.time_zone)?.zone() },
            };
            Ok(Assigned {
                allowance_id: row.allowance_id,
                tier: row.tier,
                amount: MinorUnits::new(row.amount),
                currency: CurrencyCode::from_column(row.currency)?,
                window,
                priority: row.priority,
                last: row.last_cycle.map(|number| Cycle { number, ends_at: row.last_ends_at }),
            })
        })
        .collect()
}

pub async fn note_activity(conn: &mut PgConnection, tenant_id: &TenantId, now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- allowance::note_activity
         INSERT INTO tenant_activity (tenant_id, active_at) VALUES ($1, $2)
             ON CONFLICT ON CONSTRAINT tenant_activity_pkey DO UPDATE SET active_at = excluded.active_at
          WHERE tenant_activity.active_at < excluded.active_at",
        tenant_id.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether an allowance was ever given to the tenant, or to a plan it subscribes to.
pub async fn has_any(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- allowance::has_any
           SELECT EXISTS (SELECT FROM allowance_assignments a WHERE a.tenant_id = $1)
                  OR EXISTS (SELECT FROM subscriptions s JOIN allowance_assignments a ON a.plan_id = s.plan_id
                              WHERE s.tenant_id = $1) AS "has_any!""#,
        tenant_id.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

/// In which currencies cycles wait for the tenant to come.
pub async fn waiting_currencies(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<CurrencyCode>, Fault> {
    sqlx::query_scalar!(
        "-- allowance::waiting_currencies
         SELECT DISTINCT a.currency FROM allowance_cycles c JOIN allowances a ON a.allowance_id = c.allowance_id
          WHERE c.tenant_id = $1 AND c.begun_at IS NULL",
        tenant_id.as_str(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(CurrencyCode::from_column)
    .collect()
}

/// Begins the windows of cycles that were filled while the tenant was away, and sets their pockets' ends, also of
/// allowances that were taken away since: what was given stays for its time.
pub async fn begin_waiting(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- allowance::begin_waiting
         WITH begun AS (
             UPDATE allowance_cycles c
                SET begun_at = $3, ends_at = $3::timestamptz + make_interval(secs => a.window_secs)
               FROM allowances a
              WHERE c.tenant_id = $1 AND c.begun_at IS NULL AND a.allowance_id = c.allowance_id AND a.currency = $2
             RETURNING c.wallet_id, c.pocket, c.ends_at
         )
         UPDATE pockets k SET expires_at = b.ends_at FROM begun b WHERE k.wallet_id = b.wallet_id AND k.pocket = b.pocket",
        tenant_id.as_str(),
        currency.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "a row has as many columns")]
pub async fn insert_cycle(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    assigned: &Assigned,
    number: i64,
    wallet_id: i64,
    pocket: &Pocket,
    window: Option<(DateTime<Utc>, DateTime<Utc>)>,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- allowance::insert_cycle
         INSERT INTO allowance_cycles (tenant_id, allowance_id, cycle, tier, wallet_id, pocket, filled_at, begun_at, ends_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        tenant_id.as_str(),
        &assigned.allowance_id,
        number,
        &assigned.tier,
        wallet_id,
        pocket.as_str(),
        now,
        window.map(|(begun_at, _)| begun_at),
        window.map(|(_, ends_at)| ends_at),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An allowance whose owner is away.
#[derive(Debug)]
pub struct Away {
    pub tenant_id: TenantId,
    pub allowance_id: String,
    pub currency: CurrencyCode,
}

/// Rolling allowances whose last window is over and whose owner hasn't been seen since `away_since`. Who is suspended,
/// closed or owes a fee is blocked and hears nothing.
pub async fn away(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    away_since: DateTime<Utc>,
    after: Option<&(String, String)>,
    limit: i64,
) -> Result<Vec<Away>, Fault> {
    let (after_tenant, after_allowance) = after.map_or(("", ""), |(tenant, allowance)| (tenant, allowance));
    sqlx::query!(
        "-- allowance::away
         SELECT c.tenant_id, c.allowance_id, a.currency
           FROM allowance_cycles c
           JOIN allowances a ON a.allowance_id = c.allowance_id AND a.window_kind = 'rolling'
           JOIN tenants t ON t.tenant_id = c.tenant_id AND t.status = 'active'
           JOIN tenant_activity v ON v.tenant_id = c.tenant_id AND v.active_at <= $2
          WHERE c.ends_at <= $1 AND (c.tenant_id, c.allowance_id) > ($3, $4)
            AND NOT EXISTS (SELECT FROM allowance_cycles later
                             WHERE later.tenant_id = c.tenant_id AND later.allowance_id = c.allowance_id
                               AND later.cycle > c.cycle)
            AND NOT EXISTS (SELECT FROM dues d WHERE d.tenant_id = c.tenant_id AND d.charged_at IS NULL)
          ORDER BY c.tenant_id, c.allowance_id LIMIT $5",
        now,
        away_since,
        after_tenant,
        after_allowance,
        limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Away {
            tenant_id: TenantId::from_column(row.tenant_id)?,
            allowance_id: row.allowance_id,
            currency: CurrencyCode::from_column(row.currency)?,
        })
    })
    .collect()
}
