//! A person gives a payment back that is in the wallet (S1): the stars are set aside at once, so that nobody spends
//! them while Telegram is asked, and they go once.

use chrono::TimeDelta;
use hamyon::staff::Role;
use hamyon::support::{Limit, Limits};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{ALICE, PRICE, Stage};
use crate::support::console::Visitor;
use crate::support::fake_bot_api::Act;

/// A stage with a top-up in stars: its charge and our number of it.
async fn topped_up() -> (Stage, String, String) {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let charge_id = stage.paid(ALICE, "t").await;
    let payment_id = payment(&stage, &charge_id).await;
    (stage, charge_id, payment_id)
}

async fn payment(stage: &Stage, charge_id: &str) -> String {
    sqlx::query_scalar("SELECT payment_id::text FROM payments WHERE external_id LIKE '%:' || $1")
        .bind(charge_id)
        .fetch_one(&mut stage.app.superuser().await)
        .await
        .expect("a payment")
}

async fn ask(stage: &Stage, key: &str, payment_id: &str) -> (u16, Value) {
    let body = json!({ "payment_id": payment_id, "reason": "the wrong package" });
    let (status, answer) = stage.app.post_with_key("/v1/refund-tasks", key, &body).await;
    (status.as_u16(), answer)
}

async fn available(stage: &Stage) -> Value {
    stage.app.get("/v1/tenants/acme/balance?currency=XTR").await.1["available"].take()
}

/// A purchase in stars; the status.
async fn spend(stage: &Stage, stars: i64) -> u16 {
    let body = json!({ "transactions": [{ "tenant_id": "acme", "currency": "XTR", "kind": "purchase",
                                          "amount": format!("-{stars}"), "reference": format!("p{stars}") }] });
    stage.app.post_with_key("/v1/transactions/batch", &format!("p{stars}"), &body).await.0.as_u16()
}

#[tokio::test]
async fn s1_a_top_up_in_stars_goes_back_through_telegram_and_waits_where_nobody_spends_it() {
    let (stage, charge_id, payment_id) = topped_up().await;
    let (status, task) = ask(&stage, "k", &payment_id).await;
    assert_eq!((status, &task["status"], &task["payment_id"]), (201, &json!("waiting"), &json!(payment_id)), "{task}");
    assert_eq!(available(&stage).await, "0");
    assert_eq!(spend(&stage, 1).await, 402, "it is on its way");
    assert_eq!(ask(&stage, "k", &payment_id).await, (201, task), "the same key, the same answer");
    let (status, problem) = ask(&stage, "another", &payment_id).await;
    assert_eq!((status, &problem["code"]), (409, &json!("refund_asked")), "{problem}");
    stage.give_back().await;
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
    assert_eq!(stage.api.effects(&charge_id), 1);
    assert_eq!(
        stage.rows().await,
        ["top_up 250 main", "adjustment -250 main", "adjustment 250 set-aside", "top_up_reversal -250 set-aside"]
    );
    let (status, problem) = ask(&stage, "later", &payment_id).await;
    assert_eq!((status, &problem["code"]), (409, &json!("payment_gone")), "{problem}");
    let allowed = "SELECT count(*) FROM audit_log WHERE action = 'payment.give_back' AND allowed";
    let refused = "SELECT count(*) FROM audit_log WHERE action = 'payment.give_back' AND NOT allowed";
    assert_eq!((stage.app.count(allowed).await, stage.app.count(refused).await), (1, 2));
    let lines: Vec<(Option<String>, String)> =
        sqlx::query_as("SELECT tenant_id, words FROM audit_log WHERE action = 'payment.give_back'")
            .fetch_all(&mut stage.app.superuser().await)
            .await
            .unwrap();
    for (tenant_id, words) in lines {
        assert_eq!(tenant_id.as_deref(), Some("acme"), "{words}");
        assert!(words.contains(&format!("payment {payment_id}, telegram")) && words.contains("of 250 XTR"), "{words}");
        assert!(words.ends_with("reason \"the wrong package\""), "{words}");
    }
    stage.is_sound().await;
}

#[tokio::test]
async fn l4_what_was_spent_isnt_given_back_and_nothing_is_written() {
    let (stage, charge_id, payment_id) = topped_up().await;
    assert_eq!(spend(&stage, 1).await, 201);
    let rows = stage.rows().await;
    let (status, problem) = ask(&stage, "k", &payment_id).await;
    assert_eq!((status, &problem["code"]), (402, &json!("insufficient_funds")), "{problem}");
    assert_eq!((stage.rows().await, stage.tasks().await.len()), (rows, 0));
    stage.give_back().await;
    assert_eq!(stage.api.effects(&charge_id), 0);
}

#[tokio::test]
async fn what_cant_be_given_back_like_this_says_what_to_do_and_writes_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let booked = stage.paid(ALICE, "a").await;
    let booked = payment(&stage, &booked).await;
    let (_, update) = stage.pays(ALICE, "nothing", PRICE);
    stage.tells(&update).await;
    let set_aside: String = sqlx::query_scalar("SELECT max(payment_id)::text FROM payments")
        .fetch_one(&mut stage.app.superuser().await)
        .await
        .unwrap();
    stage.app.payme_created("5f00000000000000000000aa", "acme", 30_000_000).await;
    stage.app.payme("PerformTransaction", json!({ "id": "5f00000000000000000000aa" })).await;
    let payme: String = sqlx::query_scalar("SELECT payment_id::text FROM payments WHERE provider = 'payme'")
        .fetch_one(&mut stage.app.superuser().await)
        .await
        .unwrap();
    let before = stage.app.everything_written().await;
    for (payment_id, status, code) in [
        (booked.as_str(), 422, "goes_through_booking"),
        (&set_aside, 409, "case_open"),
        (&payme, 422, "goes_through_provider"),
        ("9999", 404, "payment_not_found"),
        ("9999999999999999999999", 400, "invalid_request"),
        ("one", 400, "invalid_request"),
    ] {
        let (answered, problem) = ask(&stage, "k", payment_id).await;
        assert_eq!((answered, &problem["code"]), (status, &json!(code)), "{problem}");
    }
    assert_eq!(stage.app.everything_written().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_many_who_give_the_same_payment_back_at_once_do_it_once() {
    let (stage, charge_id, payment_id) = topped_up().await;
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let answers = futures::future::join_all(keys.iter().map(|key| ask(&stage, key, &payment_id))).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|(status, _)| matches!(status, 201 | 409)), "{answers:?}");
    stage.give_back().await;
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, 0));
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_one_that_failed_and_was_kept_is_money_again_and_may_go_back_after_all() {
    let (stage, charge_id, payment_id) = topped_up().await;
    assert_eq!(ask(&stage, "k1", &payment_id).await.0, 201);
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    stage.give_back().await;
    let (status, problem) = ask(&stage, "k2", &payment_id).await;
    assert_eq!((status, &problem["code"]), (409, &json!("case_open")), "{problem}");
    let keep = json!({ "resolution": "keep" });
    assert_eq!(stage.app.post_with_key("/v1/payment-cases/1/resolve", "r", &keep).await.0, 200);
    assert_eq!(available(&stage).await, "250");
    stage.api.fares(|_| Act::Do);
    assert_eq!(ask(&stage, "k3", &payment_id).await.0, 201);
    stage.give_back().await;
    assert_eq!(stage.tasks().await, ["failed", "refunded"]);
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, 0));
    stage.is_sound().await;
}

#[tokio::test]
async fn money_that_a_person_put_into_another_wallet_isnt_taken_from_the_first() {
    let (stage, _, payment_id) = topped_up().await;
    stage.app.tenant("other").await;
    assert_eq!(ask(&stage, "k1", &payment_id).await.0, 201);
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    stage.give_back().await;
    let keep = json!({ "resolution": "keep", "tenant_id": "other" });
    assert_eq!(stage.app.post_with_key("/v1/payment-cases/1/resolve", "r", &keep).await.0, 200);
    stage.top_up_order("t2", ALICE, PRICE).await;
    stage.paid(ALICE, "t2").await;
    let (status, problem) = ask(&stage, "k2", &payment_id).await;
    assert_eq!((status, &problem["code"]), (422, &json!("kept_elsewhere")), "{problem}");
    assert_eq!(available(&stage).await, "250", "another payment's money");
}

#[tokio::test]
async fn s1_what_only_moved_inside_the_ledger_is_no_debit_that_anybody_gives_back() {
    // At stake: a leg of such a move alone would be money out of nothing: the payer has the stars, and so the wallet.
    let (stage, _, payment_id) = topped_up().await;
    stage.app.tenant("other").await;
    assert_eq!(ask(&stage, "k1", &payment_id).await.0, 201);
    let mut moved = out_legs(&stage).await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    stage.give_back().await;
    let keep = json!({ "resolution": "keep" });
    assert_eq!(stage.app.post_with_key("/v1/payment-cases/1/resolve", "r", &keep).await.0, 200);
    moved = out_legs(&stage).await.into_iter().chain(moved).collect();
    assert_eq!(moved.len(), 3, "one of the task, seen twice, and one of the case");
    let approver = Visitor::logged_in(&stage.app, "vera", Role::Approver).await;
    let before = stage.rows().await;
    for seq in moved {
        let refund = json!({ "transaction": seq, "amount": "250", "currency": "XTR", "reason": "asked nicely" });
        let (status, problem) = stage.app.post_with_key("/v1/tenants/acme/refunds", &format!("d{seq}"), &refund).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("original_unfit")), "{problem}");
        let row = json!({ "tenant_id": "acme", "currency": "XTR", "kind": "refund", "amount": "250", "reason": "r",
                          "reference": format!("r{seq}"), "transaction": seq });
        let body = json!({ "transactions": [row] });
        let (status, problem) = stage.app.post_with_key("/v1/transactions/batch", &format!("b{seq}"), &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("original_unfit")), "{problem}");
        let page = approver.get(&format!("/console/tenants/acme/XTR/{seq}")).await;
        assert!(page.has("−250") && !page.has("/refund/preview"), "no form offers it: {}", page.html);
    }
    assert_eq!(stage.rows().await, before);
    assert_eq!(available(&stage).await, "250");
}

/// The debits among the moves inside the ledger, by their numbers.
async fn out_legs(stage: &Stage) -> Vec<i64> {
    sqlx::query_scalar("SELECT seq FROM wallet_transactions WHERE kind = 'adjustment' AND amount < 0 ORDER BY seq")
        .fetch_all(&mut stage.app.superuser().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn b5_what_a_person_kept_and_the_payer_took_back_all_the_same_is_a_case() {
    // The refund that failed was decided about; that it was once asked for doesn't make a later chargeback ours.
    let (stage, charge_id, payment_id) = topped_up().await;
    assert_eq!(ask(&stage, "k1", &payment_id).await.0, 201);
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: USER_DEACTIVATED"));
    stage.give_back().await;
    let keep = json!({ "resolution": "keep" });
    assert_eq!(stage.app.post_with_key("/v1/payment-cases/1/resolve", "r", &keep).await.0, 200);
    stage.api.fares(|_| Act::Do);
    stage.later(TimeDelta::hours(1)).await;
    stage.api.charge_back(&charge_id);
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["unasked_refund"]);
    let (_, page) = stage.app.get("/v1/payment-cases?open=true").await;
    let why = page["items"][0]["why"].as_str().expect("words");
    assert!(why.contains("had decided that the money stays"), "{why}");
    assert_eq!((available(&stage).await, stage.stars().await), (json!("0"), 0));
    assert!(stage.rows().await.contains(&"top_up_reversal -250 main".to_owned()), "from where it was kept");
    stage.is_sound().await;
}

#[tokio::test]
async fn s2_an_approver_gives_back_from_the_rows_page_once_and_an_agent_only_reads() {
    let (stage, charge_id, payment_id) = topped_up().await;
    let agent = Visitor::logged_in(&stage.app, "agent", Role::Agent).await;
    let page = agent.get("/console/tenants/acme/XTR/1").await;
    assert!(page.has("Telegram") && !page.has("give-back"), "{}", page.html);
    let approver = Visitor::logged_in(&stage.app, "approver", Role::Approver).await;
    let page = approver.get("/console/tenants/acme/XTR/1").await;
    let path = format!("/console/payments/{payment_id}/give-back");
    assert!(page.has(&path), "{}", page.html);
    let key = page.hidden("key");
    for (fields, status) in [
        ([("reason", "  "), ("key", &*key)], StatusCode::BAD_REQUEST),
        ([("reason", "the wrong package"), ("key", &*key)], StatusCode::SEE_OTHER),
        ([("reason", "the wrong package"), ("key", &*key)], StatusCode::SEE_OTHER),
        ([("reason", "the wrong package"), ("key", "another-key")], StatusCode::CONFLICT),
    ] {
        let page = approver.send(&path, &fields).await;
        assert_eq!(page.status, status, "{fields:?} {}", page.html);
    }
    let page = approver.get("/console/tenants/acme/XTR/1").await;
    assert!(page.has("/console/refund-tasks") && !page.has(&path), "{}", page.html);
    stage.give_back().await;
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, 0));
}

#[tokio::test]
async fn what_a_cancelled_booking_kept_goes_back_once_the_desk_has_given_it_back() {
    let limit = || Limit::parse("XTR=1000").expect("a limit");
    let limits = Limits { agent: limit(), approver: limit(), request_hours: 24 };
    let stage = Stage::start_with(|settings| settings.support_limits = limits.into()).await;
    let slot_id = stage.slot(2).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let charge_id = stage.paid(ALICE, "a").await;
    let payment_id = payment(&stage, &charge_id).await;
    let cancel = |refund_to: Option<&str>| json!({ "reason": "ill", "refund": "none", "refund_to": refund_to });
    let (status, problem) = stage.app.post_with_key("/v1/bookings/1/cancel", "x", &cancel(Some("payer"))).await;
    assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_request")), "nothing is ignored");
    assert_eq!(stage.app.post_with_key("/v1/bookings/1/cancel", "c", &json!({ "reason": "ill" })).await.0, 200);
    let (status, problem) = ask(&stage, "k1", &payment_id).await;
    assert_eq!((status, &problem["code"]), (422, &json!("stays_spent")), "{problem}");
    let refund = json!({ "currency": "XTR", "transaction": 2, "amount": "250", "reason": "goodwill" });
    let (status, answer) = stage.app.post_with_key("/v1/tenants/acme/refunds", "r", &refund).await;
    assert!(status.is_success() && answer["status"] == "posted", "{answer}");
    assert_eq!(ask(&stage, "k2", &payment_id).await.0, 201);
    stage.give_back().await;
    assert_eq!((stage.api.effects(&charge_id), stage.stars().await), (1, 0));
    stage.is_sound().await;
}
