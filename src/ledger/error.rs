//! Why the ledger says no. Each refusal carries the entry's position in the batch and the numbers it saw.

use super::Kind;
use crate::ids::{Pocket, Reference, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// A refusal of [`super::post()`]. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such tenant.
    #[error("there is no tenant {tenant_id}")]
    UnknownTenant {
        /// Position in the batch, from 0.
        index: usize,
        /// The id that was given.
        tenant_id: TenantId,
    },
    /// No such currency.
    #[error("there is no currency {currency}")]
    UnknownCurrency {
        /// Position in the batch, from 0.
        index: usize,
        /// The code that was given.
        currency: CurrencyCode,
    },
    /// Zero, or the wrong sign for the kind.
    #[error("a {kind} can't have this sign: {amount} minor units")]
    WrongSign {
        /// Position in the batch, from 0.
        index: usize,
        /// The kind.
        kind: Kind,
        /// Minor units that were asked for.
        amount: i64,
    },
    /// The kind must say why.
    #[error("a {kind} needs a reason")]
    ReasonMissing {
        /// Position in the batch, from 0.
        index: usize,
        /// The kind.
        kind: Kind,
    },
    /// The kind must name the row it gives back, or may not.
    #[error("a {kind} must name the row it gives back, and no other kind may")]
    OriginalMisplaced {
        /// Position in the batch, from 0.
        index: usize,
        /// The kind.
        kind: Kind,
    },
    /// The row to give back isn't there, or is not one that can be given back like this.
    #[error("row {seq} of this wallet can't be given back by a {kind}")]
    OriginalUnfit {
        /// Position in the batch, from 0.
        index: usize,
        /// The kind.
        kind: Kind,
        /// The row that was named.
        seq: i64,
    },
    /// More than is left of the original.
    #[error("row {seq} has {left} minor units left to give back, and {asked} were asked for")]
    OriginalExceeded {
        /// Position in the batch, from 0.
        index: usize,
        /// The row that was named.
        seq: i64,
        /// Minor units left.
        left: i64,
        /// Minor units asked for.
        asked: i64,
    },
    /// This event is booked already.
    #[error("{kind} {reference} is already row {seq} of this wallet")]
    AlreadyBooked {
        /// Position in the batch, from 0.
        index: usize,
        /// The kind.
        kind: Kind,
        /// The reference.
        reference: Reference,
        /// The row that books it.
        seq: i64,
    },
    /// The batch names the same event twice.
    #[error("{kind} {reference} stands in this batch twice for the same wallet")]
    TwiceInBatch {
        /// Position of the second, from 0.
        index: usize,
        /// The kind.
        kind: Kind,
        /// The reference.
        reference: Reference,
    },
    /// The debit is larger than what may be taken.
    #[error("pocket {pocket} of {tenant_id}'s {currency} wallet has {} minor units available, and {} are needed", available.get(), needed.get())]
    InsufficientFunds {
        /// Position in the batch, from 0.
        index: usize,
        /// Whose wallet.
        tenant_id: TenantId,
        /// Which wallet.
        currency: CurrencyCode,
        /// Which pocket.
        pocket: Pocket,
        /// Minor units that may be taken.
        available: MinorUnits,
        /// Minor units asked for.
        needed: MinorUnits,
    },
    /// Money for a pocket whose time is over, where nobody could spend it.
    #[error("the time of pocket {pocket} is over")]
    PocketClosed {
        /// Position in the batch, from 0.
        index: usize,
        /// Which pocket.
        pocket: Pocket,
    },
    /// The balance would leave what an `i64` holds.
    #[error("the balance would be larger than the ledger can hold")]
    Overflow {
        /// Position in the batch, from 0.
        index: usize,
    },
}

impl Refusal {
    /// The position of the entry in its batch.
    #[must_use]
    pub const fn index(&self) -> usize {
        match self {
            Self::UnknownTenant { index, .. }
            | Self::UnknownCurrency { index, .. }
            | Self::WrongSign { index, .. }
            | Self::ReasonMissing { index, .. }
            | Self::OriginalMisplaced { index, .. }
            | Self::OriginalUnfit { index, .. }
            | Self::OriginalExceeded { index, .. }
            | Self::AlreadyBooked { index, .. }
            | Self::TwiceInBatch { index, .. }
            | Self::InsufficientFunds { index, .. }
            | Self::PocketClosed { index, .. }
            | Self::Overflow { index } => *index,
        }
    }
}
