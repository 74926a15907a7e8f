//! A person's whole way through the console in a real Chromium, in each language: what a reader of HTML can't see
//! (a form that a policy blocks, a cookie a browser refuses) fails here.

use chrono::TimeDelta;
use hamyon::jobs::Job;
use hamyon::staff::Role;
use hamyon::support::{Limit, Limits};
use serde_json::json;

use crate::support::TestApp;
use crate::support::app::{entry, settings};
use crate::support::browser::Browser;
use crate::support::console::{Visitor, member};
use crate::support::fake_bot_api::Act;
use crate::telegram::{ALICE, BOB, PRICE, Stage};

const PAYME_ID: &str = "5f00000000000000000000aa";

/// A tenant who topped up 300,000 by Payme and paid a fee of 150,000.
async fn app() -> TestApp {
    let limit = |text| Limit::parse(text).expect("a limit");
    let limits = Limits { agent: limit("UZS=10000"), approver: limit("UZS=20000"), request_hours: 24 };
    let app = TestApp::start_with(hamyon::app::AppSettings { support_limits: limits.into(), ..settings() }).await;
    app.tenant("acme").await;
    app.payme_created(PAYME_ID, "acme", 30_000_000).await;
    app.payme("PerformTransaction", json!({ "id": PAYME_ID })).await;
    app.plan("standard", "150000").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    for (username, role) in [("dilnoza", Role::Agent), ("rustam", Role::Approver)] {
        member(&app, username, role).await;
    }
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_s2_a_fee_is_refunded_in_part_by_two_people_in_each_language() {
    let app = app().await;
    let browser = Browser::start().await;
    let words = [
        ("uz", "ikkinchi odam kutilmoqda", "oʻtkazildi", "200 000.00"),
        ("ru", "ждёт второго человека", "проведено", "250 000.00"),
        ("en", "waits for a second person", "posted", "300 000.00"),
    ];
    for (language, waits, posted, balance) in words {
        browser.log_in(&app, "dilnoza", language).await;
        // "I paid and was charged twice": the customer names the payment.
        browser.type_into("input[name=q]", PAYME_ID).await;
        browser.click("form[role=search] button").await;
        browser.keep(&format!("{language}-search")).await;
        browser.click("main a[href^='/console/tenants/acme']").await;
        browser.keep(&format!("{language}-tenant")).await;
        browser.click("main a[href='/console/tenants/acme/UZS/2']").await;
        browser.type_into("input[name=amount]", "50 000").await;
        browser.type_into("input[name=reason]", "A month without service").await;
        browser.keep(&format!("{language}-row")).await;
        browser.click("form[action$='/refund/preview'] button").await;
        assert!(browser.text("#verdict").await.contains("10000 UZS"), "it says that approval is needed, and the limit");
        browser.keep(&format!("{language}-preview")).await;
        browser.click("#confirm").await;
        assert_eq!(browser.text("#status").await, waits);
        browser.keep(&format!("{language}-waiting")).await;
        let request = browser.client.current_url().await.expect("an address").path().to_owned();
        assert!(request.starts_with("/console/requests/"), "{request}");
        browser.click("form.who button").await;

        browser.log_in(&app, "rustam", language).await;
        browser.click("header a[href='/console/requests']").await;
        browser.keep(&format!("{language}-queue")).await;
        browser.click(&format!("main a[href='{request}']")).await;
        browser.type_into("input[name=note]", "Checked with the operator").await;
        browser.click("#approve").await;
        // The page comes back decided.
        browser.click("main a[href='/console/tenants/acme']").await;
        assert!(browser.text("#balances .balance").await.contains(balance));
        assert!(browser.text("main").await.contains("A month without service"), "the statement has the row");
        browser.keep(&format!("{language}-after")).await;
        browser.click(&format!("main a[href='{request}']")).await;
        assert_eq!(browser.text("#status").await, posted);
        browser.click("header a[href='/console/audit']").await;
        let audit = browser.text("main").await;
        assert!(audit.contains("request.approve") && audit.contains("staff:dilnoza"), "{audit}");
        browser.keep(&format!("{language}-audit")).await;
        for page in ["overview", "fee-runs", "health"] {
            browser.click(&format!("header a[href='/console/{page}']")).await;
            browser.keep(&format!("{language}-{page}")).await;
        }
        browser.click("form.who button").await;
    }
    assert_eq!(app.count("SELECT count(*) FROM wallet_transactions WHERE kind = 'refund'").await, 3);

    browser.client.clone().close().await.expect("closed");
}

/// A shop in the middle of its day: a slot that is booked and one that is held, top-ups in stars, three payments
/// that fit no order, a refund that failed, and a job at work.
async fn shop() -> Stage {
    let stage = Stage::start().await;
    let (one, two) = (stage.slot(30).await, stage.slot(54).await);
    stage.slot(78).await;
    stage.order("booked", one, ALICE).await;
    stage.order("held", two, BOB).await;
    stage.is_told_yes("q1", ALICE, "booked").await;
    stage.paid(ALICE, "booked").await;
    stage.is_told_yes("q2", BOB, "held").await;
    // The fourth is what the job holds some of.
    for number in 1..=4 {
        let order_id = format!("stars-{number}");
        stage.top_up_order(&order_id, ALICE, PRICE).await;
        stage.paid(ALICE, &order_id).await;
    }
    stage.order("late", two, ALICE).await;
    stage.paid(ALICE, "late").await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    stage.give_back().await;
    for order_id in ["nothing-1", "nothing-2", "nothing-3"] {
        let (_, update) = stage.pays(BOB, order_id, PRICE);
        stage.tells(&update).await;
    }
    let hold = json!({ "hold_id": "job-1", "tenant_id": "acme", "currency": "XTR", "amount": "100" });
    assert_eq!(stage.app.post("/v1/holds", &hold).await.0, 201);
    assert_eq!(stage.app.post("/v1/holds/job-1/start", &json!({})).await.0, 200);
    for (username, role) in [("dilnoza", Role::Agent), ("rustam", Role::Approver)] {
        member(&stage.app, username, role).await;
    }
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_b5_stars_go_back_and_cases_are_resolved_by_two_clicks_in_each_language() {
    let stage = shop().await;
    let browser = Browser::start().await;
    // The first row of the wallet is the booked payment's; each top-up has one row.
    for (number, (language, give_back, waiting, keep)) in [
        ("uz", "Toʻlovchiga qaytarish", "navbatda", "Qoldirish"),
        ("ru", "Вернуть плательщику", "в очереди", "Оставить"),
        ("en", "Give it back", "waiting", "Keep it"),
    ]
    .into_iter()
    .enumerate()
    {
        browser.log_in(&stage.app, "rustam", language).await;
        browser.click("header a[href='/console/bookings']").await;
        browser.keep(&format!("{language}-slots")).await;
        browser.click("main a[href='/console/orders/booked']").await;
        browser.keep(&format!("{language}-order")).await;

        let row: i64 = sqlx::query_scalar(
            "SELECT w.seq FROM wallet_transactions w JOIN payments p ON w.metadata->>'payment_id' = p.payment_id::text
              WHERE w.kind = 'top_up' AND p.order_id = $1",
        )
        .bind(format!("stars-{}", number + 1))
        .fetch_one(&mut stage.app.superuser().await)
        .await
        .expect("its row");
        browser.client.goto(&stage.app.url(&format!("/console/tenants/acme/XTR/{row}"))).await.expect("the row");
        browser.type_into("input[name=reason]", "The wrong package").await;
        browser.keep(&format!("{language}-stars")).await;
        assert_eq!(browser.text("#give-back").await, give_back);
        browser.click("#give-back").await;
        assert!(browser.text("main").await.contains(waiting));
        browser.keep(&format!("{language}-refund-tasks")).await;

        browser.click("main a[href='/console/cases']").await;
        browser.keep(&format!("{language}-cases")).await;
        let case = "main section form button[value='keep']";
        assert_eq!(browser.text(case).await, keep);
        browser.click(case).await;

        browser.click("header a[href='/console/holds']").await;
        browser.keep(&format!("{language}-holds")).await;
        browser.click("main a[href='/console/holds/job-1']").await;
        browser.keep(&format!("{language}-hold")).await;
        browser.click("form.who button").await;
    }
    stage.api.fares(|_| Act::Do);
    stage.later(TimeDelta::minutes(10)).await;
    stage.give_back().await;
    assert_eq!(stage.app.count("SELECT count(*) FROM refund_tasks WHERE confirmed_at IS NOT NULL").await, 3);
    assert_eq!(stage.app.count("SELECT count(*) FROM payment_cases WHERE resolution = 'keep'").await, 3);
    stage.is_sound().await;
    browser.client.clone().close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_enter_in_a_text_field_presses_no_button_that_moves_money() {
    let stage = shop().await;
    let app = &stage.app;
    let browser = Browser::start().await;
    let asks = Visitor::logged_in(app, "asker", Role::Agent).await;
    app.fund("acme", 100_000).await;
    let fields = [("currency", "UZS"), ("amount", "6000"), ("reason", "goodwill"), ("note", "sorry"), ("key", "k")];
    let request = asks.send("/console/tenants/acme/adjustment", &fields).await.location.expect("a request");
    let row: i64 = sqlx::query_scalar(
        "SELECT w.seq FROM wallet_transactions w JOIN payments p ON w.metadata->>'payment_id' = p.payment_id::text
          WHERE w.kind = 'top_up' AND p.order_id = 'stars-1'",
    )
    .fetch_one(&mut app.superuser().await)
    .await
    .expect("its row");
    browser.log_in(app, "rustam", "en").await;
    let before = app.everything_written().await;
    for (path, field) in [
        (request.clone(), "input[name=note]"),
        ("/console/cases".to_owned(), "input[name=note]"),
        ("/console/cases".to_owned(), "input[name=tenant_id]"),
        (format!("/console/tenants/acme/XTR/{row}"), "input[name=reason]"),
    ] {
        browser.client.goto(&app.url(&path)).await.expect("the page");
        browser.type_into(field, "a note").await;
        browser.press_enter_in(field).await;
        let here = browser.client.current_url().await.expect("an address");
        assert_eq!(here.path(), path, "{field}: it stays where it is");
        assert_eq!(app.everything_written().await, before, "{path} {field}");
    }
    // Enter searches all the same, and the buttons work.
    browser.client.goto(&app.url("/console")).await.expect("the search");
    browser.type_into("input[name=q]", "acme").await;
    browser.press_enter_in("input[name=q]").await;
    assert!(browser.text("main").await.contains("Tenant acme"));
    browser.client.goto(&app.url(&request)).await.expect("the request");
    browser.click("#reject").await;
    assert_eq!(app.count("SELECT count(*) FROM support_requests WHERE decision = 'rejected'").await, 1);
    browser.client.clone().close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_wider_than_a_phone_of_360_dots_however_long_the_ids() {
    let stage = shop().await;
    let app = &stage.app;
    let long = "w".repeat(64);
    app.tenant(&long).await;
    app.fund(&long, 900_000_000_000_000).await;
    app.payme_created(&"f".repeat(24), &long, 30_000_000).await;
    app.payme("PerformTransaction", json!({ "id": "f".repeat(24) })).await;
    app.order(&"o".repeat(64), &long, "9999999999.00").await;
    let entries = [entry(&long, &"k".repeat(32), -100, &"r".repeat(128))];
    app.post_entries(&entries).await.expect("booked");
    let hold = json!({ "hold_id": "h".repeat(64), "tenant_id": long, "currency": "UZS", "amount": "100.00" });
    assert_eq!(app.post("/v1/holds", &hold).await.0, 201);
    let asks = Visitor::logged_in(app, &"u".repeat(64), Role::Agent).await;
    let note = "n".repeat(300);
    let fields = [("currency", "UZS"), ("amount", "600000"), ("reason", "goodwill"), ("note", &*note), ("key", "k")];
    let request = asks.send(&format!("/console/tenants/{long}/adjustment"), &fields).await.location.expect("a request");
    let browser = Browser::on_a_phone().await;
    browser.log_in(app, "rustam", "uz").await;
    let payments = app.count("SELECT max(payment_id) FROM payments").await;
    for path in [
        "/console".to_owned(),
        format!("/console?q={long}"),
        format!("/console?q={}", "o".repeat(64)),
        format!("/console/tenants/{long}"),
        format!("/console/tenants/{long}/UZS/1"),
        format!("/console/tenants/{long}/UZS/2"),
        format!("/console/tenants/{long}/UZS/3"),
        format!("/console/tenants/{long}/statement?currency=UZS"),
        format!("/console/orders/{}", "o".repeat(64)),
        format!("/console/holds/{}", "h".repeat(64)),
        format!("/console/payments/{payments}"),
        format!("/console/{}", "x".repeat(100)),
        request,
        "/console/requests".to_owned(),
        "/console/holds".to_owned(),
        "/console/bookings".to_owned(),
        "/console/refund-tasks".to_owned(),
        "/console/cases".to_owned(),
        "/console/fee-runs".to_owned(),
        "/console/webhooks".to_owned(),
        "/console/health".to_owned(),
        "/console/overview".to_owned(),
        "/console/audit".to_owned(),
    ] {
        browser.client.goto(&app.url(&path)).await.expect("the page");
        assert_eq!(browser.too_wide().await, json!([]), "{path}");
        browser.keep(&format!("phone{}", path.replace(['/', '?'], "-").chars().take(60).collect::<String>())).await;
    }
    let edge = "const shown = getComputedStyle(document.querySelector('input[name=q]'));
                return [shown.borderTopColor, shown.backgroundColor]";
    browser.client.goto(&app.url("/console")).await.expect("the search");
    let colours = browser.client.execute(edge, Vec::new()).await.expect("its colours");
    let lights: Vec<f64> =
        colours.as_array().expect("two").iter().map(|one| light(one.as_str().expect("text"))).collect();
    let contrast = (lights[0].max(lights[1]) + 0.05) / (lights[0].min(lights[1]) + 0.05);
    assert!(contrast >= 3.0, "{colours}: {contrast}");
    browser.client.clone().close().await.expect("closed");
}

/// The relative luminance of `rgb(1, 2, 3)`. <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>
fn light(colour: &str) -> f64 {
    let parts: Vec<f64> = colour
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .take(3)
        .map(|part| part.parse::<f64>().expect("a number") / 255.0)
        .map(|part| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) })
        .collect();
    0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
}
