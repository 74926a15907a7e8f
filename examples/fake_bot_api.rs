//! A Bot API of this machine and a page that acts as the buyer, so that the way of a payment in stars can be played
//! without Telegram.
//!
//! `cargo run --example fake_bot_api -- 8099 http://127.0.0.1:8080/telegram/webhook demo-telegram-secret` listens on
//! port 8099 as the Bot API, and on 8100 with the buyer's page. Neither listens to other machines. The arguments are
//! those of `serve --demo` when they are left out.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "an example that can't go on says so by panicking"
)]

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/it/support/fake_bot_api.rs"]
mod fake_bot_api;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::extract::{Query, State};
use axum::response::Html;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};

use fake_bot_api::FakeBotApi;

/// The bot of the example and of the demonstration: its token begins with this.
const BOT: i64 = 111;

struct Buyer {
    api: FakeBotApi,
    webhook: String,
    secret: String,
    client: reqwest::Client,
    updates: AtomicI64,
}

#[derive(Deserialize)]
struct Wish {
    order_id: Option<String>,
    payer: Option<i64>,
    stars: Option<i64>,
    /// A payer who is slow: how many seconds lie between the yes and the payment.
    wait: Option<u64>,
}

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = std::env::args().skip(1);
    let Ok(port) = arguments.next().as_deref().unwrap_or("8099").parse::<u16>() else {
        println!(
            "fake_bot_api [PORT [WEBHOOK [SECRET]]]: the Bot API on PORT (8099), a buyer's page on the one after it"
        );
        return;
    };
    let webhook = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080/telegram/webhook".to_owned());
    let secret = arguments.next().unwrap_or_else(|| "demo-telegram-secret".to_owned());
    let api = FakeBotApi::start(port, chrono::Utc::now().timestamp()).await;
    println!("The Bot API: {}", api.url());
    let buyer = Arc::new(Buyer {
        api,
        webhook,
        secret,
        client: reqwest::Client::new(),
        updates: AtomicI64::new(chrono::Utc::now().timestamp()),
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port + 1)).await.expect("a port of this machine");
    println!("The buyer:   http://{}", listener.local_addr().expect("an address"));
    axum::serve(listener, Router::new().route("/", get(page)).with_state(buyer)).await.expect("the page serves");
}

async fn page(State(buyer): State<Arc<Buyer>>, Query(wish): Query<Wish>) -> Html<String> {
    let story = match (wish.order_id, wish.payer, wish.stars) {
        (Some(order_id), Some(payer), Some(stars)) => {
            buy(&buyer, &order_id, payer, stars, wish.wait.unwrap_or(0)).await
        }
        _ => String::new(),
    };
    Html(format!(
        "<!doctype html><meta charset=utf-8><title>A buyer</title><h1>A buyer</h1>
         <form><label>Order <input name=order_id required></label>
         <label>Payer <input name=payer type=number value=700000001 required></label>
         <label>Stars <input name=stars type=number value=250 required></label>
         <label>Wait, seconds <input name=wait type=number value=0></label>
         <button>Pay</button></form><pre>{story}</pre>
         <p>Stars that the bot holds: {}</p>",
        buyer.api.kept()
    ))
}

/// Asks, pays when the answer is yes, and tells.
async fn buy(buyer: &Buyer, order_id: &str, payer: i64, stars: i64, wait: u64) -> String {
    let number = buyer.updates.fetch_add(2, Ordering::SeqCst);
    let from = json!({ "id": payer, "is_bot": false, "first_name": "Payer", "language_code": "en" });
    let asked = json!({
        "update_id": number,
        "pre_checkout_query": { "id": format!("q{number}"), "from": from, "currency": "XTR", "total_amount": stars,
                                "invoice_payload": order_id },
    });
    let answer = tell(buyer, &asked).await;
    let told_by_api = || {
        let calls = buyer.api.calls();
        let call = calls.into_iter().rev().find(|call| call.method == "answerPreCheckoutQuery");
        call.map_or(Value::Null, |call| call.params)
    };
    let answer = if answer.get("ok").is_some() { answer } else { told_by_api() };
    if answer["ok"] != json!(true) {
        return escaped(&format!("May I pay? {answer}"));
    }
    tokio::time::sleep(std::time::Duration::from_secs(wait)).await;
    let now = chrono::Utc::now().timestamp();
    buyer.api.set_now(now);
    let charge_id = buyer.api.pay(BOT, payer, order_id, stars);
    let paid = json!({
        "update_id": number + 1,
        "message": { "message_id": number, "date": now, "chat": { "id": payer, "type": "private" }, "from": from,
            "successful_payment": { "currency": "XTR", "total_amount": stars, "invoice_payload": order_id,
                "telegram_payment_charge_id": charge_id, "provider_payment_charge_id": "" } },
    });
    let taken = tell(buyer, &paid).await;
    escaped(&format!("May I pay? {answer}\nPaid: {charge_id}\nTold: {taken}"))
}

async fn tell(buyer: &Buyer, update: &Value) -> Value {
    let request =
        buyer.client.post(&buyer.webhook).header("X-Telegram-Bot-Api-Secret-Token", &buyer.secret).json(update);
    match request.send().await {
        Ok(response) => {
            let status = response.status().as_u16();
            let text = response.text().await.unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_else(|_| json!({ "status": status }))
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
