//! A client for workers: it places holds, says that the work is alive, reports what it used, and ends it.
//!
//! Built with the feature `client` only. It speaks the wire and knows nothing else of this crate, so a worker in
//! another crate needs neither the database nor the server.
//!
//! **Every call may be repeated.** The job's own id, the call's id and the idempotency key are the keys of the effects,
//! so when no answer comes, or the service says that it can't now, the same request is sent again, at growing intervals
//! and a bounded number of times ([`Retry`]). A refusal is never repeated: it would be the same. The one exception is
//! "too many jobs at work" (429), which is waited for as long as the caller allows.
//!
//! Money is [`Money`], a decimal: there are no floats here. The token is a secret: it is in no error and in no `Debug`.
//!
//! ```no_run
//! # async fn job() -> Result<(), hamyon::client::Error> {
//! use hamyon::client::{Client, NewHold, Settle, Usage};
//!
//! let client = Client::new("http://127.0.0.1:8080", "the token".into())?;
//! let mut ask = NewHold::of_amount("job-1", "acme", "CREDIT", 20_u32.into());
//! ask.allow_partial = true;
//! client.place(&ask).await?;
//! client.start("job-1", None).await?;
//! let used = client.report("job-1", "call-1", &Usage::CostMicro(12_000)).await?;
//! if !used.stop {
//!     // Another call.
//! }
//! client.settle("job-1", Settle::ByUsage).await?;
//! # Ok(())
//! # }
//! ```

mod account;
mod beat;
mod error;
mod retry;
mod send;
mod wire;

use std::time::Duration;

use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use send::{Call, send};

pub use account::{Balance, Grant, Granted, ModelPrice, PriceBook};
pub use beat::{Beaten, Pulse, Stop};
pub use error::{Error, Problem};
pub use retry::Retry;
pub use wire::{Allocation, Hold, Money, NewHold, PriorityClass, Settle, Standing, Status, Usage, Used};

/// How long one attempt may take. The service answers within 20 seconds, or says that it can't.
const TIMEOUT: Duration = Duration::from_secs(25);
/// How long reaching the service may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The service, and the right to call it. A clone shares its connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: SecretString,
    retry: Retry,
    timeout: Duration,
}

impl Client {
    /// A client of the service at an address such as `https://wallet.example`, with a token whose scopes are
    /// `holds:write` and, for what only reads, `ledger:read`.
    ///
    /// # Errors
    /// [`Error::Unusable`] when the address or the token can't be used; [`Error::NoAnswer`] when no HTTP client can be
    /// made here.
    pub fn new(url: &str, token: SecretString) -> Result<Self, Error> {
        let base = Url::parse(url).map_err(|_| Error::Unusable("the address of the service can't be read"))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(Error::Unusable("the address of the service must begin with http:// or https://"));
        }
        if !base.username().is_empty() || base.password().is_some() || base.query().is_some() {
            return Err(Error::Unusable("the address of the service must hold no user, password or query"));
        }
        let shown = token.expose_secret();
        if shown.is_empty() || !shown.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Unusable("the token must be visible ASCII characters without spaces"));
        }
        // Whoever comes second finds a provider installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            // A redirect could carry the request to where nobody meant it to go.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("hamyon-client/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|cause| Error::NoAnswer { attempts: 0, cause })?;
        Ok(Self { http, base, token, retry: Retry::default(), timeout: TIMEOUT })
    }

    /// The same client with other patience.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The same client with another time for one attempt; 25 seconds when nobody says.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Places a hold. The same job again is answered with the first hold; [`Hold::outcome`] says how it came about.
    ///
    /// # Errors
    /// [`Error`]; refused with `insufficient_funds` (402), `too_many_in_flight` (429), `hold_differs` (409) and others.
    pub async fn place(&self, ask: &NewHold) -> Result<Hold, Error> {
        send(self, &self.post(&["holds"], &ask.body())?).await
    }

    /// Reads a hold.
    ///
    /// # Errors
    /// [`Error`]; refused with `hold_not_found` (404).
    pub async fn hold(&self, hold_id: &str) -> Result<Hold, Error> {
        send(self, &self.get(&["holds", hold_id])?).await
    }

    /// Begins the work: from now on it can't be cancelled, only asked to stop. `lease_secs` is how long this sign of
    /// life counts; the service decides when it is none.
    ///
    /// # Errors
    /// [`Error`]; refused with `already_released` (409) when somebody cancelled first: don't work.
    pub async fn start(&self, hold_id: &str, lease_secs: Option<u32>) -> Result<Hold, Error> {
        self.act(hold_id, "start", &lease(lease_secs)).await
    }

    /// Says that the work is alive. [`Hold::cancel_requested`] of the answer says whether somebody asked to stop.
    /// [`Client::while_beating`] does it by itself.
    ///
    /// # Errors
    /// [`Error`]; refused with `already_settled`, `already_released` or `hold_expired` (409): stop working.
    pub async fn beat(&self, hold_id: &str, lease_secs: Option<u32>) -> Result<Hold, Error> {
        self.act(hold_id, "heartbeat", &lease(lease_secs)).await
    }

    /// Reports what a call used, once: `call_id` is unique within the hold. [`Used::stop`] says whether there shall be
    /// another call.
    ///
    /// # Errors
    /// [`Error`]; refused with `cost_cap_reached` (409) when the call before said stop, and others.
    pub async fn report(&self, hold_id: &str, call_id: &str, usage: &Usage) -> Result<Used, Error> {
        self.act(hold_id, "usage", &usage.body(call_id)).await
    }

    /// Pays the work. The same again is answered the same.
    ///
    /// # Errors
    /// [`Error`]; refused with `already_settled` (409) when it ended another way, by the reconciler for example.
    pub async fn settle(&self, hold_id: &str, how: Settle) -> Result<Hold, Error> {
        self.act(hold_id, "settle", &how.body()).await
    }

    /// Says that the work failed. It costs nothing, unless calls were reported: those are paid.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn release(&self, hold_id: &str) -> Result<Hold, Error> {
        self.act(hold_id, "release", &json!({})).await
    }

    /// Cancels work that hasn't begun. Work that has is refused (`already_started`, 409), or with `cooperative` asked to
    /// stop: then the answer is a hold that hasn't ended.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn cancel(&self, hold_id: &str, cooperative: bool) -> Result<Hold, Error> {
        self.act(hold_id, "cancel", &json!({ "cooperative": cooperative })).await
    }

    async fn act<T: serde::de::DeserializeOwned>(&self, hold_id: &str, verb: &str, body: &Value) -> Result<T, Error> {
        send(self, &self.post(&["holds", hold_id, verb], body)?).await
    }

    fn get(&self, path: &[&str]) -> Result<Call, Error> {
        Ok(Call { method: Method::GET, url: self.url(path)?, body: None, key: None })
    }

    fn post(&self, path: &[&str], body: &Value) -> Result<Call, Error> {
        Ok(Call { method: Method::POST, url: self.url(path)?, body: Some(body.to_string()), key: None })
    }

    /// An address under `/v1`. An id is one segment of it, whatever characters it has.
    fn url(&self, path: &[&str]) -> Result<Url, Error> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1");
            for segment in path {
                if matches!(*segment, "" | "." | "..") {
                    return Err(Error::Unusable("an id must not be empty, \".\" or \"..\": no address can name it"));
                }
                segments.push(segment);
            }
        }
        Ok(url)
    }
}

fn lease(lease_secs: Option<u32>) -> Value {
    lease_secs.map_or_else(|| json!({}), |secs| json!({ "lease_secs": secs }))
}
