//! The one test binary: one file per behaviour, one throw-away PostgreSQL for all of them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test that can't go on says so by panicking"
)]

mod conformance;
mod embedded;
mod ledger;
mod support;
