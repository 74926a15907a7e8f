//! Named amounts, so that a caller doesn't know prices. The newest amount of a tier applies to holds placed from then
//! on; one that is placed keeps its own.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::store::catalogue;
use crate::fault::Fault;
use crate::money::{CurrencyCode, MinorUnits};

/// A tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub tier: String,
    /// In which currency.
    pub currency: CurrencyCode,
    /// What a hold of it asks for, in minor units.
    pub amount: MinorUnits,
    /// Since when.
    pub created_at: DateTime<Utc>,
}

/// Sets the amount of a tier from now on.
///
/// # Errors
/// A fault.
pub async fn set_tier(conn: &mut PgConnection, tier: &Tier) -> Result<(), Fault> {
    catalogue::insert_tier(conn, tier).await
}

/// The newest amount of every tier.
///
/// # Errors
/// A fault.
pub async fn list_tiers(conn: &mut PgConnection) -> Result<Vec<Tier>, Fault> {
    catalogue::list_tiers(conn).await
}
