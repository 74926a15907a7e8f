//! Payments that somebody is needed for: those on their way back to their payers, and those that a person has to look
//! at.

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::json;

use super::desk::form_key;
use super::health::OFFICE_ZONE;
use super::page::{ConsoleError, Frame, show};
use super::session::{Approver, SignedForm, Staff, Viewer};
use super::{money, refusals};
use crate::fault::{Error, Fault};
use crate::http::api::payment_cases::ResolveCase;
use crate::http::api::refund_tasks::GiveBack;
use crate::http::deed::{self, DeedRefusal};
use crate::idempotency::{Claim, Key};
use crate::ids::{Actor, Reason, TenantId};
use crate::payment;
use crate::payment::prepaid::GiveBackRefusal;
use crate::payment::prepaid::case::{self, Case, CaseRefusal, Resolution};
use crate::payment::prepaid::refund::{self, RefundTask};

const PAGE_ROWS: i64 = 50;

/// Where a list goes on.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    #[serde(default)]
    all: Option<String>,
    before: Option<i64>,
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
    /// Those with money that waits for somebody to say where it goes.
    with_money: Vec<i64>,
    next: Option<i64>,
    form_key: String,
}

impl CasesPage {
    fn waits(&self, case: &Case) -> bool {
        self.with_money.contains(&case.case_id)
    }

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
    let with_money = case::with_money(&mut conn, &cases).await?;
    drop(conn);
    show(&CasesPage { all, cases, with_money, next, form_key: form_key(), frame: staff.frame })
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

/// Does what an approver decided about a case, once however often the form is sent.
pub async fn resolve(
    Path(case_id): Path<String>,
    form: SignedForm<Approver, ResolutionFields>,
) -> Result<Response, ConsoleError> {
    let SignedForm { staff, fields } = form;
    let language = staff.language();
    let case_id: i64 = case_id.parse().map_err(|_| ConsoleError::NotFound(language))?;
    let key = Key::parse(&fields.key).map_err(|_| ConsoleError::FormRefused(language))?;
    let refused = |words: String| ConsoleError::Refused(StatusCode::BAD_REQUEST, words);
    let tenant_id = match fields.tenant_id.trim() {
        "" => None,
        text => Some(TenantId::parse(text).map_err(|error| refused(refusals::name(language, &error)))?),
    };
    let resolution = match (fields.resolution.as_str(), tenant_id) {
        ("keep", tenant_id) => Resolution::Keep(tenant_id),
        // Whoever typed it meant something by it, so it isn't left out in silence.
        ("refund" | "closed", Some(_)) => return Err(refused(staff.frame.w.case_tenant_with_keep.to_owned())),
        ("refund", None) => Resolution::Refund,
        ("closed", None) => Resolution::Close,
        _ => return Err(ConsoleError::FormRefused(language)),
    };
    let note = match fields.note.trim() {
        "" => None,
        text => Some(Reason::parse(text).map_err(|error| refused(refusals::name(language, &error)))?),
    };
    let target = match &resolution {
        Resolution::Keep(tenant_id) => tenant_id.as_ref().map(TenantId::as_str),
        Resolution::Refund | Resolution::Close => None,
    };
    let request = json!({ "resolution": resolution.as_str(), "tenant_id": target,
                          "note": note.as_ref().map(Reason::as_str) });
    let claim = Claim::new(staff.who.actor.clone(), key, format!("POST /console/cases/{case_id}/resolve"), request);
    let deed = ResolveCase { case_id, resolution, note, who: staff.who.clone(), actor: actor(&staff)? };
    let w = staff.frame.w;
    let words = match deed::perform(&staff.app, deed, claim).await {
        Ok(_) => return Ok(Redirect::to("/console/cases").into_response()),
        Err(Error::Fault(fault)) => return Err(fault.into()),
        Err(Error::Refused(DeedRefusal::Key(_))) => return Err(ConsoleError::FormRefused(language)),
        Err(Error::Refused(DeedRefusal::Deed(refusal))) => match refusal {
            CaseRefusal::UnknownCase(_) => return Err(ConsoleError::NotFound(language)),
            CaseRefusal::Resolved { resolved_by, .. } => format!("{}: {resolved_by}", w.case_resolved_by),
            CaseRefusal::NoMoney(_) => w.case_no_money.to_owned(),
            CaseRefusal::MoneyWaits(_) => w.case_money_waits.to_owned(),
            CaseRefusal::Payment(payment::Refusal::Ledger(refusal)) => refusals::words(language, None, &refusal.into()),
            CaseRefusal::Payment(refusal) => refusal.to_string(),
        },
    };
    Err(ConsoleError::Refused(StatusCode::CONFLICT, words))
}

/// Why a payment is to go back, as it is typed in.
#[derive(Debug, Deserialize)]
pub struct GiveBackFields {
    #[serde(default)]
    reason: String,
    key: String,
}

/// Gives a payment back to its payer through its provider, once however often the form is sent.
pub async fn give_back(
    Path(payment_id): Path<String>,
    form: SignedForm<Approver, GiveBackFields>,
) -> Result<Response, ConsoleError> {
    let SignedForm { staff, fields } = form;
    let language = staff.language();
    let payment_id: i64 = payment_id.parse().map_err(|_| ConsoleError::NotFound(language))?;
    let key = Key::parse(&fields.key).map_err(|_| ConsoleError::FormRefused(language))?;
    let reason = Reason::parse(fields.reason.trim())
        .map_err(|error| ConsoleError::Refused(StatusCode::BAD_REQUEST, refusals::name(language, &error)))?;
    let request = json!({ "reason": reason.as_str() });
    let operation = format!("POST /console/payments/{payment_id}/give-back");
    let claim = Claim::new(staff.who.actor.clone(), key, operation, request);
    let deed = GiveBack { payment_id, reason, who: staff.who.clone(), actor: actor(&staff)? };
    let words = match deed::perform(&staff.app, deed, claim).await {
        Ok(_) => return Ok(Redirect::to("/console/refund-tasks").into_response()),
        Err(Error::Fault(fault)) => return Err(fault.into()),
        Err(Error::Refused(DeedRefusal::Key(_))) => return Err(ConsoleError::FormRefused(language)),
        Err(Error::Refused(DeedRefusal::Deed(GiveBackRefusal::UnknownPayment(_)))) => {
            return Err(ConsoleError::NotFound(language));
        }
        Err(Error::Refused(DeedRefusal::Deed(refusal))) => refusals::give_back(language, &refusal),
    };
    Err(ConsoleError::Refused(StatusCode::CONFLICT, words))
}

fn actor<R>(staff: &Staff<R>) -> Result<Actor, Fault> {
    Actor::parse(staff.who.actor.clone())
        .map_err(|error| Fault::new("a member of the staff is no actor").because(error))
}
