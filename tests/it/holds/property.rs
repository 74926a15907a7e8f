//! At stake: no unit lost, none invented. Over random grants, holds, calls, ends, expiries and jumps of the clock, the
//! pockets always sum up to the balance, what is promised is what live holds keep, and no pocket but `main` is ever
//! below zero (H2, H3, H5, H12). The seed of a failure is in its message.

use chrono::TimeDelta;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::Shop;

const SEEDS: u64 = 12;
const STEPS: usize = 60;

#[tokio::test]
async fn pockets_always_sum_up_to_the_balance() {
    for seed in 0..SEEDS {
        let shop = Shop::open().await;
        let mut dice = StdRng::seed_from_u64(seed);
        if seed % 3 == 0 {
            let allowance = json!({
                "allowance_id": "daily", "currency": "CREDIT", "window": "rolling", "window_secs": 3_600,
                "tiers": [{ "tier": "t", "amount": "25" }],
            });
            shop.post("/v1/allowances", &allowance).await;
            shop.post("/v1/tenants/acme/allowances", &json!({ "allowance_id": "daily", "tier": "t" })).await;
        }
        let mut placed = 0;
        for step in 0..STEPS {
            take_a_step(&shop, &mut dice, &mut placed, step).await;
            check(&shop, &format!("seed {seed}, step {step}")).await;
        }
        // Everything comes to its end: then what came in is what was charged, expired, or is still there.
        shop.app.clock.advance(TimeDelta::days(30));
        shop.reconcile().await;
        hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap();
        check(&shop, &format!("seed {seed}, the end")).await;
        let (balance, held, available) = shop.numbers("CREDIT").await;
        assert_eq!((held, available), (0, balance), "seed {seed}: nothing is promised and nothing hidden");
        let charged: i64 = shop.app.count("SELECT coalesce(sum(charged), 0)::bigint FROM holds").await;
        let rows = shop.rows("CREDIT").await;
        let sum =
            |kinds: &[&str]| rows.iter().filter(|row| kinds.contains(&row.0.as_str())).map(|row| row.2).sum::<i64>();
        assert_eq!(sum(&["hold_charge"]), -charged, "seed {seed}");
        assert_eq!(sum(&["adjustment"]), 0, "seed {seed}: what is moved between pockets is neither more nor less");
        let mut main = 0;
        for (kind, pocket, amount) in &rows {
            main += if pocket == "main" { *amount } else { 0 };
            assert!(kind != "expiry" || main >= 0, "seed {seed}: {amount} of {pocket} expire beside a debt of {main}");
        }
        assert_eq!(sum(&["grant", "top_up"]) + sum(&["expiry"]) - charged, balance, "seed {seed}");
        shop.is_right().await;
    }
}

async fn take_a_step(shop: &Shop, dice: &mut StdRng, placed: &mut usize, step: usize) {
    let any_hold = |dice: &mut StdRng, placed: usize| format!("job-{}", dice.random_range(0..placed.max(1)));
    match dice.random_range(0..12) {
        0 => shop.give("CREDIT", "main", dice.random_range(1..50), None).await,
        1 | 2 => {
            let end = shop.app.clock.now() + TimeDelta::minutes(dice.random_range(1..120));
            shop.give("CREDIT", &format!("promo-{step}"), dice.random_range(1..50), Some(end)).await;
        }
        3 => shop.give("CREDIT", &format!("bonus-{step}"), dice.random_range(1..20), None).await,
        4..=6 => {
            let more = json!({ "allow_partial": dice.random_bool(0.5), "ttl_secs": dice.random_range(1..5_000) });
            let answer = shop.place(&format!("job-{placed}"), &dice.random_range(0..60).to_string(), more).await;
            if answer.status == 201 {
                *placed += 1;
            } else {
                answer.refused(402, "insufficient_funds", "a hold");
            }
        }
        7 => {
            let hold_id = any_hold(dice, *placed);
            shop.used(&hold_id, &format!("call-{step}"), dice.random_range(0..30_000)).await;
        }
        8 => {
            let hold_id = any_hold(dice, *placed);
            let mode = if dice.random_bool(0.5) { "as_held" } else { "by_usage" };
            shop.settle(&hold_id, mode).await;
        }
        9 => {
            let hold_id = any_hold(dice, *placed);
            let verb = ["start", "heartbeat", "release", "cancel"][dice.random_range(0..4)];
            shop.act(&hold_id, verb, json!({})).await;
        }
        10 => shop.app.clock.advance(TimeDelta::minutes(dice.random_range(1..90))),
        _ => {
            if dice.random_bool(0.5) {
                shop.reconcile().await;
            } else {
                hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap();
            }
        }
    }
}

async fn check(shop: &Shop, at: &str) {
    let (balance, held, available) = shop.numbers("CREDIT").await;
    let pockets = shop.pockets("CREDIT").await;
    let mut sum = 0;
    for (pocket, amount) in pockets.as_object().unwrap() {
        let amount: i64 = amount.as_str().unwrap().parse().unwrap();
        assert!(amount >= 0 || pocket == "main", "{at}: pocket {pocket} is {amount}");
        sum += amount;
    }
    assert_eq!(sum, balance, "{at}");
    let rows = shop.rows("CREDIT").await;
    assert_eq!(rows.iter().map(|row| row.2).sum::<i64>(), balance, "{at}");
    let mut conn = shop.app.superuser().await;
    let promised: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(amount), 0)::bigint FROM holds WHERE ended_at IS NULL AND (expires_at > $1 OR lease_until > $1)",
    )
    .bind(shop.app.clock.now())
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(promised, held, "{at}");
    assert!(available <= balance - held, "{at}: {available} of {balance} with {held} held");
    let allocated: bool = sqlx::query_scalar(
        "SELECT bool_and(amount = (SELECT coalesce(sum(a), 0) FROM unnest(pocket_amounts) a)) IS NOT FALSE FROM holds",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert!(allocated, "{at}: a hold's pockets don't sum up to it");
}
