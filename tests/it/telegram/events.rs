//! The source document's table of events, line by line, against the webhook: who gets the slot, whose money goes
//! back, and what a repeat changes (nothing).

use chrono::TimeDelta;
use serde_json::json;

use super::{ALICE, BOB, PRICE, SECRET, Stage, gone_back, paid, pre_checkout, said, send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_two_orders_at_once_for_one_slot_and_one_of_them_holds_it() {
    let stage = Stage::start().await;
    for round in 0..15 {
        let slot_id = stage.slot(100 + round).await;
        let (first, second) = (format!("a-{round}"), format!("b-{round}"));
        stage.order(&first, slot_id, ALICE).await;
        stage.order(&second, slot_id, BOB).await;
        let (one, two) = (format!("qa-{round}"), format!("qb-{round}"));
        let (alice, bob) = tokio::join!(stage.asks(&one, ALICE, &first), stage.asks(&two, BOB, &second));
        let (winner, words) = match (alice, bob) {
            (None, Some(words)) => (first, words),
            (Some(words), None) => (second, words),
            other => panic!("one yes and one no, and it was {other:?}"),
        };
        assert_eq!(words, "This time has just been taken. Choose another.");
        assert_eq!(stage.holder(slot_id).await.expect("a hold").0, winner);
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM slot_holds").await, 15);
}

#[tokio::test]
async fn b3_the_same_update_delivered_twice_makes_no_new_hold_and_prolongs_none() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let query = stage.query("q", ALICE, "a");
    let (_, first) = send(&stage.app, SECRET, &query).await;
    assert_eq!(said("q", &first), None);
    let held = stage.holder(slot_id).await;
    stage.later(TimeDelta::seconds(299)).await;
    let before = stage.app.everything_written().await;
    assert_eq!(send(&stage.app, SECRET, &query).await.1, first);
    assert_eq!((stage.app.everything_written().await, stage.holder(slot_id).await), (before, held));
    // A yes may be repeated only while what it promised lives.
    stage.later(TimeDelta::seconds(1)).await;
    let before = stage.app.everything_written().await;
    let words = said("q", &send(&stage.app, SECRET, &query).await.1);
    assert_eq!(words.as_deref(), Some("The time of this invoice is over. Get a new one from the bot."));
    assert_eq!(stage.app.everything_written().await, before);
}

#[tokio::test]
async fn b3_a_no_stays_a_no_although_the_slot_is_free_again() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    stage.is_told_yes("qa", ALICE, "a").await;
    let query = stage.query("qb", BOB, "b");
    let (_, no) = send(&stage.app, SECRET, &query).await;
    assert!(said("qb", &no).is_some());
    stage.later(TimeDelta::minutes(6)).await;
    assert_eq!(send(&stage.app, SECRET, &query).await.1, no);
    // Another query of the same order asks anew; it was never approved.
    stage.is_told_yes("qb-2", BOB, "b").await;
}

#[tokio::test]
async fn b4_a_payment_that_is_told_twice_is_one_receipt_one_booking_and_two_rows() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (charge_id, update) = stage.pays(ALICE, "a", PRICE);
    stage.tells(&update).await;
    stage.is_booked(&charge_id).await;
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("a"));
    assert_eq!(stage.rows().await, ["top_up 250 main", "booking -250 main"]);
    let before = stage.app.everything_written().await;
    for _ in 0..3 {
        stage.tells(&update).await;
    }
    // Another update about the same money, too.
    stage.tells(&paid(9_999, ALICE, "a", PRICE, &charge_id, stage.app.clock.now())).await;
    let after = stage.app.everything_written().await;
    assert_eq!(before.lines().count() + 1, after.lines().count(), "the update is kept, and nothing else");
    assert_eq!(stage.app.count("SELECT count(*) FROM telegram_updates").await, 3);
    assert_eq!((stage.tasks().await.len(), stage.stars().await), (0, 0));
    stage.is_sound().await;
}

#[tokio::test]
async fn b4_a_late_payment_of_the_first_order_leaves_the_booking_of_the_second_alone() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    stage.is_told_yes("qa", ALICE, "a").await;
    stage.later(TimeDelta::seconds(300)).await;
    stage.is_told_yes("qb", BOB, "b").await;
    let bobs = stage.paid(BOB, "b").await;
    let alices = stage.paid(ALICE, "a").await;
    stage.is_booked(&bobs).await;
    stage.goes_back(&alices, "hold_over").await;
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("b"));
    assert_eq!(stage.tasks().await, ["waiting"]);
    assert_eq!(stage.stars().await, PRICE, "Alice's stars are with us");
    assert_eq!(stage.give_back().await, 1);
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
    assert!(stage.api.is_refunded(&alices) && !stage.api.is_refunded(&bobs));
    stage.is_sound().await;
}

#[tokio::test]
async fn b4_a_late_payment_of_the_first_order_leaves_the_hold_of_the_second_alone() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    stage.is_told_yes("qa", ALICE, "a").await;
    stage.later(TimeDelta::seconds(301)).await;
    stage.is_told_yes("qb", BOB, "b").await;
    let held = stage.holder(slot_id).await;
    let alices = stage.paid(ALICE, "a").await;
    stage.goes_back(&alices, "hold_over").await;
    assert_eq!(stage.holder(slot_id).await, held);
    let bobs = stage.paid(BOB, "b").await;
    stage.is_booked(&bobs).await;
}

#[tokio::test]
async fn b4_an_old_order_of_the_same_buyer_doesnt_confirm_the_new_hold() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("old", slot_id, ALICE).await;
    stage.is_told_yes("q1", ALICE, "old").await;
    stage.later(TimeDelta::minutes(5)).await;
    stage.order("new", slot_id, ALICE).await;
    stage.is_told_yes("q2", ALICE, "new").await;
    let old = stage.paid(ALICE, "old").await;
    stage.goes_back(&old, "hold_over").await;
    assert_eq!(stage.owner(slot_id).await, None);
    let new = stage.paid(ALICE, "new").await;
    stage.is_booked(&new).await;
    // And the old one after the booking.
    let again = stage.paid(ALICE, "old").await;
    stage.goes_back(&again, "hold_over").await;
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("new"));
    stage.give_back().await;
    assert_eq!(stage.tasks().await, ["refunded", "refunded"]);
    stage.is_sound().await;
}

#[tokio::test]
async fn b4_c97_a_payment_after_its_hold_goes_back_even_if_the_slot_is_free() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    stage.later(TimeDelta::seconds(300)).await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.goes_back(&charge_id, "hold_over").await;
    assert_eq!(stage.owner(slot_id).await, None);
    for _ in 0..3 {
        stage.give_back().await;
    }
    assert_eq!(stage.api.effects(&charge_id), 1);
    let (_, page) = stage.app.get("/v1/slots").await;
    assert_eq!(page["items"][0]["slot_id"], slot_id, "the slot is free: {page}");
}

#[tokio::test]
async fn b4_a_payment_in_the_last_moment_of_its_hold_is_booked() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    stage.later(TimeDelta::microseconds(299_999_999)).await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.is_booked(&charge_id).await;
}

#[tokio::test]
async fn b2_an_order_that_was_approved_once_cant_take_the_slot_again() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q1", ALICE, "a").await;
    // Not while it holds it, nor after that, although the slot is free.
    for minutes in [0, 6, 60] {
        stage.later(TimeDelta::minutes(minutes)).await;
        let words = stage.asks(&format!("q-{minutes}"), ALICE, "a").await;
        assert_eq!(words.as_deref(), Some("The time of this invoice is over. Get a new one from the bot."));
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM slot_holds").await, 1);
}

#[tokio::test]
async fn b4_another_charge_on_a_paid_order_goes_back() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let first = stage.paid(ALICE, "a").await;
    let second = stage.paid(ALICE, "a").await;
    stage.is_booked(&first).await;
    stage.goes_back(&second, "overpaid").await;
    stage.give_back().await;
    assert_eq!((stage.api.effects(&first), stage.api.effects(&second)), (0, 1));
    assert_eq!(
        stage.rows().await,
        ["top_up 250 main", "booking -250 main", "top_up 250 set-aside", "top_up_reversal -250 set-aside"]
    );
    stage.is_sound().await;
}

#[tokio::test]
async fn b4_what_differs_from_its_order_is_a_persons_and_books_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let held = stage.holder(slot_id).await;
    for (payer, order_id, stars, why) in
        [(BOB, "a", PRICE, "differs"), (ALICE, "a", PRICE - 1, "differs"), (ALICE, "nothing", PRICE, "unknown_order")]
    {
        let (charge_id, update) = stage.pays(payer, order_id, stars);
        stage.tells(&update).await;
        assert_eq!(stage.decision(&charge_id).await, ("person".to_owned(), Some(why.to_owned())));
    }
    assert_eq!(stage.holder(slot_id).await, held);
    assert_eq!(stage.cases().await, ["mismatch"; 3]);
    assert_eq!(stage.stars().await, stage.api.kept());
    assert_eq!(stage.give_back().await, 0);
    // The right payment is booked all the same.
    let charge_id = stage.paid(ALICE, "a").await;
    stage.is_booked(&charge_id).await;
    stage.is_sound().await;
}

#[tokio::test]
async fn b4_money_that_isnt_stars_is_a_persons_and_no_row() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    for currency in ["UZS", "EUR", "xtr", "\u{0}"] {
        let mut update = paid(2_000, ALICE, "a", PRICE, &format!("c-{}", currency.len()), stage.app.clock.now());
        update["message"]["successful_payment"]["currency"] = json!(currency);
        update["message"]["successful_payment"]["telegram_payment_charge_id"] = json!(format!("c{:?}", currency));
        stage.tells(&update).await;
        stage.tells(&update).await;
    }
    assert_eq!(stage.cases().await, ["foreign_currency"; 4]);
    assert_eq!(stage.rows().await, [""; 0]);
    assert_eq!(stage.owner(slot_id).await, None);
}

#[tokio::test]
async fn b2_a_question_about_what_cant_be_paid_is_refused_in_words_and_takes_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    for (number, payer, order_id, stars, words) in [
        (1, BOB, "a", PRICE, "This invoice is somebody else's. Get your own from the bot."),
        (2, ALICE, "a", PRICE + 1, "The price has changed. Get a new invoice from the bot."),
        (3, ALICE, "nothing", PRICE, "There is no such order. Get a new invoice from the bot."),
        (4, ALICE, "no order has a space", PRICE, "There is no such order. Get a new invoice from the bot."),
    ] {
        let query_id = format!("q{number}");
        let (_, answer) = send(&stage.app, SECRET, &pre_checkout(number, &query_id, payer, order_id, stars)).await;
        assert_eq!(said(&query_id, &answer).as_deref(), Some(words));
    }
    assert_eq!(stage.holder(slot_id).await, None);
    let (status, answer) = stage.app.post("/v1/orders/a/close", &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(stage.asks("q5", ALICE, "a").await.as_deref(), Some("This invoice is paid or closed already."));
}

#[tokio::test]
async fn b2_a_slot_that_has_begun_or_is_booked_is_not_to_be_had() {
    let stage = Stage::start().await;
    let (soon, later) = (stage.slot(1).await, stage.slot(50).await);
    stage.order("soon", soon, ALICE).await;
    stage.order("first", later, ALICE).await;
    stage.order("second", later, BOB).await;
    stage.is_told_yes("q1", ALICE, "first").await;
    stage.paid(ALICE, "first").await;
    let words = stage.asks("q2", BOB, "second").await;
    assert_eq!(words.as_deref(), Some("This time has just been taken. Choose another."));
    stage.later(TimeDelta::hours(1)).await;
    let words = stage.asks("q3", ALICE, "soon").await;
    assert_eq!(words.as_deref(), Some("This time has passed. Choose another."));
}

#[tokio::test]
async fn c99_the_same_payment_forty_days_later_finds_its_booking() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(2_000).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (charge_id, update) = stage.pays(ALICE, "a", PRICE);
    stage.tells(&update).await;
    stage.later(TimeDelta::days(40)).await;
    let before = stage.app.everything_written().await;
    stage.tells(&update).await;
    assert_eq!(stage.app.everything_written().await, before);
    stage.is_booked(&charge_id).await;
    assert_eq!(stage.tasks().await, [""; 0]);
}

#[tokio::test]
async fn b3_an_order_that_holds_its_slot_cant_be_closed_and_one_that_did_can() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (_, shown) = stage.app.get("/v1/orders/a").await;
    assert_eq!(shown["status"], "busy");
    let (status, problem) = stage.app.post("/v1/orders/a/close", &json!({})).await;
    assert_eq!((status.as_u16(), &problem["order_status"]), (409, &json!("busy")));
    stage.later(TimeDelta::minutes(5)).await;
    assert_eq!(stage.app.post("/v1/orders/a/close", &json!({})).await.0, 200);
    let charge_id = stage.paid(ALICE, "a").await;
    stage.goes_back(&charge_id, "hold_over").await;
}

#[tokio::test]
async fn stars_without_a_slot_are_a_top_up_of_the_wallet_once() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    stage.is_told_yes("q1", ALICE, "t").await;
    let first = stage.paid(ALICE, "t").await;
    assert_eq!(stage.decision(&first).await, ("credited".to_owned(), None));
    assert!(stage.asks("q2", ALICE, "t").await.is_some(), "it is paid");
    let second = stage.paid(ALICE, "t").await;
    stage.goes_back(&second, "overpaid").await;
    let (_, balance) = stage.app.get("/v1/tenants/acme/balance?currency=XTR").await;
    assert_eq!(balance["balance"], "500", "{balance}");
    stage.give_back().await;
    let (_, balance) = stage.app.get("/v1/tenants/acme/balance?currency=XTR").await;
    assert_eq!(balance["balance"], "250", "{balance}");
    let (_, order) = stage.app.get("/v1/orders/t").await;
    assert_eq!(order["status"], "paid");
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_a_refund_that_nobody_asked_for_is_booked_as_a_debt_and_a_persons() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.api.charge_back(&charge_id);
    let update = gone_back(7_000, ALICE, "a", PRICE, &charge_id);
    stage.tells(&update).await;
    assert_eq!(stage.rows().await, ["top_up 250 main", "booking -250 main", "top_up_reversal -250 main"]);
    assert_eq!(stage.cases().await, ["unasked_refund"]);
    assert_eq!(stage.owner(slot_id).await.as_deref(), Some("a"), "whether it stands is for a person");
    let before = stage.app.everything_written().await;
    stage.tells(&update).await;
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["unasked_refund"]);
    assert_eq!(stage.rows().await.len(), 3);
    assert!(stage.app.everything_written().await.len() >= before.len());
    // A credit isn't swallowed by the debt: the next payment of a slot is spent on that slot.
    let other = stage.slot(200).await;
    stage.order("b", other, ALICE).await;
    stage.is_told_yes("q2", ALICE, "b").await;
    let second = stage.paid(ALICE, "b").await;
    stage.is_booked(&second).await;
    stage.is_sound().await;
}

#[tokio::test]
async fn b3_a_query_id_that_comes_with_another_payer_or_order_gets_nobodys_yes() {
    let stage = Stage::start().await;
    let (one, two) = (stage.slot(100).await, stage.slot(200).await);
    stage.order("a", one, ALICE).await;
    stage.order("b", two, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    assert!(stage.asks("q", BOB, "a").await.is_some());
    assert!(stage.asks("q", ALICE, "b").await.is_some());
    assert_eq!(stage.holder(two).await, None, "and it takes no slot");
    assert_eq!(stage.asks("q", ALICE, "a").await, None, "the payer's own yes stands");
}

#[tokio::test]
async fn b3_a_repeat_prolongs_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let held = stage.holder(slot_id).await;
    for _ in 0..4 {
        stage.later(TimeDelta::minutes(1)).await;
        assert_eq!(stage.asks("q", ALICE, "a").await, None);
        assert_eq!(stage.holder(slot_id).await, held);
    }
    stage.later(TimeDelta::minutes(1)).await;
    assert!(stage.asks("q", ALICE, "a").await.is_some(), "five minutes after the first yes it is over");
    assert_eq!(stage.holder(slot_id).await, None);
}
