//! What tests share: a PostgreSQL for the whole run, a whole application on a database of its own, and the
//! words to say what happened.

pub mod api;
pub mod app;
pub mod book;
pub mod browser;
pub mod cluster;
pub mod console;
pub mod exports;
pub mod fake_bot_api;
pub mod fake_merchant;
pub mod hooks;
pub mod intruder;
#[expect(dead_code, reason = "the benchmarks count with it")]
pub mod pg_proxy;
pub mod process;
pub mod receiver;

pub use app::TestApp;
