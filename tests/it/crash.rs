//! C13, P1, L6: a process that is killed at the worst moment must neither lose a payment nor book it twice,
//! and whoever repeats gets the answer that was stored, not a new one.
//!
//! The worst moments are around COMMIT: before the server has seen it, and after it has, while nobody has
//! been told. A proxy between the program and PostgreSQL makes both.

use serde_json::{Value, json};

use crate::support::book::Book;
use crate::support::pg_proxy::AtCommit;
use crate::support::process::{Serving, credits, eventually, payme_call, post_call};

const PAYMENT: &str = "5f0000000000000000000001";
const AMOUNT: i64 = 1_500_000;

#[tokio::test]
async fn c13_killed_between_create_and_perform_the_repeat_credits_once() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    serving.tenant("acme").await;
    let created = serving.payme_created(PAYMENT, "acme", AMOUNT).await;
    serving.kill().await;

    let serving = Serving::start(&book.url, &[]).await;
    let stored = serving.payme("CheckTransaction", &json!({ "id": PAYMENT })).await.unwrap();
    assert_eq!(stored["result"]["create_time"], created["result"]["create_time"], "{stored}");
    let performed = serving.payme("PerformTransaction", &json!({ "id": PAYMENT })).await.unwrap();
    assert_eq!(performed["result"]["state"], 2, "{performed}");
    let again = serving.payme("PerformTransaction", &json!({ "id": PAYMENT })).await.unwrap();
    assert_eq!(again, performed);
    assert_eq!(book.number("SELECT count(*) FROM wallet_transactions WHERE kind = 'top_up'").await, 1);
    assert_eq!(book.sum("acme").await, AMOUNT);
    book.is_clean().await;
}

#[tokio::test]
async fn c13_killed_after_the_commit_and_before_its_answer_the_repeat_is_answered_as_stored() {
    let book = Book::new().await;
    let (proxy, through_proxy) = book.proxy().await;
    let serving = Serving::start(&through_proxy, &[]).await;
    serving.tenant("acme").await;
    serving.payme_created(PAYMENT, "acme", AMOUNT).await;
    proxy.at_commit(AtCommit::LoseAnswer, "payment::set_performed");
    let caller = call_perform(&serving);
    proxy.lost().await;
    eventually("the payment is performed for everybody else", async || {
        book.number("SELECT count(*) FROM payments WHERE performed_at IS NOT NULL").await == 1
    })
    .await;
    assert!(!caller.is_finished(), "nobody has been told");
    serving.kill().await;
    assert!(caller.await.unwrap().is_err(), "the caller saw a broken connection");
    let stored = book
        .number("SELECT (extract(epoch FROM performed_at) * 1000)::bigint FROM payments WHERE performed_at IS NOT NULL")
        .await;

    let serving = Serving::start(&book.url, &[]).await;
    let performed = serving.payme("PerformTransaction", &json!({ "id": PAYMENT })).await.unwrap();
    assert_eq!(performed["result"]["state"], 2, "{performed}");
    assert_eq!(performed["result"]["perform_time"], stored, "{performed}");
    assert_eq!(book.number("SELECT count(*) FROM wallet_transactions").await, 1);
    assert_eq!(book.sum("acme").await, AMOUNT);
    book.is_clean().await;
}

#[tokio::test]
async fn c13_killed_before_the_commit_nothing_is_written_and_the_repeat_credits_once() {
    let book = Book::new().await;
    let (proxy, through_proxy) = book.proxy().await;
    let serving = Serving::start(&through_proxy, &[]).await;
    serving.tenant("acme").await;
    serving.payme_created(PAYMENT, "acme", AMOUNT).await;
    proxy.at_commit(AtCommit::LoseCommit, "payment::set_performed");
    let caller = call_perform(&serving);
    proxy.lost().await;
    serving.kill().await;
    assert!(caller.await.unwrap().is_err(), "the caller saw a broken connection");
    eventually("the server has given the session up", async || sessions_in_transaction(&book).await == 0).await;
    let written = "SELECT (SELECT count(*) FROM wallet_transactions)
                        + (SELECT count(*) FROM payments WHERE performed_at IS NOT NULL)
                        + (SELECT count(*) FROM provider_calls WHERE method = 'PerformTransaction')";
    assert_eq!(book.number(written).await, 0);

    let serving = Serving::start(&book.url, &[]).await;
    let performed = serving.payme("PerformTransaction", &json!({ "id": PAYMENT })).await.unwrap();
    assert_eq!(performed["result"]["state"], 2, "{performed}");
    assert_eq!(book.number("SELECT count(*) FROM wallet_transactions").await, 1);
    assert_eq!(book.sum("acme").await, AMOUNT);
    book.is_clean().await;
}

#[tokio::test]
async fn c13_l6_a_batch_killed_on_either_side_of_its_commit_is_booked_once_with_its_key() {
    for (at_commit, rows_after_kill) in [(AtCommit::LoseAnswer, 2), (AtCommit::LoseCommit, 0)] {
        let book = Book::new().await;
        let (proxy, through_proxy) = book.proxy().await;
        let serving = Serving::start(&through_proxy, &[]).await;
        serving.tenant("acme").await;
        let batch = credits("acme", &["one".to_owned(), "two".to_owned()], "100.00");
        proxy.at_commit(at_commit, "idempotency::finish");
        let caller = {
            let (client, url, batch) = (serving.client.clone(), serving.url.clone(), batch.clone());
            tokio::spawn(async move { post_call(&client, &url, "/v1/transactions/batch", Some("K1"), &batch).await })
        };
        proxy.lost().await;
        if at_commit == AtCommit::LoseAnswer {
            eventually("the batch is there for everybody else", async || {
                book.number("SELECT count(*) FROM idempotency_keys").await == 1
            })
            .await;
        }
        serving.kill().await;
        assert!(caller.await.unwrap().is_err(), "the caller saw a broken connection");
        eventually("the server has given the session up", async || sessions_in_transaction(&book).await == 0).await;
        assert_eq!(book.number("SELECT count(*) FROM wallet_transactions").await, rows_after_kill, "{at_commit:?}");
        assert_eq!(book.number("SELECT count(*) FROM idempotency_keys").await, rows_after_kill / 2, "{at_commit:?}");

        let serving = Serving::start(&book.url, &[]).await;
        let (status, first) = serving.post("/v1/transactions/batch", Some("K1"), &batch).await.unwrap();
        assert_eq!(status, 201, "{first}");
        assert_eq!(first["transactions"][1]["seq"], 2, "{first}");
        let (_, again) = serving.post("/v1/transactions/batch", Some("K1"), &batch).await.unwrap();
        assert_eq!(again, first);
        assert_eq!(book.sum("acme").await, 20_000);
        assert_eq!(book.number("SELECT count(*) FROM wallet_transactions").await, 2);
        book.is_clean().await;
    }
}

fn call_perform(serving: &Serving) -> tokio::task::JoinHandle<Result<Value, reqwest::Error>> {
    let (client, url) = (serving.client.clone(), serving.url.clone());
    tokio::spawn(async move { payme_call(&client, &url, "PerformTransaction", &json!({ "id": PAYMENT })).await })
}

async fn sessions_in_transaction(book: &Book) -> i64 {
    book.number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hamyon'",
    )
    .await
}
