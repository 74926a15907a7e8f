//! Why the desk says no.

use chrono::{DateTime, Utc};

use crate::ids::TenantId;
use crate::ledger;

/// A refusal. No money moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The ledger says no.
    #[error(transparent)]
    Ledger(#[from] ledger::Refusal),
    /// A top-up goes back to its payer through its provider, not into the wallet it is in already.
    #[error(
        "row {seq} of {tenant_id} is a top_up: it goes back to its payer through its provider, which cancels the payment"
    )]
    GoesThroughProvider {
        /// Whose wallet.
        tenant_id: TenantId,
        /// The row.
        seq: i64,
    },
    /// What a slot cost goes back with its booking's cancellation, which frees the slot in the same step.
    #[error("row {seq} of {tenant_id} is a booking: cancel the booking, which gives the money back")]
    GoesThroughBooking {
        /// Whose wallet.
        tenant_id: TenantId,
        /// The row.
        seq: i64,
    },
    /// No such request.
    #[error("there is no request {0}")]
    UnknownRequest(i64),
    /// The asker can't decide (S2).
    #[error("request {0} is your own; somebody else decides about it")]
    OwnRequest(i64),
    /// Only the asker withdraws.
    #[error("request {request_id} is {requested_by}'s, who alone can withdraw it")]
    NotYours {
        /// The request.
        request_id: i64,
        /// Who asked.
        requested_by: String,
    },
    /// Somebody was first.
    #[error("request {request_id} was {decision} by {decided_by} already")]
    Decided {
        /// The request.
        request_id: i64,
        /// What was decided.
        decision: &'static str,
        /// By whom.
        decided_by: String,
    },
    /// Nobody decided in time.
    #[error("request {request_id} ended on {}; ask again", expired_at.format("%Y-%m-%d %H:%M UTC"))]
    Expired {
        /// The request.
        request_id: i64,
        /// When.
        expired_at: DateTime<Utc>,
    },
    /// The caller's role doesn't do this.
    #[error("this needs the role {needed}")]
    RoleTooSmall {
        /// The smallest role that may.
        needed: &'static str,
    },
}
