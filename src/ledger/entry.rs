//! What somebody asks the ledger to book, and what was booked.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::Kind;
use crate::ids::{Pocket, Reason, Reference, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// How far a debit may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Not below zero, neither the pocket nor what is available in the wallet.
    Zero,
    /// As far as it takes. Only where a rule allows it in words.
    None,
}

/// One movement somebody asks for.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Whose wallet.
    pub tenant_id: TenantId,
    /// Which of the tenant's wallets; it is opened with its first use.
    pub currency: CurrencyCode,
    /// What happened.
    pub kind: Kind,
    /// Minor units; positive is a credit.
    pub amount: MinorUnits,
    /// Which part of the wallet.
    pub pocket: Pocket,
    /// What is booked, unique per wallet and kind.
    pub reference: Reference,
    /// The row of the same wallet that this one gives back.
    pub original_seq: Option<i64>,
    /// Why, in a sentence.
    pub reason: Option<Reason>,
    /// What else the source wants to remember.
    pub metadata: Metadata,
    /// How far a debit may go.
    pub floor: Floor,
}

/// A row of the ledger.
#[derive(Debug, Clone)]
pub struct PostedRow {
    /// The wallet.
    pub wallet_id: i64,
    /// The row's number within the wallet.
    pub seq: i64,
    /// Whose wallet.
    pub tenant_id: TenantId,
    /// The wallet's currency.
    pub currency: CurrencyCode,
    /// What happened.
    pub kind: Kind,
    /// Minor units; positive is a credit.
    pub amount: MinorUnits,
    /// Which part of the wallet.
    pub pocket: Pocket,
    /// What was booked.
    pub reference: Reference,
    /// The row that this one gives back.
    pub original_seq: Option<i64>,
    /// Why.
    pub reason: Option<Reason>,
    /// Who.
    pub actor: String,
    /// What else the source wanted to remember.
    pub metadata: Metadata,
    /// When.
    pub recorded_at: DateTime<Utc>,
    /// The wallet's balance after this row.
    pub balance_after: MinorUnits,
}

/// A JSON object in one canonical text: keys sorted, no spaces. The chain covers this text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata(String);

/// Why metadata is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Longer than [`Metadata::BYTES_MAX`].
    #[error("metadata is {0} bytes long and may be 4096")]
    TooLong(usize),
    /// Holds a NUL character, which PostgreSQL can't show as text.
    #[error("metadata may not contain the NUL character")]
    Nul,
}

impl Metadata {
    /// Longest text.
    pub const BYTES_MAX: usize = 4096;

    /// `{}`.
    #[must_use]
    pub fn empty() -> Self {
        Self("{}".to_owned())
    }

    /// Brings an object into its canonical text.
    ///
    /// # Errors
    /// [`MetadataError`].
    pub fn from_object(object: &Map<String, Value>) -> Result<Self, MetadataError> {
        // serde_json's map is a BTreeMap here, so its keys come out sorted.
        let text = serde_json::to_string(object).unwrap_or_else(|_| "{}".to_owned());
        if text.len() > Self::BYTES_MAX {
            return Err(MetadataError::TooLong(text.len()));
        }
        if object.iter().any(|(name, value)| name.contains('\0') || has_nul(value)) {
            return Err(MetadataError::Nul);
        }
        Ok(Self(text))
    }

    /// A column's text, as it stands.
    #[must_use]
    pub const fn from_column(text: String) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The object, for an answer.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(object) => object.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
    }
}
