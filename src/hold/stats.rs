//! What was held against what was charged, by tier: whether the tiers are guessed well.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::money::{CurrencyCode, MinorUnits};

/// The numbers of one tier.
#[derive(Debug, Clone)]
pub struct TierStats {
    /// Its name; none for holds that were asked by an amount.
    pub tier: Option<String>,
    /// In which currency.
    pub currency: CurrencyCode,
    /// Holds that were placed.
    pub holds: i64,
    /// Of those, settled.
    pub settled: i64,
    /// Released.
    pub released: i64,
    /// Ended by the reconciler.
    pub reconciled: i64,
    /// Settled for more than was held.
    pub over: i64,
    /// Held by settled holds in all.
    pub held: MinorUnits,
    /// Charged in all.
    pub charged: MinorUnits,
    /// What the middle settled hold was charged.
    pub charged_p50: MinorUnits,
    /// What nine of ten were charged at the most.
    pub charged_p90: MinorUnits,
    /// What 99 of 100 were charged at the most: a tier a little above it is rarely too small.
    pub charged_p99: MinorUnits,
}

/// The numbers of holds that were placed since a moment.
///
/// # Errors
/// A fault.
pub async fn stats(conn: &mut PgConnection, since: DateTime<Utc>) -> Result<Vec<TierStats>, Fault> {
    sqlx::query!(
        r#"-- hold::stats
           SELECT tier, currency, count(*) AS "holds!",
                  count(*) FILTER (WHERE outcome = 'settled') AS "settled!",
                  count(*) FILTER (WHERE outcome = 'released') AS "released!",
                  count(*) FILTER (WHERE ended_by = 'reconciler') AS "reconciled!",
                  count(*) FILTER (WHERE charged > amount) AS "over!",
                  coalesce(sum(amount) FILTER (WHERE outcome = 'settled'), 0)::bigint AS "held!",
                  coalesce(sum(charged), 0)::bigint AS "charged!",
                  coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY charged) FILTER (WHERE outcome = 'settled'), 0) AS "p50!",
                  coalesce(percentile_disc(0.9) WITHIN GROUP (ORDER BY charged) FILTER (WHERE outcome = 'settled'), 0) AS "p90!",
                  coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY charged) FILTER (WHERE outcome = 'settled'), 0) AS "p99!"
             FROM holds WHERE placed_at >= $1
            GROUP BY tier, currency ORDER BY currency, tier NULLS FIRST"#,
        since,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(TierStats {
            tier: row.tier,
            currency: CurrencyCode::from_column(row.currency)?,
            holds: row.holds,
            settled: row.settled,
            released: row.released,
            reconciled: row.reconciled,
            over: row.over,
            held: MinorUnits::new(row.held),
            charged: MinorUnits::new(row.charged),
            charged_p50: MinorUnits::new(row.p50),
            charged_p90: MinorUnits::new(row.p90),
            charged_p99: MinorUnits::new(row.p99),
        })
    })
    .collect()
}
