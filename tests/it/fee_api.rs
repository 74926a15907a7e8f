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
    app.plan("old", "1.00").await;
    let cancelled = app.subscribe("acme", "old", "2026-12-01", "free").await;
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
        (prices, json!({ "price": "2.00", "from_month": "2027-05", "replaces": "3.00" }), 409, "price_differs"),
        (prices, json!({ "price": "2.00", "from_month": "2026-12", "replaces": "150000.00" }), 409, "price_too_early"),
        (prices, json!({ "price": "2.00", "from_month": "2027-05", "replaces": "x" }), 400, "invalid_request"),
        (prices, json!({ "price": "2.00", "from_month": "2027-5" }), 400, "invalid_request"),
        (prices, json!({ "price": "0.00", "from_month": "2027-06" }), 400, "invalid_request"),
        (prices, json!({ "from_month": "2027-06" }), 400, "invalid_request"),
        ("/v1/plans/none/prices", json!({ "price": "2.00", "from_month": "2027-06" }), 404, "plan_not_found"),
        (subscriptions, subscription(json!({ "first_month": "free" })), 409, "subscription_differs"),
        // One that goes on pays for every month, also for those before and after.
        (subscriptions, subscription(json!({ "started_on": "2026-12-12" })), 409, "subscription_overlaps"),
        (
            subscriptions,
            subscription(json!({ "started_on": "2026-12-12", "first_month": "free" })),
            409,
            "subscription_overlaps",
        ),
        (subscriptions, subscription(json!({ "started_on": "2027-03-01" })), 409, "subscription_overlaps"),
        (subscriptions, subscription(json!({ "started_on": "2026-10-01" })), 409, "subscription_overlaps"),
        // One that ends pays for its last month, and the same again would pay for nothing.
        (
            subscriptions,
            subscription(json!({ "plan_id": "old", "started_on": "2026-12-31" })),
            409,
            "subscription_overlaps",
        ),
        (
            subscriptions,
            subscription(json!({ "plan_id": "old", "first_month": "free" })),
            409,
            "subscription_cancelled",
        ),
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
        // What was cancelled meanwhile isn't made again, and whoever believes it runs has to hear that.
        let expected = if path.ends_with("/subscriptions") { StatusCode::CONFLICT } else { StatusCode::OK };
        assert_eq!(status, expected, "{path}: {answer}");
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

#[tokio::test]
async fn f3_a_plan_that_is_taken_again_pays_each_month_once() {
    let (app, subscription_id) = shop().await;
    app.fund("acme", 100_000_000).await;
    let subscriptions = "/v1/tenants/acme/subscriptions";
    let run = || async {
        let (status, report) = app.post("/v1/fee-runs", &json!({})).await;
        assert_eq!(status, StatusCode::OK, "{report}");
        report["charged"].as_i64().unwrap()
    };
    assert_eq!(run().await, 1);
    let cancel = format!("{subscriptions}/{subscription_id}/cancel");
    assert_eq!(app.post(&cancel, &json!({})).await.1["ended_on"], "2026-12-31");
    let again = |day: &str, first: &str| json!({ "plan_id": "standard", "started_on": day, "first_month": first });
    call(&app, subscriptions, &again("2026-12-12", "full")).await.refused(409, "subscription_overlaps", "December");
    call(&app, subscriptions, &again("2026-12-12", "prorated")).await.refused(409, "subscription_overlaps", "December");
    let (status, answer) = app.post(subscriptions, &again("2026-12-12", "free")).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(run().await, 0, "December is paid");
    app.clock.advance(TimeDelta::days(31));
    assert_eq!(run().await, 1, "January once");
    // Two at once, as a client that repeats itself over midnight makes them.
    app.plan("other", "1.00").await;
    let days = ["2027-01-01", "2027-01-02", "2027-01-03", "2027-01-04"];
    let bodies = days.map(|day| json!({ "plan_id": "other", "started_on": day }));
    let answers = futures::future::join_all(bodies.iter().map(|body| app.post(subscriptions, body))).await;
    let made = answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
    assert_eq!(made, 1, "{answers:?}");
    assert_eq!(run().await, i64::from(answers[0].0 == StatusCode::CREATED), "only one that has begun is charged");
}

#[tokio::test]
async fn what_hasnt_begun_is_cancelled_for_nothing_and_what_is_paid_isnt_cut() {
    let (app, subscription_id) = shop().await;
    app.fund("acme", 100_000_000).await;
    for (day, first) in [("2027-01-15", "full"), ("2027-01-01", "full"), ("2026-12-02", "prorated")] {
        app.plan(&format!("p{day}"), "1.00").await;
        let later = app.subscribe("acme", &format!("p{day}"), day, first).await;
        let (status, answer) = app.post(&format!("/v1/tenants/acme/subscriptions/{later}/cancel"), &json!({})).await;
        assert_eq!((status, &answer["ended_on"]), (StatusCode::OK, &json!("2026-12-01")), "{answer}");
    }
    let run = || async { app.post("/v1/fee-runs", &json!({})).await.1["charged"].as_i64().unwrap() };
    assert_eq!(run().await, 1);
    app.clock.advance(TimeDelta::days(31) - TimeDelta::hours(13));
    assert_eq!(app.clock.now().to_rfc3339(), "2026-12-31T20:00:00+00:00", "one at night in Tashkent");
    assert_eq!(run().await, 1, "January of the one that runs, nothing of those that never began");
    let (_, january) = app.get("/v1/fee-runs/2027-01").await;
    assert_eq!((&january["expected"], &january["charged"]), (&json!(1), &json!(1)), "{january}");
    // In New York it is still December; January is paid all the same.
    let moved =
        Call::new("PATCH", "/v1/tenants/acme").token(&app.token).json(&json!({ "time_zone": "America/New_York" }));
    assert_eq!(moved.send(&app).await.status, StatusCode::OK);
    let cancel = format!("/v1/tenants/acme/subscriptions/{subscription_id}/cancel");
    call(&app, &cancel, &json!({ "ended_on": "2026-12-31" })).await.refused(409, "end_too_early", "January is paid");
    assert_eq!(app.post(&cancel, &json!({})).await.1["ended_on"], "2027-01-31");
}

#[tokio::test]
async fn a_price_of_a_month_to_come_is_corrected_by_who_names_the_old_one() {
    let (app, _) = shop().await;
    let prices = "/v1/plans/standard/prices";
    let price =
        |price: &str, replaces: Option<&str>| json!({ "price": price, "from_month": "2027-01", "replaces": replaces });
    assert_eq!(app.post(prices, &price("1700000.00", None)).await.0, StatusCode::OK);
    let corrected = price("170000.00", Some("1700000.00"));
    assert_eq!(app.post(prices, &corrected).await.0, StatusCode::OK);
    let before = app.everything_written().await;
    assert_eq!(app.post(prices, &corrected).await.0, StatusCode::OK, "the same again");
    call(&app, prices, &price("1700000.00", None)).await.refused(409, "price_differs", "the first, come late");
    assert_eq!(app.everything_written().await, before);
    app.fund("acme", 100_000_000).await;
    app.clock.advance(TimeDelta::days(31));
    let (_, plans) = app.get("/v1/plans").await;
    assert_eq!(plans["items"][0]["price"], "170000.00");
    let (status, report) = app.post("/v1/fee-runs", &json!({ "confirmed": true })).await;
    assert_eq!((status, &report["charged"]), (StatusCode::OK, &json!(2)), "{report}");
    let fees: Vec<i64> = sqlx::query_scalar("SELECT amount FROM dues ORDER BY month")
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
    assert_eq!(fees, [15_000_000, 17_000_000]);
}
