//! A statement to take along: CSV for a spreadsheet, and a page to print in the tenant's own language and zone.

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Deserialize;

use super::money;
use super::page::{ConsoleError, download, show};
use super::rows::{self, Asked};
use super::session::{Staff, Viewer};
use super::words::Words;
use crate::export::text::cell;
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::ledger::{self, PostedRow, StatementQuery};
use crate::money::{Currency, CurrencyCode, MinorUnits, local_day};
use crate::tenant::{self, Tenant};

/// The most rows of one statement. More is for `hamyon export`.
const ROWS_MAX: usize = 10_000;
const PAGE_ROWS: i64 = 500;

/// Which wallet, which kind of row, and which days, both included.
#[derive(Debug, Deserialize)]
pub struct StatementParameters {
    currency: Option<String>,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
}

struct Statement {
    tenant: Tenant,
    currency: Currency,
    asked: Asked,
    opening: MinorUnits,
    closing: MinorUnits,
    rows: Vec<PostedRow>,
}

async fn read(
    staff: &Staff<Viewer>,
    tenant_id: &str,
    parameters: &StatementParameters,
) -> Result<Statement, ConsoleError> {
    let language = staff.language();
    let not_found = || ConsoleError::NotFound(language);
    let tenant_id = TenantId::parse(tenant_id).map_err(|_| not_found())?;
    let code = CurrencyCode::parse(parameters.currency.as_deref().unwrap_or("UZS")).map_err(|_| not_found())?;
    let currency = staff.app.currencies.find(&code).await?.ok_or_else(not_found)?;
    let mut conn = staff.app.db.pool().acquire().await?;
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(not_found)?;
    let zone = tenant.time_zone.zone();
    let today = local_day(staff.app.clock.now(), zone);
    let asked = Asked::parse(language, &parameters.kind, &parameters.from, &parameters.to)?.bounded(today);
    let (from, to) = (asked.from.unwrap_or(today), asked.to.unwrap_or(today));
    // The balance a moment before the first day: its last row is where the statement begins.
    let before = rows::begins(from, zone).1;
    let opening = ledger::balance(&mut conn, &tenant_id, &code, Some(before), before).await?;
    let (opening, mut after_seq) = opening.map_or((MinorUnits::ZERO, 0), |balance| (balance.balance, balance.seq));
    let last = rows::last_moment(to, zone);
    let closing = ledger::balance(&mut conn, &tenant_id, &code, Some(last), last).await?;
    let (closing, last_seq) = closing.map_or((MinorUnits::ZERO, 0), |balance| (balance.balance, balance.seq));
    let mut rows: Vec<PostedRow> = Vec::new();
    loop {
        let query = StatementQuery { after_seq, limit: PAGE_ROWS, kind: asked.kind.clone(), pocket: None };
        let page = ledger::statement(&mut conn, &tenant_id, &code, &query).await?;
        let ended = page.rows.iter().any(|row| row.seq > last_seq);
        rows.extend(page.rows.into_iter().filter(|row| row.seq <= last_seq));
        if rows.len() > ROWS_MAX {
            let words = staff.frame.w.error_statement_long.to_owned();
            return Err(ConsoleError::Refused(StatusCode::UNPROCESSABLE_ENTITY, words));
        }
        match page.next_after_seq {
            Some(next) if !ended => after_seq = next,
            _ => break,
        }
    }
    Ok(Statement { tenant, currency, asked, opening, closing, rows })
}

/// CSV (RFC 4180), UTF-8.
pub async fn csv(
    staff: Staff<Viewer>,
    Path(tenant_id): Path<String>,
    Query(parameters): Query<StatementParameters>,
) -> Result<Response, ConsoleError> {
    let statement = read(&staff, &tenant_id, &parameters).await?;
    let exponent = statement.currency.exponent;
    let zone = statement.tenant.time_zone.zone();
    let broken = |error: csv::Error| Fault::new("a statement can't be written as CSV").because(error);
    let mut writer = csv::WriterBuilder::new()
        // Programs that take a semicolon for the separator see whole cells in quotes.
        .quote_style(csv::QuoteStyle::Always)
        .from_writer("\u{feff}".as_bytes().to_vec());
    writer
        .write_record(["seq", "recorded_at", "kind", "amount", "currency", "balance_after", "reference", "reason"])
        .map_err(broken)?;
    for row in &statement.rows {
        writer
            .write_record([
                row.seq.to_string(),
                row.recorded_at.with_timezone(&zone).to_rfc3339(),
                row.kind.to_string(),
                row.amount.to_text(exponent),
                row.currency.to_string(),
                row.balance_after.to_text(exponent),
                cell(row.reference.as_str()).into_owned(),
                cell(row.reason.as_ref().map(crate::ids::Reason::as_str).unwrap_or_default()).into_owned(),
            ])
            .map_err(broken)?;
    }
    let bytes =
        writer.into_inner().map_err(|error| Fault::new("a statement can't be written").because(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| Fault::new("a statement is not UTF-8").because(error))?;
    let (asked, code) = (&statement.asked, &statement.currency.code);
    let kind = asked.kind.as_ref().map(|kind| format!("-{kind}")).unwrap_or_default();
    let day = |day: Option<chrono::NaiveDate>| day.map(|day| format!("-{day}")).unwrap_or_default();
    let name = format!("{code}{kind}{}{}.csv", day(asked.from), day(asked.to));
    Ok(download(&name, "text/csv; charset=utf-8", text))
}

#[derive(Template)]
#[template(path = "statement.html")]
struct StatementPage {
    lang: &'static str,
    w: &'static Words,
    statement: Statement,
    zone: Tz,
    made_at: String,
}

impl StatementPage {
    fn money(&self, amount: &MinorUnits) -> String {
        money::text(*amount, &self.statement.currency)
    }

    fn kind(&self) -> String {
        self.statement.asked.kind.as_ref().map(|kind| self.w.kind_name(kind.as_str()).to_owned()).unwrap_or_default()
    }

    fn digits(&self, amount: &MinorUnits) -> String {
        money::digits(*amount, self.statement.currency.exponent)
    }

    fn time(&self, at: &DateTime<Utc>) -> String {
        money::time(*at, self.zone)
    }
}

/// The page to print, which a browser saves as PDF.
pub async fn print(
    staff: Staff<Viewer>,
    Path(tenant_id): Path<String>,
    Query(parameters): Query<StatementParameters>,
) -> Result<Response, ConsoleError> {
    let statement = read(&staff, &tenant_id, &parameters).await?;
    let zone = statement.tenant.time_zone.zone();
    let locale = statement.tenant.locale;
    show(&StatementPage {
        lang: locale.as_str(),
        w: Words::of(locale),
        zone,
        made_at: money::time(staff.app.clock.now(), zone),
        statement,
    })
}
