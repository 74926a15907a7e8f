//! Payme repeats a call that it got no answer to, and the first one may still be running. Whatever runs at once,
//! a payment is credited once, given back once, and its state and the ledger say the same.

use futures::future::join_all;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _};

use super::{
    AMOUNT, cancel, check, code, create, create_params, id, order, perform, shop, state, until_waiting, wallet,
};
use crate::support::TestApp;
use crate::support::app::entry;

fn all_equal(answers: &[Value]) {
    for answer in answers {
        assert_eq!(*answer, answers[0]);
    }
}

/// What the ledger has of a payment: how many top-ups and reversals.
async fn rows_of(app: &TestApp, id: &str) -> (i64, i64) {
    sqlx::query_as(
        "SELECT count(*) FILTER (WHERE kind = 'top_up'), count(*) FILTER (WHERE kind = 'top_up_reversal')
           FROM wallet_transactions WHERE reference = 'payme:' || $1",
    )
    .bind(id)
    .fetch_one(&mut app.superuser().await)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_sixty_four_performs_at_once_credit_once_and_get_equal_answers() {
    let app = shop().await;
    let first = id(1);
    create(&app, &first, &wallet()).await;
    let answers = join_all((0..64).map(|_| perform(&app, &first))).await;
    assert_eq!(state(&answers[0]), 2);
    all_equal(&answers);
    assert_eq!(rows_of(&app, &id(1)).await, (1, 0));
    assert_eq!(app.sum("acme").await, AMOUNT);
    assert!(app.verify().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_sixty_four_creates_at_once_make_one_payment_and_get_equal_answers() {
    for account in [wallet(), order()] {
        let (app, first) = (shop().await, id(1));
        let answers = join_all((0..64).map(|_| create(&app, &first, &account))).await;
        assert_eq!(state(&answers[0]), 1);
        all_equal(&answers);
        assert_eq!(app.count("SELECT count(*) FROM payments").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_creates_with_different_ids_on_one_order_at_once_one_wins_and_the_others_are_told_busy() {
    let app = shop().await;
    for round in 0..15_u32 {
        let order_id = format!("order-{round}");
        app.order(&order_id, "acme", "5000.00").await;
        let account = serde_json::json!({ "order_id": order_id });
        let ids: Vec<String> = (0..4).map(|number| id(round * 10 + number)).collect();
        let answers = join_all(ids.iter().map(|id| create(&app, id, &account))).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.get("result").is_some());
        assert_eq!((won.len(), lost.len()), (1, 3), "{answers:?}");
        for answer in lost {
            assert_eq!(code(answer), -31_099);
        }
    }
    assert_eq!(app.count("SELECT count(*) FROM payments").await, 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_waits_for_whoever_holds_the_order() {
    let app = shop().await;
    let mut holder = app.superuser().await;
    let mut held = holder.begin().await.unwrap();
    // The lock that closing an order takes. The foreign key of a payment doesn't wait for it.
    held.execute("SELECT FROM orders WHERE order_id = '197' FOR NO KEY UPDATE").await.unwrap();
    let (account, first, second) = (order(), id(1), id(2));
    let creates = async { tokio::join!(create(&app, &first, &account), create(&app, &second, &account)) };
    let release = async {
        until_waiting(&app, 2).await;
        held.commit().await.unwrap();
    };
    let ((first, second), ()) = tokio::join!(creates, release);
    let (won, lost) = if first.get("result").is_some() { (first, second) } else { (second, first) };
    assert_eq!((state(&won), code(&lost)), (1, -31_099));
}

#[tokio::test]
async fn the_database_itself_refuses_a_second_open_payment_of_an_order_and_a_second_payment_of_an_id() {
    let app = shop().await;
    create(&app, &id(1), &order()).await;
    let mut service = app.as_service().await;
    for (copy, expected) in [
        (
            "INSERT INTO payments (provider, mode, external_id, tenant_id, order_id, currency, amount, account,
                                   external_created_at, created_at)
             SELECT provider, mode, external_id || 'x', tenant_id, order_id, currency, amount, account,
                    external_created_at, created_at FROM payments",
            "payments_one_per_order_key",
        ),
        (
            "INSERT INTO payments (provider, mode, external_id, tenant_id, currency, amount, account,
                                   external_created_at, created_at)
             SELECT provider, mode, external_id, tenant_id, currency, amount, account,
                    external_created_at, created_at FROM payments",
            "payments_external_id_key",
        ),
    ] {
        let refused = service.execute(copy).await.expect_err(expected);
        let constraint = refused.as_database_error().and_then(sqlx::error::DatabaseError::constraint);
        assert_eq!(constraint, Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_sixteen_cancels_at_once_give_back_once() {
    let app = super::paid_shop().await;
    // More money than the payment, so that only the payment's state says no to a second reversal.
    app.fund("acme", 20 * AMOUNT).await;
    let first = id(1);
    let answers = join_all((0..16).map(|_| cancel(&app, &first))).await;
    assert_eq!(state(&answers[0]), -2);
    all_equal(&answers);
    assert_eq!(rows_of(&app, &id(1)).await, (1, 1));
    assert_eq!(app.sum("acme").await, 20 * AMOUNT);
}

/// The states and rows that may stand after a Perform and a Cancel of one payment.
async fn assert_perform_and_cancel_agree(app: &TestApp, id: &str, performed: &Value, cancelled: &Value) {
    let now = check(app, id).await;
    assert_eq!(now["state"], cancelled["result"]["state"], "{now} {cancelled}");
    match state(cancelled) {
        -1 => {
            assert_eq!(code(performed), -31_008);
            assert_eq!(rows_of(app, id).await, (0, 0));
        }
        -2 => {
            assert_eq!(performed["result"]["perform_time"], now["perform_time"]);
            assert_eq!(rows_of(app, id).await, (1, 1));
        }
        other => panic!("a cancelled payment is in state {other}"),
    }
    assert_eq!(app.sum("acme").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p3_perform_and_cancel_racing_leave_a_state_that_the_ledger_agrees_with() {
    let app = shop().await;
    for round in 0..40 {
        let id = id(round);
        create(&app, &id, &wallet()).await;
        let (performed, cancelled) = if round % 2 == 0 {
            tokio::join!(perform(&app, &id), cancel(&app, &id))
        } else {
            let (cancelled, performed) = tokio::join!(cancel(&app, &id), perform(&app, &id));
            (performed, cancelled)
        };
        assert_perform_and_cancel_agree(&app, &id, &performed, &cancelled).await;
    }
    assert!(app.verify().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_perform_and_cancel_take_the_same_lock() {
    let app = shop().await;
    let id = id(1);
    create(&app, &id, &wallet()).await;
    let mut holder = app.superuser().await;
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM payments FOR NO KEY UPDATE").await.unwrap();
    let calls = async { tokio::join!(perform(&app, &id), cancel(&app, &id)) };
    let release = async {
        until_waiting(&app, 2).await;
        held.commit().await.unwrap();
    };
    let ((performed, cancelled), ()) = tokio::join!(calls, release);
    assert_perform_and_cancel_agree(&app, &id, &performed, &cancelled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_cancel_racing_a_debit_never_takes_the_wallet_below_zero_and_never_both() {
    let app = shop().await;
    for round in 0..30 {
        let id = id(round);
        create(&app, &id, &wallet()).await;
        perform(&app, &id).await;
        let debit = [entry("acme", "purchase", -AMOUNT, &format!("debit-{round}"))];
        let (cancelled, debited) = tokio::join!(cancel(&app, &id), app.post_entries(&debit));
        match cancelled.get("result") {
            Some(result) => assert!(result["state"] == -2 && debited.is_err(), "both took the money"),
            None => assert!(code(&cancelled) == -31_007 && debited.is_ok(), "{cancelled} {debited:?}"),
        }
        assert_eq!(app.sum("acme").await, 0);
    }
    assert!(app.verify().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_payment_is_credited_once_whether_the_import_or_the_perform_comes_first() {
    let app = shop().await;
    for round in 0..20 {
        let id = id(round);
        app.payme("CreateTransaction", create_params(&app, &id, &wallet())).await;
        let import = [entry("acme", "top_up", AMOUNT, &format!("payme:{id}"))];
        let (performed, imported) = tokio::join!(perform(&app, &id), app.post_entries(&import));
        assert_eq!(state(&performed), 2);
        let refused =
            matches!(imported, Err(hamyon::fault::Error::Refused(hamyon::ledger::Refusal::AlreadyBooked { .. })));
        assert!(imported.is_ok() || refused, "{imported:?}");
        assert_eq!(rows_of(&app, &id).await, (1, 0));
    }
    assert_eq!(app.sum("acme").await, 20 * AMOUNT);
}
