//! Payme (Paycom): its servers call us by JSON-RPC when somebody pays.
//!
//! The way of one call: the body is bounded and read; the envelope is taken apart tolerantly, so that the
//! caller's `id` is known even for an answer that refuses; the key is compared; the method runs in one
//! transaction together with its line in the call log; the answer gets the caller's `id` back. Whatever
//! happens, the answer is HTTP 200: Payme takes any other status for our crash.
//!
//! Facts: <https://developer.help.paycom.uz/>.

pub mod auth;
pub mod conformance;
pub mod envelope;
mod error;
pub mod link;
mod methods;
mod rpc;
mod wire;

pub use error::{PaymeError, Text};
pub use rpc::{FiscalItem, Incoming, Payme, PaymeSettings};

/// The provider's name in our tables.
pub const PROVIDER: &str = "payme";

/// How long a transaction may wait for PerformTransaction, counted from Payme's own `time`.
pub const LIFETIME_MS: i64 = 43_200_000;

/// The reason Payme writes for a transaction that timed out.
pub const REASON_TIMEOUT: i64 = 4;
