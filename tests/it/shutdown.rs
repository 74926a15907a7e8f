//! L8: being told to stop is not a reason to leave a request without its answer. A request on its way ends,
//! a new one is refused, a connection that says nothing holds nobody up, and the exit is a good one.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::Connection as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::book::Book;
use crate::support::process::{Serving, credits, eventually, payme_call, post_call};

#[tokio::test]
async fn l8_a_request_on_its_way_gets_its_answer_and_the_exit_is_good() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let book = Book::new().await;
        let serving = Serving::start(&book.url, &[]).await;
        serving.tenant("acme").await;
        serving.payme_created("5f0000000000000000000001", "acme", 1_500_000).await;

        // Perform and a batch wait for the wallet, which somebody else holds.
        let mut session = book.session().await;
        let mut holding = session.begin().await.unwrap();
        sqlx::query("SELECT FROM wallets FOR UPDATE").execute(&mut *holding).await.unwrap();
        let perform = {
            let (client, url) = (serving.client.clone(), serving.url.clone());
            let params = json!({ "id": "5f0000000000000000000001" });
            tokio::spawn(async move { payme_call(&client, &url, "PerformTransaction", &params).await })
        };
        let batch = {
            let (client, url) = (serving.client.clone(), serving.url.clone());
            let body = credits("acme", &["late".to_owned()], "1.00");
            tokio::spawn(async move { post_call(&client, &url, "/v1/transactions/batch", Some("K1"), &body).await })
        };
        eventually("both wait for the wallet", async || book.waiting().await == 2).await;

        serving.signal(signal);
        serving.has_logged("stopping").await;
        let address = serving.url.trim_start_matches("http://").to_owned();
        eventually("new connections are refused", async || TcpStream::connect(&address).await.is_err()).await;
        assert!(!perform.is_finished() && !batch.is_finished());
        holding.rollback().await.unwrap();

        let performed = perform.await.unwrap().unwrap();
        assert_eq!(performed["result"]["state"], 2, "{performed}");
        let (status, booked) = batch.await.unwrap().unwrap();
        assert_eq!(status, 201, "{booked}");
        let (status, said) = serving.ended().await;
        assert_eq!(status.code(), Some(0), "{signal}: {said}");
        assert_eq!(book.sum("acme").await, 1_500_100);
        book.is_clean().await;
    }
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_hold_the_exit_up() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    let address = serving.url.trim_start_matches("http://").to_owned();
    // One that was used and is kept, as every client does; and one opened ahead of need, as proxies do.
    let mut kept = TcpStream::connect(&address).await.unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    kept.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut silent = TcpStream::connect(&address).await.unwrap();
    // The silent one was accepted before this one was answered.
    let mut last = TcpStream::connect(&address).await.unwrap();
    last.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
    last.read_to_end(&mut Vec::new()).await.unwrap();

    serving.signal(Signal::SIGTERM);
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).await.expect("closed in an orderly way");
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "closed in an orderly way");
    let (status, said) = serving.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("were cut"), "nobody had to be cut off:\n{said}");
}

#[tokio::test]
async fn a_client_who_does_not_read_his_answer_is_cut_and_the_exit_is_good() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    let address = serving.url.trim_start_matches("http://").to_owned();
    let mut deaf = TcpStream::connect(&address).await.unwrap();
    // Never read. When the service takes no further request for two seconds, it stands in the middle of an answer that
    // the system takes no more of.
    let asks = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    while tokio::time::timeout(Duration::from_secs(2), deaf.write_all(&asks)).await.is_ok() {}
    serving.signal(Signal::SIGTERM);
    let (status, said) = serving.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("1 connections did not end within 30 s and were cut"), "{said}");
}
