//! What we ask of the Bot API: an invoice's link has exactly what Telegram takes, and our token is in nothing that
//! anybody reads.

use serde_json::json;

use super::{ALICE, BOT, OTHER_BOT, PRICE, Stage};
use crate::support::fake_bot_api::Act;

#[tokio::test]
async fn the_invoice_of_an_order_is_one_price_in_whole_stars() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let (status, answer) = stage.app.post("/v1/orders/a/invoice", &json!({})).await;
    assert_eq!((status.as_u16(), &answer["url"]), (200, &json!("https://t.me/$invoice-a")));
    let call = stage.api.calls().pop().expect("a call");
    assert_eq!(call.bot, BOT.to_string());
    assert_eq!(
        call.params,
        json!({ "title": "One hour", "description": "One hour", "payload": "a", "provider_token": "",
                "currency": "XTR", "prices": [{ "label": "One hour", "amount": PRICE }] })
    );
    let (status, _) = stage.app.post("/v1/orders/a/invoice", &json!({ "bot_id": OTHER_BOT })).await;
    assert_eq!(status, 200);
    assert_eq!(stage.api.calls().pop().expect("a call").bot, OTHER_BOT.to_string());
}

#[tokio::test]
async fn a_long_title_is_cut_to_what_telegram_takes() {
    let stage = Stage::start().await;
    let title = "Ў".repeat(200);
    let body = json!({ "order_id": "a", "tenant_id": "acme", "currency": "XTR", "title": title, "amount": "1",
                       "payer": "7" });
    assert_eq!(stage.app.post("/v1/orders", &body).await.0, 201);
    stage.app.post("/v1/orders/a/invoice", &json!({})).await;
    let call = stage.api.calls().pop().expect("a call");
    assert_eq!(call.params["title"].as_str().expect("a title").chars().count(), 32);
    assert_eq!(call.params["description"].as_str().expect("a description").chars().count(), 200);
}

#[tokio::test]
async fn an_order_without_an_invoice_says_why() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.app.order("so-m", "acme", "5000.00").await;
    for (order_id, body, status, code) in [
        ("nothing", json!({}), 404, "order_not_found"),
        ("so-m", json!({}), 422, "link_not_possible"),
        ("a", json!({ "bot_id": 5 }), 422, "provider_not_configured"),
    ] {
        let (seen, problem) = stage.app.post(&format!("/v1/orders/{order_id}/invoice"), &body).await;
        assert_eq!((seen.as_u16(), problem["code"].as_str()), (status, Some(code)), "{problem}");
    }
    stage.is_told_yes("q", ALICE, "a").await;
    let (status, problem) = stage.app.post("/v1/orders/a/invoice", &json!({})).await;
    assert_eq!((status.as_u16(), &problem["order_status"]), (409, &json!("busy")));
}

#[tokio::test]
async fn a_failing_bot_api_is_502_and_says_nothing_of_the_token() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    for act in [Act::Silence, Act::Refuse(400, "Bad Request"), Act::DoAndStatus(500), Act::DoAndDrop, Act::TooMany(7)] {
        stage.api.fares(move |_| act);
        let (status, problem) = stage.app.post("/v1/orders/a/invoice", &json!({})).await;
        assert_eq!((status.as_u16(), &problem["code"]), (502, &json!("provider_unavailable")), "{act:?}");
        assert!(!problem.to_string().contains("AAA"), "{problem}");
    }
}

#[tokio::test]
async fn an_order_in_stars_has_a_payer_and_a_slot_that_exists() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    for (body, status, field) in [
        (json!({ "slot_id": slot_id }), 400, Some("payer")),
        (json!({ "slot_id": slot_id, "payer": "" }), 400, Some("payer")),
        (json!({ "slot_id": slot_id, "payer": "a b" }), 400, Some("payer")),
        (json!({ "payer": "7" }), 400, Some("amount")),
        (json!({ "slot_id": 999, "payer": "7" }), 404, None),
        (json!({ "slot_id": 999, "payer": "7", "amount": "1" }), 404, None),
        (json!({ "slot_id": slot_id, "payer": "7", "currency": "USD" }), 400, Some("amount")),
        (json!({ "slot_id": slot_id, "payer": "7", "amount": "1.5" }), 400, Some("amount")),
    ] {
        let mut whole = json!({ "order_id": "a", "tenant_id": "acme", "currency": "XTR", "title": "One hour" });
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let (seen, problem) = stage.app.post("/v1/orders", &whole).await;
        assert_eq!((seen.as_u16(), problem["field"].as_str()), (status, field), "{whole} {problem}");
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM orders").await, 0);
}
