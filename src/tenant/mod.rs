//! Tenants: the product's customers. A tenant comes with a wallet in so'm; other wallets open with their
//! first use.

mod service;
mod store;

pub use service::{Locale, Tenant, TenantRefusal, TimeZone, check_name, create, find};
