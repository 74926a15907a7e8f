//! Tenants: the product's customers. A tenant comes with a wallet in so'm; other wallets open with their
//! first use.

mod service;
mod store;

pub use service::{Change, Locale, Tenant, TenantRefusal, TimeZone, change, check_name, create, find};
