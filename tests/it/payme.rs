//! The Payme door. Its calls come twice, late, out of order and all at once, from a network we don't control, and
//! each one either moves somebody's money exactly once or changes nothing.

mod accounts;
mod auth;
mod call_log;
mod envelope;
mod expiry;
mod links;
mod money;
mod races;
mod sandbox;
mod test_mode;

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::PAYME_KEY;

/// 5,000 so'm in tiyin.
const AMOUNT: i64 = 500_000;

/// How long a transaction waits for its PerformTransaction.
const LIFETIME_MS: i64 = 43_200_000;

/// An id as Payme makes them: 24 hexadecimal digits.
fn id(number: u32) -> String {
    format!("5305e3bab097f420{number:08x}")
}

fn wallet() -> Value {
    json!({ "tenant_id": "acme" })
}

fn order() -> Value {
    json!({ "order_id": "197" })
}

fn create_params(app: &TestApp, id: &str, account: &Value) -> Value {
    json!({ "id": id, "time": app.now_ms(), "amount": AMOUNT, "account": account })
}

async fn create(app: &TestApp, id: &str, account: &Value) -> Value {
    app.payme("CreateTransaction", create_params(app, id, account)).await
}

async fn perform(app: &TestApp, id: &str) -> Value {
    app.payme("PerformTransaction", json!({ "id": id })).await
}

async fn cancel(app: &TestApp, id: &str) -> Value {
    app.payme("CancelTransaction", json!({ "id": id, "reason": 5 })).await
}

async fn check(app: &TestApp, id: &str) -> Value {
    app.payme("CheckTransaction", json!({ "id": id })).await["result"].take()
}

/// An application with a tenant and an order of 5,000 so'm.
async fn shop() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.order("197", "acme", "5000.00").await;
    app
}

/// A shop with one performed payment of the wallet.
async fn paid_shop() -> TestApp {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    assert_eq!(state(&perform(&app, &id(1)).await), 2);
    app
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {answer}"))
}

fn state(answer: &Value) -> i64 {
    answer["result"]["state"].as_i64().unwrap_or_else(|| panic!("no state: {answer}"))
}

/// The answer to a body that may be anything, as text.
async fn raw(app: &TestApp, body: impl Into<reqwest::Body>) -> String {
    let request = app.client.post(app.url("/payme")).basic_auth("Paycom", Some(PAYME_KEY)).body(body);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    response.text().await.expect("a text")
}

/// Waits until so many sessions of the application wait for a lock.
pub async fn until_waiting(app: &TestApp, sessions: i64) {
    let began = Instant::now();
    loop {
        let waiting = app
            .count(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .await;
        if waiting >= sessions {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{waiting} of {sessions} wait for the lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
