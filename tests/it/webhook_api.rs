//! The webhooks' part of `/v1`: a secret is shown once, lists have pages that lose nothing, and nothing that is
//! asked for in the wrong way is answered as if it had been the right one.

use hamyon::outbox::endpoint;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::Call;
use crate::support::hooks::{deliver, deliveries, happen, register};
use crate::support::receiver::{Receiver, Reply};

#[tokio::test]
async fn a_secret_is_shown_once() {
    let app = TestApp::start().await;
    let (_, first) = register(&app, "https://example.uz/hooks").await;
    let (_, second) = register(&app, "https://example.uz/hooks").await;
    assert_ne!(first, second);
    let call = Call::new("GET", "/v1/webhook-endpoints").token(&app.token);
    let list = call.send(&app).await.text();
    assert!(!list.contains("secret") && !list.contains("whsec_"), "{list}");
    let mut conn = app.app.db.pool().acquire().await.expect("a connection");
    let made = endpoint::register(&mut conn, "https://example.uz/", app.clock.now()).await.expect("made");
    assert!(!format!("{made:?}").contains("whsec_"));
}

#[tokio::test]
async fn states_and_pages_of_deliveries_lose_none() {
    let app = TestApp::start().await;
    let (good, bad) = (Receiver::start().await, Receiver::start().await);
    for receiver in [&good, &bad, &good] {
        register(&app, &receiver.url()).await;
    }
    for tenant in ["a", "b"] {
        app.tenant(tenant).await;
        happen(&app, tenant, 1..=3).await;
    }
    bad.answers(|heard| Reply::Status(if heard.tenant() == "a" { 410 } else { 500 }));
    deliver(&app).await;
    let counted = |items: Vec<Value>| items.len();
    assert_eq!(counted(deliveries(&app, "delivered").await), 12);
    assert_eq!(counted(deliveries(&app, "dead").await), 1);
    assert_eq!(counted(deliveries(&app, "waiting").await), 5);
    for limit in [1, 2, 4, 5, 17, 18, 19] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let (status, page) = app.get(&format!("/v1/webhook-deliveries?limit={limit}{after}")).await;
            assert_eq!(status, 200, "{page}");
            seen.extend(page["items"].as_array().expect("items").iter().map(|row| {
                (row["event_id"].as_i64().expect("an event"), row["endpoint_id"].as_i64().expect("an endpoint"))
            }));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), 18, "{limit}");
        assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    }
}

#[tokio::test]
async fn unknown_things_are_404_and_unknown_questions_400() {
    let app = TestApp::start().await;
    let (endpoint_id, _) = register(&app, "https://example.uz/hooks").await;
    let off = Call::new("DELETE", &format!("/v1/webhook-endpoints/{endpoint_id}")).token(&app.token);
    assert_eq!(off.clone().send(&app).await.status, 204);
    for (method, path, status, code) in [
        ("DELETE", format!("/v1/webhook-endpoints/{endpoint_id}"), 404, "endpoint_not_found"),
        ("DELETE", "/v1/webhook-endpoints/999".to_owned(), 404, "endpoint_not_found"),
        ("DELETE", "/v1/webhook-endpoints/x".to_owned(), 404, "endpoint_not_found"),
        ("POST", format!("/v1/webhook-deliveries/{endpoint_id}/999/replay"), 404, "delivery_not_found"),
        ("POST", "/v1/webhook-deliveries/999/999/replay".to_owned(), 404, "delivery_not_found"),
        ("GET", "/v1/webhook-endpoints?x=1".to_owned(), 400, "invalid_request"),
        ("DELETE", "/v1/webhook-endpoints/1?x=1".to_owned(), 400, "invalid_request"),
        ("GET", "/v1/webhook-deliveries?stat=dead".to_owned(), 400, "invalid_request"),
        ("GET", "/v1/webhook-deliveries?state=lost".to_owned(), 400, "invalid_request"),
        ("GET", "/v1/webhook-deliveries?limit=0".to_owned(), 400, "invalid_request"),
        ("GET", "/v1/webhook-deliveries?limit=501".to_owned(), 400, "invalid_request"),
        ("GET", "/v1/webhook-deliveries?after=7".to_owned(), 400, "invalid_request"),
        ("GET", "/v1/webhook-deliveries?after=7.x".to_owned(), 400, "invalid_request"),
        ("POST", "/v1/webhook-deliveries/1/1/replay?x=1".to_owned(), 400, "invalid_request"),
    ] {
        let about = format!("{method} {path}");
        Call::new(method, &path).token(&app.token).send(&app).await.refused(status, code, &about);
    }
    for body in [json!({}), json!({ "url": 1 }), json!({ "url": "https://example.uz/", "secret": "mine" }), json!([])] {
        let call = Call::new("POST", "/v1/webhook-endpoints").token(&app.token).json(&body);
        call.send(&app).await.refused(400, "invalid_request", &body.to_string());
    }
}
