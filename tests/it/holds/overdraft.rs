//! At stake: a debt of the wallet. What a job cost beyond the balance is paid by the next money that comes in, once, and
//! burns no unit of any later money (H10, H12, L4).

use serde_json::json;

use super::Shop;

/// A job that costs more than it keeps, in one call.
async fn overrun(shop: &Shop, hold_id: &str, held: &str, cost: i64) {
    shop.placed(hold_id, held).await;
    shop.used(hold_id, "call-1", cost * 1_000).await;
    assert_eq!(shop.settle(hold_id, "by_usage").await.json()["charged"], cost.to_string());
}

async fn sweep(shop: &Shop) -> u64 {
    hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap()
}

fn row(kind: &str, pocket: &str, amount: i64) -> (String, String, i64) {
    (kind.to_owned(), pocket.to_owned(), amount)
}

#[tokio::test]
async fn h10_the_next_allowance_pays_a_debt_once_and_the_ones_after_it_are_whole() {
    let shop = Shop::open().await;
    let allowance = json!({
        "allowance_id": "daily", "currency": "CREDIT", "window": "rolling", "tiers": [{ "tier": "guest", "amount": "100" }],
    });
    assert_eq!(shop.post("/v1/allowances", &allowance).await.status, 201);
    let tier = json!({ "allowance_id": "daily", "tier": "guest" });
    assert_eq!(shop.post("/v1/tenants/acme/allowances", &tier).await.status, 200);
    let come = || async { assert_eq!(shop.post("/v1/tenants/acme/activity", &json!({})).await.status, 200) };
    come().await;
    overrun(&shop, "job-1", "100", 102).await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-2" }));

    shop.wait(24 * 3_600);
    come().await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "allowance:daily:2": "98" }), "the debt is paid");
    assert_eq!(shop.numbers("CREDIT").await, (98, 0, 98));
    let rows = shop.rows("CREDIT").await;
    assert_eq!(
        rows[rows.len() - 3..],
        [
            row("grant", "allowance:daily:2", 100),
            row("adjustment", "allowance:daily:2", -2),
            row("adjustment", "main", 2)
        ]
    );
    overrun(&shop, "job-2", "98", 98).await;

    shop.wait(24 * 3_600);
    come().await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "allowance:daily:3": "100" }), "and stays paid");
    assert!(shop.rows("CREDIT").await.iter().all(|row| row.0 != "expiry"), "not a unit was burnt");
    shop.is_right().await;
}

#[tokio::test]
async fn h10_a_grant_fills_up_what_main_owes_first() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 10, None).await;
    overrun(&shop, "job-1", "10", 15).await;
    // Less than the debt, then more.
    shop.give("CREDIT", "first", 2, Some(shop.in_hours(1))).await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-3" }));
    shop.give("CREDIT", "second", 20, Some(shop.in_hours(1))).await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "second": "17" }));
    assert_eq!(shop.numbers("CREDIT").await, (17, 0, 17));
    // What is granted again says its own balance; the grant is answered by its own row.
    shop.wait(3_600);
    sweep(&shop).await;
    assert_eq!(shop.rows("CREDIT").await.last().unwrap(), &row("expiry", "second", -17));
    shop.is_right().await;
}

#[tokio::test]
async fn h10_a_pocket_pays_what_main_owes_before_its_rest_expires() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 10, Some(shop.in_hours(1))).await;
    shop.give("CREDIT", "main", 5, None).await;
    shop.placed("kept", "10").await;
    // The promotion is promised, so the overrun of this one makes main negative.
    overrun(&shop, "over", "5", 8).await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-3", "promo": "10" }));
    shop.act("kept", "release", json!({})).await;
    assert_eq!(shop.numbers("CREDIT").await, (7, 0, 7));
    shop.wait(3_600);
    assert_eq!(sweep(&shop).await, 1, "one expiry");
    let rows = shop.rows("CREDIT").await;
    assert_eq!(
        rows[rows.len() - 3..],
        [row("adjustment", "promo", -3), row("adjustment", "main", 3), row("expiry", "promo", -7)]
    );
    assert_eq!(shop.pockets("CREDIT").await, json!({}));
    assert_eq!(sweep(&shop).await, 0, "once");
    shop.is_right().await;
}

#[tokio::test]
async fn h10_what_a_hold_keeps_covers_nothing() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 10, Some(shop.in_hours(1))).await;
    shop.give("CREDIT", "main", 5, None).await;
    shop.place("kept", "8", json!({ "ttl_secs": 100_000 })).await;
    shop.placed("rest", "2").await;
    overrun(&shop, "over", "5", 9).await;
    shop.act("rest", "release", json!({})).await;
    shop.wait(3_600);
    assert_eq!(sweep(&shop).await, 0, "two are free, and both are owed");
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-2", "promo": "8" }));
    assert_eq!(shop.settle("kept", "as_held").await.json()["transactions"][0]["pocket"], "promo");
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-2" }));
    shop.is_right().await;
}

#[tokio::test]
async fn h10_an_overrun_takes_what_is_free_in_pockets_before_it_overdraws_main_further() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 10, Some(shop.in_hours(1))).await;
    shop.give("CREDIT", "main", 5, None).await;
    shop.placed("kept", "10").await;
    shop.placed("late", "0").await;
    shop.used("late", "call-1", 4_000).await;
    shop.placed("over", "1").await;
    shop.used("over", "call-1", 17_000).await;
    shop.settle("over", "by_usage").await;
    shop.act("kept", "release", json!({})).await;
    assert_eq!(shop.numbers("CREDIT").await, (-2, 0, -2), "nothing is available in all");
    let settled = shop.settle("late", "by_usage").await.json();
    assert_eq!(
        (&settled["transactions"][0]["pocket"], &settled["transactions"][0]["amount"]),
        (&json!("promo"), &json!("-4")),
        "{settled}"
    );
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-12", "promo": "6" }));
    shop.is_right().await;
}

#[tokio::test]
async fn l5_nobody_else_books_a_cover() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 10, None).await;
    let before = shop.app.everything_written().await;
    let adjustment = json!({
        "tenant_id": "acme", "currency": "CREDIT", "kind": "adjustment", "amount": "1", "reference": "cover:main/1",
        "reason": "mine",
    });
    let (status, answer) =
        shop.app.post_with_key("/v1/transactions/batch", "k", &json!({ "transactions": [adjustment] })).await;
    assert_eq!((status.as_u16(), &answer["code"]), (422, &json!("kind_not_postable")), "{answer}");
    assert_eq!(shop.app.everything_written().await, before);
}

#[tokio::test]
async fn l4_an_amount_that_is_settled_overdraws_nothing_however_many_holds_there_are() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 50, None).await;
    let amount = |amount: &str| json!({ "mode": "amount", "amount": amount });
    for (hold_id, cost_cap) in [("one", "50"), ("two", "49"), ("three", "48")] {
        assert_eq!(shop.placed(hold_id, "1").await["cost_cap"], cost_cap);
    }
    let before = shop.app.everything_written().await;
    for (hold_id, cap) in [("one", 50), ("two", 49)] {
        let problem = shop.act(hold_id, "settle", amount(&cap.to_string())).await.refused(
            402,
            "insufficient_funds",
            "a settlement at the cap",
        );
        // What it keeps, and what is free besides: the others keep two.
        assert_eq!((&problem["available_minor_units"], &problem["needed_minor_units"]), (&json!(48), &json!(cap)));
    }
    assert_eq!(shop.app.everything_written().await, before, "a refusal writes nothing");
    // All at once, each for what is there for one of them.
    let (one, two, three) = tokio::join!(
        shop.act("one", "settle", amount("40")),
        shop.act("two", "settle", amount("40")),
        shop.act("three", "settle", amount("40"))
    );
    let mut statuses = [&one, &two, &three].map(|answer| answer.status.as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 402, 402], "{} {} {}", one.text(), two.text(), three.text());
    assert_eq!(shop.numbers("CREDIT").await, (10, 2, 8));
    // What is held may always be settled, and the last takes what is left.
    let open: Vec<&str> = [("one", &one), ("two", &two), ("three", &three)]
        .into_iter()
        .filter_map(|(hold_id, answer)| (answer.status == 402).then_some(hold_id))
        .collect();
    shop.act(open[0], "settle", amount("10")).await.refused(402, "insufficient_funds", "the other one keeps one");
    assert_eq!(shop.act(open[0], "settle", amount("9")).await.status, 200);
    assert_eq!(shop.act(open[1], "settle", amount("1")).await.status, 200);
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0));
    shop.is_right().await;
}

#[tokio::test]
async fn l4_an_amount_takes_nothing_that_other_jobs_have_used() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 50, None).await;
    shop.placed("metered", "1").await;
    shop.placed("fixed", "1").await;
    shop.used("metered", "call-1", 31_000).await;
    let settle = |amount: &str| shop.act("fixed", "settle", json!({ "mode": "amount", "amount": amount }));
    let problem = settle("20").await.refused(402, "insufficient_funds", "thirty are used up");
    assert_eq!((&problem["available_minor_units"], &problem["needed_minor_units"]), (&json!(19), &json!(20)));
    assert_eq!(settle("19").await.status, 200);
    assert_eq!(shop.settle("metered", "by_usage").await.json()["charged"], "31");
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0));
    shop.is_right().await;
}

#[tokio::test]
async fn s1_what_covered_a_debt_is_no_debit_that_anybody_gives_back() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 10, None).await;
    overrun(&shop, "job", "10", 12).await;
    shop.give("CREDIT", "promo", 50, Some(shop.in_hours(1))).await;
    assert_eq!(shop.pockets("CREDIT").await, json!({ "promo": "48" }));
    let rows = shop.rows("CREDIT").await;
    let seq = rows.iter().position(|row| *row == self::row("adjustment", "promo", -2)).expect("a cover") + 1;
    let refund = json!({ "tenant_id": "acme", "currency": "CREDIT", "kind": "refund", "amount": "2", "reason": "r",
                         "reference": "r", "transaction": seq });
    let body = json!({ "transactions": [refund] });
    let (status, problem) = shop.app.post_with_key("/v1/transactions/batch", "k", &body).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("original_unfit")), "{problem}");
    assert_eq!(shop.rows("CREDIT").await, rows);
}
