//! How a month went: money in by provider, fees, refunds, and the rest by kind.

use chrono_tz::Tz;
use sqlx::PgConnection;

use super::store;
use crate::fault::Fault;
use crate::money::Month;

/// What rows of one kind add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindSum {
    /// The kind, and for top-ups the provider behind a colon: `top_up:payme`.
    pub kind: String,
    /// The currency.
    pub currency: String,
    /// Its digits.
    pub exponent: i16,
    /// How many rows.
    pub rows: i64,
    /// Their sum in minor units.
    pub amount: i64,
}

/// A month.
#[derive(Debug, Clone)]
pub struct MonthSums {
    /// Which.
    pub month: Month,
    /// Its sums, by kind and currency.
    pub sums: Vec<KindSum>,
}

/// The sums of a month and of those before it, the oldest first, by the days of a zone.
///
/// # Errors
/// A fault.
pub async fn months(conn: &mut PgConnection, last: Month, count: usize, zone: Tz) -> Result<Vec<MonthSums>, Fault> {
    let mut all = Vec::with_capacity(count);
    let mut month = last;
    for _ in 0..count {
        let (from, to) = (month.begins_at(zone), month.next().begins_at(zone));
        all.push(MonthSums { month, sums: store::sums_between(conn, from, to).await? });
        month = month.previous();
    }
    all.reverse();
    Ok(all)
}
