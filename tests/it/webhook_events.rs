//! Rules F2 and F5: an effect and its event are one transaction. Money that moves without a word, or a word
//! about money that did not move, and the product's picture of the world is wrong.

use hamyon::fee::{self, RunLimits, RunOptions};
use hamyon::ledger::Entry;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::app::entry;

/// The events so far: kind and data.
async fn events(app: &TestApp) -> Vec<(String, Value)> {
    let rows: Vec<(String, String)> = sqlx::query_as("SELECT kind, body FROM events ORDER BY event_id")
        .fetch_all(&mut app.superuser().await)
        .await
        .expect("the events");
    rows.into_iter()
        .map(|(kind, body)| {
            let body: Value = serde_json::from_str(&body).expect("JSON");
            assert_eq!(body["type"], json!(kind), "{body}");
            assert!(body["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')), "{body}");
            assert_eq!(body.as_object().expect("an object").len(), 3, "{body}");
            (kind, body["data"].clone())
        })
        .collect()
}

async fn kinds(app: &TestApp) -> Vec<String> {
    events(app).await.into_iter().map(|(kind, _)| kind).collect()
}

async fn run_fees(app: &TestApp) {
    let limits = RunLimits { months_max: 12, overdue_percent_max: 100 };
    let options = RunOptions { limits, ..RunOptions::default() };
    let report = fee::run(&app.app.db, &app.clock, options, &|_| {}).await.expect("a run");
    assert_eq!(report.open, 0);
}

#[tokio::test]
async fn f2_f5_each_effect_has_its_event_in_the_order_of_the_effects() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.payme_created("5305e3bab097f420a62ced0b", "acme", 500_000).await;
    app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0b" })).await;
    // The provider asks again: it has happened once.
    app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0b" })).await;
    app.payme("CancelTransaction", json!({ "id": "5305e3bab097f420a62ced0b", "reason": 5 })).await;
    let so_far = events(&app).await;
    assert_eq!(kinds(&app).await, ["payment.performed", "payment.reversed"]);
    for (_, about) in &so_far {
        assert_eq!(about["tenant_id"], "acme", "{about}");
        assert_eq!(about["external_id"], "5305e3bab097f420a62ced0b", "{about}");
        assert_eq!((&about["amount_minor_units"], &about["currency"]), (&json!(500_000), &json!("UZS")), "{about}");
    }

    app.fund("acme", 1_000).await;
    app.post_entries(&[entry("acme", "purchase", -600, "bought")]).await.expect("booked");
    let seq = app.count("SELECT max(seq) FROM wallet_transactions").await;
    let refund = Entry { original_seq: Some(seq), ..entry("acme", "refund", 100, "back") };
    app.post_entries(&[refund]).await.expect("refunded");
    let (kind, about) = events(&app).await.pop().expect("an event");
    assert_eq!(kind, "refund.posted");
    assert_eq!((&about["original"], &about["transaction"]), (&json!(seq), &json!(seq + 1)), "{about}");

    app.plan("small", "10.00").await;
    app.subscribe("acme", "small", "2026-12-01", "full").await;
    run_fees(&app).await;
    let (kind, about) = events(&app).await.pop().expect("an event");
    assert_eq!((kind.as_str(), &about["amount"], &about["month"]), ("fee.overdue", &json!("10.00"), &json!("2026-12")));
    assert_eq!(about["amount_minor_units"], 1_000);
    app.fund("acme", 500).await;
    assert_eq!(kinds(&app).await[4..], ["fee.charged", "access.restored"], "the credit paid the due");
    app.tenant("rich").await;
    app.fund("rich", 5_000).await;
    app.subscribe("rich", "small", "2026-12-01", "full").await;
    run_fees(&app).await;
    let (kind, about) = events(&app).await.pop().expect("an event");
    assert_eq!((kind.as_str(), &about["tenant_id"]), ("fee.charged", &json!("rich")));
    assert_eq!(kinds(&app).await.len(), 7);
}

#[tokio::test]
async fn an_effect_that_is_refused_has_no_event() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    app.post_entries(&[entry("acme", "purchase", -600, "bought")]).await.expect("booked");
    let before = app.everything_written().await;
    let refund = Entry { original_seq: Some(2), ..entry("acme", "refund", 100, "back") };
    // The refund alone would be booked; the batch is refused as a whole.
    let refused = app.post_entries(&[refund, entry("acme", "purchase", -9_999, "too much")]).await;
    refused.expect_err("not enough money");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn without_its_event_there_is_no_effect() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.plan("small", "10.00").await;
    app.subscribe("acme", "small", "2026-12-01", "full").await;
    app.payme_created("5305e3bab097f420a62ced0b", "acme", 500_000).await;
    let mut intruder = app.superuser().await;
    intruder
        .execute(
            "CREATE FUNCTION no_events() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'no events today'; END $$;
             CREATE TRIGGER no_events BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_events();",
        )
        .await
        .expect("a trigger");
    let answer = app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0b" })).await;
    assert!(answer.get("error").is_some_and(|error| !error.is_null()), "{answer}");
    let options = RunOptions { confirmed: true, ..RunOptions::default() };
    fee::run(&app.app.db, &app.clock, options, &|_| {}).await.expect_err("the run can't tell anybody");
    assert_eq!(app.sum("acme").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM dues").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM payments WHERE performed_at IS NOT NULL").await, 0);

    intruder.execute("DROP TRIGGER no_events ON events").await.expect("dropped");
    let answer = app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0b" })).await;
    assert_eq!(answer["result"]["state"], 2, "{answer}");
    run_fees(&app).await;
    assert_eq!(kinds(&app).await, ["payment.performed", "fee.charged"]);
    assert_eq!(app.sum("acme").await, 499_000);
}

#[tokio::test]
async fn an_endpoint_gets_what_happens_after_it_was_registered() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    crate::support::hooks::happen(&app, "acme", [1]).await;
    let (first, _) = crate::support::hooks::register(&app, "https://first.example/hooks").await;
    crate::support::hooks::happen(&app, "acme", [2]).await;
    crate::support::hooks::register(&app, "https://second.example/hooks").await;
    let call = crate::support::api::Call::new("DELETE", &format!("/v1/webhook-endpoints/{first}")).token(&app.token);
    assert_eq!(call.send(&app).await.status, 204);
    crate::support::hooks::happen(&app, "acme", [3]).await;
    let written: Vec<(i64, String)> = sqlx::query_as(
        "SELECT d.endpoint_id, e.body::json #>> '{data,n}' FROM webhook_deliveries d JOIN events e USING (event_id)
          ORDER BY 1, 2",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .expect("the deliveries");
    assert_eq!(written, [(first, "2".to_owned()), (first + 1, "3".to_owned())]);
}
