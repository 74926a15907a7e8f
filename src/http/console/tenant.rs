//! Everything about one tenant on one page. Each part reads a bounded number of rows, so the page of a wallet with
//! a million rows is as quick as any.

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
use super::session::{Staff, Viewer};
use super::words::{month_name, why_overdue};
use crate::fault::Fault;
use crate::fee::{self, UnpaidDue};
use crate::hold::{self, HoldQuery};
use crate::ids::TenantId;
use crate::inquiry::{self, DueLine, PaymentLine};
use crate::ledger::{self, Kind, PostedRow, StatementQuery};
use crate::money::{Currency, MinorUnits};
use crate::support::{AdjustmentReason, Request, RequestQuery, list_requests};
use crate::tenant::{self, Locale, Tenant};

/// Rows of a page.
const PAGE_ROWS: i64 = 25;
/// The newest holds that are shown.
const HOLDS_SHOWN: i64 = 20;
/// The kinds that the ledger has rules for.
const KINDS: [&str; 8] =
    ["top_up", "top_up_reversal", "subscription_fee", "hold_charge", "refund", "grant", "expiry", "adjustment"];

/// Which part of the statement.
#[derive(Debug, Deserialize)]
pub struct TenantQuery {
    currency: Option<String>,
    kind: Option<String>,
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
    rows: Vec<PostedRow>,
    kinds: Vec<&'static str>,
    kind: String,
    after: i64,
    next_after: Option<i64>,
    line: String,
    zero: i128,
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
pub fn payment_state(w: &'static super::words::Words, payment: &PaymentLine) -> &'static str {
    match (payment.performed_at, payment.cancelled_at) {
        (Some(_), Some(_)) => w.state_refunded,
        (Some(_), None) => w.state_performed,
        (None, Some(_)) => w.state_cancelled,
        (None, None) => w.state_created,
    }
}

/// The reasons of an adjustment in a language.
pub fn reasons(w: &'static super::words::Words) -> Vec<(AdjustmentReason, &'static str)> {
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

/// Why fees are unpaid: what each of the oldest needs, and what there is.
async fn why_unpaid(
    conn: &mut PgConnection,
    language: Locale,
    tenant_id: &TenantId,
    unpaid: &[UnpaidDue],
    now: DateTime<Utc>,
) -> Result<Vec<String>, Fault> {
    let mut why = Vec::new();
    for due in unpaid.iter().take(5) {
        let has = ledger::balance(conn, tenant_id, &due.fee.currency, None, now).await?;
        let of = Currency { code: due.fee.currency.clone(), exponent: due.fee.exponent };
        let day = due.fee.month.first_day();
        let month = month_name(language, chrono::Datelike::year(&day), chrono::Datelike::month(&day));
        why.push(why_overdue(
            language,
            &month,
            &format!("#{}", due.fee.subscription_id),
            &money::text(due.fee.amount, &of),
            &money::text(has.map(|balance| balance.available).unwrap_or_default(), &of),
        ));
    }
    Ok(why)
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

    let kind = query.kind.as_deref().filter(|kind| !kind.is_empty()).and_then(|kind| Kind::parse(kind).ok());
    let (mut rows, mut next_after, mut after) = (Vec::new(), None, 0);
    let (mut line, mut zero) = (String::new(), 0);
    if let Some(currency) = &currency {
        let last = inquiry::last_seq(&mut conn, &tenant_id, &currency.code).await?;
        // The newest rows come first to the eye, so the page opens at the end.
        let newest = last.saturating_sub(PAGE_ROWS).max(0);
        after = match (query.after, &kind) {
            (Some(after), _) => after.max(0),
            (None, None) => newest,
            (None, Some(kind)) => {
                inquiry::before_newest_of_kind(&mut conn, &tenant_id, &currency.code, kind.as_str(), PAGE_ROWS).await?
            }
        };
        let asked = StatementQuery { after_seq: after, limit: PAGE_ROWS, kind: kind.clone(), pocket: None };
        let page = ledger::statement(&mut conn, &tenant_id, &currency.code, &asked).await?;
        rows = page.rows;
        rows.reverse();
        next_after = page.next_after_seq;
        let points = inquiry::history(&mut conn, &tenant_id, &currency.code).await?;
        line = balance_line(&points);
        zero = zero_line(&points);
    }
    let requests = RequestQuery { tenant_id: Some(tenant_id.clone()), limit: 10, ..RequestQuery::default() };
    show(&TenantPage {
        wallets,
        currency,
        pockets,
        holds,
        overdue_since: unpaid.first().map(|due| money::time(due.overdue_at, zone)),
        why,
        rows,
        kinds: KINDS.to_vec(),
        kind: kind.map(|kind| kind.to_string()).unwrap_or_default(),
        after,
        next_after,
        line,
        zero,
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
