//! What one person or program gives back and corrects alone: S1, L6, L8 and F5.

use chrono::TimeDelta;
use hamyon::fault::Error;
use hamyon::ledger::Refusal as LedgerRefusal;
use hamyon::money::CurrencyCode;
use hamyon::staff::Role;
use hamyon::support::{AdjustmentReason, DeedRefusal, Limit, Limits, Refusal};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::idempotency::token_of;
use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::api::Call;
use crate::support::app::{entry, settings};
use crate::support::process::eventually;

use super::{
    ADJUSTMENTS, REFUNDS, adjustment_body, desk, last_line, overdue, perform, post, refund, refund_body, refused,
    support_rows,
};

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
