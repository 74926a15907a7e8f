//! Limits, and the second person: S2.

use chrono::TimeDelta;
use hamyon::fault::Error;
use hamyon::ids::Reason;
use hamyon::ledger::Refusal as LedgerRefusal;
use hamyon::money::MinorUnits;
use hamyon::staff::Role;
use hamyon::support::{Deed, DeedRefusal, Desk, Limit, Refusal, Rights};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::idempotency::token_of;
use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::api::Call;
use crate::support::app::entry;

use super::{
    ADJUSTMENTS, REFUNDS, adjustment, adjustment_body, approve, desk, done, last_line, overdue, perform, post, refund,
    refund_body, refused, support_rows, uzs, who,
};

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
