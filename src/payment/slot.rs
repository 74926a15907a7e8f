//! Payments of orders that are an attempt to get a slot: the slot is theirs for as long as the payment lives, and
//! for good when it is performed (B6).

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{Mode, Payment, Refusal, Terms, order};
use crate::booking::{self, Booked, Locked, RefundTo};
use crate::fault::{Error, Fault};
use crate::ids::{OrderId, Pocket, Reference};
use crate::ledger::{self, Entry, Floor, Kind, Metadata};
use crate::money::MinorUnits;
use crate::outbox::{Event, EventKind};

/// How the references of rows begin that say what a slot cost.
pub const BOOKING_REFERENCE_PREFIX: &str = "booking:";

/// Whether an order's slot could be had now. Takes no lock and writes nothing.
pub async fn check_free(conn: &mut PgConnection, slot_id: i64, order_id: &OrderId) -> Result<(), Error<Refusal>> {
    let slot = booking::read(conn, slot_id, order_id).await?;
    let free = slot.standing.check_free(slot.now);
    free.map_err(|why| Error::Refused(Refusal::of_slot(order_id, why)))
}

/// Locks an order's slot when it is to be had.
pub async fn lock_free(conn: &mut PgConnection, slot_id: i64, order_id: &OrderId) -> Result<Locked, Error<Refusal>> {
    let slot = booking::lock_and_read(conn, slot_id, order_id).await?;
    slot.standing.check_free(slot.now).map_err(|why| Error::Refused(Refusal::of_slot(order_id, why)))?;
    Ok(slot)
}

/// Gives a new payment its locked slot. One that isn't money holds nothing.
pub async fn hold(
    conn: &mut PgConnection,
    slot: &Locked,
    order_id: &OrderId,
    payment: &Payment,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    match payment.mode {
        Mode::Test => Ok(()),
        Mode::Live => {
            // Counted from the provider's own time, like the payment's expiry.
            let age = now.signed_duration_since(payment.external_created_at);
            let lives_for = terms.lifetime.checked_sub(&age).unwrap_or(terms.lifetime);
            // What has begun isn't sold (B2), however late its payer comes back.
            let lives_for = lives_for.min(slot.standing.starts_at.signed_duration_since(slot.now));
            booking::hold_for_payment(conn, slot, order_id, payment.payment_id, lives_for).await
        }
    }
}

/// The slot of a payment's order, if it has one.
async fn slot_of(conn: &mut PgConnection, payment: &Payment) -> Result<Option<(i64, OrderId)>, Fault> {
    let Some(order_id) = &payment.order_id else { return Ok(None) };
    let order = order::find(conn, order_id).await?;
    Ok(order.and_then(|order| order.slot_id).map(|slot_id| (slot_id, order_id.clone())))
}

/// Frees the slot of a payment that will never be performed.
pub async fn release(conn: &mut PgConnection, payment: &Payment) -> Result<(), Fault> {
    match (payment.mode, slot_of(conn, payment).await?) {
        (Mode::Live, Some((slot_id, _))) => booking::end_hold_of_payment(conn, slot_id, payment.payment_id).await,
        (Mode::Live, None) | (Mode::Test, _) => Ok(()),
    }
}

/// What became of the slot of a payment that is being performed.
pub enum Outcome {
    /// Its order isn't about one.
    NoSlot,
    /// The payment has it for good.
    Booked(Booked),
    /// The payment has it no more.
    Over,
}

/// Turns the hold of a live payment into a booking. The payment is locked.
pub async fn book(conn: &mut PgConnection, payment: &Payment) -> Result<Outcome, Fault> {
    let Some((slot_id, order_id)) = slot_of(conn, payment).await? else { return Ok(Outcome::NoSlot) };
    let slot = booking::lock_and_read(conn, slot_id, &order_id).await?;
    match slot.standing.book(&order_id, Some(payment.payment_id), slot.now) {
        Ok(hold) => Ok(Outcome::Booked(booking::book(conn, &slot, hold, payment.payment_id).await?)),
        Err(_) => Ok(Outcome::Over),
    }
}

/// Where the money of a performed payment is, as far as slots are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpentOn {
    /// It bought no slot, or it is back in the wallet.
    Nothing,
    /// A booking that stands.
    Booking,
    /// A booking that was cancelled, and its money is to go to the payer.
    BookingGivenBack,
    /// A booking that was cancelled, and its money stays spent.
    CancelledBooking,
}

/// What a performed payment's money was spent on. While it is a slot its provider can't take the payment back: other
/// money that may be in the wallet is not this payment's. The payment is locked, and whoever cancels a booking locks
/// it, too.
pub async fn spent_on(conn: &mut PgConnection, payment: &Payment) -> Result<SpentOn, Fault> {
    let Some(order_id) = &payment.order_id else { return Ok(SpentOn::Nothing) };
    let Some(booking) = booking::find_booking_of_order(conn, order_id).await? else { return Ok(SpentOn::Nothing) };
    match booking.refund {
        Some(RefundTo::Wallet) => Ok(SpentOn::Nothing),
        None => Ok(SpentOn::Booking),
        Some(RefundTo::Payer) => Ok(SpentOn::BookingGivenBack),
        Some(RefundTo::Nobody) => {
            // The desk may have given it back into the wallet since.
            let (tenant_id, currency) = (&payment.tenant_id, &payment.currency);
            let (seq, amount) =
                ledger::find(conn, tenant_id, currency, &Kind::Booking, &reference(booking.booking_id)?)
                    .await?
                    .ok_or_else(|| Fault::new("a booking has no row of what it cost"))?;
            let back = ledger::given_back(conn, tenant_id, currency, seq).await?;
            let all = amount.checked_add(back).is_some_and(MinorUnits::is_zero);
            Ok(if all { SpentOn::Nothing } else { SpentOn::CancelledBooking })
        }
    }
}

/// `booking:<number>`.
pub fn reference(booking_id: i64) -> Result<Reference, Fault> {
    Reference::parse(format!("{BOOKING_REFERENCE_PREFIX}{booking_id}"))
        .map_err(|error| Fault::new("a booking's reference breaks its rule").because(error))
}

/// The row that spends a payment on its slot. It spends the very money that has just come in, whatever else the
/// wallet owes, so it has no floor.
pub fn spending(payment: &Payment, booked: &Booked) -> Result<Entry, Fault> {
    let amount = payment.amount.checked_neg().ok_or_else(|| Fault::new("a payment's amount has no opposite"))?;
    let mut about = serde_json::Map::new();
    about.insert("payment_id".to_owned(), payment.payment_id.to_string().into());
    about.insert("slot_id".to_owned(), booked.slot_id.into());
    if let Some(order_id) = &payment.order_id {
        about.insert("order_id".to_owned(), order_id.as_str().into());
    }
    let metadata = Metadata::from_object(&about)
        .map_err(|error| Fault::new("a booking's metadata breaks its rule").because(error))?;
    Ok(Entry {
        tenant_id: payment.tenant_id.clone(),
        currency: payment.currency.clone(),
        kind: Kind::Booking,
        amount,
        pocket: Pocket::main(),
        reference: reference(booked.booking_id)?,
        original_seq: None,
        reason: None,
        metadata,
        floor: Floor::None,
    })
}

/// What those outside hear of a booking.
pub fn confirmed(payment: &Payment, booked: &Booked) -> Event {
    Event {
        tenant_id: payment.tenant_id.clone(),
        kind: EventKind::BookingConfirmed,
        about: serde_json::json!({
            "booking_id": booked.booking_id,
            "slot_id": booked.slot_id,
            "order_id": payment.order_id.as_ref().map(OrderId::as_str),
            "payment_id": payment.payment_id.to_string(),
            "amount_minor_units": payment.amount.get(),
            "currency": payment.currency.as_str(),
        }),
    }
}

/// Bookings whose row isn't there or is of another amount, and rows of bookings that aren't there: the name of each.
///
/// # Errors
/// A fault of reading.
pub async fn bookings_amiss(conn: &mut PgConnection) -> Result<Vec<String>, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- payment::bookings_amiss
           SELECT coalesce('booking:' || b.booking_id, x.reference) AS "row!"
             FROM (SELECT b.booking_id, -p.amount AS amount, w.wallet_id
                     FROM bookings b
                     JOIN payments p ON p.payment_id = b.payment_id
                     LEFT JOIN wallets w ON w.tenant_id = p.tenant_id AND w.currency = p.currency) b
             FULL JOIN (SELECT * FROM wallet_transactions
                         WHERE kind = 'booking' AND starts_with(reference, 'booking:')) x
               ON x.wallet_id = b.wallet_id AND x.reference = 'booking:' || b.booking_id
            WHERE x.amount IS DISTINCT FROM b.amount
            ORDER BY 1"#
    )
    .fetch_all(conn)
    .await?)
}
