//! Checked whole minor units, and their exact text.

use rust_decimal::Decimal;

use super::{Currency, Exponent};
use crate::fault::Fault;

/// A signed amount in whole minor units of some currency (tiyin for UZS). Arithmetic is checked: there are
/// no operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MinorUnits(i64);

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not digits with an optional minus and an optional point.
    #[error("must be a decimal number such as \"15000.50\": digits, at most one point, an optional minus in front")]
    NotANumber,
    /// Finer than the currency's smallest unit.
    #[error("{currency} has {exponent} digits after the point, and this has {given}")]
    TooFine {
        /// The currency's code.
        currency: String,
        /// Digits it has.
        exponent: u8,
        /// Digits that came.
        given: usize,
    },
    /// Beyond what the ledger can hold.
    #[error("is too large: the ledger holds at most 9223372036854775807 of the smallest unit")]
    TooLarge,
}

impl MinorUnits {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Wraps a count of minor units.
    #[must_use]
    pub const fn new(units: i64) -> Self {
        Self(units)
    }

    /// The count.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The sum, or `None` beyond `i64`.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The difference, or `None` beyond `i64`.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// The opposite, or `None` for `i64::MIN`.
    #[must_use]
    pub const fn checked_neg(self) -> Option<Self> {
        match self.0.checked_neg() {
            Some(opposite) => Some(Self(opposite)),
            None => None,
        }
    }

    /// Greater than zero.
    #[must_use]
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Less than zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Reads an amount of `currency` as people write it: `"15000.5"` UZS is 1,500,050 tiyin.
    ///
    /// # Errors
    /// [`AmountError`]; an amount finer than the smallest unit is refused, not rounded.
    pub fn parse(text: &str, currency: &Currency) -> Result<Self, AmountError> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = match digits.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(AmountError::NotANumber),
            None => (digits, ""),
        };
        if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
            return Err(AmountError::NotANumber);
        }
        let exponent = usize::from(currency.exponent.digits());
        if fraction.len() > exponent {
            return Err(AmountError::TooFine {
                currency: currency.code.to_string(),
                exponent: currency.exponent.digits(),
                given: fraction.len(),
            });
        }
        let mut units: i64 = 0;
        let padding = exponent.saturating_sub(fraction.len());
        for digit in whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', padding)) {
            let digit = i64::from(digit.saturating_sub(b'0'));
            let signed = if negative { digit.saturating_neg() } else { digit };
            units = units.checked_mul(10).and_then(|tens| tens.checked_add(signed)).ok_or(AmountError::TooLarge)?;
        }
        Ok(Self(units))
    }

    /// The exact text with all of the currency's digits: 1,500,050 tiyin is `"15000.50"`.
    #[must_use]
    pub fn to_text(self, exponent: Exponent) -> String {
        self.to_decimal(exponent).to_string()
    }

    /// The exact value in whole units of the currency.
    #[must_use]
    pub fn to_decimal(self, exponent: Exponent) -> Decimal {
        Decimal::new(self.0, u32::from(exponent.digits()))
    }

    /// The exact count of minor units of a decimal value.
    ///
    /// # Errors
    /// [`AmountError`] when the value is finer than the smallest unit or too large. Whoever means to round
    /// says how, before calling this.
    pub fn from_decimal(value: Decimal, currency: &Currency) -> Result<Self, AmountError> {
        Self::parse(&value.normalize().to_string(), currency)
    }

    /// Adds up amounts.
    ///
    /// # Errors
    /// A fault beyond `i64`.
    pub fn sum(amounts: impl IntoIterator<Item = Self>) -> Result<Self, Fault> {
        amounts
            .into_iter()
            .try_fold(Self::ZERO, Self::checked_add)
            .ok_or(const { Fault::new("a sum of money is beyond what an i64 holds") })
    }
}
