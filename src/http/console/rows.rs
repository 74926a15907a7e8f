//! Which rows of a statement are asked for, the same for the page, its CSV and its print; and the page's paging.

use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};
use chrono_tz::Tz;
use sqlx::PgConnection;

use super::page::ConsoleError;
use super::words::Words;
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::inquiry;
use crate::ledger::{self, Kind, PostedRow, StatementQuery};
use crate::money::{CurrencyCode, day_begins_at};
use crate::tenant::Locale;

/// Rows of a page.
pub const PAGE_ROWS: i64 = 25;

/// Which rows somebody asks for: the days are the tenant's, both included.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub kind: Option<Kind>,
    pub from: Option<NaiveDate>,
    pub to: Option<NaiveDate>,
}

impl Asked {
    /// Reads what was typed in. What can't be read is said, not left out.
    pub fn parse(language: Locale, kind: &str, from: &str, to: &str) -> Result<Self, ConsoleError> {
        let w = Words::of(language);
        let refused = |words: String| ConsoleError::Refused(axum::http::StatusCode::BAD_REQUEST, words);
        let kind = match kind.trim() {
            "" => None,
            text => Some(Kind::parse(text).map_err(|_| refused(format!("{} {text:?}", w.error_kind)))?),
        };
        let day = |text: &str| match text.trim() {
            "" => Ok(None),
            text => super::search::day(text)
                .map(Some)
                .ok_or_else(|| refused(format!("{} {text:?}: 2026-12-01", w.error_day))),
        };
        let (from, to) = (day(from)?, day(to)?);
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            return Err(refused(format!("{} {from} > {to}", w.error_days_reversed)));
        }
        Ok(Self { kind, from, to })
    }

    /// The first day; nothing when none is given.
    pub fn first_day(&self) -> String {
        self.from.map(|day| day.to_string()).unwrap_or_default()
    }

    /// The last day; nothing when none is given.
    pub fn last_day(&self) -> String {
        self.to.map(|day| day.to_string()).unwrap_or_default()
    }

    /// The same question in an address.
    pub fn question(&self, currency: &CurrencyCode) -> String {
        let pairs = [
            ("currency", currency.to_string()),
            ("kind", self.kind.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("from", self.first_day()),
            ("to", self.last_day()),
        ];
        serde_urlencoded::to_string(pairs.iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>())
            .unwrap_or_default()
    }

    /// The days of a statement, which has a first and a last one: a month until today when none are given.
    pub fn bounded(&self, today: NaiveDate) -> Self {
        let to = self.to.unwrap_or_else(|| today.max(self.from.unwrap_or(today)));
        let from = self.from.unwrap_or_else(|| to.checked_sub_days(Days::new(31)).unwrap_or(to));
        Self { kind: self.kind.clone(), from: Some(from), to: Some(to) }
    }
}

/// When a day begins, and the last moment before it.
pub fn begins(day: NaiveDate, zone: Tz) -> (DateTime<Utc>, DateTime<Utc>) {
    let begins = day_begins_at(day, zone);
    (begins, begins.checked_sub_signed(TimeDelta::microseconds(1)).unwrap_or(begins))
}

/// The last moment of a day.
pub fn last_moment(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    begins(day.checked_add_days(Days::new(1)).unwrap_or(day), zone).1
}

/// A page of a statement, the newest row first.
#[derive(Debug, Default)]
pub struct Page {
    pub rows: Vec<PostedRow>,
    /// The page of older rows is that of the rows before this one.
    pub older: Option<i64>,
    /// The page of newer rows is that of the rows after this one.
    pub newer: Option<i64>,
}

/// Where a page lies.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// The newest rows.
    End,
    /// The newest rows before this one.
    Before(i64),
    /// The oldest rows after this one.
    After(i64),
}

/// Reads a page. Pages that are reached by "older" have no row in common and leave none out, whatever is asked for.
pub async fn page(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    asked: &Asked,
    place: Place,
    zone: Tz,
) -> Result<Page, Fault> {
    // A day is a stretch of row numbers: within a wallet time never runs backwards.
    let mut first = 0;
    if let Some(from) = asked.from {
        let at = begins(from, zone).1;
        first = ledger::balance(conn, tenant_id, currency, Some(at), at).await?.map_or(0, |balance| balance.seq);
    }
    let mut end = i64::MAX;
    if let Some(to) = asked.to {
        let at = last_moment(to, zone);
        let last = ledger::balance(conn, tenant_id, currency, Some(at), at).await?.map_or(0, |balance| balance.seq);
        end = last.saturating_add(1);
    }
    let kind = asked.kind.as_ref();
    let statement = |after_seq, limit| StatementQuery { after_seq, limit, kind: asked.kind.clone(), pocket: None };
    let mut page = Page::default();
    match place {
        Place::End | Place::Before(_) => {
            let before = match place {
                Place::Before(seq) => seq.min(end),
                Place::End | Place::After(_) => end,
            };
            let wanted = PAGE_ROWS.saturating_add(1);
            let seqs = inquiry::seqs_before(conn, tenant_id, currency, kind, (first, before), wanted).await?;
            let shown = usize::try_from(PAGE_ROWS).unwrap_or(usize::MAX).min(seqs.len());
            let Some(&oldest) = seqs.get(shown.saturating_sub(1)) else { return Ok(page) };
            let limit = i64::try_from(shown).unwrap_or(PAGE_ROWS);
            page.rows =
                ledger::statement(conn, tenant_id, currency, &statement(oldest.saturating_sub(1), limit)).await?.rows;
            page.older = (seqs.len() > shown).then_some(oldest);
            let newest = page.rows.last().map(|row| row.seq);
            page.newer = newest.filter(|_| matches!(place, Place::Before(_)));
        }
        Place::After(seq) => {
            let after = seq.max(first);
            let found = ledger::statement(conn, tenant_id, currency, &statement(after, PAGE_ROWS)).await?;
            page.newer = found.next_after_seq;
            page.rows = found.rows;
            let all = page.rows.len();
            page.rows.retain(|row| row.seq < end);
            if page.rows.len() < all {
                page.newer = None;
            }
            // Asked for, not reckoned: there may be none of this kind.
            let before = page.rows.first().map_or(after.saturating_add(1), |row| row.seq);
            let older = inquiry::seqs_before(conn, tenant_id, currency, kind, (first, before), 1).await?;
            page.older = (!older.is_empty()).then_some(before);
        }
    }
    page.rows.reverse();
    Ok(page)
}
