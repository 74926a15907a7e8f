//! Providers that ask before they take a payer's money, take it, and tell us when they have it (B2 to B5).
//!
//! ```text
//! may this payer pay?   checkout   the order, then its slot are locked; the answer is kept under the question's id
//! it is paid            receipt    the payment, what was decided, and a refund task, in one transaction
//! give it back          refund     asked for, called outside of any transaction, confirmed, and only then booked
//! a person wants it back  give_back  the money is set aside and a refund is asked for
//! something is odd      case       kept for a person, with why
//! ```
//!
//! A "yes" is a promise of a slot for a few minutes and no money. Money that came is never refused, since it is
//! here: it is booked, or it goes back, or a person looks at it. Until it has gone it is in the wallet's pocket
//! `set-aside`, where nothing else spends it; so the ledger alone says what became of it.
//!
//! Nothing here knows who the provider is. The caller gives its name, its ids and the one currency it pays in.

pub mod case;
mod checkout;
pub(super) mod give_back;
mod receipt;
pub mod refund;
pub mod state;
mod store;

pub use checkout::{CheckoutTerms, Question, check_out};
pub use give_back::{GIVE_BACK_REFERENCE_PREFIX, GiveBackRefusal, give_back};
pub use receipt::{Outcome, Receipt, Received, Source, find_known, is_prepaid, receive};
pub use state::{Answer, Decision, No};
pub use store::KnownReceipt;
