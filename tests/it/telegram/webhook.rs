//! What comes to the webhook from strangers, from Telegram's future and from broken machines: a stranger writes
//! nothing, an unknown update is done with, and a payment that can't be read is kept and never swallowed.

use chrono::TimeDelta;
use hamyon::money::CurrencyCode;
use serde_json::{Value, json};

use super::{ALICE, BOT, OTHER_BOT, OTHER_SECRET, PRICE, SECRET, Stage, gone_back, paid, pre_checkout, said, send};
use crate::support::TestApp;
use crate::support::app::entry;

async fn raw(app: &TestApp, secret: Option<&[u8]>, body: &[u8]) -> u16 {
    let mut request = app.client.post(app.url("/telegram/webhook")).body(body.to_vec());
    if let Some(secret) = secret {
        request = request.header("X-Telegram-Bot-Api-Secret-Token", secret);
    }
    request.send().await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn a_wrong_or_missing_secret_is_401_and_writes_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let before = stage.app.everything_written().await;
    let (_, update) = stage.pays(ALICE, "a", PRICE);
    let body = update.to_string();
    let half = &SECRET.as_bytes()[..SECRET.len() - 1];
    let longer = format!("{SECRET}x");
    for secret in [None, Some(b"".as_slice()), Some(b"wrong"), Some(half), Some(longer.as_bytes()), Some(b"\xff")] {
        for body in [body.as_bytes(), b"not JSON", b""] {
            assert_eq!(raw(&stage.app, secret, body).await, 401, "{secret:?}");
        }
    }
    assert_eq!(stage.app.everything_written().await, before);
    assert_eq!(stage.app.count("SELECT count(*) FROM provider_calls").await, 0);
}

#[tokio::test]
async fn without_a_bot_nobody_gets_in() {
    let app = TestApp::start().await;
    for secret in [None, Some(b"".as_slice()), Some(SECRET.as_bytes())] {
        assert_eq!(raw(&app, secret, b"{}").await, 401);
    }
}

#[tokio::test]
async fn an_update_about_anything_else_is_done_with_and_not_kept() {
    let stage = Stage::start().await;
    let before = stage.app.everything_written().await;
    for update in [
        json!({ "update_id": 1 }),
        json!({ "update_id": 2, "message": { "message_id": 1, "text": "hello" } }),
        json!({ "update_id": 3, "message": "a kind that Telegram may have one day" }),
        json!({ "update_id": 4, "something_new": { "with": ["members"] }, "another": null }),
        json!({ "update_id": 5, "edited_message": { "date": 1, "text": "successful_payment" } }),
        json!({ "update_id": 9_000_000_000_i64, "inline_query": { "id": "1", "query": "\u{0}" } }),
    ] {
        assert_eq!(raw(&stage.app, Some(SECRET.as_bytes()), update.to_string().as_bytes()).await, 200, "{update}");
    }
    assert_eq!(stage.app.everything_written().await, before, "nobody's messages are kept");
}

fn without(mut update: Value, pointer: &str, member: &str) -> Value {
    update.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object").remove(member);
    update
}

fn with(mut update: Value, pointer: &str, value: Value) -> Value {
    *update.pointer_mut(pointer).expect("a member") = value;
    update
}

#[tokio::test]
async fn a_payments_update_that_cant_be_read_is_kept_alarmed_and_sent_again() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let whole = paid(1, ALICE, "a", PRICE, "c", stage.app.clock.now());
    let query = pre_checkout(2, "q", ALICE, "a", PRICE);
    let back = gone_back(3, ALICE, "a", PRICE, "c");
    let payment = "/message/successful_payment";
    let mut broken: Vec<Vec<u8>> = [
        without(whole.clone(), payment, "telegram_payment_charge_id"),
        without(whole.clone(), payment, "total_amount"),
        without(whole.clone(), payment, "currency"),
        without(whole.clone(), payment, "invoice_payload"),
        without(whole.clone(), "/message", "from"),
        without(whole.clone(), "/message", "date"),
        without(whole.clone(), "", "update_id"),
        with(whole.clone(), "/message/successful_payment/total_amount", json!(250.0)),
        with(whole.clone(), "/message/successful_payment/total_amount", json!("250")),
        with(whole.clone(), "/message/successful_payment/total_amount", json!(u64::MAX)),
        with(whole.clone(), "/message/successful_payment/telegram_payment_charge_id", json!("")),
        with(whole.clone(), "/message/successful_payment/telegram_payment_charge_id", json!("x".repeat(513))),
        with(whole.clone(), "/message/successful_payment/telegram_payment_charge_id", json!("a\u{0}b")),
        with(whole.clone(), "/message/from/id", json!("me")),
        with(whole.clone(), "/message/date", json!(i64::MAX)),
        with(whole.clone(), "/message/successful_payment", json!([])),
        with(whole.clone(), "/update_id", json!("one")),
        without(query.clone(), "/pre_checkout_query", "id"),
        without(query.clone(), "/pre_checkout_query", "from"),
        with(query, "/pre_checkout_query", Value::Null),
        without(back, "/message/refunded_payment", "telegram_payment_charge_id"),
        json!([]),
        json!("text"),
    ]
    .iter()
    .map(|update| update.to_string().into_bytes())
    .collect();
    broken.extend([b"not JSON".to_vec(), b"".to_vec(), b"\xff\xfe{".to_vec(), b"{\"update_id\":1".to_vec()]);
    for (number, body) in broken.iter().enumerate() {
        for _ in 0..2 {
            let status = raw(&stage.app, Some(SECRET.as_bytes()), body).await;
            assert_eq!(status, 500, "{}", String::from_utf8_lossy(body));
        }
        let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM telegram_unread_updates WHERE body = $1")
            .bind(body)
            .fetch_one(&mut stage.app.superuser().await)
            .await
            .unwrap();
        assert_eq!(kept, 1, "number {number} is kept once: {}", String::from_utf8_lossy(body));
    }
    assert_eq!(stage.cases().await, vec!["unread_update"; broken.len()]);
    assert_eq!(stage.app.count("SELECT count(*) FROM payments").await, 0);
    assert_eq!(stage.app.count("SELECT count(*) FROM checkouts").await, 0);
    // The one that can be read is taken.
    stage.tells(&whole).await;
    assert_eq!(stage.app.count("SELECT count(*) FROM receipts").await, 1);
}

#[tokio::test]
async fn a_payment_in_another_envelope_is_a_payment_all_the_same() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let (charge_id, mut update) = stage.pays(ALICE, "a", PRICE);
    let message = update.as_object_mut().unwrap().remove("message").unwrap();
    update["business_message"] = message;
    update["business_message"]["something_new"] = json!({ "deep": [1, 2, 3] });
    update["business_message"]["successful_payment"]["is_recurring"] = json!(true);
    stage.tells(&update).await;
    stage.is_booked(&charge_id).await;
}

#[tokio::test]
async fn two_bots_with_the_same_numbers_are_two() {
    // The bot's id is part of every key: query ids, charges and updates of two bots may be equal.
    let stage = Stage::start().await;
    let (one, two) = (stage.slot(100).await, stage.slot(200).await);
    stage.order("a", one, ALICE).await;
    stage.order("b", two, ALICE).await;
    let now = stage.app.clock.now();
    for (secret, order_id) in [(SECRET, "a"), (OTHER_SECRET, "b")] {
        let (_, answer) = send(&stage.app, secret, &pre_checkout(1, "same", ALICE, order_id, PRICE)).await;
        assert_eq!(said("same", &answer), None);
        let (status, _) = send(&stage.app, secret, &paid(2, ALICE, order_id, PRICE, "same-charge", now)).await;
        assert_eq!(status, 200);
    }
    assert_eq!(stage.owner(one).await.as_deref(), Some("a"));
    assert_eq!(stage.owner(two).await.as_deref(), Some("b"));
    let names: Vec<String> = sqlx::query_scalar("SELECT external_id FROM payments ORDER BY payment_id")
        .fetch_all(&mut stage.app.superuser().await)
        .await
        .unwrap();
    assert_eq!(names, [format!("{BOT}:same-charge"), format!("{OTHER_BOT}:same-charge")]);
    assert_eq!(stage.app.count("SELECT count(*) FROM telegram_updates").await, 4);
}

#[tokio::test]
async fn an_update_about_a_payment_is_kept_as_it_came() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let query = stage.query("q", ALICE, "a");
    send(&stage.app, SECRET, &query).await;
    let (charge_id, update) = stage.pays(ALICE, "a", PRICE);
    stage.tells(&update).await;
    stage.api.charge_back(&charge_id);
    let back = gone_back(5_000, ALICE, "a", PRICE, &charge_id);
    stage.tells(&back).await;
    let kept: Vec<(String, String)> = sqlx::query_as("SELECT kind, body FROM telegram_updates ORDER BY update_id")
        .fetch_all(&mut stage.app.superuser().await)
        .await
        .unwrap();
    let expected: Vec<(String, String)> =
        [("pre_checkout_query", query), ("successful_payment", update), ("refunded_payment", back)]
            .into_iter()
            .map(|(kind, update)| (kind.to_owned(), update.to_string()))
            .collect();
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn a_refund_of_a_payment_that_we_havent_heard_of_is_sent_again_until_we_have() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let (charge_id, update) = stage.pays(ALICE, "a", PRICE);
    stage.api.charge_back(&charge_id);
    let back = gone_back(5_000, ALICE, "a", PRICE, &charge_id);
    for _ in 0..2 {
        assert_eq!(send(&stage.app, SECRET, &back).await.0, 500);
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM payments").await, 0);
    assert_eq!(stage.app.count("SELECT count(*) FROM telegram_updates").await, 1, "and it is kept");
    stage.tells(&update).await;
    stage.tells(&back).await;
    assert_eq!((stage.tasks().await, stage.stars().await), (vec!["refunded".to_owned()], 0));
    assert_eq!(stage.give_back().await, 0, "nothing is left to call for");
    stage.is_sound().await;
}

#[tokio::test]
async fn a_refund_of_what_was_sold_before_the_book_began_doesnt_hold_up_the_payers_messages() {
    // One failing message blocks a chat's later ones for a day; once the list was read past it, it is known to be
    // none of ours.
    let stage = Stage::start().await;
    let back = gone_back(5_000, ALICE, "an old invoice", 30, "a-charge-of-last-year");
    assert_eq!(send(&stage.app, SECRET, &back).await.0, 500);
    stage.reconcile().await;
    assert_eq!(send(&stage.app, SECRET, &back).await.0, 500, "the list is of the same moment, not past it");
    stage.later(TimeDelta::minutes(1)).await;
    stage.reconcile().await;
    stage.tells(&back).await;
    assert_eq!((stage.cases().await.len(), stage.rows().await.len()), (0, 0));
}

#[tokio::test]
async fn an_update_that_the_ledger_refuses_is_kept_and_alarmed_and_books_nothing() {
    let stage = Stage::start().await;
    let now = stage.app.clock.now();
    stage.tells(&paid(1, ALICE, "nothing", PRICE, "c1", now)).await;
    // The ledger has another row of that name; nothing but a door behind ours could have put it there.
    let mut there = entry("unmatched:telegram", "top_up", 7, &format!("telegram:{BOT}:c2"));
    there.currency = CurrencyCode::parse("XTR").unwrap();
    stage.app.post_entries(&[there]).await.expect("planted");
    let beyond = paid(2, ALICE, "nothing", PRICE, "c2", now);
    for _ in 0..2 {
        assert_eq!(send(&stage.app, SECRET, &beyond).await.0, 500);
    }
    assert_eq!(stage.cases().await, ["mismatch", "unread_update"]);
    let (_, page) = stage.app.get("/v1/payment-cases?open=true").await;
    let why = page["items"][0]["why"].as_str().expect("words");
    assert!(why.contains("can't be booked"), "{why}");
    let kept: String = sqlx::query_scalar("SELECT convert_from(body, 'UTF8') FROM telegram_unread_updates")
        .fetch_one(&mut stage.app.superuser().await)
        .await
        .unwrap();
    assert_eq!(kept, beyond.to_string());
    assert_eq!((stage.stars().await, stage.app.count("SELECT count(*) FROM payments").await), (PRICE + 7, 1));
}

#[tokio::test]
async fn money_of_nothing_or_of_another_currency_is_a_persons_and_its_case_says_which() {
    let stage = Stage::start().await;
    let now = stage.app.clock.now();
    let mut dollars = paid(3, ALICE, "nothing", 5, "c3", now);
    dollars["message"]["successful_payment"]["currency"] = json!("USD");
    for (update, words) in [
        (paid(1, ALICE, "nothing", 0, "c1", now), "more than nothing"),
        (paid(2, ALICE, "nothing", -5, "c2", now), "more than nothing"),
        (dollars, "another currency"),
    ] {
        stage.tells(&update).await;
        let (_, page) = stage.app.get("/v1/payment-cases?open=true").await;
        let why = page["items"][0]["why"].as_str().expect("words").to_owned();
        assert!(why.contains(words), "{why}");
    }
    assert_eq!((stage.rows().await.len(), stage.cases().await), (0, vec!["foreign_currency".to_owned(); 3]));
}

#[tokio::test]
async fn a_charge_that_is_told_again_with_another_content_books_nothing_and_is_a_case() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let now = stage.app.clock.now();
    let first = paid(1, ALICE, "t", PRICE, "c1", now);
    stage.tells(&first).await;
    stage.tells(&first).await;
    assert_eq!(stage.cases().await, [""; 0], "the same again is nothing");
    let rows = stage.rows().await;
    for (number, update) in [
        paid(2, ALICE, "t", PRICE + 1, "c1", now),
        paid(3, ALICE, "another", PRICE, "c1", now),
        paid(4, super::BOB, "t", PRICE, "c1", now),
    ]
    .iter()
    .enumerate()
    {
        stage.tells(update).await;
        assert_eq!((stage.rows().await, stage.cases().await.len()), (rows.clone(), 1), "{number}");
    }
    let (_, page) = stage.app.get("/v1/payment-cases?open=true").await;
    let why = page["items"][0]["why"].as_str().expect("words");
    assert!(why.contains("250 XTR") && why.contains("251 XTR"), "{why}");
}

#[tokio::test]
async fn b4_a_payment_whose_id_is_as_long_as_they_come_is_booked() {
    // Telegram names no bound. Ids of 131 characters were seen, and they grow.
    let stage = Stage::start().await;
    for (number, length) in [(1, 131), (2, 153), (3, 255), (4, 512)] {
        let order_id = format!("t{length}");
        stage.top_up_order(&order_id, ALICE, PRICE).await;
        let charge_id = "x".repeat(length);
        let update = paid(number, ALICE, &order_id, PRICE, &charge_id, stage.app.clock.now());
        let (status, answer) = super::send(&stage.app, SECRET, &update).await;
        assert_eq!(status, 200, "{length}: {answer}");
        assert_eq!(stage.decision(&charge_id).await.0, "credited");
    }
    assert_eq!(stage.stars().await, 4 * PRICE);
    assert!(stage.app.verify().await.is_clean());
}

#[tokio::test]
async fn b4_a_sum_that_nobody_pays_takes_no_room_from_the_payments_of_others() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let now = stage.app.clock.now();
    for (number, order_id, stars, charge_id) in
        [(1, "nobody's", i64::MAX, "absurd"), (2, "t", 10_000_000_001, "much"), (3, "nobody's", 30, "small")]
    {
        let (status, answer) =
            super::send(&stage.app, SECRET, &paid(number, ALICE, order_id, stars, charge_id, now)).await;
        assert_eq!(status, 200, "{charge_id}: {answer}");
    }
    let charge_id = stage.paid(ALICE, "t").await;
    assert_eq!(stage.decision(&charge_id).await.0, "credited");
    assert_eq!(stage.cases().await, ["foreign_currency", "foreign_currency", "mismatch"]);
    assert_eq!(stage.stars().await, PRICE + 30);
}

#[tokio::test]
async fn b5_a_part_of_a_payment_that_goes_back_is_a_case_and_no_reversal_of_all_of_it() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let charge_id = stage.paid(ALICE, "t").await;
    let before = stage.rows().await;
    for (number, stars) in [(100, PRICE - 1), (101, PRICE + 1), (102, PRICE - 1)] {
        let (status, answer) = super::send(&stage.app, SECRET, &gone_back(number, ALICE, "t", stars, &charge_id)).await;
        assert_eq!(status, 200, "{stars}: {answer}");
    }
    assert_eq!(stage.rows().await, before);
    assert_eq!(stage.cases().await, ["unread_update"], "once");
    let (status, answer) = super::send(&stage.app, SECRET, &gone_back(103, ALICE, "t", PRICE, &charge_id)).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(stage.stars().await, 0);
}
