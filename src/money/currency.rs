//! Units of account: a code and the number of digits after the point.

use crate::fault::Fault;
use crate::ids::InvalidName;

/// The code of a currency: `UZS`, `XTR`, or one of the product's own such as `MESSAGE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct CurrencyCode(String);

impl CurrencyCode {
    /// Parses a code from outside.
    ///
    /// # Errors
    /// [`InvalidName`] when it isn't a capital letter followed by up to 15 of A-Z 0-9 _.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        let shape = text.len() <= 16
            && text.bytes().next().is_some_and(|first| first.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if shape {
            Ok(Self(text))
        } else {
            Err(InvalidName {
                what: "currency",
                rule: "must be 1 to 16 characters of A-Z 0-9 _, beginning with a letter",
            })
        }
    }

    /// Parses a column.
    ///
    /// # Errors
    /// A fault when the stored text breaks the rule.
    pub fn from_column(text: String) -> Result<Self, Fault> {
        Self::parse(text).map_err(|error| Fault::new("a stored currency code breaks its rule").because(error))
    }

    /// So'm, the currency every tenant has a wallet in.
    #[must_use]
    pub fn uzs() -> Self {
        Self("UZS".to_owned())
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for CurrencyCode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Digits after the point, 0 to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exponent(u8);

impl Exponent {
    /// The largest exponent: eight digits still leave ten before the point in an `i64`.
    pub const MAX: u8 = 8;

    /// Checks the range.
    ///
    /// # Errors
    /// [`InvalidName`] when it is above [`Exponent::MAX`].
    pub fn parse(digits: u8) -> Result<Self, InvalidName> {
        if digits <= Self::MAX {
            Ok(Self(digits))
        } else {
            Err(InvalidName { what: "exponent", rule: "must be 0 to 8" })
        }
    }

    /// Parses a column.
    ///
    /// # Errors
    /// A fault when the stored number is out of range.
    pub fn from_column(digits: i16) -> Result<Self, Fault> {
        u8::try_from(digits)
            .ok()
            .and_then(|digits| Self::parse(digits).ok())
            .ok_or(const { Fault::new("a stored exponent is out of range") })
    }

    /// The number of digits.
    #[must_use]
    pub const fn digits(self) -> u8 {
        self.0
    }
}

/// A unit of account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Currency {
    /// Its code.
    pub code: CurrencyCode,
    /// Its digits after the point. Never changes.
    pub exponent: Exponent,
}
