//! Money: whole minor units of a currency, and the way to and from text; and the months it is owed for.
//!
//! Inside, an amount is an `i64` of minor units (tiyin for UZS). `Decimal` appears where people and prices
//! are. There is no floating point anywhere near.

mod amount;
mod currency;
mod month;
mod price;

pub use amount::{AmountError, MinorUnits};
pub use currency::{Currency, CurrencyCode, Exponent};
pub use month::{Month, day_begins_at, local_day};
pub use price::prorated;
