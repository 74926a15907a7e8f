//! Rules S1, S2, L6, L8 and F5 at the support desk: what is given back never exceeds what was taken, nobody moves
//! more than their limit without a second person, and no repeat, race or detour changes that. A hole here is a till
//! that its own clerks can empty.

mod deeds;
mod requests;

use chrono::{DateTime, Utc};
use hamyon::audit::Who;
use hamyon::fault::{Error, Fault};
use hamyon::idempotency::{Answer as Kept, Claim, Key};
use hamyon::ids::{Reason, TenantId};
use hamyon::jobs::Job;
use hamyon::money::{Currency, CurrencyCode, Exponent, MinorUnits};
use hamyon::staff::Role;
use hamyon::support::{AdjustmentReason, Ask, Deed, DeedRefusal, Outcome, Performance, Refusal, Rights};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Answer, Call};
use crate::support::app::entry;

/// Row 1: a top-up of 100,000.00. Row 2: a debit of 600.00. Row 3: one of 10,000.00. An agent may move 1,000.00
/// alone, an approver 5,000.00.
async fn desk() -> TestApp {
    let app = TestApp::start().await;
    furnish(&app).await;
    app
}

async fn furnish(app: &TestApp) {
    app.tenant("acme").await;
    app.fund("acme", 10_000_000).await;
    let debits = [entry("acme", "purchase", -60_000, "small"), entry("acme", "purchase", -1_000_000, "large")];
    app.post_entries(&debits).await.unwrap();
}

fn uzs() -> Currency {
    Currency { code: CurrencyCode::uzs(), exponent: Exponent::parse(2).unwrap() }
}

fn tenant(tenant_id: &str) -> TenantId {
    TenantId::parse(tenant_id).unwrap()
}

/// A refund in so'm, in minor units.
fn refund(original: i64, amount: i64) -> Deed {
    let reason = Reason::parse("a test").unwrap();
    Deed::Ask(Ask::refund(tenant("acme"), uzs(), original, MinorUnits::new(amount), reason))
}

/// An adjustment in so'm, in minor units.
fn adjustment(tenant_id: &str, amount: i64) -> Deed {
    let note = Reason::parse("a test").unwrap();
    let reason = AdjustmentReason::Goodwill;
    Deed::Ask(Ask::adjustment(tenant(tenant_id), uzs(), MinorUnits::new(amount), reason, &note))
}

const fn approve(request_id: i64) -> Deed {
    Deed::Approve { request_id, note: None }
}

#[expect(clippy::unnecessary_wraps, reason = "the desk asks for one that may fail")]
fn render(outcome: &Outcome, now: DateTime<Utc>) -> Result<(u16, String), Fault> {
    let request = &outcome.request;
    let row = outcome.row.as_ref().map(|row| row.seq);
    assert_eq!(row, request.posted_seq);
    let body = json!({ "request_id": request.request_id, "status": request.status(now), "posted": row });
    Ok((200, body.to_string()))
}

fn who(name: &str, role: Role) -> Who {
    Who {
        actor: format!("staff:{name}"),
        role: Some(role.as_str()),
        remote_address: Some("10.1.2.3".to_owned()),
        request_id: Some("the-request".to_owned()),
    }
}

/// A deed of a person, as the console does it.
async fn perform(app: &TestApp, name: &str, role: Role, key: &str, deed: Deed) -> Result<Kept, Error<DeedRefusal>> {
    let performance = Performance {
        db: app.app.db.clone(),
        clock: app.clock.clone(),
        limits: app.app.settings.support_limits.clone(),
        who: who(name, role),
        rights: Rights::Staff(role),
        claim: Claim::new(
            format!("staff:{name}"),
            Key::parse(key).unwrap(),
            "deed".to_owned(),
            json!(format!("{deed:?}")),
        ),
        render,
    };
    performance.run(deed).await
}

/// The status of the request that came of it.
async fn done(app: &TestApp, name: &str, role: Role, key: &str, deed: Deed) -> String {
    let answer = perform(app, name, role, key, deed).await.unwrap();
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    body["status"].as_str().unwrap().to_owned()
}

async fn refused(app: &TestApp, name: &str, role: Role, key: &str, deed: Deed) -> Refusal {
    match perform(app, name, role, key, deed).await {
        Err(Error::Refused(DeedRefusal::Desk(refusal))) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn post(app: &TestApp, token: &str, path: &str, key: &str, body: &Value) -> Answer {
    Call::new("POST", path).token(token).key(key).json(body).send(app).await
}

fn refund_body(original: i64, amount: &str) -> Value {
    json!({ "transaction": original, "amount": amount, "reason": "Xizmat bo‘lmadi" })
}

fn adjustment_body(amount: &str) -> Value {
    json!({ "currency": "UZS", "amount": amount, "reason": "correction", "note": "typed twice" })
}

const REFUNDS: &str = "/v1/tenants/acme/refunds";
const ADJUSTMENTS: &str = "/v1/tenants/acme/adjustments";

/// The newest line of the audit: action, allowed, actor, words.
async fn last_line(app: &TestApp) -> (String, bool, String, String) {
    sqlx::query_as("SELECT action, allowed, actor, words FROM audit_log ORDER BY seq DESC LIMIT 1")
        .fetch_one(&mut app.superuser().await)
        .await
        .unwrap()
}

async fn support_rows(app: &TestApp) -> i64 {
    app.count("SELECT count(*) FROM wallet_transactions WHERE reference LIKE 'support:%'").await
}

/// A tenant who owes December's 500.00.
async fn overdue(app: &TestApp) {
    app.plan("standard", "500.00").await;
    app.tenant("acme").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    let (_, tenant) = app.get("/v1/tenants/acme").await;
    assert_eq!(tenant["payment_overdue"], true, "{tenant}");
}
