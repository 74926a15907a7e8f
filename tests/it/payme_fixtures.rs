//! What Payme is answered, word for word. A payer reads the texts and Payme's servers compare the times, so every
//! case of `fixtures/payme/` is replayed and its whole answer compared; and no case may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use futures::StreamExt as _;
use hamyon::provider::payme::{FiscalItem, PaymeError};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::support::TestApp;
use crate::support::app::{self, PAYME_KEY, PAYME_TEST_KEY, entry};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    about: String,
    given: Vec<Step>,
    request: Request,
    answer: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Settings(Settings),
    Tenant(String),
    Order { order_id: String, tenant_id: String, amount: String },
    CloseOrder(String),
    Call(Call),
    WaitMs(i64),
    Spend { tenant_id: String, amount: i64 },
    Import { tenant_id: String, amount: i64, id: String },
    Database(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    busy_code: Option<i32>,
    fiscal_item: Option<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    title: String,
    code: String,
    package_code: String,
    vat_percent: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    method: String,
    params: Value,
    #[serde(default)]
    key: Key,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default = "post")]
    http: String,
    #[serde(default)]
    key: Key,
    body: Option<Value>,
    raw: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Key {
    #[default]
    Live,
    Test,
    None,
    Probe,
}

impl Key {
    fn header(self) -> Option<String> {
        let password = match self {
            Self::Live => PAYME_KEY,
            Self::Test => PAYME_TEST_KEY,
            Self::None => return None,
            Self::Probe => "Uzcard:someRandomString1545343543545",
        };
        Some(format!("Basic {}", STANDARD.encode(format!("Paycom:{password}"))))
    }
}

fn read_all() -> BTreeMap<String, Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/payme");
    std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(path).unwrap();
            let fixture = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, fixture)
        })
        .collect()
}

/// A world in which fixtures' placeholders mean something.
struct Stage {
    app: TestApp,
    start_ms: i64,
}

impl Stage {
    fn in_request(&self, value: &Value) -> Value {
        map_strings(value, &|text| self.time(text))
    }

    /// `{{start_ms+1000}}` as a number.
    fn time(&self, text: &str) -> Option<Value> {
        let offset = text.strip_prefix("{{start_ms")?.strip_suffix("}}")?;
        Some(json!(self.start_ms + offset.parse::<i64>().unwrap()))
    }

    async fn take(&self, step: &Step) {
        let app = &self.app;
        match step {
            Step::Settings(_) => {}
            Step::Tenant(tenant_id) => app.tenant(tenant_id).await,
            Step::Order { order_id, tenant_id, amount } => app.order(order_id, tenant_id, amount).await,
            Step::CloseOrder(order_id) => {
                let (status, answer) = app.post(&format!("/v1/orders/{order_id}/close"), &json!({})).await;
                assert_eq!(status, StatusCode::OK, "{answer}");
            }
            Step::Call(call) => {
                let body = json!({ "id": 1, "method": call.method, "params": self.in_request(&call.params) });
                self.send("POST", call.key, body.to_string()).await;
            }
            Step::WaitMs(by) => app.clock.advance(TimeDelta::milliseconds(*by)),
            Step::Spend { tenant_id, amount } => {
                app.post_entries(&[entry(tenant_id, "purchase", -amount, "spent")]).await.unwrap();
            }
            Step::Import { tenant_id, amount, id } => {
                app.post_entries(&[entry(tenant_id, "top_up", *amount, &format!("payme:{id}"))]).await.unwrap();
            }
            Step::Database(gone) => {
                assert_eq!(gone, "gone");
                app.app.db.pool().close().await;
            }
        }
    }

    async fn send(&self, http: &str, key: Key, body: String) -> Value {
        let mut request = self
            .app
            .client
            .request(http.parse().unwrap(), self.app.url("/payme"))
            .header("x-request-id", "fixture")
            .body(body);
        if let Some(header) = key.header() {
            request = request.header("authorization", header);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/json; charset=UTF-8");
        response.json().await.unwrap()
    }

    /// Our ids of the payments, by Payme's.
    async fn transactions(&self) -> BTreeMap<String, String> {
        sqlx::query_as("SELECT external_id, payment_id::text FROM payments ORDER BY mode DESC")
            .fetch_all(&mut self.app.superuser().await)
            .await
            .unwrap()
            .into_iter()
            .collect()
    }
}

/// Replaces whole strings for which there is something else.
fn map_strings(value: &Value, replace: &impl Fn(&str) -> Option<Value>) -> Value {
    match value {
        Value::String(text) => replace(text).unwrap_or_else(|| value.clone()),
        Value::Array(items) => items.iter().map(|item| map_strings(item, replace)).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), map_strings(value, replace))).collect::<Map<_, _>>(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn settings_of(fixture: &Fixture) -> hamyon::app::AppSettings {
    let mut settings = app::settings();
    for (at, step) in fixture.given.iter().enumerate() {
        if let Step::Settings(given) = step {
            assert_eq!(at, 0, "settings come first");
            settings.payme.busy_code = given.busy_code.unwrap_or(settings.payme.busy_code);
            settings.payme.fiscal_item = given.fiscal_item.as_ref().map(|item| FiscalItem {
                title: item.title.clone(),
                code: item.code.clone(),
                package_code: item.package_code.clone(),
                vat_percent: item.vat_percent,
            });
        }
    }
    settings
}

/// The answer that came and the one that should have.
async fn replay(fixture: &Fixture) -> (Value, Value) {
    let app = TestApp::start_with(settings_of(fixture)).await;
    let stage = Stage { start_ms: app.now_ms(), app };
    for step in &fixture.given {
        stage.take(step).await;
    }
    let (body, asked) = match (&fixture.request.body, &fixture.request.raw) {
        (Some(body), None) => {
            let body = stage.in_request(body);
            (body.to_string(), body["params"]["id"].as_str().unwrap_or_default().to_owned())
        }
        (None, Some(raw)) => (raw.clone(), String::new()),
        _ => panic!("a request has a body or raw text"),
    };
    let came = stage.send(&fixture.request.http, fixture.request.key, body).await;
    let transactions = stage.transactions().await;
    let expected = map_strings(&fixture.answer, &|text| {
        let name = text.strip_prefix("{{transaction")?.strip_suffix("}}")?;
        let id = name.strip_prefix(':').unwrap_or(&asked);
        Some(json!(transactions.get(id).unwrap_or_else(|| panic!("no payment {id}"))))
    });
    (came, stage.in_request(&expected))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_every_case_is_answered_word_for_word() {
    let fixtures = read_all();
    let outcomes: Vec<_> = futures::stream::iter(&fixtures)
        .map(|(name, fixture)| async move { (name, fixture, replay(fixture).await) })
        .buffered(4)
        .collect()
        .await;
    let wrong: Vec<String> = outcomes
        .into_iter()
        .filter(|(_, _, (came, expected))| came != expected)
        .map(|(name, fixture, (came, expected))| {
            format!("{name}: {}\n  came:     {came}\n  expected: {expected}", fixture.about)
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_cell_of_the_table_has_a_case() {
    let fixtures = read_all();
    let mut wanted: Vec<String> = Vec::new();
    for method in ["create", "perform", "cancel", "check"] {
        for state in ["unknown", "state-1-fresh", "state-1-expired", "state-2", "state-minus-1", "state-minus-2"] {
            wanted.push(format!("{method}-{state}"));
        }
    }
    wanted.extend(
        [
            "cancel-state-2-spent",
            "check-perform-wallet",
            "check-perform-order",
            "get-statement",
            "set-fiscal-data-perform",
            "set-fiscal-data-cancel",
            "set-fiscal-data-unknown",
        ]
        .map(str::to_owned),
    );
    let missing: Vec<&String> = wanted.iter().filter(|name| !fixtures.contains_key(*name)).collect();
    assert!(missing.is_empty(), "no fixture for {missing:?}");
    for (prefix, method) in [
        ("create-", "CreateTransaction"),
        ("perform-", "PerformTransaction"),
        ("cancel-", "CancelTransaction"),
        ("check-state-", "CheckTransaction"),
        ("check-unknown", "CheckTransaction"),
        ("check-perform-wallet", "CheckPerformTransaction"),
        ("check-perform-order", "CheckPerformTransaction"),
        ("get-statement", "GetStatement"),
        ("set-fiscal-data-", "SetFiscalData"),
    ] {
        for (name, fixture) in fixtures.iter().filter(|(name, _)| name.starts_with(prefix)) {
            assert_eq!(fixture.request.body.as_ref().unwrap()["method"], method, "{name}");
        }
    }
}

#[test]
fn every_error_has_a_case() {
    let field = || "tenant_id".to_owned();
    let errors = [
        PaymeError::NotPost,
        PaymeError::NotJson,
        PaymeError::BadRequest(""),
        PaymeError::UnknownMethod(field()),
        PaymeError::NotAuthorized,
        PaymeError::Internal { reference: field() },
        PaymeError::WrongAmount,
        PaymeError::UnknownTransaction,
        PaymeError::MoneySpent,
        PaymeError::WrongState,
        PaymeError::UnknownAccount { field: field() },
        PaymeError::NotPayable { field: field() },
        PaymeError::Busy { field: field(), code: -31_099 },
        PaymeError::UnknownReceipt,
        PaymeError::BadFiscalParams(""),
        PaymeError::BookedOtherwise { reference: field() },
    ];
    // Who adds an error is led here by the compiler, and from here to the list above.
    let number = |error: &PaymeError| match error {
        PaymeError::NotPost => 0,
        PaymeError::NotJson => 1,
        PaymeError::BadRequest(_) => 2,
        PaymeError::UnknownMethod(_) => 3,
        PaymeError::NotAuthorized => 4,
        PaymeError::Internal { .. } => 5,
        PaymeError::WrongAmount => 6,
        PaymeError::UnknownTransaction => 7,
        PaymeError::MoneySpent => 8,
        PaymeError::WrongState => 9,
        PaymeError::UnknownAccount { .. } => 10,
        PaymeError::NotPayable { .. } => 11,
        PaymeError::Busy { .. } => 12,
        PaymeError::UnknownReceipt => 13,
        PaymeError::BadFiscalParams(_) => 14,
        PaymeError::BookedOtherwise { .. } => 15,
    };
    assert_eq!(errors.iter().map(number).collect::<Vec<_>>(), (0..=15).collect::<Vec<_>>());
    let answered: BTreeSet<i64> =
        read_all().values().filter_map(|fixture| fixture.answer["error"]["code"].as_i64()).collect();
    let codes: BTreeSet<i64> = errors.iter().map(|error| i64::from(error.code())).collect();
    assert_eq!(answered, codes, "the codes of the fixtures and the codes there are");
    for error in &errors {
        let text = error.text();
        assert!(!text.ru.is_empty() && !text.uz.is_empty() && !text.en.is_empty(), "{error:?}");
        assert!(text.ru != text.en && text.uz != text.en && text.ru != text.uz, "{error:?}");
    }
}
