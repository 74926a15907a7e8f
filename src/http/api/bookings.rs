//! Bookings: who has a slot, and giving it up.

use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::booking::{self, Booking, RefundTo};
use crate::fault::{Error, Fault, Widen as _};
use crate::http::error::Problem;
use crate::http::extract::{
    Caller, IdempotencyKey, Json, Named, NoParameters, PathName, PaymentsWrite, Query, TenantsRead,
};
use crate::idempotency::{self, Answer, Claim, Claimed, KeyReused};
use crate::ids::{InvalidName, Reason};
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

/// Why a cancellation isn't done.
#[derive(Debug, thiserror::Error)]
enum CancelRefusal {
    #[error(transparent)]
    Key(#[from] KeyReused),
    #[error(transparent)]
    Unbook(#[from] UnbookRefusal),
}

impl From<CancelRefusal> for Problem {
    fn from(refusal: CancelRefusal) -> Self {
        match refusal {
            CancelRefusal::Key(reused) => reused.into(),
            CancelRefusal::Unbook(refusal) => refusal.into(),
        }
    }
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
    let (app, actor) = (caller.app.clone(), caller.actor());
    // Money moves, so it runs to its end whoever hangs up (L8).
    let answer = caller
        .app
        .run_to_end(async move {
            let (ask, claim, actor, clock) = (&ask, &claim, &actor, &app.clock);
            app.db
                .run("booking_cancel", |conn| {
                    async move {
                        let now = clock.now();
                        if let Claimed::Answered(answer) = idempotency::claim(conn, claim, now).await.widen()? {
                            return Ok(answer);
                        }
                        let booking = unbook(conn, ask, actor, now).await.widen()?;
                        let body = serde_json::to_string(&BookingBody::new(&booking))
                            .map_err(|error| Fault::new("a booking's answer can't be written").because(error))?;
                        let answer = Answer { status: StatusCode::OK.as_u16(), body, replayed: false };
                        idempotency::finish_all(conn, &[(claim, &answer)]).await?;
                        Ok::<_, Error<CancelRefusal>>(answer)
                    }
                    .scope_boxed()
                })
                .await
        })
        .await??;
    Ok(super::answered(answer))
}
