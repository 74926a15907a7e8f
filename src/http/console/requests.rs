//! What waits for a second person, and what became of it.

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::json;

use super::desk::{deed, form_key};
use super::page::{ConsoleError, Frame, show};
use super::session::{Agent, Approver, AtLeast, SignedForm, Staff, Viewer};
use super::words::Words;
use super::{money, refusals};
use crate::fault::Error;
use crate::idempotency::{Claim, Key};
use crate::ids::Reason;
use crate::ledger::{self, Kind};
use crate::support::{Deed, Request, RequestQuery, list_requests};

const PAGE_ROWS: i64 = 50;

/// Which requests.
#[derive(Debug, Deserialize)]
pub struct ListQuery {
    #[serde(default)]
    all: Option<String>,
    before: Option<i64>,
}

#[derive(Template)]
#[template(path = "requests.html")]
struct ListPage {
    frame: Frame,
    all: bool,
    requests: Vec<Request>,
    next: Option<i64>,
    now: DateTime<Utc>,
}

impl ListPage {
    fn reason(&self, request: &Request) -> String {
        reason_words(self.frame.w, request)
    }

    fn status(&self, request: &Request) -> &'static str {
        self.frame.w.request_status(request.status(self.now))
    }

    fn amount(request: &Request) -> String {
        money::text(request.amount, &request.currency)
    }

    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, super::health::OFFICE_ZONE)
    }
}

/// The queue.
pub async fn list(staff: Staff<Viewer>, Query(query): Query<ListQuery>) -> Result<Response, ConsoleError> {
    let all = query.all.is_some();
    let asked = RequestQuery {
        undecided: !all,
        open_at: (!all).then(|| staff.app.clock.now()),
        before_id: query.before,
        limit: PAGE_ROWS,
        ..RequestQuery::default()
    };
    let mut conn = staff.app.db.pool().acquire().await?;
    let requests = list_requests(&mut conn, &asked).await?;
    let full = i64::try_from(requests.len()) == Ok(PAGE_ROWS);
    let next = requests.last().map(|request| request.request_id).filter(|_| full);
    show(&ListPage { all, requests, next, now: staff.app.clock.now(), frame: staff.frame })
}

#[derive(Template)]
#[template(path = "request.html")]
struct RequestPage {
    frame: Frame,
    request: Request,
    status: &'static str,
    waiting: bool,
    own: bool,
    form_key: String,
    /// What the wallet has now.
    balance: String,
    available: String,
    /// What can still be given back of the row that it gives back.
    left: Option<String>,
    /// What approving it now would do.
    outlook: Option<Outlook>,
}

/// What approving would do: the balance after it and how many overdue dues it pays, or why it would be refused.
enum Outlook {
    Posts { after: String, dues_paid: usize },
    Refused(String),
}

impl RequestPage {
    fn amount(&self) -> String {
        money::text(self.request.amount, &self.request.currency)
    }

    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, super::health::OFFICE_ZONE)
    }

    /// An adjustment's reason is a code of a list.
    fn reason(&self) -> String {
        reason_words(self.frame.w, &self.request)
    }
}

/// The reason of a request in the reader's language: a code of a list for an adjustment, free words for a refund.
pub fn reason_words(w: &'static Words, request: &Request) -> String {
    let known = super::tenant::reasons(w).into_iter().find(|(reason, _)| reason.as_str() == request.reason);
    match known {
        Some((_, name)) if request.kind == Kind::Adjustment => name.to_owned(),
        Some(_) | None => request.reason.clone(),
    }
}

/// One request.
pub async fn page(staff: Staff<Viewer>, Path(request_id): Path<String>) -> Result<Response, ConsoleError> {
    let not_found = || ConsoleError::NotFound(staff.language());
    let request_id: i64 = request_id.parse().map_err(|_| not_found())?;
    let query = RequestQuery { request_id: Some(request_id), limit: 1, ..RequestQuery::default() };
    let mut conn = staff.app.db.pool().acquire().await?;
    let request = list_requests(&mut conn, &query).await?.pop().ok_or_else(not_found)?;
    let now = staff.app.clock.now();
    let status = request.status(now);
    let (tenant_id, currency) = (&request.tenant_id, &request.currency);
    let has = ledger::balance(&mut conn, tenant_id, &currency.code, None, now).await?;
    let (balance, available) = has.map(|has| (has.balance, has.available)).unwrap_or_default();
    let left = match request.original_seq {
        None => None,
        Some(seq) => {
            let back = ledger::given_back(&mut conn, tenant_id, &currency.code, seq).await?;
            ledger::row(&mut conn, tenant_id, &currency.code, seq)
                .await?
                .and_then(|row| row.amount.checked_add(back)?.checked_neg())
                .map(|left| money::text(left, currency))
        }
    };
    drop(conn);
    let outlook = if status == "waiting" {
        match staff.desk().rehearse_approval(&staff.app.db, &staff.app.clock, &request).await {
            Ok(rehearsal) => {
                Some(Outlook::Posts { after: money::text(rehearsal.after, currency), dues_paid: rehearsal.dues_paid })
            }
            Err(Error::Refused(refusal)) => {
                Some(Outlook::Refused(refusals::words(staff.language(), Some(currency), &refusal)))
            }
            Err(Error::Fault(fault)) => return Err(fault.into()),
        }
    } else {
        None
    };
    show(&RequestPage {
        balance: money::text(balance, currency),
        available: money::text(available, currency),
        left,
        outlook,
        own: request.requested_by == staff.who.actor,
        waiting: status == "waiting",
        status: staff.frame.w.request_status(status),
        request,
        form_key: form_key(),
        frame: staff.frame,
    })
}

/// A decision as it is typed in.
#[derive(Debug, Deserialize)]
pub struct DecisionFields {
    #[serde(default)]
    note: String,
    key: String,
}

async fn decide<R: AtLeast>(
    form: SignedForm<R, DecisionFields>,
    request_id: &str,
    verb: &str,
    make: impl FnOnce(i64, Option<Reason>) -> Deed,
) -> Result<Response, ConsoleError> {
    let SignedForm { staff, fields } = form;
    let language = staff.language();
    let request_id: i64 = request_id.parse().map_err(|_| ConsoleError::NotFound(language))?;
    let key = Key::parse(&fields.key).map_err(|_| ConsoleError::FormRefused(language))?;
    let note = match fields.note.trim() {
        "" => None,
        text => Some(Reason::parse(text).map_err(|error| {
            let words = format!("{}: {}", staff.frame.w.note, refusals::name(language, &error));
            ConsoleError::Refused(StatusCode::BAD_REQUEST, words)
        })?),
    };
    let request = json!({ "note": note.as_ref().map(Reason::as_str) });
    let path = format!("POST /console/requests/{request_id}/{verb}");
    let claim = Claim::new(staff.who.actor.clone(), key, path, request);
    let query = RequestQuery { request_id: Some(request_id), limit: 1, ..RequestQuery::default() };
    let currency = {
        let mut conn = staff.app.db.pool().acquire().await?;
        list_requests(&mut conn, &query).await?.pop().map(|request| request.currency)
    };
    let request_id = deed(&staff, claim, currency.as_ref(), make(request_id, note)).await?;
    Ok(Redirect::to(&format!("/console/requests/{request_id}")).into_response())
}

/// Says yes.
pub async fn approve(
    Path(request_id): Path<String>,
    form: SignedForm<Approver, DecisionFields>,
) -> Result<Response, ConsoleError> {
    decide(form, &request_id, "approve", |request_id, note| Deed::Approve { request_id, note }).await
}

/// Says no.
pub async fn reject(
    Path(request_id): Path<String>,
    form: SignedForm<Approver, DecisionFields>,
) -> Result<Response, ConsoleError> {
    decide(form, &request_id, "reject", |request_id, note| Deed::Reject { request_id, note }).await
}

/// Takes one's own back.
pub async fn withdraw(
    Path(request_id): Path<String>,
    form: SignedForm<Agent, DecisionFields>,
) -> Result<Response, ConsoleError> {
    decide(form, &request_id, "withdraw", |request_id, _| Deed::Withdraw { request_id }).await
}
