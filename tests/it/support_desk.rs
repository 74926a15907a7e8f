//! Rules S1, S2, L6, L8 and F5 at the support desk: what is given back never exceeds what was taken, nobody moves
//! more than their limit without a second person, and no repeat, race or detour changes that. A hole here is a till
//! that its own clerks can empty.

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::audit::Who;
use hamyon::fault::{Error, Fault};
use hamyon::idempotency::{Answer as Kept, Claim, Key};
use hamyon::ids::{Reason, TenantId};
use hamyon::jobs::Job;
use hamyon::ledger::Refusal as LedgerRefusal;
use hamyon::money::{Currency, CurrencyCode, Exponent, MinorUnits};
use hamyon::staff::Role;
use hamyon::support::{
    AdjustmentReason, Ask, Deed, DeedRefusal, Desk, Limit, Limits, Outcome, Performance, Refusal, Rights,
};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::idempotency::token_of;
use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::api::{Answer, Call};
use crate::support::app::{entry, settings};
use crate::support::process::eventually;

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

#[tokio::test]
async fn s1_a_refund_is_a_credit_that_names_its_debit_and_says_who_and_why() {
    let app = desk().await;
    let answer = post(&app, &app.token, REFUNDS, "K1", &refund_body(2, "250.5")).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let body = answer.json();
    for (member, value) in [
        ("status", json!("posted")),
        ("kind", json!("refund")),
        ("amount", json!("250.50")),
        ("original", json!(2)),
        ("requested_by", json!("api:tests")),
        ("decision", json!("within_limit")),
        ("decided_by", json!("api:tests")),
        ("posted", json!(4)),
    ] {
        assert_eq!(body[member], value, "{member}: {body}");
    }
    let row = &body["transaction"];
    for (member, value) in [
        ("seq", json!(4)),
        ("kind", json!("refund")),
        ("amount", json!("250.50")),
        ("original", json!(2)),
        ("reference", json!("support:1")),
        ("reason", json!("Xizmat bo‘lmadi")),
        ("actor", json!("api:tests")),
        ("metadata", json!({ "request_id": "1" })),
        ("balance_after", json!("89650.50")),
    ] {
        assert_eq!(row[member], value, "{member}: {row}");
    }
    let told = app.count("SELECT count(*) FROM events WHERE kind = 'refund.posted'").await;
    assert_eq!(told, 1);
    let (action, allowed, actor, words) = last_line(&app).await;
    assert_eq!((action.as_str(), allowed, actor.as_str()), ("refund", true, "api:tests"));
    assert!(words.contains("89400.00 before, 89650.50 after") && words.contains("row 4"), "{words}");
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn s1_refunds_of_one_debit_add_up_to_it_and_no_further() {
    let app = desk().await;
    for (key, amount) in [("a", "100.00"), ("b", "499.00")] {
        assert_eq!(post(&app, &app.token, REFUNDS, key, &refund_body(2, amount)).await.status, 201);
    }
    let before = app.everything_written().await;
    let answer = post(&app, &app.token, REFUNDS, "c", &refund_body(2, "1.01")).await;
    let problem = answer.refused(409, "original_exceeded", "a tiyin too much");
    assert_eq!((&problem["left_minor_units"], &problem["asked_minor_units"]), (&json!(100), &json!(101)));
    assert_eq!(app.everything_written().await, before);
    assert_eq!(post(&app, &app.token, REFUNDS, "c", &refund_body(2, "1.00")).await.status, 201, "the key was free");
    let answer = post(&app, &app.token, REFUNDS, "d", &refund_body(2, "0.01")).await;
    assert_eq!(answer.refused(409, "original_exceeded", "nothing is left")["left_minor_units"], 0);
}

#[tokio::test]
async fn s1_only_a_debit_of_this_wallet_is_given_back_and_a_top_up_goes_through_its_provider() {
    let app = desk().await;
    let id = "5305e3bab097f420a62ced0b";
    app.payme_created(id, "acme", 500_000).await;
    assert_eq!(app.payme("PerformTransaction", json!({ "id": id })).await["result"]["state"], 2);
    assert_eq!(post(&app, &app.token, REFUNDS, "r", &refund_body(2, "1.00")).await.status, 201, "row 5");
    app.tenant("other").await;
    app.fund("other", 1_000).await;
    app.post_entries(&[entry("other", "purchase", -500, "theirs")]).await.unwrap();
    let before = app.everything_written().await;
    for (original, code) in [
        (1, "goes_through_provider"),
        (4, "goes_through_provider"),
        (5, "original_unfit"),
        (6, "original_unfit"),
        (0, "original_unfit"),
        (-3, "original_unfit"),
        (i64::MAX, "original_unfit"),
        (i64::MIN, "original_unfit"),
    ] {
        // Within the limit and above it: what can't be posted isn't asked a second person either.
        for amount in ["0.50", "2000.00"] {
            let answer = post(&app, &app.token, REFUNDS, "K1", &refund_body(original, amount)).await;
            let problem = answer.refused(422, code, &format!("row {original}"));
            assert_eq!(problem["transaction"], original);
        }
    }
    // Row 3 is a debit of acme's so'm wallet, and of no other.
    let answer = post(&app, &app.token, "/v1/tenants/other/refunds", "K1", &refund_body(3, "1.00")).await;
    answer.refused(422, "original_unfit", "another tenant's row");
    let mut dollars = refund_body(3, "1.00");
    dollars["currency"] = json!("USD");
    post(&app, &app.token, REFUNDS, "K1", &dollars).await.refused(422, "original_unfit", "another currency's row");
    dollars["currency"] = json!("EUR");
    post(&app, &app.token, REFUNDS, "K1", &dollars).await.refused(404, "currency_not_found", "no such currency");
    for path in ["/v1/tenants/nobody/refunds", "/v1/tenants/nobody/adjustments"] {
        let body = if path.ends_with("refunds") { refund_body(3, "1.00") } else { adjustment_body("1.00") };
        post(&app, &app.token, path, "K1", &body).await.refused(404, "tenant_not_found", path);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn s1_zero_and_the_wrong_sign_are_refused_and_remembered() {
    let app = desk().await;
    let before = app.everything_written().await;
    for (path, body) in [
        (REFUNDS, refund_body(2, "0")),
        (REFUNDS, refund_body(2, "0.00")),
        (REFUNDS, refund_body(2, "-1.00")),
        (REFUNDS, refund_body(2, "-100000.00")),
        (ADJUSTMENTS, adjustment_body("0")),
        (ADJUSTMENTS, adjustment_body("-0.00")),
    ] {
        let answer = post(&app, &app.token, path, "K1", &body).await;
        answer.refused(422, "wrong_sign", &body.to_string());
        let (action, allowed, actor, words) = last_line(&app).await;
        assert_eq!(
            (action.as_str(), allowed, actor.as_str()),
            (&path[17..path.len() - 1], false, "api:tests"),
            "{words}"
        );
    }
    let desk = refused(&app, "ann", Role::Agent, "k", refund(2, -1)).await;
    assert!(matches!(desk, Refusal::Ledger(LedgerRefusal::WrongSign { amount: -1, .. })), "{desk:?}");
    for amount in ["1.001", "1e2", "", "9223372036854775808", "NaN"] {
        for (path, body) in [(REFUNDS, refund_body(2, amount)), (ADJUSTMENTS, adjustment_body(amount))] {
            post(&app, &app.token, path, "K1", &body).await.refused(400, "invalid_request", amount);
        }
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn s1_an_adjustment_needs_a_reason_of_the_list_and_a_note() {
    let app = desk().await;
    let before = app.everything_written().await;
    for (field, value) in [
        ("reason", json!("because")),
        ("reason", json!("Goodwill")),
        ("reason", json!("")),
        ("reason", Value::Null),
        ("note", json!("")),
        ("note", json!("  ")),
        ("note", json!("two\nlines")),
        ("note", json!("x".repeat(401))),
        ("note", Value::Null),
    ] {
        let mut body = adjustment_body("1.00");
        body[field] = value.clone();
        post(&app, &app.token, ADJUSTMENTS, "K1", &body).await.refused(400, "invalid_request", &body.to_string());
        body.as_object_mut().unwrap().remove(field);
        post(&app, &app.token, ADJUSTMENTS, "K1", &body).await.refused(400, "invalid_request", &body.to_string());
    }
    assert_eq!(app.everything_written().await, before);
    for (number, reason) in AdjustmentReason::ALL.into_iter().enumerate() {
        let mut body = adjustment_body("-1.00");
        body["reason"] = json!(reason.as_str());
        // 400 letters of two bytes each, with the longest code before them, still fit.
        body["note"] = json!("ў".repeat(400));
        let answer = post(&app, &app.token, ADJUSTMENTS, &format!("K{number}"), &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let said = format!("{}: {}", reason.as_str(), "ў".repeat(400));
        assert_eq!(answer.json()["transaction"]["reason"], said);
    }
    // A negative adjustment is a debit, so it can be given back.
    assert_eq!(post(&app, &app.token, REFUNDS, "back", &refund_body(4, "1.00")).await.status, 201);
}

#[tokio::test]
async fn s1_an_adjustment_never_takes_more_than_there_is() {
    let app = desk().await;
    app.tenant("poor").await;
    let before = app.everything_written().await;
    for amount in ["-0.01", "-2000.00"] {
        let path = "/v1/tenants/poor/adjustments";
        post(&app, &app.token, path, "K1", &adjustment_body(amount)).await.refused(402, "insufficient_funds", amount);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn l6_everything_that_changes_something_needs_a_key() {
    let app = desk().await;
    assert_eq!(post(&app, &app.token, ADJUSTMENTS, "K1", &adjustment_body("2000")).await.status, 202);
    let before = app.everything_written().await;
    for (path, body) in [
        (REFUNDS, refund_body(2, "1")),
        (ADJUSTMENTS, adjustment_body("1")),
        ("/v1/support-requests/1/approve", json!({})),
        ("/v1/support-requests/1/reject", json!({})),
        ("/v1/support-requests/1/withdraw", json!({})),
    ] {
        let call = Call::new("POST", path).token(&app.token).json(&body);
        call.send(&app).await.refused(400, "idempotency_key_missing", path);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn l6_a_refund_sent_twice_is_booked_once_and_answered_the_same_for_ever() {
    let app = desk().await;
    let first = post(&app, &app.token, REFUNDS, "K1", &refund_body(2, "10.00")).await;
    // One that waits is answered as it was then, whatever became of it.
    let waiting = post(&app, &app.token, REFUNDS, "K2", &refund_body(3, "5000.00")).await;
    assert_eq!((first.status.as_u16(), waiting.status.as_u16()), (201, 202));
    let boss = token_of(&app, "boss").await;
    let path = "/v1/support-requests/2/approve";
    let approved = post(&app, &boss, path, "K1", &json!({ "note": "ok" })).await;
    assert_eq!(approved.status, 201, "{}", approved.text());
    let before = app.everything_written().await;
    let lines = app.count("SELECT count(*) FROM audit_log").await;
    for days in [0, 1, 400] {
        app.clock.advance(TimeDelta::days(days));
        for (token, path, key, body, first) in [
            (&app.token, REFUNDS, "K1", refund_body(2, "10.00"), &first),
            (&app.token, REFUNDS, "K2", refund_body(3, "5000.00"), &waiting),
            (&boss, path, "K1", json!({ "note": "ok" }), &approved),
        ] {
            let again = post(&app, token, path, key, &body).await;
            assert_eq!((again.status, &again.bytes), (first.status, &first.bytes));
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
        }
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(app.count("SELECT count(*) FROM audit_log").await, lines, "an answer given again is no deed");
    // Another amount, another tenant and another deed are other requests.
    let answer = post(&app, &app.token, REFUNDS, "K1", &refund_body(2, "10.01")).await;
    assert_eq!(answer.refused(409, "idempotency_key_reused", "another amount")["fields"], json!(["amount"]));
    let answer = post(&app, &app.token, "/v1/tenants/other/refunds", "K1", &refund_body(2, "10.00")).await;
    assert_eq!(answer.refused(409, "idempotency_key_reused", "another tenant")["fields"], json!(["operation"]));
    let answer = post(&app, &boss, "/v1/support-requests/2/reject", "K1", &json!({ "note": "ok" })).await;
    assert_eq!(answer.refused(409, "idempotency_key_reused", "another deed")["fields"], json!(["operation"]));
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_sixteen_identical_refunds_at_once_are_one_row_and_one_answer() {
    let app = desk().await;
    let body = refund_body(2, "10.00");
    let answers = futures::future::join_all((0..16).map(|_| post(&app, &app.token, REFUNDS, "K1", &body))).await;
    for answer in &answers {
        assert_eq!((answer.status.as_u16(), &answer.bytes), (201, &answers[0].bytes), "{}", answer.text());
    }
    let fresh = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none()).count();
    assert_eq!((fresh, support_rows(&app).await), (1, 1));
    assert_eq!(app.count("SELECT count(*) FROM audit_log").await, 1);
    assert_eq!(app.count("SELECT count(*) FROM support_requests").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_twelve_agents_refunding_one_debit_at_once_never_give_back_more() {
    let app = desk().await;
    let agents: Vec<String> = (0..12).map(|number| format!("agent-{number}")).collect();
    let asks = agents.iter().map(|name| perform(&app, name, Role::Agent, "K1", refund(2, 10_000)));
    let outcomes = futures::future::join_all(asks).await;
    let posted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let exceeded = outcomes
        .iter()
        .filter(|outcome| {
            matches!(
                outcome,
                Err(Error::Refused(DeedRefusal::Desk(Refusal::Ledger(LedgerRefusal::OriginalExceeded { .. }))))
            )
        })
        .count();
    assert_eq!((posted, exceeded), (6, 6), "{outcomes:?}");
    assert_eq!(app.sum("acme").await, 9_000_000, "600.00 came back");
    let (allowed, told) = tokio::join!(
        app.count("SELECT count(*) FROM audit_log WHERE allowed"),
        app.count("SELECT count(*) FROM audit_log WHERE NOT allowed")
    );
    assert_eq!((allowed, told), (6, 6));
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn s1_two_agents_whose_refunds_met_at_the_lock_share_what_is_left() {
    let app = desk().await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.unwrap();
    let (one, two, ()) = tokio::join!(
        perform(&app, "ann", Role::Agent, "K1", refund(2, 40_000)),
        perform(&app, "bob", Role::Agent, "K1", refund(2, 40_000)),
        async {
            until_blocked(&app, 2).await;
            holding.rollback().await.unwrap();
        }
    );
    assert_eq!([&one, &two].iter().filter(|outcome| outcome.is_ok()).count(), 1, "{one:?} {two:?}");
    assert_eq!(support_rows(&app).await, 1);
}

#[tokio::test]
async fn s2_two_at_once_that_fit_the_limit_each_but_not_together_are_not_both_posted() {
    let app = desk().await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.unwrap();
    let (one, two, ()) = tokio::join!(
        done(&app, "ann", Role::Agent, "K1", refund(3, 60_000)),
        done(&app, "ann", Role::Agent, "K2", refund(3, 60_000)),
        async {
            until_blocked(&app, 2).await;
            holding.rollback().await.unwrap();
        }
    );
    let mut statuses = [one, two];
    statuses.sort();
    assert_eq!(statuses, ["posted", "waiting"]);
    assert_eq!(support_rows(&app).await, 1);
}

#[tokio::test]
async fn s2_many_small_movements_do_not_pass_the_limit_of_a_day() {
    let app = desk().await;
    app.tenant("other").await;
    for number in 0..10 {
        assert_eq!(done(&app, "ann", Role::Agent, &format!("K{number}"), refund(3, 10_000)).await, "posted");
    }
    assert_eq!(done(&app, "ann", Role::Agent, "over", refund(3, 1)).await, "waiting", "a tiyin more");
    // Another person and another wallet have limits of their own.
    assert_eq!(done(&app, "bob", Role::Agent, "K1", refund(3, 100_000)).await, "posted");
    assert_eq!(done(&app, "ann", Role::Agent, "other", adjustment("other", 100_000)).await, "posted");
    app.clock.advance(TimeDelta::days(1) - TimeDelta::microseconds(1));
    assert_eq!(done(&app, "ann", Role::Agent, "early", refund(3, 1)).await, "waiting");
    app.clock.advance(TimeDelta::microseconds(1));
    assert_eq!(done(&app, "ann", Role::Agent, "next", refund(3, 100_000)).await, "posted", "a day has passed");
}

#[tokio::test]
async fn s2_what_is_given_and_what_is_taken_add_up_and_so_do_refunds_and_adjustments() {
    let app = desk().await;
    assert_eq!(done(&app, "ann", Role::Agent, "K1", adjustment("acme", 40_000)).await, "posted");
    assert_eq!(done(&app, "ann", Role::Agent, "K2", adjustment("acme", -40_000)).await, "posted");
    assert_eq!(done(&app, "ann", Role::Agent, "K3", refund(3, 20_001)).await, "waiting");
    assert_eq!(done(&app, "ann", Role::Agent, "K4", refund(3, 20_000)).await, "posted", "what waits doesn't count");
    assert_eq!(done(&app, "ann", Role::Agent, "K5", adjustment("acme", -1)).await, "waiting");
}

#[tokio::test]
async fn s2_an_approver_has_a_larger_limit_and_nobody_has_none() {
    let app = desk().await;
    for (name, role) in [("vera", Role::Approver), ("root", Role::Admin)] {
        assert_eq!(done(&app, name, role, "over", adjustment("acme", 500_001)).await, "waiting", "{role}");
        assert_eq!(done(&app, name, role, "K1", adjustment("acme", 500_000)).await, "posted", "{role}");
    }
    // A request is decided by another approver, whatever the amount.
    assert_eq!(done(&app, "root", Role::Admin, "yes", approve(1)).await, "posted");
}

#[tokio::test]
async fn s2_above_the_limit_one_asks_and_another_approves() {
    let app = desk().await;
    let answer = post(&app, &app.token, REFUNDS, "K1", &refund_body(3, "1000.01")).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["status"], &body["request_id"], &body["posted"]), (&json!("waiting"), &json!(1), &Value::Null));
    assert_eq!((&body["decision"], &body["transaction"]), (&Value::Null, &Value::Null));
    assert_eq!(body["expires_at"], "2026-12-02T09:00:00Z");
    assert_eq!(support_rows(&app).await, 0);
    let (action, allowed, _, words) = last_line(&app).await;
    assert_eq!((action.as_str(), allowed), ("refund", true));
    assert!(words.contains("waits for a second person"), "{words}");

    let before = app.everything_written().await;
    let path = "/v1/support-requests/1";
    for deed in ["approve", "reject"] {
        let answer = post(&app, &app.token, &format!("{path}/{deed}"), "own", &json!({})).await;
        assert_eq!(answer.refused(403, "own_request", deed)["request_id"], 1);
        let (action, allowed, actor, words) = last_line(&app).await;
        assert_eq!((action, allowed, actor.as_str()), (format!("request.{deed}"), false, "api:tests"), "{words}");
    }
    // Another token of the same program is the same asker.
    let renewed = token_of(&app, "tests").await;
    post(&app, &renewed, &format!("{path}/approve"), "own", &json!({})).await.refused(403, "own_request", "renewed");
    let boss = token_of(&app, "boss").await;
    let answer = post(&app, &boss, &format!("{path}/withdraw"), "K1", &json!({})).await;
    assert_eq!(answer.refused(403, "not_your_request", "another's")["request_id"], 1);
    assert_eq!(app.everything_written().await, before);

    let answer = post(&app, &boss, &format!("{path}/approve"), "K1", &json!({ "note": "looked at" })).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["status"], &body["decision"]), (&json!("posted"), &json!("approved")));
    assert_eq!((&body["decided_by"], &body["decision_note"]), (&json!("api:boss"), &json!("looked at")));
    let row = &body["transaction"];
    assert_eq!((&row["actor"], &row["amount"], &row["original"]), (&json!("api:boss"), &json!("1000.01"), &json!(3)));
    assert_eq!(row["metadata"], json!({ "request_id": "1", "requested_by": "api:tests" }));
    let (action, _, actor, words) = last_line(&app).await;
    assert_eq!((action.as_str(), actor.as_str()), ("request.approve", "api:boss"));
    assert!(words.contains("asked by api:tests"), "{words}");
    let shown = Call::new("GET", path).token(&app.token).send(&app).await.json();
    assert_eq!((&shown["status"], &shown["posted"]), (&json!("posted"), &json!(4)));
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn s2_the_role_says_who_asks_and_who_decides() {
    let app = desk().await;
    assert_eq!(done(&app, "ann", Role::Agent, "K1", refund(3, 200_000)).await, "waiting");
    let before = app.everything_written().await;
    let small = [
        ("vic", Role::Viewer, refund(2, 1), "agent"),
        ("vic", Role::Viewer, adjustment("acme", 1), "agent"),
        ("vic", Role::Viewer, Deed::Withdraw { request_id: 1 }, "agent"),
        ("vic", Role::Viewer, approve(1), "approver"),
        ("bob", Role::Agent, approve(1), "approver"),
        ("bob", Role::Agent, Deed::Reject { request_id: 1, note: None }, "approver"),
        // The role is asked for first: who may not decide isn't told what there is.
        ("bob", Role::Agent, approve(99), "approver"),
    ];
    for (name, role, deed, smallest) in small {
        let about = format!("{name} {deed:?}");
        let refusal = refused(&app, name, role, "K1", deed).await;
        assert!(matches!(refusal, Refusal::RoleTooSmall { needed } if needed == smallest), "{about}: {refusal:?}");
        let (_, allowed, actor, _) = last_line(&app).await;
        assert_eq!((allowed, actor), (false, format!("staff:{name}")), "{about}");
    }
    let refusal = refused(&app, "vera", Role::Approver, "K1", approve(99)).await;
    assert_eq!(refusal, Refusal::UnknownRequest(99));
    assert_eq!(app.everything_written().await, before);
    assert_eq!(done(&app, "vera", Role::Approver, "K1", approve(1)).await, "posted");
    let line: (String, Option<String>, Option<String>, Option<String>, Option<String>) = sqlx::query_as(
        "SELECT actor, role, remote_address, http_request_id, tenant_id FROM audit_log ORDER BY seq DESC LIMIT 1",
    )
    .fetch_one(&mut app.superuser().await)
    .await
    .unwrap();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(line, ("staff:vera".to_owned(), text("approver"), text("10.1.2.3"), text("the-request"), text("acme")));
}

#[tokio::test]
async fn s2_a_program_without_the_scope_is_a_line_of_the_audit() {
    let app = desk().await;
    let token = {
        let token = hamyon::token::generate();
        let mut conn = app.app.db.pool().acquire().await.unwrap();
        let client = hamyon::ids::ClientName::parse("clerk").unwrap();
        let scopes = [hamyon::token::Scope::SupportWrite];
        hamyon::token::store(&mut conn, &token, &client, &scopes, None, app.clock.now()).await.unwrap();
        secrecy::ExposeSecret::expose_secret(&token).to_owned()
    };
    let answer = post(&app, &token, "/v1/support-requests/7/approve", "K1", &json!({})).await;
    answer.refused(403, "forbidden", "no scope");
    let (action, allowed, actor, words) = last_line(&app).await;
    assert_eq!((action.as_str(), allowed, actor.as_str()), ("token", false, "api:clerk"));
    assert!(words.contains("POST /v1/support-requests/7/approve") && words.contains("support:approve"), "{words}");
    let from: Option<String> =
        sqlx::query_scalar("SELECT remote_address FROM audit_log").fetch_one(&mut app.superuser().await).await.unwrap();
    assert_eq!(from.as_deref(), Some("127.0.0.1"));
}

#[tokio::test]
async fn s2_ten_approvers_at_once_post_one_row() {
    let app = desk().await;
    assert_eq!(done(&app, "ann", Role::Agent, "K1", refund(3, 200_000)).await, "waiting");
    let approvers: Vec<String> = (0..10).map(|number| format!("approver-{number}")).collect();
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM support_requests FOR NO KEY UPDATE").await.unwrap();
    let approvals = approvers.iter().map(|name| perform(&app, name, Role::Approver, "K1", approve(1)));
    let (outcomes, ()) = tokio::join!(futures::future::join_all(approvals), async {
        until_blocked(&app, 10).await;
        holding.rollback().await.unwrap();
    });
    let posted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let decided = outcomes
        .iter()
        .filter(|outcome| {
            matches!(
                outcome,
                Err(Error::Refused(DeedRefusal::Desk(Refusal::Decided { request_id: 1, decision: "approved", .. })))
            )
        })
        .count();
    assert_eq!((posted, decided, support_rows(&app).await), (1, 9, 1), "{outcomes:?}");
    assert_eq!(app.sum("acme").await, 9_140_000);
}

#[tokio::test]
async fn s2_of_an_approval_and_a_withdrawal_at_once_one_wins() {
    let app = desk().await;
    for round in 1..=6 {
        let key = format!("K{round}");
        assert_eq!(done(&app, "ann", Role::Agent, &key, refund(3, 101_000)).await, "waiting");
        let mut holder = app.as_service().await;
        let mut holding = holder.begin().await.unwrap();
        holding.execute("SELECT FROM support_requests FOR NO KEY UPDATE").await.unwrap();
        let (yes, no) = (format!("yes{round}"), format!("no{round}"));
        let approving = perform(&app, "vera", Role::Approver, &yes, approve(round));
        let withdrawing = perform(&app, "ann", Role::Agent, &no, Deed::Withdraw { request_id: round });
        let release = async {
            until_blocked(&app, 2).await;
            holding.rollback().await.unwrap();
        };
        let (approved, withdrawn) = if round % 2 == 0 {
            let (approved, withdrawn, ()) = tokio::join!(approving, withdrawing, release);
            (approved, withdrawn)
        } else {
            let (withdrawn, approved, ()) = tokio::join!(withdrawing, approving, release);
            (approved, withdrawn)
        };
        assert_ne!(approved.is_ok(), withdrawn.is_ok(), "{approved:?} {withdrawn:?}");
        let rows = app.count("SELECT count(*) FROM support_requests WHERE decision = 'approved'").await;
        assert_eq!(support_rows(&app).await, rows);
    }
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn s2_a_request_is_decided_once() {
    let app = desk().await;
    let boss = token_of(&app, "boss").await;
    let other = token_of(&app, "other-boss").await;
    for number in 1..=3 {
        let answer = post(&app, &app.token, ADJUSTMENTS, &format!("K{number}"), &adjustment_body("2000")).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    let decide = async |token: &str, number: i64, deed: &str, key: &str| {
        post(&app, token, &format!("/v1/support-requests/{number}/{deed}"), key, &json!({})).await
    };
    let approved = decide(&boss, 1, "approve", "a1").await;
    assert_eq!(approved.status, 201);
    let rejected = decide(&boss, 2, "reject", "r2").await;
    assert_eq!((rejected.status.as_u16(), &rejected.json()["status"]), (200, &json!("rejected")));
    let withdrawn = decide(&app.token, 3, "withdraw", "w3").await;
    assert_eq!((withdrawn.status.as_u16(), &withdrawn.json()["status"]), (200, &json!("withdrawn")));
    let rows = support_rows(&app).await;
    // The same person who says the same under another key is answered the same.
    for (token, number, deed, first) in
        [(&boss, 1, "approve", &approved), (&boss, 2, "reject", &rejected), (&app.token, 3, "withdraw", &withdrawn)]
    {
        let again = decide(token, number, deed, &format!("again-{deed}")).await;
        assert_eq!((again.status, again.json()), (first.status, first.json()));
        assert_eq!(again.header("idempotency-replayed"), None);
    }
    let decided = app.count("SELECT count(*) FROM support_requests WHERE decision IS NOT NULL").await;
    assert_eq!((support_rows(&app).await, decided), (rows, 3));
    let before = app.everything_written().await;
    for (token, number, deed, decision, by) in [
        (&other, 1, "approve", "approved", "api:boss"),
        (&boss, 1, "reject", "approved", "api:boss"),
        (&app.token, 1, "withdraw", "approved", "api:boss"),
        (&boss, 2, "approve", "rejected", "api:boss"),
        (&boss, 3, "approve", "withdrawn", "api:tests"),
        (&other, 3, "reject", "withdrawn", "api:tests"),
    ] {
        let answer = decide(token, number, deed, "late").await;
        let problem = answer.refused(409, "already_decided", &format!("{deed} {number}"));
        assert_eq!((&problem["decision"], &problem["decided_by"]), (&json!(decision), &json!(by)));
    }
    for number in ["4", "0", "-1", "x", "9223372036854775808"] {
        let path = format!("/v1/support-requests/{number}/approve");
        post(&app, &boss, &path, "none", &json!({})).await.refused(404, "request_not_found", number);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn s2_a_request_ends_by_itself() {
    let app = desk().await;
    for key in ["K1", "K2"] {
        assert_eq!(done(&app, "ann", Role::Agent, key, refund(3, 200_000)).await, "waiting");
    }
    app.clock.advance(TimeDelta::hours(24) - TimeDelta::microseconds(1));
    assert_eq!(done(&app, "vera", Role::Approver, "K1", approve(1)).await, "posted", "in its last moment");
    app.clock.advance(TimeDelta::microseconds(1));
    let before = app.everything_written().await;
    for (name, role, deed) in [
        ("vera", Role::Approver, approve(2)),
        ("vera", Role::Approver, Deed::Reject { request_id: 2, note: None }),
        ("ann", Role::Agent, Deed::Withdraw { request_id: 2 }),
    ] {
        let refusal = refused(&app, name, role, "late", deed).await;
        assert!(matches!(refusal, Refusal::Expired { request_id: 2, .. }), "{refusal:?}");
    }
    let boss = token_of(&app, "boss").await;
    let answer = post(&app, &boss, "/v1/support-requests/2/approve", "late", &json!({})).await;
    assert_eq!(answer.refused(409, "request_expired", "late")["expired_at"], "2026-12-02T09:00:00+00:00");
    let shown = Call::new("GET", "/v1/support-requests/2").token(&app.token).send(&app).await.json();
    assert_eq!(shown["status"], "expired");
    assert_eq!(app.everything_written().await, before);
    assert_eq!(done(&app, "ann", Role::Agent, "K3", refund(3, 200_000)).await, "waiting", "asked again");
}

#[tokio::test]
async fn s1_an_approval_is_held_against_the_ledger_as_it_is_then() {
    let app = desk().await;
    assert_eq!(done(&app, "ann", Role::Agent, "K1", refund(3, 1_000_000)).await, "waiting", "all of row 3");
    assert_eq!(done(&app, "bob", Role::Agent, "K1", refund(3, 100)).await, "posted", "meanwhile");
    let before = app.everything_written().await;
    let refusal = refused(&app, "vera", Role::Approver, "K1", approve(1)).await;
    assert!(
        matches!(refusal, Refusal::Ledger(LedgerRefusal::OriginalExceeded { seq: 3, left: 999_900, .. })),
        "{refusal:?}"
    );
    assert_eq!(app.everything_written().await, before, "the request is as it was");
    let (action, allowed, _, words) = last_line(&app).await;
    assert_eq!((action.as_str(), allowed), ("request.approve", false), "{words}");
    // It is still open, and the key free.
    let no = Deed::Reject { request_id: 1, note: Some(Reason::parse("too much").unwrap()) };
    assert_eq!(done(&app, "vera", Role::Approver, "K1", no).await, "rejected");

    // So is a debit whose money is gone by then.
    assert_eq!(done(&app, "ann", Role::Agent, "K2", adjustment("acme", -8_000_000)).await, "waiting");
    app.post_entries(&[entry("acme", "purchase", -8_000_000, "spent")]).await.unwrap();
    let request_id = app.count("SELECT max(request_id) FROM support_requests").await;
    let before = app.everything_written().await;
    let refusal = refused(&app, "vera", Role::Approver, "K2", approve(request_id)).await;
    assert!(matches!(refusal, Refusal::Ledger(LedgerRefusal::InsufficientFunds { .. })), "{refusal:?}");
    assert_eq!(app.everything_written().await, before);
    app.fund("acme", 8_000_000).await;
    assert_eq!(done(&app, "vera", Role::Approver, "K2", approve(request_id)).await, "posted");
    assert!(app.verify().await.is_clean());
}

/// What the database says to a statement of the service: its SQLSTATE and the constraint.
async fn said(app: &TestApp, statement: &'static str) -> (String, Option<String>) {
    let mut service = app.as_service().await;
    let error = service.execute(statement).await.expect_err(statement);
    let error = error.as_database_error().expect("the database says no");
    (error.code().expect("a code").into_owned(), error.constraint().map(str::to_owned))
}

#[tokio::test]
async fn s2_the_database_itself_refuses_self_approval_and_a_second_decision() {
    let app = desk().await;
    assert_eq!(done(&app, "ann", Role::Agent, "K1", refund(3, 200_000)).await, "waiting");
    assert_eq!(done(&app, "ann", Role::Agent, "K2", refund(3, 10_000)).await, "posted");
    let before = app.everything_written().await;
    for statement in [
        "UPDATE support_requests SET decision = 'approved', decided_by = requested_by, decided_at = requested_at, posted_seq = 4 WHERE request_id = 1",
        "UPDATE support_requests SET decision = 'rejected', decided_by = requested_by, decided_at = requested_at WHERE request_id = 1",
        "UPDATE support_requests SET decision = 'withdrawn', decided_by = 'staff:bob', decided_at = requested_at WHERE request_id = 1",
        "UPDATE support_requests SET decision = 'within_limit', decided_by = 'staff:bob', decided_at = requested_at, posted_seq = 4 WHERE request_id = 1",
        "INSERT INTO support_requests (kind, tenant_id, currency, amount, reason, note, requested_by, requested_at,
                                       expires_at, decision, decided_by, decided_at, posted_seq)
         VALUES ('adjustment', 'acme', 'UZS', 1, 'other', 'x', 'staff:ann', now(), now() + interval '1 day', 'approved',
                 'staff:ann', now(), 1)",
    ] {
        let constraint = Some("support_requests_second_person".to_owned());
        assert_eq!(said(&app, statement).await, ("23514".to_owned(), constraint), "{statement}");
    }
    for (statement, constraint) in [
        (
            "UPDATE support_requests SET decision = 'approved', decided_at = requested_at, posted_seq = 4 WHERE request_id = 1",
            "support_requests_decided_at_once",
        ),
        (
            "UPDATE support_requests SET decision = 'approved', decided_by = 'staff:bob', decided_at = requested_at WHERE request_id = 1",
            "support_requests_posted_when_granted",
        ),
        (
            "UPDATE support_requests SET decision = 'rejected', decided_by = 'staff:bob', decided_at = requested_at, posted_seq = 4 WHERE request_id = 1",
            "support_requests_posted_when_granted",
        ),
        (
            "UPDATE support_requests SET decision = 'approved', decided_by = 'staff:bob', decided_at = expires_at, posted_seq = 4 WHERE request_id = 1",
            "support_requests_in_time",
        ),
    ] {
        assert_eq!(said(&app, statement).await, ("23514".to_owned(), Some(constraint.to_owned())), "{statement}");
    }
    for (statement, code) in [
        ("UPDATE support_requests SET decided_by = 'staff:bob' WHERE request_id = 2", "HM002"),
        (
            "UPDATE support_requests SET decision = NULL, decided_by = NULL, decided_at = NULL, posted_seq = NULL",
            "HM002",
        ),
        ("UPDATE support_requests SET requested_by = 'staff:bob'", "42501"),
        ("UPDATE support_requests SET amount = 1", "42501"),
        ("UPDATE support_requests SET expires_at = expires_at + interval '1 year'", "42501"),
        ("DELETE FROM support_requests", "42501"),
        ("TRUNCATE support_requests", "42501"),
    ] {
        assert_eq!(said(&app, statement).await.0, code, "{statement}");
    }
    let mut owner = app.superuser().await;
    owner.execute("SET SESSION AUTHORIZATION hamyon_owner").await.unwrap();
    for statement in
        ["UPDATE support_requests SET requested_by = 'x'", "DELETE FROM support_requests", "TRUNCATE support_requests"]
    {
        let error = owner.execute(statement).await.expect_err(statement);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert!(matches!(code.as_deref(), Some("HM001" | "HM002")), "{statement}: {error}");
    }
    assert_eq!(app.everything_written().await, before);
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

#[tokio::test]
async fn f5_a_credit_of_the_desk_pays_what_is_overdue_and_restores_access() {
    for above_the_limit in [false, true] {
        let app = TestApp::start().await;
        overdue(&app).await;
        let amount = if above_the_limit { "2000.00" } else { "700.00" };
        let answer = post(&app, &app.token, ADJUSTMENTS, "K1", &adjustment_body(amount)).await;
        if above_the_limit {
            assert_eq!(answer.status, 202);
            assert_eq!(app.get("/v1/tenants/acme").await.1["payment_overdue"], true, "nothing has moved yet");
            let boss = token_of(&app, "boss").await;
            let path = "/v1/support-requests/1/approve";
            assert_eq!(post(&app, &boss, path, "K1", &json!({})).await.status, 201);
        } else {
            assert_eq!(answer.status, 201);
        }
        let (_, tenant) = app.get("/v1/tenants/acme").await;
        assert_eq!((&tenant["payment_overdue"], &tenant["dues"]), (&json!(false), &json!([])), "{tenant}");
        assert_eq!(app.sum("acme").await, if above_the_limit { 150_000 } else { 20_000 });
        assert_eq!(app.count("SELECT count(*) FROM events WHERE kind = 'access.restored'").await, 1);
        // The fee that was paid can be given back in turn, and that is a credit as well.
        let fee = app.count("SELECT seq FROM wallet_transactions WHERE kind = 'subscription_fee'").await;
        assert_eq!(post(&app, &app.token, REFUNDS, "K2", &refund_body(fee, "300.00")).await.status, 201);
        assert!(app.verify().await.is_clean());
    }
}

#[tokio::test]
async fn s2_a_rehearsal_says_what_would_happen_and_writes_nothing() {
    let app = TestApp::start().await;
    overdue(&app).await;
    let (who, limits) = (who("ann", Role::Agent), &app.app.settings.support_limits);
    let desk = Desk { who: &who, rights: Rights::Staff(Role::Agent), limits };
    let before = app.everything_written().await;
    let lines = app.count("SELECT count(*) FROM audit_log").await;
    let rehearse = async |deed: Deed| {
        let Deed::Ask(ask) = deed else { panic!("{deed:?}") };
        desk.rehearse(&app.app.db, &app.clock, &ask).await
    };
    for (amount, needs_approval, after, dues_paid) in
        [(70_000, false, 20_000, 1), (200_000, true, 150_000, 1), (49_999, false, 49_999, 0)]
    {
        let rehearsal = rehearse(adjustment("acme", amount)).await.unwrap();
        assert_eq!(
            (rehearsal.needs_approval, rehearsal.before, rehearsal.after, rehearsal.dues_paid),
            (needs_approval, MinorUnits::ZERO, MinorUnits::new(after), dues_paid),
            "{amount}"
        );
        assert_eq!(rehearsal.limit, "1000");
    }
    for (deed, says) in [
        (adjustment("acme", -1), "InsufficientFunds"),
        (adjustment("nobody", 1), "UnknownTenant"),
        (adjustment("acme", 0), "WrongSign"),
        (refund(1, 1), "OriginalUnfit"),
    ] {
        let refusal = rehearse(deed).await.expect_err(says);
        assert!(format!("{refusal:?}").contains(says), "{refusal:?}");
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(app.count("SELECT count(*) FROM audit_log").await, lines);
}

#[tokio::test]
async fn s1_other_currencies_have_their_own_digits_and_limits() {
    let limits = Limits {
        agent: Limit::parse("UZS=1000, XTR=10, GRAM=0.5").unwrap(),
        approver: Limit::default(),
        request_hours: 24,
    };
    let app =
        TestApp::start_with(hamyon::app::AppSettings { support_limits: std::sync::Arc::new(limits), ..settings() })
            .await;
    app.tenant("acme").await;
    assert_eq!(app.post("/v1/currencies", &json!({ "code": "GRAM", "exponent": 3 })).await.0, 201);
    let adjust = async |currency: &str, amount: &str| {
        let body = json!({ "currency": currency, "amount": amount, "reason": "goodwill", "note": "a gift" });
        post(&app, &app.token, ADJUSTMENTS, &format!("{currency}{amount}"), &body).await
    };
    for (currency, amount, status, shown) in [
        ("XTR", "10", 201, "10"),
        ("XTR", "1", 202, "1"),
        ("GRAM", "0.499", 201, "0.499"),
        ("GRAM", "0.001", 201, "0.001"),
        ("GRAM", "-0.001", 202, "-0.001"),
        // A currency without a limit isn't moved alone at all.
        ("CREDIT", "1", 202, "1"),
        ("USD", "0.01", 202, "0.01"),
    ] {
        let answer = adjust(currency, amount).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["amount"]), (status, &json!(shown)), "{}", answer.text());
        let before = app.everything_written().await;
        let finer = format!("{amount}{}", if amount.contains('.') { "1" } else { ".1" });
        adjust(currency, &finer).await.refused(400, "invalid_request", &finer);
        assert_eq!(app.everything_written().await, before);
    }
    // A refund of so many stars.
    let mut spent = entry("acme", "purchase", -7, "stars");
    spent.currency = CurrencyCode::parse("XTR").unwrap();
    app.post_entries(&[spent]).await.unwrap();
    app.clock.advance(TimeDelta::days(1));
    let body = json!({ "transaction": 2, "amount": "7", "currency": "XTR", "reason": "a test" });
    let answer = post(&app, &app.token, REFUNDS, "stars", &body).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["transaction"]["balance_after"]), (201, &json!("10")));
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn s2_requests_are_listed_page_by_page_the_newest_first() {
    let app = desk().await;
    app.tenant("other").await;
    for number in 1..=5 {
        let amount = if number % 2 == 0 { 100 } else { 200_000 };
        let tenant = if number == 5 { "other" } else { "acme" };
        done(&app, "ann", Role::Agent, &format!("K{number}"), adjustment(tenant, amount)).await;
    }
    let list = async |query: &str| {
        let page = app.get(&format!("/v1/support-requests?{query}")).await.1;
        let ids: Vec<i64> =
            page["items"].as_array().unwrap().iter().map(|item| item["request_id"].as_i64().unwrap()).collect();
        (ids, page["next"].as_i64())
    };
    assert_eq!(list("").await, (vec![5, 4, 3, 2, 1], None));
    assert_eq!(list("limit=2").await, (vec![5, 4], Some(4)));
    assert_eq!(list("limit=2&before=4").await, (vec![3, 2], Some(2)));
    assert_eq!(list("undecided=true").await, (vec![5, 3, 1], None));
    assert_eq!(list("tenant_id=acme&undecided=true").await, (vec![3, 1], None));
    assert_eq!(list("tenant_id=nobody").await, (Vec::new(), None));
    for query in ["limit=0", "limit=501", "limit=x", "before=x", "tenant_id=%20", "undecided=maybe", "status=open"] {
        let path = format!("/v1/support-requests?{query}");
        Call::new("GET", &path).token(&app.token).send(&app).await.refused(400, "invalid_request", query);
    }
    Call::new("GET", "/v1/support-requests/6").token(&app.token).send(&app).await.refused(
        404,
        "request_not_found",
        "no such request",
    );
}

#[tokio::test]
async fn l8_a_refund_whose_caller_hung_up_runs_to_its_end() {
    let app = desk().await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.unwrap();
    let call = Call::new("POST", REFUNDS).token(&app.token).key("K1").json(&refund_body(2, "10.00"));
    tokio::select! {
        answer = call.send(&app) => panic!("{}", answer.text()),
        () = until_blocked(&app, 1) => {}
    }
    holding.rollback().await.unwrap();
    eventually("the refund is there", async || support_rows(&app).await == 1).await;
    let again = post(&app, &app.token, REFUNDS, "K1", &refund_body(2, "10.00")).await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!(app.count("SELECT count(*) FROM audit_log").await, 1);
}

#[test]
fn s2_a_limit_is_written_as_currencies_with_amounts() {
    for text in ["UZS", "UZS=", "=5", "UZS=-1", "UZS=1e3", "UZS=x", "UZS=1;XTR=2", "UZS=1,UZS=2", "u z s=1", "UZS==1"] {
        assert!(Limit::parse(text).is_err(), "{text}");
    }
    let none = Limit::parse(" , ").unwrap();
    assert_eq!(none, Limit::default());
    assert!(!none.allows(&uzs(), MinorUnits::ZERO, MinorUnits::new(1)));
    let limit = Limit::parse(" UZS = 10.5 ,XTR=0").unwrap();
    for (lately, amount, allowed) in [
        (0, 1_050, true),
        (0, 1_051, false),
        (0, -1_050, true),
        (0, -1_051, false),
        (1_000, 50, true),
        (1_000, 51, false),
    ] {
        let allows = limit.allows(&uzs(), MinorUnits::new(lately), MinorUnits::new(amount));
        assert_eq!(allows, allowed, "{lately} {amount}");
    }
    for amount in [i64::MAX, -i64::MAX] {
        assert!(!limit.allows(&uzs(), MinorUnits::new(i64::MAX), MinorUnits::new(amount)));
    }
}
