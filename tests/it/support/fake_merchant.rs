//! A small strict Payme merchant in memory, with faults that can be switched on one at a time.
//!
//! It is what the conformance checks are measured against: without a defect everything must pass, and with one the check
//! that exists for it must fail. It is written from the specification alone and shares no code with the real handlers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

mod shop;

use shop::{Refusal, Shop};

pub const KEY: &str = "k&%@#?(:)=RealCashboxKey0123456789ab";
pub const WALLET: &str = "tenant_id=7";
pub const ORDERS: [&str; 4] = ["order_id=101", "order_id=102", "order_id=103", "order_id=104"];
pub const ORDER_TOTAL: i64 = 500_000;

/// One mistake that a merchant's code can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    UnauthorizedAs401,
    ParamsBeforeAuth,
    SplitsAtColon,
    IgnoresLogin,
    SchemeCaseSensitive,
    GetAs405,
    RejectsTextJson,
    RequiresJsonrpc,
    AnswersBatch,
    DropsId,
    StringId,
    NullErrorBesideResult,
    HtmlContentType,
    NoMethodInData,
    KeepsChangePassword,
    PlainMessage,
    NoFieldInData,
    AmountBeforeAccount,
    AcceptsExponent,
    AcceptsZero,
    AcceptsAnyOrderAmount,
    BusyNotDetected,
    RaceWindow,
    OneOpenPaymentPerWallet,
    CreateRestamps,
    PerformRestamps,
    CancelRestamps,
    OverwritesAmount,
    OverwritesReason,
    NullForUnsetTime,
    ZeroForUnsetReason,
    ForgetsPerformTime,
    AnswersCreateInAnyState,
    PerformsCancelled,
    PaidOrderPayable,
    OrderStaysBusy,
    ReasonOptional,
    NoTimeLimit,
    LimitFromCreate,
    StatementBySequence,
    StatementWithoutCancelled,
    StatementEndExclusive,
    ReceiptOnce,
    RefundsSpentMoney,
    UnknownIdAsImpossible,
    EchoesCredentials,
}

/// A running merchant.
pub struct FakeMerchant {
    pub url: String,
    /// A file in here, named after our transaction id, says that the money was spent.
    pub spent: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for FakeMerchant {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeMerchant {
    pub async fn start(defect: Option<Defect>) -> Self {
        let spent = tempfile::tempdir().unwrap();
        let shop = Shop { defect, spent: spent.path().to_owned(), store: Mutex::default() };
        let router = Router::new().fallback(endpoint).with_state(Arc::new(shop));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/payme", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, spent, server }
    }
}

async fn endpoint(State(shop): State<Arc<Shop>>, method: Method, headers: HeaderMap, body: Bytes) -> Response {
    let parsed: Option<Value> = serde_json::from_slice(&body).ok();
    let mut id = parsed.as_ref().and_then(|body| body.get("id")).cloned().unwrap_or(Value::Null);
    let outcome = shop.answer(&method, &headers, parsed).await;
    let status = match &outcome {
        Err(Refusal { code: -32_504, .. }) if shop.has(Defect::UnauthorizedAs401) => StatusCode::UNAUTHORIZED,
        Err(Refusal { code: -32_300, .. }) if shop.has(Defect::GetAs405) => StatusCode::METHOD_NOT_ALLOWED,
        _ => StatusCode::OK,
    };
    if shop.has(Defect::StringId) && !id.is_null() {
        id = Value::from(id.to_string());
    }
    let mut envelope = Map::from_iter([("jsonrpc".to_owned(), json!("2.0")), ("id".to_owned(), id)]);
    if shop.has(Defect::DropsId) {
        envelope.remove("id");
    }
    match outcome {
        Ok(result) => {
            envelope.insert("result".to_owned(), result);
            if shop.has(Defect::NullErrorBesideResult) {
                envelope.insert("error".to_owned(), Value::Null);
            }
        }
        Err(Refusal { code, mut data }) => {
            if shop.has(Defect::EchoesCredentials) {
                let header = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
                data = json!([header, format!("Paycom:{KEY}")]);
            }
            let message = if shop.has(Defect::PlainMessage) {
                json!("Refused")
            } else {
                json!({"ru": "Отказано", "uz": "Rad etildi", "en": "Refused"})
            };
            envelope.insert("error".to_owned(), json!({"code": code, "message": message, "data": data}));
        }
    }
    let content_type = if shop.has(Defect::HtmlContentType) { "text/html" } else { "application/json; charset=UTF-8" };
    (status, [(CONTENT_TYPE, content_type)], Value::Object(envelope).to_string()).into_response()
}
