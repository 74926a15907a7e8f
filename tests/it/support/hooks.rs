//! Words of the webhook tests: endpoints, events out of nothing, and what the tables say.

use std::time::Duration;

use chrono::TimeDelta;
use hamyon::app::AppSettings;
use hamyon::ids::TenantId;
use hamyon::outbox::{self, DelivererSettings, Event, EventKind};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::TestApp;
use super::app::settings;

/// Settings in which a receiver has so long for its answer.
pub fn patient_for(timeout: Duration) -> AppSettings {
    AppSettings { webhooks: DelivererSettings { allow_private: true, timeout }, ..settings() }
}

/// An endpoint at a URL: its number and its secret.
pub async fn register(app: &TestApp, url: &str) -> (i64, String) {
    let (status, answer) = app.post("/v1/webhook-endpoints", &json!({ "url": url })).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let secret = answer["secret"].as_str().expect("a secret").to_owned();
    (answer["endpoint_id"].as_i64().expect("a number"), secret)
}

/// Writes events of a tenant that say `n`.
pub async fn happen(app: &TestApp, tenant_id: &str, numbers: impl IntoIterator<Item = i64>) {
    let events: Vec<Event> = numbers
        .into_iter()
        .map(|n| Event {
            tenant_id: TenantId::parse(tenant_id).expect("a tenant's id"),
            kind: EventKind::PaymentPerformed,
            about: json!({ "n": n }),
        })
        .collect();
    let mut conn = app.app.db.pool().acquire().await.expect("a connection");
    outbox::write(&mut conn, &events, app.clock.now()).await.expect("written");
}

/// One run of the deliverer: how many attempts it made.
pub async fn deliver(app: &TestApp) -> u64 {
    app.app.deliverer.deliver_ready().await.expect("delivered")
}

/// Moves the clock and runs the deliverer.
pub async fn deliver_after(app: &TestApp, seconds: i64) -> u64 {
    app.clock.advance(TimeDelta::seconds(seconds));
    deliver(app).await
}

/// Deliveries in a state, by the API.
pub async fn deliveries(app: &TestApp, state: &str) -> Vec<Value> {
    let (status, page) = app.get(&format!("/v1/webhook-deliveries?state={state}&limit=500")).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    page["items"].as_array().expect("items").clone()
}

/// The log of attempts: status and problem, in their order.
pub async fn attempts(app: &TestApp) -> Vec<(Option<i32>, Option<String>)> {
    sqlx::query_as("SELECT status, problem FROM webhook_attempts ORDER BY attempt_id")
        .fetch_all(&mut app.superuser().await)
        .await
        .expect("the log")
}
