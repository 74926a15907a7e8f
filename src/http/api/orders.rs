//! Orders: one-time accounts that a provider sells.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::booking::{self, Booking};
use crate::http::error::Problem;
use crate::http::extract::{Caller, Json, Named, NoParameters, PaymentsWrite, Query, TenantsRead};
use crate::ids::{OrderId, TenantId};
use crate::money::{Currency, MinorUnits};
use crate::payment::order::{self, Order, OrderStatus};
use crate::provider::telegram;
use crate::tenant::check_name;

/// An order to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOrder {
    /// The product's own id: 1 to 64 of A-Z a-z 0-9 . _ : @ + -
    #[schema(example = "order-197")]
    pub order_id: String,
    /// Whose wallet the payment is credited to.
    #[schema(example = "acme")]
    pub tenant_id: String,
    /// UZS when left out.
    #[schema(example = "UZS")]
    pub currency: Option<String>,
    /// The price as decimal text; that of the slot when left out.
    #[schema(example = "150000.00")]
    pub amount: Option<String>,
    /// What is sold.
    #[schema(example = "One hour, 1 December, 10:00")]
    pub title: String,
    /// Not payable from this moment on.
    pub expires_at: Option<DateTime<Utc>>,
    /// The slot that this is an attempt to get. Another attempt is another order.
    pub slot_id: Option<i64>,
    /// Who alone may pay it, by the provider's id of a payer (a Telegram user's number, for example). An order
    /// of a slot in stars has one.
    #[schema(example = "700123456")]
    pub payer: Option<String>,
}

/// An order.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderBody {
    /// The product's own id.
    pub order_id: String,
    /// Whose wallet the payment is credited to.
    pub tenant_id: String,
    /// The currency.
    pub currency: String,
    /// The price as decimal text.
    pub amount: String,
    /// What is sold.
    pub title: String,
    /// open, busy, paid, refunded, expired or closed.
    pub status: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Not payable from this moment on.
    pub expires_at: Option<DateTime<Utc>>,
    /// The slot that it is an attempt to get.
    pub slot_id: Option<i64>,
    /// Who alone may pay it.
    pub payer: Option<String>,
    /// The booking that it got, standing or cancelled.
    pub booking_id: Option<i64>,
}

impl OrderBody {
    fn new(order: &Order, status: OrderStatus, currency: &Currency, booking: Option<&Booking>) -> Self {
        Self {
            order_id: order.order_id.to_string(),
            tenant_id: order.tenant_id.to_string(),
            currency: order.currency.to_string(),
            amount: order.amount.to_text(currency.exponent),
            title: order.title.clone(),
            status: status.as_str().to_owned(),
            created_at: order.created_at,
            expires_at: order.expires_at,
            slot_id: order.slot_id,
            payer: order.payer.clone(),
            booking_id: booking.map(|booking| booking.booking_id),
        }
    }
}

/// Makes an order. The same again is answered the same.
#[utoipa::path(post, path = "/v1/orders", tag = "payments", request_body = NewOrder,
    responses((status = 201, body = OrderBody), (status = 200, description = "It was there", body = OrderBody),
        (status = 404, description = "tenant_not_found, currency_not_found, slot_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "order_differs, slot_gone", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    json: Json<NewOrder>,
) -> Result<(StatusCode, axum::Json<OrderBody>), Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", body.currency.as_deref().unwrap_or("UZS")).await?;
    let amount = match &body.amount {
        Some(amount) => super::amount("amount", amount, &currency)?,
        None => price_of_slot(&caller, body.slot_id, &currency).await?,
    };
    let payer = body.payer.map(check_payer).transpose()?;
    if currency.code.as_str() == telegram::CURRENCY {
        match &payer {
            None if body.slot_id.is_some() => {
                return Err(Problem::invalid_field(
                    "payer",
                    "is needed for a slot in stars: the Telegram user's number",
                ));
            }
            Some(payer) if !telegram::is_payer(payer) => {
                return Err(Problem::invalid_field("payer", "must be a Telegram user's number for an order in stars"));
            }
            _ => {}
        }
    } else if payer.is_some() {
        return Err(Problem::invalid_field(
            "payer",
            "is for orders in stars (XTR): no other provider says who pays, so anybody could pay this one",
        ));
    }
    if !amount.is_positive() {
        return Err(Problem::invalid_field("amount", "must be positive"));
    }
    super::field("title", check_name(&body.title))?;
    let now = caller.app.clock.now();
    let order = &Order {
        order_id: super::field("order_id", OrderId::parse(body.order_id))?,
        tenant_id: super::field("tenant_id", TenantId::parse(body.tenant_id))?,
        currency: currency.code.clone(),
        amount,
        title: body.title,
        created_at: now,
        expires_at: body.expires_at.map(|at| super::moment("expires_at", at)).transpose()?,
        closed_at: None,
        slot_id: body.slot_id,
        payer,
    };
    let (there, new) =
        caller.db().run("order_create", |conn| async move { order::create(conn, order).await }.scope_boxed()).await?;
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let status = order::find_with_status(&mut conn, &there.order_id, caller.app.payme.terms().lifetime, now).await?;
    let status = status.map_or(OrderStatus::Open, |(_, status)| status);
    let booking = booking::find_booking_of_order(&mut conn, &there.order_id).await?;
    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, axum::Json(OrderBody::new(&there, status, &currency, booking.as_ref()))))
}

/// What a slot costs, for an order that doesn't say.
async fn price_of_slot(
    caller: &Caller<PaymentsWrite>,
    slot_id: Option<i64>,
    currency: &Currency,
) -> Result<MinorUnits, Problem> {
    let slot_id = slot_id.ok_or_else(|| Problem::invalid_field("amount", "is needed without slot_id"))?;
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    if booking::find_slot(&mut conn, slot_id).await?.is_none() {
        return Err(order::OrderRefusal::UnknownSlot(slot_id).into());
    }
    booking::slot_price(&mut conn, slot_id, &currency.code).await?.ok_or_else(|| {
        Problem::invalid_field("amount", format!("is needed: slot {slot_id} has no price in {}", currency.code))
    })
}

fn check_payer(payer: String) -> Result<String, Problem> {
    if !payer.is_empty() && payer.len() <= 64 && payer.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(payer)
    } else {
        Err(Problem::invalid_field("payer", "must be 1 to 64 visible ASCII characters"))
    }
}

/// An order with where it stands.
#[utoipa::path(get, path = "/v1/orders/{order_id}", tag = "payments", params(("order_id" = String, Path)),
    responses((status = 200, body = OrderBody),
        (status = 404, description = "order_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<TenantsRead>,
    _: Query<NoParameters>,
    Named(order_id): Named<OrderId>,
) -> Result<axum::Json<OrderBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let (order, status) =
        order::find_with_status(&mut conn, &order_id, caller.app.payme.terms().lifetime, caller.app.clock.now())
            .await?
            .ok_or_else(|| Problem::not_found("order_not_found", format!("there is no order {order_id}")))?;
    let booking = booking::find_booking_of_order(&mut conn, &order_id).await?;
    let currency = super::currency(&caller.app, "currency", order.currency.as_str()).await?;
    Ok(axum::Json(OrderBody::new(&order, status, &currency, booking.as_ref())))
}

/// Withdraws an order that nobody is paying. Closing it again changes nothing.
#[utoipa::path(post, path = "/v1/orders/{order_id}/close", tag = "payments", params(("order_id" = String, Path)),
    responses((status = 200, body = OrderBody),
        (status = 404, description = "order_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "order_not_closable", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn close(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    Named(order_id): Named<OrderId>,
) -> Result<axum::Json<OrderBody>, Problem> {
    let (order_id, clock, lifetime) = (&order_id, &caller.app.clock, caller.app.payme.terms().lifetime);
    let order = caller
        .db()
        .run("order_close", |conn| {
            async move { order::close(conn, order_id, lifetime, clock.now()).await }.scope_boxed()
        })
        .await?;
    let currency = super::currency(&caller.app, "currency", order.currency.as_str()).await?;
    Ok(axum::Json(OrderBody::new(&order, OrderStatus::Closed, &currency, None)))
}

/// Which bot makes an invoice.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvoiceBody {
    /// The bot's number; the first one that is set up when left out.
    pub bot_id: Option<i64>,
}

/// The link of an invoice.
#[derive(Debug, Serialize, ToSchema)]
pub struct InvoiceLink {
    /// Opens the payment form in Telegram.
    #[schema(example = "https://t.me/$abc")]
    pub url: String,
}

/// Makes the link of an order's invoice in stars, through the Bot API. Nothing is stored and nothing is promised:
/// who opens it is asked about when they pay.
#[utoipa::path(post, path = "/v1/orders/{order_id}/invoice", tag = "payments", request_body = InvoiceBody,
    params(("order_id" = String, Path)),
    responses((status = 200, body = InvoiceLink),
        (status = 404, description = "order_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "order_not_payable", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 422, description = "link_not_possible, provider_not_configured", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 502, description = "provider_unavailable", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn invoice(
    caller: Caller<PaymentsWrite>,
    _: Query<NoParameters>,
    Named(order_id): Named<OrderId>,
    json: Json<InvoiceBody>,
) -> Result<axum::Json<InvoiceLink>, Problem> {
    let app = &caller.app;
    let (order, status) = {
        let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
        order::find_with_status(&mut conn, &order_id, app.payme.terms().lifetime, app.clock.now())
            .await?
            .ok_or_else(|| Problem::not_found("order_not_found", format!("there is no order {order_id}")))?
    };
    // No connection is held while Telegram takes its time.
    let url = app.telegram.invoice_link(&order, status, json.body.bot_id).await?;
    Ok(axum::Json(InvoiceLink { url }))
}
