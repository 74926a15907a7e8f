//! Holds: money promised to work in progress, and the work paid by its result, once, from the right pocket (H1–H13).

mod allowances;
mod checklist;
mod client;
mod doubles;
mod lifecycle;
mod metering;
mod overdraft;
mod pockets;
mod property;
mod races;
mod reconciler;
mod refusals;
mod validations;

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::app::AppSettings;
use hamyon::hold::{self, Reconciled};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Answer, Call};
use crate::support::app::settings;

/// An application with a tenant `acme`, and what tests of holds do all the time.
pub struct Shop {
    pub app: TestApp,
}

impl Shop {
    pub async fn open() -> Self {
        Self::open_with(settings()).await
    }

    pub async fn open_with(settings: AppSettings) -> Self {
        let app = TestApp::start_with(settings).await;
        app.tenant("acme").await;
        Self { app }
    }

    /// A unit of the product's own, without digits after the point.
    pub async fn currency(&self, code: &str) {
        let (status, answer) = self.app.post("/v1/currencies", &json!({ "code": code, "exponent": 0 })).await;
        assert!(status.is_success(), "{answer}");
    }

    /// Money in a pocket, for ever or until a moment. Bought when the pocket is `main` or begins with `bought`.
    pub async fn give(&self, currency: &str, pocket: &str, amount: i64, expires_at: Option<DateTime<Utc>>) {
        let key = uuid::Uuid::now_v7().to_string();
        let (status, answer) = if pocket == "main" || pocket.starts_with("bought") {
            let row = json!({
                "tenant_id": "acme", "currency": currency, "kind": "top_up", "amount": amount.to_string(),
                "reference": key, "pocket": pocket,
            });
            self.app.post_with_key("/v1/transactions/batch", &key, &json!({ "transactions": [row] })).await
        } else {
            let mut body = json!({ "currency": currency, "pocket": pocket, "amount": amount.to_string() });
            if let Some(expires_at) = expires_at {
                body["expires_at"] = json!(expires_at);
            }
            self.app.post_with_key("/v1/tenants/acme/grants", &key, &body).await
        };
        assert_eq!(status.as_u16(), 201, "{answer}");
    }

    /// So many hours from now.
    pub fn in_hours(&self, hours: i64) -> DateTime<Utc> {
        self.app.clock.now() + TimeDelta::hours(hours)
    }

    pub fn wait(&self, secs: i64) {
        self.app.clock.advance(TimeDelta::seconds(secs));
    }

    /// A POST without a key, which these calls need none of.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        Call::new("POST", path).token(&self.app.token).json(body).send(&self.app).await
    }

    /// Places a hold in credits.
    pub async fn place(&self, hold_id: &str, amount: &str, more: Value) -> Answer {
        self.place_in("CREDIT", hold_id, amount, more).await
    }

    pub async fn place_in(&self, currency: &str, hold_id: &str, amount: &str, more: Value) -> Answer {
        let mut body = json!({ "hold_id": hold_id, "tenant_id": "acme", "currency": currency, "amount": amount });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post("/v1/holds", &body).await
    }

    /// Places a hold that must succeed.
    pub async fn placed(&self, hold_id: &str, amount: &str) -> Value {
        let answer = self.place(hold_id, amount, json!({})).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    pub async fn act(&self, hold_id: &str, verb: &str, body: Value) -> Answer {
        self.post(&format!("/v1/holds/{hold_id}/{verb}"), &body).await
    }

    pub async fn start(&self, hold_id: &str) {
        let answer = self.act(hold_id, "start", json!({})).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["status"]), (200, &json!("started")), "{}", answer.text());
    }

    /// Logs a call's cost in millionths of a dollar: 1,000 is a credit.
    pub async fn used(&self, hold_id: &str, call_id: &str, cost_micro: i64) -> Answer {
        self.act(hold_id, "usage", json!({ "call_id": call_id, "cost_micro": cost_micro })).await
    }

    pub async fn settle(&self, hold_id: &str, mode: &str) -> Answer {
        self.act(hold_id, "settle", json!({ "mode": mode })).await
    }

    pub async fn hold(&self, hold_id: &str) -> Value {
        let (status, answer) = self.app.get(&format!("/v1/holds/{hold_id}")).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub async fn balance(&self, currency: &str) -> Value {
        let (status, answer) = self.app.get(&format!("/v1/tenants/acme/balance?currency={currency}")).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Balance, held, available.
    pub async fn numbers(&self, currency: &str) -> (i64, i64, i64) {
        let balance = self.balance(currency).await;
        let number = |name: &str| balance[name].as_str().unwrap().parse::<i64>().unwrap();
        (number("balance"), number("held"), number("available"))
    }

    /// What each pocket holds.
    pub async fn pockets(&self, currency: &str) -> Value {
        self.balance(currency).await["pockets"].clone()
    }

    /// One round of the reconciler.
    pub async fn reconcile(&self) -> Reconciled {
        hold::reconcile(&self.app.db(), &self.app.clock).await.expect("a round")
    }

    /// The kinds, pockets and amounts of the wallet's rows.
    pub async fn rows(&self, currency: &str) -> Vec<(String, String, i64)> {
        sqlx::query_as(
            "SELECT kind, pocket, amount FROM wallet_transactions WHERE currency = $1 ORDER BY wallet_id, seq",
        )
        .bind(currency)
        .fetch_all(&mut self.app.superuser().await)
        .await
        .unwrap()
    }

    /// The book agrees with itself, and Σ over pockets is the balance.
    pub async fn is_right(&self) {
        let report = self.app.verify().await;
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}

impl TestApp {
    pub fn db(&self) -> hamyon::db::Database {
        self.app.db.clone()
    }
}
