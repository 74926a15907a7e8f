//! A transaction waits for twelve hours by Payme's clock, and not a millisecond longer. Too short and a payer's money
//! is refused, too long and an order is blocked for everybody.

use chrono::TimeDelta;
use futures::future::join_all;
use hamyon::jobs::Job;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use super::{LIFETIME_MS, check, code, create, id, order, perform, shop, state, until_waiting, wallet};
use crate::support::TestApp;

fn advance(app: &TestApp, ms: i64) {
    app.clock.advance(TimeDelta::milliseconds(ms));
}

async fn create_at(app: &TestApp, id: &str, account: &Value, time: i64) -> Value {
    let params = json!({ "id": id, "time": time, "amount": super::AMOUNT, "account": account });
    app.payme("CreateTransaction", params).await
}

#[tokio::test]
async fn exactly_twelve_hours_is_alive() {
    let app = shop().await;
    let time = app.now_ms();
    let created = create_at(&app, &id(1), &wallet(), time).await;
    advance(&app, LIFETIME_MS);
    assert_eq!(Job::PaymeSweep.run(&app.app).await.unwrap(), 0);
    assert_eq!(create_at(&app, &id(1), &wallet(), time).await, created);
    assert_eq!(state(&create_at(&app, &id(2), &wallet(), time).await), 1);
    assert_eq!(state(&perform(&app, &id(1)).await), 2);
    assert_eq!(app.sum("acme").await, super::AMOUNT);
}

#[tokio::test]
async fn the_twelve_hours_count_from_paymes_time_and_not_from_ours() {
    let app = shop().await;
    let early = app.now_ms() - LIFETIME_MS;
    assert_eq!(state(&create_at(&app, &id(1), &wallet(), early).await), 1);
    assert_eq!(code(&create_at(&app, &id(2), &wallet(), early - 1).await), -31_008);
    advance(&app, 1);
    assert_eq!(code(&perform(&app, &id(1)).await), -31_008);
    assert_eq!(app.count("SELECT count(*) FROM payments").await, 1);
}

#[tokio::test]
async fn one_millisecond_more_is_timed_out_by_create_and_by_perform() {
    let app = shop().await;
    let time = app.now_ms();
    for number in [1, 2] {
        create_at(&app, &id(number), &wallet(), time).await;
    }
    advance(&app, LIFETIME_MS + 1);
    let ended = app.now_ms();
    assert_eq!(check(&app, &id(1)).await["state"], 1, "CheckTransaction times nothing out");
    for _ in 0..2 {
        assert_eq!(code(&create_at(&app, &id(1), &wallet(), time).await), -31_008);
        assert_eq!(code(&perform(&app, &id(2)).await), -31_008);
        for number in [1, 2] {
            let now = check(&app, &id(number)).await;
            assert_eq!((&now["state"], &now["reason"]), (&json!(-1), &json!(4)), "{now}");
            assert_eq!((&now["cancel_time"], &now["perform_time"]), (&json!(ended), &json!(0)), "{now}");
        }
        // The repeat changes neither the time nor the reason.
        advance(&app, 1_000);
    }
    assert_eq!(app.sum("acme").await, 0);
}

#[tokio::test]
async fn a_cancel_of_an_expired_one_keeps_the_given_reason() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    advance(&app, LIFETIME_MS + 1);
    let cancelled = app.payme("CancelTransaction", json!({ "id": id(1), "reason": 3 })).await;
    assert_eq!(state(&cancelled), -1);
    assert_eq!(Job::PaymeSweep.run(&app.app).await.unwrap(), 0);
    assert_eq!(check(&app, &id(1)).await["reason"], 3);
}

#[tokio::test]
async fn an_expired_attempt_frees_its_order_even_before_the_sweep() {
    let app = shop().await;
    create(&app, &id(1), &order()).await;
    advance(&app, LIFETIME_MS);
    let asked = json!({ "amount": super::AMOUNT, "account": order() });
    assert_eq!(code(&app.payme("CheckPerformTransaction", asked.clone()).await), -31_099);
    assert_eq!(code(&create(&app, &id(2), &order()).await), -31_099);
    advance(&app, 1);
    assert_eq!(app.payme("CheckPerformTransaction", asked).await["result"]["allow"], true);
    assert_eq!(check(&app, &id(1)).await["state"], 1, "CheckPerformTransaction has no side effect");
    assert_eq!(state(&create(&app, &id(2), &order()).await), 1);
    let first = check(&app, &id(1)).await;
    assert_eq!((&first["state"], &first["reason"]), (&json!(-1), &json!(4)));
    assert_eq!(state(&perform(&app, &id(2)).await), 2);
    assert_eq!(code(&perform(&app, &id(1)).await), -31_008);
    assert_eq!(app.sum("acme").await, super::AMOUNT);
}

#[tokio::test]
async fn the_sweep_times_out_exactly_those_that_are_due_and_a_second_one_finds_nothing() {
    let app = shop().await;
    let time = app.now_ms();
    create_at(&app, &id(1), &order(), time).await;
    create_at(&app, &id(2), &wallet(), time).await;
    create_at(&app, &id(3), &wallet(), time).await;
    create_at(&app, &id(4), &wallet(), time + 1).await;
    perform(&app, &id(3)).await;
    let test = json!({ "id": id(5), "time": time, "amount": super::AMOUNT, "account": wallet() });
    app.payme_with_key(crate::support::app::PAYME_TEST_KEY, "CreateTransaction", test).await;
    advance(&app, LIFETIME_MS + 1);
    let ended = app.now_ms();
    assert_eq!(Job::PaymeSweep.run(&app.app).await.unwrap(), 3, "1, 2 and the rehearsal");
    let before = app.everything_written().await;
    advance(&app, 0);
    assert_eq!(Job::PaymeSweep.run(&app.app).await.unwrap(), 0);
    assert_eq!(app.everything_written().await, before);
    for (number, expected) in [(1, -1), (2, -1), (3, 2), (4, 1)] {
        let now = check(&app, &id(number)).await;
        assert_eq!(now["state"], expected, "{number}: {now}");
        if expected == -1 {
            assert_eq!((&now["reason"], &now["cancel_time"]), (&json!(4), &json!(ended)));
        }
    }
    let (_, shown) = app.get("/v1/orders/197").await;
    assert_eq!(shown["status"], "open");
}

#[tokio::test]
async fn the_sweep_goes_through_more_than_one_page() {
    let app = shop().await;
    sqlx::query(
        "INSERT INTO payments (provider, mode, external_id, tenant_id, currency, amount, account, external_created_at,
                               created_at)
         SELECT 'payme', 'live', 'many-' || n, 'acme', 'UZS', 100000, '{}', $1, $1 FROM generate_series(1, 450) n",
    )
    .bind(app.clock.now())
    .execute(&mut app.superuser().await)
    .await
    .unwrap();
    advance(&app, LIFETIME_MS + 1);
    assert_eq!(Job::PaymeSweep.run(&app.app).await.unwrap(), 450);
    assert_eq!(app.count("SELECT count(*) FROM payments WHERE cancel_reason = 4").await, 450);
}

/// Holds the payment's row while two calls queue up behind it, one after the other.
async fn one_after_the_other<A, B>(
    app: &TestApp,
    first: impl Future<Output = A>,
    between: impl FnOnce(),
    second: impl Future<Output = B>,
) -> (A, B) {
    let mut holder = app.superuser().await;
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM payments FOR NO KEY UPDATE").await.unwrap();
    let second = async {
        until_waiting(app, 1).await;
        between();
        let release = async {
            until_waiting(app, 2).await;
            held.commit().await.unwrap();
        };
        tokio::join!(second, release).0
    };
    tokio::join!(first, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_sweep_that_comes_a_moment_after_perform_looks_again_and_leaves_it_performed() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    advance(&app, LIFETIME_MS);
    let first = id(1);
    let too_late = || advance(&app, 1);
    let (performed, swept) =
        one_after_the_other(&app, perform(&app, &first), too_late, Job::PaymeSweep.run(&app.app)).await;
    assert_eq!((state(&performed), swept.unwrap()), (2, 0));
    assert_eq!(check(&app, &id(1)).await["state"], 2);
    assert_eq!(app.sum("acme").await, super::AMOUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_comes_a_moment_after_cancel_keeps_its_reason() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    advance(&app, LIFETIME_MS + 1);
    let first = id(1);
    let (cancelled, swept) =
        one_after_the_other(&app, super::cancel(&app, &first), || {}, Job::PaymeSweep.run(&app.app)).await;
    assert_eq!((state(&cancelled), swept.unwrap()), (-1, 0));
    assert_eq!(check(&app, &id(1)).await["reason"], 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_sweeps_and_performs_at_once_agree() {
    let app = shop().await;
    let ids: Vec<String> = (0..40).map(id).collect();
    // Every second one is due, the others have a millisecond left.
    for (number, id) in ids.iter().enumerate() {
        let left = i64::from(number % 2 == 1);
        create_at(&app, id, &wallet(), app.now_ms() - LIFETIME_MS + left).await;
    }
    advance(&app, 1);
    let sweeps = join_all((0..3).map(|_| Job::PaymeSweep.run(&app.app)));
    let performs = join_all(ids.iter().map(|id| perform(&app, id)));
    let (swept, performed) = tokio::join!(sweeps, performs);
    let swept: u64 = swept.into_iter().map(Result::unwrap).sum();
    assert!(swept <= 20, "{swept}");
    for (number, (id, answer)) in ids.iter().zip(&performed).enumerate() {
        let now = check(&app, id).await;
        if number % 2 == 1 {
            assert_eq!((state(answer), &now["state"]), (2, &json!(2)));
        } else {
            assert_eq!((code(answer), &now["state"], &now["reason"]), (-31_008, &json!(-1), &json!(4)));
        }
    }
    assert_eq!(app.sum("acme").await, 20 * super::AMOUNT);
    assert_eq!(app.count("SELECT count(*) FROM wallet_transactions").await, 20);
}
