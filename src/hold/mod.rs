//! Money promised to work in progress, and the work paid by its result, once, from the right pocket.
//!
//! A hold is the *decision*, made under the wallet's lock: so much from this pocket, so much from that one, at this
//! price. Until it ends, nobody else can spend what it keeps, and no row stands in the ledger. Then either its work is
//! paid (*settled*: the ledger rows and the state change are one transaction) or it cost nothing (*released*: no row at
//! all, so there is nothing that could be given back twice).
//!
//! ```text
//! placed ── start ──> started
//!   │  └─ cancel ─┐      ├─ settle ──> settled      (as held, an amount, or by usage)
//!   │             v      ├─ release ─> released     (settled by usage, when there is any)
//!   └──────────> released└─ its time and its lease over ─> the reconciler settles or releases
//! ```
//!
//! Every transition takes the wallet's lock first and reads the hold after it, so of a cancel and a start, or of two
//! settles, exactly one wins, and the other is answered what came of the first. Readers leave out a hold whose time and
//! lease are over at once; the reconciler ([`reconcile()`]) ends it for good.
//!
//! The caller's job id is the key: placing the same job again answers the first hold. Usage is an append-only log, one
//! line a call, in millionths of a US dollar; it is the evidence that a crash is settled by.

mod allocate;
mod error;
mod finish;
mod perform;
mod place;
mod price;
mod reconcile;
mod state;
mod stats;
mod store;
mod tier;
mod usage;
mod verify;

pub use allocate::{Part, allocate, charge};
pub use error::Refusal;
pub use finish::{End, Ended, charge_reference};
pub use perform::{Answered, Deed, DeedRefusal, Outcome, Performance, Render};
pub use place::{Ask, Asked, Placed, Standing};
pub use price::{ModelPrice, PriceBook, PriceRefusal, cost_micro, credits_for, find_book, micro_per_unit, write_book};
pub use reconcile::{Reconciled, reconcile, tell_waiting};
pub use state::{EndedBy, Hold, HoldEnd, HoldId, Terms};
pub use stats::{TierStats, stats};
pub use store::{HoldQuery, list};
pub use tier::{Tier, list_tiers, set_tier};
pub use usage::{Call, Metered, Used};
pub use verify::{Amiss, verify};

use sqlx::PgConnection;

use crate::fault::Fault;
use crate::money::CurrencyCode;

/// A hold. Reads only.
///
/// # Errors
/// A fault.
pub async fn find(conn: &mut PgConnection, hold_id: &HoldId) -> Result<Option<Hold>, Fault> {
    store::find(conn, hold_id).await
}

/// The currency of a hold, which it keeps.
///
/// # Errors
/// A fault.
pub async fn currency_of(conn: &mut PgConnection, hold_id: &HoldId) -> Result<Option<CurrencyCode>, Fault> {
    Ok(store::wallet_of(conn, hold_id).await?.map(|(_, currency)| currency))
}
