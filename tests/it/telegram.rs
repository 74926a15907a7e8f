//! The Telegram door. A payer's stars are taken before we hear of them, the word comes twice, late or never, and the
//! slot they were for may be somebody else's by then. No slot gets two owners and no star is lost.

mod bot_api;
mod budget;
mod console;
mod crash;
mod events;
mod give_back;
mod random;
mod reconcile;
mod refunds;
mod sessions;
mod webhook;
mod words;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::app::AppSettings;
use hamyon::jobs::Job;
use hamyon::provider::telegram::{AnswerBy, Bot, TelegramSettings};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::app::settings;
use crate::support::fake_bot_api::FakeBotApi;

pub const BOT: i64 = 111;
pub const SECRET: &str = "a-secret_of-bot-111";
pub const OTHER_BOT: i64 = 222;
pub const OTHER_SECRET: &str = "a-secret_of-bot-222";

/// What a slot costs, in stars.
pub const PRICE: i64 = 250;

/// Who buys.
pub const ALICE: i64 = 700_000_001;
pub const BOB: i64 = 700_000_002;

/// A shop of slots with two bots at a fake Bot API. Its database has a clock that stands until it is moved.
pub struct Stage {
    pub app: TestApp,
    pub api: FakeBotApi,
    updates: AtomicI64,
}

/// Settings with two bots at this API.
pub fn with_bots(api: &FakeBotApi) -> AppSettings {
    AppSettings {
        telegram: TelegramSettings {
            bots: vec![
                Bot::parse("111:AAA", SECRET).expect("a bot"),
                Bot::parse("222:BBB", OTHER_SECRET).expect("a bot"),
            ],
            api_url: api.url(),
            // Long enough for a busy machine; a call that nobody answers takes as long.
            timeout: Duration::from_secs(2),
            ..TelegramSettings::default()
        },
        ..settings()
    }
}

impl Stage {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut AppSettings)) -> Self {
        let api = FakeBotApi::start(0, 0).await;
        let mut settings = with_bots(&api);
        change(&mut settings);
        let stage = Self { app: TestApp::start_with(settings).await, api, updates: AtomicI64::new(1_000) };
        stage.api.set_now(stage.app.clock.now().timestamp());
        fix_database_clock(&stage.app).await;
        stage.app.tenant("acme").await;
        let (status, answer) =
            stage.app.post("/v1/resources", &json!({ "resource_id": "room", "name": "A room" })).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        stage
    }

    /// A slot of an hour that begins so many hours from now.
    pub async fn slot(&self, hours: i64) -> i64 {
        let starts_at = self.app.clock.now() + TimeDelta::hours(hours);
        let body = json!({
            "resource_id": "room", "starts_at": starts_at, "ends_at": starts_at + TimeDelta::hours(1),
            "prices": [{ "currency": "XTR", "amount": PRICE.to_string() }, { "currency": "UZS", "amount": "5000.00" }],
        });
        let (status, answer) = self.app.post("/v1/slots", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        answer["items"][0]["slot_id"].as_i64().expect("a number")
    }

    /// An order of a slot in stars.
    pub async fn order(&self, order_id: &str, slot_id: i64, payer: i64) {
        let body = json!({ "order_id": order_id, "tenant_id": "acme", "currency": "XTR", "title": "One hour",
                           "slot_id": slot_id, "payer": payer.to_string() });
        let (status, answer) = self.app.post("/v1/orders", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }

    /// An order of stars for the wallet.
    pub async fn top_up_order(&self, order_id: &str, payer: i64, stars: i64) {
        let body = json!({ "order_id": order_id, "tenant_id": "acme", "currency": "XTR", "title": "Stars",
                           "amount": stars.to_string(), "payer": payer.to_string() });
        let (status, answer) = self.app.post("/v1/orders", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }

    fn next_update(&self) -> i64 {
        self.updates.fetch_add(1, Ordering::SeqCst)
    }

    /// A pre-checkout query as Telegram sends it.
    pub fn query(&self, query_id: &str, payer: i64, order_id: &str) -> Value {
        pre_checkout(self.next_update(), query_id, payer, order_id, PRICE)
    }

    /// Asks whether a payer may pay: the answer, `None` for a yes, else the words.
    pub async fn asks(&self, query_id: &str, payer: i64, order_id: &str) -> Option<String> {
        let (status, answer) = send(&self.app, SECRET, &self.query(query_id, payer, order_id)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        said(query_id, &answer)
    }

    /// The payer asks and hears yes.
    pub async fn is_told_yes(&self, query_id: &str, payer: i64, order_id: &str) {
        assert_eq!(self.asks(query_id, payer, order_id).await, None);
    }

    /// The payer's stars are taken; the update that would tell us.
    pub fn pays(&self, payer: i64, order_id: &str, stars: i64) -> (String, Value) {
        let charge_id = self.api.pay(BOT, payer, order_id, stars);
        let update = paid(self.next_update(), payer, order_id, stars, &charge_id, self.app.clock.now());
        (charge_id, update)
    }

    /// The payer pays and we hear of it: the charge.
    pub async fn paid(&self, payer: i64, order_id: &str) -> String {
        let (charge_id, update) = self.pays(payer, order_id, PRICE);
        self.tells(&update).await;
        charge_id
    }

    /// Telegram tells us something, and we take it.
    pub async fn tells(&self, update: &Value) {
        let (status, answer) = send(&self.app, SECRET, update).await;
        assert_eq!((status, &answer), (StatusCode::OK, &Value::String(String::new())), "{update}");
    }

    /// Time passes, for us, for the database and for Telegram.
    pub async fn later(&self, by: TimeDelta) {
        self.app.clock.advance(by);
        self.api.set_now(self.app.clock.now().timestamp());
        move_database_clock(&self.app).await;
    }

    pub async fn give_back(&self) -> u64 {
        Job::TelegramRefunds.run(&self.app.app).await.expect("the refunds run")
    }

    pub async fn reconcile(&self) -> u64 {
        Job::TelegramReconcile.run(&self.app.app).await.expect("the list is read")
    }

    /// What was decided about a charge: the decision and why.
    pub async fn decision(&self, charge_id: &str) -> (String, Option<String>) {
        sqlx::query_as(
            "SELECT r.decision, r.why FROM receipts r JOIN payments p USING (payment_id)
              WHERE p.provider = 'telegram' AND p.external_id LIKE '%:' || $1",
        )
        .bind(charge_id)
        .fetch_one(&mut self.app.superuser().await)
        .await
        .expect("a receipt")
    }

    pub async fn is_booked(&self, charge_id: &str) {
        assert_eq!(self.decision(charge_id).await, ("booked".to_owned(), None));
    }

    pub async fn goes_back(&self, charge_id: &str, why: &str) {
        assert_eq!(self.decision(charge_id).await, ("refund".to_owned(), Some(why.to_owned())));
    }

    /// The order that has booked a slot.
    pub async fn owner(&self, slot_id: i64) -> Option<String> {
        sqlx::query_scalar("SELECT order_id FROM bookings WHERE slot_id = $1 AND cancelled_at IS NULL")
            .bind(slot_id)
            .fetch_optional(&mut self.app.superuser().await)
            .await
            .expect("a booking or none")
    }

    /// The order that holds a slot now.
    pub async fn holder(&self, slot_id: i64) -> Option<(String, DateTime<Utc>)> {
        sqlx::query_as(
            "SELECT order_id, held_until FROM slot_holds
              WHERE slot_id = $1 AND ended_at IS NULL AND held_until > database_now()",
        )
        .bind(slot_id)
        .fetch_optional(&mut self.app.superuser().await)
        .await
        .expect("a hold or none")
    }

    /// Σ of every row in stars.
    pub async fn stars(&self) -> i64 {
        self.app.count("SELECT coalesce(sum(amount), 0)::bigint FROM wallet_transactions WHERE currency = 'XTR'").await
    }

    /// The rows in stars, each as `kind amount pocket`.
    pub async fn rows(&self) -> Vec<String> {
        sqlx::query_scalar(
            "SELECT kind || ' ' || amount || ' ' || pocket FROM wallet_transactions
              WHERE currency = 'XTR' ORDER BY wallet_id, seq",
        )
        .fetch_all(&mut self.app.superuser().await)
        .await
        .expect("rows")
    }

    /// The refund tasks' states, in their order.
    pub async fn tasks(&self) -> Vec<String> {
        let (status, page) = self.app.get("/v1/refund-tasks").await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let mut states: Vec<String> = page["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|task| task["status"].as_str().expect("a status").to_owned())
            .collect();
        states.reverse();
        states
    }

    /// The open cases' kinds, in their order.
    pub async fn cases(&self) -> Vec<String> {
        sqlx::query_scalar("SELECT kind FROM payment_cases WHERE resolved_at IS NULL ORDER BY case_id")
            .fetch_all(&mut self.app.superuser().await)
            .await
            .expect("cases")
    }

    /// What must hold at any quiet moment: the book agrees with itself, and no slot has two owners.
    pub async fn is_sound(&self) {
        let report = self.app.verify().await;
        assert!(report.is_clean(), "{report:?}");
        let twice = self
            .app
            .count(
                "SELECT count(*) FROM (SELECT slot_id FROM bookings WHERE cancelled_at IS NULL
                                        GROUP BY slot_id HAVING count(*) > 1) twice",
            )
            .await;
        assert_eq!(twice, 0);
    }
}

/// Gives the database a clock that stands where the application's does.
pub async fn fix_database_clock(app: &TestApp) {
    let mut conn = app.superuser().await;
    conn.execute(
        "CREATE TABLE test_clock (now timestamptz NOT NULL);
         INSERT INTO test_clock VALUES (now());
         GRANT SELECT ON test_clock TO hamyon_service;
         CREATE OR REPLACE FUNCTION database_now() RETURNS timestamptz
         LANGUAGE sql VOLATILE RETURN (SELECT now FROM test_clock)",
    )
    .await
    .expect("a clock");
    move_database_clock(app).await;
}

pub async fn move_database_clock(app: &TestApp) {
    sqlx::query("UPDATE test_clock SET now = $1")
        .bind(app.clock.now())
        .execute(&mut app.superuser().await)
        .await
        .expect("the clock moves");
}

pub fn pre_checkout(update_id: i64, query_id: &str, payer: i64, order_id: &str, stars: i64) -> Value {
    json!({
        "update_id": update_id,
        "pre_checkout_query": {
            "id": query_id, "from": { "id": payer, "is_bot": false, "first_name": "Payer", "language_code": "en" },
            "currency": "XTR", "total_amount": stars, "invoice_payload": order_id,
        },
    })
}

pub fn paid(update_id: i64, payer: i64, order_id: &str, stars: i64, charge_id: &str, at: DateTime<Utc>) -> Value {
    json!({
        "update_id": update_id,
        "message": {
            "message_id": update_id, "date": at.timestamp(), "chat": { "id": payer, "type": "private" },
            "from": { "id": payer, "is_bot": false, "first_name": "Payer" },
            "successful_payment": {
                "currency": "XTR", "total_amount": stars, "invoice_payload": order_id,
                "telegram_payment_charge_id": charge_id, "provider_payment_charge_id": "",
            },
        },
    })
}

pub fn gone_back(update_id: i64, payer: i64, order_id: &str, stars: i64, charge_id: &str) -> Value {
    json!({
        "update_id": update_id,
        "message": {
            "message_id": update_id, "date": 1_796_000_000, "chat": { "id": payer, "type": "private" },
            "from": { "id": payer, "is_bot": false, "first_name": "Payer" },
            "refunded_payment": {
                "currency": "XTR", "total_amount": stars, "invoice_payload": order_id,
                "telegram_payment_charge_id": charge_id,
            },
        },
    })
}

/// An update with a secret; the status and the body.
pub async fn send(app: &TestApp, secret: &str, update: &Value) -> (StatusCode, Value) {
    let request =
        app.client.post(app.url("/telegram/webhook")).header("X-Telegram-Bot-Api-Secret-Token", secret).json(update);
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a text");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Reads the answer to a query: `None` for a yes, else the words.
pub fn said(query_id: &str, answer: &Value) -> Option<String> {
    assert_eq!(answer["method"], "answerPreCheckoutQuery", "{answer}");
    assert_eq!(answer["pre_checkout_query_id"], query_id, "{answer}");
    if answer["ok"] == json!(true) {
        assert!(answer.get("error_message").is_none(), "{answer}");
        return None;
    }
    assert_eq!(answer["ok"], json!(false), "{answer}");
    Some(answer["error_message"].as_str().expect("words").to_owned())
}

/// Settings in which queries are answered by the Bot API.
pub fn by_api(settings: &mut AppSettings) {
    settings.telegram.answer_by = AnswerBy::Api;
}
