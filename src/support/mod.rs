//! The support desk's money: refunds and adjustments (S1, S2).
//!
//! Whoever asks, through the console or the API, asks the same service. A movement within the limit of the asker
//! is posted at once; a larger one waits as a request until somebody else decides, and is held against the ledger
//! again then. Both are one row of `support_requests`, a line of the audit, and (when posted) a row of the ledger,
//! all in one transaction.

mod error;
mod perform;
mod policy;
mod service;
mod store;

pub use error::Refusal;
pub use perform::{Deed, DeedRefusal, Performance, Render};
pub use policy::{AdjustmentReason, Limit, Limits};
pub use service::{Ask, Desk, Outcome, REFERENCE_PREFIX, Rehearsal, Rights};
pub use store::{Decision, Request, RequestQuery, granted_amiss, list_requests};
