//! Rule F5: "I topped up and I am still blocked" can't happen. Money that comes in by any door pays what is
//! overdue in its own transaction, the oldest first, whole dues only, and lifts `payment_overdue` with the last.

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::jobs::Job;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::api::{batch, posting};
use crate::support::app::entry;

/// 5,000.00 a month.
const FEE: i64 = 500_000;
const PAYMENT: &str = "5f0000000000000000000001";

/// A tenant who owes November, December and January of one subscription and could pay none.
async fn overdue() -> TestApp {
    let app = TestApp::start().await;
    app.plan("standard", "5000.00").await;
    app.tenant("acme").await;
    app.subscribe("acme", "standard", "2026-11-01", "full").await;
    for month in ["2026-11", "2026-12", "2027-01"] {
        let at: DateTime<Utc> = format!("{month}-03T09:00:00Z").parse().unwrap();
        app.clock.advance(at - app.clock.now());
        assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1, "{month}");
    }
    app
}

async fn perform(app: &TestApp, id: &str, amount: i64) -> Value {
    app.payme_created(id, "acme", amount).await;
    let answer = app.payme("PerformTransaction", json!({ "id": id })).await;
    assert_eq!(answer["result"]["state"], 2, "{answer}");
    answer
}

/// The months that are unpaid, as the tenant is shown them.
async fn unpaid(app: &TestApp) -> Vec<String> {
    let (status, tenant) = app.get("/v1/tenants/acme").await;
    assert_eq!(status, StatusCode::OK, "{tenant}");
    let dues = tenant["dues"].as_array().unwrap();
    assert_eq!(tenant["payment_overdue"], !dues.is_empty(), "{tenant}");
    assert_eq!(tenant["overdue_since"].is_null(), dues.is_empty(), "{tenant}");
    dues.iter().map(|due| due["month"].as_str().unwrap().to_owned()).collect()
}

/// The kinds of the events since the last `fee.overdue`.
async fn told(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT kind FROM events WHERE event_id > (SELECT max(event_id) FROM events WHERE kind = 'fee.overdue')
          ORDER BY event_id",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn f5_the_top_up_itself_pays_and_restores_access() {
    let app = overdue().await;
    assert_eq!(unpaid(&app).await, ["2026-11", "2026-12", "2027-01"]);
    let (_, tenant) = app.get("/v1/tenants/acme").await;
    assert_eq!(tenant["overdue_since"], "2026-11-03T09:00:00Z", "{tenant}");
    let performed = perform(&app, PAYMENT, 3 * FEE + 100).await;
    assert_eq!(unpaid(&app).await, [""; 0]);
    assert_eq!(told(&app).await, ["payment.performed", "fee.charged", "fee.charged", "fee.charged", "access.restored"]);
    assert_eq!(app.sum("acme").await, 100);
    // One transaction: all of it carries the same transaction's mark.
    let transactions = app
        .count(
            "SELECT count(DISTINCT xmin::text) FROM
               (SELECT xmin FROM wallet_transactions UNION ALL SELECT xmin FROM dues
                UNION ALL SELECT xmin FROM payments UNION ALL
                SELECT xmin FROM events WHERE kind IN ('payment.performed', 'fee.charged', 'access.restored')) x",
        )
        .await;
    assert_eq!(transactions, 1);
    let before = app.everything_written().await;
    app.clock.advance(TimeDelta::hours(1));
    assert_eq!(app.payme("PerformTransaction", json!({ "id": PAYMENT })).await, performed);
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 0);
    assert_eq!(app.everything_written().await, before);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn f5_less_than_the_oldest_due_pays_nothing_of_it() {
    let app = overdue().await;
    perform(&app, PAYMENT, FEE - 1).await;
    assert_eq!(unpaid(&app).await, ["2026-11", "2026-12", "2027-01"]);
    assert_eq!((app.sum("acme").await, told(&app).await), (FEE - 1, vec!["payment.performed".to_owned()]));
    // A tiyin more, and the first is paid; what is left stays the tenant's.
    app.post_entries(&[entry("acme", "bonus", 1, "tiyin")]).await.unwrap();
    assert_eq!(unpaid(&app).await, ["2026-12", "2027-01"]);
    assert_eq!(app.sum("acme").await, 0);
    assert!(!told(&app).await.contains(&"access.restored".to_owned()));
}

#[tokio::test]
async fn f5_the_first_due_that_cannot_be_paid_ends_it_though_a_later_one_is_cheaper() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    for (plan, price) in [("dear", "100.00"), ("cheap", "10.00")] {
        app.plan(plan, price).await;
        app.subscribe("acme", plan, "2026-12-01", "full").await;
    }
    Job::FeeRun.run(&app.app).await.unwrap();
    app.post_entries(&[entry("acme", "bonus", 9_999, "nearly")]).await.unwrap();
    assert_eq!(app.sum("acme").await, 9_999, "the older one comes first");
    app.post_entries(&[entry("acme", "bonus", 1_001, "both")]).await.unwrap();
    assert_eq!(app.sum("acme").await, 0);
    assert_eq!(told(&app).await, ["fee.charged", "fee.charged", "access.restored"]);
}

#[tokio::test]
async fn f5_a_batch_pays_too_whatever_kind_its_credits_are_of() {
    let app = overdue().await;
    let body = batch(&[
        posting("acme", "top_up", "4000.00", "one"),
        posting("acme", "bonus", "3000.00", "two"),
        posting("acme", "adjustment", "4000.00", "three"),
    ]);
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "credits", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(answer["transactions"].as_array().unwrap().len(), 3, "the caller sees its own rows: {answer}");
    assert_eq!(unpaid(&app).await, ["2027-01"]);
    assert_eq!(app.sum("acme").await, 100_000);
    let before = app.everything_written().await;
    let (status, again) = app.post_with_key("/v1/transactions/batch", "credits", &body).await;
    assert_eq!((status, again), (StatusCode::CREATED, answer));
    assert_eq!(app.everything_written().await, before);
    // A batch that spends what it credits leaves nothing to pay with.
    let moves = batch(&[posting("acme", "bonus", "5000.00", "in"), posting("acme", "purchase", "-5500.00", "out")]);
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "moves", &moves).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!((unpaid(&app).await, app.sum("acme").await), (vec!["2027-01".to_owned()], 50_000));
    // A refund of a fee is a credit like any other.
    let refund = json!({ "tenant_id": "acme", "currency": "UZS", "kind": "refund", "amount": "5000.00",
                         "reference": "back", "reason": "a test", "transaction": 4 });
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "refund", &batch(&[refund])).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(unpaid(&app).await, [""; 0]);
    assert_eq!(told(&app).await.last().unwrap(), "access.restored");
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn f5_p3_a_top_up_that_paid_a_fee_cannot_be_cancelled() {
    let app = overdue().await;
    perform(&app, PAYMENT, FEE).await;
    assert_eq!(unpaid(&app).await, ["2026-12", "2027-01"]);
    let before = app.everything_written().await;
    let refused = app.payme("CancelTransaction", json!({ "id": PAYMENT, "reason": 5 })).await;
    assert_eq!(refused["error"]["code"], -31_007, "{refused}");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn f2_f5_money_in_another_unit_pays_nothing_here() {
    let app = overdue().await;
    let mut credit = entry("acme", "bonus", 10 * FEE, "dollars");
    credit.currency = hamyon::money::CurrencyCode::parse("USD").unwrap();
    app.post_entries(&[credit]).await.unwrap();
    assert_eq!(unpaid(&app).await.len(), 3);
    let mut pocket = entry("acme", "bonus", 10 * FEE, "promo");
    pocket.pocket = hamyon::ids::Pocket::parse("promo").unwrap();
    app.post_entries(&[pocket]).await.unwrap();
    assert_eq!(unpaid(&app).await.len(), 3, "a fee is paid from the main pocket");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_many_credits_at_once_pay_each_due_once_and_restore_access_once() {
    let app = overdue().await;
    let credits = (0..40).map(|number| {
        let app = &app;
        async move { app.post_entries(&[entry("acme", "bonus", FEE / 10, &format!("bonus-{number}"))]).await }
    });
    for outcome in futures::future::join_all(credits).await {
        outcome.unwrap();
    }
    assert_eq!(unpaid(&app).await, [""; 0]);
    assert_eq!(app.sum("acme").await, FEE);
    let told = told(&app).await;
    assert_eq!(told, ["fee.charged", "fee.charged", "fee.charged", "access.restored"]);
    let lowest = app
        .count(
            "SELECT min(running)::bigint FROM (SELECT sum(amount) OVER (PARTITION BY wallet_id ORDER BY seq) AS running
                                                 FROM wallet_transactions) r",
        )
        .await;
    assert_eq!(lowest, 0, "a fee takes what it needs and no more");
    assert!(app.verify().await.is_clean());
}

/// A tenant who owes December in so'm and in dollars.
async fn owes_in_two_currencies(app: &TestApp) {
    app.tenant("acme").await;
    app.plan("standard", "5000.00").await;
    let dollars = json!({ "plan_id": "dollars", "name": "Dollars", "price": "10.00", "currency": "USD" });
    assert_eq!(app.post("/v1/plans", &dollars).await.0, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_credits_in_two_currencies_at_once_restore_access_exactly_once() {
    for round in 0..10 {
        let app = TestApp::start().await;
        owes_in_two_currencies(&app).await;
        for plan in ["standard", "dollars"] {
            app.subscribe("acme", plan, "2026-12-01", "full").await;
        }
        Job::FeeRun.run(&app.app).await.unwrap();
        let mut dollars = entry("acme", "bonus", 1_000, "dollars");
        dollars.currency = hamyon::money::CurrencyCode::parse("USD").unwrap();
        let (som, dollars) = ([entry("acme", "bonus", FEE, "som")], [dollars]);
        // Which one comes first is anybody's guess.
        let (one, two) = tokio::join!(app.post_entries(&som), app.post_entries(&dollars));
        one.unwrap();
        two.unwrap();
        assert_eq!(told(&app).await, ["fee.charged", "fee.charged", "access.restored"], "round {round}");
    }
}

#[tokio::test]
async fn f5_access_is_not_restored_while_a_run_is_about_to_find_another_fee_unpaid() {
    let app = TestApp::start().await;
    owes_in_two_currencies(&app).await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    Job::FeeRun.run(&app.app).await.unwrap();
    app.subscribe("acme", "dollars", "2026-12-01", "full").await;
    // The run has decided, and stops where it tells the endpoints.
    let mut holder = app.superuser().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("LOCK TABLE webhook_endpoints IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let som = [entry("acme", "bonus", FEE, "som")];
    let (ran, credited, ()) = tokio::join!(
        Job::FeeRun.run(&app.app),
        async {
            until_blocked(&app, 1).await;
            app.post_entries(&som).await
        },
        async {
            until_blocked(&app, 2).await;
            holding.rollback().await.unwrap();
        }
    );
    assert_eq!(ran.unwrap(), 1);
    credited.unwrap();
    assert_eq!(unpaid(&app).await, ["2026-12"]);
    let kinds: Vec<String> = sqlx::query_scalar("SELECT kind FROM events ORDER BY event_id")
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
    assert_eq!(kinds, ["fee.overdue", "fee.overdue", "fee.charged"], "the last word must not be that all is well");
}

/// A tenant with 9,000.00 in a hold of 6,000.00, who owes this month's 5,000.00.
async fn overdue_beside_a_hold() -> TestApp {
    let app = TestApp::start().await;
    app.plan("standard", "5000.00").await;
    app.tenant("acme").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    app.fund("acme", 900_000).await;
    let hold = json!({ "hold_id": "job", "tenant_id": "acme", "currency": "UZS", "amount": "6000.00",
                       "cost_cap": "6000.00", "ttl_secs": 60 });
    let (status, answer) = app.post("/v1/holds", &hold).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    assert_eq!(unpaid(&app).await, ["2026-12"], "3,000.00 are free");
    app
}

#[tokio::test]
async fn f5_money_that_the_end_of_a_hold_sets_free_pays_what_is_overdue_at_once() {
    for (deed, body, paid) in [
        ("release", json!({}), true),
        ("cancel", json!({}), true),
        ("settle", json!({ "mode": "amount", "amount": "1000.00" }), true),
        ("settle", json!({ "mode": "as_held" }), false),
    ] {
        let app = overdue_beside_a_hold().await;
        let (status, answer) = app.post(&format!("/v1/holds/job/{deed}"), &body).await;
        assert_eq!(status, StatusCode::OK, "{deed}: {answer}");
        assert_eq!(unpaid(&app).await.is_empty(), paid, "{deed} {body}");
        let restored = told(&app).await.last().is_some_and(|kind| kind == "access.restored");
        assert_eq!(restored, paid, "{:?}", told(&app).await);
        assert!(app.verify().await.is_clean());
    }
    // Nobody came back for it: the reconciler frees the money, and it pays.
    let app = overdue_beside_a_hold().await;
    app.clock.advance(TimeDelta::minutes(5));
    assert_eq!(Job::HoldReconcile.run(&app.app).await.unwrap(), 1);
    assert!(unpaid(&app).await.is_empty());
}
