//! C75 for bookings: kill -9 while buyers buy. Telegram repeats what wasn't taken, and when all is quiet every payment
//! is booked or has gone back, and no slot has two owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rand::Rng as _;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{BOT, PRICE, SECRET, paid, pre_checkout};
use crate::support::book::Book;
use crate::support::fake_bot_api::{Act, FakeBotApi};
use crate::support::process::{Serving, client, eventually, post_call, serve};

const KILLS: usize = 20;
/// How long a process lives after it listens, at the most.
const LIFE_MS_MAX: u64 = 250;
const BUYERS: usize = 4;

async fn start(book: &Book, api: &FakeBotApi) -> Serving {
    let mut command = serve();
    command
        .env("DATABASE_URL", &book.url)
        .env("HAMYON_TELEGRAM_TOKEN", format!("{BOT}:AAA"))
        .env("HAMYON_TELEGRAM_WEBHOOK_SECRET", SECRET)
        .env("HAMYON_TELEGRAM_API_URL", api.url());
    Serving::launch(command).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c75_kills_while_buyers_buy_leave_no_slot_with_two_owners_and_lose_no_star() {
    let book = Book::new().await;
    let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
    let api = FakeBotApi::start(0, now.timestamp()).await;
    let mut number = 0_u32;
    // Some calls are done and not answered.
    api.fares(move |_| {
        number += 1;
        if number.is_multiple_of(5) { Act::DoAndStatus(502) } else { Act::Do }
    });
    let mut serving = start(&book, &api).await;
    serving.tenant("acme").await;
    let (status, _) =
        serving.post("/v1/resources", None, &json!({ "resource_id": "room", "name": "A room" })).await.unwrap();
    assert_eq!(status, StatusCode::CREATED);
    let pattern = json!({ "resource_id": "room", "prices": [{ "currency": "XTR", "amount": PRICE.to_string() }],
        "pattern": { "weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "starts": "09:00", "minutes": 30,
                     "times": 20, "from": (now.date_naive() + chrono::Days::new(10)).to_string(),
                     "to": (now.date_naive() + chrono::Days::new(30)).to_string() } });
    let (status, slots) = serving.post("/v1/slots", None, &pattern).await.unwrap();
    assert_eq!(status, StatusCode::CREATED, "{slots}");
    let slots: Arc<Vec<i64>> =
        Arc::new(slots["items"].as_array().unwrap().iter().map(|slot| slot["slot_id"].as_i64().unwrap()).collect());

    let (moved, address) = watch::channel(serving.url.clone());
    let enough = Arc::new(AtomicBool::new(false));
    let next_slot = Arc::new(AtomicUsize::new(0));
    let buyers: Vec<_> = (0..BUYERS)
        .map(|buyer| {
            let (address, enough, api) = (address.clone(), enough.clone(), api.clone());
            let (slots, next_slot) = (slots.clone(), next_slot.clone());
            tokio::spawn(async move {
                let mut bought = 0;
                while !enough.load(Ordering::SeqCst) {
                    // Neighbours want the same slots.
                    let slot_id = slots[next_slot.fetch_add(1, Ordering::SeqCst) / 3 % slots.len()];
                    buy(&address, &api, buyer, bought, slot_id).await;
                    bought += 1;
                }
                bought
            })
        })
        .collect();
    for _ in 0..KILLS {
        let life = rand::rng().random_range(0..LIFE_MS_MAX);
        tokio::time::sleep(Duration::from_millis(life)).await;
        serving.kill().await;
        serving = start(&book, &api).await;
        moved.send(serving.url.clone()).unwrap();
    }
    enough.store(true, Ordering::SeqCst);
    let mut bought = 0;
    for buyer in buyers {
        bought += buyer.await.unwrap();
    }
    assert!(bought > 0, "somebody bought");
    // The refunds that were asked for come to their end by the program's own jobs.
    api.fares(|_| Act::Do);
    let stuck = "a claim of a killed process ends after a minute, by the machine's clock";
    crate::support::intruder::run(
        &mut book.session().await,
        "UPDATE refund_tasks SET claimed_until = now() - interval '1 second' WHERE claimed_until IS NOT NULL;
         UPDATE refund_tasks SET next_attempt_at = now() WHERE confirmed_at IS NULL",
    )
    .await;
    serving.kill().await;
    let serving = start(&book, &api).await;
    eventually(stuck, async || {
        book.number("SELECT count(*) FROM refund_tasks WHERE confirmed_at IS NULL AND failed_at IS NULL").await == 0
    })
    .await;
    let received = book
        .number(
            "SELECT coalesce(sum(amount), 0)::bigint FROM wallet_transactions
              WHERE currency = 'XTR' AND kind IN ('top_up', 'top_up_reversal')",
        )
        .await;
    assert_eq!(received, api.kept());
    assert!(book.number("SELECT count(*) FROM bookings").await > 0);
    assert_eq!(book.number("SELECT count(*) FROM payment_cases WHERE kind <> 'lost_payment'").await, 0);
    serving.kill().await;
    book.is_clean().await;
}

/// One order of a slot: asked about until there is an answer, paid, and told until it is taken.
async fn buy(address: &watch::Receiver<String>, api: &FakeBotApi, buyer: usize, number: usize, slot_id: i64) {
    let client = client();
    let order_id = format!("o-{buyer}-{number}");
    let payer = 700_000_000 + i64::try_from(buyer).unwrap();
    let order = json!({ "order_id": order_id, "tenant_id": "acme", "currency": "XTR", "title": "One hour",
                        "slot_id": slot_id, "payer": payer.to_string() });
    loop {
        let url = address.borrow().clone();
        match post_call(&client, &url, "/v1/orders", None, &order).await {
            Ok((StatusCode::CREATED | StatusCode::OK, _)) => break,
            // A neighbour has booked it meanwhile.
            Ok((StatusCode::CONFLICT, problem)) if problem["code"] == "slot_gone" => return,
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let update_id = i64::try_from(buyer * 1_000_000 + number * 10).unwrap();
    let query = pre_checkout(update_id, &order_id, payer, &order_id, PRICE);
    let Some(answer) = told(&client, address, &query).await else { return };
    // Some pay although they were told no, as a late payment would come.
    if answer["ok"] == json!(true) || number.is_multiple_of(4) {
        let charge_id = api.pay(BOT, payer, &order_id, PRICE);
        let at = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
        told(&client, address, &paid(update_id + 1, payer, &order_id, PRICE, &charge_id, at)).await;
    }
}

/// Tells an update until it is taken: the answer's body.
async fn told(client: &reqwest::Client, address: &watch::Receiver<String>, update: &Value) -> Option<Value> {
    loop {
        let url = format!("{}/telegram/webhook", address.borrow().clone());
        let request = client.post(url).header("X-Telegram-Bot-Api-Secret-Token", SECRET).json(update);
        if let Ok(response) = request.send().await
            && response.status() == StatusCode::OK
            && let Ok(text) = response.text().await
        {
            return Some(serde_json::from_str(&text).unwrap_or(Value::Null));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
