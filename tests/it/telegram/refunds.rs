//! Rule B5: money goes back once, whatever the Bot API does, and "refunded" is said only when it is known.

use chrono::TimeDelta;
use hamyon::jobs::Job;
use serde_json::json;

use super::{ALICE, PRICE, Stage, gone_back};
use crate::support::fake_bot_api::Act;

/// A stage with one payment that has to go back: its charge.
async fn owed() -> (Stage, String) {
    let stage = Stage::start().await;
    let slot_id = stage.slot(1_000).await;
    stage.order("a", slot_id, ALICE).await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.goes_back(&charge_id, "hold_over").await;
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["waiting".to_owned()], PRICE));
    (stage, charge_id)
}

/// The task, as the API shows it.
async fn task(stage: &Stage) -> serde_json::Value {
    stage.app.get("/v1/refund-tasks").await.1["items"][0].take()
}

async fn events(stage: &Stage) -> Vec<String> {
    sqlx::query_scalar("SELECT kind FROM events ORDER BY event_id")
        .fetch_all(&mut stage.app.superuser().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn b5_a_refund_is_called_once_and_told_once_it_is_done() {
    let (stage, charge_id) = owed().await;
    assert_eq!(events(&stage).await, ["payment.refund_due"]);
    assert_eq!(stage.give_back().await, 1);
    let call = stage.api.calls().pop().expect("a call");
    assert_eq!(call.params, json!({ "user_id": ALICE, "telegram_payment_charge_id": charge_id }));
    assert_eq!(events(&stage).await, ["payment.refund_due", "payment.reversed"]);
    let task = task(&stage).await;
    assert_eq!((&task["status"], &task["confirmed_by"]), (&json!("refunded"), &json!("answer")));
    assert_eq!(stage.rows().await, ["top_up 250 set-aside", "top_up_reversal -250 set-aside"]);
    for _ in 0..3 {
        assert_eq!(stage.give_back().await, 0);
        stage.reconcile().await;
    }
    assert_eq!((stage.api.called("refundStarPayment"), stage.api.effects(&charge_id)), (1, 1));
    assert_eq!(stage.cases().await, [""; 0]);
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_an_unknown_outcome_is_checking_and_is_settled_by_the_outgoing_line() {
    for act in [Act::DoAndSilence, Act::DoAndStatus(500), Act::DoAndDrop] {
        let (stage, charge_id) = owed().await;
        stage.api.fares(move |call| if call.method == "refundStarPayment" { act } else { Act::Do });
        assert_eq!(stage.give_back().await, 1);
        assert_eq!((stage.tasks().await, stage.stars().await), (vec!["checking".to_owned()], PRICE), "{act:?}");
        assert_eq!(events(&stage).await, ["payment.refund_due"], "nobody is told before it is known");
        // However long it takes, the list is asked before another call.
        stage.later(TimeDelta::hours(25)).await;
        assert_eq!(stage.give_back().await, 0, "{act:?}");
        stage.reconcile().await;
        let task = task(&stage).await;
        assert_eq!((&task["status"], &task["confirmed_by"]), (&json!("refunded"), &json!("statement")), "{act:?}");
        assert_eq!((stage.api.called("refundStarPayment"), stage.api.effects(&charge_id)), (1, 1), "{act:?}");
        assert_eq!(stage.stars().await, 0);
        stage.is_sound().await;
    }
}

#[tokio::test]
async fn c109_what_wasnt_done_is_called_again_after_the_list_was_read() {
    for act in [Act::Silence, Act::Refuse(500, "Internal Server Error"), Act::Refuse(502, "Bad Gateway")] {
        let (stage, charge_id) = owed().await;
        stage.api.fares(move |call| if call.method == "refundStarPayment" { act } else { Act::Do });
        stage.give_back().await;
        assert_eq!(stage.tasks().await, ["checking"]);
        stage.api.fares(|_| Act::Do);
        stage.later(TimeDelta::minutes(2)).await;
        assert_eq!(stage.give_back().await, 0, "the list comes first");
        // The line of the payment itself is incoming and confirms nothing, although it has the same id.
        stage.reconcile().await;
        assert_eq!(stage.tasks().await, ["checking"]);
        assert_eq!(stage.give_back().await, 1);
        assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
        assert_eq!(stage.api.effects(&charge_id), 1);
    }
}

#[tokio::test]
async fn b5_a_list_that_began_before_the_unknown_call_ended_says_nothing_about_it() {
    let (stage, _) = owed().await;
    stage.reconcile().await;
    stage.api.fares(|call| if call.method == "refundStarPayment" { Act::Silence } else { Act::Do });
    stage.later(TimeDelta::seconds(1)).await;
    stage.give_back().await;
    stage.later(TimeDelta::hours(1)).await;
    assert_eq!(stage.give_back().await, 0);
}

#[tokio::test]
async fn b5_a_list_that_cant_be_read_is_no_list() {
    let (stage, charge_id) = owed().await;
    stage.api.fares(|call| match call.method.as_str() {
        "refundStarPayment" => Act::DoAndSilence,
        _ => Act::Refuse(500, "Internal Server Error"),
    });
    stage.give_back().await;
    for _ in 0..3 {
        stage.later(TimeDelta::hours(7)).await;
        stage.reconcile().await;
        assert_eq!(stage.give_back().await, 0);
    }
    stage.api.fares(|_| Act::Do);
    stage.reconcile().await;
    assert_eq!(stage.tasks().await, ["refunded"]);
    assert_eq!(stage.api.effects(&charge_id), 1);
}

#[tokio::test]
async fn b5_already_refunded_is_success() {
    let (stage, charge_id) = owed().await;
    stage.api.charge_back(&charge_id);
    assert_eq!(stage.give_back().await, 1);
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
    assert_eq!(stage.cases().await, [""; 0]);
}

#[tokio::test]
async fn b5_429_is_honoured_and_is_no_unknown_outcome() {
    let (stage, charge_id) = owed().await;
    let other = stage.slot(1_010).await;
    stage.order("b", other, ALICE).await;
    stage.paid(ALICE, "b").await;
    stage.api.fares(|_| Act::TooMany(90));
    assert_eq!(stage.give_back().await, 1, "the second isn't called when the first was too much");
    assert_eq!(stage.tasks().await, ["waiting", "waiting"]);
    stage.api.fares(|_| Act::Do);
    stage.later(TimeDelta::seconds(89)).await;
    assert_eq!(stage.give_back().await, 0, "the wait is the bot's, not only the one task's");
    assert_eq!(stage.api.effects(&charge_id), 0);
    stage.later(TimeDelta::seconds(1)).await;
    assert_eq!(stage.give_back().await, 2);
    assert_eq!(stage.tasks().await, ["refunded", "refunded"]);
}

#[tokio::test]
async fn b5_a_wrong_token_fails_no_refund() {
    let (stage, charge_id) = owed().await;
    for (status, words) in [(401, "Unauthorized"), (404, "Not Found")] {
        stage.api.fares(move |_| Act::Refuse(status, words));
        stage.give_back().await;
        assert_eq!(stage.tasks().await, ["waiting"]);
        stage.later(TimeDelta::minutes(5)).await;
    }
    stage.api.fares(|_| Act::Do);
    stage.give_back().await;
    assert_eq!(stage.api.effects(&charge_id), 1);
}

#[tokio::test]
async fn b5_a_final_failure_is_a_case_that_says_why_and_a_person_may_try_again() {
    let (stage, charge_id) = owed().await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: BOT_BALANCE_TOO_LOW"));
    stage.give_back().await;
    assert_eq!(stage.tasks().await, ["failed"]);
    let (_, page) = stage.app.get("/v1/payment-cases?open=true").await;
    let case = &page["items"][0];
    assert_eq!(case["kind"], "refund_failed");
    assert!(case["why"].as_str().expect("words").contains("BOT_BALANCE_TOO_LOW"), "{case}");
    assert_eq!(stage.stars().await, PRICE, "it is with us");
    stage.later(TimeDelta::days(3)).await;
    assert_eq!(stage.give_back().await, 0, "it isn't tried again by itself");
    stage.api.fares(|_| Act::Do);
    let path = format!("/v1/payment-cases/{}/resolve", case["case_id"]);
    let (status, problem) = stage.app.post_with_key(&path, "k1", &json!({ "resolution": "closed" })).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("case_money_waits")));
    let body = json!({ "resolution": "refund", "note": "there are stars again" });
    let (status, answer) = stage.app.post_with_key(&path, "k2", &body).await;
    assert_eq!((status.as_u16(), &answer["resolution"]), (200, &json!("refund")));
    assert_eq!(stage.app.post_with_key(&path, "k2", &body).await, (status, answer), "the same key, the same answer");
    let (status, problem) = stage.app.post_with_key(&path, "k3", &body).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("case_resolved")));
    stage.give_back().await;
    assert_eq!(stage.tasks().await, ["failed", "refunded"]);
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, 0));
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_a_failed_refund_that_a_person_keeps_is_the_tenants_to_spend() {
    let (stage, _) = owed().await;
    stage.app.tenant("other").await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    stage.give_back().await;
    let body = json!({ "resolution": "keep", "tenant_id": "nobody" });
    let (status, _) = stage.app.post_with_key("/v1/payment-cases/1/resolve", "k", &body).await;
    assert_eq!(status, 404);
    let body = json!({ "resolution": "keep", "tenant_id": "other", "note": "agreed with the payer" });
    let (status, answer) = stage.app.post_with_key("/v1/payment-cases/1/resolve", "k", &body).await;
    assert_eq!(status, 200, "{answer}");
    let (_, balance) = stage.app.get("/v1/tenants/other/balance?currency=XTR").await;
    assert_eq!(balance["available"], "250", "{balance}");
    let (_, balance) = stage.app.get("/v1/tenants/acme/balance?currency=XTR").await;
    assert_eq!(balance["available"], "0", "{balance}");
    assert_eq!(stage.cases().await, [""; 0]);
    assert_eq!(stage.app.count("SELECT count(*) FROM audit_log WHERE action = 'case.resolve' AND allowed").await, 1);
    assert_eq!(
        stage.app.count("SELECT count(*) FROM audit_log WHERE action = 'case.resolve' AND NOT allowed").await,
        1
    );
    stage.is_sound().await;
}

#[tokio::test]
async fn b4_a_mismatch_goes_back_or_stays_as_a_person_says() {
    let stage = Stage::start().await;
    let mut charges = Vec::new();
    for _ in 0..2 {
        let (charge_id, update) = stage.pays(ALICE, "nothing", PRICE);
        stage.tells(&update).await;
        charges.push(charge_id);
    }
    let (status, answer) =
        stage.app.post_with_key("/v1/payment-cases/1/resolve", "a", &json!({ "resolution": "refund" })).await;
    assert_eq!(status, 200, "{answer}");
    let body = json!({ "resolution": "keep", "tenant_id": "acme" });
    assert_eq!(stage.app.post_with_key("/v1/payment-cases/2/resolve", "b", &body).await.0, 200);
    stage.give_back().await;
    assert_eq!((stage.api.effects(&charges[0]), stage.api.effects(&charges[1])), (1, 0));
    let (_, balance) = stage.app.get("/v1/tenants/acme/balance?currency=XTR").await;
    assert_eq!(balance["available"], "250", "{balance}");
    assert_eq!(stage.stars().await, stage.api.kept());
    // Taken back after all: the debt is where the money was received.
    stage.api.charge_back(&charges[1]);
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["unasked_refund"]);
    assert_eq!(stage.stars().await, 0);
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_telegrams_own_word_about_our_refund_confirms_it() {
    let (stage, charge_id) = owed().await;
    stage.api.fares(|call| if call.method == "refundStarPayment" { Act::DoAndSilence } else { Act::Do });
    stage.give_back().await;
    assert_eq!(stage.tasks().await, ["checking"]);
    stage.tells(&gone_back(6_000, ALICE, "a", PRICE, &charge_id)).await;
    let task = task(&stage).await;
    assert_eq!((&task["status"], &task["confirmed_by"]), (&json!("refunded"), &json!("update")));
    stage.reconcile().await;
    assert_eq!((stage.cases().await.len(), stage.stars().await), (0, 0));
}

#[tokio::test]
async fn b5_a_worker_that_died_after_its_claim_leaves_an_unknown_outcome() {
    let (stage, charge_id) = owed().await;
    // The claim of a worker that was killed: it may have called, and here it had.
    sqlx::query("UPDATE refund_tasks SET claimed_until = $1, attempts = 1")
        .bind(stage.app.clock.now() + TimeDelta::seconds(60))
        .execute(&mut stage.app.superuser().await)
        .await
        .unwrap();
    stage.api.charge_back(&charge_id);
    assert_eq!(stage.give_back().await, 0, "somebody has it");
    stage.later(TimeDelta::seconds(61)).await;
    assert_eq!(stage.give_back().await, 0, "the list comes first");
    assert_eq!(stage.tasks().await, ["checking"]);
    stage.reconcile().await;
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
    assert_eq!((stage.api.called("refundStarPayment"), stage.api.effects(&charge_id)), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b5_two_workers_share_the_tasks_and_call_once_for_each() {
    let stage = Stage::start().await;
    let mut charges = Vec::new();
    for number in 0..12 {
        let order_id = format!("o{number}");
        let slot_id = stage.slot(100 + number).await;
        stage.order(&order_id, slot_id, ALICE).await;
        charges.push(stage.paid(ALICE, &order_id).await);
    }
    // Past the job's own leader lock, as two processes would be in the moment in which one follows the other.
    let (one, two) = tokio::join!(stage.app.app.telegram.give_back(), stage.app.app.telegram.give_back());
    assert_eq!(one.unwrap() + two.unwrap(), 12);
    assert_eq!(stage.api.called("refundStarPayment"), 12);
    assert!(charges.iter().all(|charge_id| stage.api.effects(charge_id) == 1));
    assert_eq!(stage.stars().await, 0);
}

#[tokio::test]
async fn c103_a_refund_that_couldnt_be_written_down_is_found_in_the_list() {
    let (stage, charge_id) = owed().await;
    let mut intruder = stage.app.superuser().await;
    crate::support::intruder::run(
        &mut intruder,
        "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'broken'; END$$;
         CREATE TRIGGER broken AFTER INSERT ON wallet_transactions EXECUTE FUNCTION broken()",
    )
    .await;
    assert!(Job::TelegramRefunds.run(&stage.app.app).await.is_err());
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, PRICE));
    crate::support::intruder::run(&mut intruder, "DROP TRIGGER broken ON wallet_transactions").await;
    stage.reconcile().await;
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
    assert_eq!(stage.api.effects(&charge_id), 1);
    stage.is_sound().await;
}

#[tokio::test]
async fn l4_money_that_is_set_aside_isnt_anybodys_to_spend() {
    let (stage, _) = owed().await;
    let body = json!({ "transactions": [{ "tenant_id": "acme", "currency": "XTR", "kind": "purchase",
                                          "amount": "-1", "reference": "r" }] });
    let (status, problem) = stage.app.post_with_key("/v1/transactions/batch", "k", &body).await;
    assert_eq!((status.as_u16(), &problem["code"]), (402, &json!("insufficient_funds")), "{problem}");
    stage.give_back().await;
    assert_eq!(stage.stars().await, 0);
}
