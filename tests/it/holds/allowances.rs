//! At stake: what a tenant gets again and again. Filled once a window, never twice, never by a storm at midnight; what
//! is left goes in a row of its own; those away hear once (H12, C51, C65).

use chrono::{DateTime, Utc};
use hamyon::allowance::{Cycle, Due, Window, due};
use serde_json::{Value, json};

use super::Shop;

async fn allowance(shop: &Shop, more: Value) {
    let mut body = json!({
        "allowance_id": "daily", "currency": "CREDIT", "window": "rolling",
        "tiers": [{ "tier": "account", "amount": "2000" }, { "tier": "guest", "amount": "100" }],
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = shop.post("/v1/allowances", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

async fn assign(shop: &Shop, path: &str, tier: Value) {
    let answer = shop.post(path, &json!({ "allowance_id": "daily", "tier": tier })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn active(shop: &Shop) -> Value {
    let answer = shop.post("/v1/tenants/acme/activity", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["filled"].clone()
}

async fn sweep(shop: &Shop) -> u64 {
    hamyon::allowance::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap()
}

#[tokio::test]
async fn h12_a_calendar_day_is_the_day_in_the_tenant_s_zone() {
    let shop = Shop::open().await;
    allowance(&shop, json!({ "window": "calendar_day" })).await;
    assign(&shop, "/v1/tenants/acme/allowances", json!("account")).await;
    // 14:00 on 1 December in Tashkent.
    let filled = active(&shop).await;
    assert_eq!(
        (&filled[0]["pocket"], &filled[0]["expires_at"]),
        (&json!("allowance:daily:2026-12-01"), &json!("2026-12-01T19:00:00Z"))
    );
    assert_eq!(active(&shop).await, json!([]), "C51: once a day");
    shop.wait(10 * 3_600 - 1);
    assert_eq!(active(&shop).await, json!([]), "23:59:59");
    shop.place("over-midnight", "30", json!({ "ttl_secs": 90_000 })).await;
    shop.wait(1);
    assert_eq!(active(&shop).await[0]["pocket"], "allowance:daily:2026-12-02");
    // A job across midnight is charged from the pocket it was held in, what it used beyond on the day it settles.
    shop.used("over-midnight", "c", 50_000).await;
    let settled = shop.settle("over-midnight", "by_usage").await.json();
    let rows: Vec<(String, String)> = settled["transactions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["pocket"].as_str().unwrap().to_owned(), row["amount"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(
        rows,
        [
            ("allowance:daily:2026-12-01".to_owned(), "-30".to_owned()),
            ("allowance:daily:2026-12-02".to_owned(), "-20".to_owned())
        ]
    );
    assert_eq!(shop.pockets("CREDIT").await, json!({ "allowance:daily:2026-12-02": "1980" }));
    shop.is_right().await;
}

#[tokio::test]
async fn h12_many_at_once_fill_a_cycle_once() {
    let shop = Shop::open().await;
    allowance(&shop, json!({})).await;
    assign(&shop, "/v1/tenants/acme/allowances", json!("guest")).await;
    for round in 1..=5 {
        let filled = futures::future::join_all((0..10).map(|_| active(&shop))).await;
        assert_eq!(filled.iter().filter(|filled| **filled != json!([])).count(), 1, "round {round}");
        assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100));
        shop.wait(24 * 3_600);
    }
    shop.is_right().await;
}

#[tokio::test]
async fn h12_a_plan_s_allowance_is_its_subscribers_and_a_tenant_s_own_goes_before() {
    let shop = Shop::open().await;
    allowance(&shop, json!({})).await;
    shop.app.plan("standard", "1000.00").await;
    assign(&shop, "/v1/plans/standard/allowances", json!("account")).await;
    assert_eq!(active(&shop).await, json!([]), "no subscription yet");
    shop.app.subscribe("acme", "standard", "2026-12-02", "full").await;
    assert_eq!(active(&shop).await, json!([]), "it begins tomorrow");
    shop.wait(24 * 3_600);
    assert_eq!(active(&shop).await[0]["amount"], "2000");
    shop.wait(24 * 3_600);
    assign(&shop, "/v1/tenants/acme/allowances", json!("guest")).await;
    assert_eq!(active(&shop).await[0]["amount"], "100");
    shop.wait(24 * 3_600);
    assign(&shop, "/v1/tenants/acme/allowances", json!(null)).await;
    assert_eq!(active(&shop).await, json!([]), "taken away, whatever the plan says");
}

#[tokio::test]
async fn h12_the_nightly_sweep_fills_for_those_away_tells_them_once_and_begins_no_window() {
    let shop = Shop::open().await;
    shop.post("/v1/webhook-endpoints", &json!({ "url": "https://example.org/hook" })).await;
    allowance(&shop, json!({})).await;
    assign(&shop, "/v1/tenants/acme/allowances", json!("guest")).await;
    assert_eq!(sweep(&shop).await, 0, "who never came isn't called back");
    active(&shop).await;
    shop.wait(23 * 3_600);
    active(&shop).await;
    shop.wait(3_600);
    assert_eq!(sweep(&shop).await, 0, "the window is over, and its owner was there an hour ago");
    shop.wait(23 * 3_600);
    assert_eq!(sweep(&shop).await, 1);
    assert_eq!(sweep(&shop).await, 0);
    shop.wait(72 * 3_600);
    assert_eq!(sweep(&shop).await, 0, "once, however long somebody stays away");
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100), "and a window that hasn't begun doesn't end");
    assert_eq!(shop.app.count("SELECT count(*) FROM events WHERE kind = 'allowance.refilled'").await, 1);
    // He comes, and his day begins.
    assert_eq!(active(&shop).await, json!([]));
    shop.wait(24 * 3_600 - 1);
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100));
    shop.wait(1);
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 0));
    let kinds: Vec<String> = shop.rows("CREDIT").await.into_iter().map(|row| row.0).collect();
    assert_eq!(kinds, ["grant", "expiry", "grant"]);
    active(&shop).await;
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100));
    shop.is_right().await;
}

#[tokio::test]
async fn h12_the_sweep_leaves_the_blocked_alone() {
    let shop = Shop::open().await;
    allowance(&shop, json!({})).await;
    assign(&shop, "/v1/tenants/acme/allowances", json!("guest")).await;
    active(&shop).await;
    shop.app.plan("standard", "1000.00").await;
    shop.app.subscribe("acme", "standard", "2026-12-01", "full").await;
    let options = hamyon::fee::RunOptions::default();
    hamyon::fee::run(&shop.app.app.db, &shop.app.clock, options, &|_| {}).await.expect("a run");
    shop.wait(72 * 3_600);
    assert_eq!(sweep(&shop).await, 0, "whose fee is overdue hears of the fee");
    shop.app.fund("acme", 100_000).await;
    assert_eq!(sweep(&shop).await, 1);
}

#[tokio::test]
async fn h12_who_is_there_for_anything_isn_t_away() {
    let shop = Shop::open().await;
    allowance(&shop, json!({})).await;
    assign(&shop, "/v1/tenants/acme/allowances", json!("guest")).await;
    let hours = |hours: i64| shop.wait(hours * 3_600);
    active(&shop).await;
    // In another currency than the allowance's.
    hours(30);
    assert_eq!(
        shop.place_in("UZS", "one", "0.00", json!({ "ttl_secs": 600_000, "dedupe_key": "k" })).await.status,
        201
    );
    hours(20);
    assert_eq!(sweep(&shop).await, 0, "there twenty hours ago");
    // Refused for want of money. Nothing else is written by it.
    let before = shop.app.everything_written().await;
    shop.place_in("UZS", "two", "10.00", json!({})).await.refused(402, "insufficient_funds", "nothing is there");
    assert_eq!(shop.app.everything_written().await, before);
    hours(20);
    assert_eq!(sweep(&shop).await, 0, "there, and refused, twenty hours ago");
    // A double of what is at work.
    let double = shop.place_in("UZS", "three", "0.00", json!({ "dedupe_key": "k" })).await;
    assert_eq!(double.json()["outcome"], "already_running", "{}", double.text());
    hours(23);
    assert_eq!(sweep(&shop).await, 0, "there, for nothing new, 23 hours ago");
    hours(1);
    assert_eq!(sweep(&shop).await, 1, "a day without a word is away");
    // Of a tenant without any allowance nothing is noted.
    shop.app.tenant("other").await;
    let body = json!({ "hold_id": "x", "tenant_id": "other", "currency": "UZS", "amount": "1.00" });
    shop.post("/v1/holds", &body).await.refused(402, "insufficient_funds", "nothing is there");
    assert_eq!(shop.app.count("SELECT count(*) FROM tenant_activity WHERE tenant_id = 'other'").await, 0);
}

#[tokio::test]
async fn h12_a_cycle_that_waits_begins_when_its_owner_comes_also_when_the_allowance_was_taken_away() {
    let shop = Shop::open().await;
    allowance(&shop, json!({})).await;
    assign(&shop, "/v1/tenants/acme/allowances", json!("guest")).await;
    active(&shop).await;
    shop.wait(48 * 3_600);
    assert_eq!(sweep(&shop).await, 1);
    assign(&shop, "/v1/tenants/acme/allowances", json!(null)).await;
    assert_eq!(active(&shop).await, json!([]), "nothing new");
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100), "what was given stays for its time");
    shop.wait(24 * 3_600);
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 0), "and its time began when he came");
    assert_eq!(active(&shop).await, json!([]));
    shop.is_right().await;
}

#[tokio::test]
async fn every_bad_allowance_writes_nothing() {
    let shop = Shop::open().await;
    allowance(&shop, json!({})).await;
    let before = shop.app.everything_written().await;
    let body = |more: Value| {
        let mut body = json!({
            "allowance_id": "daily", "currency": "CREDIT", "window": "rolling",
            "tiers": [{ "tier": "guest", "amount": "100" }, { "tier": "account", "amount": "2000" }],
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (path, body, status, code) in [
        ("/v1/allowances", body(json!({ "window_secs": 60 })), 409, "allowance_differs"),
        ("/v1/allowances", body(json!({ "priority": 1 })), 409, "allowance_differs"),
        ("/v1/allowances", body(json!({ "tiers": [{ "tier": "guest", "amount": "1" }] })), 409, "allowance_differs"),
        ("/v1/allowances", body(json!({ "allowance_id": "Daily" })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "window": "monthly" })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "time_zone": "Asia/Tashkent" })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "window": "calendar_day", "time_zone": "Mars" })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "window": "calendar_day", "window_secs": 60 })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "window_secs": 0 })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "tiers": [] })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "tiers": [{ "tier": "guest", "amount": "0" }] })), 400, "invalid_request"),
        ("/v1/allowances", body(json!({ "currency": "EUR" })), 404, "currency_not_found"),
        ("/v1/tenants/acme/allowances", json!({ "allowance_id": "daily", "tier": "gold" }), 404, "tier_not_found"),
        ("/v1/tenants/acme/allowances", json!({ "allowance_id": "x", "tier": "gold" }), 404, "allowance_not_found"),
        ("/v1/tenants/acme/allowances", json!({ "allowance_id": "\u{0}", "tier": "gold" }), 400, "invalid_request"),
        (
            "/v1/allowances",
            body(json!({ "tiers": [{ "tier": "guest", "amount": "9223372036854775807" }] })),
            400,
            "invalid_request",
        ),
        ("/v1/tenants/nobody/allowances", json!({ "allowance_id": "daily", "tier": "guest" }), 404, "tenant_not_found"),
        ("/v1/plans/nothing/allowances", json!({ "allowance_id": "daily", "tier": "guest" }), 404, "plan_not_found"),
        ("/v1/tenants/nobody/activity", json!({}), 404, "tenant_not_found"),
        ("/v1/tenants/acme/activity", json!({ "now": 1 }), 400, "invalid_request"),
    ] {
        shop.post(path, &body).await.refused(status, code, &format!("{path} {body}"));
    }
    let same = shop.post("/v1/allowances", &body(json!({}))).await;
    assert_eq!(same.status, 200, "the same again, its tiers in another order: {}", same.text());
    assert_eq!(shop.app.everything_written().await, before);
}

#[test]
fn h12_what_activity_does_is_decided_by_the_clock_alone() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let now = at("2026-12-01T09:00:00Z");
    let rolling = Window::Rolling { secs: 60 };
    let next = at("2026-12-01T09:01:00Z");
    assert_eq!(due(rolling, None, now), Due::Fill { number: 1, begun_at: now, ends_at: next });
    assert_eq!(due(rolling, Some(Cycle { number: 4, ends_at: None }), now), Due::Nothing, "filled, and not begun");
    assert_eq!(due(rolling, Some(Cycle { number: 4, ends_at: Some(next) }), now), Due::Nothing);
    let over = Some(Cycle { number: 4, ends_at: Some(now) });
    assert_eq!(due(rolling, over, now), Due::Fill { number: 5, begun_at: now, ends_at: next });
    // A day that summer time makes short, a midnight that doesn't exist, and a clock that went back.
    let berlin = Window::CalendarDay { zone: chrono_tz::Europe::Berlin };
    let Due::Fill { begun_at, ends_at, .. } = due(berlin, None, at("2027-03-28T12:00:00Z")) else { panic!() };
    assert_eq!((ends_at - begun_at).num_hours(), 23);
    let cairo = Window::CalendarDay { zone: chrono_tz::Africa::Cairo };
    let Due::Fill { number, begun_at, .. } = due(cairo, None, at("2027-04-30T12:00:00Z")) else { panic!() };
    assert_eq!(begun_at, at("2027-04-29T22:00:00Z"), "01:00 local, the first moment of that day that exists");
    let filled = Some(Cycle { number, ends_at: None });
    assert_eq!(due(cairo, filled, at("2027-04-29T12:00:00Z")), Due::Nothing, "yesterday isn't filled again");
}
