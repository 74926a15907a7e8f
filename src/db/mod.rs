//! The way to PostgreSQL: the server (given or our own), the pool, the migrations and the one transaction
//! runner. No SQL about the business is here; each room has its own `store.rs`.

pub mod embedded;
pub mod migrate;
mod pool;
mod tx;

pub use pool::{Database, PoolSettings, Server};

/// The role that owns every object.
pub const OWNER_ROLE: &str = "hamyon_owner";
/// The role the running service has: it can't change history, nor the guards that keep it.
pub const SERVICE_ROLE: &str = "hamyon_service";
