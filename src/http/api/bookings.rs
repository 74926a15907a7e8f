//! Bookings: who has a slot, and giving it up.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::audit::{Line, Who};
use crate::booking::{self, Booking, RefundTo};
use crate::fault::{Error, Fault};
use crate::http::deed::{self, Deed};
use crate::http::error::Problem;
use crate::http::extract::{
    Caller, IdempotencyKey, Json, Named, NoParameters, PathName, PaymentsWrite, Query, TenantsRead,
};
use crate::http::{PeerAddress, RequestId};
use crate::idempotency::{Answer, Claim};
use crate::ids::{Actor, InvalidName, Reason};
use crate::payment::{RefundWish, Unbook, UnbookRefusal, unbook};

/// The number of a booking in a path.
#[derive(Debug)]
pub struct BookingNumber(pub i64);

impl PathName for BookingNumber {
    const NOT_FOUND: &'static str = "booking_not_found";
    fn parse(text: &str) -> Result<Self, InvalidName> {
        text.parse().map(Self).map_err(|_| InvalidName { what: "the booking", rule: "must be a number" })
    }
}

/// A booking.
#[derive(Debug, Serialize, ToSchema)]
pub struct BookingBody {
    /// Its number.
    pub booking_id: i64,
    /// The slot.
    pub slot_id: i64,
    /// The order that got it.
    pub order_id: String,
    /// booked or cancelled.
    pub status: String,
    /// When.
    pub booked_at: DateTime<Utc>,
    /// When it was cancelled.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// Where its money went: payer, wallet or none.
    pub refund: Option<String>,
}

impl BookingBody {
    fn new(booking: &Booking) -> Self {
        let status = if booking.cancelled_at.is_some() { "cancelled" } else { "booked" };
        Self {
            booking_id: booking.booking_id,
            slot_id: booking.slot_id,
            order_id: booking.order_id.to_string(),
            status: status.to_owned(),
            booked_at: booking.booked_at,
            cancelled_at: booking.cancelled_at,
            refund: booking.refund.map(|refund| refund.as_str().to_owned()),
        }
    }
}

/// How a booking is cancelled.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancellation {
    /// policy (everything in time, nothing after that), full or none; policy when left out.
    pub refund: Option<String>,
    /// payer (through the provider) or wallet; payer when left out. What Payme has paid goes into the wallet, from
    /// which Payme's own cancel can take it.
    pub refund_to: Option<String>,
    /// Why, in a sentence.
    #[schema(example = "the client fell ill")]
    pub reason: String,
}

/// A booking.
#[utoipa::path(get, path = "/v1/bookings/{booking_id}", tag = "bookings", params(("booking_id" = i64, Path)),
    responses((status = 200, body = BookingBody),
        (status = 404, description = "booking_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<TenantsRead>,
    _: Query<NoParameters>,
    Named(BookingNumber(booking_id)): Named<BookingNumber>,
) -> Result<axum::Json<BookingBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let booking =
        booking::find_booking(&mut conn, booking_id).await?.ok_or(UnbookRefusal::UnknownBooking(booking_id))?;
    Ok(axum::Json(BookingBody::new(&booking)))
}

/// Cancels a booking: its slot is free at once, and its money goes where it was said. The same key with the same
/// body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/bookings/{booking_id}/cancel", tag = "bookings", request_body = Cancellation,
    params(("booking_id" = i64, Path),
        ("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 200, body = BookingBody),
        (status = 404, description = "booking_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "booking_cancelled, payment_gone, idempotency_key_reused", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "goes_through_provider", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn cancel(
    caller: Caller<PaymentsWrite>,
    peer: PeerAddress,
    request_id: RequestId,
    _: Query<NoParameters>,
    Named(BookingNumber(booking_id)): Named<BookingNumber>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<Cancellation>,
) -> Result<Response, Problem> {
    let body = json.body;
    if body.refund.as_deref() == Some("none") && body.refund_to.is_some() {
        return Err(Problem::invalid_field("refund_to", "goes with a refund, and refund is none"));
    }
    let ask = Unbook {
        booking_id,
        wish: match body.refund.as_deref() {
            None | Some("policy") => RefundWish::Policy,
            Some("full") => RefundWish::Full,
            Some("none") => RefundWish::Nothing,
            Some(_) => return Err(Problem::invalid_field("refund", "must be policy, full or none")),
        },
        into_wallet: match body.refund_to.as_deref() {
            None => false,
            Some(to) if to == RefundTo::Payer.as_str() => false,
            Some(to) if to == RefundTo::Wallet.as_str() => true,
            Some(_) => return Err(Problem::invalid_field("refund_to", "must be payer or wallet")),
        },
        reason: super::field("reason", Reason::parse(body.reason))?,
    };
    let operation = format!("POST /v1/bookings/{booking_id}/cancel");
    let claim = Claim::new(caller.client.to_string(), key, operation, json.value);
    let deed = CancelBooking { ask, who: super::who(&caller, peer, request_id), actor: caller.actor() };
    match deed::perform(&caller.app, deed, claim).await {
        Ok(answer) => Ok(super::answered(answer)),
        Err(error) => Err(error.into()),
    }
}

/// The decision that a booking is given up, and who makes it.
#[derive(Debug)]
struct CancelBooking {
    ask: Unbook,
    who: Who,
    actor: Actor,
}

impl Deed for CancelBooking {
    const NAME: &'static str = "booking_cancel";
    type Refusal = UnbookRefusal;

    fn who(&self) -> &Who {
        &self.who
    }

    async fn line(&self, conn: &mut PgConnection, refusal: Option<&UnbookRefusal>) -> Result<Line, Fault> {
        let booking_id = self.ask.booking_id;
        let (about, tenant_id) = match booking::find_booking(conn, booking_id).await? {
            None => (format!("cancel booking {booking_id}"), None),
            Some(found) => {
                let (payment, tenant_id) = deed::payment_words(conn, found.payment_id).await?;
                let to = match (refusal, found.refund) {
                    (None, Some(to)) => format!(", its money goes to: {}", to.as_str()),
                    (None, None) | (Some(_), _) => String::new(),
                };
                let (slot_id, order_id) = (found.slot_id, &found.order_id);
                (format!("cancel booking {booking_id} of slot {slot_id}, order {order_id}, {payment}{to}"), tenant_id)
            }
        };
        let words = deed::words(&about, refusal, Some(("reason", &self.ask.reason)));
        Ok(Line { action: "booking.cancel", allowed: refusal.is_none(), tenant_id, words })
    }

    async fn perform(&self, conn: &mut PgConnection, now: DateTime<Utc>) -> Result<Answer, Error<UnbookRefusal>> {
        let booking = unbook(conn, &self.ask, &self.actor, now).await?;
        Ok(deed::answer(StatusCode::OK, &BookingBody::new(&booking))?)
    }
}
