//! The statements about pockets.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::NewPocket;
use crate::fault::Fault;
use crate::ids::{Pocket, TenantId};
use crate::money::CurrencyCode;

/// The rules of a pocket as they are stored.
pub struct StoredRules {
    pub priority: i16,
    pub expires_at: Option<DateTime<Utc>>,
    pub voided_at: Option<DateTime<Utc>>,
}

pub async fn find(conn: &mut PgConnection, wallet_id: i64, pocket: &Pocket) -> Result<Option<StoredRules>, Fault> {
    Ok(sqlx::query_as!(
        StoredRules,
        "-- pocket::find
         SELECT priority, expires_at, voided_at FROM pockets WHERE wallet_id = $1 AND pocket = $2",
        wallet_id,
        pocket.as_str(),
    )
    .fetch_optional(conn)
    .await?)
}

pub async fn insert(conn: &mut PgConnection, wallet_id: i64, new: &NewPocket, now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- pocket::insert
         INSERT INTO pockets (wallet_id, pocket, priority, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)",
        wallet_id,
        new.pocket.as_str(),
        new.priority,
        now,
        new.expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn set_voided(
    conn: &mut PgConnection,
    wallet_id: i64,
    pocket: &Pocket,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- pocket::set_voided
         UPDATE pockets SET voided_at = $3 WHERE wallet_id = $1 AND pocket = $2",
        wallet_id,
        pocket.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes that the end of pockets is booked. What a hold kept and gives back later is booked without a note.
pub async fn set_expired(
    conn: &mut PgConnection,
    wallet_id: i64,
    pockets: &[String],
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- pocket::set_expired
         UPDATE pockets SET expired_at = $3 WHERE wallet_id = $1 AND pocket = ANY ($2) AND expired_at IS NULL",
        wallet_id,
        pockets,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Wallets with a pocket whose time is over and whose end isn't booked, behind one.
pub async fn wallets_to_expire(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    after: i64,
    limit: i64,
) -> Result<Vec<(i64, TenantId, CurrencyCode)>, Fault> {
    sqlx::query!(
        "-- pocket::wallets_to_expire
         SELECT w.wallet_id, w.tenant_id, w.currency
           FROM wallets w
          WHERE w.wallet_id IN (SELECT k.wallet_id FROM pockets k WHERE k.expired_at IS NULL AND k.expires_at <= $1)
            AND w.wallet_id > $2
          ORDER BY w.wallet_id LIMIT $3",
        now,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| Ok((row.wallet_id, TenantId::from_column(row.tenant_id)?, CurrencyCode::from_column(row.currency)?)))
    .collect()
}
