//! What metered work costs: tokens to micro-dollars by the price book, micro-dollars to the wallet's unit.
//!
//! A price is US dollars for a million tokens, which is micro-dollars for one. Each call is rounded half up to a whole
//! micro-dollar when it is logged; the sum of the calls is exact, and only the settlement rounds it up to whole units:
//! a part of a credit that was used is a credit.

use chrono::{DateTime, Utc};
use rust_decimal::{Decimal, RoundingStrategy};
use sqlx::PgConnection;

use super::store::catalogue;
use crate::fault::{Error, Fault};
use crate::ids::Actor;
use crate::money::{CurrencyCode, MinorUnits};

/// What a model costs, in US dollars for a million tokens of each class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrice {
    /// The model.
    pub model: String,
    /// Tokens that were read.
    pub input: Decimal,
    /// Tokens that were written.
    pub output: Decimal,
    /// Tokens that were read from a cache.
    pub cached: Decimal,
}

/// A version of the price book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceBook {
    /// 1, 2, 3, …
    pub version: i32,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// The prices.
    pub models: Vec<ModelPrice>,
}

/// Why a book isn't written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceRefusal {
    /// Somebody else wrote one meanwhile.
    #[error("the newest price book is version {newest}, so the next one is {}, not {asked}", newest.saturating_add(1))]
    VersionTaken {
        /// The newest.
        newest: i32,
        /// What was asked.
        asked: i32,
    },
}

/// What a call costs in micro-dollars; none beyond what can be reckoned with.
#[must_use]
pub fn cost_micro(price: &ModelPrice, input: i64, output: i64, cached: i64) -> Option<i64> {
    let part = |price: Decimal, tokens: i64| price.checked_mul(Decimal::from(tokens));
    let sum = part(price.input, input)?
        .checked_add(part(price.output, output)?)?
        .checked_add(part(price.cached, cached)?)?
        .round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero);
    i64::try_from(sum).ok()
}

/// How many micro-dollars one minor unit of a currency is worth: a credit is $0.001, a cent is $0.01. None for a
/// currency that has no fixed price in dollars.
#[must_use]
pub fn micro_per_unit(currency: &CurrencyCode) -> Option<i64> {
    match currency.as_str() {
        "CREDIT" => Some(1_000),
        "USD" => Some(10_000),
        _ => None,
    }
}

/// What a sum of micro-dollars is in minor units, rounded up.
#[must_use]
pub fn credits_for(micro: i64, micro_per_unit: i64) -> MinorUnits {
    let whole = micro.checked_div(micro_per_unit).unwrap_or_default();
    let rest = micro.checked_rem(micro_per_unit).unwrap_or_default();
    MinorUnits::new(whole.saturating_add(i64::from(rest > 0)))
}

/// Writes the next version of the book, whole. The same again is found written; says whether it is new.
///
/// # Errors
/// [`PriceRefusal::VersionTaken`] when `version` is neither the next one nor the same again.
pub async fn write_book(
    conn: &mut PgConnection,
    version: i32,
    models: &[ModelPrice],
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<bool, Error<PriceRefusal>> {
    let newest = catalogue::newest_price_version(conn).await?.unwrap_or_default();
    // Who writes the same version at the same moment waits for the first and then finds it there.
    if version == newest.saturating_add(1) && catalogue::insert_price_book(conn, version, actor, now).await? {
        catalogue::insert_model_prices(conn, version, models).await?;
        return Ok(true);
    }
    let sorted = |models: &[ModelPrice]| {
        let mut models = models.to_vec();
        models.sort_by(|one, other| one.model.cmp(&other.model));
        models
    };
    match catalogue::find_book(conn, Some(version)).await? {
        Some(there) if sorted(&there.models) == sorted(models) => Ok(false),
        _ => {
            let newest = catalogue::newest_price_version(conn).await?.unwrap_or_default();
            Err(Error::Refused(PriceRefusal::VersionTaken { newest, asked: version }))
        }
    }
}

/// A version of the price book, or the newest.
///
/// # Errors
/// A fault.
pub async fn find_book(conn: &mut PgConnection, version: Option<i32>) -> Result<Option<PriceBook>, Fault> {
    catalogue::find_book(conn, version).await
}
