//! The bot's own list against the book: what we were never told, what went back without us, and whatever Telegram
//! may write into a list one day. Nothing is lost, nothing is booked twice, and one odd line stops no other.

use chrono::TimeDelta;
use hamyon::provider::telegram::wire::{Line, read_line};
use serde_json::{Value, json};

use super::{ALICE, BOB, BOT, PRICE, Stage};
use crate::support::fake_bot_api::Act;

#[tokio::test]
async fn b5_after_twenty_five_hours_without_a_webhook_every_payment_ends_booked_or_refunded() {
    let stage = Stage::start().await;
    // Alice was told yes and pays at once; Bob pays when his hold is over. We hear of neither.
    let (one, two) = (stage.slot(100).await, stage.slot(200).await);
    stage.order("a", one, ALICE).await;
    stage.order("b", two, BOB).await;
    stage.is_told_yes("qa", ALICE, "a").await;
    stage.is_told_yes("qb", BOB, "b").await;
    let (alices, _) = stage.pays(ALICE, "a", PRICE);
    stage.later(TimeDelta::minutes(6)).await;
    let (bobs, _) = stage.pays(BOB, "b", PRICE);
    stage.later(TimeDelta::hours(25)).await;
    assert_eq!(stage.reconcile().await, 2);
    for charge_id in [&alices, &bobs] {
        stage.goes_back(charge_id, "hold_over").await;
    }
    assert_eq!(stage.cases().await, ["lost_payment"; 2]);
    stage.give_back().await;
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned(); 2], 0));
    assert!(stage.api.is_refunded(&alices) && stage.api.is_refunded(&bobs));
    assert_eq!(stage.reconcile().await, 0);
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_a_payment_that_the_list_brings_in_time_is_booked_and_its_update_changes_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (charge_id, update) = stage.pays(ALICE, "a", PRICE);
    assert_eq!(stage.reconcile().await, 1);
    stage.is_booked(&charge_id).await;
    assert_eq!(stage.cases().await, [""; 0], "a payment on its way is no lost one");
    let rows = stage.rows().await;
    stage.tells(&update).await;
    assert_eq!(stage.rows().await, rows);
    let source: String =
        sqlx::query_scalar("SELECT source FROM receipts").fetch_one(&mut stage.app.superuser().await).await.unwrap();
    assert_eq!(source, "statement");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b5_the_list_and_the_webhook_at_once_book_once() {
    let stage = Stage::start().await;
    for round in 0..20 {
        let order_id = format!("o{round}");
        let slot_id = stage.slot(100 + round).await;
        stage.order(&order_id, slot_id, ALICE).await;
        stage.is_told_yes(&format!("q{round}"), ALICE, &order_id).await;
        let (charge_id, update) = stage.pays(ALICE, &order_id, PRICE);
        tokio::join!(stage.reconcile(), stage.tells(&update));
        stage.is_booked(&charge_id).await;
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM receipts").await, 20);
    assert_eq!(stage.stars().await, 0);
    stage.is_sound().await;
}

#[tokio::test]
async fn the_list_is_read_from_where_it_was_left_with_a_small_overlap() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    for _ in 0..250 {
        stage.api.pay(BOT, ALICE, "t", PRICE);
    }
    assert_eq!(stage.reconcile().await, 250);
    let offsets = |stage: &Stage| -> Vec<i64> {
        let calls = stage.api.calls();
        let of_the_first = calls.iter().filter(|call| call.method == "getStarTransactions" && call.bot == "111");
        of_the_first.map(|call| call.params["offset"].as_i64().expect("an offset")).collect()
    };
    assert_eq!(offsets(&stage), [0, 100, 200]);
    stage.api.pay(BOT, ALICE, "t", PRICE);
    assert_eq!(stage.reconcile().await, 1);
    assert_eq!(offsets(&stage), [0, 100, 200, 230]);
    assert_eq!(stage.app.count("SELECT count(*) FROM receipts").await, 251);
    assert_eq!(stage.app.count("SELECT lines_read FROM telegram_statements WHERE bot_id = 111").await, 251);
}

#[tokio::test]
async fn the_place_in_the_list_is_never_before_what_was_booked_and_never_behind_a_failed_page() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    for _ in 0..150 {
        stage.api.pay(BOT, ALICE, "t", PRICE);
    }
    let mut pages = 0;
    stage.api.fares(move |call| {
        pages += i32::from(call.method == "getStarTransactions" && call.bot == "111");
        if pages == 2 { Act::Refuse(500, "Internal Server Error") } else { Act::Do }
    });
    stage.reconcile().await;
    assert_eq!(stage.app.count("SELECT lines_read FROM telegram_statements WHERE bot_id = 111").await, 100);
    assert_eq!(stage.app.count("SELECT count(read_at) FROM telegram_statements WHERE bot_id = 111").await, 0);
    stage.api.fares(|_| Act::Do);
    assert_eq!(stage.reconcile().await, 50);
}

#[tokio::test]
async fn b5_a_chargeback_shows_in_the_list_only_and_is_a_persons() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.reconcile().await;
    stage.api.charge_back(&charge_id);
    stage.api.shift_balance(-1);
    stage.api.fares(|call| if call.bot == "222" { Act::Refuse(500, "Internal Server Error") } else { Act::Do });
    stage.later(TimeDelta::hours(1)).await;
    assert_eq!(stage.reconcile().await, 1);
    assert_eq!(stage.cases().await, ["unasked_refund", "negative_balance"]);
    stage.reconcile().await;
    assert_eq!(stage.cases().await.len(), 2, "once");
    assert_eq!(stage.stars().await, -PRICE, "the tenant's wallet owes what its slot cost");
    // A state that comes back is a case again; what happened once is not.
    for case in [1, 2] {
        let path = format!("/v1/payment-cases/{case}/resolve");
        let (status, answer) =
            stage.app.post_with_key(&path, &case.to_string(), &json!({ "resolution": "closed" })).await;
        assert_eq!(status, 200, "{answer}");
    }
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["negative_balance"]);
    stage.is_sound().await;
}

#[tokio::test]
async fn b5_what_a_bot_sold_before_the_book_began_is_nobodys_case_unless_it_names_an_order_of_ours() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let now = stage.app.clock.now();
    // Three sales of the bot's earlier life, one of them taken back, and one of an order that is ours.
    stage.api.set_now((now - TimeDelta::days(40)).timestamp());
    for _ in 0..2 {
        stage.api.pay(BOT, ALICE, "an old invoice", 30);
    }
    let old = stage.api.pay(BOT, BOB, "{\"sku\":17}", 30);
    // A name that a new order has, too, is no reason to let an old sale pay for it.
    stage.api.pay(BOT, ALICE, "t", PRICE);
    stage.api.charge_back(&old);
    // The product made its order, and somebody paid, a moment before anybody told us of the bot.
    stage.api.set_now((now - TimeDelta::minutes(1)).timestamp());
    stage.api.pay(BOT, ALICE, "t", PRICE);
    stage.later(TimeDelta::minutes(11)).await;
    assert_eq!(stage.reconcile().await, 1);
    assert_eq!(stage.cases().await, ["lost_payment"], "the one that is ours");
    assert_eq!(stage.stars().await, PRICE);
    // From the beginning of the book on everything counts.
    let (_, update) = stage.pays(BOB, "an old invoice", 30);
    drop(update);
    assert_eq!(stage.reconcile().await, 1);
    assert_eq!(stage.cases().await, ["lost_payment", "mismatch"]);
    assert_eq!(stage.reconcile().await, 0);
    stage.is_sound().await;
}

#[tokio::test]
async fn a_list_that_became_shorter_is_another_one_and_is_read_from_its_beginning() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    for _ in 0..30 {
        stage.api.pay(BOT, ALICE, "t", PRICE);
    }
    assert_eq!(stage.reconcile().await, 30);
    // The other end lost its memory, or is another server.
    stage.api.forget();
    let new = stage.api.pay(BOT, BOB, "nothing", PRICE);
    stage.reconcile().await;
    assert_eq!(stage.decision(&new).await.0, "person", "what the new list has isn't overlooked");
    assert!(stage.cases().await.contains(&"unread_line".to_owned()));
    let cases = stage.cases().await;
    stage.reconcile().await;
    assert_eq!(stage.cases().await, cases, "said once");
    for _ in 0..250 {
        stage.api.pay(BOT, ALICE, "t", PRICE);
    }
    assert_eq!(stage.reconcile().await, 250, "and it goes on");
}

#[tokio::test]
async fn a_books_beginning_stays_whoever_starts_later() {
    let stage = Stage::start().await;
    let begins = "SELECT count(DISTINCT begins_at) FROM telegram_statements WHERE begins_at IS NOT NULL";
    assert_eq!(stage.app.count("SELECT count(*) FROM telegram_statements").await, 2);
    assert_eq!(stage.app.count(begins).await, 1);
    stage.later(TimeDelta::days(9)).await;
    stage.app.app.telegram.begin().await.expect("it has begun");
    stage.reconcile().await;
    assert_eq!(stage.app.count(begins).await, 1);
    let mut owner = stage.app.superuser().await;
    let moved = sqlx::query("UPDATE telegram_statements SET begins_at = now()").execute(&mut owner).await;
    assert!(moved.is_err(), "not even its owner moves it");
}

#[tokio::test]
async fn one_odd_line_keeps_no_other_from_being_read() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let odd = [
        json!({ "id": "x1", "amount": 5, "date": 1, "source": { "type": "fragment" } }),
        json!({ "id": "x2", "amount": 5, "date": 1, "receiver": { "type": "fragment", "withdrawal_state": {} } }),
        json!({ "id": "x3", "amount": 5, "date": 1, "source": { "type": "telegram_ads" } }),
        json!({ "id": "x4", "amount": 5, "date": 1, "source": { "type": "a_new_kind", "user": 7 } }),
        json!({ "id": "x5", "amount": 5, "nanostar_amount": 500_000_000, "date": 1,
                "source": { "type": "affiliate_program", "commission_per_mille": 10 } }),
        json!({ "id": "x6", "amount": 5, "date": 1, "source": { "type": "user", "transaction_type": "gift_purchase",
                "user": { "id": 7 } } }),
        json!({ "id": "x7", "amount": 5, "date": 1 }),
        json!({ "id": "x8", "amount": 5, "date": 1, "receiver": { "type": "user", "user": { "id": 7 } } }),
        json!("not even an object"),
        json!(null),
    ];
    for line in odd {
        stage.api.add_line(BOT, line);
    }
    let broken = [
        json!({ "id": "y1", "amount": "5", "date": 1, "source": { "type": "user", "invoice_payload": "t",
                "transaction_type": "invoice_payment", "user": { "id": 7 } } }),
        json!({ "id": "y2", "amount": 5, "date": 1, "source": { "type": "user", "invoice_payload": "t" } }),
        json!({ "id": "y3", "amount": 5, "nanostar_amount": 1, "date": 1, "source": { "type": "user",
                "invoice_payload": "t", "user": { "id": 7 } } }),
        json!({ "amount": 5, "date": 1, "source": { "type": "user", "invoice_payload": "t", "user": { "id": 7 } } }),
    ];
    for line in broken {
        stage.api.add_line(BOT, line);
    }
    stage.api.pay(BOT, ALICE, "t", PRICE);
    stage.reconcile().await;
    assert_eq!(stage.app.count("SELECT count(*) FROM receipts").await, 1);
    assert_eq!(stage.cases().await, ["unread_line"; 4]);
    stage.reconcile().await;
    assert_eq!(stage.cases().await.len(), 4, "once");
}

#[test]
fn the_same_id_is_a_payment_when_it_comes_in_and_a_refund_when_it_goes_out() {
    let partner = json!({ "type": "user", "transaction_type": "invoice_payment", "invoice_payload": "a",
                          "user": { "id": 7 } });
    let line = |direction: &str| json!({ "id": "c", "amount": 5, "date": 1, direction: partner });
    assert!(matches!(read_line(&line("source")), Ok(Line::Paid(paid)) if paid.charge_id == "c" && paid.payer == 7));
    assert!(matches!(read_line(&line("receiver")), Ok(Line::GoneBack(gone)) if gone.charge_id == "c"));
    let mut both = line("source");
    both["receiver"] = partner.clone();
    assert_eq!(read_line(&both), Ok(Line::Other));
    let mut null = line("source");
    null["receiver"] = Value::Null;
    assert!(matches!(read_line(&null), Ok(Line::Paid(_))));
}

#[tokio::test]
async fn b5_what_the_list_knows_otherwise_than_the_book_is_a_case() {
    // At stake: an update that somebody else wrote is money in our book and none at Telegram.
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let charge_id = stage.api.pay(BOT, ALICE, "t", PRICE - 100);
    stage.tells(&super::paid(1, ALICE, "t", PRICE, &charge_id, stage.app.clock.now())).await;
    assert_eq!(stage.decision(&charge_id).await.0, "credited");
    let before = stage.rows().await;
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["unread_update"]);
    stage.reconcile().await;
    assert_eq!((stage.cases().await.len(), stage.rows().await), (1, before), "once, and nothing is booked");
}

#[tokio::test]
async fn b5_an_invoices_line_without_a_payload_is_a_case() {
    let stage = Stage::start().await;
    let date = stage.app.clock.now().timestamp();
    let user = json!({ "id": ALICE, "is_bot": false, "first_name": "Payer" });
    let source = json!({ "type": "user", "transaction_type": "invoice_payment", "user": user });
    stage.api.add_line(BOT, json!({ "id": "nameless", "amount": 5, "date": date, "source": source }));
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["unread_line"]);
}
