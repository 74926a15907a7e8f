//! At stake: two at the same moment. Of two ends one wins and the other hears which; what is promised is never more
//! than there is; a caller who hangs up leaves nothing half done (H1, H5, H6, L8; C15–C19, C33, C35).

use chrono::TimeDelta;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::Shop;

#[tokio::test]
async fn h5_a_settle_a_release_and_a_cancel_at_once_end_a_hold_once() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 1_000, None).await;
    let mut left = 1_000;
    for round in 0..40 {
        let hold_id = format!("job-{round}");
        shop.placed(&hold_id, "10").await;
        let (settle, again, release, cancel) = tokio::join!(
            shop.settle(&hold_id, "as_held"),
            shop.settle(&hold_id, "as_held"),
            shop.act(&hold_id, "release", json!({})),
            shop.act(&hold_id, "cancel", json!({}))
        );
        let statuses = [&settle, &again, &release, &cancel].map(|answer| answer.status.as_u16());
        let hold = shop.hold(&hold_id).await;
        if hold["status"] == "settled" {
            assert_eq!(statuses, [200, 200, 409, 409], "round {round}");
            left -= 10;
        } else {
            assert_eq!((statuses[0], statuses[1]), (409, 409), "round {round}");
            assert!(release.status == 200 || cancel.status == 200, "round {round}");
        }
        assert_eq!(shop.numbers("CREDIT").await, (left, 0, left), "round {round}");
    }
    shop.is_right().await;
}

#[tokio::test]
async fn c35_a_settle_and_the_end_of_its_time_leave_a_hold_settled_or_released_never_both() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 1_000_000, None).await;
    let mut dice = rand::rngs::StdRng::seed_from_u64(35);
    let mut by_worker = 0;
    for round in 0..120 {
        let hold_id = format!("job-{round}");
        shop.place(&hold_id, "10", json!({ "ttl_secs": 5 })).await;
        // Some end in time, some at the very moment, some after it.
        shop.app.clock.advance(TimeDelta::milliseconds(dice.random_range(4_990..5_005)));
        let (settle, done) = tokio::join!(shop.settle(&hold_id, "as_held"), shop.reconcile());
        let hold = shop.hold(&hold_id).await;
        match settle.status.as_u16() {
            200 => {
                assert_eq!(
                    (&hold["status"], &hold["settled_by"]),
                    (&json!("settled"), &json!("worker")),
                    "round {round}"
                );
                assert_eq!(done.released, 0);
                by_worker += 1;
            }
            409 => {
                shop.reconcile().await;
                let hold = shop.hold(&hold_id).await;
                assert_eq!((&hold["status"], &hold["charged"]), (&json!("released"), &json!("0")), "round {round}");
            }
            other => panic!("round {round}: {other} {}", settle.text()),
        }
    }
    assert!(by_worker > 10 && by_worker < 110, "both happened: {by_worker}");
    assert_eq!(shop.numbers("CREDIT").await.0, 1_000_000 - 10 * by_worker);
    shop.is_right().await;
}

#[tokio::test]
async fn l8_a_settle_whose_caller_hangs_up_still_completes() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.placed("job-1", "10").await;
    let mut holder = shop.app.superuser().await;
    sqlx::raw_sql("BEGIN; SELECT FROM wallets WHERE currency = 'CREDIT' FOR UPDATE")
        .execute(&mut holder)
        .await
        .unwrap();
    // The caller's connection goes while the settlement waits for the wallet.
    let request = shop
        .app
        .client
        .post(shop.app.url("/v1/holds/job-1/settle"))
        .bearer_auth(&shop.app.token)
        .json(&json!({ "mode": "as_held" }));
    let calling = tokio::spawn(request.send());
    let mut watcher = shop.app.superuser().await;
    crate::support::process::eventually("the settlement waits", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&mut watcher)
        .await
        .unwrap();
        waiting > 0
    })
    .await;
    calling.abort();
    assert!(calling.await.is_err_and(|error| error.is_cancelled()));
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    crate::support::process::eventually("the hold is settled", async || {
        shop.hold("job-1").await["status"] == "settled"
    })
    .await;
    assert_eq!(shop.numbers("CREDIT").await, (90, 0, 90));
    shop.is_right().await;
}

#[tokio::test]
async fn h1_what_was_spent_while_a_hold_waited_for_the_lock_is_gone_for_it() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let mut holder = shop.app.superuser().await;
    sqlx::raw_sql("BEGIN; SELECT FROM wallets WHERE currency = 'CREDIT' FOR UPDATE")
        .execute(&mut holder)
        .await
        .unwrap();
    // Both wait; the lock is given to one after the other, and the second must see what the first promised.
    let both = async { tokio::join!(shop.place("one", "70", json!({})), shop.place("two", "70", json!({}))) };
    let free = async {
        let mut watcher = shop.app.superuser().await;
        crate::support::process::eventually("both wait", async || {
            let waiting: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .fetch_one(&mut watcher)
            .await
            .unwrap();
            waiting == 2
        })
        .await;
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    };
    let ((one, two), ()) = tokio::join!(both, free);
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 402], "{} {}", one.text(), two.text());
    assert_eq!(shop.numbers("CREDIT").await, (100, 70, 30));
}

#[tokio::test]
async fn h11_a_predecessor_that_ended_while_its_wallet_was_waited_for_is_only_out_of_the_way() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.give("USD", "main", 5, None).await;
    let chat = json!({ "session": "chat-1" });
    // Who holds a wallet, and waiting until somebody waits for that very session.
    let lock = async |sql: &'static str| {
        let mut holder = shop.app.superuser().await;
        sqlx::raw_sql(sql).execute(&mut holder).await.unwrap();
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut holder).await.unwrap();
        (holder, pid)
    };
    let somebody_waits_for = async |pid: i32| {
        let mut watcher = shop.app.superuser().await;
        crate::support::process::eventually("somebody waits for the wallet", async || {
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))")
                .bind(pid)
                .fetch_one(&mut watcher)
                .await
                .unwrap()
        })
        .await;
    };
    let (mut credits, pid_of_credits) = lock("BEGIN; SELECT FROM wallets WHERE currency = 'CREDIT' FOR UPDATE").await;
    let placing = shop.place("new", "20", chat.clone());
    let meanwhile = async {
        // The new job has looked who is in its way, has seen nobody, and waits for its wallet. Then somebody comes.
        somebody_waits_for(pid_of_credits).await;
        assert_eq!(shop.place_in("USD", "old", "1.00", chat.clone()).await.status, 201);
        let (mut dollars, pid_of_dollars) = lock("BEGIN; SELECT FROM wallets WHERE currency = 'USD' FOR UPDATE").await;
        sqlx::raw_sql("ROLLBACK").execute(&mut credits).await.unwrap();
        // The new job finds it, and waits for its wallet, too. It ends at this very moment.
        somebody_waits_for(pid_of_dollars).await;
        sqlx::raw_sql(
            "UPDATE holds SET ended_at = placed_at, outcome = 'released', charged = 0, ended_by = 'worker',
                    end_asked = '{\"end\":\"release\"}' WHERE hold_id = 'old'; COMMIT",
        )
        .execute(&mut dollars)
        .await
        .unwrap();
    };
    let (placed, ()) = tokio::join!(placing, meanwhile);
    assert_eq!(placed.status, 201, "{}", placed.text());
    assert_eq!(shop.hold("old").await["settled_by"], "worker");
    assert_eq!(shop.numbers("CREDIT").await, (100, 20, 80));
    shop.is_right().await;
}

#[tokio::test]
async fn the_database_refuses_what_no_path_does() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 100, Some(shop.in_hours(1))).await;
    shop.placed("done", "10").await;
    shop.settle("done", "as_held").await;
    shop.placed("open", "10").await;
    shop.used("open", "c", 1).await;
    let mut service = shop.app.as_service().await;
    for (sql, code) in [
        ("UPDATE holds SET amount = 1 WHERE hold_id = 'open'", "42501"),
        ("UPDATE holds SET expires_at = now() WHERE hold_id = 'done'", "HM004"),
        ("UPDATE holds SET charged = 1 WHERE hold_id = 'done'", "HM004"),
        ("UPDATE holds SET ended_at = now() WHERE hold_id = 'open'", "23514"),
        ("DELETE FROM holds", "42501"),
        ("TRUNCATE holds", "42501"),
        ("UPDATE hold_usage SET cost_micro = 0", "42501"),
        ("DELETE FROM hold_usage", "42501"),
        ("UPDATE pockets SET expires_at = expires_at + interval '1 day'", "HM002"),
        ("UPDATE pockets SET priority = 0", "42501"),
        ("DELETE FROM pockets", "42501"),
        ("UPDATE wallets SET divided = false WHERE divided", "HM003"),
        ("INSERT INTO holds SELECT * FROM holds WHERE hold_id = 'open'", "23505"),
    ] {
        let error = sqlx::query(sql).execute(&mut service).await.expect_err(sql);
        assert_eq!(
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(),
            Some(code),
            "{sql}: {error}"
        );
    }
    let mut owner = shop.app.superuser().await;
    for sql in
        ["DELETE FROM holds", "UPDATE hold_usage SET cost_micro = 0", "DELETE FROM pockets", "TRUNCATE hold_usage"]
    {
        let error = sqlx::query(sql).execute(&mut owner).await.expect_err(sql);
        assert_eq!(
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(),
            Some("HM001"),
            "{sql}: {error}"
        );
    }
}

#[tokio::test]
async fn verify_finds_a_hold_that_says_another_amount_than_its_rows() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    for hold_id in ["one", "two"] {
        shop.placed(hold_id, "10").await;
        shop.used(hold_id, "c", 3_000).await;
        shop.settle(hold_id, "by_usage").await;
    }
    shop.is_right().await;
    let mut intruder = crate::support::intruder::intruder(&shop.app).await;
    crate::support::intruder::run(&mut intruder, "UPDATE holds SET charged = 4 WHERE hold_id = 'one'").await;
    crate::support::intruder::run(&mut intruder, "UPDATE hold_usage SET cost_micro = 1000 WHERE hold_id = 'two'").await;
    let found: Vec<String> = shop
        .app
        .verify()
        .await
        .findings
        .into_iter()
        .map(|finding| format!("{}: {}", finding.place, finding.what))
        .collect();
    assert!(
        found.iter().any(|line| line.contains("hold one: it was charged 4 minor units, and its rows say 3")),
        "{found:?}"
    );
    assert!(found.iter().any(|line| line.contains("hold two: it used 1000 micro-dollars")), "{found:?}");
}
