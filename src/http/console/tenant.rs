//! Everything about one tenant on one page. Each part reads a bounded number of rows, so the page of a wallet with
//! a million rows is as quick as any.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Path, Query};
use axum::response::Response;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Deserialize;
use sqlx::PgConnection;

use super::chart::{balance_line, zero_line};
use super::holds::HoldLine;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::pockets::{self, PocketLine};
use super::rows::{self, Asked, Page, Place};
use super::session::{Staff, Viewer};
use super::words::{Words, month_name, waits_for_older, why_overdue};
use crate::fault::Fault;
use crate::fee::{self, UnpaidDue};
use crate::hold::{self, HoldQuery};
use crate::ids::TenantId;
use crate::inquiry::{self, DueLine, PaymentLine, Point};
use crate::ledger;
use crate::money::{Currency, CurrencyCode, MinorUnits, local_day};
use crate::support::{AdjustmentReason, Request, RequestQuery, list_requests};
use crate::tenant::{self, Locale, Tenant};

/// The newest holds that are shown.
const HOLDS_SHOWN: i64 = 20;
/// The kinds that the ledger has rules for.
const KINDS: [&str; 9] = [
    "top_up",
    "top_up_reversal",
    "subscription_fee",
    "hold_charge",
    "booking",
    "refund",
    "grant",
    "expiry",
    "adjustment",
];

/// Which part of the statement.
#[derive(Debug, Deserialize)]
pub struct TenantQuery {
    currency: Option<String>,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
    before: Option<i64>,
    after: Option<i64>,
}

/// A wallet in the list of wallets.
pub struct WalletLine {
    pub code: String,
    pub balance: String,
    pub held: String,
    pub available: String,
}

#[derive(Template)]
#[template(path = "tenant.html")]
struct TenantPage {
    frame: Frame,
    tenant: Tenant,
    zone: Tz,
    now: DateTime<Utc>,
    wallets: Vec<WalletLine>,
    currency: Option<Currency>,
    /// Of the chosen wallet.
    pockets: Vec<PocketLine>,
    holds: Vec<HoldLine>,
    overdue_since: Option<String>,
    why: Vec<String>,
    page: Page,
    kinds: Vec<&'static str>,
    asked: Asked,
    /// The days of the statement to take along.
    taken: Asked,
    line: String,
    zero: i128,
    /// The chart in words.
    curve: String,
    payments: Vec<PaymentLine>,
    dues: Vec<DueLine>,
    requests: Vec<Request>,
    reasons: Vec<(AdjustmentReason, &'static str)>,
    form_key: String,
}

impl TenantPage {
    fn time(&self, at: &DateTime<Utc>) -> String {
        money::time(*at, self.zone)
    }

    fn amount(&self, amount: &MinorUnits) -> String {
        self.currency.as_ref().map_or_else(String::new, |currency| money::digits(*amount, currency.exponent))
    }

    fn columns(amount: &i64, currency: &str, exponent: &i16) -> String {
        money::of_columns(*amount, currency, *exponent)
    }

    fn kind(&self) -> String {
        self.asked.kind.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// What is asked for, in an address.
    fn question(&self, asked: &Asked) -> String {
        self.currency.as_ref().map_or_else(String::new, |currency| asked.question(&currency.code))
    }

    fn request_amount(request: &Request) -> String {
        money::text(request.amount, &request.currency)
    }

    fn request_status(&self, request: &Request) -> &'static str {
        self.frame.w.request_status(request.status(self.now))
    }

    fn due_state(&self, due: &DueLine) -> &'static str {
        match (due.charged_at, due.overdue_at) {
            (Some(_), Some(_)) => self.frame.w.due_paid_late,
            (Some(_), None) => self.frame.w.due_paid,
            (None, _) => self.frame.w.due_overdue,
        }
    }

    fn payment_state(&self, payment: &PaymentLine) -> &'static str {
        payment_state(self.frame.w, payment)
    }
}

/// What became of a payment.
pub fn payment_state(w: &'static Words, payment: &PaymentLine) -> &'static str {
    match (payment.performed_at, payment.cancelled_at) {
        (Some(_), Some(_)) => w.state_refunded,
        (Some(_), None) => w.state_performed,
        (None, Some(_)) => w.state_cancelled,
        (None, None) => w.state_created,
    }
}

/// The reasons of an adjustment in a language.
pub fn reasons(w: &'static Words) -> Vec<(AdjustmentReason, &'static str)> {
    AdjustmentReason::ALL
        .into_iter()
        .map(|reason| {
            let name = match reason {
                AdjustmentReason::Goodwill => w.reason_goodwill,
                AdjustmentReason::Correction => w.reason_correction,
                AdjustmentReason::DuplicateCharge => w.reason_duplicate_charge,
                AdjustmentReason::MissingPayment => w.reason_missing_payment,
                AdjustmentReason::Migration => w.reason_migration,
                AdjustmentReason::Fraud => w.reason_fraud,
                AdjustmentReason::Other => w.reason_other,
            };
            (reason, name)
        })
        .collect()
}

/// Why fees are unpaid: what each of the oldest needs, and what there is that fees can take. A due waits for the one
/// before it in its wallet, even when there is enough for itself alone.
async fn why_unpaid(
    conn: &mut PgConnection,
    language: Locale,
    tenant_id: &TenantId,
    unpaid: &[UnpaidDue],
    now: DateTime<Utc>,
) -> Result<Vec<String>, Fault> {
    let mut why = Vec::new();
    let mut first_of: BTreeMap<CurrencyCode, (String, bool)> = BTreeMap::new();
    for due in unpaid.iter().take(5) {
        let has = ledger::balance(conn, tenant_id, &due.fee.currency, None, now).await?;
        let has = has.as_ref().map(pockets::takeable).transpose()?.unwrap_or_default();
        let of = Currency { code: due.fee.currency.clone(), exponent: due.fee.exponent };
        let day = due.fee.month.first_day();
        let month = month_name(language, chrono::Datelike::year(&day), chrono::Datelike::month(&day));
        let plan = format!("#{}", due.fee.subscription_id);
        let enough = has >= due.fee.amount;
        let (needs, has) = (money::text(due.fee.amount, &of), money::text(has, &of));
        let mut line = why_overdue(language, &month, &plan, &needs, &has);
        match first_of.get(&due.fee.currency) {
            Some((older, false)) if enough => line = format!("{line}. {}", waits_for_older(language, older)),
            None if enough => line = format!("{line}. {}", Words::of(language).due_with_next_credit),
            Some(_) | None => {}
        }
        first_of.entry(due.fee.currency.clone()).or_insert_with(|| (format!("{month} ({plan})"), enough));
        why.push(line);
    }
    Ok(why)
}

/// The balance over time in words: where it began, the lowest, the highest, and where it is.
fn in_words(w: &'static Words, points: &[Point], currency: &Currency, zone: Tz) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let lowest = points.iter().min_by_key(|point| point.balance).unwrap_or(first);
    let highest = points.iter().max_by_key(|point| point.balance).unwrap_or(first);
    [(w.curve_first, first), (w.curve_lowest, lowest), (w.curve_highest, highest), (w.curve_last, last)]
        .iter()
        .map(|(name, point)| {
            format!("{name} {} ({})", money::text(point.balance, currency), money::time(point.at, zone))
        })
        .collect::<Vec<_>>()
        .join(" · ")
}

/// The page.
pub async fn page(
    staff: Staff<Viewer>,
    Path(tenant_id): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Result<Response, ConsoleError> {
    let language = staff.language();
    let not_found = || ConsoleError::NotFound(language);
    let tenant_id = TenantId::parse(tenant_id).map_err(|_| not_found())?;
    let mut conn = staff.app.db.pool().acquire().await?;
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(not_found)?;
    let zone = tenant.time_zone.zone();
    let now = staff.app.clock.now();
    let w = staff.frame.w;

    let currencies = inquiry::wallets_of(&mut conn, &tenant_id).await?;
    let currency = match &query.currency {
        Some(code) => Some(currencies.iter().find(|one| one.code.as_str() == code).ok_or_else(not_found)?.clone()),
        None => currencies.first().cloned(),
    };
    let (mut wallets, mut pockets) = (Vec::with_capacity(currencies.len()), Vec::new());
    for one in &currencies {
        if let Some(balance) = ledger::balance(&mut conn, &tenant_id, &one.code, None, now).await? {
            if currency.as_ref() == Some(one) {
                pockets = pockets::lines(&balance, one, zone)?;
            }
            wallets.push(WalletLine {
                code: one.code.to_string(),
                balance: money::text(balance.balance, one),
                held: money::text(balance.held, one),
                available: money::text(balance.available, one),
            });
        }
    }
    let asked = HoldQuery { tenant_id: Some(tenant_id.clone()), limit: HOLDS_SHOWN, ..HoldQuery::default() };
    let found = hold::list(&mut conn, &asked).await?;
    let holds: Vec<HoldLine> = found
        .iter()
        .filter_map(|hold| {
            let currency = currencies.iter().find(|one| one.code == hold.currency)?;
            Some(HoldLine::new(w, hold, currency, zone, now))
        })
        .collect();

    let unpaid = fee::overdue_of(&mut conn, &tenant_id).await?;
    let why = why_unpaid(&mut conn, language, &tenant_id, &unpaid, now).await?;

    let asked = Asked::parse(language, &query.kind, &query.from, &query.to)?;
    let place = match (query.before, query.after) {
        (Some(seq), _) => Place::Before(seq),
        (None, Some(seq)) => Place::After(seq.max(0)),
        // The newest rows come first to the eye, so the page opens at the end.
        (None, None) => Place::End,
    };
    let (mut page, mut line, mut zero, mut curve) = (Page::default(), String::new(), 0, String::new());
    if let Some(currency) = &currency {
        page = rows::page(&mut conn, &tenant_id, &currency.code, &asked, place, zone).await?;
        let points = inquiry::history(&mut conn, &tenant_id, &currency.code).await?;
        line = balance_line(&points);
        zero = zero_line(&points);
        curve = in_words(w, &points, currency, zone);
    }
    let requests = RequestQuery { tenant_id: Some(tenant_id.clone()), limit: 10, ..RequestQuery::default() };
    show(&TenantPage {
        wallets,
        currency,
        pockets,
        holds,
        overdue_since: unpaid.first().map(|due| money::time(due.overdue_at, zone)),
        why,
        page,
        kinds: KINDS.to_vec(),
        taken: asked.bounded(local_day(now, zone)),
        asked,
        line,
        zero,
        curve,
        payments: inquiry::payments_of(&mut conn, &tenant_id, None, 20).await?,
        dues: inquiry::dues_of(&mut conn, &tenant_id, 24).await?,
        requests: list_requests(&mut conn, &requests).await?,
        reasons: reasons(w),
        form_key: super::desk::form_key(),
        zone,
        now,
        tenant,
        frame: staff.frame,
    })
}
