//! Cancelling a booking: the slot is free and the money goes where the policy says, in one step and once.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::fake_bot_api::Act;
use crate::telegram::{ALICE, BOB, PRICE, Stage};

/// A stage with a booking that starts in so many hours: the slot and the charge.
async fn booked(hours: i64) -> (Stage, i64, String) {
    let stage = Stage::start().await;
    let slot_id = stage.slot(hours).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.is_booked(&charge_id).await;
    (stage, slot_id, charge_id)
}

async fn cancel(stage: &Stage, key: &str, mut body: Value) -> (u16, Value) {
    body["reason"] = json!("the client fell ill");
    let (status, answer) = stage.app.post_with_key("/v1/bookings/1/cancel", key, &body).await;
    (status.as_u16(), answer)
}

#[tokio::test]
async fn c105_a_cancelled_booking_frees_its_slot_and_gives_the_stars_back_through_telegram() {
    let (stage, slot_id, charge_id) = booked(25).await;
    let (status, answer) = cancel(&stage, "k", json!({})).await;
    assert_eq!((status, &answer["status"], &answer["refund"]), (200, &json!("cancelled"), &json!("payer")));
    assert_eq!(stage.owner(slot_id).await, None);
    assert_eq!(stage.tasks().await, ["waiting"]);
    // The slot is somebody else's at once.
    stage.order("b", slot_id, BOB).await;
    stage.is_told_yes("qb", BOB, "b").await;
    let bobs = stage.paid(BOB, "b").await;
    stage.is_booked(&bobs).await;
    stage.give_back().await;
    assert_eq!((stage.api.effects(&charge_id), stage.api.effects(&bobs)), (1, 0));
    let rows = [
        "top_up 250 main",
        "booking -250 main",
        "refund 250 set-aside",
        "top_up 250 main",
        "booking -250 main",
        "top_up_reversal -250 set-aside",
    ];
    assert_eq!(stage.rows().await, rows);
    stage.is_sound().await;
}

#[tokio::test]
async fn the_policy_gives_everything_back_in_time_and_nothing_after_that() {
    // The resource says 24 hours; exactly 24 are in time.
    for (hours, refund) in [(25, "payer"), (24, "payer"), (23, "none")] {
        let (stage, slot_id, _) = booked(hours).await;
        let (status, answer) = cancel(&stage, "k", json!({ "refund": "policy" })).await;
        assert_eq!((status, &answer["refund"]), (200, &json!(refund)), "{hours}");
        assert_eq!(stage.owner(slot_id).await, None);
        assert_eq!(stage.tasks().await.len(), usize::from(refund == "payer"));
    }
}

#[tokio::test]
async fn who_cancels_may_give_all_or_nothing_or_into_the_wallet() {
    let (stage, _, _) = booked(2).await;
    let (_, answer) = cancel(&stage, "k", json!({ "refund": "full", "refund_to": "wallet" })).await;
    assert_eq!(answer["refund"], "wallet");
    assert_eq!(stage.rows().await, ["top_up 250 main", "booking -250 main", "refund 250 main"]);
    assert_eq!((stage.tasks().await.len(), stage.stars().await), (0, PRICE));
    let (stage, _, _) = booked(200).await;
    let (_, answer) = cancel(&stage, "k", json!({ "refund": "none" })).await;
    assert_eq!(answer["refund"], "none");
    assert_eq!((stage.tasks().await.len(), stage.stars().await), (0, 0));
}

#[tokio::test]
async fn s2_a_cancelled_booking_and_a_refused_cancellation_are_in_the_audit() {
    let (stage, ..) = booked(25).await;
    assert_eq!(cancel(&stage, "k", json!({})).await.0, 200);
    assert_eq!(cancel(&stage, "k", json!({})).await.0, 200, "an answer given again is no deed");
    assert_eq!(cancel(&stage, "another", json!({})).await.0, 409);
    let lines: Vec<(bool, Option<String>, String)> =
        sqlx::query_as("SELECT allowed, tenant_id, words FROM audit_log WHERE action = 'booking.cancel' ORDER BY seq")
            .fetch_all(&mut stage.app.superuser().await)
            .await
            .unwrap();
    assert_eq!(lines.iter().map(|line| line.0).collect::<Vec<_>>(), [true, false]);
    for (_, tenant_id, words) in &lines {
        assert_eq!(tenant_id.as_deref(), Some("acme"));
        assert!(words.contains("cancel booking 1 of slot 1, order a, payment 1"), "{words}");
        assert!(words.contains("of 250 XTR") && words.ends_with("reason \"the client fell ill\""), "{words}");
    }
    assert!(lines[0].2.contains("its money goes to: payer"), "{}", lines[0].2);
}

#[tokio::test]
async fn l6_the_same_key_is_answered_the_same_and_another_finds_it_cancelled() {
    let (stage, _, _) = booked(200).await;
    let first = cancel(&stage, "k", json!({})).await;
    let before = stage.app.everything_written().await;
    assert_eq!(cancel(&stage, "k", json!({})).await, first);
    let (status, problem) = cancel(&stage, "other", json!({})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("booking_cancelled")));
    let (status, problem) = cancel(&stage, "k", json!({ "refund": "none" })).await;
    assert_eq!((status, &problem["code"]), (409, &json!("idempotency_key_reused")));
    assert_eq!(stage.app.everything_written().await, before);
    let (status, shown) = stage.app.get("/v1/bookings/1").await;
    assert_eq!((status.as_u16(), shown), (200, first.1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_cancels_at_once_give_back_once() {
    let (stage, _, charge_id) = booked(200).await;
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let answers = futures::future::join_all(keys.iter().map(|key| cancel(&stage, key, json!({})))).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1, "{answers:?}");
    stage.give_back().await;
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, 0));
    stage.is_sound().await;
}

#[tokio::test]
async fn a_booking_whose_payment_went_back_already_isnt_paid_back_twice() {
    let (stage, slot_id, charge_id) = booked(200).await;
    stage.api.charge_back(&charge_id);
    stage.reconcile().await;
    let (status, problem) = cancel(&stage, "k", json!({ "refund": "full" })).await;
    assert_eq!((status, &problem["code"]), (409, &json!("payment_gone")));
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("a"));
    // Into the wallet it makes up for the debt.
    let (status, _) = cancel(&stage, "k", json!({ "refund": "full", "refund_to": "wallet" })).await;
    assert_eq!((status, stage.stars().await), (200, 0));
    assert_eq!(stage.owner(slot_id).await, None);
}

#[tokio::test]
async fn c105_the_desk_cant_refund_a_booking_and_leave_it_standing() {
    let (stage, _, _) = booked(200).await;
    let before = stage.app.everything_written().await;
    let body = json!({ "transaction": 2, "amount": "250", "currency": "XTR", "reason": "a test" });
    let (status, problem) = stage.app.post_with_key("/v1/tenants/acme/refunds", "k", &body).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("goes_through_booking")), "{problem}");
    assert_eq!(stage.app.everything_written().await, before);
}

#[tokio::test]
async fn nothing_and_nonsense_is_refused() {
    let (stage, _, _) = booked(200).await;
    let before = stage.app.everything_written().await;
    for (path, body, status) in [
        ("/v1/bookings/99/cancel", json!({ "reason": "x" }), 404),
        ("/v1/bookings/x/cancel", json!({ "reason": "x" }), 404),
        ("/v1/bookings/1/cancel", json!({}), 400),
        ("/v1/bookings/1/cancel", json!({ "reason": "" }), 400),
        ("/v1/bookings/1/cancel", json!({ "reason": "x", "refund": "half" }), 400),
        ("/v1/bookings/1/cancel", json!({ "reason": "x", "refund_to": "me" }), 400),
        ("/v1/bookings/1/cancel", json!({ "reason": "x", "more": 1 }), 400),
    ] {
        let (seen, problem) = stage.app.post_with_key(path, "k", &body).await;
        assert_eq!(seen.as_u16(), status, "{path} {body} {problem}");
    }
    assert_eq!(stage.app.get("/v1/bookings/99").await.0, 404);
    assert_eq!(stage.app.everything_written().await, before);
}

#[tokio::test]
async fn a_refund_of_a_cancelled_booking_that_fails_is_a_persons() {
    let (stage, _, _) = booked(200).await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    cancel(&stage, "k", json!({})).await;
    stage.give_back().await;
    assert_eq!(stage.cases().await, ["refund_failed"]);
    stage.later(TimeDelta::hours(1)).await;
    let (status, _) =
        stage.app.post_with_key("/v1/payment-cases/1/resolve", "r", &json!({ "resolution": "keep" })).await;
    assert_eq!(status, 200);
    let (_, balance) = stage.app.get("/v1/tenants/acme/balance?currency=XTR").await;
    assert_eq!(balance["available"], "250");
    // The payer is back, and it goes back after all: nobody has to correct the book by hand.
    stage.api.fares(|_| Act::Do);
    let payment_id: String = sqlx::query_scalar("SELECT payment_id::text FROM payments")
        .fetch_one(&mut stage.app.superuser().await)
        .await
        .unwrap();
    let body = json!({ "payment_id": payment_id, "reason": "the payer is back" });
    let (status, answer) = stage.app.post_with_key("/v1/refund-tasks", "t", &body).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    stage.give_back().await;
    assert_eq!((stage.tasks().await.last().map(String::as_str), stage.stars().await), (Some("refunded"), 0));
    stage.is_sound().await;
    stage.is_sound().await;
}

#[tokio::test]
async fn h13_nobody_is_told_of_a_refund_while_the_stars_are_only_on_their_way() {
    for (body, told) in [(json!({}), 0), (json!({ "refund": "full", "refund_to": "wallet" }), 1)] {
        let (stage, _, _) = booked(25).await;
        assert_eq!(cancel(&stage, "k", body).await.0, 200);
        let events = stage.app.count("SELECT count(*) FROM events WHERE kind = 'refund.posted'").await;
        assert_eq!(events, told);
        stage.give_back().await;
        let events = stage.app.count("SELECT count(*) FROM events WHERE kind = 'refund.posted'").await;
        assert_eq!(events, told, "its own event says that it is there");
    }
}
