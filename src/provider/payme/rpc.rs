//! The methods, registered with jsonrpsee and run in process.
//!
//! jsonrpsee's own HTTP service answers 400, 405 and 415 and takes a call without `id` for a notification,
//! all of which Payme forbids. So its module is called directly: it keeps the registry of methods and the
//! dispatch, and what surrounds a call is ours.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use jsonrpsee::types::{ErrorObjectOwned, Params};
use jsonrpsee::{Extensions, Methods, RpcModule};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::auth::Keys;
use super::envelope::{self, MethodCall};
use super::methods::{CallFacts, Desk, ErrorObject};
use super::wire::AccountFields;
use super::{LIFETIME_MS, PROVIDER, PaymeError, REASON_TIMEOUT};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::Fault;
use crate::ids::Actor;
use crate::money::{CurrencyCode, MinorUnits};
use crate::payment::{AccountRef, Mode, Terms};
use crate::provider::call_log::Call;

/// What is set about the cashbox.
#[derive(Debug, Clone)]
pub struct PaymeSettings {
    /// The keys.
    pub keys: Keys,
    /// The account's field that names a tenant.
    pub tenant_field: String,
    /// The account's field that names an order.
    pub order_field: String,
    /// The code for a busy one-time order.
    pub busy_code: i32,
    /// The least a wallet takes in one payment.
    pub top_up_min: MinorUnits,
    /// The most a wallet takes in one payment.
    pub top_up_max: MinorUnits,
    /// What a wallet's tax receipt says, if receipts are made.
    pub fiscal_item: Option<FiscalItem>,
}

/// The one line of the tax receipt of a payment.
#[derive(Debug, Clone)]
pub struct FiscalItem {
    /// What is sold.
    pub title: String,
    /// IKPU (MXIK), 17 digits.
    pub code: String,
    /// The package's code.
    pub package_code: String,
    /// VAT in whole per cent.
    pub vat_percent: u8,
}

/// A call as it arrives.
#[derive(Debug)]
pub struct Incoming {
    /// The body, or why it could not be read.
    pub body: Result<Vec<u8>, &'static str>,
    /// Which key it came with; none when it did not authenticate.
    pub mode: Option<Mode>,
    /// Where it came from.
    pub remote_address: Option<String>,
    /// Our id of the request.
    pub request_id: String,
}

/// The door.
#[derive(Debug)]
pub struct Payme {
    desk: Arc<Desk>,
    methods: Methods,
}

/// How long a call that didn't authenticate waits to be noted.
const STRANGER_LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// The names Payme calls. Others are answered -32601 before anything is read of them.
const METHODS: [&str; 7] = [
    "CheckPerformTransaction",
    "CreateTransaction",
    "PerformTransaction",
    "CancelTransaction",
    "CheckTransaction",
    "GetStatement",
    "SetFiscalData",
];

impl Payme {
    /// Opens the door.
    ///
    /// # Errors
    /// A fault when two methods share a name.
    pub fn new(db: Database, clock: Clock, settings: PaymeSettings) -> Result<Self, Fault> {
        let desk = Arc::new(Desk {
            db,
            clock,
            terms: Terms {
                currency: CurrencyCode::uzs(),
                top_up_min: settings.top_up_min,
                top_up_max: settings.top_up_max,
                lifetime: TimeDelta::milliseconds(LIFETIME_MS),
                timeout_reason: REASON_TIMEOUT,
                actor: Actor::provider(PROVIDER),
            },
            fields: AccountFields { tenant: settings.tenant_field, order: settings.order_field },
            busy_code: settings.busy_code,
            fiscal_item: settings.fiscal_item,
            strangers: Mutex::new((0, 0)),
            keys: settings.keys,
        });
        let methods =
            register(desk.clone()).map_err(|error| Fault::new("two Payme methods share a name").because(error))?;
        Ok(Self { desk, methods })
    }

    /// Which key an `Authorization` header holds.
    #[must_use]
    pub fn mode_of(&self, authorization: Option<&[u8]>) -> Option<Mode> {
        self.desk.keys.mode_of(authorization)
    }

    /// The terms of a payment, for the sweep.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.desk.terms
    }

    /// The account's fields, for payment links.
    #[must_use]
    pub fn account_field(&self, account: &AccountRef) -> &str {
        self.desk.field(account)
    }

    /// Answers a call. There is an answer whatever comes and whatever happens.
    pub async fn answer(&self, incoming: Incoming) -> String {
        let envelope = match &incoming.body {
            Ok(body) => envelope::open(body),
            Err(what) => envelope::unread(PaymeError::BadRequest(what)),
        };
        let body = incoming.body.unwrap_or_default();
        let text = || String::from_utf8_lossy(&body).into_owned();
        let mut call = Call {
            provider: PROVIDER,
            mode: incoming.mode,
            method: incoming.mode.and(envelope.method),
            external_id: None,
            remote_address: incoming.remote_address,
            request_id: incoming.request_id,
            received_at: self.desk.clock.now(),
            request: String::new(),
            request_bytes: body.len(),
        };
        let error = match (incoming.mode, envelope.call) {
            // Nothing of a stranger's body is kept.
            (None, _) => PaymeError::NotAuthorized,
            // What a method we don't know carries may be a secret (ChangePassword once did), so only its name is
            // kept; and of a body whose method can't be read, only its length.
            (Some(_), Err(error)) => {
                if call.method.as_deref().is_some_and(|method| METHODS.contains(&method)) {
                    call.request = text();
                }
                error
            }
            (Some(_), Ok(asked)) if !METHODS.contains(&asked.method.as_str()) => {
                PaymeError::UnknownMethod(asked.method)
            }
            (Some(mode), Ok(asked)) => {
                call.request = text();
                call.external_id = external_id_of(&asked);
                // The method writes its own line of the log.
                return match self.dispatch(&asked, CallFacts { mode, call }).await {
                    Ok(result) => {
                        count(&asked.method, "ok");
                        envelope::result(&envelope.id, &result)
                    }
                    Err(object) => {
                        count(&asked.method, &object.code.to_string());
                        envelope::error(&envelope.id, &object.text)
                    }
                };
            }
        };
        count("other", &error.code().to_string());
        if error == PaymeError::NotAuthorized {
            // A stranger's answer waits for no database.
            if tokio::time::timeout(STRANGER_LOG_TIMEOUT, self.desk.log_stranger(&call)).await.is_err() {
                tracing::warn!(
                    request_id = call.request_id,
                    "a call with nobody's key was not written to the call log"
                );
            }
        } else {
            self.desk.log_refused(&call, &error).await;
        }
        envelope::error(&envelope.id, &error.to_object().to_string())
    }

    /// Runs a method through jsonrpsee's module.
    async fn dispatch(&self, asked: &MethodCall, facts: CallFacts) -> Result<Box<RawValue>, ErrorObject> {
        #[derive(Deserialize)]
        struct Answer {
            result: Option<Box<RawValue>>,
            error: Option<ErrorObjectOwned>,
        }
        let reference = facts.call.request_id.clone();
        let internal = |what: &str| {
            tracing::error!(reference, "Payme call {reference} failed: {what}");
            ErrorObject::from(&PaymeError::Internal { reference: reference.clone() })
        };
        // The caller's own id stays outside: jsonrpsee takes fewer kinds of ids than Payme sends.
        // The parameters go through as text: taken apart here, an amount beyond 64 bits would turn into a float.
        let method = serde_json::to_string(&asked.method).unwrap_or_default();
        let request = format!(r#"{{"jsonrpc":"2.0","id":null,"method":{method},"params":{}}}"#, asked.params.get());
        let mut methods = self.methods.clone();
        methods.extensions_mut().insert(facts);
        let (answer, _) =
            methods.raw_json_request(&request, 1).await.map_err(|_| internal("the request was not read"))?;
        let answer: Answer =
            serde_json::from_str(answer.get()).map_err(|_| internal("the method's answer was not read"))?;
        match (answer.result, answer.error) {
            (Some(result), None) => Ok(result),
            (_, Some(error)) => Err(ErrorObject::unpack(&error).unwrap_or_else(|| internal(error.message()))),
            (None, None) => Err(internal("the method answered nothing")),
        }
    }
}

fn count(method: &str, code: &str) {
    let method = METHODS.iter().find(|known| **known == method).copied().unwrap_or("other");
    metrics::counter!("hamyon_provider_calls_total", "provider" => PROVIDER, "method" => method, "code" => code.to_owned())
        .increment(1);
}

fn external_id_of(asked: &MethodCall) -> Option<String> {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    serde_json::from_str::<Id>(asked.params.get()).ok().map(|params| params.id)
}

/// Registers the methods.
fn register(desk: Arc<Desk>) -> Result<Methods, jsonrpsee::core::RegisterMethodError> {
    /// One method: parameters and facts to the desk's function of the same name.
    macro_rules! method {
        ($module:ident, $name:literal, $function:ident) => {
            $module.register_async_method(
                $name,
                |params: Params<'static>, desk: Arc<Arc<Desk>>, extensions: Extensions| async move {
                    let facts = extensions
                        .get::<CallFacts>()
                        .cloned()
                        .ok_or_else(|| ErrorObject::pack(&PaymeError::Internal { reference: String::new() }))?;
                    desk.$function(params.as_str().unwrap_or("{}"), &facts).await
                },
            )?;
        };
    }
    let mut module = RpcModule::new(desk);
    method!(module, "CheckPerformTransaction", check_perform);
    method!(module, "CreateTransaction", create);
    method!(module, "PerformTransaction", perform);
    method!(module, "CancelTransaction", cancel);
    method!(module, "CheckTransaction", check);
    method!(module, "GetStatement", statement);
    method!(module, "SetFiscalData", set_fiscal);
    Ok(module.into())
}
