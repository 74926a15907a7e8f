//! Slots and who has them, and an order's whole story.

use askama::Template;
use axum::extract::{Path, Query};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::health::OFFICE_ZONE;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use crate::ids::OrderId;
use crate::inquiry::order::{OrderMoment, SlotLine, order_story, upcoming_slots};
use crate::money::Currency;
use crate::payment::order::{self, Order, OrderStatus};
use crate::tenant::TimeZone;

const PAGE_ROWS: i64 = 50;

/// Where the list goes on.
#[derive(Debug, Deserialize)]
pub struct SlotsQuery {
    after: Option<String>,
}

#[derive(Template)]
#[template(path = "slots.html")]
struct SlotsPage {
    frame: Frame,
    slots: Vec<SlotLine>,
    next: Option<String>,
}

impl SlotsPage {
    /// In the resource's own zone: that is what its people read.
    fn time(slot: &SlotLine, at: &DateTime<Utc>) -> String {
        let zone = TimeZone::parse(&slot.time_zone).map_or(OFFICE_ZONE, TimeZone::zone);
        money::time(*at, zone)
    }
}

/// Slots that haven't ended.
pub async fn slots(staff: Staff<Viewer>, Query(query): Query<SlotsQuery>) -> Result<Response, ConsoleError> {
    let after = query.after.as_deref().and_then(|text| {
        let (micros, slot_id) = text.split_once('.')?;
        Some((DateTime::from_timestamp_micros(micros.parse().ok()?)?, slot_id.parse().ok()?))
    });
    let mut conn = staff.app.db.pool().acquire().await?;
    let slots = upcoming_slots(&mut conn, after, PAGE_ROWS).await?;
    let full = i64::try_from(slots.len()) == Ok(PAGE_ROWS);
    let next =
        slots.last().map(|slot| format!("{}.{}", slot.starts_at.timestamp_micros(), slot.slot_id)).filter(|_| full);
    show(&SlotsPage { slots, next, frame: staff.frame })
}

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage {
    frame: Frame,
    order: Order,
    status: &'static str,
    amount: String,
    story: Vec<OrderMoment>,
}

impl OrderPage {
    fn time(at: &DateTime<Utc>) -> String {
        at.with_timezone(&OFFICE_ZONE).format("%Y-%m-%d %H:%M:%S").to_string()
    }
}

/// An order's whole story.
pub async fn order(staff: Staff<Viewer>, Path(order_id): Path<String>) -> Result<Response, ConsoleError> {
    let not_found = || ConsoleError::NotFound(staff.language());
    let order_id = OrderId::parse(order_id).map_err(|_| not_found())?;
    let (app, w) = (&staff.app, staff.frame.w);
    let mut conn = app.db.pool().acquire().await?;
    let (order, status) = order::find_with_status(&mut conn, &order_id, app.payme.terms().lifetime, app.clock.now())
        .await?
        .ok_or_else(not_found)?;
    let story = order_story(&mut conn, &order_id).await?;
    drop(conn);
    let currency: Currency = app.currencies.find(&order.currency).await?.ok_or_else(not_found)?;
    let status = match status {
        OrderStatus::Open => w.open,
        OrderStatus::Busy => w.order_busy,
        OrderStatus::Paid => w.order_paid,
        OrderStatus::Refunded => w.order_refunded,
        OrderStatus::Expired => w.status_expired,
        OrderStatus::Closed => w.closed,
    };
    let amount = money::text(order.amount, &currency);
    show(&OrderPage { order, status, amount, story, frame: staff.frame })
}
