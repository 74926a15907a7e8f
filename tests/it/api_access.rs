//! Who may call `/v1`: nobody without a token, and a token only what its scopes say. A path that forgot to
//! ask is an open till.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use hamyon::ids::ClientName;
use hamyon::token::{self, Scope};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};
use crate::support::app::entry;
use crate::telegram::{ALICE, PRICE, Stage};

/// Every operation of `/v1` and the scope it needs. A new one must be named here.
const OPERATIONS: [(&str, &str, Scope); 65] = [
    ("GET", "/v1/currencies", Scope::LedgerRead),
    ("POST", "/v1/currencies", Scope::CurrenciesWrite),
    ("POST", "/v1/tenants", Scope::TenantsWrite),
    ("GET", "/v1/tenants/{tenant_id}", Scope::TenantsRead),
    ("GET", "/v1/tenants/{tenant_id}/balance", Scope::LedgerRead),
    ("GET", "/v1/tenants/{tenant_id}/transactions", Scope::LedgerRead),
    ("POST", "/v1/transactions/batch", Scope::LedgerPost),
    ("POST", "/v1/orders", Scope::PaymentsWrite),
    ("GET", "/v1/orders/{order_id}", Scope::TenantsRead),
    ("POST", "/v1/orders/{order_id}/close", Scope::PaymentsWrite),
    ("POST", "/v1/orders/{order_id}/invoice", Scope::PaymentsWrite),
    ("POST", "/v1/resources", Scope::PaymentsWrite),
    ("GET", "/v1/slots", Scope::TenantsRead),
    ("POST", "/v1/slots", Scope::PaymentsWrite),
    ("GET", "/v1/bookings/{booking_id}", Scope::TenantsRead),
    ("POST", "/v1/bookings/{booking_id}/cancel", Scope::PaymentsWrite),
    ("POST", "/v1/slots/{slot_id}/withdraw", Scope::PaymentsWrite),
    ("GET", "/v1/refund-tasks", Scope::SupportWrite),
    ("POST", "/v1/refund-tasks", Scope::SupportApprove),
    ("GET", "/v1/payment-cases", Scope::SupportWrite),
    ("POST", "/v1/payment-cases/{case_id}/resolve", Scope::SupportApprove),
    ("POST", "/v1/payment-links", Scope::PaymentsWrite),
    ("PATCH", "/v1/tenants/{tenant_id}", Scope::TenantsWrite),
    ("GET", "/v1/tenants/{tenant_id}/subscriptions", Scope::TenantsRead),
    ("POST", "/v1/tenants/{tenant_id}/subscriptions", Scope::FeesWrite),
    ("POST", "/v1/tenants/{tenant_id}/subscriptions/{subscription_id}/cancel", Scope::FeesWrite),
    ("GET", "/v1/plans", Scope::TenantsRead),
    ("POST", "/v1/plans", Scope::FeesWrite),
    ("POST", "/v1/plans/{plan_id}/prices", Scope::FeesWrite),
    ("GET", "/v1/fee-runs", Scope::TenantsRead),
    ("POST", "/v1/fee-runs", Scope::FeesWrite),
    ("GET", "/v1/fee-runs/{period}", Scope::TenantsRead),
    ("GET", "/v1/webhook-endpoints", Scope::WebhooksWrite),
    ("POST", "/v1/webhook-endpoints", Scope::WebhooksWrite),
    ("GET", "/v1/webhook-deliveries", Scope::WebhooksWrite),
    ("POST", "/v1/webhook-deliveries/{endpoint_id}/{event_id}/replay", Scope::WebhooksWrite),
    ("DELETE", "/v1/webhook-endpoints/{endpoint_id}", Scope::WebhooksWrite),
    ("POST", "/v1/tenants/{tenant_id}/refunds", Scope::SupportWrite),
    ("POST", "/v1/tenants/{tenant_id}/adjustments", Scope::SupportWrite),
    ("GET", "/v1/support-requests", Scope::SupportWrite),
    ("GET", "/v1/support-requests/{request_id}", Scope::SupportWrite),
    ("POST", "/v1/support-requests/{request_id}/approve", Scope::SupportApprove),
    ("POST", "/v1/support-requests/{request_id}/reject", Scope::SupportApprove),
    ("POST", "/v1/support-requests/{request_id}/withdraw", Scope::SupportWrite),
    ("POST", "/v1/tenants/{tenant_id}/grants", Scope::LedgerPost),
    ("POST", "/v1/tenants/{tenant_id}/pockets/void", Scope::LedgerPost),
    ("POST", "/v1/tenants/{tenant_id}/activity", Scope::HoldsWrite),
    ("POST", "/v1/tenants/{tenant_id}/allowances", Scope::HoldsConfigure),
    ("POST", "/v1/plans/{plan_id}/allowances", Scope::HoldsConfigure),
    ("GET", "/v1/allowances", Scope::LedgerRead),
    ("POST", "/v1/allowances", Scope::HoldsConfigure),
    ("GET", "/v1/hold-tiers", Scope::LedgerRead),
    ("POST", "/v1/hold-tiers", Scope::HoldsConfigure),
    ("GET", "/v1/price-books", Scope::LedgerRead),
    ("POST", "/v1/price-books", Scope::HoldsConfigure),
    ("GET", "/v1/holds", Scope::LedgerRead),
    ("POST", "/v1/holds", Scope::HoldsWrite),
    ("GET", "/v1/holds/stats", Scope::LedgerRead),
    ("GET", "/v1/holds/{hold_id}", Scope::LedgerRead),
    ("POST", "/v1/holds/{hold_id}/start", Scope::HoldsWrite),
    ("POST", "/v1/holds/{hold_id}/heartbeat", Scope::HoldsWrite),
    ("POST", "/v1/holds/{hold_id}/usage", Scope::HoldsWrite),
    ("POST", "/v1/holds/{hold_id}/settle", Scope::HoldsWrite),
    ("POST", "/v1/holds/{hold_id}/release", Scope::HoldsWrite),
    ("POST", "/v1/holds/{hold_id}/cancel", Scope::HoldsWrite),
];

/// What answers without a token of ours. `/payme` and `/telegram/webhook` ask for the provider's own key.
const PUBLIC: [&str; 5] = ["/payme", "/telegram/webhook", "/healthz", "/readyz", "/metrics"];

fn body(path: &str) -> Value {
    match path {
        "/v1/currencies" => json!({ "code": "MESSAGE", "exponent": 0 }),
        "/v1/tenants" => json!({ "tenant_id": "new", "name": "New" }),
        "/v1/transactions/batch" => batch(&[posting("acme", "bonus", "1", "r")]),
        "/v1/orders" => json!({ "order_id": "new", "tenant_id": "acme", "amount": "1000", "title": "A thing" }),
        "/v1/resources" => json!({ "resource_id": "new", "name": "New" }),
        "/v1/slots" => json!({ "resource_id": "room", "starts_at": "2027-01-01T10:00:00Z",
                               "ends_at": "2027-01-01T11:00:00Z" }),
        "/v1/bookings/{booking_id}/cancel" => json!({ "reason": "a test" }),
        "/v1/refund-tasks" => json!({ "payment_id": "3", "reason": "a test" }),
        "/v1/payment-cases/{case_id}/resolve" => json!({ "resolution": "refund" }),
        "/v1/plans" => json!({ "plan_id": "new", "name": "New", "price": "1000" }),
        "/v1/plans/{plan_id}/prices" => json!({ "price": "2000", "from_month": "2027-03" }),
        "/v1/tenants/{tenant_id}/subscriptions" => json!({ "plan_id": "plan", "started_on": "2026-12-01" }),
        "/v1/webhook-endpoints" => json!({ "url": "https://example.com/hook" }),
        "/v1/tenants/{tenant_id}/refunds" => json!({ "transaction": 2, "amount": "1", "reason": "a test" }),
        "/v1/tenants/{tenant_id}/adjustments" => adjustment("1"),
        "/v1/payment-links" => json!({ "provider": "payme", "tenant_id": "acme", "amount": "1000" }),
        "/v1/tenants/{tenant_id}/grants" => json!({ "currency": "CREDIT", "pocket": "promo", "amount": "1" }),
        "/v1/tenants/{tenant_id}/pockets/void" => json!({ "currency": "CREDIT", "pocket": "old", "reason": "a test" }),
        "/v1/tenants/{tenant_id}/allowances" | "/v1/plans/{plan_id}/allowances" => {
            json!({ "allowance_id": "daily", "tier": "guest" })
        }
        "/v1/allowances" => allowance("new"),
        "/v1/hold-tiers" => json!({ "tier": "new", "currency": "CREDIT", "amount": "1" }),
        "/v1/price-books" => price_book(2),
        "/v1/holds" => hold("new"),
        "/v1/holds/{hold_id}/usage" => json!({ "call_id": "call", "cost_micro": 0 }),
        "/v1/holds/{hold_id}/settle" => json!({ "mode": "as_held" }),
        _ => json!({}),
    }
}

fn hold(hold_id: &str) -> Value {
    json!({ "hold_id": hold_id, "tenant_id": "acme", "currency": "CREDIT", "amount": "0" })
}

fn allowance(allowance_id: &str) -> Value {
    let tiers = [json!({ "tier": "guest", "amount": "1" })];
    json!({ "allowance_id": allowance_id, "currency": "CREDIT", "window": "rolling", "tiers": tiers })
}

fn price_book(version: i32) -> Value {
    let models = [json!({ "model": "small", "input": version.to_string(), "output": "1", "cached": "1" })];
    json!({ "version": version, "models": models })
}

fn adjustment(amount: &str) -> Value {
    json!({ "currency": "UZS", "amount": amount, "reason": "correction", "note": "a test" })
}

/// A request that would succeed with the right token.
fn call(method: &str, path: &str) -> Call {
    // Nobody can approve, reject and withdraw one request.
    let request_id = match path.rsplit('/').next() {
        Some("reject") => "2",
        Some("withdraw") => "3",
        _ => "1",
    };
    // An invoice is one in stars.
    let order_id = if path.ends_with("/invoice") { "stars" } else { "order" };
    let real = path
        .replace("{request_id}", request_id)
        // A hold for each that ends one.
        .replace("{hold_id}", path.rsplit('/').next().filter(|verb| !verb.contains('{')).unwrap_or("start"))
        .replace("{booking_id}", "1")
        .replace("{slot_id}", "2")
        .replace("{case_id}", "1")
        .replace("{tenant_id}", "acme")
        .replace("{order_id}", order_id)
        .replace("{plan_id}", "plan")
        .replace("{period}", "2026-12")
        .replace("{subscription_id}", "1")
        .replace("{endpoint_id}", "1")
        .replace("{event_id}", "1");
    let call = Call::new(method, &real).key(path);
    if method == "POST" || method == "PATCH" { call.json(&body(path)) } else { call }
}

async fn app() -> TestApp {
    // A booking, a payment that is a person's, one that can go back, an order in stars, and a free slot.
    let stage = Stage::start().await;
    let (status, answer) = stage.app.post("/v1/webhook-endpoints", &json!({ "url": "https://example.com/hook" })).await;
    assert_eq!(status, 201, "{answer}");
    let slot_id = stage.slot(100).await;
    stage.order("booked", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "booked").await;
    stage.paid(ALICE, "booked").await;
    stage.paid(ALICE, "nothing").await;
    stage.top_up_order("paid", ALICE, PRICE).await;
    stage.paid(ALICE, "paid").await;
    stage.slot(110).await;
    stage.top_up_order("stars", ALICE, PRICE).await;
    let app = stage.app;
    app.order("order", "acme", "1000").await;
    app.plan("plan", "1000").await;
    app.subscribe("acme", "plan", "2026-12-01", "full").await;
    app.fund("acme", 100_000).await;
    app.post_entries(&[entry("acme", "purchase", -1_000, "bought")]).await.expect("a debit");
    for (path, body) in [
        ("/v1/tenants/acme/grants", json!({ "currency": "CREDIT", "pocket": "old", "amount": "1" })),
        ("/v1/allowances", allowance("daily")),
        ("/v1/price-books", price_book(1)),
        ("/v1/holds", hold("start")),
        ("/v1/holds", hold("heartbeat")),
        ("/v1/holds", hold("usage")),
        ("/v1/holds", hold("settle")),
        ("/v1/holds", hold("release")),
        ("/v1/holds", hold("cancel")),
    ] {
        let key = format!("{path} {body}");
        let made = Call::new("POST", path).token(&app.token).key(&key.replace(' ', "_")).json(&body).send(&app).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    // Two requests of another program, and one of `somebody`, all above the limit.
    let (somebody, _) = token_with(&app, &[Scope::SupportWrite], None).await;
    for (token, key) in [(&app.token, "one"), (&app.token, "two"), (&somebody, "three")] {
        let call = Call::new("POST", "/v1/tenants/acme/adjustments").token(token).key(key);
        assert_eq!(call.json(&adjustment("2000")).send(&app).await.status, 202);
    }
    app
}

async fn token_with(app: &TestApp, scopes: &[Scope], valid_for: Option<TimeDelta>) -> (String, i64) {
    let token = token::generate();
    let mut conn = app.app.db.pool().acquire().await.expect("a connection");
    let client = ClientName::parse("somebody").expect("a client");
    let now = app.clock.now();
    let expires_at = valid_for.map(|time| now + time);
    let token_id = token::store(&mut conn, &token, &client, scopes, expires_at, now).await.expect("a token");
    (token.expose_secret().to_owned(), token_id)
}

#[tokio::test]
async fn every_operation_is_in_the_list_above() {
    let app = TestApp::start().await;
    let document = Call::new("GET", "/openapi.json").send(&app).await.json();
    let documented: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().expect("methods").keys().map(move |method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    let listed = OPERATIONS.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(documented, listed);

    // A path that isn't documented can't hide either.
    let routed: BTreeSet<&str> = include_str!("../../src/http/mod.rs")
        .split(".route(")
        .skip(1)
        .map(|rest| rest.trim_start().trim_start_matches('"').split('"').next().expect("a path"))
        .collect();
    let known = OPERATIONS.iter().map(|(_, path, _)| *path).chain(PUBLIC).collect();
    assert_eq!(routed, known);
}

#[tokio::test]
async fn nobody_gets_in_without_a_valid_token() {
    let app = app().await;
    let (revoked, token_id) = token_with(&app, &Scope::ALL, None).await;
    {
        let mut conn = app.app.db.pool().acquire().await.expect("a connection");
        assert!(token::revoke(&mut conn, token_id, app.clock.now()).await.expect("revoked"));
        assert!(!token::revoke(&mut conn, token_id, app.clock.now()).await.expect("revoked once"));
    }
    let (expired, _) = token_with(&app, &Scope::ALL, Some(TimeDelta::minutes(5))).await;
    app.clock.advance(TimeDelta::minutes(5) - TimeDelta::microseconds(1));
    assert_eq!(call("GET", "/v1/currencies").token(&expired).send(&app).await.status, 200, "valid to its last moment");
    app.clock.advance(TimeDelta::microseconds(1));
    let before = app.everything_written().await;
    let nearly = format!("{}x", app.token);
    let headers = [
        ("none", None),
        ("garbage", Some("Bearer garbage".to_owned())),
        ("empty", Some("Bearer ".to_owned())),
        ("no scheme", Some(app.token.clone())),
        ("another scheme", Some(format!("Basic {}", app.token))),
        ("one character more", Some(format!("Bearer {nearly}"))),
        ("one character less", Some(format!("Bearer {}", &app.token[..app.token.len() - 1]))),
        ("another case", Some(format!("Bearer {}", app.token.to_uppercase()))),
        ("the prefix", Some("Bearer hamyon_".to_owned())),
        ("quotes", Some("Bearer ' OR 1=1 --".to_owned())),
        ("long", Some(format!("Bearer {}", "x".repeat(6_000)))),
        ("revoked", Some(format!("Bearer {revoked}"))),
        ("expired", Some(format!("Bearer {expired}"))),
    ];
    for (method, path, _) in OPERATIONS {
        for (what, header) in &headers {
            let mut call = call(method, path);
            if let Some(header) = header {
                call = call.header("Authorization", header);
            }
            let answer = call.send(&app).await;
            let problem = answer.refused(401, "unauthorized", &format!("{method} {path} {what}"));
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!problem.to_string().contains("hamyon_"), "{problem}");
        }
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_token_allows_what_its_scopes_say_and_nothing_else() {
    let app = app().await;
    let before = app.everything_written().await;
    for (method, path, scope) in OPERATIONS {
        let others: Vec<Scope> = Scope::ALL.into_iter().filter(|other| *other != scope).collect();
        for scopes in [&others[..], &[]] {
            let (token, _) = token_with(&app, scopes, None).await;
            let answer = call(method, path).token(&token).send(&app).await;
            let problem = answer.refused(403, "forbidden", &format!("{method} {path} without {}", scope.as_str()));
            assert_eq!(problem["scope"], scope.as_str());
        }
    }
    assert_eq!(app.everything_written().await, before);
    for (method, path, scope) in OPERATIONS {
        let (token, _) = token_with(&app, &[scope], None).await;
        let answer = call(method, path).token(&token).send(&app).await;
        assert!(answer.status.is_success(), "{method} {path} with {} alone: {}", scope.as_str(), answer.text());
    }
}

#[tokio::test]
async fn a_stranger_is_not_told_what_is_wrong_with_his_body() {
    let app = app().await;
    for body in ["{", "[]", "\u{0}"] {
        // The token is asked for before anything else is looked at.
        let call = Call::new("POST", "/v1/transactions/batch").content_type("text/plain").bytes(body);
        call.send(&app).await.refused(401, "unauthorized", "a stranger");
    }
}

#[tokio::test]
async fn the_actor_of_a_row_is_the_program_whose_token_it_was() {
    let app = app().await;
    let (token, _) = token_with(&app, &[Scope::LedgerPost], None).await;
    let body = batch(&[posting("acme", "bonus", "1", "r")]);
    let call = Call::new("POST", "/v1/transactions/batch").token(&token).key("K1").json(&body);
    assert_eq!(call.send(&app).await.json()["transactions"][0]["actor"], "api:somebody");
}

#[tokio::test]
async fn only_the_hash_of_a_token_is_stored() {
    let app = app().await;
    let dump: String = sqlx::query_scalar("SELECT string_agg(t::text, '|') FROM api_tokens t")
        .fetch_one(&mut app.superuser().await)
        .await
        .expect("the tokens");
    assert!(!dump.contains(&app.token) && !dump.contains(app.token.trim_start_matches("hamyon_")));
}
