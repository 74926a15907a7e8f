//! What a tenant gets again and again without paying: so many images a day, so many credits for a guest.
//!
//! An allowance is filled in *cycles*, each with a pocket of its own whose end is the cycle's, so what is left at the
//! end becomes an explicit expiry row and nothing is added up. A *rolling* window begins with activity and lasts its
//! time; when it is over, the next activity begins another. A *calendar day* is the day in a zone. Nobody's allowance
//! is filled at midnight for everybody: activity (or a hold, which is activity) fills it, and a nightly sweep fills the
//! rolling ones of those who have been away for more than a day and tells them. A cycle filled that way hasn't begun;
//! its window starts when its owner comes.
//!
//! The key (tenant, allowance, cycle) makes a second fill of the same cycle impossible.

mod error;
mod policy;
mod service;
mod store;

pub use error::Refusal;
pub use policy::{Cycle, Due, Window, due, is_reserved};
pub use service::{Allowance, Filled, Owner, assign, create, list, note_presence, refill_all, refill_locked, sweep};
