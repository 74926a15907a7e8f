//! Every statement about resources, slots, holds and bookings.
//!
//! The locks are taken in one order everywhere: the order first ([`crate::payment::order`]), then its payment, then
//! the slot ([`lock_slot`]), then the wallet. Two that take them the other way round would wait for each other.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::state::{Hold, Standing};
use super::{Booking, FreeSlotQuery, Price, RefundTo, Resource, Slot};
use crate::fault::Fault;
use crate::ids::{OrderId, ResourceId};
use crate::money::{CurrencyCode, MinorUnits};
use crate::tenant::TimeZone;

/// The database's time. Asked for after a lock, it is a statement of its own: the one that waited for the lock has
/// the time at which its wait began.
pub async fn database_now(conn: &mut PgConnection) -> Result<DateTime<Utc>, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- booking::database_now
           SELECT database_now() AS "now!""#
    )
    .fetch_one(conn)
    .await?)
}

pub async fn insert_resource(conn: &mut PgConnection, resource: &Resource) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- booking::insert_resource
         INSERT INTO resources (resource_id, name, time_zone, refund_until_secs, created_at)
         VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT ON CONSTRAINT resources_pkey DO NOTHING",
        resource.resource_id.as_str(),
        resource.name,
        resource.time_zone.as_str(),
        resource.refund_until.num_seconds(),
        resource.created_at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A resource and its number.
pub async fn find_resource(
    conn: &mut PgConnection,
    resource_id: &ResourceId,
) -> Result<Option<(i64, Resource)>, Fault> {
    sqlx::query!(
        "-- booking::find_resource
         SELECT resource_no, resource_id, name, time_zone, refund_until_secs, created_at
           FROM resources WHERE resource_id = $1",
        resource_id.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(|row| {
        let resource = Resource {
            resource_id: ResourceId::from_column(row.resource_id)?,
            name: row.name,
            time_zone: TimeZone::parse(&row.time_zone)
                .map_err(|error| Fault::new("a stored time zone is none").because(error))?,
            refund_until: TimeDelta::seconds(row.refund_until_secs),
            created_at: row.created_at,
        };
        Ok((row.resource_no, resource))
    })
    .transpose()
}

/// Inserts a slot; `None` when it would overlap another, or is there.
pub async fn insert_slot(
    conn: &mut PgConnection,
    resource_no: i64,
    starts_at: DateTime<Utc>,
    ends_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Option<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- booking::insert_slot
         INSERT INTO slots (resource_no, starts_at, ends_at, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT ON CONSTRAINT slots_do_not_overlap DO NOTHING
         RETURNING slot_id",
        resource_no,
        starts_at,
        ends_at,
        now,
    )
    .fetch_optional(conn)
    .await?)
}

pub async fn find_slot_by_bounds(
    conn: &mut PgConnection,
    resource_no: i64,
    starts_at: DateTime<Utc>,
    ends_at: DateTime<Utc>,
) -> Result<Option<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- booking::find_slot_by_bounds
         SELECT slot_id FROM slots
          WHERE resource_no = $1 AND starts_at = $2 AND ends_at = $3 AND withdrawn_at IS NULL",
        resource_no,
        starts_at,
        ends_at,
    )
    .fetch_optional(conn)
    .await?)
}

/// Takes a locked slot out of sale; one that is out already keeps when and by whom.
pub async fn withdraw_slot(conn: &mut PgConnection, slot_id: i64, by: &str, now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- booking::withdraw_slot
         UPDATE slots SET withdrawn_at = $2, withdrawn_by = $3 WHERE slot_id = $1 AND withdrawn_at IS NULL",
        slot_id,
        now,
        by,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn insert_prices(conn: &mut PgConnection, slot_id: i64, prices: &[Price]) -> Result<(), Fault> {
    let currencies: Vec<String> = prices.iter().map(|price| price.currency.to_string()).collect();
    let amounts: Vec<i64> = prices.iter().map(|price| price.amount.get()).collect();
    sqlx::query!(
        "-- booking::insert_prices
         INSERT INTO slot_prices (slot_id, currency, amount)
         SELECT $1, p.currency, p.amount FROM unnest($2::text[], $3::bigint[]) AS p (currency, amount)",
        slot_id,
        &currencies,
        &amounts,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The prices of some slots, by slot and currency.
pub async fn prices(conn: &mut PgConnection, slot_ids: &[i64]) -> Result<Vec<(i64, Price)>, Fault> {
    sqlx::query!(
        "-- booking::prices
         SELECT slot_id, currency, amount FROM slot_prices WHERE slot_id = ANY ($1) ORDER BY slot_id, currency",
        slot_ids,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        let currency = CurrencyCode::from_column(row.currency)?;
        Ok((row.slot_id, Price { currency, amount: MinorUnits::new(row.amount) }))
    })
    .collect()
}

pub async fn find_slot(conn: &mut PgConnection, slot_id: i64) -> Result<Option<Slot>, Fault> {
    sqlx::query!(
        "-- booking::find_slot
         SELECT s.slot_id, r.resource_id, s.starts_at, s.ends_at
           FROM slots s JOIN resources r ON r.resource_no = s.resource_no
          WHERE s.slot_id = $1",
        slot_id,
    )
    .fetch_optional(conn)
    .await?
    .map(|row| {
        Ok(Slot {
            slot_id: row.slot_id,
            resource_id: ResourceId::from_column(row.resource_id)?,
            starts_at: row.starts_at,
            ends_at: row.ends_at,
        })
    })
    .transpose()
}

pub async fn list_free(conn: &mut PgConnection, query: &FreeSlotQuery) -> Result<Vec<Slot>, Fault> {
    let (after_start, after_id) = query.after.unzip();
    sqlx::query!(
        "-- booking::list_free
         SELECT s.slot_id, r.resource_id, s.starts_at, s.ends_at
           FROM slots s JOIN resources r ON r.resource_no = s.resource_no
          WHERE s.starts_at > database_now() AND s.withdrawn_at IS NULL
            AND ($1::text IS NULL OR r.resource_id = $1)
            AND ($2::timestamptz IS NULL OR s.starts_at >= $2)
            AND ($3::timestamptz IS NULL OR s.starts_at < $3)
            AND ($4::timestamptz IS NULL OR (s.starts_at, s.slot_id) > ($4, $5))
            AND NOT EXISTS (SELECT FROM bookings b WHERE b.slot_id = s.slot_id AND b.cancelled_at IS NULL)
            AND NOT EXISTS (SELECT FROM slot_holds h
                             WHERE h.slot_id = s.slot_id AND h.ended_at IS NULL AND h.held_until > database_now())
          ORDER BY s.starts_at, s.slot_id
          LIMIT $6",
        query.resource_id.as_ref().map(ResourceId::as_str),
        query.from,
        query.to,
        after_start,
        after_id,
        query.limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Slot {
            slot_id: row.slot_id,
            resource_id: ResourceId::from_column(row.resource_id)?,
            starts_at: row.starts_at,
            ends_at: row.ends_at,
        })
    })
    .collect()
}

/// Locks a slot until the transaction ends; whoever wants it locks its order before. Its holds are looked at after
/// that, in another statement.
pub async fn lock_slot(conn: &mut PgConnection, slot_id: i64) -> Result<bool, Fault> {
    let row = sqlx::query_scalar!(
        "-- booking::lock_slot
         SELECT slot_id FROM slots WHERE slot_id = $1 FOR NO KEY UPDATE",
        slot_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.is_some())
}

/// What is known about a locked slot.
pub async fn read_standing(
    conn: &mut PgConnection,
    slot_id: i64,
    order_id: Option<&OrderId>,
) -> Result<Standing, Fault> {
    let row = sqlx::query!(
        r#"-- booking::read_standing
           SELECT s.starts_at, s.withdrawn_at IS NOT NULL AS "withdrawn!", b.order_id AS "booked_by?",
                  EXISTS (SELECT FROM slot_holds h WHERE h.order_id = $2 AND h.payment_id IS NULL)
                      AS "approved_before!"
             FROM slots s
             LEFT JOIN bookings b ON b.slot_id = s.slot_id AND b.cancelled_at IS NULL
            WHERE s.slot_id = $1"#,
        slot_id,
        order_id.map(OrderId::as_str),
    )
    .fetch_one(&mut *conn)
    .await?;
    let holds = sqlx::query!(
        "-- booking::read_holds
         SELECT hold_id, order_id, payment_id, held_until FROM slot_holds
          WHERE slot_id = $1 AND ended_at IS NULL
          ORDER BY held_until DESC LIMIT 10",
        slot_id,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|hold| {
        Ok(Hold {
            hold_id: hold.hold_id,
            order_id: OrderId::from_column(hold.order_id)?,
            payment_id: hold.payment_id,
            held_until: hold.held_until,
        })
    })
    .collect::<Result<_, Fault>>()?;
    Ok(Standing {
        starts_at: row.starts_at,
        withdrawn: row.withdrawn,
        booked_by: row.booked_by.map(OrderId::from_column).transpose()?,
        holds,
        approved_before: row.approved_before,
    })
}

pub async fn insert_hold(
    conn: &mut PgConnection,
    slot_id: i64,
    order_id: &OrderId,
    payment_id: Option<i64>,
    held_at: DateTime<Utc>,
    held_until: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- booking::insert_hold
         INSERT INTO slot_holds (slot_id, order_id, payment_id, held_at, held_until) VALUES ($1, $2, $3, $4, $5)",
        slot_id,
        order_id.as_str(),
        payment_id,
        held_at,
        held_until,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn end_hold(conn: &mut PgConnection, hold_id: i64, at: DateTime<Utc>) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- booking::end_hold
         UPDATE slot_holds SET ended_at = greatest($2, held_at) WHERE hold_id = $1 AND ended_at IS NULL",
        hold_id,
        at,
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn end_hold_of_payment(conn: &mut PgConnection, payment_id: i64) -> Result<(), Fault> {
    sqlx::query!(
        "-- booking::end_hold_of_payment
         UPDATE slot_holds SET ended_at = greatest(database_now(), held_at)
          WHERE payment_id = $1 AND ended_at IS NULL",
        payment_id,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn is_held_by(conn: &mut PgConnection, order_id: &OrderId) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- booking::is_held_by
           SELECT EXISTS (SELECT FROM slot_holds
                           WHERE order_id = $1 AND payment_id IS NULL AND ended_at IS NULL
                             AND held_until > database_now()) AS "held!""#,
        order_id.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

pub async fn insert_booking(
    conn: &mut PgConnection,
    slot_id: i64,
    order_id: &OrderId,
    payment_id: i64,
    at: DateTime<Utc>,
) -> Result<i64, Fault> {
    Ok(sqlx::query_scalar!(
        "-- booking::insert_booking
         INSERT INTO bookings (slot_id, order_id, payment_id, booked_at) VALUES ($1, $2, $3, $4)
         RETURNING booking_id",
        slot_id,
        order_id.as_str(),
        payment_id,
        at,
    )
    .fetch_one(conn)
    .await?)
}

struct BookingRow {
    booking_id: i64,
    slot_id: i64,
    order_id: String,
    payment_id: i64,
    booked_at: DateTime<Utc>,
    cancelled_at: Option<DateTime<Utc>>,
    refund: Option<String>,
}

impl TryFrom<BookingRow> for Booking {
    type Error = Fault;

    fn try_from(row: BookingRow) -> Result<Self, Fault> {
        Ok(Self {
            booking_id: row.booking_id,
            slot_id: row.slot_id,
            order_id: OrderId::from_column(row.order_id)?,
            payment_id: row.payment_id,
            booked_at: row.booked_at,
            cancelled_at: row.cancelled_at,
            refund: row.refund.as_deref().map(RefundTo::from_column).transpose()?,
        })
    }
}

pub async fn find_booking(conn: &mut PgConnection, booking_id: i64) -> Result<Option<Booking>, Fault> {
    sqlx::query_as!(
        BookingRow,
        "-- booking::find_booking
         SELECT booking_id, slot_id, order_id, payment_id, booked_at, cancelled_at, refund
           FROM bookings WHERE booking_id = $1",
        booking_id,
    )
    .fetch_optional(conn)
    .await?
    .map(Booking::try_from)
    .transpose()
}

pub async fn find_booking_of_order(conn: &mut PgConnection, order_id: &OrderId) -> Result<Option<Booking>, Fault> {
    sqlx::query_as!(
        BookingRow,
        "-- booking::find_booking_of_order
         SELECT booking_id, slot_id, order_id, payment_id, booked_at, cancelled_at, refund
           FROM bookings WHERE order_id = $1",
        order_id.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(Booking::try_from)
    .transpose()
}

pub async fn cancel_booking(
    conn: &mut PgConnection,
    booking_id: i64,
    at: DateTime<Utc>,
    by: &str,
    reason: &str,
    refund: RefundTo,
) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- booking::cancel_booking
         UPDATE bookings SET cancelled_at = $2, cancelled_by = $3, cancel_reason = $4, refund = $5
          WHERE booking_id = $1 AND cancelled_at IS NULL",
        booking_id,
        at,
        by,
        reason,
        refund.as_str(),
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn refund_until(conn: &mut PgConnection, slot_id: i64) -> Result<(DateTime<Utc>, TimeDelta), Fault> {
    let row = sqlx::query!(
        "-- booking::refund_until
         SELECT s.starts_at, r.refund_until_secs
           FROM slots s JOIN resources r ON r.resource_no = s.resource_no
          WHERE s.slot_id = $1",
        slot_id,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.starts_at, TimeDelta::seconds(row.refund_until_secs)))
}

fn expect_one(rows: u64) -> Result<(), Fault> {
    if rows == 1 { Ok(()) } else { Err(Fault::new("a locked row was not there to be updated")) }
}
