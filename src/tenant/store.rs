//! Every statement about tenants.

use sqlx::PgConnection;

use super::{Change, Locale, Tenant, TimeZone};
use crate::fault::Fault;
use crate::ids::TenantId;

/// Inserts a tenant; `false` when its id is there already.
pub async fn insert(conn: &mut PgConnection, tenant: &Tenant) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- tenant::insert
         INSERT INTO tenants (tenant_id, name, time_zone, locale, status, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT ON CONSTRAINT tenants_pkey DO NOTHING",
        tenant.tenant_id.as_str(),
        tenant.name,
        tenant.time_zone.as_str(),
        tenant.locale.as_str(),
        tenant.status,
        tenant.created_at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Option<Tenant>, Fault> {
    let row = sqlx::query!(
        "-- tenant::find
         SELECT name, time_zone, locale, status, created_at FROM tenants WHERE tenant_id = $1",
        tenant_id.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| {
        let broken = |error| Fault::new("a stored tenant breaks a rule").because(error);
        Ok(Tenant {
            tenant_id: tenant_id.clone(),
            name: row.name,
            time_zone: TimeZone::parse(&row.time_zone).map_err(broken)?,
            locale: Locale::parse(&row.locale).map_err(broken)?,
            status: row.status,
            created_at: row.created_at,
        })
    })
    .transpose()
}

pub async fn update(conn: &mut PgConnection, tenant_id: &TenantId, change: &Change) -> Result<(), Fault> {
    sqlx::query!(
        "-- tenant::update
         UPDATE tenants
            SET name = coalesce($2, name), time_zone = coalesce($3, time_zone), locale = coalesce($4, locale)
          WHERE tenant_id = $1",
        tenant_id.as_str(),
        change.name,
        change.time_zone.map(TimeZone::as_str),
        change.locale.map(Locale::as_str),
    )
    .execute(conn)
    .await?;
    Ok(())
}
