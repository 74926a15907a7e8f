//! What the fake merchant does with a request: the authorization, the methods and the transactions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Defect, KEY, ORDER_TOTAL, ORDERS};

const LIMIT_MS: i64 = 43_200_000;

pub struct Shop {
    pub defect: Option<Defect>,
    pub spent: PathBuf,
    pub store: Mutex<Store>,
}

#[derive(Clone)]
struct Transaction {
    sequence: usize,
    time: i64,
    amount: i64,
    account: Value,
    create_time: i64,
    perform_time: i64,
    cancel_time: i64,
    state: i64,
    reason: Option<i64>,
    receipts: Vec<String>,
}

#[derive(Default)]
pub struct Store {
    transactions: HashMap<String, Transaction>,
}

pub struct Refusal {
    pub code: i64,
    pub data: Value,
}

fn refuse<T>(code: i64) -> Result<T, Refusal> {
    Err(Refusal { code, data: Value::Null })
}

fn refuse_field<T>(code: i64, field: &str) -> Result<T, Refusal> {
    Err(Refusal { code, data: Value::from(field) })
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Shop {
    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }

    pub async fn answer(&self, http: &Method, headers: &HeaderMap, body: Option<Value>) -> Result<Value, Refusal> {
        if *http != Method::POST {
            return refuse(-32_300);
        }
        let params_are_wrong = body.as_ref().is_some_and(|body| !body["params"].is_object());
        if self.has(Defect::ParamsBeforeAuth) && params_are_wrong {
            return refuse(-32_600);
        }
        if !self.is_authorized(headers) {
            return refuse(-32_504);
        }
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if self.has(Defect::RejectsTextJson) && content_type == "text/json" {
            return refuse(-32_700);
        }
        let Some(mut body) = body else {
            return refuse(-32_700);
        };
        if self.has(Defect::AnswersBatch)
            && let Some(first) = body.get(0)
        {
            body = first.clone();
        }
        if self.has(Defect::RequiresJsonrpc) && body["jsonrpc"] != "2.0" {
            return refuse(-32_600);
        }
        let (Some(method), Some(params)) = (body["method"].as_str(), body["params"].as_object()) else {
            return refuse(-32_600);
        };
        match method {
            "CheckPerformTransaction" => {
                let (amount, account) = self.payable(params)?;
                self.check_account(&account, amount, &self.store()).map(|()| json!({"allow": true}))
            }
            "CreateTransaction" => self.create(params).await,
            "PerformTransaction" => self.perform(params),
            "CancelTransaction" => self.cancel(params),
            "CheckTransaction" => {
                let id = string(params, "id")?;
                let store = self.store();
                let Some(transaction) = store.transactions.get(&id) else {
                    return self.unknown();
                };
                Ok(Value::Object(self.shape(transaction)))
            }
            "GetStatement" => self.statement(params),
            "SetFiscalData" => self.receipt(params),
            "ChangePassword" if self.has(Defect::KeepsChangePassword) => Ok(json!({"success": true})),
            _ if self.has(Defect::NoMethodInData) => refuse(-32_601),
            _ => refuse_field(-32_601, method),
        }
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(header) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let Some((scheme, encoded)) = header.split_once(' ') else {
            return false;
        };
        if self.has(Defect::SchemeCaseSensitive) && scheme != "Basic" {
            return false;
        }
        let Ok(decoded) = STANDARD.decode(encoded) else {
            return false;
        };
        let wanted = format!("Paycom:{KEY}");
        let right = if self.has(Defect::SplitsAtColon) {
            decoded.starts_with(wanted.as_bytes())
        } else if self.has(Defect::IgnoresLogin) {
            decoded.ends_with(format!(":{KEY}").as_bytes())
        } else {
            decoded == wanted.as_bytes()
        };
        scheme.eq_ignore_ascii_case("basic") && right
    }

    fn payable(&self, params: &Map<String, Value>) -> Result<(i64, Value), Refusal> {
        let account = params.get("account").cloned().unwrap_or(Value::Null);
        let amount = params.get("amount").unwrap_or(&Value::Null);
        let exponent = self.has(Defect::AcceptsExponent) && amount.is_f64() && amount.as_f64() == Some(1e3);
        let amount = if exponent { Some(1000) } else { amount.as_i64() };
        match (amount, account.is_object()) {
            (Some(amount), true) => Ok((amount, account)),
            _ => refuse(-32_600),
        }
    }

    /// Account, then payable or busy, then the amount.
    fn check_account(&self, account: &Value, amount: i64, store: &Store) -> Result<(), Refusal> {
        if self.has(Defect::AmountBeforeAccount) && amount <= 0 {
            return refuse(-31_001);
        }
        let refuse_field = |code, field: &str| {
            if self.has(Defect::NoFieldInData) { refuse(code) } else { refuse_field(code, field) }
        };
        let order = account.get("order_id").map(text);
        let is_order = order.is_some();
        if let Some(order) = order {
            if !ORDERS.contains(&format!("order_id={order}").as_str()) {
                return refuse_field(-31_050, "order_id");
            }
            let mut rivals = store.transactions.values().filter(|other| other.account == *account);
            if rivals.clone().any(|rival| rival.state == 2) && !self.has(Defect::PaidOrderPayable) {
                return refuse_field(-31_051, "order_id");
            }
            let stays_busy = self.has(Defect::OrderStaysBusy);
            if rivals.any(|rival| rival.state == 1 || (stays_busy && rival.state == -1))
                && !self.has(Defect::BusyNotDetected)
            {
                return refuse_field(-31_099, "order_id");
            }
        } else {
            if account.get("tenant_id").map(text).as_deref() != Some("7") {
                return refuse_field(-31_050, "tenant_id");
            }
            let open = store.transactions.values().any(|other| other.account == *account && other.state == 1);
            if self.has(Defect::OneOpenPaymentPerWallet) && open {
                return refuse_field(-31_099, "tenant_id");
            }
        }
        let positive = amount > 0 || (amount == 0 && self.has(Defect::AcceptsZero));
        let total = !is_order || amount == ORDER_TOTAL || self.has(Defect::AcceptsAnyOrderAmount);
        if !positive || !total || amount > 100_000_000_000_000_000 {
            return refuse(-31_001);
        }
        Ok(())
    }

    async fn create(&self, params: &Map<String, Value>) -> Result<Value, Refusal> {
        let id = string(params, "id")?;
        let time = integer(params, "time")?;
        let (amount, account) = self.payable(params)?;
        let check = |store: &mut Store| {
            if let Some(known) = store.transactions.get_mut(&id) {
                return self.create_known(known, amount, &account).map(Some);
            }
            self.check_account(&account, amount, store)?;
            if now_ms() - time > LIMIT_MS && !self.has(Defect::NoTimeLimit) {
                return refuse(-31_008);
            }
            Ok(None)
        };
        if self.has(Defect::RaceWindow) {
            if let Some(stored) = check(&mut self.store())? {
                return Ok(stored);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let mut store = self.store();
        if !self.has(Defect::RaceWindow)
            && let Some(stored) = check(&mut store)?
        {
            return Ok(stored);
        }
        let sequence = store.transactions.len() + 1;
        let transaction = Transaction {
            sequence,
            time,
            amount,
            account,
            create_time: now_ms(),
            perform_time: 0,
            cancel_time: 0,
            state: 1,
            reason: None,
            receipts: Vec::new(),
        };
        let answer = created(&transaction);
        store.transactions.insert(id, transaction);
        Ok(answer)
    }

    fn create_known(&self, known: &mut Transaction, amount: i64, account: &Value) -> Result<Value, Refusal> {
        if self.has(Defect::OverwritesAmount) {
            known.amount = amount;
        } else if known.amount != amount || known.account != *account {
            return refuse(-31_008);
        }
        if known.state != 1 && !self.has(Defect::AnswersCreateInAnyState) {
            return refuse(-31_008);
        }
        if known.state == 1 {
            self.expire(known)?;
        }
        if self.has(Defect::CreateRestamps) {
            known.create_time = now_ms();
        }
        Ok(created(known))
    }

    /// An open transaction beyond its limit is cancelled by the call that finds it.
    fn expire(&self, transaction: &mut Transaction) -> Result<(), Refusal> {
        let start = if self.has(Defect::LimitFromCreate) { transaction.create_time } else { transaction.time };
        if now_ms() - start > LIMIT_MS && !self.has(Defect::NoTimeLimit) {
            transaction.state = -1;
            transaction.reason = Some(4);
            transaction.cancel_time = now_ms();
            return refuse(-31_008);
        }
        Ok(())
    }

    fn perform(&self, params: &Map<String, Value>) -> Result<Value, Refusal> {
        let id = string(params, "id")?;
        let mut store = self.store();
        let Some(known) = store.transactions.get_mut(&id) else {
            return self.unknown();
        };
        match known.state {
            1 => {
                self.expire(known)?;
                known.state = 2;
                known.perform_time = now_ms();
            }
            2 if self.has(Defect::PerformRestamps) => known.perform_time = now_ms(),
            2 => {}
            _ if self.has(Defect::PerformsCancelled) => known.state = 2,
            _ => return refuse(-31_008),
        }
        Ok(json!({
            "transaction": known.sequence.to_string(), "perform_time": known.perform_time, "state": known.state,
        }))
    }

    fn cancel(&self, params: &Map<String, Value>) -> Result<Value, Refusal> {
        let id = string(params, "id")?;
        let reason = match params.get("reason").and_then(Value::as_i64) {
            Some(reason) => reason,
            None if self.has(Defect::ReasonOptional) => 10,
            None => return refuse(-32_600),
        };
        let mut store = self.store();
        let Some(known) = store.transactions.get_mut(&id) else {
            return self.unknown();
        };
        let spent = self.spent.join(known.sequence.to_string()).exists();
        if known.state == 2 && spent && !self.has(Defect::RefundsSpentMoney) {
            return refuse(-31_007);
        }
        if known.state > 0 {
            known.state = if known.state == 2 { -2 } else { -1 };
            known.reason = Some(reason);
            known.cancel_time = now_ms();
            if self.has(Defect::ForgetsPerformTime) {
                known.perform_time = 0;
            }
        } else if self.has(Defect::CancelRestamps) {
            known.cancel_time = now_ms();
        } else if self.has(Defect::OverwritesReason) {
            known.reason = Some(reason);
        }
        Ok(json!({
            "transaction": known.sequence.to_string(), "cancel_time": known.cancel_time, "state": known.state,
        }))
    }

    fn unknown<T>(&self) -> Result<T, Refusal> {
        refuse(if self.has(Defect::UnknownIdAsImpossible) { -31_008 } else { -31_003 })
    }

    fn shape(&self, transaction: &Transaction) -> Map<String, Value> {
        let time = |at: i64| {
            if at == 0 && self.has(Defect::NullForUnsetTime) { Value::Null } else { Value::from(at) }
        };
        let reason = match transaction.reason {
            None if self.has(Defect::ZeroForUnsetReason) => Value::from(0),
            reason => reason.map_or(Value::Null, Value::from),
        };
        Map::from_iter([
            ("create_time".to_owned(), Value::from(transaction.create_time)),
            ("perform_time".to_owned(), time(transaction.perform_time)),
            ("cancel_time".to_owned(), time(transaction.cancel_time)),
            ("transaction".to_owned(), Value::from(transaction.sequence.to_string())),
            ("state".to_owned(), Value::from(transaction.state)),
            ("reason".to_owned(), reason),
        ])
    }

    fn statement(&self, params: &Map<String, Value>) -> Result<Value, Refusal> {
        let (from, mut to) = (integer(params, "from")?, integer(params, "to")?);
        if self.has(Defect::StatementEndExclusive) {
            to -= 1;
        }
        let store = self.store();
        let mut found: Vec<_> = store
            .transactions
            .iter()
            .filter(|(_, row)| from <= row.time && row.time <= to)
            .filter(|(_, row)| row.state > 0 || !self.has(Defect::StatementWithoutCancelled))
            .collect();
        let by_time = !self.has(Defect::StatementBySequence);
        found.sort_by_key(|(_, row)| (by_time.then_some(row.time), row.sequence));
        let rows = found.into_iter().map(|(id, transaction)| {
            let mut row = self.shape(transaction);
            row.insert("id".to_owned(), json!(id));
            row.insert("time".to_owned(), json!(transaction.time));
            row.insert("amount".to_owned(), json!(transaction.amount));
            row.insert("account".to_owned(), transaction.account.clone());
            row.insert("receivers".to_owned(), Value::Null);
            Value::Object(row)
        });
        Ok(json!({"transactions": rows.collect::<Vec<_>>()}))
    }

    fn receipt(&self, params: &Map<String, Value>) -> Result<Value, Refusal> {
        let (id, kind) = (string(params, "id")?, string(params, "type")?);
        let mut store = self.store();
        let Some(known) = store.transactions.get_mut(&id) else {
            return refuse(-32_001);
        };
        if known.receipts.contains(&kind) && self.has(Defect::ReceiptOnce) {
            return refuse(-32_001);
        }
        known.receipts.push(kind);
        Ok(json!({"success": true}))
    }
}

fn created(transaction: &Transaction) -> Value {
    json!({
        "create_time": transaction.create_time,
        "transaction": transaction.sequence.to_string(),
        "state": transaction.state,
        "receivers": null,
    })
}

fn string(params: &Map<String, Value>, name: &str) -> Result<String, Refusal> {
    params.get(name).and_then(Value::as_str).map_or_else(|| refuse(-32_600), |text| Ok(text.to_owned()))
}

fn integer(params: &Map<String, Value>, name: &str) -> Result<i64, Refusal> {
    params.get(name).and_then(Value::as_i64).map_or_else(|| refuse(-32_600), Ok)
}
