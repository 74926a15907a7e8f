//! At stake: a worker whose connection is bad. The client repeats what may not have arrived, nothing happens twice by
//! it, a refusal is not repeated, and the token is shown nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hamyon::client::{Client, Error, NewHold, Retry, Settle, Standing, Status, Stop, Usage};
use serde_json::json;

use super::Shop;

/// Something between the client and the service that acts and then loses every first answer to a request.
struct Lossy {
    url: String,
    passed: Arc<AtomicUsize>,
}

impl Lossy {
    async fn before(shop: &Shop) -> Self {
        let (target, http) = (shop.app.url(""), shop.app.client.clone());
        let passed = Arc::new(AtomicUsize::new(0));
        let counted = passed.clone();
        let answer = move |request: Request| {
            let (target, http, counted) = (target.clone(), http.clone(), counted.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.expect("a body");
                let url = format!("{target}{}", parts.uri);
                let response =
                    http.request(parts.method, url).headers(parts.headers).body(body).send().await.expect("an answer");
                let status = response.status();
                let bytes = response.bytes().await.expect("a body");
                if counted.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                    return StatusCode::BAD_GATEWAY.into_response();
                }
                Response::builder()
                    .status(status)
                    .header("content-type", "application/json")
                    .body(Body::from(bytes))
                    .expect("a response")
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, passed }
    }
}

fn quick() -> Retry {
    Retry { first_wait: Duration::from_millis(1), longest_wait: Duration::from_millis(5), ..Retry::default() }
}

#[tokio::test]
async fn a_metered_job_over_a_line_that_loses_every_first_answer_is_charged_once() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let lossy = Lossy::before(&shop).await;
    let client = Client::new(&lossy.url, shop.app.token.clone().into()).unwrap().with_retry(quick());
    let mut ask = NewHold::of_amount("job-1", "acme", "CREDIT", 20_u32.into());
    ask.allow_partial = true;
    let hold = client.place(&ask).await.unwrap();
    assert_eq!(hold.outcome, Some(Standing::AlreadyPlaced), "the first answer was lost, and it had acted");
    client.start("job-1", None).await.unwrap();
    for call in 1..=3 {
        let used = client.report("job-1", &format!("call-{call}"), &Usage::CostMicro(4_000)).await.unwrap();
        assert_eq!(used.used_micro, 4_000 * call);
    }
    let settled = client.settle("job-1", Settle::ByUsage).await.unwrap();
    assert_eq!((settled.status, settled.charged), (Status::Settled, Some(12_u32.into())));
    assert_eq!(client.balance("acme", "CREDIT").await.unwrap().available, 88_u32.into());
    assert_eq!(lossy.passed.load(Ordering::SeqCst), 14, "seven calls, each sent twice");
    assert_eq!(shop.app.count("SELECT count(*) FROM hold_usage").await, 3);
    shop.is_right().await;
}

#[tokio::test]
async fn a_refusal_is_sent_once_and_says_its_code_and_no_secret() {
    let shop = Shop::open().await;
    let client = Client::new(&shop.app.url(""), shop.app.token.clone().into()).unwrap().with_retry(quick());
    let error = client.place(&NewHold::of_amount("job-1", "acme", "CREDIT", 20_u32.into())).await.unwrap_err();
    assert!(error.is_refusal("insufficient_funds"), "{error:?}");
    assert_eq!(error.problem().unwrap().status, 402);
    // Who is told to wait and has no patience hears it at once.
    let mut ask = NewHold::of_amount("job-1", "acme", "CREDIT", 0_u32.into());
    ask.max_in_flight = Some(1);
    client.place(&ask).await.unwrap();
    ask.hold_id = "job-2".to_owned();
    let busy = client.place(&ask).await.unwrap_err();
    assert!(busy.is_refusal("too_many_in_flight") && busy.problem().unwrap().retry_after.is_some(), "{busy:?}");
    let shown = format!("{client:?} {error:?} {busy:?}");
    assert!(!shown.contains(&shop.app.token), "{shown}");
    // Nobody there: a bounded number of attempts, then an error that says so.
    let nowhere = Client::new("http://127.0.0.1:1", shop.app.token.clone().into()).unwrap().with_retry(quick());
    assert!(matches!(nowhere.hold("job-1").await, Err(Error::NoAnswer { .. })));
}

#[tokio::test]
async fn a_worker_that_beats_hears_that_it_is_asked_to_stop() {
    let shop = Shop::open().await;
    let client = Client::new(&shop.app.url(""), shop.app.token.clone().into()).unwrap();
    client.place(&NewHold::of_amount("job-1", "acme", "CREDIT", 0_u32.into())).await.unwrap();
    client.start("job-1", None).await.unwrap();
    shop.act("job-1", "cancel", json!({ "cooperative": true })).await;
    let done = client.while_beating("job-1", 3, |mut pulse| async move { pulse.stopped().await }).await;
    assert_eq!((done.output, done.stop), (Stop::CancelRequested, Some(Stop::CancelRequested)));
    client.release("job-1").await.unwrap();
}

#[tokio::test]
async fn h9_a_beat_that_is_refused_by_something_between_is_followed_by_the_next_one() {
    let shop = Shop::open().await;
    let client = Client::new(&shop.app.url(""), shop.app.token.clone().into()).unwrap();
    client.place(&NewHold::of_amount("job-1", "acme", "CREDIT", 0_u32.into())).await.unwrap();
    client.start("job-1", None).await.unwrap();
    shop.act("job-1", "cancel", json!({ "cooperative": true })).await;
    // A proxy that doesn't let the first two beats through, and has no code of ours.
    let (target, http) = (shop.app.url(""), shop.app.client.clone());
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let answer = move |request: Request| {
        let (target, http, counted) = (target.clone(), http.clone(), counted.clone());
        async move {
            let refusals = [StatusCode::REQUEST_TIMEOUT, StatusCode::MISDIRECTED_REQUEST];
            if let Some(refusal) = refusals.get(counted.fetch_add(1, Ordering::SeqCst)) {
                return refusal.into_response();
            }
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.expect("a body");
            let url = format!("{target}{}", parts.uri);
            let response =
                http.request(parts.method, url).headers(parts.headers).body(body).send().await.expect("an answer");
            let status = response.status();
            (status, response.bytes().await.expect("a body")).into_response()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await.expect("it serves") });
    let behind = Client::new(&url, shop.app.token.clone().into()).unwrap();
    let done = behind.while_beating("job-1", 3, |mut pulse| async move { pulse.stopped().await }).await;
    assert_eq!(done.output, Stop::CancelRequested, "the third one got through");
    assert_eq!(seen.load(Ordering::SeqCst), 3);
    // What the hold itself refuses is for good.
    client.release("job-1").await.unwrap();
    let done = behind.while_beating("job-1", 3, |mut pulse| async move { pulse.stopped().await }).await;
    assert!(matches!(&done.output, Stop::Refused(problem) if problem.code == "already_released"), "{done:?}");
}
