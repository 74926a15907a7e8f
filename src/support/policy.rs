//! How much somebody may move alone. Pure.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

use crate::ids::InvalidName;
use crate::money::{Currency, CurrencyCode, MinorUnits};

/// Why a person corrects a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdjustmentReason {
    /// A gift after trouble.
    Goodwill,
    /// Something was booked wrongly.
    Correction,
    /// Something was charged twice.
    DuplicateCharge,
    /// Money arrived in a way no provider told us about.
    MissingPayment,
    /// Balances brought from another system.
    Migration,
    /// Money that came from fraud is taken back.
    Fraud,
    /// None of these; the note says it.
    Other,
}

impl AdjustmentReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Goodwill,
        Self::Correction,
        Self::DuplicateCharge,
        Self::MissingPayment,
        Self::Migration,
        Self::Fraud,
        Self::Other,
    ];

    /// The code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Goodwill => "goodwill",
            Self::Correction => "correction",
            Self::DuplicateCharge => "duplicate_charge",
            Self::MissingPayment => "missing_payment",
            Self::Migration => "migration",
            Self::Fraud => "fraud",
            Self::Other => "other",
        }
    }

    /// Parses a code.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or(InvalidName {
            what: "reason",
            rule: "must be one of goodwill, correction, duplicate_charge, missing_payment, migration, fraud, other",
        })
    }
}

/// How much of each currency somebody may move alone in one wallet within 24 hours. A currency that isn't
/// named can't be moved alone at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limit(BTreeMap<CurrencyCode, Decimal>);

impl Limit {
    /// Parses `UZS=500000,XTR=100`; an empty text is no limit to speak of: everything needs a second person.
    ///
    /// # Errors
    /// [`InvalidName`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let wrong =
            InvalidName { what: "limit", rule: "must be like UZS=500000,XTR=100, with amounts of zero or more" };
        let mut limits = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (code, amount) = part.split_once('=').ok_or_else(|| wrong.clone())?;
            let code = CurrencyCode::parse(code.trim())?;
            let amount = Decimal::from_str_exact(amount.trim()).map_err(|_| wrong.clone())?;
            if amount.is_sign_negative() && !amount.is_zero() {
                return Err(wrong);
            }
            if limits.insert(code, amount).is_some() {
                return Err(InvalidName { what: "limit", rule: "must name each currency once" });
            }
        }
        Ok(Self(limits))
    }

    /// Whether a movement stays within, after what the same person moved in the wallet lately. Signs don't
    /// matter: what is given and what is taken add up.
    #[must_use]
    pub fn allows(&self, currency: &Currency, moved_lately: MinorUnits, amount: MinorUnits) -> bool {
        let Some(limit) = self.0.get(&currency.code) else { return false };
        let lately = moved_lately.to_decimal(currency.exponent).abs();
        let amount = amount.to_decimal(currency.exponent).abs();
        lately.checked_add(amount).is_some_and(|sum| sum <= *limit)
    }

    /// The limit in words.
    #[must_use]
    pub fn to_text(&self, currency: &Currency) -> String {
        self.0.get(&currency.code).map_or_else(|| "0".to_owned(), ToString::to_string)
    }
}

/// The limits by who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Agents, and programs with a token.
    pub agent: Limit,
    /// Approvers and admins.
    pub approver: Limit,
    /// After how many hours a request that waits is over.
    pub request_hours: u16,
}
