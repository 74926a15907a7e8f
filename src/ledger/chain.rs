//! The hash chain of a wallet.
//!
//! `hash(n) = SHA-256(hash(n-1) ‖ canonical bytes of row n)`, with 32 zero bytes before row 1. The canonical
//! bytes begin with a version, and every field is preceded by its length (or by a mark of absence), so two
//! different rows never have the same bytes. Every column is covered: an edit of the actor or of the metadata
//! breaks the chain like an edit of the amount.

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

/// A link of the chain.
pub type Hash = [u8; 32];

/// What stands before row 1.
pub const GENESIS: Hash = [0; 32];

/// The version of the canonical bytes. A new column means a new version; old rows keep theirs.
const VERSION: &[u8] = b"hamyon-row-1";

/// The columns of a row, as they are hashed.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// The wallet.
    pub wallet_id: i64,
    /// The row's number.
    pub seq: i64,
    /// Whose wallet.
    pub tenant_id: &'a str,
    /// Which currency.
    pub currency: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Minor units.
    pub amount: i64,
    /// The pocket.
    pub pocket: &'a str,
    /// The reference.
    pub reference: &'a str,
    /// The row that is given back.
    pub original_seq: Option<i64>,
    /// Why.
    pub reason: Option<&'a str>,
    /// Who.
    pub actor: &'a str,
    /// The metadata's bytes.
    pub metadata: &'a str,
    /// When, to the microsecond.
    pub recorded_at: DateTime<Utc>,
}

impl Link<'_> {
    /// The hash of this row behind the row that hashes to `previous`.
    #[must_use]
    pub fn hash(&self, previous: &Hash) -> Hash {
        let mut hasher = Sha256::new();
        hasher.update(previous);
        let mut field = |bytes: Option<&[u8]>| match bytes {
            // Absent and empty are different.
            None => hasher.update([0]),
            Some(bytes) => {
                hasher.update([1]);
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                hasher.update(length.to_be_bytes());
                hasher.update(bytes);
            }
        };
        field(Some(VERSION));
        field(Some(&self.wallet_id.to_be_bytes()));
        field(Some(&self.seq.to_be_bytes()));
        field(Some(self.tenant_id.as_bytes()));
        field(Some(self.currency.as_bytes()));
        field(Some(self.kind.as_bytes()));
        field(Some(&self.amount.to_be_bytes()));
        field(Some(self.pocket.as_bytes()));
        field(Some(self.reference.as_bytes()));
        field(self.original_seq.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
        field(self.reason.map(str::as_bytes));
        field(Some(self.actor.as_bytes()));
        field(Some(self.metadata.as_bytes()));
        field(Some(&self.recorded_at.timestamp_micros().to_be_bytes()));
        hasher.finalize().into()
    }
}
