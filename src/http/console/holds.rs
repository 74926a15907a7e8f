//! Money promised to work in progress: whether the tiers are guessed well, and what hasn't ended.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use chrono::{DateTime, Days, Utc};
use chrono_tz::Tz;
use serde::Deserialize;

use super::health::OFFICE_ZONE;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use super::words::Words;
use crate::app::App;
use crate::fault::Fault;
use crate::hold::{self, Hold, HoldId, HoldQuery, TierStats};
use crate::money::{Currency, CurrencyCode, MinorUnits};

const PAGE_ROWS: i64 = 50;
/// Over how many days the tiers are counted; the words say so.
const STATS_DAYS: u64 = 30;
/// The last microsecond of the year 9999.
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// Which part of the list.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    before: Option<String>,
}

/// A hold in a list of holds.
pub struct HoldLine {
    pub hold_id: String,
    pub tenant_id: String,
    pub status: &'static str,
    pub amount: String,
    /// Empty until it ends.
    pub charged: String,
    pub queue: &'static str,
    pub tier: String,
    pub placed_at: String,
    /// When it ends by itself, or when it ended.
    pub ends_at: String,
    /// Empty until it ends.
    pub ended_by: &'static str,
}

impl HoldLine {
    pub fn new(w: &'static Words, hold: &Hold, currency: &Currency, zone: Tz, now: DateTime<Utc>) -> Self {
        let end = hold.end.as_ref();
        Self {
            hold_id: hold.hold_id.to_string(),
            tenant_id: hold.tenant_id.to_string(),
            status: w.hold_status(hold, now),
            amount: money::text(hold.amount, currency),
            charged: end.map(|end| money::text(end.charged, currency)).unwrap_or_default(),
            queue: w.queue_name(&hold.queue),
            tier: hold.tier.clone().unwrap_or_default(),
            placed_at: money::time(hold.placed_at, zone),
            ends_at: money::time(end.map_or(hold.expires_at, |end| end.at), zone),
            ended_by: end.map(|end| w.hold_ended_by(end.by)).unwrap_or_default(),
        }
    }
}

/// The numbers of a tier.
struct TierLine {
    /// None for holds that were asked by an amount.
    tier: Option<String>,
    currency: String,
    holds: i64,
    settled: i64,
    released: i64,
    reconciled: i64,
    over: i64,
    held: String,
    charged: String,
    p50: String,
    p90: String,
    p99: String,
}

impl TierLine {
    fn new(stats: TierStats, currency: &Currency) -> Self {
        let digits = |amount: MinorUnits| money::digits(amount, currency.exponent);
        Self {
            tier: stats.tier,
            currency: stats.currency.to_string(),
            holds: stats.holds,
            settled: stats.settled,
            released: stats.released,
            reconciled: stats.reconciled,
            over: stats.over,
            held: digits(stats.held),
            charged: digits(stats.charged),
            p50: digits(stats.charged_p50),
            p90: digits(stats.charged_p90),
            p99: digits(stats.charged_p99),
        }
    }
}

#[derive(Template)]
#[template(path = "holds.html")]
struct HoldsPage {
    frame: Frame,
    tiers: Vec<TierLine>,
    holds: Vec<HoldLine>,
    next: Option<String>,
}

/// The currency that something stored is in.
pub async fn currency(app: &App, code: &CurrencyCode) -> Result<Currency, Fault> {
    app.currencies.find(code).await?.ok_or_else(|| Fault::new("a hold's currency was not there to read"))
}

/// Where a page begins: behind the hold that was placed then.
fn cursor(text: &str) -> Option<(DateTime<Utc>, String)> {
    let (micros, hold_id) = text.split_once('~')?;
    let micros = micros.parse::<i64>().ok().filter(|micros| (0..=LAST_MICROS).contains(micros))?;
    Some((DateTime::from_timestamp_micros(micros)?, HoldId::parse(hold_id).ok()?.to_string()))
}

/// The page.
pub async fn page(staff: Staff<Viewer>, Query(query): Query<ListQuery>) -> Result<Response, ConsoleError> {
    let w = staff.frame.w;
    let now = staff.app.clock.now();
    let before = match query.before.as_deref() {
        None => None,
        Some(text) => Some(cursor(text).ok_or(ConsoleError::NotFound(staff.language()))?),
    };
    let since = now.checked_sub_days(Days::new(STATS_DAYS)).unwrap_or(now);
    let asked = HoldQuery { unended: true, before, limit: PAGE_ROWS, ..HoldQuery::default() };
    let mut conn = staff.app.db.pool().acquire().await?;
    let stats = hold::stats(&mut conn, since).await?;
    let found = hold::list(&mut conn, &asked).await?;
    drop(conn);
    let full = i64::try_from(found.len()) == Ok(PAGE_ROWS);
    let next =
        found.last().filter(|_| full).map(|hold| format!("{}~{}", hold.placed_at.timestamp_micros(), hold.hold_id));
    let mut tiers = Vec::with_capacity(stats.len());
    for one in stats {
        let currency = currency(&staff.app, &one.currency).await?;
        tiers.push(TierLine::new(one, &currency));
    }
    let mut holds = Vec::with_capacity(found.len());
    for hold in &found {
        let currency = currency(&staff.app, &hold.currency).await?;
        holds.push(HoldLine::new(w, hold, &currency, OFFICE_ZONE, now));
    }
    show(&HoldsPage { tiers, holds, next, frame: staff.frame })
}
