//! Plans, prices, subscriptions and runs over the API and at the terminal: a wrong request says what is wrong and
//! writes nothing, and the same request again is answered the same.

use chrono::TimeDelta;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::Call;
use crate::support::book::Book;
use crate::support::process::{hamyon, run, said};

async fn call(app: &TestApp, path: &str, body: &Value) -> crate::support::api::Answer {
    Call::new("POST", path).token(&app.token).json(body).send(app).await
}

/// A plan, a tenant and a subscription that runs.
async fn shop() -> (TestApp, i64) {
    let app = TestApp::start().await;
    app.plan("standard", "150000.00").await;
    app.tenant("acme").await;
    let subscription_id = app.subscribe("acme", "standard", "2026-12-01", "full").await;
    (app, subscription_id)
}

#[tokio::test]
async fn every_refusal_says_why_and_writes_nothing() {
    let (app, subscription_id) = shop().await;
    let cancelled = app.subscribe("acme", "standard", "2026-11-01", "free").await;
    let cancel = |id: i64| format!("/v1/tenants/acme/subscriptions/{id}/cancel");
    let (status, answer) = app.post(&cancel(cancelled), &json!({ "ended_on": "2026-12-15" })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (status, answer) =
        app.post("/v1/plans/standard/prices", &json!({ "price": "1.00", "from_month": "2027-05" })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let before = app.everything_written().await;

    let plan = |changes: Value| {
        let mut plan = json!({ "plan_id": "standard", "name": "Plan standard", "price": "150000.00" });
        plan.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        plan
    };
    let subscription = |changes: Value| {
        let mut body = json!({ "plan_id": "standard", "started_on": "2026-12-01", "first_month": "full" });
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    let subscriptions = "/v1/tenants/acme/subscriptions";
    let prices = "/v1/plans/standard/prices";
    for (path, body, status, code) in [
        ("/v1/plans", plan(json!({ "name": "Another" })), 409, "plan_differs"),
        ("/v1/plans", plan(json!({ "price": "150000.01" })), 409, "plan_differs"),
        ("/v1/plans", plan(json!({ "currency": "USD" })), 409, "plan_differs"),
        ("/v1/plans", plan(json!({ "currency": "EUR" })), 404, "currency_not_found"),
        ("/v1/plans", plan(json!({ "currency": "eur" })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "plan_id": "a b" })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "name": " " })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "price": "0.00" })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "price": "-1.00" })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "price": "1.001" })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "price": 1 })), 400, "invalid_request"),
        ("/v1/plans", plan(json!({ "period": "year" })), 400, "invalid_request"),
        (prices, json!({ "price": "1.00", "from_month": "2026-12" }), 409, "price_too_early"),
        (prices, json!({ "price": "2.00", "from_month": "2027-05" }), 409, "price_differs"),
        (prices, json!({ "price": "2.00", "from_month": "2027-5" }), 400, "invalid_request"),
        (prices, json!({ "price": "0.00", "from_month": "2027-06" }), 400, "invalid_request"),
        (prices, json!({ "from_month": "2027-06" }), 400, "invalid_request"),
        ("/v1/plans/none/prices", json!({ "price": "2.00", "from_month": "2027-06" }), 404, "plan_not_found"),
        (subscriptions, subscription(json!({ "first_month": "free" })), 409, "subscription_differs"),
        (subscriptions, subscription(json!({ "first_month": "half" })), 400, "invalid_request"),
        (subscriptions, subscription(json!({ "plan_id": "none" })), 404, "plan_not_found"),
        (subscriptions, subscription(json!({ "started_on": "2026-11-31" })), 400, "invalid_request"),
        (subscriptions, subscription(json!({ "started_on": "1999-12-31" })), 400, "invalid_request"),
        (subscriptions, subscription(json!({ "started_on": "9001-01-01" })), 400, "invalid_request"),
        (subscriptions, subscription(json!({ "price": "1.00" })), 400, "invalid_request"),
        ("/v1/tenants/none/subscriptions", subscription(json!({})), 404, "tenant_not_found"),
        (&cancel(subscription_id), json!({ "ended_on": "2026-11-30" }), 409, "end_too_early"),
        (&cancel(cancelled), json!({ "ended_on": "2026-12-16" }), 409, "subscription_ended"),
        (&cancel(999), json!({}), 404, "subscription_not_found"),
        ("/v1/tenants/none/subscriptions/1/cancel", json!({}), 404, "subscription_not_found"),
        (&cancel(subscription_id), json!({ "on": "2026-12-31" }), 400, "invalid_request"),
        ("/v1/fee-runs", json!({ "period": "2026-13" }), 400, "invalid_request"),
        ("/v1/fee-runs", json!({ "month": "2026-12" }), 400, "invalid_request"),
    ] {
        let about = format!("{path} {body}");
        call(&app, path, &body).await.refused(status, code, &about);
        assert_eq!(app.everything_written().await, before, "{about}");
    }
    for path in ["/v1/fee-runs/2026-12", "/v1/fee-runs/2030-01"] {
        Call::new("GET", path).token(&app.token).send(&app).await.refused(404, "fee_run_not_found", path);
    }
}

#[tokio::test]
async fn the_same_again_is_answered_the_same() {
    let (app, subscription_id) = shop().await;
    let plan = json!({ "plan_id": "standard", "name": "Plan standard", "price": "150000.00", "currency": "UZS" });
    let price = json!({ "price": "175000.00", "from_month": "2027-01" });
    let subscription = json!({ "plan_id": "standard", "started_on": "2026-12-01" });
    let cancel = format!("/v1/tenants/acme/subscriptions/{subscription_id}/cancel");
    let first = [
        ("/v1/plans", plan.clone(), plan),
        ("/v1/plans/standard/prices", price.clone(), price),
        (
            "/v1/tenants/acme/subscriptions",
            subscription,
            json!({ "subscription_id": subscription_id, "plan_id": "standard", "started_on": "2026-12-01",
                    "first_month": "full", "ended_on": null }),
        ),
        (
            cancel.as_str(),
            json!({}),
            json!({ "subscription_id": subscription_id, "plan_id": "standard", "started_on": "2026-12-01",
                    "first_month": "full", "ended_on": "2026-12-31" }),
        ),
    ];
    for (path, body, expected) in &first {
        let (status, answer) = app.post(path, body).await;
        assert_eq!((status, &answer), (StatusCode::OK, expected), "{path}");
    }
    let before = app.everything_written().await;
    for (path, body, _) in &first {
        let (status, answer) = app.post(path, body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    }
    assert_eq!(app.everything_written().await, before);
    // The price of this month is still the first one, and next month's the new one.
    for (days, price) in [(0, "150000.00"), (30, "150000.00"), (31, "175000.00")] {
        app.clock.advance(
            TimeDelta::days(days)
                - (app.clock.now() - "2026-12-01T09:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().unwrap()),
        );
        let (_, plans) = app.get("/v1/plans").await;
        assert_eq!(plans["items"][0]["price"], price, "{days} days later: {plans}");
    }
    // A price that was set is the same again though its month has begun.
    let (status, answer) = app.post(first[1].0, &first[1].1).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_make_one_plan_and_one_subscription() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let plan = json!({ "plan_id": "standard", "name": "Standard", "price": "1.00" });
    let subscription = json!({ "plan_id": "standard", "started_on": "2026-12-01" });
    for (path, body, one) in [
        ("/v1/plans", &plan, "SELECT count(*) FROM plan_prices"),
        ("/v1/tenants/acme/subscriptions", &subscription, "SELECT count(*) FROM subscriptions"),
    ] {
        let answers = futures::future::join_all((0..20).map(|_| app.post(path, body))).await;
        let created = answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
        let there = answers.iter().filter(|(status, _)| *status == StatusCode::OK).count();
        assert_eq!((created, there), (1, 19), "{answers:?}");
        assert_eq!(app.count(one).await, 1);
    }
}

async fn fees(book: &Book, arguments: &[&str], code: i32) -> String {
    let ended = run(hamyon().arg("fees").args(arguments).env("DATABASE_URL", &book.url)).await;
    assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", said(&ended));
    said(&ended)
}

#[tokio::test]
async fn the_terminal_makes_plans_subscribes_cancels_runs_and_says_how_it_stands() {
    let book = Book::new().await;
    let tenant = "WITH t AS (INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
                                  VALUES ('acme', 'Acme', 'Asia/Tashkent', 'uz', now()) RETURNING tenant_id)
                  INSERT INTO wallets (tenant_id, currency, created_at) SELECT tenant_id, 'UZS', now() FROM t";
    sqlx::query(tenant).execute(&mut book.session().await).await.unwrap();
    let plan = ["plan", "standard", "--name", "Standard", "--price", "100.00"];
    for _ in 0..2 {
        assert_eq!(fees(&book, &plan, 0).await, "Plan standard costs 100.00 UZS a month.\n");
    }
    // A month that has begun anywhere, whatever day it is.
    let subscribe = ["subscribe", "acme", "standard", "--started-on", "2026-11-01"];
    for _ in 0..2 {
        assert_eq!(fees(&book, &subscribe, 0).await, "Subscription 1 of acme began on 2026-11-01.\n");
    }
    for (arguments, says) in [
        (&["plan", "standard", "--name", "Other", "--price", "100.00"][..], "exists with another name"),
        (&["plan", "other", "--name", "Other", "--price", "0"], "--price must be positive"),
        (&["plan", "other", "--name", "Other", "--price", "1.00", "--currency", "EUR"], "there is no currency EUR"),
        (&["subscribe", "none", "standard", "--started-on", "2026-11-01"], "there is no tenant none"),
        (&["subscribe", "acme", "none", "--started-on", "2026-11-01"], "there is no plan none"),
        (&["subscribe", "acme", "standard", "--started-on", "0001-01-01"], "must be a day of the years 2000 to 9000"),
        (&["cancel", "acme", "7"], "tenant acme has no subscription 7"),
        (&["cancel", "acme", "1", "--ended-on", "2026-11-01"], "at the earliest"),
        (&["run", "--period", "2026-13"], "must be a month such as 2026-12"),
    ] {
        let text = fees(&book, arguments, 1).await;
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
    let november = ["run", "--period", "2026-11", "--json"];
    let dry: Value = serde_json::from_str(&fees(&book, &[&november[..], &["--dry-run"]].concat(), 0).await).unwrap();
    assert_eq!(dry, json!({ "expected": 1, "charged": 0, "overdue": 1, "by_others": 0, "open": 0 }));
    assert_eq!(fees(&book, &["status", "--json"], 0).await, "[]\n");
    let ran: Value = serde_json::from_str(&fees(&book, &november, 0).await).unwrap();
    assert_eq!(ran, dry);
    let again: Value = serde_json::from_str(&fees(&book, &november, 0).await).unwrap();
    assert_eq!(again["expected"], 0);
    let status: Value = serde_json::from_str(&fees(&book, &["status", "--json"], 0).await).unwrap();
    assert_eq!(status.as_array().unwrap().len(), 1, "{status}");
    for (name, value) in
        [("period", json!("2026-11")), ("expected", json!(1)), ("overdue", json!(1)), ("difference", json!(0))]
    {
        assert_eq!(status[0][name], value, "{status}");
    }
    assert!(fees(&book, &["status"], 0).await.contains("2026-11          1         0         1         0           0"));
    let ended = fees(&book, &["cancel", "acme", "1"], 0).await;
    assert!(ended.starts_with("Subscription 1 of acme ends on "), "{ended}");
    assert_eq!(fees(&book, &["cancel", "acme", "1"], 0).await, ended);
    book.is_clean().await;
}
