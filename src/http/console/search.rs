//! From what a customer says to the tenant.

use askama::Template;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{Days, NaiveDate};
use rust_decimal::Decimal;
use serde::Deserialize;

use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use crate::inquiry::{Hits, OrderHit, PaymentLine, RowHit, Search, search};
use crate::money::day_begins_at;

/// What is looked for.
#[derive(Debug, Deserialize)]
pub struct SearchQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    amount: String,
    #[serde(default)]
    day: String,
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    q: String,
    amount: String,
    day: String,
    asked: bool,
    /// What has to be said as well, when what was said doesn't suffice.
    lacks: Option<&'static str>,
    hits: Hits,
}

impl SearchPage {
    fn money(amount: &i64, currency: &str, exponent: &i16) -> String {
        money::of_columns(*amount, currency, *exponent)
    }

    fn row_money(row: &RowHit) -> String {
        Self::money(&row.amount, &row.currency, &row.exponent)
    }

    fn order_money(order: &OrderHit) -> String {
        Self::money(&order.amount, &order.currency, &order.exponent)
    }

    fn payment_state(&self, payment: &PaymentLine) -> &'static str {
        super::tenant::payment_state(self.frame.w, payment)
    }

    fn payment_money(payment: &PaymentLine) -> String {
        Self::money(&payment.amount, &payment.currency, &payment.exponent)
    }
}

/// A day as people write it, of the years that the database holds.
pub fn day(text: &str) -> Option<NaiveDate> {
    let day = NaiveDate::parse_from_str(text.trim(), "%Y-%m-%d").ok()?;
    (1970..=9998).contains(&chrono::Datelike::year(&day)).then_some(day)
}

/// The start page.
pub async fn page(staff: Staff<Viewer>, Query(query): Query<SearchQuery>) -> Result<Response, ConsoleError> {
    let wrong = |field: &str, rule: &str| ConsoleError::Refused(StatusCode::BAD_REQUEST, format!("{field}: {rule}"));
    let amount = match query.amount.trim() {
        "" => None,
        text => {
            let text = text.replace(['\u{a0}', ' '], "").replace(',', ".").replace('\u{2212}', "-");
            Some(Decimal::from_str_exact(&text).map_err(|_| wrong(staff.frame.w.amount, "150000.50"))?)
        }
    };
    let zone = super::health::OFFICE_ZONE;
    let day = match query.day.trim() {
        "" => None,
        text => {
            let day = day(text).ok_or_else(|| wrong(staff.frame.w.day, "2026-12-01"))?;
            let next = day.checked_add_days(Days::new(1)).unwrap_or(day);
            Some((day_begins_at(day, zone), day_begins_at(next, zone)))
        }
    };
    let asked = !query.q.trim().is_empty() || (amount.is_some() && day.is_some());
    let hits = if asked {
        let mut conn = staff.app.db.pool().acquire().await?;
        search(&mut conn, &Search { text: query.q.clone(), amount, day }).await?
    } else {
        Hits::default()
    };
    let lacks = match (amount.is_some(), day.is_some()) {
        (true, false) => Some(staff.frame.w.search_lacks_day),
        (false, true) => Some(staff.frame.w.search_lacks_amount),
        (true, true) | (false, false) => None,
    };
    show(&SearchPage { frame: staff.frame, q: query.q, amount: query.amount, day: query.day, asked, lacks, hits })
}
