//! Money and times as people read them.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use crate::money::{Currency, Exponent, MinorUnits};

/// `-150 000.00 UZS`, grouped by no-break spaces.
pub fn text(amount: MinorUnits, currency: &Currency) -> String {
    format!("{}\u{a0}{}", digits(amount, currency.exponent), currency.code)
}

/// The same without the currency.
pub fn digits(amount: MinorUnits, exponent: Exponent) -> String {
    let plain = amount.to_text(exponent);
    let (sign, plain) = plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("\u{2212}", rest));
    let (whole, fraction) = plain.split_once('.').map_or((plain, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut grouped = String::from(sign);
    let length = whole.len();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && length.saturating_sub(index).is_multiple_of(3) {
            grouped.push('\u{a0}');
        }
        grouped.push(digit);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// Minor units of a currency named by its columns.
pub fn of_columns(amount: i64, currency: &str, exponent: i16) -> String {
    Exponent::from_column(exponent).map_or_else(
        |_| format!("{amount} {currency}"),
        |exponent| format!("{}\u{a0}{currency}", digits(MinorUnits::new(amount), exponent)),
    )
}

/// `2026-12-01 09:05`, in a zone.
pub fn time(at: DateTime<Utc>, zone: Tz) -> String {
    at.with_timezone(&zone).format("%Y-%m-%d %H:%M").to_string()
}

/// The same with the seconds, for what is over in minutes.
pub fn moment(at: DateTime<Utc>, zone: Tz) -> String {
    at.with_timezone(&zone).format("%Y-%m-%d %H:%M:%S").to_string()
}
