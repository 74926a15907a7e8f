//! One-time accounts: something with a price that is paid once.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::{Payment, Refusal, State, Terms, store};
use crate::booking::{self, SlotRefusal};
use crate::fault::{Error, Fault};
use crate::ids::{OrderId, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The product's own id.
    pub order_id: OrderId,
    /// Whose wallet the payment is credited to.
    pub tenant_id: TenantId,
    /// The currency.
    pub currency: CurrencyCode,
    /// The price in minor units, fixed.
    pub amount: MinorUnits,
    /// What is sold, for the payer to read.
    pub title: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Not payable from this moment on.
    pub expires_at: Option<DateTime<Utc>>,
    /// Withdrawn by the product.
    pub closed_at: Option<DateTime<Utc>>,
    /// The slot that it is an attempt to get.
    pub slot_id: Option<i64>,
    /// Who alone may pay it, by the provider's id of a payer; anybody when none.
    pub payer: Option<String>,
}

/// Where an order stands, read from its times and its payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderStatus {
    /// Payable.
    Open,
    /// A payment is on its way.
    Busy,
    /// Paid.
    Paid,
    /// Paid and given back; it isn't sold again.
    Refunded,
    /// Its time is over, or that of its slot, or of the hold that it had of it.
    Expired,
    /// Withdrawn.
    Closed,
}

impl OrderStatus {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Busy => "busy",
            Self::Paid => "paid",
            Self::Refunded => "refunded",
            Self::Expired => "expired",
            Self::Closed => "closed",
        }
    }
}

/// Why an order can't be made or closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefusal {
    /// No such tenant.
    #[error("there is no tenant {0}")]
    UnknownTenant(TenantId),
    /// No such order.
    #[error("there is no order {0}")]
    UnknownOrder(OrderId),
    /// No such slot.
    #[error("there is no slot {0}")]
    UnknownSlot(i64),
    /// Nobody can get the slot any more.
    #[error("slot {slot_id} can't be had any more: {why}")]
    SlotGone {
        /// Which slot.
        slot_id: i64,
        /// Why.
        why: SlotRefusal,
    },
    /// The id stands for another order.
    #[error("order {order_id} exists with another {}", fields.join(", "))]
    Differs {
        /// Which order.
        order_id: OrderId,
        /// Which fields.
        fields: Vec<&'static str>,
    },
    /// It can't be withdrawn any more.
    #[error("order {order_id} can't be closed: it is {}", status.as_str())]
    CannotClose {
        /// Which order.
        order_id: OrderId,
        /// Where it stands.
        status: OrderStatus,
    },
}

/// Where the order stands. `standing` is the payment that is open or was successful; `held` says whether its payer
/// was told yes and hasn't paid yet.
#[must_use]
pub fn status(order: &Order, standing: Option<&Payment>, held: bool, now: DateTime<Utc>) -> OrderStatus {
    match standing.map(|payment| payment.state) {
        Some(State::Created) => OrderStatus::Busy,
        Some(State::Performed { .. }) => OrderStatus::Paid,
        Some(State::Refunded { .. }) => OrderStatus::Refunded,
        Some(State::Cancelled { .. }) | None if held => OrderStatus::Busy,
        Some(State::Cancelled { .. }) | None => {
            if order.closed_at.is_some() {
                OrderStatus::Closed
            } else if order.expires_at.is_some_and(|expires_at| now >= expires_at) {
                OrderStatus::Expired
            } else {
                OrderStatus::Open
            }
        }
    }
}

/// Whether a new payment may be made for the order.
pub(super) fn check_payable(
    order: &Order,
    standing: Option<&Payment>,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<(), Refusal> {
    let not_payable = |why| Err(Refusal::OrderNotPayable { order_id: order.order_id.clone(), why });
    match status(order, standing, false, now) {
        OrderStatus::Busy => return Err(Refusal::OrderBusy(order.order_id.clone())),
        OrderStatus::Paid => return not_payable("it is paid"),
        OrderStatus::Refunded => return not_payable("it was paid and given back"),
        OrderStatus::Expired => return not_payable("its time is over"),
        OrderStatus::Closed => return not_payable("it was withdrawn"),
        OrderStatus::Open => {}
    }
    if order.currency != terms.currency {
        return not_payable("its currency is not this provider's");
    }
    Ok(())
}

/// Whether this is the order's price.
pub(super) fn check_amount(order: &Order, amount: MinorUnits) -> Result<(), Refusal> {
    if amount == order.amount {
        Ok(())
    } else {
        Err(Refusal::WrongAmount { least: order.amount, most: order.amount, given: amount })
    }
}

/// Makes an order, or finds the same one made. The second value says whether it is new.
///
/// # Errors
/// [`OrderRefusal`].
pub async fn create(conn: &mut PgConnection, order: &Order) -> Result<(Order, bool), Error<OrderRefusal>> {
    if store::tenant_status(conn, &order.tenant_id).await?.is_none() {
        return Err(Error::Refused(OrderRefusal::UnknownTenant(order.tenant_id.clone())));
    }
    if let Some(slot_id) = order.slot_id
        && booking::find_slot(conn, slot_id).await?.is_none()
    {
        return Err(Error::Refused(OrderRefusal::UnknownSlot(slot_id)));
    }
    let there = if let Some(there) = find(conn, &order.order_id).await? {
        there
    } else {
        check_slot(conn, order).await?;
        if store::insert_order(conn, order).await? {
            return Ok((order.clone(), true));
        }
        find(conn, &order.order_id)
            .await?
            .ok_or_else(|| Fault::new("an order that conflicted with an insert was not there to read"))?
    };
    let fields: Vec<&'static str> = [
        ("tenant_id", there.tenant_id == order.tenant_id),
        ("currency", there.currency == order.currency),
        ("amount", there.amount == order.amount),
        ("title", there.title == order.title),
        ("expires_at", there.expires_at == order.expires_at),
        ("slot_id", there.slot_id == order.slot_id),
        ("payer", there.payer == order.payer),
    ]
    .into_iter()
    .filter_map(|(field, same)| (!same).then_some(field))
    .collect();
    if fields.is_empty() {
        Ok((there, false))
    } else {
        Err(Error::Refused(OrderRefusal::Differs { order_id: order.order_id.clone(), fields }))
    }
}

/// A new attempt to get a slot that nobody can get any more has no use. One that is held may become free again.
async fn check_slot(conn: &mut PgConnection, order: &Order) -> Result<(), Error<OrderRefusal>> {
    let Some(slot_id) = order.slot_id else { return Ok(()) };
    let slot = booking::read(conn, slot_id, &order.order_id).await?;
    match slot.standing.check_free(slot.now) {
        Ok(()) | Err(SlotRefusal::Held | SlotRefusal::HeldBefore | SlotRefusal::HoldOver) => Ok(()),
        Err(why @ (SlotRefusal::Booked | SlotRefusal::Withdrawn | SlotRefusal::Past)) => {
            Err(Error::Refused(OrderRefusal::SlotGone { slot_id, why }))
        }
    }
}

/// Withdraws an order that nobody is paying. Closing it again changes nothing.
///
/// # Errors
/// [`OrderRefusal`].
pub async fn close(
    conn: &mut PgConnection,
    order_id: &OrderId,
    lifetime: TimeDelta,
    now: DateTime<Utc>,
) -> Result<Order, Error<OrderRefusal>> {
    let order =
        lock(conn, order_id).await?.ok_or_else(|| Error::Refused(OrderRefusal::UnknownOrder(order_id.clone())))?;
    // A payment that is being performed at this very moment ends first, and is seen then.
    let latest = store::lock_latest_of_order(conn, order_id, super::Mode::Live).await?;
    let standing = latest.filter(|payment| is_in_the_way(payment, lifetime, now));
    let cannot = |status| Err(Error::Refused(OrderRefusal::CannotClose { order_id: order_id.clone(), status }));
    let held = is_held(conn, &order).await?;
    match status(&order, standing.as_ref(), held, now) {
        OrderStatus::Closed => Ok(order),
        OrderStatus::Open | OrderStatus::Expired => {
            store::set_order_closed(conn, order_id, now).await?;
            Ok(Order { closed_at: Some(now), ..order })
        }
        status @ (OrderStatus::Busy | OrderStatus::Paid | OrderStatus::Refunded) => cannot(status),
    }
}

/// An order. Reads only.
///
/// # Errors
/// A fault.
pub async fn find(conn: &mut PgConnection, order_id: &OrderId) -> Result<Option<Order>, Fault> {
    store::find_order(conn, order_id).await
}

/// An order with its live status.
///
/// # Errors
/// A fault.
pub async fn find_with_status(
    conn: &mut PgConnection,
    order_id: &OrderId,
    lifetime: TimeDelta,
    now: DateTime<Utc>,
) -> Result<Option<(Order, OrderStatus)>, Fault> {
    let Some(order) = find(conn, order_id).await? else { return Ok(None) };
    let standing = standing(conn, order_id, super::Mode::Live, lifetime, now).await?;
    let slot = match order.slot_id {
        Some(slot_id) => Some(booking::read(conn, slot_id, order_id).await?),
        None => None,
    };
    let held = slot.as_ref().is_some_and(|slot| slot.standing.is_held_for_checkout(order_id, slot.now));
    let status = match status(&order, standing.as_ref(), held, now) {
        // It can never get its slot any more, whoever pays it.
        OrderStatus::Open if slot.is_some_and(|slot| slot.standing.is_over(slot.now)) => OrderStatus::Expired,
        status => status,
    };
    Ok(Some((order, status)))
}

/// Whether the order has its slot for a checkout. Whoever would take it locks the order before.
async fn is_held(conn: &mut PgConnection, order: &Order) -> Result<bool, Fault> {
    if order.slot_id.is_none() {
        return Ok(false);
    }
    booking::is_held_by(conn, &order.order_id).await
}

/// The payment that stands in the way of another one. A promise that has timed out stands in nobody's way,
/// even before the sweep has said so.
pub(super) async fn standing(
    conn: &mut PgConnection,
    order_id: &OrderId,
    mode: super::Mode,
    lifetime: TimeDelta,
    now: DateTime<Utc>,
) -> Result<Option<Payment>, Fault> {
    let latest = store::latest_of_order(conn, order_id, mode).await?;
    Ok(latest.filter(|payment| is_in_the_way(payment, lifetime, now)))
}

fn is_in_the_way(payment: &Payment, lifetime: TimeDelta, now: DateTime<Utc>) -> bool {
    payment.state != State::Created || !payment.is_expired(lifetime, now)
}

/// The payment of an order that is open or was successful, however old its promise.
pub(super) async fn latest(
    conn: &mut PgConnection,
    order_id: &OrderId,
    mode: super::Mode,
) -> Result<Option<Payment>, Fault> {
    store::latest_of_order(conn, order_id, mode).await
}

pub(super) async fn lock(conn: &mut PgConnection, order_id: &OrderId) -> Result<Option<Order>, Fault> {
    store::lock_order(conn, order_id).await
}
