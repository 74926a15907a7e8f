//! Rule F2: what has happened arrives, signed, at least once and in each tenant's order, whatever the receivers
//! do; and one receiver's trouble is nobody else's.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use standardwebhooks::Webhook;

use crate::support::TestApp;
use crate::support::hooks::{attempts, deliver, deliver_after, deliveries, happen, patient_for, register};
use crate::support::process::eventually;
use crate::support::receiver::{Receiver, Reply, hangs_up, nobody};

/// RFC 2104 in its own words: nothing here is shared with the library that signs.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[tokio::test]
async fn each_event_arrives_once_in_its_tenants_order_and_signed() {
    let app = TestApp::start().await;
    // The library that verifies looks at the machine's clock.
    let now: DateTime<Utc> = SystemTime::now().into();
    app.clock.advance(now.signed_duration_since(app.clock.now()));
    let receiver = Receiver::start().await;
    let (_, secret) = register(&app, &receiver.url()).await;
    for tenant in ["a", "b", "c"] {
        app.tenant(tenant).await;
        happen(&app, tenant, 1..=5).await;
    }
    assert_eq!(deliver(&app).await, 15);
    assert_eq!(deliver(&app).await, 0, "once");
    for tenant in ["a", "b", "c"] {
        assert_eq!(receiver.numbers(tenant), [1, 2, 3, 4, 5], "{tenant}");
    }
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("the scheme's prefix")).expect("base64");
    assert_eq!(key.len(), 32);
    for heard in receiver.heard() {
        Webhook::new(&secret).expect("a secret").verify(&heard.bytes, &heard.headers).expect("verified");
        let signed = format!("{}.{}.", heard.id(), heard.header("webhook-timestamp"));
        let by_hand = hmac_sha256(&key, &[signed.as_bytes(), &heard.bytes].concat());
        assert_eq!(heard.header("webhook-signature"), format!("v1,{}", STANDARD.encode(by_hand)));
        assert_eq!(heard.header("content-type"), "application/json");
        assert_eq!(heard.path, "/hooks");
        let body = heard.json();
        assert_eq!(body["type"], "payment.performed");
        assert_eq!(body.as_object().expect("an object").keys().collect::<Vec<_>>(), ["data", "timestamp", "type"]);
    }
    assert_eq!(deliveries(&app, "delivered").await.len(), 15);
    assert_eq!(attempts(&app).await, vec![(Some(204), None); 15]);
}

#[tokio::test]
async fn a_failed_event_keeps_its_id_and_its_tenants_order_and_holds_up_nobody_else() {
    let app = TestApp::start().await;
    let receiver = Receiver::start().await;
    register(&app, &receiver.url()).await;
    for tenant in ["a", "b"] {
        app.tenant(tenant).await;
        happen(&app, tenant, 1..=3).await;
    }
    receiver.answers(|heard| Reply::Status(if heard.tenant() == "a" { 500 } else { 200 }));
    assert_eq!(deliver(&app).await, 4);
    assert_eq!((receiver.numbers("a"), receiver.numbers("b")), (vec![1], vec![1, 2, 3]));
    assert_eq!(deliver_after(&app, 4).await, 0, "it isn't time yet");
    assert_eq!(deliver_after(&app, 1).await, 1);
    receiver.answers(|_| Reply::Status(204));
    assert_eq!(deliver_after(&app, 300).await, 3);
    assert_eq!(receiver.numbers("a"), [1, 1, 1, 2, 3]);
    let ids: Vec<String> = receiver
        .heard()
        .iter()
        .filter(|heard| heard.tenant() == "a")
        .map(super::support::receiver::Heard::id)
        .collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    let log = attempts(&app).await;
    assert_eq!(log.iter().filter(|row| row.1.as_deref() == Some("the receiver answered 500")).count(), 2, "{log:?}");
}

#[tokio::test]
async fn whatever_goes_wrong_is_recorded_and_tried_again() {
    let app = TestApp::start_with(patient_for(Duration::from_millis(300))).await;
    app.tenant("acme").await;
    let target = Receiver::start().await;
    let slow = Receiver::start().await;
    slow.answers(|_| Reply::Hold);
    let mut endpoints = vec![
        (register(&app, &nobody().await).await.0, None, "the receiver could not be reached"),
        (register(&app, &hangs_up().await).await.0, None, "the receiver could not be reached"),
        (register(&app, &slow.url()).await.0, None, "the receiver could not be reached"),
    ];
    for status in [301, 302, 303, 307, 308] {
        let receiver = Receiver::start().await;
        let to = target.url();
        receiver.answers(move |_| Reply::Redirect(status, to.clone()));
        endpoints.push((register(&app, &receiver.url()).await.0, Some(status), "a redirect is not followed"));
    }
    for status in [400, 404, 429, 500, 503] {
        let receiver = Receiver::start().await;
        receiver.answers(move |_| Reply::Status(status));
        endpoints.push((register(&app, &receiver.url()).await.0, Some(status), "the receiver answered"));
    }
    let good = Receiver::start().await;
    let (good_id, _) = register(&app, &good.url()).await;
    let endless = Receiver::start().await;
    endless.answers(|_| Reply::Endless);
    let (endless_id, _) = register(&app, &endless.url()).await;

    happen(&app, "acme", [1]).await;
    assert_eq!(deliver(&app).await, u64::try_from(endpoints.len() + 2).expect("few"));
    let waiting = deliveries(&app, "waiting").await;
    assert_eq!(waiting.len(), endpoints.len(), "{waiting:?}");
    for (endpoint_id, status, problem) in &endpoints {
        let row = waiting.iter().find(|row| row["endpoint_id"] == *endpoint_id).expect("it waits");
        assert_eq!((&row["last_status"], &row["attempts"]), (&json!(status), &json!(1)), "{row}");
        assert!(row["last_problem"].as_str().is_some_and(|text| text.starts_with(problem)), "{row}");
        assert!(!row.to_string().contains("/hooks"), "a URL may hold a secret: {row}");
    }
    // An answer's status counts, not its body.
    let arrived: Vec<_> = deliveries(&app, "delivered").await.iter().map(|row| row["endpoint_id"].clone()).collect();
    assert_eq!(arrived, [json!(good_id), json!(endless_id)]);
    assert_eq!(target.heard().len(), 0, "a redirect leads nowhere");
    slow.answers(|_| Reply::Status(204));
    deliver_after(&app, 5).await;
    assert_eq!(slow.heard().len(), 2);
    assert_eq!(good.heard().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_switched_off() {
    let app = TestApp::start().await;
    app.tenant("a").await;
    app.tenant("b").await;
    let receiver = Receiver::start().await;
    receiver.answers(|heard| Reply::Status(if heard.tenant() == "a" { 410 } else { 200 }));
    let (endpoint_id, _) = register(&app, &receiver.url()).await;
    happen(&app, "a", [1, 2]).await;
    assert_eq!(deliver(&app).await, 1);
    happen(&app, "b", [3]).await;
    assert_eq!(deliver_after(&app, 100_000).await, 0, "no more is sent");
    assert_eq!(receiver.heard().len(), 1);
    let (_, list) = app.get("/v1/webhook-endpoints").await;
    assert!(list["items"][0]["disabled_at"].is_string(), "{list}");
    assert_eq!(app.count("SELECT count(*) FROM webhook_deliveries").await, 2, "it isn't written to any more");
    let dead = deliveries(&app, "dead").await;
    assert_eq!((dead.len(), &dead[0]["last_status"]), (1, &json!(410)), "{dead:?}");
    let event_id = &dead[0]["event_id"];
    let path = format!("/v1/webhook-deliveries/{endpoint_id}/{event_id}/replay");
    let (status, problem) = app.post(&path, &json!({})).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("endpoint_disabled")), "{problem}");
    // Nothing is lost by it: another one goes on where it ended, in each tenant's order.
    happen(&app, "a", [4]).await;
    let next = Receiver::start().await;
    let in_place_of = |number: i64| json!({ "url": next.url(), "in_place_of": number });
    for wrong in [99, 0] {
        let (status, problem) = app.post("/v1/webhook-endpoints", &in_place_of(wrong)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("endpoint_not_found")), "{problem}");
    }
    let (status, answer) = app.post("/v1/webhook-endpoints", &in_place_of(endpoint_id)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    let (status, problem) =
        app.post("/v1/webhook-endpoints", &in_place_of(answer["endpoint_id"].as_i64().unwrap())).await;
    assert_eq!(status.as_u16(), 404, "one that is on has nothing to hand over: {problem}");
    happen(&app, "a", [5]).await;
    while deliver(&app).await > 0 {}
    assert_eq!((next.numbers("a"), next.numbers("b")), (vec![1, 2, 4, 5], vec![3]));
    assert_eq!(receiver.heard().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_receiver_takes_its_time_the_others_get_what_happens_meanwhile() {
    let app = TestApp::start_with(patient_for(Duration::from_mins(1))).await;
    let (slow, fast) = (Receiver::start().await, Receiver::start().await);
    slow.answers(|_| Reply::Hold);
    register(&app, &slow.url()).await;
    register(&app, &fast.url()).await;
    for number in 0..40 {
        app.tenant(&format!("t{number}")).await;
        happen(&app, &format!("t{number}"), [1, 2]).await;
    }
    let worker = app.app.clone();
    let running = tokio::spawn(async move { worker.deliverer.deliver_ready().await });
    fast.has_heard(80).await;
    // It happens while the slow one still holds its first requests.
    happen(&app, "t0", [3]).await;
    fast.has_heard(81).await;
    assert_eq!(fast.numbers("t0"), [1, 2, 3]);
    assert_eq!(slow.heard().len(), 16, "a receiver gets no more than its share at once");
    assert!(!running.is_finished());
    slow.answers(|_| Reply::Status(204));
    slow.release(16);
    running.await.expect("it ends").expect("delivered");
    assert_eq!(slow.heard().len(), 81);
    for tenant in 0..40 {
        assert_eq!(slow.numbers(&format!("t{tenant}"))[..2], [1, 2]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deliverer_that_is_stopped_claims_no_more_and_ends_what_is_under_way() {
    let app = TestApp::start_with(patient_for(Duration::from_mins(1))).await;
    app.tenant("acme").await;
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Hold);
    register(&app, &receiver.url()).await;
    happen(&app, "acme", 1..=50).await;
    let worker = app.app.clone();
    let running = tokio::spawn(async move { worker.deliverer.deliver_ready().await });
    receiver.has_heard(1).await;
    app.app.deliverer.stop();
    receiver.release(50);
    let sent = running.await.expect("it ends").expect("no fault");
    // A claim that was being made when it was stopped may still bring the next one.
    assert!(sent <= 2, "{sent} of 50");
    assert_eq!(deliveries(&app, "delivered").await.len(), usize::try_from(sent).expect("few"));
}

#[tokio::test]
async fn the_waits_grow_as_documented_then_it_is_dead_until_it_is_replayed() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Status(500));
    let (endpoint_id, _) = register(&app, &receiver.url()).await;
    happen(&app, "acme", [1, 2]).await;
    assert_eq!(deliver(&app).await, 1);
    for (failed, wait) in [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400].into_iter().enumerate() {
        let waiting = deliveries(&app, "waiting").await;
        assert_eq!(waiting[0]["attempts"], failed + 1, "{waiting:?}");
        assert_eq!(deliver_after(&app, wait - 1).await, 0, "{wait}");
        if wait == 86_400 {
            // The last attempt's failure lets the next event go.
            receiver.answers(|heard| Reply::Status(if heard.json()["data"]["n"] == 1 { 500 } else { 204 }));
            assert_eq!(deliver_after(&app, 1).await, 2);
        } else {
            assert_eq!(deliver_after(&app, 1).await, 1, "{wait}");
        }
    }
    let dead = deliveries(&app, "dead").await;
    assert_eq!((dead.len(), &dead[0]["attempts"], &dead[0]["last_status"]), (1, &json!(10), &json!(500)), "{dead:?}");
    assert_eq!(deliver_after(&app, 1_000_000).await, 0);
    assert_eq!(receiver.numbers("acme"), [vec![1; 10], vec![2]].concat());

    receiver.answers(|_| Reply::Status(204));
    let path = format!("/v1/webhook-deliveries/{endpoint_id}/{}/replay", dead[0]["event_id"]);
    assert_eq!(app.post(&path, &json!({})).await.0, 202);
    assert_eq!(deliver(&app).await, 1);
    assert_eq!((deliveries(&app, "dead").await.len(), deliveries(&app, "delivered").await.len()), (0, 2));
    // What has arrived can be sent again as well, under its old id.
    assert_eq!(app.post(&path, &json!({})).await.0, 202);
    assert_eq!(deliver(&app).await, 1);
    let heard = receiver.heard();
    assert_eq!(heard.last().expect("heard").id(), heard[0].id());
    assert_eq!(attempts(&app).await.len(), 13);
}

#[tokio::test]
async fn a_queue_that_piled_up_arrives_whole_and_in_order_when_its_receiver_is_back() {
    let app = TestApp::start().await;
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Status(503));
    register(&app, &receiver.url()).await;
    for tenant in ["a", "b"] {
        app.tenant(tenant).await;
        happen(&app, tenant, 1..=150).await;
    }
    assert_eq!(deliver(&app).await, 2);
    let parked = app.count("SELECT count(*) FROM webhook_deliveries WHERE parked").await;
    assert_eq!(parked, 298, "what has to wait is out of the way");
    happen(&app, "a", [151]).await;
    receiver.answers(|_| Reply::Status(204));
    assert_eq!(deliver_after(&app, 5).await, 301);
    assert_eq!(receiver.numbers("a")[1..], (1..=151).collect::<Vec<i64>>());
    assert_eq!(receiver.numbers("b")[1..], (1..=150).collect::<Vec<i64>>());
    eventually("nothing is left", async || deliveries(&app, "waiting").await.is_empty()).await;
}
