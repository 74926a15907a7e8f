//! Prices of a part of something.

use chrono::{Datelike as _, NaiveDate};
use rust_decimal::{Decimal, RoundingStrategy};

use super::{MinorUnits, Month};
use crate::fault::Fault;

/// The part of a month's price for the days from `from` (included) to the month's end, rounded half up to the
/// smallest unit of the currency.
///
/// # Errors
/// A fault when the price is beyond what can be reckoned with.
pub fn prorated(price: MinorUnits, from: NaiveDate) -> Result<MinorUnits, Fault> {
    let beyond = || Fault::new("a price is too large to be prorated");
    let month_days = Month::of(from).days();
    let days = month_days.saturating_sub(from.day0());
    let part = Decimal::from(price.get())
        .checked_mul(Decimal::from(days))
        .and_then(|sum| sum.checked_div(Decimal::from(month_days)))
        .ok_or_else(beyond)?
        .round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero);
    i64::try_from(part).map(MinorUnits::new).map_err(|_| beyond())
}
