//! Parts of a wallet with rules of their own: granted money that is spent before bought money, and that may end.
//!
//! A pocket's money is there while `now < expires_at`. At that moment nobody can spend it any more, whether or not a
//! sweep has come by; what is left and promised to no hold is booked as one `expiry` row, so the sum of the rows stays
//! the balance and nothing goes silently. Money that a hold keeps is left alone: what the hold's work doesn't use gets
//! its own expiry row when the hold ends.
//!
//! Before that, a pocket pays what `main` owes ([`cover()`]): nobody's money ends while a debt of the same wallet stands.

mod cover;
mod error;
mod service;
mod store;

pub use cover::COVER_REFERENCE_PREFIX;
pub use error::Refusal;
pub use service::{Grant, NewPocket, cover, expire_closed, grant, open, sweep, void};
