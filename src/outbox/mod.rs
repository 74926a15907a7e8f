//! What has happened, told to those outside who want to know.
//!
//! An event is written in the transaction of its effect, together with one delivery for each endpoint that
//! is registered at that moment: an effect without its event can't be, nor an event without its effect.
//! Delivering happens later and on its own: at least once, in the order of the events per tenant, signed by
//! the Standard Webhooks scheme (<https://www.standardwebhooks.com/>).

mod address;
mod deliver;
pub mod endpoint;
mod event;
mod store;

pub use address::{AddressRefusal, check_url};
pub use deliver::{Deliverer, DelivererSettings};
pub use event::{Event, EventKind};
pub use store::{DeliveryRow, Replay, oldest_waiting_at};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;

/// Writes events, in their order, with their deliveries.
///
/// # Errors
/// A fault.
pub async fn write(conn: &mut PgConnection, events: &[Event], now: DateTime<Utc>) -> Result<(), Fault> {
    if events.is_empty() {
        return Ok(());
    }
    store::insert_events(conn, events, now).await
}
