//! One row and its story: which rule, which numbers, what caused it, what it caused.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use sqlx::PgConnection;

use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use super::words::Words;
use super::{calls, money, pockets, refusals};
use crate::fault::Fault;
use crate::hold::HoldId;
use crate::ids::TenantId;
use crate::inquiry::{self, CallLine, DueLine, PaymentLine, Story};
use crate::ledger::{self, Kind};
use crate::money::{Currency, CurrencyCode, MinorUnits};
use crate::payment::prepaid::{self, GiveBackRefusal, refund};
use crate::payment::{self, SpentOn};
use crate::tenant::{self, Locale};

#[derive(Template)]
#[template(path = "transaction.html")]
struct TransactionPage {
    frame: Frame,
    tenant_id: String,
    zone: Tz,
    currency: Currency,
    story: Story,
    rule: &'static str,
    /// The hold whose work it pays.
    hold_id: Option<HoldId>,
    /// For a top-up that is still here.
    way_back: Option<WayBack>,
    /// Whether it paid a booking that stands.
    is_booked: bool,
    form_key: String,
}

/// How a top-up would go back through its provider, and what is missing for it.
enum WayBack {
    /// Its provider takes it back, and what keeps it from that.
    Provider { missing: Option<String>, spent: Option<&'static str> },
    /// We ask its provider.
    Us { payment_id: i64, missing: Option<String> },
    /// It doesn't go this way now, and why.
    Not(String),
    /// We have asked.
    OnItsWay,
}

impl TransactionPage {
    fn time(&self, at: &DateTime<Utc>) -> String {
        money::time(*at, self.zone)
    }

    fn money(&self, amount: &MinorUnits) -> String {
        money::text(*amount, &self.currency)
    }

    fn columns(amount: &i64, currency: &str, exponent: &i16) -> String {
        money::of_columns(*amount, currency, *exponent)
    }

    fn payment_state(&self, payment: &PaymentLine) -> &'static str {
        super::tenant::payment_state(self.frame.w, payment)
    }

    fn due_money(due: &DueLine) -> String {
        Self::columns(&due.amount, &due.currency, &due.exponent)
    }

    fn call_words(&self, call: &CallLine) -> String {
        calls::words(self.frame.language, call)
    }

    fn left_text(&self) -> Option<String> {
        self.story.left.filter(|left| left.is_positive()).map(|left| left.to_text(self.currency.exponent))
    }
}

/// The rule that a row stands for.
async fn rule(conn: &mut PgConnection, w: &'static Words, story: &Story) -> Result<&'static str, Fault> {
    Ok(match story.row.kind {
        Kind::TopUp => w.rule_top_up,
        Kind::TopUpReversal => match &story.payment {
            Some(payment) if prepaid::is_prepaid(conn, payment.payment_id).await? => {
                if payment.cancel_reason == Some(refund::REASON_ASKED) {
                    w.rule_reversal_asked
                } else {
                    w.rule_reversal_unasked
                }
            }
            Some(_) | None => w.rule_reversal,
        },
        Kind::SubscriptionFee => w.rule_fee,
        Kind::Refund => w.rule_refund,
        Kind::Adjustment => w.rule_adjustment,
        Kind::Grant => w.rule_grant,
        Kind::Expiry => w.rule_expiry,
        Kind::HoldCharge => w.rule_hold_charge,
        Kind::Booking => w.rule_booking,
        Kind::Custom(_) => w.rule_custom,
    })
}

/// The way back of a top-up that is still here, `missing` being what it lacks of the money that can be taken.
async fn way_back(
    conn: &mut PgConnection,
    language: Locale,
    story: &Story,
    missing: Option<String>,
) -> Result<WayBack, Fault> {
    let w = Words::of(language);
    let Some(payment_id) = story.payment.as_ref().map(|payment| payment.payment_id) else {
        return Ok(WayBack::Provider { missing, spent: None });
    };
    Ok(match payment::way_back(conn, payment_id).await? {
        None | Some(payment::WayBack::Provider(SpentOn::Nothing)) => WayBack::Provider { missing, spent: None },
        Some(payment::WayBack::Provider(SpentOn::Booking | SpentOn::BookingGivenBack)) => {
            WayBack::Provider { missing, spent: Some(w.topup_bought_slot) }
        }
        Some(payment::WayBack::Provider(SpentOn::CancelledBooking)) => {
            WayBack::Provider { missing, spent: Some(w.topup_stays_spent) }
        }
        Some(payment::WayBack::Us(None)) => WayBack::Us { payment_id, missing },
        Some(payment::WayBack::Us(Some(GiveBackRefusal::Asked(_)))) => WayBack::OnItsWay,
        Some(payment::WayBack::Us(Some(refusal))) => WayBack::Not(refusals::give_back(language, &refusal)),
    })
}

/// The page.
pub async fn page(
    staff: Staff<Viewer>,
    Path((tenant_id, code, seq)): Path<(String, String, String)>,
) -> Result<Response, ConsoleError> {
    let not_found = || ConsoleError::NotFound(staff.language());
    let tenant_id = TenantId::parse(tenant_id).map_err(|_| not_found())?;
    let code = CurrencyCode::parse(code).map_err(|_| not_found())?;
    let seq: i64 = seq.parse().map_err(|_| not_found())?;
    let currency = staff.app.currencies.find(&code).await?.ok_or_else(not_found)?;
    let mut conn = staff.app.db.pool().acquire().await?;
    let tenant = tenant::find(&mut conn, &tenant_id).await?.ok_or_else(not_found)?;
    let mut story = inquiry::explain(&mut conn, &tenant_id, &currency, seq).await?.ok_or_else(not_found)?;
    let w = staff.frame.w;
    let rule = rule(&mut conn, w, &story).await?;
    let way_back = if story.row.kind == Kind::TopUp && story.given_back.is_empty() {
        let balance = ledger::balance(&mut conn, &tenant_id, &code, None, staff.app.clock.now()).await?;
        let free = balance.as_ref().map(pockets::takeable).transpose()?.unwrap_or_default();
        let short = story.row.amount.checked_sub(free).unwrap_or_default();
        let missing = short.is_positive().then(|| money::text(short, &currency));
        Some(way_back(&mut conn, staff.language(), &story, missing).await?)
    } else {
        None
    };
    // The desk is refused it, so the page doesn't offer it.
    let is_booked = payment::is_of_standing_booking(&mut conn, &tenant_id, &code, seq).await?;
    if is_booked {
        story.left = None;
    }
    let hold_id = Some(story.row.metadata.to_value())
        .filter(|_| story.row.kind == Kind::HoldCharge)
        .and_then(|about| HoldId::parse(about.get("hold_id")?.as_str()?).ok());
    show(&TransactionPage {
        tenant_id: tenant_id.to_string(),
        zone: tenant.time_zone.zone(),
        currency,
        story,
        rule,
        hold_id,
        way_back,
        is_booked,
        form_key: super::desk::form_key(),
        frame: staff.frame,
    })
}
