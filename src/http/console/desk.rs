//! Refunds and adjustments: a form, what would happen, and then the deed, once however often it is clicked.

use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::money;
use super::page::{ConsoleError, Frame, show};
use super::refusals;
use super::session::{Agent, SignedForm, Staff};
use crate::fault::Error;
use crate::http::api::support::render;
use crate::idempotency::{Claim, Key};
use crate::ids::{Reason, TenantId};
use crate::money::{Currency, CurrencyCode, MinorUnits};
use crate::support::{AdjustmentReason, Ask, Deed, Performance, Rehearsal};

/// A key for one form: the same form sent twice is one deed.
pub fn form_key() -> String {
    Uuid::now_v7().to_string()
}

/// A refund as it is typed in.
#[derive(Debug, Clone, Deserialize)]
pub struct RefundFields {
    currency: String,
    transaction: i64,
    amount: String,
    reason: String,
    key: String,
}

/// An adjustment as it is typed in.
#[derive(Debug, Clone, Deserialize)]
pub struct AdjustmentFields {
    currency: String,
    amount: String,
    reason: String,
    note: String,
    key: String,
}

/// A field that goes on unchanged from the preview to the deed.
struct Kept {
    name: &'static str,
    value: String,
}

#[derive(Template)]
#[template(path = "preview.html")]
struct PreviewPage {
    frame: Frame,
    title: &'static str,
    tenant_id: String,
    action: String,
    pairs: Vec<(&'static str, String)>,
    before: String,
    after: String,
    rehearsal: Rehearsal,
    limit: String,
    moved_lately: String,
    kept: Vec<Kept>,
}

/// What was asked for, checked.
struct Asked {
    ask: Ask,
    currency: Currency,
    key: Key,
    request: Value,
    path: String,
    /// What it is, for the person to check.
    pairs: Vec<(&'static str, String)>,
    kept: Vec<Kept>,
}

fn wrong(field: &str, rule: &dyn std::fmt::Display) -> ConsoleError {
    ConsoleError::Refused(StatusCode::BAD_REQUEST, format!("{field}: {rule}"))
}

async fn currency(staff: &Staff<Agent>, code: &str) -> Result<Currency, ConsoleError> {
    let code = CurrencyCode::parse(code).map_err(|_| ConsoleError::NotFound(staff.language()))?;
    staff.app.currencies.find(&code).await?.ok_or(ConsoleError::NotFound(staff.language()))
}

/// People write `150 000,50`.
fn amount(staff: &Staff<Agent>, text: &str, currency: &Currency) -> Result<MinorUnits, ConsoleError> {
    let plain = text.trim().replace(['\u{a0}', ' '], "").replace(',', ".").replace('\u{2212}', "-");
    MinorUnits::parse(&plain, currency)
        .map_err(|_| wrong(staff.frame.w.amount, &format!("{} {text:?}", staff.frame.w.rule_amount)))
}

async fn asked_refund(staff: &Staff<Agent>, tenant_id: &str, fields: RefundFields) -> Result<Asked, ConsoleError> {
    let tenant_id = TenantId::parse(tenant_id).map_err(|_| ConsoleError::NotFound(staff.language()))?;
    let currency = currency(staff, &fields.currency).await?;
    let amount = amount(staff, &fields.amount, &currency)?;
    if !amount.is_positive() {
        return Err(wrong(staff.frame.w.amount, &"> 0"));
    }
    let reason = Reason::parse(fields.reason.trim())
        .map_err(|error| wrong(staff.frame.w.reason, &refusals::name(staff.language(), &error)))?;
    let key = Key::parse(&fields.key).map_err(|_| ConsoleError::FormRefused(staff.language()))?;
    let path = format!("/console/tenants/{tenant_id}/refund");
    let w = staff.frame.w;
    Ok(Asked {
        pairs: vec![
            (w.amount, money::text(amount, &currency)),
            (w.gives_back, format!("{} {}", w.row, fields.transaction)),
            (w.reason, reason.to_string()),
        ],
        request: json!({ "currency": fields.currency, "transaction": fields.transaction,
                         "amount": amount.to_text(currency.exponent), "reason": reason.as_str() }),
        kept: vec![
            Kept { name: "currency", value: fields.currency },
            Kept { name: "transaction", value: fields.transaction.to_string() },
            Kept { name: "amount", value: amount.to_text(currency.exponent) },
            Kept { name: "reason", value: reason.to_string() },
            Kept { name: "key", value: fields.key },
        ],
        ask: Ask::refund(tenant_id, currency.clone(), fields.transaction, amount, reason),
        currency,
        key,
        path,
    })
}

async fn asked_adjustment(
    staff: &Staff<Agent>,
    tenant_id: &str,
    fields: AdjustmentFields,
) -> Result<Asked, ConsoleError> {
    let tenant_id = TenantId::parse(tenant_id).map_err(|_| ConsoleError::NotFound(staff.language()))?;
    let currency = currency(staff, &fields.currency).await?;
    let amount = amount(staff, &fields.amount, &currency)?;
    if amount.is_zero() {
        return Err(wrong(staff.frame.w.amount, &"≠ 0"));
    }
    let reason = AdjustmentReason::parse(&fields.reason)
        .map_err(|error| wrong(staff.frame.w.reason, &refusals::name(staff.language(), &error)))?;
    let note = fields.note.trim().to_owned();
    if note.chars().count() > 400 {
        return Err(wrong(staff.frame.w.note, &"≤ 400"));
    }
    let note =
        Reason::parse(note).map_err(|error| wrong(staff.frame.w.note, &refusals::name(staff.language(), &error)))?;
    let key = Key::parse(&fields.key).map_err(|_| ConsoleError::FormRefused(staff.language()))?;
    let path = format!("/console/tenants/{tenant_id}/adjustment");
    let w = staff.frame.w;
    let reason_name = super::tenant::reasons(w).into_iter().find(|(known, _)| *known == reason).map(|(_, name)| name);
    Ok(Asked {
        pairs: vec![
            (w.amount, money::text(amount, &currency)),
            (w.reason, reason_name.unwrap_or_default().to_owned()),
            (w.note, note.to_string()),
        ],
        request: json!({ "currency": fields.currency, "amount": amount.to_text(currency.exponent),
                         "reason": reason.as_str(), "note": note.as_str() }),
        kept: vec![
            Kept { name: "currency", value: fields.currency },
            Kept { name: "amount", value: amount.to_text(currency.exponent) },
            Kept { name: "reason", value: reason.as_str().to_owned() },
            Kept { name: "note", value: note.to_string() },
            Kept { name: "key", value: fields.key },
        ],
        ask: Ask::adjustment(tenant_id, currency.clone(), amount, reason, &note),
        currency,
        key,
        path,
    })
}

async fn preview(staff: Staff<Agent>, asked: Asked, title: &'static str) -> Result<Response, ConsoleError> {
    let rehearsal =
        staff.desk().rehearse(&staff.app.db, &staff.app.clock, &asked.ask).await.map_err(|error| {
            refused(error, |refusal| refusals::words(staff.language(), Some(&asked.currency), refusal))
        })?;
    show(&PreviewPage {
        title,
        tenant_id: asked.ask.tenant_id().to_string(),
        action: asked.path,
        pairs: asked.pairs,
        before: money::text(rehearsal.before, &asked.currency),
        after: money::text(rehearsal.after, &asked.currency),
        moved_lately: money::text(rehearsal.moved_lately, &asked.currency),
        limit: format!("{} {}", rehearsal.limit, asked.currency.code),
        rehearsal,
        kept: asked.kept,
        frame: staff.frame,
    })
}

/// Does it and leads to the request's page, which also a second click reaches.
async fn perform(staff: Staff<Agent>, asked: Asked) -> Result<Response, ConsoleError> {
    let claim = Claim::new(staff.who.actor.clone(), asked.key, format!("POST {}", asked.path), asked.request);
    let request_id = deed(&staff, claim, Some(&asked.currency), Deed::Ask(asked.ask)).await?;
    Ok(Redirect::to(&format!("/console/requests/{request_id}")).into_response())
}

/// A refusal as a page, or a fault.
fn refused<R>(error: Error<R>, words: impl FnOnce(&R) -> String) -> ConsoleError {
    match error {
        Error::Refused(refusal) => ConsoleError::Refused(StatusCode::CONFLICT, words(&refusal)),
        Error::Fault(fault) => ConsoleError::Fault(fault),
    }
}

/// Runs a deed to its end and returns the number of the request it is about.
pub async fn deed<R>(
    staff: &Staff<R>,
    claim: Claim,
    currency: Option<&Currency>,
    deed: Deed,
) -> Result<i64, ConsoleError> {
    let app = &staff.app;
    let performance = Performance {
        db: app.db.clone(),
        clock: app.clock.clone(),
        limits: app.settings.support_limits.clone(),
        who: staff.who.clone(),
        rights: staff.rights(),
        claim,
        render,
    };
    let answer = app
        .run_to_end(performance.run(deed))
        .await?
        .map_err(|error| refused(error, |refusal| refusals::deed_words(staff.language(), currency, refusal)))?;
    let body: Value = serde_json::from_str(&answer.body)
        .map_err(|error| crate::fault::Fault::new("a stored answer is not JSON").because(error))?;
    body.get("request_id")
        .and_then(Value::as_i64)
        .ok_or_else(|| crate::fault::Fault::new("a stored answer names no request").into())
}

/// What a refund would do.
pub async fn preview_refund(
    Path(tenant_id): Path<String>,
    form: SignedForm<Agent, RefundFields>,
) -> Result<Response, ConsoleError> {
    let asked = asked_refund(&form.staff, &tenant_id, form.fields).await?;
    let title = form.staff.frame.w.refund;
    preview(form.staff, asked, title).await
}

/// Refunds.
pub async fn refund(
    Path(tenant_id): Path<String>,
    form: SignedForm<Agent, RefundFields>,
) -> Result<Response, ConsoleError> {
    let asked = asked_refund(&form.staff, &tenant_id, form.fields).await?;
    perform(form.staff, asked).await
}

/// What an adjustment would do.
pub async fn preview_adjustment(
    Path(tenant_id): Path<String>,
    form: SignedForm<Agent, AdjustmentFields>,
) -> Result<Response, ConsoleError> {
    let asked = asked_adjustment(&form.staff, &tenant_id, form.fields).await?;
    let title = form.staff.frame.w.adjustment;
    preview(form.staff, asked, title).await
}

/// Adjusts.
pub async fn adjust(
    Path(tenant_id): Path<String>,
    form: SignedForm<Agent, AdjustmentFields>,
) -> Result<Response, ConsoleError> {
    let asked = asked_adjustment(&form.staff, &tenant_id, form.fields).await?;
    perform(form.staff, asked).await
}
