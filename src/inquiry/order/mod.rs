//! An order's whole story, and the slots with whom they belong to: what the desk looks at when somebody says "I paid
//! and I have no booking". Reads only.

mod store;

pub use store::{OrderMoment, SlotLine};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::ids::OrderId;

/// Everything that ever happened about an order, in its order.
///
/// # Errors
/// A fault.
pub async fn order_story(conn: &mut PgConnection, order_id: &OrderId) -> Result<Vec<OrderMoment>, Fault> {
    store::order_story(conn, order_id).await
}

/// Slots that haven't ended, with who holds or has booked them; behind a place, if one is given.
///
/// # Errors
/// A fault.
pub async fn upcoming_slots(
    conn: &mut PgConnection,
    after: Option<(DateTime<Utc>, i64)>,
    limit: i64,
) -> Result<Vec<SlotLine>, Fault> {
    store::upcoming_slots(conn, after, limit).await
}
