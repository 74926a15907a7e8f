//! Lock, read, decide, store: slots on a connection whose transaction the caller owns.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::state::{Hold, Standing};
use super::{
    Booking, FreeSlot, FreeSlotQuery, NewSlot, Price, RefundTo, Resource, ResourceRefusal, Slot, WithdrawRefusal, store,
};
use crate::fault::{Error, Fault};
use crate::ids::{OrderId, ResourceId};
use crate::money::{CurrencyCode, MinorUnits};

/// Makes a resource, or finds the same one made. The second value says whether it is new.
///
/// # Errors
/// [`ResourceRefusal::Differs`].
pub async fn create_resource(
    conn: &mut PgConnection,
    resource: &Resource,
) -> Result<(Resource, bool), Error<ResourceRefusal>> {
    if store::insert_resource(conn, resource).await? {
        return Ok((resource.clone(), true));
    }
    let (_, there) = store::find_resource(conn, &resource.resource_id)
        .await?
        .ok_or_else(|| Fault::new("a resource that conflicted with an insert was not there to read"))?;
    let fields: Vec<&'static str> = [
        ("name", there.name == resource.name),
        ("time_zone", there.time_zone == resource.time_zone),
        ("refund_until_hours", there.refund_until == resource.refund_until),
    ]
    .into_iter()
    .filter_map(|(field, same)| (!same).then_some(field))
    .collect();
    if fields.is_empty() {
        Ok((there, false))
    } else {
        Err(Error::Refused(ResourceRefusal::Differs { resource_id: resource.resource_id.clone(), fields }))
    }
}

/// Makes slots of a resource, all or none. One that is there already with the same bounds and prices is taken for
/// made; the second value says whether any is new. `new` is asked for the slots once the resource's zone is known.
///
/// # Errors
/// [`ResourceRefusal`].
pub async fn create_slots(
    conn: &mut PgConnection,
    resource_id: &ResourceId,
    prices: &[Price],
    new: impl Fn(&Resource) -> Vec<NewSlot>,
    now: DateTime<Utc>,
) -> Result<(Vec<Slot>, bool), Error<ResourceRefusal>> {
    let (resource_no, resource) = store::find_resource(conn, resource_id)
        .await?
        .ok_or_else(|| Error::Refused(ResourceRefusal::UnknownResource(resource_id.clone())))?;
    let (mut slots, mut any_new) = (Vec::new(), false);
    // One order for everybody: two requests that make the same slots wait for each other only one way round.
    let mut wanted = new(&resource);
    wanted.sort_by_key(|slot| slot.starts_at);
    for NewSlot { starts_at, ends_at } in wanted {
        let slot = |slot_id| Slot { slot_id, resource_id: resource_id.clone(), starts_at, ends_at };
        // What is there already stays there, so that a repeat is answered the same after the slot has begun.
        if starts_at > now
            && let Some(slot_id) = store::insert_slot(conn, resource_no, starts_at, ends_at, now).await?
        {
            store::insert_prices(conn, slot_id, prices).await?;
            any_new = true;
            slots.push(slot(slot_id));
            continue;
        }
        let Some(slot_id) = store::find_slot_by_bounds(conn, resource_no, starts_at, ends_at).await? else {
            if starts_at <= now {
                return Err(Error::Refused(ResourceRefusal::Past { starts_at }));
            }
            let resource_id = resource_id.clone();
            return Err(Error::Refused(ResourceRefusal::Overlaps { resource_id, starts_at, ends_at }));
        };
        let mut asked = prices.to_vec();
        asked.sort();
        if store::prices(conn, &[slot_id]).await?.into_iter().map(|(_, price)| price).ne(asked) {
            return Err(Error::Refused(ResourceRefusal::PricesDiffer { starts_at }));
        }
        slots.push(slot(slot_id));
    }
    Ok((slots, any_new))
}

/// Takes a slot out of sale. It again changes nothing.
///
/// # Errors
/// [`WithdrawRefusal`]; nothing is written then.
pub async fn withdraw_slot(conn: &mut PgConnection, slot_id: i64, by: &str) -> Result<Slot, Error<WithdrawRefusal>> {
    if !store::lock_slot(conn, slot_id).await? {
        return Err(Error::Refused(WithdrawRefusal::UnknownSlot(slot_id)));
    }
    let standing = store::read_standing(conn, slot_id, None).await?;
    let now = store::database_now(conn).await?;
    standing.check_unwanted(slot_id, now).map_err(Error::Refused)?;
    store::withdraw_slot(conn, slot_id, by, now).await?;
    store::find_slot(conn, slot_id).await?.ok_or_else(|| Fault::new("a locked slot was not there to read").into())
}

/// Slots that anybody could order now, in the order of their starts.
///
/// # Errors
/// A fault.
pub async fn list_free(conn: &mut PgConnection, query: &FreeSlotQuery) -> Result<Vec<FreeSlot>, Fault> {
    let slots = store::list_free(conn, query).await?;
    let ids: Vec<i64> = slots.iter().map(|slot| slot.slot_id).collect();
    let prices = store::prices(conn, &ids).await?;
    let mut free: Vec<FreeSlot> = slots.into_iter().map(|slot| FreeSlot { slot, prices: Vec::new() }).collect();
    let places: std::collections::HashMap<i64, usize> =
        free.iter().enumerate().map(|(place, free)| (free.slot.slot_id, place)).collect();
    for (slot_id, price) in prices {
        if let Some(free) = places.get(&slot_id).and_then(|place| free.get_mut(*place)) {
            free.prices.push(price);
        }
    }
    Ok(free)
}

/// A slot. Reads only.
///
/// # Errors
/// A fault.
pub async fn find_slot(conn: &mut PgConnection, slot_id: i64) -> Result<Option<Slot>, Fault> {
    store::find_slot(conn, slot_id).await
}

/// What a slot costs in a currency.
///
/// # Errors
/// A fault.
pub async fn slot_price(
    conn: &mut PgConnection,
    slot_id: i64,
    currency: &CurrencyCode,
) -> Result<Option<MinorUnits>, Fault> {
    let prices = slot_prices(conn, slot_id).await?;
    Ok(prices.into_iter().find(|price| price.currency == *currency).map(|price| price.amount))
}

/// What a slot costs.
///
/// # Errors
/// A fault.
pub async fn slot_prices(conn: &mut PgConnection, slot_id: i64) -> Result<Vec<Price>, Fault> {
    Ok(store::prices(conn, &[slot_id]).await?.into_iter().map(|(_, price)| price).collect())
}

/// A slot under its lock.
#[derive(Debug)]
pub struct Locked {
    /// Its number.
    pub slot_id: i64,
    /// What is known about it.
    pub standing: Standing,
    /// The database's time, asked for after the lock.
    pub now: DateTime<Utc>,
}

/// Locks a slot until the transaction ends. The order's lock, if there is one, comes before it.
///
/// # Errors
/// A fault, also when there is no such slot.
pub async fn lock(conn: &mut PgConnection, slot_id: i64) -> Result<(), Fault> {
    if store::lock_slot(conn, slot_id).await? {
        Ok(())
    } else {
        Err(Fault::new("an order's slot was not there to be locked"))
    }
}

/// Locks a slot, then reads it and the time, each in a statement of its own after the lock (B2).
///
/// # Errors
/// A fault.
pub async fn lock_and_read(conn: &mut PgConnection, slot_id: i64, order_id: &OrderId) -> Result<Locked, Fault> {
    lock(conn, slot_id).await?;
    read(conn, slot_id, order_id).await
}

/// Reads a slot and the time without a lock: what is true now and may not be in a moment.
///
/// # Errors
/// A fault.
pub async fn read(conn: &mut PgConnection, slot_id: i64, order_id: &OrderId) -> Result<Locked, Fault> {
    let standing = store::read_standing(conn, slot_id, Some(order_id)).await?;
    let now = store::database_now(conn).await?;
    Ok(Locked { slot_id, standing, now })
}

/// Gives a locked slot to a checkout until a moment that [`Standing::hold`] decided.
///
/// # Errors
/// A fault.
pub async fn hold_for_checkout(
    conn: &mut PgConnection,
    slot: &Locked,
    order_id: &OrderId,
    held_until: DateTime<Utc>,
) -> Result<(), Fault> {
    store::insert_hold(conn, slot.slot_id, order_id, None, slot.now, held_until).await
}

/// Gives a locked slot to a payment for as long as that one lives. Whether it is free was asked of
/// [`Standing::check_free`] before the payment was written.
///
/// # Errors
/// A fault.
pub async fn hold_for_payment(
    conn: &mut PgConnection,
    slot: &Locked,
    order_id: &OrderId,
    payment_id: i64,
    lives_for: TimeDelta,
) -> Result<(), Fault> {
    // A promise that is at its very end holds for a moment all the same.
    let lives_for = lives_for.max(TimeDelta::seconds(1));
    let held_until = slot.now.checked_add_signed(lives_for).unwrap_or(slot.now);
    store::insert_hold(conn, slot.slot_id, order_id, Some(payment_id), slot.now, held_until).await
}

/// Ends the hold of a payment that will never be performed.
///
/// # Errors
/// A fault.
pub async fn end_hold_of_payment(conn: &mut PgConnection, slot_id: i64, payment_id: i64) -> Result<(), Fault> {
    lock(conn, slot_id).await?;
    store::end_hold_of_payment(conn, payment_id).await
}

/// Whether a checkout's hold of this order is alive. Reads only.
///
/// # Errors
/// A fault.
pub async fn is_held_by(conn: &mut PgConnection, order_id: &OrderId) -> Result<bool, Fault> {
    store::is_held_by(conn, order_id).await
}

/// What came of a booking.
#[derive(Debug)]
pub struct Booked {
    /// Its number.
    pub booking_id: i64,
    /// The slot.
    pub slot_id: i64,
}

/// Turns a hold into a booking.
///
/// # Errors
/// A fault; the hold was decided about by [`Standing::book`] under the same lock.
pub async fn book(conn: &mut PgConnection, slot: &Locked, hold: &Hold, payment_id: i64) -> Result<Booked, Fault> {
    store::end_hold(conn, hold.hold_id, slot.now).await?;
    let booking_id = store::insert_booking(conn, slot.slot_id, &hold.order_id, payment_id, slot.now).await?;
    Ok(Booked { booking_id, slot_id: slot.slot_id })
}

/// Frees the slot of a booking. The slot is locked, the booking not cancelled yet.
///
/// # Errors
/// A fault.
pub async fn cancel(
    conn: &mut PgConnection,
    booking_id: i64,
    by: &str,
    reason: &str,
    refund: RefundTo,
) -> Result<Booking, Fault> {
    let now = store::database_now(conn).await?;
    store::cancel_booking(conn, booking_id, now, by, reason, refund).await?;
    store::find_booking(conn, booking_id).await?.ok_or_else(|| Fault::new("a cancelled booking was not there to read"))
}

/// A booking. Reads only.
///
/// # Errors
/// A fault.
pub async fn find_booking(conn: &mut PgConnection, booking_id: i64) -> Result<Option<Booking>, Fault> {
    store::find_booking(conn, booking_id).await
}

/// The booking of an order. Reads only.
///
/// # Errors
/// A fault.
pub async fn find_booking_of_order(conn: &mut PgConnection, order_id: &OrderId) -> Result<Option<Booking>, Fault> {
    store::find_booking_of_order(conn, order_id).await
}

/// How a resource gives money back, for a slot of it.
///
/// # Errors
/// A fault.
pub async fn refund_until(conn: &mut PgConnection, slot_id: i64) -> Result<(DateTime<Utc>, TimeDelta), Fault> {
    store::refund_until(conn, slot_id).await
}

/// The database's time, for a decision under a lock that is held.
///
/// # Errors
/// A fault.
pub async fn database_now(conn: &mut PgConnection) -> Result<DateTime<Utc>, Fault> {
    store::database_now(conn).await
}
