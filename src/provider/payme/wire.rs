//! The parameters and results as they stand on the wire.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;

use super::PaymeError;
use crate::ids::{ExternalId, OrderId, TenantId};
use crate::money::MinorUnits;
use crate::payment::{AccountRef, Payment, State};

/// An amount in whole tiyin. `1e3`, `5.0` and `"500"` are not integers on this wire; an integer beyond 64
/// bits is one, and is a wrong amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiyin(pub i64);

impl Tiyin {
    fn parse(raw: &RawValue) -> Result<Self, PaymeError> {
        let text = raw.get();
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PaymeError::BadRequest("amount is not an integer"));
        }
        // What 64 bits can't hold becomes the one number that is nobody's price.
        Ok(Self(text.parse().unwrap_or(i64::MIN)))
    }
}

/// Milliseconds since the epoch.
fn parse_time(raw: &RawValue, refusal: &'static str) -> Result<DateTime<Utc>, PaymeError> {
    raw.get()
        .parse::<i64>()
        .ok()
        .and_then(DateTime::from_timestamp_millis)
        // PostgreSQL's own range is wider than any payment's.
        .filter(|time| *time >= DateTime::UNIX_EPOCH && time.timestamp_millis() <= 253_402_300_799_999)
        .ok_or(PaymeError::BadRequest(refusal))
}

/// The parameters, by name. Unknown ones are ignored, as everywhere on this wire.
type Members = BTreeMap<String, Box<RawValue>>;

fn members(params: &str) -> Result<Members, PaymeError> {
    serde_json::from_str(params).map_err(|_| PaymeError::BadRequest("params is not an object"))
}

fn required<'a>(members: &'a Members, name: &str, refusal: &'static str) -> Result<&'a RawValue, PaymeError> {
    members.get(name).map(AsRef::as_ref).ok_or(PaymeError::BadRequest(refusal))
}

fn text(members: &Members, name: &str, refusal: &'static str) -> Result<String, PaymeError> {
    serde_json::from_str(required(members, name, refusal)?.get()).map_err(|_| PaymeError::BadRequest(refusal))
}

/// The names of the account's fields, which are a setting.
#[derive(Debug, Clone)]
pub struct AccountFields {
    /// The field that names a tenant.
    pub tenant: String,
    /// The field that names an order.
    pub order: String,
}

/// The longest account, in bytes as it came. It is kept for ever and given back in every statement.
const ACCOUNT_BYTES_MAX: usize = 4096;

/// An account as it came, and what it names.
#[derive(Debug, Clone)]
pub struct Account {
    /// What it names, or the error to answer.
    pub named: Result<AccountRef, PaymeError>,
    /// The field that names it.
    pub field: String,
    /// The JSON as it came.
    pub as_received: String,
    /// The texts of its other fields, by the fields' names: a phone number, for example.
    pub others: Vec<String>,
}

impl Account {
    fn parse(params: &Members, fields: &AccountFields) -> Result<Self, PaymeError> {
        let wrong = |field: &str, as_received: &str| Self {
            named: Err(PaymeError::UnknownAccount { field: field.to_owned() }),
            field: field.to_owned(),
            as_received: as_received.to_owned(),
            others: Vec::new(),
        };
        let Some(raw) = params.get("account").map(AsRef::as_ref).filter(|raw: &&RawValue| raw.get() != "null") else {
            return Ok(wrong(&fields.tenant, "{}"));
        };
        if raw.get().len() > ACCOUNT_BYTES_MAX {
            return Err(PaymeError::BadRequest("account is too long"));
        }
        let account: Members =
            serde_json::from_str(raw.get()).map_err(|_| PaymeError::BadRequest("account is not an object"))?;
        if !is_flat(raw.get()) {
            return Err(PaymeError::BadRequest("account is not flat"));
        }
        let (field, is_order) =
            if account.contains_key(&fields.order) { (&fields.order, true) } else { (&fields.tenant, false) };
        // "account": {"tenant_id": 7} and {"tenant_id": "7"} name the same tenant.
        let named = account.get(field).and_then(|value| scalar_text(value)).and_then(|name| {
            let name = name.trim();
            if is_order {
                OrderId::parse(name).ok().map(AccountRef::Order)
            } else {
                TenantId::parse(name).ok().map(AccountRef::Wallet)
            }
        });
        Ok(match named {
            Some(named) => Self {
                named: Ok(named),
                field: field.clone(),
                as_received: raw.get().to_owned(),
                others: account
                    .iter()
                    .filter(|(name, _)| *name != field)
                    .filter_map(|(_, value)| searchable_text(value))
                    .collect(),
            },
            None => wrong(field, raw.get()),
        })
    }
}

/// Whether no value of the object is an object or an array, not even under a name that comes again.
fn is_flat(object: &str) -> bool {
    let (mut in_text, mut escaped) = (false, false);
    let opened = object.bytes().filter(|&byte| {
        let opens = !in_text && matches!(byte, b'{' | b'[');
        if byte == b'"' && !escaped {
            in_text = !in_text;
        }
        escaped = in_text && byte == b'\\' && !escaped;
        opens
    });
    opened.count() == 1
}

/// The text of a string or of an integer; anything else names nothing.
fn scalar_text(value: &RawValue) -> Option<String> {
    let text = value.get();
    if text.starts_with('"') {
        serde_json::from_str(text).ok()
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        Some(text.to_owned())
    } else {
        None
    }
}

/// The text of a string or of any number, for who looks for it later.
fn searchable_text(value: &RawValue) -> Option<String> {
    let text = value.get();
    match text.bytes().next() {
        Some(b'"') => serde_json::from_str(text).ok(),
        Some(b'-' | b'0'..=b'9') => Some(text.to_owned()),
        Some(_) | None => None,
    }
}

/// CheckPerformTransaction.
#[derive(Debug)]
pub struct CheckPerform {
    /// How much.
    pub amount: Tiyin,
    /// Into what.
    pub account: Account,
}

impl CheckPerform {
    pub fn parse(params: &str, fields: &AccountFields) -> Result<Self, PaymeError> {
        let members = members(params)?;
        Ok(Self {
            amount: Tiyin::parse(required(&members, "amount", "amount is not an integer")?)?,
            account: Account::parse(&members, fields)?,
        })
    }
}

/// CreateTransaction.
#[derive(Debug)]
pub struct Create {
    /// Payme's id.
    pub id: ExternalId,
    /// Payme's own time of creation.
    pub time: DateTime<Utc>,
    /// How much.
    pub amount: Tiyin,
    /// Into what.
    pub account: Account,
}

impl Create {
    pub fn parse(params: &str, fields: &AccountFields) -> Result<Self, PaymeError> {
        let members = members(params)?;
        Ok(Self {
            id: parse_id(&members)?.ok_or(PaymeError::BadRequest("id is not a transaction id"))?,
            time: parse_time(
                required(&members, "time", "time is not in milliseconds")?,
                "time is not in milliseconds",
            )?,
            amount: Tiyin::parse(required(&members, "amount", "amount is not an integer")?)?,
            account: Account::parse(&members, fields)?,
        })
    }
}

/// The id of a call. `None` when it is a string that no transaction can have.
fn parse_id(members: &Members) -> Result<Option<ExternalId>, PaymeError> {
    Ok(transaction_id(text(members, "id", "id is not a string")?))
}

/// Payme's ids have 24 characters; other providers' are longer than any id here may be.
fn transaction_id(text: String) -> Option<ExternalId> {
    ExternalId::parse(text).ok().filter(|id| id.as_str().len() <= 64)
}

/// PerformTransaction and CheckTransaction.
pub fn parse_by_id(params: &str) -> Result<ExternalId, PaymeError> {
    parse_id(&members(params)?)?.ok_or(PaymeError::UnknownTransaction)
}

/// CancelTransaction.
#[derive(Debug)]
pub struct Cancel {
    /// Payme's id.
    pub id: ExternalId,
    /// Payme's code for why; any integer is kept.
    pub reason: i64,
}

impl Cancel {
    pub fn parse(params: &str) -> Result<Self, PaymeError> {
        let members = members(params)?;
        let reason = required(&members, "reason", "reason is not an integer")?
            .get()
            .parse()
            .map_err(|_| PaymeError::BadRequest("reason is not an integer"))?;
        Ok(Self { id: parse_id(&members)?.ok_or(PaymeError::UnknownTransaction)?, reason })
    }
}

/// GetStatement.
#[derive(Debug)]
pub struct GetStatement {
    /// From this time on.
    pub from: DateTime<Utc>,
    /// Up to and with this time.
    pub to: DateTime<Utc>,
}

impl GetStatement {
    pub fn parse(params: &str) -> Result<Self, PaymeError> {
        let members = members(params)?;
        Ok(Self {
            from: parse_time(
                required(&members, "from", "from is not in milliseconds")?,
                "from is not in milliseconds",
            )?,
            to: parse_time(required(&members, "to", "to is not in milliseconds")?, "to is not in milliseconds")?,
        })
    }
}

/// SetFiscalData.
#[derive(Debug)]
pub struct SetFiscal {
    /// Payme's id.
    pub id: ExternalId,
    /// The receipt of the sale or of its return.
    pub kind: crate::payment::FiscalKind,
    /// The receipt, JSON as it came.
    pub receipt: String,
}

impl SetFiscal {
    pub fn parse(params: &str) -> Result<Self, PaymeError> {
        let bad = |what| PaymeError::BadFiscalParams(what);
        let members = members(params).map_err(|_| bad("params is not an object"))?;
        let id = text(&members, "id", "id").map_err(|_| bad("id is not a string"))?;
        let kind = match text(&members, "type", "type").map_err(|_| bad("type is not a string"))?.as_str() {
            "PERFORM" => crate::payment::FiscalKind::Perform,
            "CANCEL" => crate::payment::FiscalKind::Cancel,
            _ => return Err(bad("type is neither PERFORM nor CANCEL")),
        };
        let receipt = required(&members, "fiscal_data", "fiscal_data").map_err(|_| bad("fiscal_data is missing"))?;
        let receipt_id = self::members(receipt.get()).ok().and_then(|fields| fields.get("receipt_id").cloned());
        if !receipt_id.is_some_and(|id| id.get().starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())) {
            return Err(bad("fiscal_data has no receipt_id"));
        }
        if receipt.get().len() > 16 * 1024 {
            return Err(bad("fiscal_data is too long"));
        }
        let id = transaction_id(id).ok_or(PaymeError::UnknownReceipt)?;
        Ok(Self { id, kind, receipt: receipt.get().to_owned() })
    }
}

/// A payment's state and times in Payme's numbers: an unset time is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub state: i8,
    pub perform_time: i64,
    pub cancel_time: i64,
    pub reason: Option<i64>,
}

impl From<State> for Times {
    fn from(state: State) -> Self {
        match state {
            State::Created => Self { state: 1, perform_time: 0, cancel_time: 0, reason: None },
            State::Performed { performed_at } => {
                Self { state: 2, perform_time: performed_at.timestamp_millis(), cancel_time: 0, reason: None }
            }
            State::Cancelled { cancelled_at, reason } => {
                Self { state: -1, perform_time: 0, cancel_time: cancelled_at.timestamp_millis(), reason: Some(reason) }
            }
            State::Refunded { performed_at, cancelled_at, reason } => Self {
                state: -2,
                perform_time: performed_at.timestamp_millis(),
                cancel_time: cancelled_at.timestamp_millis(),
                reason: Some(reason),
            },
        }
    }
}

/// CreateTransaction's result.
#[derive(Debug, Serialize)]
pub struct CreateResult {
    create_time: i64,
    transaction: String,
    state: i8,
    receivers: Option<()>,
}

/// PerformTransaction's result.
#[derive(Debug, Serialize)]
pub struct PerformResult {
    transaction: String,
    perform_time: i64,
    state: i8,
}

/// CancelTransaction's result.
#[derive(Debug, Serialize)]
pub struct CancelResult {
    transaction: String,
    cancel_time: i64,
    state: i8,
}

/// CheckTransaction's result: all six, always.
#[derive(Debug, Serialize)]
pub struct CheckResult {
    create_time: i64,
    perform_time: i64,
    cancel_time: i64,
    transaction: String,
    state: i8,
    reason: Option<i64>,
}

/// A line of GetStatement's result.
#[derive(Debug, Serialize)]
pub struct StatementLine {
    id: String,
    time: i64,
    amount: MinorUnitsOnWire,
    account: Box<RawValue>,
    create_time: i64,
    perform_time: i64,
    cancel_time: i64,
    transaction: String,
    state: i8,
    reason: Option<i64>,
    receivers: Option<()>,
}

/// Whole tiyin as a JSON number.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct MinorUnitsOnWire(i64);

impl From<MinorUnits> for MinorUnitsOnWire {
    fn from(amount: MinorUnits) -> Self {
        Self(amount.get())
    }
}

impl From<&Payment> for CreateResult {
    fn from(payment: &Payment) -> Self {
        Self {
            create_time: payment.created_at.timestamp_millis(),
            transaction: payment.payment_id.to_string(),
            state: Times::from(payment.state).state,
            receivers: None,
        }
    }
}

impl From<&Payment> for PerformResult {
    fn from(payment: &Payment) -> Self {
        let times = Times::from(payment.state);
        Self { transaction: payment.payment_id.to_string(), perform_time: times.perform_time, state: times.state }
    }
}

impl From<&Payment> for CancelResult {
    fn from(payment: &Payment) -> Self {
        let times = Times::from(payment.state);
        Self { transaction: payment.payment_id.to_string(), cancel_time: times.cancel_time, state: times.state }
    }
}

impl From<&Payment> for CheckResult {
    fn from(payment: &Payment) -> Self {
        let times = Times::from(payment.state);
        Self {
            create_time: payment.created_at.timestamp_millis(),
            perform_time: times.perform_time,
            cancel_time: times.cancel_time,
            transaction: payment.payment_id.to_string(),
            state: times.state,
            reason: times.reason,
        }
    }
}

impl TryFrom<&Payment> for StatementLine {
    type Error = serde_json::Error;

    fn try_from(payment: &Payment) -> Result<Self, serde_json::Error> {
        let times = Times::from(payment.state);
        Ok(Self {
            id: payment.external_id.to_string(),
            time: payment.external_created_at.timestamp_millis(),
            amount: payment.amount.into(),
            account: RawValue::from_string(payment.account_as_received.clone())?,
            create_time: payment.created_at.timestamp_millis(),
            perform_time: times.perform_time,
            cancel_time: times.cancel_time,
            transaction: payment.payment_id.to_string(),
            state: times.state,
            reason: times.reason,
            receivers: None,
        })
    }
}
