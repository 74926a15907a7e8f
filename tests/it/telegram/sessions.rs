//! Two real sessions, step by step: who waits for whom, and what the one who waited sees. Each of these fails when
//! the lock is left out, taken the other way round, or when the time is read before it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::ids::Actor;
use hamyon::ids::ExternalId;
use hamyon::money::{CurrencyCode, MinorUnits};
use hamyon::payment::prepaid::{
    self, Answer, CheckoutTerms, Decision, No, Question, Receipt, Received, Source, state::WhyRefund,
};
use hamyon::payment::{Mode, PaymentKey};
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::{ALICE, BOB, PRICE, Stage};
use crate::payme::until_waiting;

fn question(query_id: &str, payer: i64, order_id: &str) -> Question {
    Question {
        provider: "telegram",
        query_id: format!("111:{query_id}"),
        named_order: order_id.to_owned(),
        payer: payer.to_string(),
        currency: "XTR".to_owned(),
        amount: MinorUnits::new(PRICE),
    }
}

fn terms() -> CheckoutTerms {
    CheckoutTerms {
        hold_for: TimeDelta::minutes(5),
        lock_timeout: Duration::from_secs(20),
        statement_timeout: Duration::from_secs(20),
    }
}

fn receipt(charge_id: &str, payer: i64, order_id: &str, at: DateTime<Utc>) -> Receipt {
    Receipt {
        key: PaymentKey {
            provider: "telegram",
            mode: Mode::Live,
            external_id: ExternalId::parse(format!("111:{charge_id}")).expect("an id"),
        },
        named_order: order_id.to_owned(),
        payer: payer.to_string(),
        currency: "XTR".to_owned(),
        amount: MinorUnits::new(PRICE),
        paid_at: at,
        account_as_received: "{}".to_owned(),
        source: Source::Update,
    }
}

async fn receive(conn: &mut PgConnection, receipt: &Receipt) -> Received {
    let xtr = CurrencyCode::parse("XTR").expect("a code");
    prepaid::receive(conn, receipt, &xtr, &Actor::provider("telegram"), receipt.paid_at).await.expect("received")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_the_second_session_waits_for_the_first_and_then_sees_its_hold() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    let (mut first, mut second) = (stage.app.as_service().await, stage.app.as_service().await);
    let mut held = first.begin().await.unwrap();
    let answer = prepaid::check_out(&mut held, &question("qa", ALICE, "a"), &terms()).await.unwrap();
    assert_eq!(answer, Answer::Yes);
    // Not committed yet: the second waits for the slot's lock.
    let waits = async {
        let mut waiting = second.begin().await.unwrap();
        let answer = prepaid::check_out(&mut waiting, &question("qb", BOB, "b"), &terms()).await.unwrap();
        waiting.commit().await.unwrap();
        answer
    };
    let release = async {
        until_waiting(&stage.app, 1).await;
        held.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(waits, release);
    assert_eq!(answer, Answer::No(No::SlotTaken));
    assert_eq!(stage.holder(slot_id).await.expect("a hold").0, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_when_the_first_session_rolls_back_the_second_gets_the_slot() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    let (mut first, mut second) = (stage.app.as_service().await, stage.app.as_service().await);
    let mut held = first.begin().await.unwrap();
    prepaid::check_out(&mut held, &question("qa", ALICE, "a"), &terms()).await.unwrap();
    let waits = async {
        let mut waiting = second.begin().await.unwrap();
        let answer = prepaid::check_out(&mut waiting, &question("qb", BOB, "b"), &terms()).await.unwrap();
        waiting.commit().await.unwrap();
        answer
    };
    let release = async {
        until_waiting(&stage.app, 1).await;
        held.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(waits, release);
    assert_eq!(answer, Answer::Yes);
    assert_eq!(stage.holder(slot_id).await.expect("a hold").0, "b");
}

/// Puts the real clock of the database back, and waits until it has passed a moment.
async fn with_the_real_clock(stage: &Stage) {
    stage
        .app
        .superuser()
        .await
        .execute(
            "CREATE OR REPLACE FUNCTION database_now() RETURNS timestamptz
             LANGUAGE sql VOLATILE RETURN statement_timestamp()",
        )
        .await
        .unwrap();
}

async fn until_past(stage: &Stage, moment: DateTime<Utc>) {
    let mut conn = stage.app.superuser().await;
    loop {
        let past: bool =
            sqlx::query_scalar("SELECT clock_timestamp() > $1").bind(moment).fetch_one(&mut conn).await.unwrap();
        if past {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b4_a_payment_that_waited_for_the_lock_until_its_hold_was_over_goes_back() {
    // The time is asked for after the lock, in a statement of its own. Read before, or in the locking statement, it
    // would be the time at which the wait began, and the payment would take a slot that is free for others by then.
    let stage = Stage::start_with(|settings| settings.telegram.hold_for = TimeDelta::milliseconds(1_500)).await;
    with_the_real_clock(&stage).await;
    let slot_id = stage.slot(24 * 365 * 20).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (_, held_until) = stage.holder(slot_id).await.expect("a hold");
    let (mut holder, mut payer) = (stage.app.superuser().await, stage.app.as_service().await);
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM slots FOR NO KEY UPDATE").await.unwrap();
    let waits = async {
        let mut waiting = payer.begin().await.unwrap();
        let received = receive(&mut waiting, &receipt("c", ALICE, "a", stage.app.clock.now())).await;
        waiting.commit().await.unwrap();
        received
    };
    let release = async {
        until_waiting(&stage.app, 1).await;
        until_past(&stage, held_until).await;
        held.commit().await.unwrap();
    };
    let (received, ()) = tokio::join!(waits, release);
    assert!(
        matches!(received, Received::New(outcome) if outcome.decision == Decision::Refund(WhyRefund::HoldOver)),
        "{received:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_a_buyer_who_waited_until_the_hold_was_over_gets_the_slot_for_the_whole_time() {
    let stage = Stage::start_with(|settings| settings.telegram.hold_for = TimeDelta::milliseconds(1_500)).await;
    with_the_real_clock(&stage).await;
    let slot_id = stage.slot(24 * 365 * 20).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (_, held_until) = stage.holder(slot_id).await.expect("a hold");
    let (mut holder, mut buyer) = (stage.app.superuser().await, stage.app.as_service().await);
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM slots FOR NO KEY UPDATE").await.unwrap();
    let waits = async {
        let mut waiting = buyer.begin().await.unwrap();
        let answer = prepaid::check_out(&mut waiting, &question("qb", BOB, "b"), &terms()).await.unwrap();
        waiting.commit().await.unwrap();
        answer
    };
    let release = async {
        until_waiting(&stage.app, 1).await;
        until_past(&stage, held_until).await;
        held.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(waits, release);
    assert_eq!(answer, Answer::Yes);
    let (order, until) = stage.holder(slot_id).await.expect("a hold");
    assert_eq!(order, "b");
    let left = until.signed_duration_since(held_until);
    assert!(left > TimeDelta::minutes(5), "five minutes from the decision, not from the question: {left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_the_order_is_locked_before_its_slot() {
    // Whoever has the order's lock and wants the slot must not meet somebody who has the slot and wants the order.
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let mut holder = stage.app.superuser().await;
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM orders WHERE order_id = 'a' FOR NO KEY UPDATE").await.unwrap();
    let (mut asker, mut payer) = (stage.app.as_service().await, stage.app.as_service().await);
    let asks = async {
        let mut waiting = asker.begin().await.unwrap();
        prepaid::check_out(&mut waiting, &question("q", ALICE, "a"), &terms()).await.unwrap();
        waiting.commit().await.unwrap();
    };
    let pays = async {
        let mut waiting = payer.begin().await.unwrap();
        receive(&mut waiting, &receipt("c", ALICE, "a", stage.app.clock.now())).await;
        waiting.commit().await.unwrap();
    };
    let look = async {
        until_waiting(&stage.app, 2).await;
        // Both wait for the order, so the slot is anybody's to lock.
        let mut other = stage.app.superuser().await;
        other.execute("SELECT FROM slots FOR UPDATE NOWAIT").await.expect("nobody has the slot");
        held.commit().await.unwrap();
    };
    tokio::join!(asks, pays, look);
    stage.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b4_sixteen_words_of_one_payment_at_once_are_one_receipt() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (charge_id, update) = stage.pays(ALICE, "a", PRICE);
    futures::future::join_all((0..16).map(|_| stage.tells(&update))).await;
    stage.is_booked(&charge_id).await;
    // The same of one that goes back, and of one that names nothing.
    for (order_id, decision) in [("a", "refund"), ("nothing", "person")] {
        let (charge_id, update) = stage.pays(ALICE, order_id, PRICE);
        futures::future::join_all((0..16).map(|_| stage.tells(&update))).await;
        assert_eq!(stage.decision(&charge_id).await.0, decision);
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM receipts").await, 3);
    assert_eq!((stage.tasks().await.len(), stage.cases().await.len()), (1, 1));
    stage.is_sound().await;
}

#[tokio::test]
async fn c101_a_payment_and_its_refund_task_are_there_together_or_not_at_all() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let before = stage.app.everything_written().await;
    // Each of these is written in the payment's transaction; one that can't be takes the others with it.
    for table in ["payments", "receipts", "wallet_transactions", "events", "refund_tasks", "telegram_updates"] {
        let mut intruder = stage.app.superuser().await;
        crate::support::intruder::run(
            &mut intruder,
            &format!(
                "CREATE FUNCTION break_{table}() RETURNS trigger LANGUAGE plpgsql AS
                 $$BEGIN RAISE EXCEPTION 'broken'; END$$;
                 CREATE TRIGGER broken AFTER INSERT ON {table} EXECUTE FUNCTION break_{table}()"
            ),
        )
        .await;
        let (_, update) = stage.pays(ALICE, "a", PRICE);
        let (status, _) = super::send(&stage.app, super::SECRET, &update).await;
        assert_eq!(status, 500, "{table}: Telegram sends it again");
        assert_eq!(stage.app.everything_written().await, before, "{table}");
        crate::support::intruder::run(&mut intruder, &format!("DROP TRIGGER broken ON {table}")).await;
    }
    let charge_id = stage.paid(ALICE, "a").await;
    stage.goes_back(&charge_id, "hold_over").await;
}

#[tokio::test]
async fn the_database_itself_refuses_two_owners_two_holds_and_two_refunds() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.order("b", slot_id, BOB).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let mut service = stage.app.as_service().await;
    let refused =
        |error: sqlx::Error| error.as_database_error().and_then(|error| error.constraint().map(ToOwned::to_owned));
    let error = service
        .execute(
            "INSERT INTO slot_holds (slot_id, order_id, held_at, held_until)
             SELECT slot_id, 'b', held_at + interval '1 minute', held_until FROM slot_holds",
        )
        .await
        .expect_err("two holds");
    assert_eq!(refused(error).as_deref(), Some("slot_holds_do_not_overlap"));
    let error = service
        .execute(
            "INSERT INTO slot_holds (slot_id, order_id, held_at, held_until)
             SELECT slot_id, 'a', held_until, held_until + interval '1 minute' FROM slot_holds",
        )
        .await
        .expect_err("an order that was approved once");
    assert_eq!(refused(error).as_deref(), Some("slot_holds_once_per_order_key"));
    stage.paid(ALICE, "a").await;
    stage.paid(ALICE, "a").await;
    let error = service
        .execute(
            "INSERT INTO bookings (slot_id, order_id, payment_id, booked_at)
             SELECT slot_id, 'b', payment_id + 1, booked_at FROM bookings",
        )
        .await
        .expect_err("two owners");
    assert_eq!(refused(error).as_deref(), Some("bookings_one_per_slot_key"));
    let error = service
        .execute(
            "INSERT INTO refund_tasks (payment_id, why, requested_by, created_at, next_attempt_at)
             SELECT payment_id, why, requested_by, created_at, next_attempt_at FROM refund_tasks",
        )
        .await
        .expect_err("two refunds");
    assert_eq!(refused(error).as_deref(), Some("refund_tasks_one_per_payment_key"));
    let error = service
        .execute(
            "INSERT INTO slots (resource_no, starts_at, ends_at, created_at)
             SELECT resource_no, starts_at + interval '59 minutes', ends_at + interval '1 day', created_at FROM slots",
        )
        .await
        .expect_err("two slots at once");
    assert_eq!(refused(error).as_deref(), Some("slots_do_not_overlap"));
}
