//! Slots and who has them, an order's whole story, money on its way back, and what a person has to look at.

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::Deserialize;
use serde_json::json;

use super::desk::form_key;
use super::health::OFFICE_ZONE;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Approver, SignedForm, Staff, Viewer};
use crate::audit;
use crate::fault::{Error, Fault, Widen as _};
use crate::http::api::payment_cases::Deed;
use crate::idempotency::{self, Answer, Claim, Claimed, Key, KeyReused};
use crate::ids::{Actor, OrderId, Reason, TenantId};
use crate::inquiry::order::{OrderMoment, SlotLine, order_story, upcoming_slots};
use crate::money::Currency;
use crate::payment::order::{self, Order, OrderStatus};
use crate::payment::prepaid::case::{self, Case, CaseRefusal, Resolution};
use crate::payment::prepaid::refund::{self, RefundTask};
use crate::tenant::TimeZone;

const PAGE_ROWS: i64 = 50;

/// Where a list goes on.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    #[serde(default)]
    all: Option<String>,
    before: Option<i64>,
    after: Option<String>,
}

#[derive(Template)]
#[template(path = "slots.html")]
struct SlotsPage {
    frame: Frame,
    slots: Vec<SlotLine>,
    next: Option<String>,
}

impl SlotsPage {
    /// In the resource's own zone: that is what its people read.
    fn time(slot: &SlotLine, at: &DateTime<Utc>) -> String {
        let zone = TimeZone::parse(&slot.time_zone).map_or(OFFICE_ZONE, TimeZone::zone);
        money::time(*at, zone)
    }
}

/// Slots that haven't ended.
pub async fn slots(staff: Staff<Viewer>, Query(query): Query<ListQuery>) -> Result<Response, ConsoleError> {
    let after = query.after.as_deref().and_then(|text| {
        let (micros, slot_id) = text.split_once('.')?;
        Some((DateTime::from_timestamp_micros(micros.parse().ok()?)?, slot_id.parse().ok()?))
    });
    let mut conn = staff.app.db.pool().acquire().await?;
    let slots = upcoming_slots(&mut conn, after, PAGE_ROWS).await?;
    let full = i64::try_from(slots.len()) == Ok(PAGE_ROWS);
    let next =
        slots.last().map(|slot| format!("{}.{}", slot.starts_at.timestamp_micros(), slot.slot_id)).filter(|_| full);
    show(&SlotsPage { slots, next, frame: staff.frame })
}

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage {
    frame: Frame,
    order: Order,
    status: &'static str,
    amount: String,
    story: Vec<OrderMoment>,
}

impl OrderPage {
    fn time(at: &DateTime<Utc>) -> String {
        at.with_timezone(&OFFICE_ZONE).format("%Y-%m-%d %H:%M:%S").to_string()
    }
}

/// An order's whole story.
pub async fn order(staff: Staff<Viewer>, Path(order_id): Path<String>) -> Result<Response, ConsoleError> {
    let not_found = || ConsoleError::NotFound(staff.language());
    let order_id = OrderId::parse(order_id).map_err(|_| not_found())?;
    let (app, w) = (&staff.app, staff.frame.w);
    let mut conn = app.db.pool().acquire().await?;
    let (order, status) = order::find_with_status(&mut conn, &order_id, app.payme.terms().lifetime, app.clock.now())
        .await?
        .ok_or_else(not_found)?;
    let story = order_story(&mut conn, &order_id).await?;
    drop(conn);
    let currency: Currency = app.currencies.find(&order.currency).await?.ok_or_else(not_found)?;
    let status = match status {
        OrderStatus::Open => w.open,
        OrderStatus::Busy => w.order_busy,
        OrderStatus::Paid => w.order_paid,
        OrderStatus::Refunded => w.order_refunded,
        OrderStatus::Expired => w.status_expired,
        OrderStatus::Closed => w.closed,
    };
    let amount = money::text(order.amount, &currency);
    show(&OrderPage { order, status, amount, story, frame: staff.frame })
}

#[derive(Template)]
#[template(path = "refund_tasks.html")]
struct RefundsPage {
    frame: Frame,
    all: bool,
    tasks: Vec<RefundTask>,
    next: Option<i64>,
}

impl RefundsPage {
    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, OFFICE_ZONE)
    }

    fn status(&self, task: &RefundTask) -> &'static str {
        self.frame.w.refund_status(task.status())
    }
}

/// Money on its way back.
pub async fn refunds(staff: Staff<Viewer>, Query(query): Query<ListQuery>) -> Result<Response, ConsoleError> {
    let all = query.all.is_some();
    let mut conn = staff.app.db.pool().acquire().await?;
    let tasks = refund::list(&mut conn, !all, query.before, PAGE_ROWS).await?;
    let full = i64::try_from(tasks.len()) == Ok(PAGE_ROWS);
    let next = tasks.last().map(|task| task.task_id).filter(|_| full);
    show(&RefundsPage { all, tasks, next, frame: staff.frame })
}

#[derive(Template)]
#[template(path = "cases.html")]
struct CasesPage {
    frame: Frame,
    all: bool,
    cases: Vec<Case>,
    next: Option<i64>,
    form_key: String,
}

impl CasesPage {
    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, OFFICE_ZONE)
    }
}

/// What a person has to look at.
pub async fn cases(staff: Staff<Viewer>, Query(query): Query<ListQuery>) -> Result<Response, ConsoleError> {
    let all = query.all.is_some();
    let mut conn = staff.app.db.pool().acquire().await?;
    let cases = case::list(&mut conn, !all, query.before, PAGE_ROWS).await?;
    let full = i64::try_from(cases.len()) == Ok(PAGE_ROWS);
    let next = cases.last().map(|case| case.case_id).filter(|_| full);
    show(&CasesPage { all, cases, next, form_key: form_key(), frame: staff.frame })
}

/// A decision about a case as it is typed in.
#[derive(Debug, Deserialize)]
pub struct ResolutionFields {
    #[serde(default)]
    resolution: String,
    #[serde(default)]
    tenant_id: String,
    #[serde(default)]
    note: String,
    key: String,
}

enum ResolveRefusal {
    Key,
    Case(CaseRefusal),
}

impl From<KeyReused> for ResolveRefusal {
    fn from(_: KeyReused) -> Self {
        Self::Key
    }
}

impl From<CaseRefusal> for ResolveRefusal {
    fn from(refusal: CaseRefusal) -> Self {
        Self::Case(refusal)
    }
}

/// Does what an approver decided about a case, once however often the form is sent.
pub async fn resolve(
    Path(case_id): Path<String>,
    form: SignedForm<Approver, ResolutionFields>,
) -> Result<Response, ConsoleError> {
    let SignedForm { staff, fields } = form;
    let language = staff.language();
    let case_id: i64 = case_id.parse().map_err(|_| ConsoleError::NotFound(language))?;
    let key = Key::parse(&fields.key).map_err(|_| ConsoleError::FormRefused(language))?;
    let refused = |words: String| ConsoleError::Refused(language, StatusCode::BAD_REQUEST, words);
    let tenant_id = match fields.tenant_id.trim() {
        "" => None,
        text => Some(TenantId::parse(text).map_err(|error| refused(format!("{} {}", error.what, error.rule)))?),
    };
    let resolution = match (fields.resolution.as_str(), tenant_id) {
        ("refund", _) => Resolution::Refund,
        ("keep", tenant_id) => Resolution::Keep(tenant_id),
        ("closed", _) => Resolution::Close,
        _ => return Err(ConsoleError::FormRefused(language)),
    };
    let note = match fields.note.trim() {
        "" => None,
        text => Some(Reason::parse(text).map_err(|error| refused(format!("{} {}", error.what, error.rule)))?),
    };
    let actor = Actor::parse(staff.who.actor.clone())
        .map_err(|error| Fault::new("a member of the staff is no actor").because(error))?;
    let request = json!({ "resolution": resolution.as_str(), "note": note.as_ref().map(Reason::as_str) });
    let claim = Claim::new(staff.who.actor.clone(), key, format!("POST /console/cases/{case_id}/resolve"), request);
    let deed = Deed { case_id, resolution, note, who: staff.who.clone(), actor };
    let app = staff.app.clone();
    // Money moves, so it runs to its end whoever hangs up (L8).
    let outcome = staff
        .app
        .run_to_end(async move {
            let (deed, claim, clock) = (&deed, &claim, &app.clock);
            let outcome = app
                .db
                .run("console_case_resolve", |conn| {
                    async move {
                        let now = clock.now();
                        if let Claimed::Answered(_) = idempotency::claim(conn, claim, now).await.widen()? {
                            return Ok(());
                        }
                        deed.perform(conn, now).await.widen()?;
                        let answer = Answer { status: 303, body: "{}".to_owned(), replayed: false };
                        idempotency::finish_all(conn, &[(claim, &answer)]).await?;
                        Ok::<_, Error<ResolveRefusal>>(())
                    }
                    .scope_boxed()
                })
                .await;
            if let Err(Error::Refused(ResolveRefusal::Case(refusal))) = &outcome {
                audit::write_alone(&app.db, clock, &deed.who, &deed.line(false, &format!(": {refusal}"))).await?;
            }
            Ok::<_, Fault>(outcome)
        })
        .await??;
    match outcome {
        Ok(()) => Ok(Redirect::to("/console/cases").into_response()),
        Err(Error::Fault(fault)) => Err(fault.into()),
        Err(Error::Refused(ResolveRefusal::Key)) => Err(ConsoleError::FormRefused(language)),
        Err(Error::Refused(ResolveRefusal::Case(CaseRefusal::UnknownCase(_)))) => Err(ConsoleError::NotFound(language)),
        Err(Error::Refused(ResolveRefusal::Case(refusal))) => {
            let w = staff.frame.w;
            let words = match refusal {
                CaseRefusal::UnknownCase(_) => w.error_not_found.to_owned(),
                CaseRefusal::Resolved { resolved_by, .. } => format!("{}: {resolved_by}", w.case_resolved_by),
                CaseRefusal::NoMoney(_) => w.case_no_money.to_owned(),
                CaseRefusal::MoneyWaits(_) => w.case_money_waits.to_owned(),
                CaseRefusal::Payment(refusal) => refusal.to_string(),
            };
            Err(ConsoleError::Refused(language, StatusCode::CONFLICT, words))
        }
    }
}
