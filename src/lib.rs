//! Hamyon: an event-sourced wallet ledger.
//!
//! Money is a history: every movement is one signed row of the append-only table `wallet_transactions`, and a
//! balance is its SUM.
//!
//! # The house
//! Outside formats live at the edges, one room per noun stands in the middle, and there is one door to the
//! ledger. Calls go one way, down:
//!
//! ```text
//! cli | http | provider | jobs   what the outside speaks
//!   inquiry | tenant | payment (and under it booking) | batch | support | staff | audit | export | token | idempotency
//!                                one room per noun
//!     funding                    every credit, with what it sets off
//!       ledger                   the one door to the rows
//!         db                     the server, the pool, the transaction runner
//! money, ids, clock, fault       open to all
//! ```
//!
//! # The path of one request
//! Payme's `PerformTransaction` comes in at [`http`], which bounds and reads the body and hands it to
//! [`provider::payme`]. The envelope is taken apart, the key compared, and the method opens one transaction by
//! [`db::Database::run`]. In it, [`payment::perform`] locks the payment and decides by its state;
//! [`funding::post`] and [`ledger::post`] lock the wallet, read it, decide, and write the row; the payment's
//! time and the line of the call log follow. The commit comes before the answer.

pub mod allowance;
pub mod app;
pub mod audit;
pub mod batch;
pub mod booking;
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
pub mod clock;
pub mod config;
pub mod db;
pub mod export;
pub mod fault;
pub mod fee;
pub mod funding;
pub mod hold;
pub mod http;
pub mod idempotency;
pub mod ids;
pub mod inquiry;
pub mod jobs;
pub mod ledger;
pub mod money;
pub mod outbox;
pub mod payment;
pub mod pocket;
pub mod provider;
pub mod staff;
pub mod support;
pub mod telemetry;
pub mod tenant;
pub mod token;
