//! Rules L5 and L6: one event, one row; one key, one effect, one answer, for ever. A repeat that is booked
//! again takes a customer's money twice.

use std::collections::HashSet;

use chrono::TimeDelta;
use hamyon::fault::Error;
use hamyon::ids::ClientName;
use hamyon::ledger::Refusal;
use hamyon::token::{self, Scope};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Answer, Call, batch, posting};
use crate::support::app::entry;

const BATCH: &str = "/v1/transactions/batch";

async fn post(app: &TestApp, key: &str, body: &Value) -> Answer {
    Call::new("POST", BATCH).token(&app.token).key(key).json(body).send(app).await
}

/// A token of another program.
pub async fn token_of(app: &TestApp, client: &str) -> String {
    let token = token::generate();
    let mut conn = app.app.db.pool().acquire().await.expect("a connection");
    let client = ClientName::parse(client).expect("a client");
    token::store(&mut conn, &token, &client, &Scope::ALL, None, app.clock.now()).await.expect("a token");
    token.expose_secret().to_owned()
}

async fn rows(app: &TestApp) -> i64 {
    app.count("SELECT count(*) FROM wallet_transactions").await
}

#[tokio::test]
async fn l5_an_event_that_is_booked_is_refused_and_its_row_is_named() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.tenant("other").await;
    app.fund("acme", 100).await;
    let event = batch(&[posting("acme", "bonus", "1", "event")]);
    assert_eq!(post(&app, "first", &event).await.status, 201);
    let before = app.everything_written().await;

    let problem = post(&app, "another-key", &event).await.refused(409, "already_booked", "the same event");
    assert_eq!((&problem["transaction"], &problem["index"]), (&json!(2), &json!(0)));
    // Another amount, pocket or sign is the same event still.
    let mut other = posting("acme", "bonus", "-0.5", "event");
    other["pocket"] = json!("promo");
    let third = batch(&[posting("acme", "bonus", "1", "new"), other]);
    let problem = post(&app, "third", &third).await.refused(409, "already_booked", "in another shape");
    assert_eq!((&problem["transaction"], &problem["index"]), (&json!(2), &json!(1)));
    // Through the door itself, past the API.
    let refused = app.post_entries(&[entry("acme", "bonus", 1, "event")]).await.expect_err("booked");
    assert!(matches!(refused, Error::Refused(Refusal::AlreadyBooked { seq: 2, index: 0, .. })), "{refused:?}");
    // Twice in one batch.
    let twice = batch(&[posting("acme", "bonus", "1", "twin"), posting("acme", "bonus", "2", "twin")]);
    assert_eq!(post(&app, "twice", &twice).await.refused(409, "twice_in_batch", "twice")["index"], 1);
    assert_eq!(app.everything_written().await, before);

    // Another kind, another wallet or another currency is another event.
    let mut dollars = posting("acme", "bonus", "1", "event");
    dollars["currency"] = json!("USD");
    let others = batch(&[posting("acme", "gift", "1", "event"), posting("other", "bonus", "1", "event"), dollars]);
    assert_eq!(post(&app, "others", &others).await.status, 201);
}

#[tokio::test]
async fn l5_a_top_up_of_a_provider_and_an_imported_one_are_the_same_event() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let id = "5305e3bab097f420a62ced0b";
    app.payme_created(id, "acme", 500_000).await;
    let performed = app.payme("PerformTransaction", json!({ "id": id })).await;
    assert_eq!(performed["result"]["state"], 2, "{performed}");
    let import = batch(&[posting("acme", "top_up", "5000", &format!("payme:{id}"))]);
    assert_eq!(post(&app, "import", &import).await.refused(409, "already_booked", "imported")["transaction"], 1);
    assert_eq!(app.sum("acme").await, 500_000);
}

#[tokio::test]
async fn l6_the_same_request_gets_the_same_bytes_for_ever() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let body = batch(&[posting("acme", "bonus", "10.5", "o‘n"), posting("acme", "purchase", "-3", "x")]);
    let first = post(&app, "K1", &body).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (201, None), "{}", first.text());
    assert_eq!(first.header("content-type"), Some("application/json"));
    let written = app.everything_written().await;
    for days in [0, 1, 40, 4_000] {
        app.clock.advance(TimeDelta::days(days));
        // A repeat that is written another way is the same request.
        for text in [body.to_string(), serde_json::to_string_pretty(&body).expect("JSON")] {
            let call = Call::new("POST", BATCH).token(&app.token).key("K1");
            let again = call.content_type("application/json; charset=utf-8").bytes(text).send(&app).await;
            assert_eq!((again.status, &again.bytes), (first.status, &first.bytes), "after {days} more days");
            assert_eq!(again.header("content-type"), first.header("content-type"));
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
        }
    }
    assert_eq!(app.everything_written().await, written);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_c11_thirty_two_identical_requests_at_once_have_one_effect_and_one_answer() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let body = batch(&[posting("acme", "top_up", "10", "once"), posting("acme", "purchase", "-4", "once")]);
    let answers = futures::future::join_all((0..32).map(|_| post(&app, "K1", &body))).await;
    let distinct: HashSet<_> = answers.iter().map(|answer| (answer.status, answer.bytes.clone())).collect();
    assert_eq!(distinct.len(), 1, "{distinct:?}");
    assert_eq!(answers[0].status, 201);
    let fresh = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none()).count();
    assert_eq!(fresh, 1, "one did it, the others heard of it");
    assert_eq!((rows(&app).await, app.sum("acme").await), (2, 600));
}

#[tokio::test]
async fn l6_c1_a_key_that_stands_for_another_request_is_a_conflict_that_names_the_fields() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.tenant("other").await;
    let mut second = posting("acme", "bonus", "2", "b");
    second["metadata"] = json!({ "order": { "lines": [1, 2] }, "note": null });
    let body = batch(&[posting("acme", "bonus", "1", "a"), second]);
    assert_eq!(post(&app, "K1", &body).await.status, 201);
    let before = app.everything_written().await;
    let mut cases: Vec<(&str, Value, Vec<&str>)> = Vec::new();
    let mut change = |fields: &[&'static str], change: &dyn Fn(&mut Value)| {
        let mut changed = body.clone();
        change(&mut changed["transactions"]);
        cases.push((fields[0], changed, fields.to_vec()));
    };
    change(&["transactions[1].amount"], &|items| items[1]["amount"] = json!("3"));
    // The same amount in other words is another request, since only the bytes are known to be meant.
    change(&["transactions[1].amount"], &|items| items[1]["amount"] = json!("2.0"));
    change(&["transactions[0].reference", "transactions[1].amount"], &|items| {
        items[0]["reference"] = json!("c");
        items[1]["amount"] = json!("3");
    });
    change(&["transactions[0].tenant_id"], &|items| items[0]["tenant_id"] = json!("other"));
    change(&["transactions[0].pocket"], &|items| items[0]["pocket"] = json!("promo"));
    change(&["transactions[0].pocket"], &|items| items[0]["pocket"] = Value::Null);
    change(&["transactions[0].reason"], &|items| {
        items[0].as_object_mut().expect("an item").remove("reason");
    });
    change(&["transactions[1].metadata.order.lines[1]"], &|items| items[1]["metadata"]["order"]["lines"][1] = json!(3));
    change(&["transactions[1].metadata.order.lines[1]"], &|items| {
        items[1]["metadata"]["order"]["lines"][1] = json!(2.0);
    });
    change(&["transactions[1].metadata.order.lines"], &|items| items[1]["metadata"]["order"]["lines"] = json!([1]));
    change(&["transactions[1].metadata.note"], &|items| {
        items[1]["metadata"].as_object_mut().expect("metadata").remove("note");
    });
    change(&["transactions"], &|items| {
        items.as_array_mut().expect("items").pop();
    });
    for (about, changed, fields) in cases {
        let problem = post(&app, "K1", &changed).await.refused(409, "idempotency_key_reused", about);
        assert_eq!((&problem["fields"], &problem["idempotency_key"]), (&json!(fields), &json!("K1")), "{problem}");
        for field in fields {
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(field)), "{problem}");
        }
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(post(&app, "K1", &body).await.header("idempotency-replayed"), Some("true"), "the first request stands");
}

#[tokio::test]
async fn l6_c3_two_programs_may_choose_the_same_key_and_one_with_a_new_token_keeps_its_own() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.tenant("other").await;
    let shop = token_of(&app, "shop").await;
    let desk = token_of(&app, "desk").await;
    let send =
        async |token: &str, body: &Value| Call::new("POST", BATCH).token(token).key("K1").json(body).send(&app).await;
    let first = send(&shop, &batch(&[posting("acme", "bonus", "1", "shop")])).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(send(&desk, &batch(&[posting("other", "bonus", "1", "desk")])).await.status, 201);
    let renewed = token_of(&app, "shop").await;
    let again = send(&renewed, &batch(&[posting("acme", "bonus", "1", "shop")])).await;
    assert_eq!((again.status, &again.bytes), (first.status, &first.bytes));
    assert_eq!(rows(&app).await, 2);
}

#[tokio::test]
async fn l6_c7_c9_two_honest_requests_that_look_alike_are_both_booked() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    for (key, reference) in [("K1", "credit-1"), ("K2", "credit-2")] {
        assert_eq!(post(&app, key, &batch(&[posting("acme", "bonus", "50", reference)])).await.status, 201);
    }
    assert_eq!(app.sum("acme").await, 10_000);
    assert_eq!(post(&app, "pay", &batch(&[posting("acme", "purchase", "-100", "pay")])).await.status, 201);
    for (key, reference) in [("R1", "refund-1"), ("R2", "refund-2")] {
        let mut refund = posting("acme", "refund", "30", reference);
        refund["transaction"] = json!(3);
        assert_eq!(post(&app, key, &batch(&[refund])).await.status, 201);
        app.clock.advance(TimeDelta::seconds(1));
    }
    assert_eq!(app.sum("acme").await, 6_000);
}

#[tokio::test]
async fn l6_c11_a_request_that_moves_money_without_a_key_is_refused() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let body = batch(&[posting("acme", "bonus", "1", "a")]);
    let before = app.everything_written().await;
    let call = || Call::new("POST", BATCH).token(&app.token).json(&body);
    call().send(&app).await.refused(400, "idempotency_key_missing", "no key");
    for key in ["", "two words", &"k".repeat(256), "\t"] {
        let problem = call().key(key).send(&app).await.refused(400, "invalid_request", key);
        assert_eq!(problem["field"], "Idempotency-Key");
    }
    assert_eq!(app.everything_written().await, before);
    let longest = "k".repeat(255);
    assert_eq!(call().key(&longest).send(&app).await.status, 201, "255 characters are a key");
    assert_eq!(call().key(&longest).send(&app).await.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn l6_a_request_given_two_keys_is_refused() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let before = app.everything_written().await;
    let body = batch(&[posting("acme", "bonus", "1", "a")]);
    let call = Call::new("POST", BATCH).token(&app.token).key("K1").key("K2").json(&body);
    call.send(&app).await.refused(400, "invalid_request", "which of the two is meant?");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn l6_a_refused_request_has_no_effect_and_binds_no_key() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let before = app.everything_written().await;
    let debit = batch(&[posting("acme", "purchase", "-5", "debit")]);
    post(&app, "K1", &debit).await.refused(402, "insufficient_funds", "nothing is there");
    post(&app, "K1", &debit).await.refused(402, "insufficient_funds", "still nothing");
    assert_eq!(app.everything_written().await, before);
    app.fund("acme", 500).await;
    let booked = post(&app, "K1", &debit).await;
    assert_eq!((booked.status.as_u16(), booked.header("idempotency-replayed")), (201, None), "asked anew");
    // And the key was free for another request altogether.
    post(&app, "K2", &debit).await.refused(409, "already_booked", "the debit is booked");
    assert_eq!(post(&app, "K2", &batch(&[posting("acme", "bonus", "1", "other")])).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l5_one_event_under_many_keys_at_once_is_booked_once() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let body = batch(&[posting("acme", "top_up", "10", "event")]);
    let keys: Vec<String> = (0..16).map(|number| format!("K{number}")).collect();
    let answers = futures::future::join_all(keys.iter().map(|key| post(&app, key, &body))).await;
    let booked = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!((booked, rows(&app).await), (1, 1));
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.refused(409, "already_booked", "the others")["transaction"], 1);
    }
}
