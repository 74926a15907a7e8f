//! Rule B6: the same slots sold through Payme. The slot is the order's from CreateTransaction until it is performed,
//! cancelled, or twelve hours have passed.

use chrono::TimeDelta;
use hamyon::staff::Role;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::console::Visitor;
use crate::telegram::{ALICE, Stage};

const AMOUNT: i64 = 500_000;

fn id(number: u32) -> String {
    format!("5305e3bab097f420{number:08x}")
}

async fn order(stage: &Stage, order_id: &str, slot_id: i64) {
    let body = json!({ "order_id": order_id, "tenant_id": "acme", "title": "One hour", "slot_id": slot_id });
    let (status, answer) = stage.app.post("/v1/orders", &body).await;
    assert_eq!((status.as_u16(), &answer["amount"]), (201, &json!("5000.00")), "the slot's price: {answer}");
}

async fn create(app: &TestApp, number: u32, order_id: &str) -> Value {
    let params =
        json!({ "id": id(number), "time": app.now_ms(), "amount": AMOUNT, "account": { "order_id": order_id } });
    app.payme("CreateTransaction", params).await
}

async fn may(app: &TestApp, order_id: &str) -> Value {
    app.payme("CheckPerformTransaction", json!({ "amount": AMOUNT, "account": { "order_id": order_id } })).await
}

async fn perform(app: &TestApp, number: u32) -> Value {
    app.payme("PerformTransaction", json!({ "id": id(number) })).await
}

async fn cancel(app: &TestApp, number: u32) -> Value {
    app.payme("CancelTransaction", json!({ "id": id(number), "reason": 5 })).await
}

fn state(answer: &Value) -> i64 {
    answer["result"]["state"].as_i64().unwrap_or_else(|| panic!("no state: {answer}"))
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}

async fn rows(stage: &Stage) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT kind || ' ' || amount FROM wallet_transactions WHERE currency = 'UZS' ORDER BY wallet_id, seq",
    )
    .fetch_all(&mut stage.app.superuser().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn b6_a_slot_is_held_from_create_and_booked_by_perform() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    order(&stage, "b", slot_id).await;
    assert_eq!(may(&stage.app, "b").await["result"]["allow"], true);
    assert_eq!(state(&create(&stage.app, 1, "a").await), 1);
    for answer in [may(&stage.app, "b").await, create(&stage.app, 2, "b").await] {
        assert_eq!((code(&answer), &answer["error"]["data"]), (-31_099, &json!("order_id")), "busy");
    }
    assert_eq!(state(&perform(&stage.app, 1).await), 2);
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("a"));
    assert_eq!(rows(&stage).await, ["top_up 500000", "booking -500000"]);
    for answer in [may(&stage.app, "b").await, create(&stage.app, 3, "b").await] {
        assert_eq!(code(&answer), -31_051, "sold");
    }
    let before = stage.app.everything_written().await;
    assert_eq!(state(&perform(&stage.app, 1).await), 2);
    assert_eq!(stage.app.everything_written().await, before);
    stage.is_sound().await;
}

#[tokio::test]
async fn b6_a_cancel_and_twelve_hours_free_the_slot() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    order(&stage, "b", slot_id).await;
    create(&stage.app, 1, "a").await;
    assert_eq!(state(&cancel(&stage.app, 1).await), -1);
    // The same order may try again: it is the payment that held the slot, and its successor holds it anew.
    assert_eq!(state(&create(&stage.app, 2, "a").await), 1);
    stage.later(TimeDelta::milliseconds(43_200_001)).await;
    // By the clock alone, before any sweep.
    assert_eq!(state(&create(&stage.app, 3, "b").await), 1);
    assert_eq!(code(&perform(&stage.app, 2).await), -31_008);
    assert_eq!(state(&perform(&stage.app, 3).await), 2);
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("b"));
    stage.is_sound().await;
}

#[tokio::test]
async fn b6_the_sweep_frees_the_slot_of_a_promise_that_nobody_kept() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    create(&stage.app, 1, "a").await;
    stage.app.clock.advance(TimeDelta::milliseconds(43_200_001));
    assert!(stage.holder(slot_id).await.is_some(), "the database's clock hasn't moved");
    assert_eq!(hamyon::jobs::Job::PaymeSweep.run(&stage.app.app).await.unwrap(), 1);
    assert_eq!(stage.holder(slot_id).await, None);
}

#[tokio::test]
async fn b6_a_promise_whose_slot_is_gone_is_never_performed() {
    // The two clocks differ: by the database's the hold is over and the slot sold; by ours the promise still lives.
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    order(&stage, "b", slot_id).await;
    create(&stage.app, 1, "a").await;
    sqlx::query("UPDATE test_clock SET now = now + interval '12 hours 1 second'")
        .execute(&mut stage.app.superuser().await)
        .await
        .unwrap();
    assert_eq!(state(&create(&stage.app, 2, "b").await), 1);
    assert_eq!(code(&perform(&stage.app, 1).await), -31_008);
    let check = stage.app.payme("CheckTransaction", json!({ "id": id(1) })).await;
    assert_eq!((state(&check), &check["result"]["reason"]), (-1, &json!(4)));
    assert_eq!(state(&perform(&stage.app, 2).await), 2);
    assert_eq!(rows(&stage).await.len(), 2);
}

#[tokio::test]
async fn b6_a_slot_that_has_begun_isnt_sold() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(1).await;
    order(&stage, "a", slot_id).await;
    stage.later(TimeDelta::hours(1)).await;
    for answer in [may(&stage.app, "a").await, create(&stage.app, 1, "a").await] {
        assert_eq!(code(&answer), -31_051);
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM payments").await, 0);
}

#[tokio::test]
async fn b6_one_slot_through_both_providers_is_sold_once() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "p", slot_id).await;
    stage.order("t", slot_id, ALICE).await;
    create(&stage.app, 1, "p").await;
    assert!(stage.asks("q1", ALICE, "t").await.is_some(), "Payme's promise holds it");
    cancel(&stage.app, 1).await;
    stage.is_told_yes("q2", ALICE, "t").await;
    assert_eq!(code(&create(&stage.app, 2, "p").await), -31_099);
    let charge_id = stage.paid(ALICE, "t").await;
    stage.is_booked(&charge_id).await;
    assert_eq!(code(&create(&stage.app, 3, "p").await), -31_051);
    // And neither provider takes the other's orders.
    assert_eq!(code(&may(&stage.app, "t").await), -31_051);
    stage.is_sound().await;
}

#[tokio::test]
async fn c105_payme_cant_take_a_booked_payment_back_and_leave_the_booking() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    // Other money in the wallet is not this payment's.
    stage.app.fund("acme", 10 * AMOUNT).await;
    create(&stage.app, 1, "a").await;
    perform(&stage.app, 1).await;
    assert_eq!(code(&cancel(&stage.app, 1).await), -31_007);
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("a"));
    let body = json!({ "refund": "full", "reason": "a test" });
    let (status, problem) = stage.app.post_with_key("/v1/bookings/1/cancel", "k1", &body).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("goes_through_provider")));
    let body = json!({ "refund": "full", "refund_to": "wallet", "reason": "a test" });
    let (status, answer) = stage.app.post_with_key("/v1/bookings/1/cancel", "k2", &body).await;
    assert_eq!((status.as_u16(), &answer["status"]), (200, &json!("cancelled")), "{answer}");
    assert_eq!(stage.owner(slot_id).await, None);
    assert_eq!(state(&cancel(&stage.app, 1).await), -2);
    let kinds = ["top_up 5000000", "top_up 500000", "booking -500000", "refund 500000", "top_up_reversal -500000"];
    assert_eq!(rows(&stage).await, kinds);
    stage.is_sound().await;
}

#[tokio::test]
async fn a_test_payment_holds_and_books_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    let params = json!({ "id": id(1), "time": stage.app.now_ms(), "amount": AMOUNT, "account": { "order_id": "a" } });
    let key = crate::support::app::PAYME_TEST_KEY;
    assert_eq!(state(&stage.app.payme_with_key(key, "CreateTransaction", params).await), 1);
    assert_eq!(stage.holder(slot_id).await, None);
    assert_eq!(state(&stage.app.payme_with_key(key, "PerformTransaction", json!({ "id": id(1) })).await), 2);
    assert_eq!(stage.owner(slot_id).await, None);
    assert_eq!(state(&create(&stage.app, 1, "a").await), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b6_creates_of_many_orders_on_one_slot_at_once_are_one_hold() {
    let stage = Stage::start().await;
    for round in 0..8_u32 {
        let slot_id = stage.slot(100 + i64::from(round)).await;
        for buyer in 0..6 {
            order(&stage, &format!("o{round}-{buyer}"), slot_id).await;
        }
        let answers = futures::future::join_all((0..6_u32).map(|buyer| {
            let (app, order_id) = (&stage.app, format!("o{round}-{buyer}"));
            async move { create(app, round * 10 + buyer, &order_id).await }
        }))
        .await;
        let won = answers.iter().filter(|answer| answer.get("result").is_some()).count();
        assert_eq!(won, 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.get("result").is_some() || code(answer) == -31_099), "{answers:?}");
    }
}

#[tokio::test]
async fn b2_a_slot_that_has_begun_isnt_sold_by_a_perform_that_comes_late() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(1).await;
    order(&stage, "a", slot_id).await;
    stage.later(TimeDelta::minutes(55)).await;
    assert_eq!(state(&create(&stage.app, 1, "a").await), 1);
    let (_, held_until) = stage.holder(slot_id).await.expect("held");
    let starts_at = stage.app.clock.now() + TimeDelta::minutes(5);
    assert_eq!(held_until, starts_at, "as long as the slot is to come, and not for twelve hours");
    stage.later(TimeDelta::minutes(5)).await;
    assert_eq!(code(&perform(&stage.app, 1).await), -31_008);
    assert_eq!(stage.owner(slot_id).await, None);
    assert!(rows(&stage).await.is_empty(), "the payer's money stays where it is");
    let checked = stage.app.payme("CheckTransaction", json!({ "id": id(1) })).await;
    assert_eq!((state(&checked), &checked["result"]["reason"]), (-1, &json!(4)), "{checked}");
    stage.is_sound().await;
}

#[tokio::test]
async fn p2_who_else_has_the_slot_is_said_before_the_amount_and_the_age() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    order(&stage, "b", slot_id).await;
    let wrong = |time: i64| json!({ "id": id(2), "time": time, "amount": AMOUNT + 1, "account": { "order_id": "b" } });
    let old = stage.app.now_ms() - 13 * 3_600_000;
    let now = stage.app.now_ms();
    assert_eq!(code(&stage.app.payme("CreateTransaction", wrong(old)).await), -31_001, "free, and the amount is wrong");
    assert_eq!(state(&create(&stage.app, 1, "a").await), 1);
    for time in [now, old] {
        assert_eq!(code(&stage.app.payme("CreateTransaction", wrong(time)).await), -31_099, "busy");
    }
    let check = json!({ "amount": AMOUNT + 1, "account": { "order_id": "b" } });
    assert_eq!(code(&stage.app.payme("CheckPerformTransaction", check.clone()).await), -31_099);
    assert_eq!(state(&perform(&stage.app, 1).await), 2);
    for time in [now, old] {
        assert_eq!(code(&stage.app.payme("CreateTransaction", wrong(time)).await), -31_051, "sold");
    }
    assert_eq!(code(&stage.app.payme("CheckPerformTransaction", check).await), -31_051);
}

#[tokio::test]
async fn l4_a_slot_isnt_paid_with_imported_money_that_was_spent_since() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    assert_eq!(state(&create(&stage.app, 1, "a").await), 1);
    let row = |kind: &str, amount: &str, reference: &str| crate::support::api::posting("acme", kind, amount, reference);
    for (key, row) in [
        ("import", row("top_up", "5000.00", &format!("payme:{}", id(1)))),
        ("spent", row("purchase", "-1.00", "sweets")),
    ] {
        let body = crate::support::api::batch(&[row]);
        let (status, answer) = stage.app.post_with_key("/v1/transactions/batch", key, &body).await;
        assert_eq!(status.as_u16(), 201, "{answer}");
    }
    let before = stage.app.everything_written().await;
    assert_eq!(code(&perform(&stage.app, 1).await), -31_008);
    assert_eq!(stage.app.everything_written().await, before);
    stage.app.fund("acme", 100).await;
    assert_eq!(state(&perform(&stage.app, 1).await), 2);
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("a"));
    assert_eq!(stage.app.sum("acme").await, 0);
}

#[tokio::test]
async fn p3_the_row_of_a_payment_that_bought_a_slot_says_that_its_cancel_would_be_refused() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    order(&stage, "a", slot_id).await;
    create(&stage.app, 1, "a").await;
    assert_eq!(state(&perform(&stage.app, 1).await), 2);
    // There is money enough, and it is another's.
    stage.app.fund("acme", 10 * AMOUNT).await;
    let viewer = Visitor::logged_in(&stage.app, "viewer", Role::Viewer).await.speaking("en");
    let page = viewer.get("/console/tenants/acme/UZS/1").await;
    assert!(page.has("its booking stands: the cancel would be refused with -31007"), "{}", page.html);
    assert!(!page.has("the cancel would go through"));
    assert_eq!(code(&cancel(&stage.app, 1).await), -31007, "so says the door");
    let body = json!({ "refund": "none", "reason": "x" });
    assert_eq!(stage.app.post_with_key("/v1/bookings/1/cancel", "k", &body).await.0, 200);
    assert!(viewer.get("/console/tenants/acme/UZS/1").await.has("cancelled without giving the money back"));
    assert_eq!(code(&cancel(&stage.app, 1).await), -31007);
}
