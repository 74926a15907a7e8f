//! The few methods of the Bot API that we call. A token is part of the path, so no address is ever in an error.

use std::time::Duration;

use chrono::TimeDelta;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Bot;
use crate::fault::Fault;
use crate::money::MinorUnits;

/// The longest answer that is read: a page of a hundred lines has less than a tenth of it.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long to wait when Telegram doesn't know our token.
const WRONG_TOKEN_PAUSE: TimeDelta = TimeDelta::minutes(5);

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody knows whether it was done: no answer, or a server's error.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// It wasn't done, and may be asked for later.
    #[error("not now, again in {} s: {why}", retry_after.num_seconds())]
    Later {
        /// When.
        retry_after: TimeDelta,
        /// Telegram's words.
        why: String,
    },
    /// It wasn't done and never will be.
    #[error("refused with {status}: {description}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Telegram's words.
        description: String,
    },
}

/// A client of the Bot API.
#[derive(Debug)]
pub struct BotApi {
    client: reqwest::Client,
    base: String,
}

#[derive(Deserialize)]
struct Envelope {
    ok: bool,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

/// How long whoever asked for a link waits for it; our own answer has its time-out after that.
const LINK_WITHIN: Duration = Duration::from_secs(10);

impl BotApi {
    /// A client with its own connections.
    ///
    /// # Errors
    /// When the client can't be made.
    pub fn new(base: &str, timeout: Duration) -> Result<Self, Fault> {
        // Whoever comes second finds a provider installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(timeout)
            .user_agent(concat!("hamyon/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Fault::new("the HTTP client can't be made").because(error))?;
        Ok(Self { client, base: base.trim_end_matches('/').to_owned() })
    }

    /// `createInvoiceLink` for stars: the link.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn create_invoice_link(
        &self,
        bot: &Bot,
        title: &str,
        description: &str,
        payload: &str,
        amount: MinorUnits,
    ) -> Result<String, CallError> {
        let params = json!({
            "title": title, "description": description, "payload": payload, "provider_token": "",
            "currency": super::CURRENCY, "prices": [{ "label": title, "amount": amount.get() }],
        });
        match self.call(bot, "createInvoiceLink", &params, Some(LINK_WITHIN)).await? {
            Value::String(link) => Ok(link),
            _ => Err(CallError::Unknown("createInvoiceLink gave no link".to_owned())),
        }
    }

    /// `answerPreCheckoutQuery`, within a time of its own.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn answer_pre_checkout(&self, bot: &Bot, answer: &Value, within: Duration) -> Result<(), CallError> {
        self.call(bot, "answerPreCheckoutQuery", answer, Some(within)).await.map(|_| ())
    }

    /// `refundStarPayment`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn refund_star_payment(&self, bot: &Bot, payer: i64, charge_id: &str) -> Result<(), CallError> {
        let params = json!({ "user_id": payer, "telegram_payment_charge_id": charge_id });
        match self.call(bot, "refundStarPayment", &params, None).await {
            Ok(Value::Bool(true)) => Ok(()),
            Ok(_) => Err(CallError::Unknown("refundStarPayment did not answer true".to_owned())),
            // This call or an earlier one: it has gone back.
            Err(CallError::Refused { status: 400, description }) if is_already_refunded(&description) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// `getStarTransactions`: a page, the oldest first.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn star_transactions(&self, bot: &Bot, offset: i64, limit: i64) -> Result<Vec<Value>, CallError> {
        let params = json!({ "offset": offset, "limit": limit });
        let mut result = self.call(bot, "getStarTransactions", &params, None).await?;
        match result.get_mut("transactions").map(Value::take) {
            Some(Value::Array(lines)) => Ok(lines),
            _ => Err(CallError::Unknown("getStarTransactions gave no list".to_owned())),
        }
    }

    /// `getMyStarBalance`: whole stars.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn star_balance(&self, bot: &Bot) -> Result<i64, CallError> {
        let result = self.call(bot, "getMyStarBalance", &json!({}), None).await?;
        let amount = result.get("amount").and_then(Value::as_i64);
        amount.ok_or_else(|| CallError::Unknown("getMyStarBalance gave no amount".to_owned()))
    }

    async fn call(
        &self,
        bot: &Bot,
        method: &'static str,
        params: &Value,
        within: Option<Duration>,
    ) -> Result<Value, CallError> {
        let outcome = self.attempt(bot, method, params, within).await;
        let status = match &outcome {
            Ok(_) => "ok",
            Err(CallError::Unknown(_)) => "unknown",
            Err(CallError::Later { .. }) => "later",
            Err(CallError::Refused { .. }) => "refused",
        };
        metrics::counter!("hamyon_bot_api_calls_total", "method" => method, "status" => status).increment(1);
        outcome
    }

    async fn attempt(
        &self,
        bot: &Bot,
        method: &'static str,
        params: &Value,
        within: Option<Duration>,
    ) -> Result<Value, CallError> {
        // The token stands in the address, and errors of the client hold it; so none of them is kept whole.
        let unknown = |what: &str, error: reqwest::Error| {
            let chain = Fault::new("the call failed").because(error.without_url()).chain();
            CallError::Unknown(format!("{what}: {chain}"))
        };
        let url = format!("{}/bot{}/{method}", self.base, bot.token.expose_secret());
        let mut request = self.client.post(url).json(params);
        if let Some(within) = within {
            request = request.timeout(within);
        }
        let mut answer = request.send().await.map_err(|error| unknown("no answer", error))?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| unknown("half an answer", error))? {
            if body.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
                return Err(CallError::Unknown("the answer is too long".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        read_answer(status, &body)
    }
}

/// Telegram's words have a code in them; that code is its interface, not a sentence that may change.
fn is_already_refunded(description: &str) -> bool {
    description.split(|c: char| !(c.is_ascii_uppercase() || c == '_')).any(|word| word == "CHARGE_ALREADY_REFUNDED")
}

fn read_answer(status: u16, body: &[u8]) -> Result<Value, CallError> {
    let envelope: Option<Envelope> = serde_json::from_slice(body).ok();
    let (envelope, is_final) = match envelope {
        Some(envelope) if envelope.ok && status == 200 => return Ok(envelope.result),
        Some(envelope) => (envelope, (400..500).contains(&status)),
        // Whoever answers without Telegram's envelope isn't Telegram; a proxy may have passed the call on.
        None => return Err(CallError::Unknown(format!("{status} without Telegram's envelope"))),
    };
    let description: String = envelope.description.unwrap_or_default().chars().take(300).collect();
    if status == 429 {
        let seconds = envelope.parameters.as_ref().and_then(|parameters| parameters.get("retry_after")?.as_i64());
        let seconds = seconds.unwrap_or(30).clamp(1, 86_400);
        return Err(CallError::Later { retry_after: TimeDelta::seconds(seconds), why: description });
    }
    // A token that is wrong or was revoked says nothing about the payment; somebody will set the right one.
    if matches!(status, 401 | 404) {
        return Err(CallError::Later { retry_after: WRONG_TOKEN_PAUSE, why: description });
    }
    if is_final {
        return Err(CallError::Refused { status, description });
    }
    Err(CallError::Unknown(format!("{status}: {description}")))
}
