//! At stake: work that nobody ended. Readers forget it at once, the reconciler settles it once by what is known, and a
//! slow worker who wakes up changes nothing (H9, C39).

use hamyon::hold::Reconciled;
use serde_json::json;

use super::Shop;

#[tokio::test]
async fn h9_each_case_of_an_expired_hold_ends_as_the_rule_says() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 1_000, None).await;
    for hold_id in ["waiting", "used", "lost", "alive", "ended"] {
        shop.place(hold_id, "20", json!({ "ttl_secs": 60 })).await;
    }
    for hold_id in ["used", "lost", "alive"] {
        shop.start(hold_id).await;
    }
    shop.used("used", "c1", 3_000).await;
    shop.used("used", "c2", 4_000).await;
    shop.settle("ended", "as_held").await;
    shop.act("alive", "heartbeat", json!({ "lease_secs": 100 })).await;
    assert_eq!(shop.numbers("CREDIT").await, (980, 80, 900));
    shop.wait(60);
    // H9: ignored at once, before any round; the one whose worker lives still counts.
    assert_eq!(shop.numbers("CREDIT").await, (980, 20, 960));
    let done = shop.reconcile().await;
    assert_eq!(done, Reconciled { extended: 1, settled: 2, released: 1, usage_lost: 1, failed: 0 });
    let end = async |hold_id: &str| {
        let hold = shop.hold(hold_id).await;
        (hold["status"].clone(), hold["charged"].clone(), hold["settled_by"].clone())
    };
    assert_eq!(end("waiting").await, (json!("released"), json!("0"), json!("reconciler")));
    assert_eq!(end("used").await, (json!("settled"), json!("7"), json!("reconciler")));
    assert_eq!(end("lost").await, (json!("settled"), json!("20"), json!("reconciler")));
    assert_eq!(end("ended").await, (json!("settled"), json!("20"), json!("worker")));
    assert_eq!(end("alive").await, (json!("started"), json!(null), json!(null)));
    assert_eq!(shop.reconcile().await, Reconciled::default(), "a second round finds nothing");
    // The extended one lives as long again, and then ends like any.
    shop.wait(60);
    assert_eq!(shop.reconcile().await, Reconciled { settled: 1, usage_lost: 1, ..Reconciled::default() });
    assert_eq!(shop.numbers("CREDIT").await, (933, 0, 933));
    shop.is_right().await;
}

#[tokio::test]
async fn c39_who_comes_after_the_end_is_refused_also_before_any_round_and_changes_nothing_after_it() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.place("late", "20", json!({ "ttl_secs": 30 })).await;
    shop.start("late").await;
    shop.used("late", "c1", 5_000).await;
    shop.wait(30);
    for (verb, body) in [("settle", json!({ "mode": "as_held" })), ("release", json!({})), ("heartbeat", json!({}))] {
        shop.act("late", verb, body).await.refused(409, "hold_expired", verb);
    }
    // What a slow worker used is a real cost, and its report may still come until the round.
    assert_eq!(shop.used("late", "c2", 1_000).await.status, 201);
    assert_eq!(shop.reconcile().await.settled, 1);
    let rows = shop.rows("CREDIT").await;
    shop.settle("late", "as_held").await.refused(409, "already_settled", "the worker wakes up");
    shop.act("late", "release", json!({})).await.refused(409, "already_settled", "and gives up");
    shop.used("late", "c3", 1_000).await.refused(409, "already_settled", "and reports");
    assert_eq!(shop.used("late", "c2", 1_000).await.status, 200, "a call that is logged is answered the same");
    assert_eq!(shop.rows("CREDIT").await, rows);
    assert_eq!(shop.hold("late").await["charged"], "6");
    shop.is_right().await;
}

#[tokio::test]
async fn h9_two_rounds_at_once_and_a_worker_end_each_hold_once() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100_000, None).await;
    for number in 0..250 {
        shop.place(&format!("job-{number}"), "20", json!({ "ttl_secs": 30 })).await;
        shop.used(&format!("job-{number}"), "c", 1_000).await;
    }
    shop.wait(30);
    // More than a batch, twice at once.
    let (one, two) = tokio::join!(shop.reconcile(), shop.reconcile());
    assert_eq!((one.settled + two.settled, one.failed + two.failed), (250, 0), "{one:?} {two:?}");
    assert_eq!(shop.numbers("CREDIT").await, (100_000 - 250, 0, 100_000 - 250));
    shop.is_right().await;
}

#[tokio::test]
async fn h9_what_a_dead_job_used_is_promised_to_no_other_and_what_it_reports_late_stays_a_real_cost() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 20, None).await;
    shop.place("dead", "20", json!({ "ttl_secs": 30 })).await;
    shop.start("dead").await;
    shop.used("dead", "c1", 8_000).await;
    shop.wait(30);
    // The tenant isn't held up by a dead job, and what it used is as good as spent.
    shop.place("next", "13", json!({})).await.refused(402, "insufficient_funds", "more than is left");
    let next = shop.place("next", "20", json!({ "allow_partial": true })).await.json();
    assert_eq!((&next["amount"], &next["cost_cap"]), (&json!("12"), &json!("12")), "{next}");
    let late = shop.used("dead", "c2", 5_000).await.json();
    assert_eq!(late["stop"], true, "its worker is told to stop: {late}");
    shop.reconcile().await;
    assert_eq!(shop.hold("dead").await["charged"], "13");
    assert_eq!(shop.numbers("CREDIT").await, (7, 12, -5));
    assert_eq!(shop.settle("next", "as_held").await.json()["charged"], "12");
    assert_eq!(shop.numbers("CREDIT").await, (-5, 0, -5));
    shop.is_right().await;
}

#[tokio::test]
async fn a_hold_whose_wallet_somebody_keeps_locked_holds_up_no_other() {
    let shop = Shop::open().await;
    shop.currency("IMAGE").await;
    shop.give("CREDIT", "main", 20, None).await;
    shop.give("IMAGE", "main", 20, None).await;
    shop.place("one", "20", json!({ "ttl_secs": 30 })).await;
    shop.place_in("IMAGE", "two", "20", json!({ "ttl_secs": 31 })).await;
    shop.wait(31);
    let mut holder = shop.app.superuser().await;
    sqlx::raw_sql("BEGIN; SELECT FROM wallets WHERE currency = 'CREDIT' FOR UPDATE")
        .execute(&mut holder)
        .await
        .unwrap();
    let done = shop.reconcile().await;
    assert_eq!((done.released, done.failed), (1, 1), "the first waits in vain, the second ends");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    assert_eq!(shop.reconcile().await.released, 1);
}
