//! A Bot API of stars, on this machine only: it keeps a list of transactions like Telegram's, and fails as it is
//! told, before or after having acted.
//!
//! It uses nothing of the program under test, and nothing of the other tests: the example `fake_bot_api` is made of
//! this file, too.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is done and answered.
    Do,
    /// It isn't done; the answer is this status with Telegram's envelope.
    Refuse(u16, &'static str),
    /// It isn't done; 429 with so many seconds.
    TooMany(i64),
    /// It isn't done and nobody answers.
    Silence,
    /// It is done and nobody answers.
    DoAndSilence,
    /// It is done; the answer is this status.
    DoAndStatus(u16),
    /// It is done and the connection is cut in the middle of the answer.
    DoAndDrop,
}

/// A payment as Telegram has it.
#[derive(Debug, Clone)]
struct Charge {
    bot: String,
    payer: i64,
    amount: i64,
    payload: String,
    refunded: bool,
}

/// A call that came.
#[derive(Debug, Clone)]
pub struct Call {
    pub bot: String,
    pub method: String,
    pub params: Value,
}

type Script = Box<dyn FnMut(&Call) -> Act + Send>;

struct Inner {
    /// Each with the bot whose list it is in.
    lines: Vec<(String, Value)>,
    charges: HashMap<String, Charge>,
    /// How often a refund has moved stars, by charge.
    effects: HashMap<String, u32>,
    calls: Vec<Call>,
    script: Script,
    now: i64,
    number: u64,
    balance_shift: i64,
}

/// The server. It ends with the runtime it was started on.
#[derive(Clone)]
pub struct FakeBotApi {
    pub address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
}

impl FakeBotApi {
    /// Listens on a port of this machine; on any when it is 0.
    pub async fn start(port: u16, now: i64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port of this machine");
        let address = listener.local_addr().expect("an address");
        let inner = Arc::new(Mutex::new(Inner {
            lines: Vec::new(),
            charges: HashMap::new(),
            effects: HashMap::new(),
            calls: Vec::new(),
            script: Box::new(|_| Act::Do),
            now,
            // One that is started again gives no id twice.
            number: u64::try_from(now).unwrap_or(0),
            balance_shift: 0,
        }));
        let router = Router::new().fallback(answer).with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.expect("the fake Bot API serves") });
        Self { address, inner }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, calls fare like this.
    pub fn fares(&self, script: impl FnMut(&Call) -> Act + Send + 'static) {
        self.inner().script = Box::new(script);
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        self.inner().calls.clone()
    }

    /// How often a method was called.
    pub fn called(&self, method: &str) -> usize {
        self.inner().calls.iter().filter(|call| call.method == method).count()
    }

    /// Telegram's own time, in seconds.
    pub fn set_now(&self, now: i64) {
        self.inner().now = now;
    }

    /// Loses its memory, as one that is started anew.
    pub fn forget(&self) {
        let mut inner = self.inner();
        inner.lines.clear();
        inner.charges.clear();
    }

    /// Takes a payer's stars for a bot: the charge's id. Nobody is told.
    pub fn pay(&self, bot: i64, payer: i64, payload: &str, amount: i64) -> String {
        let mut inner = self.inner();
        inner.number += 1;
        let charge_id = format!("stx{:06}_{payer}", inner.number);
        let bot = bot.to_string();
        let charge = Charge { bot: bot.clone(), payer, amount, payload: payload.to_owned(), refunded: false };
        let line = json!({
            "id": charge_id, "amount": amount, "date": inner.now,
            "source": { "type": "user", "transaction_type": "invoice_payment", "invoice_payload": payload,
                        "user": { "id": payer, "is_bot": false, "first_name": "Payer" } },
        });
        inner.lines.push((bot, line));
        inner.charges.insert(charge_id.clone(), charge);
        charge_id
    }

    /// Takes a payment back without anybody's asking.
    pub fn charge_back(&self, charge_id: &str) {
        refund(&mut self.inner(), charge_id);
    }

    /// Adds a line of any shape to a bot's list.
    pub fn add_line(&self, bot: i64, line: Value) {
        self.inner().lines.push((bot.to_string(), line));
    }

    /// Moves every bot's balance, as if stars had been withdrawn.
    pub fn shift_balance(&self, by: i64) {
        self.inner().balance_shift += by;
    }

    /// How often a refund of this charge has moved stars.
    pub fn effects(&self, charge_id: &str) -> u32 {
        self.inner().effects.get(charge_id).copied().unwrap_or_default()
    }

    pub fn is_refunded(&self, charge_id: &str) -> bool {
        self.inner().charges.get(charge_id).is_some_and(|charge| charge.refunded)
    }

    /// What has come in and not gone back.
    pub fn kept(&self) -> i64 {
        self.inner().charges.values().filter(|charge| !charge.refunded).map(|charge| charge.amount).sum()
    }
}

fn refund(inner: &mut Inner, charge_id: &str) {
    let Some(charge) = inner.charges.get_mut(charge_id) else { return };
    charge.refunded = true;
    let line = json!({
        "id": charge_id, "amount": charge.amount, "date": inner.now,
        "receiver": { "type": "user", "transaction_type": "invoice_payment", "invoice_payload": charge.payload,
                      "user": { "id": charge.payer, "is_bot": false, "first_name": "Payer" } },
    });
    inner.lines.push((charge.bot.clone(), line));
    *inner.effects.entry(charge_id.to_owned()).or_default() += 1;
}

async fn answer(State(inner): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches("/bot").to_owned();
    let (bot, method) = path.split_once('/').unwrap_or((&path, ""));
    let bytes = axum::body::to_bytes(request.into_body(), 1_048_576).await.unwrap_or_default();
    let call = Call {
        bot: bot.split(':').next().unwrap_or_default().to_owned(),
        method: method.to_owned(),
        params: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    };
    let (act, answered) = {
        let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.calls.push(call.clone());
        let act = (inner.script)(&call);
        let answered = match act {
            Act::Do | Act::DoAndSilence | Act::DoAndStatus(_) | Act::DoAndDrop => perform(&mut inner, &call),
            Act::Refuse(..) | Act::TooMany(_) | Act::Silence => (StatusCode::OK, Value::Null),
        };
        (act, answered)
    };
    match act {
        Act::Do => reply(answered.0, &answered.1),
        Act::Refuse(status, description) => reply(
            StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST),
            &json!({ "ok": false, "error_code": status, "description": description }),
        ),
        Act::DoAndStatus(status) => reply(
            StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
            &json!({ "ok": false, "error_code": status, "description": "Internal Server Error" }),
        ),
        Act::TooMany(seconds) => reply(
            StatusCode::TOO_MANY_REQUESTS,
            &json!({ "ok": false, "error_code": 429, "description": "Too Many Requests",
                     "parameters": { "retry_after": seconds } }),
        ),
        Act::Silence | Act::DoAndSilence => std::future::pending().await,
        Act::DoAndDrop => {
            let half = futures::stream::iter([
                Ok(Bytes::from_static(b"{\"ok\":tr")),
                Err(std::io::Error::other("the connection is cut")),
            ]);
            Body::from_stream(half).into_response()
        }
    }
}

fn reply(status: StatusCode, body: &Value) -> Response {
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

fn perform(inner: &mut Inner, call: &Call) -> (StatusCode, Value) {
    let ok = |result: Value| (StatusCode::OK, json!({ "ok": true, "result": result }));
    let bad = |description: &str| {
        (StatusCode::BAD_REQUEST, json!({ "ok": false, "error_code": 400, "description": description }))
    };
    let text = |name: &str| call.params[name].as_str().unwrap_or_default().to_owned();
    match call.method.as_str() {
        "createInvoiceLink" => ok(json!(format!("https://t.me/$invoice-{}", text("payload")))),
        "answerPreCheckoutQuery" => ok(json!(true)),
        "refundStarPayment" => {
            let charge_id = text("telegram_payment_charge_id");
            let payer = call.params["user_id"].as_i64();
            match inner.charges.get(&charge_id) {
                None => bad("Bad Request: CHARGE_NOT_FOUND"),
                Some(charge) if charge.bot != call.bot => bad("Bad Request: CHARGE_NOT_FOUND"),
                Some(charge) if Some(charge.payer) != payer => bad("Bad Request: USER_ID_INVALID"),
                Some(charge) if charge.refunded => bad("Bad Request: CHARGE_ALREADY_REFUNDED"),
                Some(_) => {
                    refund(inner, &charge_id);
                    ok(json!(true))
                }
            }
        }
        "getStarTransactions" => {
            let offset = usize::try_from(call.params["offset"].as_i64().unwrap_or(0)).unwrap_or(0);
            let limit = usize::try_from(call.params["limit"].as_i64().unwrap_or(100)).unwrap_or(100);
            let of_bot = inner.lines.iter().filter(|(bot, _)| *bot == call.bot).map(|(_, line)| line.clone());
            let page: Vec<Value> = of_bot.skip(offset).take(limit).collect();
            ok(json!({ "transactions": page }))
        }
        "getMyStarBalance" => {
            let kept = inner.charges.values().filter(|charge| charge.bot == call.bot && !charge.refunded);
            let stars: i64 = kept.map(|charge| charge.amount).sum();
            ok(json!({ "amount": stars + inner.balance_shift }))
        }
        _ => (StatusCode::NOT_FOUND, json!({ "ok": false, "error_code": 404, "description": "Not Found" })),
    }
}
