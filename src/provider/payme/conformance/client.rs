//! The JSON-RPC client: sends one request as Payme would (or deliberately would not) and keeps everything it saw.
//!
//! Nothing is judged here. An HTTP 401, a body that is not JSON and a connection that broke are all kept as they are,
//! so that a check can say exactly what came back. The cashbox key never leaves this file: an exchange stores a name
//! for the credentials that were used, and a merchant which echoes the key has it blotted out of its answer.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::payment::{Account, Payment};

/// The content type that Payme's servers send.
pub const PAYME_CONTENT_TYPE: &str = "application/json; charset=UTF-8";

/// An answer longer than this is cut off: no Payme answer comes near it, and an endless one must not fill the memory.
const ANSWER_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// What stands in the `Authorization` header.
#[derive(Clone)]
pub enum Authorization {
    /// The login and key given on the command line.
    Key,
    /// The same, with another spelling of the scheme name.
    KeyWithScheme(&'static str),
    /// No header at all.
    Missing,
    /// `Basic` with these bytes in base64, under a name for the report.
    Basic { name: &'static str, credentials: Vec<u8> },
    /// The header as it is, under a name for the report.
    Header { name: &'static str, value: &'static str },
}

impl Authorization {
    fn name(&self) -> &'static str {
        match self {
            Self::Key | Self::KeyWithScheme(_) => "the key given",
            Self::Missing => "no Authorization header",
            Self::Basic { name, .. } | Self::Header { name, .. } => name,
        }
    }
}

/// One request, ready to be sent.
pub struct Call {
    pub http_method: Method,
    pub authorization: Authorization,
    pub content_type: Option<&'static str>,
    pub test_operation: bool,
    pub body: String,
    /// The `id` that has to come back; `None` when the request has no readable one.
    pub id: Option<Value>,
}

impl Call {
    /// A body which is sent as it is, with the right key.
    pub fn raw(body: impl Into<String>, id: Option<Value>) -> Self {
        Self {
            http_method: Method::POST,
            authorization: Authorization::Key,
            content_type: Some(PAYME_CONTENT_TYPE),
            test_operation: false,
            body: body.into(),
            id,
        }
    }

    pub fn with_authorization(self, authorization: Authorization) -> Self {
        Self { authorization, ..self }
    }
}

/// What was sent and what came back.
#[derive(Debug)]
pub struct Exchange {
    pub http_method: String,
    pub credentials: &'static str,
    pub request: String,
    pub id: Option<Value>,
    /// The answer, or why there is none.
    pub reply: Result<Reply, String>,
}

/// An HTTP answer of any kind.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: String,
    /// The members of the JSON object in the body, each as it was written, or why there are none.
    pub members: Result<BTreeMap<String, Box<RawValue>>, String>,
}

impl Reply {
    /// A member of the answer as a value.
    pub fn member(&self, name: &str) -> Option<Value> {
        let members = self.members.as_ref().ok()?;
        serde_json::from_str(members.get(name)?.get()).ok()
    }

    /// A member of the answer, byte for byte.
    pub fn raw_member(&self, name: &str) -> Option<&str> {
        Some(self.members.as_ref().ok()?.get(name)?.get())
    }
}

/// A merchant's endpoint and the right to call it.
pub struct Client {
    http: reqwest::Client,
    url: Url,
    login: String,
    key: SecretString,
    next_id: AtomicU64,
    log: Mutex<Vec<Arc<Exchange>>>,
}

impl Client {
    pub fn new(url: Url, login: String, key: SecretString, timeout: Duration) -> anyhow::Result<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            bail!("the URL must start with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            bail!("the URL must not hold a user name or a password: the key has its own flag");
        }
        if key.expose_secret().is_empty() {
            bail!("the key is empty");
        }
        // Another part of the process may have chosen a provider already; either one will do.
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(timeout)
            // A connection that the merchant may be about to close is not used again: the call would be lost, and
            // that is no fault of the merchant's.
            .pool_idle_timeout(Duration::from_secs(3))
            .redirect(reqwest::redirect::Policy::none());
        // A merchant on this machine is never behind the company's proxy.
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build().context("the HTTP client could not be built")?,
            url,
            login,
            key,
            next_id: AtomicU64::new(1),
            log: Mutex::new(Vec::new()),
        })
    }

    /// The endpoint as it may be shown: a query string could hold a secret.
    pub fn shown_url(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    pub fn login(&self) -> &str {
        &self.login
    }

    /// `login:key` with an alteration, for credentials that are nearly right.
    pub fn altered_credentials(&self, alter: impl FnOnce(&str, &str) -> String) -> Vec<u8> {
        alter(&self.login, self.key.expose_secret()).into_bytes()
    }

    /// Everything sent so far.
    pub fn log(&self) -> Vec<Arc<Exchange>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request for `method`, with a new numeric `id`.
    pub fn call(&self, method: &str, params: &Value) -> Call {
        self.call_with_raw_params(method, &params.to_string())
    }

    /// The same with params that are already JSON text: numbers such as `1e3` must reach the merchant as written.
    pub fn call_with_raw_params(&self, method: &str, params: &str) -> Call {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let method = Value::from(method);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#);
        Call::raw(body, Some(Value::from(id)))
    }

    pub async fn rpc(&self, method: &str, params: Value) -> Arc<Exchange> {
        self.send(self.call(method, &params)).await
    }

    pub async fn check_perform(&self, account: &Account, amount: i64) -> Arc<Exchange> {
        self.rpc("CheckPerformTransaction", json!({"amount": amount, "account": account.to_json()})).await
    }

    pub async fn create(&self, payment: &Payment) -> Arc<Exchange> {
        self.rpc("CreateTransaction", payment.create_params()).await
    }

    pub async fn perform(&self, id: &str) -> Arc<Exchange> {
        self.rpc("PerformTransaction", json!({"id": id})).await
    }

    pub async fn cancel(&self, id: &str, reason: i64) -> Arc<Exchange> {
        self.rpc("CancelTransaction", json!({"id": id, "reason": reason})).await
    }

    pub async fn check(&self, id: &str) -> Arc<Exchange> {
        self.rpc("CheckTransaction", json!({"id": id})).await
    }

    /// Cancels a payment which should never have been created, so that one fault does not make the next checks fail.
    pub async fn undo_if_created(&self, create: &Exchange, id: &str) {
        if create.reply.as_ref().is_ok_and(|reply| reply.raw_member("result").is_some()) {
            self.cancel(id, 10).await;
        }
    }

    /// Sends a request; a failure to get an answer is part of the exchange.
    pub async fn send(&self, call: Call) -> Arc<Exchange> {
        let reply = match self.exchange(&call).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.redact(&whole_chain(&error.without_url()))),
        };
        let exchange = Arc::new(Exchange {
            http_method: call.http_method.to_string(),
            credentials: call.authorization.name(),
            request: call.body,
            id: call.id,
            reply,
        });
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&exchange));
        exchange
    }

    async fn exchange(&self, call: &Call) -> Result<Reply, reqwest::Error> {
        let mut request = self.http.request(call.http_method.clone(), self.url.clone());
        if let Some(content_type) = call.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if call.test_operation {
            request = request.header("Test-Operation", "Paycom");
        }
        if let Some(value) = self.authorization_header(&call.authorization) {
            request = request.header(AUTHORIZATION, value);
        }
        if call.http_method != Method::GET {
            request = request.body(call.body.clone());
        }
        let mut response = request.send().await?;
        let status = response.status().as_u16();
        let content_type =
            response.headers().get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > ANSWER_LIMIT_BYTES {
                break;
            }
        }
        let body = self.redact(&String::from_utf8_lossy(&bytes));
        let members = serde_json::from_str(&body).map_err(|error| error.to_string());
        Ok(Reply { status, content_type, body, members })
    }

    fn authorization_header(&self, authorization: &Authorization) -> Option<HeaderValue> {
        let text = match authorization {
            Authorization::Key => format!("Basic {}", self.encoded_key()),
            Authorization::KeyWithScheme(scheme) => format!("{scheme} {}", self.encoded_key()),
            Authorization::Missing => return None,
            Authorization::Basic { credentials, .. } => {
                format!("Basic {}", STANDARD.encode(credentials))
            }
            Authorization::Header { value, .. } => (*value).to_owned(),
        };
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn encoded_key(&self) -> String {
        STANDARD.encode(format!("{}:{}", self.login, self.key.expose_secret()))
    }

    fn redact(&self, text: &str) -> String {
        let key = self.key.expose_secret();
        // Blotting out a very short "key" would tear holes into ordinary words and numbers.
        if key.len() < 6 {
            return text.to_owned();
        }
        text.replace(&self.encoded_key(), "[key]").replace(key, "[key]")
    }
}

/// An error with its causes: "error sending request" alone tells nobody that the connection was refused.
fn whole_chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "timed out".to_owned() } else { error.to_string() };
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
