//! The twelve points of the source document on reserving for asynchronous work, each a test named after it. Its bot
//! counts messages and images: two units, each with a daily pocket, and images that were bought.

use chrono::TimeDelta;
use serde_json::json;

use super::Shop;
use crate::support::process::eventually;

/// The document's bot: a daily pocket for one image, and three images that were bought.
async fn bot() -> Shop {
    let shop = Shop::open().await;
    shop.currency("IMAGE").await;
    shop.currency("MESSAGE").await;
    shop.give("IMAGE", "daily", 1, Some(shop.in_hours(24))).await;
    shop.give("IMAGE", "bought", 3, None).await;
    shop
}

#[tokio::test]
async fn checklist_01_two_phases_reserve_when_queued_charge_on_success() {
    let shop = bot().await;
    shop.place_in("IMAGE", "job-1", "1", json!({})).await;
    assert_eq!(shop.numbers("IMAGE").await, (4, 1, 3), "the balance is untouched, and can't be spent again");
    assert_eq!(shop.settle("job-1", "as_held").await.status, 200);
    assert_eq!(shop.numbers("IMAGE").await, (3, 0, 3));
    let kinds: Vec<String> = shop.rows("IMAGE").await.into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, ["grant", "top_up", "hold_charge"], "no refund exists that could fail");
}

#[tokio::test]
async fn checklist_02_a_hold_stores_the_decision_how_much_from_which_pocket() {
    let shop = bot().await;
    let hold = shop.place_in("IMAGE", "job-1", "3", json!({})).await.json();
    let decision = json!([{ "pocket": "daily", "amount": "1" }, { "pocket": "bought", "amount": "2" }]);
    assert_eq!(hold["allocations"], decision);
    shop.settle("job-1", "as_held").await;
    let charges: Vec<(String, i64)> =
        shop.rows("IMAGE").await.into_iter().filter(|row| row.0 == "hold_charge").map(|row| (row.1, row.2)).collect();
    assert_eq!(charges, [("bought".to_owned(), -2), ("daily".to_owned(), -1)]);
    shop.is_right().await;
}

#[tokio::test]
async fn checklist_03_the_price_is_fixed_when_reserved_whatever_changes_until_it_is_charged() {
    let shop = bot().await;
    let tier = |amount: &str| json!({ "tier": "image", "currency": "IMAGE", "amount": amount });
    assert_eq!(shop.post("/v1/hold-tiers", &tier("1")).await.status, 201);
    let body = json!({ "hold_id": "job-1", "tenant_id": "acme", "currency": "IMAGE", "tier": "image" });
    assert_eq!(shop.post("/v1/holds", &body).await.json()["amount"], "1");
    // A premium tier costs nothing, and its hold stays free when premium ends.
    assert_eq!(shop.place_in("IMAGE", "premium", "0", json!({})).await.status, 201);
    // Between the reservation and the charge: the price rises, money comes, the daily pocket ends and is filled again.
    assert_eq!(shop.post("/v1/hold-tiers", &tier("2")).await.status, 201);
    shop.give("IMAGE", "bought", 10, None).await;
    shop.start("job-1").await;
    shop.act("job-1", "heartbeat", json!({ "lease_secs": 3_600 })).await;
    shop.act("premium", "heartbeat", json!({ "lease_secs": 3_600 })).await;
    shop.wait(1_000);
    let again = shop.post("/v1/holds", &body).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["amount"]),
        (200, &json!("1")),
        "not even the same job is repriced"
    );
    assert_eq!(shop.settle("job-1", "as_held").await.json()["charged"], "1");
    assert_eq!(shop.settle("premium", "as_held").await.json()["charged"], "0");
    assert_eq!(shop.pockets("IMAGE").await, json!({ "bought": "13" }));
    shop.is_right().await;
}

#[tokio::test]
async fn checklist_04_uniqueness_is_the_database_s_two_requests_at_once_are_one_hold_and_one_busy() {
    let shop = bot().await;
    // The same tenant from two bots, for two units: one job at a time, whichever wallet pays.
    shop.give("MESSAGE", "daily", 5, Some(shop.in_hours(24))).await;
    for round in 0..20 {
        let one = |currency: &'static str| {
            let (shop, id) = (&shop, format!("{currency}-{round}"));
            async move { shop.place_in(currency, &id, "1", json!({ "max_in_flight": 1 })).await }
        };
        let (image, message) = tokio::join!(one("IMAGE"), one("MESSAGE"));
        let mut statuses = [image.status.as_u16(), message.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 429], "round {round}: {} {}", image.text(), message.text());
        let placed = if image.status == 201 { image } else { message };
        let hold_id = placed.json()["hold_id"].as_str().unwrap().to_owned();
        assert_eq!(shop.act(&hold_id, "release", json!({})).await.status, 200);
    }
    // And the same job twice at once is one row: the key of the table decides.
    let (first, second) =
        tokio::join!(shop.place_in("IMAGE", "twice", "1", json!({})), shop.place_in("IMAGE", "twice", "1", json!({})));
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 201]);
    assert_eq!(shop.app.count("SELECT count(*) FROM holds WHERE hold_id = 'twice'").await, 1);
}

#[tokio::test]
async fn checklist_05_only_that_violation_means_busy_a_dropped_connection_is_a_fault() {
    let shop = bot().await;
    let before = shop.app.everything_written().await;
    // Somebody holds the wallet, so the request waits in the middle of its transaction; then its session is cut.
    let mut holder = shop.app.superuser().await;
    sqlx::raw_sql("BEGIN; SELECT FROM wallets WHERE currency = 'IMAGE' FOR UPDATE").execute(&mut holder).await.unwrap();
    let cut = async {
        let mut killer = shop.app.superuser().await;
        eventually("the request waits for the wallet", async || {
            let cut: i64 = sqlx::query_scalar(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ledger::lock_wallets%'",
            )
            .fetch_one(&mut killer)
            .await
            .unwrap();
            cut > 0
        })
        .await;
    };
    let (answer, ()) = tokio::join!(shop.place_in("IMAGE", "job-1", "1", json!({ "max_in_flight": 1 })), cut);
    answer.refused(503, "unavailable", "the database's connection is gone");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    assert_eq!(shop.app.everything_written().await, before, "and nothing is held");
    assert_eq!(shop.place_in("IMAGE", "job-1", "1", json!({ "max_in_flight": 1 })).await.status, 201);
}

#[tokio::test]
async fn checklist_06_the_check_and_the_reservation_are_one_transaction_under_the_wallet_s_lock() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 5_000, None).await;
    // C15: six at once of a thousand each, and five thousand there are.
    let placed = futures::future::join_all((0..6).map(|number| {
        let shop = &shop;
        async move { shop.place(&format!("job-{number}"), "1000", json!({})).await.status.as_u16() }
    }))
    .await;
    assert_eq!(placed.iter().filter(|status| **status == 201).count(), 5, "{placed:?}");
    assert_eq!(placed.iter().filter(|status| **status == 402).count(), 1, "{placed:?}");
    assert_eq!(shop.numbers("CREDIT").await, (5_000, 5_000, 0));
    shop.is_right().await;
}

#[tokio::test]
async fn checklist_07_what_ends_is_spent_first_what_was_bought_last() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 5, None).await;
    shop.give("CREDIT", "bought", 5, None).await;
    shop.give("CREDIT", "forever", 5, None).await;
    shop.give("CREDIT", "later", 5, Some(shop.in_hours(48))).await;
    shop.give("CREDIT", "soon", 5, Some(shop.in_hours(24))).await;
    let grant = json!({
        "currency": "CREDIT", "pocket": "first-of-two", "amount": "5", "expires_at": shop.in_hours(24), "priority": 1,
    });
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/grants", "g", &grant).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    let hold = shop.placed("all", "30").await;
    let order: Vec<&str> =
        hold["allocations"].as_array().unwrap().iter().map(|part| part["pocket"].as_str().unwrap()).collect();
    assert_eq!(order, ["first-of-two", "soon", "later", "forever", "bought", "main"]);
}

#[tokio::test]
async fn checklist_08_a_failure_moves_no_money() {
    let shop = bot().await;
    let before = shop.rows("IMAGE").await;
    shop.place_in("IMAGE", "job-1", "2", json!({})).await;
    shop.start("job-1").await;
    assert_eq!(shop.act("job-1", "release", json!({})).await.json()["status"], "released");
    assert_eq!(shop.rows("IMAGE").await, before);
    assert_eq!(shop.numbers("IMAGE").await, (4, 0, 4));
}

#[tokio::test]
async fn checklist_09_cancel_is_allowed_only_before_the_work_has_begun_and_exactly_one_of_the_two_wins() {
    let shop = bot().await;
    for round in 0..30 {
        let hold_id = format!("job-{round}");
        assert_eq!(shop.place_in("IMAGE", &hold_id, "1", json!({})).await.status, 201);
        let (start, cancel) =
            tokio::join!(shop.act(&hold_id, "start", json!({})), shop.act(&hold_id, "cancel", json!({})));
        match (start.status.as_u16(), cancel.status.as_u16()) {
            (200, 409) => {
                cancel.refused(409, "already_started", "the worker was first");
                assert_eq!(shop.hold(&hold_id).await["status"], "started");
                assert_eq!(shop.act(&hold_id, "release", json!({})).await.status, 200);
            }
            (409, 200) => {
                start.refused(409, "already_released", "the cancel was first");
                assert_eq!(shop.hold(&hold_id).await["settled_by"], "canceller");
            }
            other => panic!("round {round}: {other:?}: {} {}", start.text(), cancel.text()),
        }
    }
    assert_eq!(shop.numbers("IMAGE").await, (4, 0, 4));
}

#[tokio::test]
async fn checklist_10_a_stuck_reservation_is_swept_up_and_its_owner_told_after_the_fact() {
    let shop = bot().await;
    shop.post("/v1/webhook-endpoints", &json!({ "url": "https://example.org/hook" })).await;
    shop.place_in("IMAGE", "stuck", "1", json!({ "max_in_flight": 1 })).await;
    shop.wait(900);
    // At once, before any sweep: who is stuck may go on.
    assert_eq!(shop.numbers("IMAGE").await, (4, 0, 4));
    assert_eq!(shop.place_in("IMAGE", "next", "1", json!({ "max_in_flight": 1 })).await.status, 201);
    let done = shop.reconcile().await;
    assert_eq!((done.released, done.settled), (1, 0));
    assert_eq!(shop.hold("stuck").await["settled_by"], "reconciler");
    let told: i64 = shop.app.count("SELECT count(*) FROM events WHERE kind = 'hold.expired'").await;
    assert_eq!(told, 1, "in the transaction of the release, delivered after it; a failed delivery undoes nothing");
    assert_eq!(shop.reconcile().await, hamyon::hold::Reconciled::default());
    shop.is_right().await;
}

#[tokio::test]
async fn checklist_11_the_sweeper_waits_a_multiple_of_the_longest_legal_run() {
    use crate::support::process::{hamyon, run, said};
    let shop = bot().await;
    let hold = shop.place_in("IMAGE", "job-1", "1", json!({})).await.json();
    let time = |name: &str| hold[name].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert_eq!(time("expires_at") - time("placed_at"), TimeDelta::seconds(3 * 300));
    // A setting that leaves less stops the start and says why.
    let mut serve = hamyon();
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env("DATABASE_URL", shop.app.database_url());
    serve.env("HAMYON_HOLD_RUN_MAX_SECS", "300").env("HAMYON_HOLD_TTL_SECS", "899");
    let output = run(&mut serve).await;
    assert!(!output.status.success());
    let words = said(&output);
    assert!(words.contains("HAMYON_HOLD_TTL_SECS is 899") && words.contains("at least 900"), "{words}");
}

#[tokio::test]
async fn checklist_12_daily_limits_are_a_rolling_window_from_activity() {
    let shop = Shop::open().await;
    shop.currency("IMAGE").await;
    let allowance = json!({
        "allowance_id": "daily", "currency": "IMAGE", "window": "rolling", "tiers": [{ "tier": "free", "amount": "2" }],
    });
    assert_eq!(shop.post("/v1/allowances", &allowance).await.status, 201);
    let assigned = json!({ "allowance_id": "daily", "tier": "free" });
    assert_eq!(shop.post("/v1/tenants/acme/allowances", &assigned).await.status, 200);
    assert_eq!(shop.numbers("IMAGE").await, (0, 0, 0), "nothing begins before somebody comes");
    shop.wait(7 * 3_600);
    // The first activity is the hold itself.
    assert_eq!(shop.place_in("IMAGE", "job-1", "1", json!({})).await.status, 201);
    assert_eq!(shop.numbers("IMAGE").await, (2, 1, 1));
    shop.settle("job-1", "as_held").await;
    shop.wait(24 * 3_600 - 1);
    shop.post("/v1/tenants/acme/activity", &json!({})).await;
    assert_eq!(shop.numbers("IMAGE").await, (1, 0, 1), "the window isn't over");
    shop.wait(1);
    shop.post("/v1/tenants/acme/activity", &json!({})).await;
    assert_eq!(shop.numbers("IMAGE").await, (2, 0, 2), "what was left is gone, and the new cycle is full");
    let kinds: Vec<(String, i64)> =
        shop.rows("IMAGE").await.into_iter().map(|(kind, _, amount)| (kind, amount)).collect();
    let expected = [("grant", 2), ("hold_charge", -1), ("expiry", -1), ("grant", 2)];
    assert_eq!(kinds, expected.map(|(kind, amount)| (kind.to_owned(), amount)), "nothing is skipped silently");
    shop.is_right().await;
}
