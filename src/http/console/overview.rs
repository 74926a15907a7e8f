//! How a month went.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use serde::Deserialize;

use super::chart::{Bar, bars};
use super::health::OFFICE_ZONE;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use super::words::month_name;
use crate::inquiry::{self, KindSum, OverdueSum};
use crate::money::{Month, local_day};

/// How many months the chart shows.
const MONTHS: usize = 6;

/// Which month.
#[derive(Debug, Deserialize)]
pub struct MonthQuery {
    #[serde(default)]
    month: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    title: String,
    previous: String,
    next: String,
    sums: Vec<KindSum>,
    unpaid: Vec<OverdueSum>,
    bars: Vec<Bar>,
}

impl OverviewPage {
    fn money(amount: &i64, currency: &str, exponent: &i16) -> String {
        money::of_columns(*amount, currency, *exponent)
    }

    fn name(&self, kind: &str) -> String {
        match kind.split_once(':') {
            Some((kind, provider)) => format!("{}: {provider}", self.frame.w.kind_name(kind)),
            None => self.frame.w.kind_name(kind).to_owned(),
        }
    }
}

/// The page.
pub async fn page(staff: Staff<Viewer>, Query(query): Query<MonthQuery>) -> Result<Response, ConsoleError> {
    let language = staff.language();
    let month = match query.month.as_str() {
        "" => Month::of(local_day(staff.app.clock.now(), OFFICE_ZONE)),
        text => Month::parse(text).map_err(|_| ConsoleError::NotFound(language))?,
    };
    let mut conn = staff.app.db.pool().acquire().await?;
    let mut months = inquiry::months(&mut conn, month, MONTHS, OFFICE_ZONE).await?;
    let unpaid = inquiry::overdue_sums(&mut conn).await?;
    let values: Vec<(String, i64, String)> = months
        .iter()
        .map(|month| {
            let money_in = month
                .sums
                .iter()
                .filter(|sum| sum.currency == "UZS" && (sum.kind == "top_up" || sum.kind.starts_with("top_up:")))
                .fold(0_i64, |total, sum| total.saturating_add(sum.amount));
            (month.month.to_string(), money_in, money::of_columns(money_in, "UZS", 2))
        })
        .collect();
    let day = month.first_day();
    show(&OverviewPage {
        title: month_name(language, chrono::Datelike::year(&day), chrono::Datelike::month(&day)),
        previous: month.previous().to_string(),
        next: month.next().to_string(),
        sums: months.pop().map(|month| month.sums).unwrap_or_default(),
        unpaid,
        bars: bars(&values),
        frame: staff.frame,
    })
}
