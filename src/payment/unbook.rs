//! Cancelling a booking: its slot is free and its money goes where the policy says, in one transaction.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::prepaid::refund;
use super::slot::BOOKING_REFERENCE_PREFIX;
use super::{Payment, Refusal, State, order, prepaid, slot, store};
use crate::booking::{self, Booking, RefundTo};
use crate::fault::{Error, Fault};
use crate::funding;
use crate::ids::{Actor, OrderId, Pocket, Reason, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata};
use crate::money::CurrencyCode;
use crate::outbox::{Event, EventKind};

/// How much of a cancelled booking's money is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundWish {
    /// What the resource's policy says: all of it in time, nothing after that.
    Policy,
    /// All of it.
    Full,
    /// Nothing.
    Nothing,
}

/// A wish to cancel a booking.
#[derive(Debug, Clone)]
pub struct Unbook {
    /// Which.
    pub booking_id: i64,
    /// How much goes back.
    pub wish: RefundWish,
    /// Into the wallet instead of to the payer.
    pub into_wallet: bool,
    /// Why.
    pub reason: Reason,
}

/// Why a booking can't be cancelled like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnbookRefusal {
    /// No such booking.
    #[error("there is no booking {0}")]
    UnknownBooking(i64),
    /// Somebody was first.
    #[error("booking {booking_id} was cancelled on {}", cancelled_at.format("%Y-%m-%d %H:%M UTC"))]
    Cancelled {
        /// Which.
        booking_id: i64,
        /// When.
        cancelled_at: DateTime<Utc>,
    },
    /// Its provider takes money back only by itself.
    #[error(
        "booking {0} was paid through a provider that gives money back only by its own cancel: refund it into the \
         wallet, and then cancel the payment there"
    )]
    GoesThroughProvider(i64),
    /// The payment has gone back already.
    #[error("the payment of booking {0} has gone back to its payer already")]
    PaymentGone(i64),
    /// The ledger says no.
    #[error(transparent)]
    Payment(#[from] Refusal),
}

impl From<ledger::Refusal> for UnbookRefusal {
    fn from(refusal: ledger::Refusal) -> Self {
        Self::Payment(Refusal::Ledger(refusal))
    }
}

/// Cancels a booking.
///
/// # Errors
/// [`UnbookRefusal`]; nothing is written then.
pub async fn unbook(
    conn: &mut PgConnection,
    ask: &Unbook,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Booking, Error<UnbookRefusal>> {
    let booking_id = ask.booking_id;
    let unknown = || Error::Refused(UnbookRefusal::UnknownBooking(booking_id));
    let found = booking::find_booking(conn, booking_id).await?.ok_or_else(unknown)?;
    // Order, then payment, then slot, then wallet; what was found is read again behind the locks.
    order::lock(conn, &found.order_id).await?;
    let payment = store::lock_by_id(conn, found.payment_id)
        .await?
        .ok_or_else(|| Fault::new("a booking's payment was not there to be locked"))?;
    booking::lock(conn, found.slot_id).await?;
    let found = booking::find_booking(conn, booking_id).await?.ok_or_else(unknown)?;
    if let Some(cancelled_at) = found.cancelled_at {
        return Err(Error::Refused(UnbookRefusal::Cancelled { booking_id, cancelled_at }));
    }
    let refund = refund_to(conn, ask, &found, &payment).await?;
    let cancelled = booking::cancel(conn, booking_id, actor.as_str(), ask.reason.as_str(), refund).await?;
    let event = cancelled_event(&payment, &cancelled, refund);
    let pocket = match refund {
        RefundTo::Nobody => {
            crate::outbox::write(conn, &[event], now).await?;
            return Ok(cancelled);
        }
        RefundTo::Wallet => Pocket::main(),
        RefundTo::Payer => Pocket::set_aside(),
    };
    let reference = slot::reference(booking_id)?;
    let (seq, _) = ledger::find(conn, &payment.tenant_id, &payment.currency, &Kind::Booking, &reference)
        .await?
        .ok_or_else(|| Fault::new("a booking has no row of what it cost"))?;
    let entry = Entry {
        tenant_id: payment.tenant_id.clone(),
        currency: payment.currency.clone(),
        kind: Kind::Refund,
        amount: payment.amount,
        pocket,
        reference,
        original_seq: Some(seq),
        reason: Some(ask.reason.clone()),
        metadata: Metadata::empty(),
        floor: Floor::Zero,
    };
    funding::post(conn, &[entry], vec![event], actor, now).await.map_err(Error::widen)?;
    if refund == RefundTo::Payer {
        refund::ask(conn, payment.payment_id, "the booking was cancelled", actor.as_str(), now).await?;
    }
    Ok(cancelled)
}

/// Where the money of a booking that is being cancelled goes.
async fn refund_to(
    conn: &mut PgConnection,
    ask: &Unbook,
    found: &Booking,
    payment: &Payment,
) -> Result<RefundTo, Error<UnbookRefusal>> {
    let all = match ask.wish {
        RefundWish::Full => true,
        RefundWish::Nothing => false,
        RefundWish::Policy => {
            let (starts_at, until) = booking::refund_until(conn, found.slot_id).await?;
            starts_at.signed_duration_since(booking::database_now(conn).await?) >= until
        }
    };
    if !all {
        return Ok(RefundTo::Nobody);
    }
    if ask.into_wallet {
        return Ok(RefundTo::Wallet);
    }
    if !prepaid::is_prepaid(conn, payment.payment_id).await? {
        return Err(Error::Refused(UnbookRefusal::GoesThroughProvider(found.booking_id)));
    }
    match payment.state {
        State::Performed { .. } => Ok(RefundTo::Payer),
        State::Created | State::Cancelled { .. } | State::Refunded { .. } => {
            Err(Error::Refused(UnbookRefusal::PaymentGone(found.booking_id)))
        }
    }
}

fn cancelled_event(payment: &Payment, booking: &Booking, refund: RefundTo) -> Event {
    Event {
        tenant_id: payment.tenant_id.clone(),
        kind: EventKind::BookingCancelled,
        about: serde_json::json!({
            "booking_id": booking.booking_id,
            "slot_id": booking.slot_id,
            "order_id": payment.order_id.as_ref().map(OrderId::as_str),
            "refund": refund.as_str(),
            "amount_minor_units": payment.amount.get(),
            "currency": payment.currency.as_str(),
        }),
    }
}

/// Whether a row is what a booking cost that still stands: it isn't given back before the booking is cancelled, which
/// frees the slot in the same step (C105).
///
/// # Errors
/// A fault.
pub async fn is_of_standing_booking(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    seq: i64,
) -> Result<bool, Fault> {
    let row = ledger::row(conn, tenant_id, currency, seq).await?;
    let number = row
        .filter(|row| row.kind == Kind::Booking)
        .and_then(|row| row.reference.as_str().strip_prefix(BOOKING_REFERENCE_PREFIX)?.parse::<i64>().ok());
    let Some(booking_id) = number else { return Ok(false) };
    let booking = booking::find_booking(conn, booking_id).await?;
    Ok(booking.is_some_and(|booking| booking.cancelled_at.is_none()))
}
