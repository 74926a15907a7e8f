//! C75: kill -9 at random moments while money moves. Whatever was acknowledged is there, whatever was asked
//! for is there once, and the book agrees with itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rand::Rng as _;
use reqwest::StatusCode;
use serde_json::json;
use tokio::sync::watch;

use crate::support::book::Book;
use crate::support::process::{Serving, client, creation, credits, payme_call, post_call};

const KILLS: usize = 60;
/// How long a process lives after it listens, at the most.
const LIFE_MS_MAX: u64 = 150;
const PAYERS: usize = 3;
const POSTERS: usize = 3;
const TENANTS: usize = 2;
const PAYMENT_TIYIN: i64 = 100_000;

/// Where the current process listens.
type Address = watch::Receiver<String>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c75_sixty_kills_at_random_moments_lose_nothing_and_book_nothing_twice() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    for tenant in 0..TENANTS {
        serving.tenant(&tenant_id(tenant)).await;
    }
    let (moved, address) = watch::channel(serving.url.clone());
    let enough = Arc::new(AtomicBool::new(false));
    let failures = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..PAYERS + POSTERS)
        .map(|worker| {
            let (address, enough, failures) = (address.clone(), enough.clone(), failures.clone());
            tokio::spawn(async move {
                let mut done = 0;
                while !enough.load(Ordering::SeqCst) {
                    if worker < PAYERS {
                        pay(&address, worker, done, &failures).await;
                    } else {
                        post(&address, worker, done, &failures).await;
                    }
                    done += 1;
                }
                done
            })
        })
        .collect();

    let mut serving = serving;
    for _ in 0..KILLS {
        let life = rand::rng().random_range(0..LIFE_MS_MAX);
        tokio::time::sleep(Duration::from_millis(life)).await;
        serving.kill().await;
        serving = Serving::start(&book.url, &["--jobs", "off"]).await;
        moved.send(serving.url.clone()).unwrap();
    }
    enough.store(true, Ordering::SeqCst);
    let mut done = Vec::new();
    for worker in workers {
        done.push(worker.await.unwrap());
    }
    let payments: usize = done[..PAYERS].iter().sum();
    let batches: usize = done[PAYERS..].iter().sum();
    assert!(payments > 0 && batches > 0, "something was done: {done:?}");
    assert!(failures.load(Ordering::SeqCst) > 0, "some of the kills met somebody");

    // Every worker repeated each of its requests until it was acknowledged, so all of it must be there, once.
    let payments = i64::try_from(payments).unwrap();
    let batches = i64::try_from(batches).unwrap();
    assert_eq!(book.number("SELECT count(*) FROM payments WHERE performed_at IS NOT NULL").await, payments);
    assert_eq!(book.number("SELECT count(*) FROM payments").await, payments);
    assert_eq!(book.number("SELECT count(*) FROM wallet_transactions WHERE kind = 'top_up'").await, payments);
    assert_eq!(book.number("SELECT count(*) FROM idempotency_keys").await, batches);
    assert_eq!(book.number("SELECT count(*) FROM wallet_transactions WHERE kind = 'bonus'").await, 2 * batches);
    let sums = [book.sum(&tenant_id(0)).await, book.sum(&tenant_id(1)).await];
    assert_eq!(sums.iter().sum::<i64>(), payments * PAYMENT_TIYIN + 2 * batches * 100);
    for (tenant, sum) in sums.into_iter().enumerate() {
        let path = format!("/v1/tenants/{}/balance", tenant_id(tenant));
        let (status, answer) = serving.get(&path).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["balance"], format!("{}.{:02}", sum / 100, sum % 100));
    }
    book.is_clean().await;
}

fn tenant_id(number: usize) -> String {
    format!("tenant-{}", number % TENANTS)
}

/// One payment, each call repeated until it is answered.
async fn pay(address: &Address, worker: usize, number: usize, failures: &AtomicUsize) {
    let id = format!("{worker:04}{number:020}");
    let asked = creation(&id, &tenant_id(worker), PAYMENT_TIYIN);
    let mut create_time = None;
    for (method, params, state) in [("CreateTransaction", asked, 1), ("PerformTransaction", json!({ "id": id }), 2)] {
        let client = client();
        loop {
            let url = address.borrow().clone();
            match payme_call(&client, &url, method, &params).await {
                Ok(answer) if answer["result"]["state"] == state => {
                    create_time = create_time.or_else(|| answer["result"]["create_time"].as_i64());
                    break;
                }
                // Payme repeats after an internal error, too.
                Ok(answer) => assert_eq!(answer["error"]["code"], -32400, "{method} {id}: {answer}"),
                Err(_) => {}
            }
            failures.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(create_time.is_some());
}

/// One batch of two rows, repeated with its key until it is answered.
async fn post(address: &Address, worker: usize, number: usize, failures: &AtomicUsize) {
    let client = client();
    let key = format!("batch-{worker}-{number}");
    let references = [format!("{key}-a"), format!("{key}-b")];
    let body = credits(&tenant_id(worker), &references, "1.00");
    loop {
        let url = address.borrow().clone();
        match post_call(&client, &url, "/v1/transactions/batch", Some(&key), &body).await {
            Ok((StatusCode::CREATED, answer)) => {
                assert_eq!(answer["transactions"][1]["reference"], references[1], "{answer}");
                return;
            }
            Ok((status, answer)) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{key}: {answer}"),
            Err(_) => {}
        }
        failures.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
