//! At stake: the same work under another id, and a session that goes on. Started work is never free, whoever takes its
//! place, and an answer about another hold is in that hold's own money (H4, H6, H9, H11).

use serde_json::{Value, json};

use super::Shop;
use crate::support::api::{Answer, Call};

fn outcome(answer: &Answer) -> (String, String) {
    let hold = answer.json();
    (hold["outcome"].as_str().unwrap().to_owned(), hold["hold_id"].as_str().unwrap().to_owned())
}

fn expect(outcome: &str, hold_id: &str) -> (String, String) {
    (outcome.to_owned(), hold_id.to_owned())
}

#[tokio::test]
async fn h11_a_new_job_in_a_session_asks_started_work_to_stop_and_that_work_is_paid() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let chat = json!({ "session": "chat-1" });
    shop.place("old", "20", chat.clone()).await;
    // It has begun, and its first call is on its way: nothing is reported yet.
    shop.start("old").await;
    assert_eq!(outcome(&shop.place("new", "20", chat.clone()).await), expect("placed", "new"));
    let old = shop.hold("old").await;
    assert_eq!(
        (&old["status"], &old["cancel_requested"], &old["live"]),
        (&json!("started"), &json!(true), &json!(true))
    );
    assert_eq!(shop.numbers("CREDIT").await, (100, 40, 60), "both are at work");
    // The worker hears it, reports its call and settles.
    assert_eq!(shop.act("old", "heartbeat", json!({})).await.json()["cancel_requested"], true);
    assert_eq!(shop.used("old", "call-1", 7_000).await.json()["stop"], true);
    let settled = shop.settle("old", "by_usage").await.json();
    assert_eq!((&settled["charged"], &settled["settled_by"]), (&json!("7"), &json!("worker")));
    // A third question: its predecessor hasn't begun, so it is over at once and costs nothing.
    assert_eq!(outcome(&shop.place("third", "20", chat).await), expect("placed", "third"));
    let new = shop.hold("new").await;
    assert_eq!(
        (&new["status"], &new["charged"], &new["settled_by"]),
        (&json!("released"), &json!("0"), &json!("successor"))
    );
    assert_eq!(shop.numbers("CREDIT").await, (93, 20, 73));
    shop.is_right().await;
}

#[tokio::test]
async fn h9_work_that_was_asked_to_stop_and_never_came_back_is_the_reconciler_s() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let chat = json!({ "session": "chat-1", "ttl_secs": 60 });
    shop.place("old", "20", chat.clone()).await;
    shop.start("old").await;
    shop.place("new", "10", json!({ "session": "chat-1", "ttl_secs": 100_000 })).await;
    shop.wait(61);
    // Its time is over, and it is in nobody's way.
    assert_eq!(shop.place("third", "10", chat).await.status, 201);
    assert_eq!(shop.hold("old").await["status"], "started");
    let done = shop.reconcile().await;
    assert_eq!((done.settled, done.usage_lost), (1, 1));
    assert_eq!(shop.hold("old").await["charged"], "20", "started work is never free");
    shop.is_right().await;
}

#[tokio::test]
async fn h1_work_that_is_asked_to_stop_still_counts_as_at_work() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let chat = json!({ "session": "chat-1", "max_in_flight": 1 });
    shop.place("old", "20", chat.clone()).await;
    shop.start("old").await;
    let before = shop.app.everything_written().await;
    shop.place("new", "20", chat.clone()).await.refused(429, "too_many_in_flight", "the old one is at work");
    assert_eq!(shop.app.everything_written().await, before, "who isn't let in takes nobody's place");
    assert_eq!(shop.hold("old").await["cancel_requested"], false);
    shop.act("old", "release", json!({})).await;
    assert_eq!(shop.place("new", "20", chat.clone()).await.status, 201);
    // One that hasn't begun makes room.
    assert_eq!(shop.place("newer", "20", chat).await.status, 201);
}

#[tokio::test]
async fn h11_a_job_that_is_asked_to_stop_is_no_double_of_the_same_question_asked_anew() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let ask = |question: &str| json!({ "session": "chat-1", "dedupe_key": question, "fingerprint": question });
    shop.place("first", "10", ask("one")).await;
    shop.start("first").await;
    assert_eq!(outcome(&shop.place("again", "10", ask("one")).await), expect("already_running", "first"));
    assert_eq!(outcome(&shop.place("second", "10", ask("two")).await), expect("placed", "second"));
    shop.start("second").await;
    // Back to the first question: whoever answers it is stopping.
    assert_eq!(outcome(&shop.place("third", "10", ask("one")).await), expect("placed", "third"));
    shop.start("third").await;
    // The same after a cancel that somebody asked for.
    shop.act("third", "cancel", json!({ "cooperative": true })).await;
    assert_eq!(outcome(&shop.place("fourth", "10", ask("one")).await), expect("placed", "fourth"));
    assert_eq!(shop.numbers("CREDIT").await, (100, 40, 60), "all of them are at work");
    for hold_id in ["first", "second", "third", "fourth"] {
        shop.used(hold_id, "call-1", 2_000).await;
        assert_eq!(shop.settle(hold_id, "by_usage").await.json()["charged"], "2", "{hold_id}");
    }
    shop.is_right().await;
}

#[tokio::test]
async fn h11_a_double_is_answered_in_its_own_currency() {
    let shop = Shop::open().await;
    shop.give("USD", "main", 5, None).await;
    shop.give("CREDIT", "main", 100, None).await;
    let place = async |currency: &str, hold_id: &str, amount: &str, more: Value, key: Option<&str>| {
        let mut body = json!({ "hold_id": hold_id, "tenant_id": "acme", "currency": currency, "amount": amount });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let call = Call::new("POST", "/v1/holds").token(&shop.app.token).json(&body);
        let call = if let Some(key) = key { call.key(key) } else { call };
        call.send(&shop.app).await
    };
    let said = |answer: &Answer| {
        let hold = answer.json();
        ["outcome", "hold_id", "currency", "amount", "cost_cap"].map(|name| hold[name].as_str().unwrap().to_owned())
    };
    for (found, name, more) in [
        ("already_running", "key", json!({ "dedupe_key": "one" })),
        ("duplicate", "print", json!({ "fingerprint": "one" })),
    ] {
        // Cents are found while credits are asked.
        let usd = format!("usd-{name}");
        assert_eq!(place("USD", &usd, "1.25", more.clone(), None).await.status, 201);
        for key in [None, Some(format!("{name}-1"))] {
            let double = place("CREDIT", &format!("x-{name}"), "20", more.clone(), key.as_deref()).await;
            assert_eq!(double.status, 200, "{}", double.text());
            assert_eq!(said(&double), [found, &usd, "USD", "1.25", "5.00"]);
            if key.is_some() {
                let again = place("CREDIT", &format!("x-{name}"), "20", more.clone(), key.as_deref()).await;
                assert_eq!(again.bytes, double.bytes, "what is kept with the key is what was said");
            }
        }
        shop.act(&usd, "cancel", json!({})).await;
        // And the other way round.
        let credits = format!("credits-{name}");
        assert_eq!(place("CREDIT", &credits, "20", more.clone(), None).await.status, 201);
        for key in [None, Some(format!("{name}-2"))] {
            let double = place("USD", &format!("y-{name}"), "1.25", more.clone(), key.as_deref()).await;
            assert_eq!(double.status, 200, "{}", double.text());
            assert_eq!(said(&double), [found, &credits, "CREDIT", "20", "100"]);
        }
        shop.act(&credits, "cancel", json!({})).await;
    }
}

#[tokio::test]
async fn h4_the_same_job_with_another_cost_cap_is_another_job() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let capped = |cap: &str| json!({ "cost_cap": cap });
    assert_eq!(shop.place("job-1", "10", capped("50")).await.json()["cost_cap"], "50");
    let before = shop.app.everything_written().await;
    for other in [capped("60"), json!({})] {
        let problem = shop.place("job-1", "10", other).await.refused(409, "hold_differs", "another cap");
        assert_eq!(problem["fields"], json!(["cost_cap"]));
    }
    assert_eq!(outcome(&shop.place("job-1", "10", capped("50")).await), expect("already_placed", "job-1"));
    assert_eq!(shop.app.everything_written().await, before);
    // A hold from before its cap was written down with what was asked can't say what differs.
    let mut intruder = crate::support::intruder::intruder(&shop.app).await;
    crate::support::intruder::run(&mut intruder, "UPDATE holds SET asked = (asked::jsonb - 'cost_cap')::text").await;
    assert_eq!(outcome(&shop.place("job-1", "10", capped("60")).await), expect("already_placed", "job-1"));
}
