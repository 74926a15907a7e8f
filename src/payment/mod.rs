//! Money from outside, whatever provider brings it.
//!
//! A payment is created, then performed or cancelled; a performed one may be refunded. The state is which of
//! its times are set, and a time that is set stays. Performing it credits the tenant's wallet in the same
//! transaction, exactly once; refunding it books the reversal in the same transaction, and only while the
//! money is still there.
//!
//! The room knows no provider's words: amounts are minor units, refusals are [`Refusal`]s, and each provider
//! translates at its own door. Locks are taken in one order: *order, then payment, then slot, then wallet*.
//!
//! There are two kinds of providers. Some promise a payment first and perform it later (Payme): [`create`],
//! [`perform`], [`cancel`]. Others ask whether a payer may pay, take the money, and tell us when they have it
//! (Telegram): those are [`prepaid`].

mod account;
mod error;
mod import;
pub mod order;
pub mod prepaid;
mod service;
mod slot;
mod state;
mod store;
mod unbook;
mod way_back;

pub use account::{account_values, normal_account_value};
pub use error::Refusal;
pub use import::{ImportRefusal, check_imports};
pub use service::{
    Cancelled, Created, Performed, Terms, cancel, check, create, find, keep_fiscal_receipt, list, perform,
    sweep_expired,
};
pub use slot::{BOOKING_REFERENCE_PREFIX, SpentOn, bookings_amiss};
pub use state::{AccountRef, FiscalKind, Mode, NewPayment, Payment, PaymentKey, State};
pub use unbook::{RefundWish, Unbook, UnbookRefusal, is_of_standing_booking, unbook};
pub use way_back::{WayBack, way_back};
