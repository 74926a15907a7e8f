//! `/v1`: one file per noun, each with its shapes and its handlers.

pub mod allowances;
pub mod balance;
pub mod batch;
pub mod bookings;
pub mod currencies;
pub mod fee_runs;
pub mod grants;
pub mod hold_prices;
pub mod holds;
pub mod orders;
pub mod payment_cases;
pub mod payment_links;
pub mod plans;
pub mod refund_tasks;
pub mod slots;
pub mod subscriptions;
pub mod support;
pub mod tenants;
pub mod transactions;
pub mod webhooks;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Datelike as _, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::error::Problem;
use super::extract::Caller;
use super::{PeerAddress, RequestId};
use crate::app::App;
use crate::audit::Who;
use crate::idempotency::Answer;
use crate::ids::InvalidName;
use crate::ledger::PostedRow;
use crate::money::{Currency, CurrencyCode, MinorUnits};

/// A problem document (RFC 9457). `code` is stable; further members depend on it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemDocument {
    /// A URN that ends in the code.
    #[schema(example = "urn:hamyon:problem:insufficient_funds")]
    pub r#type: String,
    /// What the code means.
    pub title: String,
    /// The HTTP status.
    #[schema(example = 402)]
    pub status: u16,
    /// Stable, for programs.
    #[schema(example = "insufficient_funds")]
    pub code: String,
    /// What happened here, for people.
    pub detail: String,
}

/// A row of a wallet.
#[derive(Debug, Serialize, ToSchema)]
pub struct Transaction {
    /// The row's number within its wallet: 1, 2, 3, …
    pub seq: i64,
    /// Whose wallet.
    #[schema(example = "acme")]
    pub tenant_id: String,
    /// What happened.
    #[schema(example = "top_up")]
    pub kind: String,
    /// Signed; positive is a credit.
    #[schema(example = "15000.00")]
    pub amount: String,
    /// The wallet's currency.
    #[schema(example = "UZS")]
    pub currency: String,
    /// Which part of the wallet.
    #[schema(example = "main")]
    pub pocket: String,
    /// What was booked.
    #[schema(example = "payme:5305e3bab097f420a62ced0b")]
    pub reference: String,
    /// The row that this one gives back.
    pub original: Option<i64>,
    /// Why.
    pub reason: Option<String>,
    /// Who.
    #[schema(example = "payme")]
    pub actor: String,
    /// What else the source wanted to remember.
    #[schema(value_type = Object)]
    pub metadata: Value,
    /// When.
    pub recorded_at: DateTime<Utc>,
    /// The wallet's balance after this row.
    #[schema(example = "15000.00")]
    pub balance_after: String,
}

impl Transaction {
    fn new(row: &PostedRow, currency: &Currency) -> Self {
        Self {
            seq: row.seq,
            tenant_id: row.tenant_id.to_string(),
            kind: row.kind.to_string(),
            amount: row.amount.to_text(currency.exponent),
            currency: row.currency.to_string(),
            pocket: row.pocket.to_string(),
            reference: row.reference.to_string(),
            original: row.original_seq,
            reason: row.reason.as_ref().map(ToString::to_string),
            actor: row.actor.clone(),
            metadata: row.metadata.to_value(),
            recorded_at: row.recorded_at,
            balance_after: row.balance_after.to_text(currency.exponent),
        }
    }
}

/// Names the field whose value breaks a rule.
fn field<T>(name: &str, parsed: Result<T, InvalidName>) -> Result<T, Problem> {
    parsed.map_err(|error| Problem::invalid_field(name, error.rule))
}

/// A currency that must exist.
async fn currency(app: &App, name: &str, code: &str) -> Result<Currency, Problem> {
    let code = field(name, CurrencyCode::parse(code))?;
    app.currencies.find(&code).await?.ok_or_else(|| Problem::unknown_currency(code))
}

/// A moment of the years that RFC 3339 can write, as the database holds it: in microseconds, and a leap second as the
/// second after it. So what is stored and read again compares equal to the same moment given again.
fn moment(name: &str, at: DateTime<Utc>) -> Result<DateTime<Utc>, Problem> {
    DateTime::from_timestamp_micros(at.timestamp_micros())
        .filter(|at| (0..=9999).contains(&at.year()))
        .ok_or_else(|| Problem::invalid_field(name, "must be a moment of the years 0000 to 9999"))
}

/// Money that must be a decimal string.
fn amount(name: &str, text: &str, currency: &Currency) -> Result<MinorUnits, Problem> {
    MinorUnits::parse(text, currency).map_err(|error| Problem::invalid_field(name, error))
}

/// What was answered under a key, now or before.
fn answered(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = (status, answer.body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if answer.replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

/// A program that does something the audit keeps.
fn who<P>(caller: &Caller<P>, peer: PeerAddress, request_id: RequestId) -> Who {
    Who {
        actor: caller.actor().to_string(),
        role: None,
        remote_address: peer.0.map(|address| address.to_string()),
        request_id: Some(request_id.0),
    }
}

/// A short text of the caller's own, such as a key or a tier.
fn short_text(name: &str, text: String) -> Result<String, Problem> {
    if text.is_empty() || text.chars().count() > 128 || !crate::ids::is_plain_text(&text) {
        return Err(Problem::invalid_field(name, "must be 1 to 128 characters without control characters"));
    }
    Ok(text)
}

/// A number of seconds.
fn seconds(name: &str, secs: Option<i64>, most: i32) -> Result<Option<i32>, Problem> {
    secs.map(|secs| {
        i32::try_from(secs)
            .ok()
            .filter(|secs| (1..=most).contains(secs))
            .ok_or_else(|| Problem::invalid_field(name, format!("must be 1 to {most}")))
    })
    .transpose()
}
