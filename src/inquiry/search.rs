//! From what a customer tells support to the tenant it is about.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use sqlx::PgConnection;

use super::store;
use super::store::PaymentLine;
use crate::fault::Fault;
use crate::ids::{OrderId, TenantId};
use crate::payment::normal_account_value;

/// At most so many of each kind are shown; who needs more says more.
const HITS_MAX: i64 = 20;

/// The longest text whose words are looked for in names. PostgreSQL refuses a word of more than 2,046 bytes.
const WORDS_BYTES_MAX: usize = 1_000;

/// What somebody looks for.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// A tenant's id or words of its name, a provider's id of a payment, an order's id, a phone number.
    pub text: String,
    /// An amount, whatever its sign and currency.
    pub amount: Option<Decimal>,
    /// The day it was booked, from and to.
    pub day: Option<(DateTime<Utc>, DateTime<Utc>)>,
}

/// A tenant that was found.
#[derive(Debug, Clone)]
pub struct TenantHit {
    /// Its id.
    pub tenant_id: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
}

/// An order that was found by its id.
#[derive(Debug, Clone)]
pub struct OrderHit {
    /// Its id.
    pub order_id: String,
    /// Whose.
    pub tenant_id: String,
    /// What it is for.
    pub title: String,
    /// In which currency.
    pub currency: String,
    /// The currency's digits.
    pub exponent: i16,
    /// Minor units.
    pub amount: i64,
}

/// A row that was found by its amount and day.
#[derive(Debug, Clone)]
pub struct RowHit {
    /// Whose.
    pub tenant_id: String,
    /// In which wallet.
    pub currency: String,
    /// The currency's digits.
    pub exponent: i16,
    /// The row.
    pub seq: i64,
    /// What happened.
    pub kind: String,
    /// Minor units.
    pub amount: i64,
    /// When.
    pub recorded_at: DateTime<Utc>,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Hits {
    /// Tenants, by id or name.
    pub tenants: Vec<TenantHit>,
    /// Orders, by id.
    pub orders: Vec<OrderHit>,
    /// Payments, by the provider's id or the charge that stands in it, the order, what their account says, or amount
    /// and day.
    pub payments: Vec<PaymentLine>,
    /// Rows, by amount and day.
    pub rows: Vec<RowHit>,
}

impl Hits {
    /// Nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.orders.is_empty() && self.payments.is_empty() && self.rows.is_empty()
    }
}

/// Looks everywhere at once.
///
/// # Errors
/// A fault.
pub async fn search(conn: &mut PgConnection, search: &Search) -> Result<Hits, Fault> {
    let text = search.text.trim();
    let mut hits = Hits::default();
    if !text.is_empty() && !text.contains('\0') {
        let exact = TenantId::parse(text).ok();
        let words = name_query(text);
        hits.tenants =
            store::find_tenants(conn, exact.as_ref().map(TenantId::as_str), words.as_deref(), HITS_MAX).await?;
        let order = OrderId::parse(text).ok();
        if let Some(order_id) = &order {
            hits.orders = store::find_order(conn, order_id.as_str()).await?;
        }
        hits.payments = store::find_payments(
            conn,
            text,
            order.as_ref().map(OrderId::as_str),
            &normal_account_value(text),
            HITS_MAX,
        )
        .await?;
    }
    if let (Some(amount), Some((from, to))) = (search.amount, search.day) {
        let amount = amount.abs().normalize().to_string();
        for payment in store::find_payments_of_day(conn, &amount, from, to, HITS_MAX).await? {
            if !hits.payments.iter().any(|found| found.payment_id == payment.payment_id) {
                hits.payments.push(payment);
            }
        }
        hits.rows = store::find_rows(conn, &amount, from, to, HITS_MAX).await?;
    }
    Ok(hits)
}

/// Words of a name, each by its beginning, in PostgreSQL's query language. What isn't a letter or a digit only
/// separates words, so nothing typed in is ever an operator. A word that is longer than any name begins none.
fn name_query(text: &str) -> Option<String> {
    if text.len() > WORDS_BYTES_MAX {
        return None;
    }
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(8)
        .map(|word| format!("{}:*", word.to_lowercase()))
        .collect();
    (!words.is_empty()).then(|| words.join(" & "))
}
