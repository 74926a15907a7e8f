//! The methods, registered with jsonrpsee and run in process.
//!
//! jsonrpsee's own HTTP service answers 400, 405 and 415 and takes a call without `id` for a notification,
//! all of which Payme forbids. So its module is called directly: it keeps the registry of methods and the
//! dispatch, and what surrounds a call is ours.

use std::sync::Arc;

use chrono::TimeDelta;
use jsonrpsee::types::{ErrorObjectOwned, Params};
use jsonrpsee::{Extensions, Methods, RpcModule};
use scoped_futures::{ScopedBoxFuture, ScopedFutureExt as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::auth::Keys;
use super::envelope::{self, MethodCall};
use super::wire::{
    AccountFields, Cancel, CancelResult, CheckPerform, CheckResult, Create, CreateResult, GetStatement, PerformResult,
    SetFiscal, StatementLine, parse_by_id,
};
use super::{LIFETIME_MS, PROVIDER, PaymeError, REASON_TIMEOUT};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::ids::{Actor, ExternalId};
use crate::money::{CurrencyCode, MinorUnits};
use crate::payment::{self, AccountRef, Cancelled, Created, Mode, NewPayment, PaymentKey, Performed, Terms};
use crate::provider::call_log::{self, Call};

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
    /// The body.
    pub body: Vec<u8>,
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

/// What every method needs.
#[derive(Debug)]
struct Desk {
    db: Database,
    clock: Clock,
    terms: Terms,
    fields: AccountFields,
    busy_code: i32,
    fiscal_item: Option<FiscalItem>,
    keys: Keys,
}

/// The facts of one call, which jsonrpsee carries to the method.
#[derive(Debug, Clone)]
struct CallFacts {
    mode: Mode,
    call: Call,
}

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
        let envelope = envelope::open(&incoming.body);
        let text = || String::from_utf8_lossy(&incoming.body).into_owned();
        let mut call = Call {
            provider: PROVIDER,
            mode: incoming.mode,
            method: envelope.call.as_ref().ok().map(|asked| asked.method.clone()),
            external_id: None,
            remote_address: incoming.remote_address,
            request_id: incoming.request_id,
            received_at: self.desk.clock.now(),
            request: String::new(),
            request_bytes: incoming.body.len(),
        };
        let error = match (incoming.mode, envelope.call) {
            // Nothing of a stranger's body is kept.
            (None, _) => PaymeError::NotAuthorized,
            (Some(_), Err(error)) => {
                call.request = text();
                error
            }
            // What a method we don't know carries may be a secret (ChangePassword once did), so only its
            // name is kept.
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
            tracing::warn!(remote_address = call.remote_address, "a Payme call came with nobody's key");
        }
        self.desk.log_refused(&call, &error).await;
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

/// The error object of an answer. Its `message` is Payme's localized object, which jsonrpsee's own error can't
/// hold, so the whole object travels through jsonrpsee in `data`.
#[derive(Debug)]
struct ErrorObject {
    code: i32,
    text: String,
}

impl From<&PaymeError> for ErrorObject {
    fn from(error: &PaymeError) -> Self {
        Self { code: error.code(), text: error.to_object().to_string() }
    }
}

impl ErrorObject {
    fn pack(error: &PaymeError) -> ErrorObjectOwned {
        ErrorObjectOwned::owned(error.code(), error.text().en, Some(error.to_object()))
    }

    fn unpack(object: &ErrorObjectOwned) -> Option<Self> {
        Some(Self { code: object.code(), text: object.data()?.get().to_owned() })
    }
}

type Answered = Result<Box<RawValue>, ErrorObjectOwned>;
type Refused = Error<payment::Refusal>;

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

impl Desk {
    async fn check_perform(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match CheckPerform::parse(params, &self.fields) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        let account = match &asked.account.named {
            Ok(account) => account,
            Err(error) => return self.refuse(facts, error.clone()).await,
        };
        let amount = MinorUnits::new(asked.amount.0);
        self.transaction("payme_check_perform", facts, &asked.account.field, |conn| {
            async move {
                payment::check(conn, account, amount, facts.mode, &self.terms, self.clock.now_ms()).await?;
                let mut result = json!({ "allow": true });
                if let (Some(detail), Some(result)) = (self.fiscal_detail(amount), result.as_object_mut()) {
                    result.insert("detail".to_owned(), detail);
                }
                Ok(Ok(result))
            }
            .scope_boxed()
        })
        .await
    }

    async fn create(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match Create::parse(params, &self.fields) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        let key = key(facts, asked.id);
        let account = match asked.account.named {
            Ok(account) => account,
            Err(error) => {
                // The id comes first: an id that is known already is refused for its state or for its account.
                let error = self.known_id_or(&key, error).await;
                return self.refuse(facts, error).await;
            }
        };
        let new = &NewPayment {
            key,
            account,
            account_as_received: asked.account.as_received,
            amount: MinorUnits::new(asked.amount.0),
            external_created_at: asked.time,
        };
        self.transaction("payme_create", facts, &asked.account.field, |conn| {
            async move {
                Ok(match payment::create(conn, new, &self.terms, self.clock.now_ms()).await? {
                    Created::New(payment) | Created::Already(payment) => to_json(&CreateResult::from(&payment)),
                    Created::Expired(_) => Err(PaymeError::WrongState),
                })
            }
            .scope_boxed()
        })
        .await
    }

    async fn perform(&self, params: &str, facts: &CallFacts) -> Answered {
        let key = match parse_by_id(params) {
            Ok(id) => &key(facts, id),
            Err(error) => return self.refuse(facts, error).await,
        };
        self.transaction("payme_perform", facts, &self.fields.tenant, |conn| {
            async move {
                Ok(match payment::perform(conn, key, &self.terms, self.clock.now_ms()).await? {
                    Performed::New(payment) | Performed::Already(payment) => to_json(&PerformResult::from(&payment)),
                    Performed::Expired(_) => Err(PaymeError::WrongState),
                })
            }
            .scope_boxed()
        })
        .await
    }

    async fn cancel(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match Cancel::parse(params) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        let key = &key(facts, asked.id);
        self.transaction("payme_cancel", facts, &self.fields.tenant, |conn| {
            async move {
                let cancelled = payment::cancel(conn, key, asked.reason, &self.terms, self.clock.now_ms()).await?;
                Ok(match cancelled {
                    Cancelled::New(payment) | Cancelled::Already(payment) => to_json(&CancelResult::from(&payment)),
                })
            }
            .scope_boxed()
        })
        .await
    }

    async fn check(&self, params: &str, facts: &CallFacts) -> Answered {
        let key = match parse_by_id(params) {
            Ok(id) => &key(facts, id),
            Err(error) => return self.refuse(facts, error).await,
        };
        self.transaction("payme_check", facts, &self.fields.tenant, |conn| {
            async move { Ok(to_json(&CheckResult::from(&payment::find(conn, key).await?))) }.scope_boxed()
        })
        .await
    }

    async fn statement(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match GetStatement::parse(params) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        self.transaction("payme_statement", facts, &self.fields.tenant, |conn| {
            async move {
                let payments = payment::list(conn, PROVIDER, facts.mode, asked.from, asked.to).await?;
                let lines: Vec<StatementLine> = payments
                    .iter()
                    .map(StatementLine::try_from)
                    .collect::<Result<_, _>>()
                    .map_err(|error| Fault::new("a stored account is not JSON").because(error))?;
                Ok(to_json(&Statement { transactions: lines }))
            }
            .scope_boxed()
        })
        .await
    }

    async fn set_fiscal(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match SetFiscal::parse(params) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        let key = &key(facts, asked.id);
        let receipt = asked.receipt.as_str();
        self.transaction("payme_set_fiscal", facts, &self.fields.tenant, |conn| {
            async move {
                let known = payment::keep_fiscal_receipt(conn, key, asked.kind, receipt, self.clock.now()).await?;
                Ok(if known { Ok(json!({ "success": true })) } else { Err(PaymeError::UnknownReceipt) })
            }
            .scope_boxed()
        })
        .await
    }

    /// Runs a method's work and its line of the log in one transaction. A refusal rolls the work back and is
    /// logged on its own; a result that refuses and yet has to be kept (a transaction that has just timed
    /// out) is an `Ok` with an error inside.
    async fn transaction<'a, F>(&'a self, name: &'static str, facts: &'a CallFacts, field: &'a str, work: F) -> Answered
    where
        F: for<'c> Fn(&'c mut PgConnection) -> ScopedBoxFuture<'a, 'c, Result<Result<Value, PaymeError>, Refused>>
            + Send
            + Sync
            + 'a,
    {
        let work = &work;
        let outcome = self
            .db
            .run(name, |conn| {
                async move {
                    let result = work(conn).await?;
                    let (text, code) = match &result {
                        Ok(value) => (value.to_string(), None),
                        Err(error) => (error.to_object().to_string(), Some(error.code())),
                    };
                    call_log::record(conn, &facts.call, &text, code).await?;
                    Ok::<_, Refused>(result.map(|_| text))
                }
                .scope_boxed()
            })
            .await;
        match outcome {
            Ok(Ok(text)) => RawValue::from_string(text).map_err(|_| internal(facts)),
            Ok(Err(error)) => Err(ErrorObject::pack(&error)),
            Err(Error::Refused(refusal)) => {
                tracing::info!(method = facts.call.method, "Payme was refused: {refusal}");
                self.refuse(facts, PaymeError::from_refusal(&refusal, field, self.busy_code)).await
            }
            Err(Error::Fault(fault)) => {
                let reference = &facts.call.request_id;
                tracing::error!(reference, "Payme call {reference} failed: {}", fault.chain());
                let error = PaymeError::Internal { reference: reference.clone() };
                self.refuse(facts, error).await
            }
        }
    }

    async fn refuse(&self, facts: &CallFacts, error: PaymeError) -> Answered {
        self.log_refused(&facts.call, &error).await;
        Err(ErrorObject::pack(&error))
    }

    /// Writes a refused call on its own. That it couldn't be written doesn't change the answer: nothing else
    /// was written either, and the log says so.
    async fn log_refused(&self, call: &Call, error: &PaymeError) {
        let written = async {
            let mut conn = self.db.pool().acquire().await.map_err(Fault::from)?;
            call_log::record(&mut conn, call, &error.to_object().to_string(), Some(error.code())).await
        };
        if let Err(fault) = written.await {
            tracing::error!(
                request_id = call.request_id,
                "a refused Payme call could not be written to the call log: {}",
                fault.chain()
            );
        }
    }

    /// What to answer to a creation whose account is wrong: when the id is known, its state comes first.
    async fn known_id_or(&self, key: &PaymentKey, error: PaymeError) -> PaymeError {
        let known = async {
            let mut conn = self.db.pool().acquire().await?;
            payment::find(&mut conn, key).await
        };
        match known.await {
            Ok(_) => PaymeError::WrongState,
            Err(Error::Refused(_)) => error,
            Err(Error::Fault(fault)) => {
                tracing::error!("a Payme creation could not be looked up: {}", fault.chain());
                error
            }
        }
    }

    fn field(&self, account: &AccountRef) -> &str {
        match account {
            AccountRef::Wallet(_) => &self.fields.tenant,
            AccountRef::Order(_) => &self.fields.order,
        }
    }

    /// The tax receipt's lines; their sum is the amount, since there is one line of one piece.
    fn fiscal_detail(&self, amount: MinorUnits) -> Option<Value> {
        let item = self.fiscal_item.as_ref()?;
        Some(json!({
            "receipt_type": 0,
            "items": [{
                "title": item.title,
                "price": amount.get(),
                "count": 1,
                "code": item.code,
                "package_code": item.package_code,
                "vat_percent": item.vat_percent,
            }],
        }))
    }
}

fn internal(facts: &CallFacts) -> ErrorObjectOwned {
    ErrorObject::pack(&PaymeError::Internal { reference: facts.call.request_id.clone() })
}

/// GetStatement's result.
#[derive(Debug, Serialize)]
struct Statement {
    transactions: Vec<StatementLine>,
}

fn key(facts: &CallFacts, external_id: ExternalId) -> PaymentKey {
    PaymentKey { provider: PROVIDER, mode: facts.mode, external_id }
}

fn to_json(result: &impl Serialize) -> Result<Value, PaymeError> {
    serde_json::to_value(result).map_err(|_| PaymeError::Internal { reference: String::new() })
}
