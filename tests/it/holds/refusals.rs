//! At stake: bad input. Each says which rule, and writes nothing; nothing is half done (H5, H10, L6, C77, C87).

use serde_json::{Value, json};

use super::Shop;
use crate::support::api::Call;

#[tokio::test]
async fn every_bad_hold_is_refused_and_writes_nothing() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.placed("there", "10").await;
    let before = shop.app.everything_written().await;
    let hold = |more: Value| {
        let mut body = json!({ "hold_id": "job-1", "tenant_id": "acme", "currency": "CREDIT", "amount": "10" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let without = |name: &str| {
        let mut body = hold(json!({}));
        body.as_object_mut().unwrap().remove(name);
        body
    };
    for (body, status, code) in [
        (without("hold_id"), 400, "invalid_request"),
        (without("tenant_id"), 400, "invalid_request"),
        (without("currency"), 400, "invalid_request"),
        (without("amount"), 400, "invalid_request"),
        (hold(json!({ "amount": "-1" })), 400, "invalid_request"),
        (hold(json!({ "amount": 10 })), 400, "invalid_request"),
        (hold(json!({ "amount": "1.5" })), 400, "invalid_request"),
        (hold(json!({ "amount": "9223372036854775808" })), 400, "invalid_request"),
        (hold(json!({ "amount": "9223372036854775807" })), 402, "insufficient_funds"),
        (hold(json!({ "amount": "101" })), 402, "insufficient_funds"),
        (hold(json!({ "tier": "standard" })), 400, "invalid_request"),
        (hold(json!({ "hold_id": "" })), 400, "invalid_request"),
        (hold(json!({ "hold_id": "a/b" })), 400, "invalid_request"),
        (hold(json!({ "hold_id": "x".repeat(65) })), 400, "invalid_request"),
        (hold(json!({ "tenant_id": "nobody" })), 404, "tenant_not_found"),
        (hold(json!({ "currency": "EUR" })), 404, "currency_not_found"),
        (hold(json!({ "ttl_secs": 0 })), 400, "invalid_request"),
        (hold(json!({ "ttl_secs": 604_801 })), 400, "invalid_request"),
        (hold(json!({ "max_in_flight": 0 })), 400, "invalid_request"),
        (hold(json!({ "max_in_flight": 1 })), 429, "too_many_in_flight"),
        (hold(json!({ "cost_cap": "9" })), 400, "invalid_request"),
        (hold(json!({ "cost_cap": "-9" })), 400, "invalid_request"),
        (hold(json!({ "session": "" })), 400, "invalid_request"),
        (hold(json!({ "dedupe_key": "a\u{0}b" })), 400, "invalid_request"),
        (hold(json!({ "fingerprint": "x".repeat(129) })), 400, "invalid_request"),
        (hold(json!({ "priority_class": "gold" })), 400, "invalid_request"),
        (hold(json!({ "max_inflight": 1 })), 400, "invalid_request"),
        (hold(json!({ "hold_id": "there", "amount": "11" })), 409, "hold_differs"),
        (hold(json!({ "hold_id": "there", "allow_partial": true })), 409, "hold_differs"),
        (hold(json!({ "hold_id": "there", "cost_cap": "50" })), 409, "hold_differs"),
    ] {
        shop.post("/v1/holds", &body).await.refused(status, code, &body.to_string());
    }
    let mut tier = without("amount");
    tier["tier"] = json!("gold");
    shop.post("/v1/holds", &tier).await.refused(404, "tier_not_found", "a tier that isn't there");
    assert_eq!(shop.app.everything_written().await, before);
}

#[tokio::test]
async fn every_bad_deed_on_a_hold_is_refused_and_nothing_is_half_done() {
    let shop = Shop::open().await;
    shop.currency("IMAGE").await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.give("IMAGE", "main", 100, None).await;
    shop.placed("job-1", "10").await;
    shop.place_in("IMAGE", "image", "10", json!({})).await;
    let before = shop.app.everything_written().await;
    for (path, body, status, code) in [
        ("job-1/settle", json!({}), 400, "invalid_request"),
        ("job-1/settle", json!({ "mode": "all" }), 400, "invalid_request"),
        ("job-1/settle", json!({ "mode": "amount" }), 400, "invalid_request"),
        ("job-1/settle", json!({ "mode": "amount", "amount": "-1" }), 400, "invalid_request"),
        ("job-1/settle", json!({ "mode": "amount", "amount": "1.5" }), 400, "invalid_request"),
        ("job-1/settle", json!({ "mode": "amount", "amount": "101" }), 422, "cost_cap_exceeded"),
        ("job-1/settle", json!({ "mode": "as_held", "amount": "10" }), 400, "invalid_request"),
        ("job-1/settle", json!({ "mode": "as_held", "force": true }), 400, "invalid_request"),
        ("image/settle", json!({ "mode": "by_usage" }), 422, "not_metered"),
        ("image/usage", json!({ "call_id": "c", "cost_micro": 1 }), 422, "not_metered"),
        ("job-1/usage", json!({ "cost_micro": 1 }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c" }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "", "cost_micro": 1 }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c", "cost_micro": -1 }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c", "cost_micro": 0.5 }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c", "cost_micro": 1, "input_tokens": 1 }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c", "model": "small" }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c", "model": "small", "input_tokens": -1 }), 400, "invalid_request"),
        ("job-1/usage", json!({ "call_id": "c", "model": "small", "input_tokens": 1 }), 422, "no_price_book"),
        ("job-1/heartbeat", json!({ "lease_secs": 0 }), 400, "invalid_request"),
        ("job-1/heartbeat", json!({ "lease_secs": 3_601 }), 400, "invalid_request"),
        ("job-1/start", json!({ "now": 1 }), 400, "invalid_request"),
        ("job-1/release", json!({ "why": 1 }), 400, "invalid_request"),
        ("job-1/cancel", json!({ "cooperative": "yes" }), 400, "invalid_request"),
        ("nothing/settle", json!({ "mode": "as_held" }), 404, "hold_not_found"),
        ("nothing/start", json!({}), 404, "hold_not_found"),
        ("a%20b/start", json!({}), 404, "hold_not_found"),
    ] {
        shop.post(&format!("/v1/holds/{path}"), &body).await.refused(status, code, &format!("{path} {body}"));
    }
    for (path, body) in [
        ("/v1/holds", "{"),
        ("/v1/holds", "[]"),
        ("/v1/holds/job-1/settle", "null"),
        ("/v1/holds/job-1/start", "\"\u{0}\""),
        ("/v1/holds/job-1/start", "{}{}"),
    ] {
        let call = Call::new("POST", path).token(&shop.app.token).content_type("application/json").bytes(body);
        call.send(&shop.app).await.refused(400, "invalid_request", body);
    }
    assert_eq!(shop.app.everything_written().await, before);
    assert_eq!(shop.hold("job-1").await["status"], "placed");
    // Zero is a price like any: settled, and no row.
    let zero = shop.act("job-1", "settle", json!({ "mode": "amount", "amount": "0" })).await.json();
    assert_eq!((&zero["status"], &zero["charged"]), (&json!("settled"), &json!("0")));
    assert_eq!(shop.rows("CREDIT").await.len(), 1);
    // Up to the cap, more than was held.
    shop.placed("job-2", "10").await;
    let over = shop.act("job-2", "settle", json!({ "mode": "amount", "amount": "100" })).await.json();
    assert_eq!(over["charged"], "100", "{over}");
    shop.is_right().await;
}

#[tokio::test]
async fn bad_prices_and_tiers_are_refused_and_a_book_is_written_over_by_nobody() {
    let shop = Shop::open().await;
    let model = |more: Value| {
        let mut model = json!({ "model": "small", "input": "3", "output": "15", "cached": "0.3" });
        model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        model
    };
    let book = |version: Value, models: Value| json!({ "version": version, "models": models });
    let (status, answer) = shop.app.get("/v1/price-books").await;
    assert_eq!((status.as_u16(), &answer["code"]), (404, &json!("price_book_not_found")));
    let before = shop.app.everything_written().await;
    for (body, status, code) in [
        (book(json!(1), json!([])), 400, "invalid_request"),
        (book(json!(0), json!([model(json!({}))])), 400, "invalid_request"),
        (book(json!(2), json!([model(json!({}))])), 409, "price_version_taken"),
        (book(json!(1), json!([model(json!({ "input": "-1" }))])), 400, "invalid_request"),
        (book(json!(1), json!([model(json!({ "input": "0.0000001" }))])), 400, "invalid_request"),
        (book(json!(1), json!([model(json!({ "input": "1000000" }))])), 400, "invalid_request"),
        (book(json!(1), json!([model(json!({ "input": 3 }))])), 400, "invalid_request"),
        (book(json!(1), json!([model(json!({ "input": "NaN" }))])), 400, "invalid_request"),
        (book(json!(1), json!([model(json!({})), model(json!({}))])), 400, "invalid_request"),
    ] {
        shop.post("/v1/price-books", &body).await.refused(status, code, &body.to_string());
    }
    for body in [
        json!({ "tier": "a b", "currency": "CREDIT", "amount": "1" }),
        json!({ "tier": "a", "currency": "CREDIT", "amount": "-1" }),
        json!({ "tier": "a", "currency": "CREDIT", "amount": "0.5" }),
    ] {
        shop.post("/v1/hold-tiers", &body).await.refused(400, "invalid_request", &body.to_string());
    }
    assert_eq!(shop.app.everything_written().await, before);
    // Two who write the first version at once: one is told.
    let first = book(json!(1), json!([model(json!({}))]));
    let second = book(json!(1), json!([model(json!({ "input": "4" }))]));
    let (one, two) = tokio::join!(shop.post("/v1/price-books", &first), shop.post("/v1/price-books", &second));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409], "{} {}", one.text(), two.text());
    let (_, latest) = shop.app.get("/v1/price-books").await;
    assert_eq!((&latest["version"], &latest["models"][0]["cached"]), (&json!(1), &json!("0.3")), "{latest}");
}
