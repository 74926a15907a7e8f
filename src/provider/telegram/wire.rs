//! Updates and lines of the list as they stand on the wire.
//!
//! Telegram adds members and kinds as it likes. What we don't need is not looked at; what we need must be there and
//! of the right shape, since a payment that is half understood is money lost.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::money::MinorUnits;

/// What an update is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A payer wants to pay.
    PreCheckout(PreCheckout),
    /// A payer has paid.
    Paid(Paid),
    /// A payment has gone back.
    GoneBack(GoneBack),
    /// None of ours.
    Other,
}

/// A body that is, or may be, about a payment, and can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unread(pub String);

/// `pre_checkout_query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreCheckout {
    /// The query's id: what it is answered under.
    pub id: String,
    /// The payer.
    pub payer: i64,
    /// The payer's language, as their Telegram has it.
    pub language_code: Option<String>,
    /// The currency's code.
    pub currency: String,
    /// In the smallest units; stars have none smaller.
    pub amount: MinorUnits,
    /// The order.
    pub payload: String,
}

/// `successful_payment` with who paid it and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paid {
    /// The payer.
    pub payer: i64,
    /// When.
    pub paid_at: DateTime<Utc>,
    /// The currency's code.
    pub currency: String,
    /// In the smallest units.
    pub amount: MinorUnits,
    /// The order.
    pub payload: String,
    /// The money's own id.
    pub charge_id: String,
}

/// `refunded_payment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneBack {
    /// The id of the money that went back.
    pub charge_id: String,
    /// How much went back, if it is said.
    pub amount: Option<MinorUnits>,
}

/// An update and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Telegram's number of it.
    pub update_id: i64,
    /// What it is about.
    pub update: Update,
}

impl Update {
    /// The name in our tables.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::PreCheckout(_) => "pre_checkout_query",
            Self::Paid(_) => "successful_payment",
            Self::GoneBack(_) => "refunded_payment",
            Self::Other => "other",
        }
    }
}

#[derive(Deserialize)]
struct User {
    id: i64,
    #[serde(default)]
    language_code: Option<Value>,
}

#[derive(Deserialize)]
struct PreCheckoutWire {
    id: String,
    from: User,
    currency: String,
    total_amount: i64,
    invoice_payload: String,
}

#[derive(Deserialize)]
struct MessageWire {
    from: User,
    date: i64,
    successful_payment: PaidWire,
}

#[derive(Deserialize)]
struct PaidWire {
    currency: String,
    total_amount: i64,
    invoice_payload: String,
    telegram_payment_charge_id: String,
}

#[derive(Deserialize)]
struct GoneBackWire {
    telegram_payment_charge_id: String,
    #[serde(default)]
    total_amount: Option<i64>,
}

/// Reads an update.
///
/// # Errors
/// [`Unread`] when it is about a payment and can't be read, or when it is no update at all.
pub fn read_update(body: &[u8]) -> Result<Numbered, Unread> {
    let unread = |what: &str| Unread(what.to_owned());
    let update: Value = serde_json::from_slice(body).map_err(|error| Unread(format!("not JSON: {error}")))?;
    let members = update.as_object().ok_or_else(|| unread("not a JSON object"))?;
    let about = about(members)?;
    let update_id = members.get("update_id").and_then(Value::as_i64);
    match (update_id, about) {
        (Some(update_id), update) => Ok(Numbered { update_id, update }),
        (None, Update::Other) => Err(unread("it has no update_id")),
        (None, _) => Err(unread("a payment's update has no update_id")),
    }
}

fn about(members: &serde_json::Map<String, Value>) -> Result<Update, Unread> {
    if let Some(query) = members.get("pre_checkout_query") {
        let wire: PreCheckoutWire = read(query, "pre_checkout_query")?;
        return Ok(Update::PreCheckout(PreCheckout {
            id: plain("pre_checkout_query.id", wire.id)?,
            payer: wire.from.id,
            language_code: wire.from.language_code.and_then(|code| code.as_str().map(ToOwned::to_owned)),
            currency: wire.currency,
            amount: MinorUnits::new(wire.total_amount),
            payload: wire.invoice_payload,
        }));
    }
    // A service message comes as `message`; should it ever come in another envelope, it is a payment all the same.
    for message in members.values().filter(|value| value.is_object()) {
        if message.get("successful_payment").is_some() {
            let wire: MessageWire = read(message, "successful_payment")?;
            return Ok(Update::Paid(Paid {
                payer: wire.from.id,
                paid_at: time(wire.date).ok_or_else(|| Unread("message.date is not a time".to_owned()))?,
                currency: wire.successful_payment.currency,
                amount: MinorUnits::new(wire.successful_payment.total_amount),
                payload: wire.successful_payment.invoice_payload,
                charge_id: charge_id(wire.successful_payment.telegram_payment_charge_id)?,
            }));
        }
        if let Some(payment) = message.get("refunded_payment") {
            let wire: GoneBackWire = read(payment, "refunded_payment")?;
            return Ok(Update::GoneBack(GoneBack {
                charge_id: charge_id(wire.telegram_payment_charge_id)?,
                amount: wire.total_amount.map(MinorUnits::new),
            }));
        }
    }
    Ok(Update::Other)
}

fn read<T: for<'de> Deserialize<'de>>(value: &Value, what: &str) -> Result<T, Unread> {
    T::deserialize(value).map_err(|error| Unread(format!("{what}: {error}")))
}

/// The longest id that is taken. Telegram names no bound; those that were seen have up to 131 characters and grow, and
/// a payment whose id is too long would be booked by nobody.
const ID_BYTES_MAX: usize = 512;

/// An id that PostgreSQL can hold and an index can carry.
fn plain(what: &str, text: String) -> Result<String, Unread> {
    let shape = !text.is_empty() && text.len() <= ID_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    if shape { Ok(text) } else { Err(Unread(format!("{what} is not 1 to {ID_BYTES_MAX} visible ASCII characters"))) }
}

fn charge_id(text: String) -> Result<String, Unread> {
    plain("telegram_payment_charge_id", text)
}

/// A time that PostgreSQL holds.
fn time(seconds: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(seconds, 0).filter(|time| (0..=253_402_300_799).contains(&time.timestamp()))
}

/// What a line of `getStarTransactions` means for our book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A payer paid one of our invoices.
    Paid(Paid),
    /// A payment went back: the original's id, and outgoing.
    GoneBack(GoneBack),
    /// Stars that have nothing to do with invoices.
    Other,
}

#[derive(Deserialize)]
struct LineWire {
    id: String,
    amount: i64,
    #[serde(default)]
    nanostar_amount: Option<Value>,
    date: i64,
    #[serde(default)]
    source: Option<Value>,
    #[serde(default)]
    receiver: Option<Value>,
}

/// Reads a line. The kinds of partners grow; what isn't a payer's payment of an invoice or its way back is none of
/// ours, however it looks.
///
/// # Errors
/// [`Unread`] when it may be a payment and can't be read.
pub fn read_line(line: &Value) -> Result<Line, Unread> {
    let source = line.get("source").filter(|partner| !partner.is_null());
    let receiver = line.get("receiver").filter(|partner| !partner.is_null());
    let invoice = |partner: &Value| {
        partner.get("type").and_then(Value::as_str) == Some("user")
            && partner
                .get("transaction_type")
                .is_none_or(|kind| kind.as_str().is_none_or(|kind| kind == "invoice_payment"))
    };
    let says_invoice = |partner: &Value| {
        invoice(partner) && partner.get("transaction_type").and_then(Value::as_str) == Some("invoice_payment")
    };
    // A line with both is not one that we know.
    match (source, receiver) {
        // The order's name may be left out by the Bot API's own words; whose money it is, a person has to find then.
        (Some(source), None) if says_invoice(source) && source.get("invoice_payload").is_none() => {
            Err(Unread("a line of an invoice has no payload".to_owned()))
        }
        (Some(source), None) if invoice(source) && source.get("invoice_payload").is_some() => {
            let wire: LineWire = read(line, "a line")?;
            let nano = wire.nanostar_amount.as_ref().and_then(Value::as_i64).unwrap_or(0);
            if nano != 0 {
                return Err(Unread("a line of an invoice has a part of a star".to_owned()));
            }
            let source = wire.source.as_ref().unwrap_or(&Value::Null);
            let payer = source.pointer("/user/id").and_then(Value::as_i64);
            let payload = source.get("invoice_payload").and_then(Value::as_str);
            Ok(Line::Paid(Paid {
                payer: payer.ok_or_else(|| Unread("a line of an invoice has no payer".to_owned()))?,
                paid_at: time(wire.date).ok_or_else(|| Unread("a line's date is not a time".to_owned()))?,
                currency: super::CURRENCY.to_owned(),
                amount: MinorUnits::new(wire.amount),
                payload: payload.ok_or_else(|| Unread("a line's payload is no text".to_owned()))?.to_owned(),
                charge_id: charge_id(wire.id)?,
            }))
        }
        (None, Some(receiver)) if receiver.get("type").and_then(Value::as_str) == Some("user") => {
            let wire: LineWire = read(line, "a line")?;
            // A gift that the bot sent goes to a user, too; its id is no payment's, and it is found to be none.
            let _ = wire.receiver;
            Ok(Line::GoneBack(GoneBack { charge_id: charge_id(wire.id)?, amount: Some(MinorUnits::new(wire.amount)) }))
        }
        _ => Ok(Line::Other),
    }
}
