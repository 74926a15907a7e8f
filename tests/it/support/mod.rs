//! What tests share: a PostgreSQL for the whole run, a whole application on a database of its own, and the
//! words to say what happened.

pub mod app;
pub mod cluster;
pub mod fake_merchant;
pub mod process;

pub use app::TestApp;
