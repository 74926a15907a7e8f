//! What each method does: read the parameters, run the payment room's function and the line of the call log in
//! one transaction, put the outcome into Payme's words.

use std::sync::{Mutex, PoisonError};

use jsonrpsee::types::ErrorObjectOwned;
use scoped_futures::{ScopedBoxFuture, ScopedFutureExt as _};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::auth::Keys;
use super::rpc::FiscalItem;
use super::wire::{
    AccountFields, Cancel, CancelResult, CheckPerform, CheckResult, Create, CreateResult, GetStatement, PerformResult,
    SetFiscal, StatementLine, parse_by_id,
};
use super::{PROVIDER, PaymeError};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::ids::ExternalId;
use crate::money::MinorUnits;
use crate::payment::{self, AccountRef, Cancelled, Created, Mode, NewPayment, PaymentKey, Performed, Terms};
use crate::provider::call_log::{self, Call};

/// How many calls with nobody's key are logged in a second.
const STRANGERS_LOGGED_PER_SECOND: u32 = 10;

/// What every method needs.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) db: Database,
    pub(super) clock: Clock,
    pub(super) terms: Terms,
    pub(super) fields: AccountFields,
    pub(super) busy_code: i32,
    pub(super) fiscal_item: Option<FiscalItem>,
    pub(super) keys: Keys,
    /// A second, and how many strangers were logged in it.
    pub(super) strangers: Mutex<(i64, u32)>,
}

/// The facts of one call, which jsonrpsee carries to the method.
#[derive(Debug, Clone)]
pub(super) struct CallFacts {
    pub(super) mode: Mode,
    pub(super) call: Call,
}

/// The error object of an answer. Its `message` is Payme's localized object, which jsonrpsee's own error can't
/// hold, so the whole object travels through jsonrpsee in `data`.
#[derive(Debug)]
pub(super) struct ErrorObject {
    pub(super) code: i32,
    pub(super) text: String,
}

impl From<&PaymeError> for ErrorObject {
    fn from(error: &PaymeError) -> Self {
        Self { code: error.code(), text: error.to_object().to_string() }
    }
}

impl ErrorObject {
    pub(super) fn pack(error: &PaymeError) -> ErrorObjectOwned {
        ErrorObjectOwned::owned(error.code(), error.text().en, Some(error.to_object()))
    }

    pub(super) fn unpack(object: &ErrorObjectOwned) -> Option<Self> {
        Some(Self { code: object.code(), text: object.data()?.get().to_owned() })
    }
}

pub(super) type Answered = Result<Box<RawValue>, ErrorObjectOwned>;
type Refused = Error<payment::Refusal>;

impl Desk {
    pub(super) async fn check_perform(&self, params: &str, facts: &CallFacts) -> Answered {
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
                Ok(Ok(result.to_string()))
            }
            .scope_boxed()
        })
        .await
    }

    pub(super) async fn create(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match Create::parse(params, &self.fields) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        let key = key(facts, asked.id);
        let account = match asked.account.named {
            Ok(account) => account,
            Err(error) => {
                // The id comes first: an id that is known already is refused for its state or for its account.
                let error = self.known_id_or(&key, error, facts).await;
                return self.refuse(facts, error).await;
            }
        };
        let new = &NewPayment {
            key,
            account,
            account_as_received: asked.account.as_received,
            account_values: payment::account_values(&asked.account.others),
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

    pub(super) async fn perform(&self, params: &str, facts: &CallFacts) -> Answered {
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

    pub(super) async fn cancel(&self, params: &str, facts: &CallFacts) -> Answered {
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

    pub(super) async fn check(&self, params: &str, facts: &CallFacts) -> Answered {
        let key = match parse_by_id(params) {
            Ok(id) => &key(facts, id),
            Err(error) => return self.refuse(facts, error).await,
        };
        self.transaction("payme_check", facts, &self.fields.tenant, |conn| {
            async move { Ok(to_json(&CheckResult::from(&payment::find(conn, key).await?))) }.scope_boxed()
        })
        .await
    }

    pub(super) async fn statement(&self, params: &str, facts: &CallFacts) -> Answered {
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

    pub(super) async fn set_fiscal(&self, params: &str, facts: &CallFacts) -> Answered {
        let asked = match SetFiscal::parse(params) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(facts, error).await,
        };
        let key = &key(facts, asked.id);
        let receipt = asked.receipt.as_str();
        self.transaction("payme_set_fiscal", facts, &self.fields.tenant, |conn| {
            async move {
                let known = payment::keep_fiscal_receipt(conn, key, asked.kind, receipt, self.clock.now()).await?;
                Ok(if known { Ok(r#"{"success":true}"#.to_owned()) } else { Err(PaymeError::UnknownReceipt) })
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
        F: for<'c> Fn(&'c mut PgConnection) -> ScopedBoxFuture<'a, 'c, Result<Result<String, PaymeError>, Refused>>
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
                    match &result {
                        Ok(text) => call_log::record(conn, &facts.call, text, None).await?,
                        Err(error) => {
                            let text = error.to_object().to_string();
                            call_log::record(conn, &facts.call, &text, Some(error.code())).await?;
                        }
                    }
                    Ok::<_, Refused>(result)
                }
                .scope_boxed()
            })
            .await;
        match outcome {
            Ok(Ok(text)) => RawValue::from_string(text).map_err(|_| internal(facts)),
            Ok(Err(error)) => Err(ErrorObject::pack(&error)),
            Err(Error::Refused(refusal)) => {
                let reference = &facts.call.request_id;
                if matches!(refusal, payment::Refusal::BookedOtherwise { .. }) {
                    tracing::error!(reference, "Payme call {reference} was refused and needs a person: {refusal}");
                } else {
                    tracing::info!(method = facts.call.method, "Payme was refused: {refusal}");
                }
                self.refuse(facts, PaymeError::from_refusal(&refusal, field, self.busy_code, reference)).await
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

    /// A stranger's calls are logged up to a rate: whoever floods us may not fill the disk as well. The
    /// others are counted in the metrics.
    pub(super) async fn log_stranger(&self, call: &Call) {
        let second = call.received_at.timestamp();
        let logged = {
            let mut window = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
            let (since, count) = *window;
            let count = if since == second { count.saturating_add(1) } else { 1 };
            *window = (second, count);
            count <= STRANGERS_LOGGED_PER_SECOND
        };
        if logged {
            tracing::warn!(remote_address = call.remote_address, "a Payme call came with nobody's key");
            self.log_refused(call, &PaymeError::NotAuthorized).await;
        }
    }

    /// Writes a refused call on its own. That it couldn't be written doesn't change the answer: nothing else
    /// was written either, and the log says so.
    pub(super) async fn log_refused(&self, call: &Call, error: &PaymeError) {
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
    async fn known_id_or(&self, key: &PaymentKey, error: PaymeError, facts: &CallFacts) -> PaymeError {
        let known = async {
            let mut conn = self.db.pool().acquire().await?;
            payment::find(&mut conn, key).await
        };
        match known.await {
            Ok(_) => PaymeError::WrongState,
            Err(Error::Refused(_)) => error,
            Err(Error::Fault(fault)) => {
                let reference = &facts.call.request_id;
                tracing::error!(reference, "Payme call {reference} failed: {}", fault.chain());
                PaymeError::Internal { reference: reference.clone() }
            }
        }
    }

    pub(super) fn field(&self, account: &AccountRef) -> &str {
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

/// The text of a result: an account goes out as the very characters that came in.
fn to_json(result: &impl Serialize) -> Result<String, PaymeError> {
    serde_json::to_string(result).map_err(|_| PaymeError::Internal { reference: String::new() })
}
