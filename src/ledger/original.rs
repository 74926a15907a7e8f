//! What can be given back, and how much of it.

use std::collections::HashMap;

use super::entry::Entry;
use super::error::Refusal;
use super::kind::Kind;
use crate::ids::Reference;
use crate::money::MinorUnits;

/// The references of what the resolution of a payment's case moves.
pub const CASE_TRANSFER: &str = "payment-case:";

/// The references of what a refund task sets aside.
pub const REFUND_TASK_TRANSFER: &str = "refund-task:";

/// The references of what comes in pockets and covers what the main pocket is short of.
pub const COVER_TRANSFER: &str = "cover:";

/// What the references begin with of rows that move money inside the ledger, from a pocket or a wallet to another one:
/// two adjustments in one posting, whose sum is nothing.
pub const TRANSFERS: [&str; 3] = [CASE_TRANSFER, REFUND_TASK_TRANSFER, COVER_TRANSFER];

/// Whether a row is a leg of a move inside the ledger. Nobody gave or lost anything by it alone.
#[must_use]
pub fn is_transfer(kind: &Kind, reference: &Reference) -> bool {
    *kind == Kind::Adjustment && TRANSFERS.iter().any(|prefix| reference.as_str().starts_with(prefix))
}

/// Whether a refund may name this row: a debit, but neither what went back through its provider, nor what expired,
/// nor what was only moved: whoever gave one leg of a move back would make money out of nothing.
#[must_use]
pub fn can_be_refunded(kind: &Kind, amount: MinorUnits, reference: &Reference) -> bool {
    amount.is_negative() && !matches!(kind, Kind::TopUpReversal | Kind::Expiry) && !is_transfer(kind, reference)
}

/// A row that may be given back.
#[derive(Debug, Clone)]
pub struct Original {
    /// Its kind.
    pub kind: Kind,
    /// Its reference.
    pub reference: Reference,
    /// Its signed amount.
    pub amount: MinorUnits,
    /// The sum of the rows that name it.
    pub given_back: MinorUnits,
}

/// Σ of what gives an original back never exceeds it (S1); a top-up goes back whole or not at all (P3).
pub(super) fn give_back(
    index: usize,
    entry: &Entry,
    wallet_id: i64,
    originals: &mut HashMap<(i64, i64), Original>,
) -> Result<(), Refusal> {
    let Some(seq) = entry.original_seq else { return Ok(()) };
    let unfit = || Refusal::OriginalUnfit { index, kind: entry.kind.clone(), seq };
    let original = originals.get_mut(&(wallet_id, seq)).ok_or_else(unfit)?;
    let fits = match entry.kind {
        Kind::TopUpReversal => original.kind == Kind::TopUp,
        Kind::Refund => can_be_refunded(&original.kind, original.amount, &original.reference),
        Kind::TopUp
        | Kind::SubscriptionFee
        | Kind::Adjustment
        | Kind::Grant
        | Kind::Expiry
        | Kind::HoldCharge
        | Kind::Booking
        | Kind::Custom(_) => false,
    };
    if !fits {
        return Err(unfit());
    }
    let left = original.amount.checked_add(original.given_back).ok_or_else(unfit)?;
    let after = left.checked_add(entry.amount).ok_or_else(unfit)?;
    let within = match entry.kind {
        Kind::TopUpReversal => after.is_zero(),
        _ => !after.is_positive(),
    };
    if !within {
        return Err(Refusal::OriginalExceeded {
            index,
            seq,
            left: left.get().saturating_abs(),
            asked: entry.amount.get().saturating_abs(),
        });
    }
    original.given_back = original.given_back.checked_add(entry.amount).ok_or_else(unfit)?;
    Ok(())
}
