//! What an answer should be, and a sentence for what it is instead.
//!
//! Every function returns a [`Verdict`]; the error side holds both sentences, since a failure that only says "wrong"
//! sends the merchant back to the documentation.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::client::{Exchange, Reply};

/// Passed, or what was expected and what came.
pub type Verdict = Result<(), Mismatch>;

#[derive(Clone, Debug)]
pub struct Mismatch {
    pub expected: String,
    pub got: String,
}

impl Mismatch {
    pub fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self { expected: expected.into(), got: got.into() }
    }
}

/// The range that Payme keeps for errors of the payer's account.
pub const ACCOUNT_RANGE: RangeInclusive<i64> = -31_099..=-31_050;

/// The answer of an exchange, if Payme would read it at all.
pub fn reply<'a>(exchange: &'a Exchange, expected: &str) -> Result<&'a Reply, Mismatch> {
    match &exchange.reply {
        Ok(reply) if reply.status == 200 && reply.members.is_ok() => Ok(reply),
        _ => Err(Mismatch::new(expected, describe(exchange))),
    }
}

/// A successful answer's `result`, which must be an object.
pub fn result(exchange: &Exchange, expected: &str) -> Result<Map<String, Value>, Mismatch> {
    let reply = reply(exchange, expected)?;
    match reply.member("result") {
        Some(Value::Object(result)) if reply.raw_member("error").is_none() => Ok(result),
        _ => Err(Mismatch::new(expected, describe(exchange))),
    }
}

/// An error with exactly this code.
pub fn error(exchange: &Exchange, code: i64) -> Verdict {
    let expected = format!("error {code}");
    match error_code(exchange, &expected)? {
        got if got == code => Ok(()),
        _ => Err(Mismatch::new(expected, describe(exchange))),
    }
}

/// An error of the account range.
pub fn account_error(exchange: &Exchange) -> Verdict {
    let expected = "an error from -31050 to -31099";
    if ACCOUNT_RANGE.contains(&error_code(exchange, expected)?) {
        return Ok(());
    }
    Err(Mismatch::new(expected, describe(exchange)))
}

/// The refusal of a one-time order that another payment holds: the code asked for, or any of the account range.
pub fn busy(exchange: &Exchange, code: Option<i64>) -> Verdict {
    code.map_or_else(|| account_error(exchange), |code| error(exchange, code))
}

fn error_code(exchange: &Exchange, expected: &str) -> Result<i64, Mismatch> {
    let reply = reply(exchange, expected)?;
    match reply.member("error").as_ref().and_then(|error| error.get("code")).and_then(Value::as_i64) {
        Some(code) if reply.raw_member("result").is_none() => Ok(code),
        _ => Err(Mismatch::new(expected, describe(exchange))),
    }
}

/// The payer reads this message in the app, in his own language.
pub fn localized_message(exchange: &Exchange) -> Verdict {
    let expected = "error.message as an object with non-empty texts ru, uz and en";
    let message = error_member(exchange, "message", expected)?;
    let complete = ["ru", "uz", "en"]
        .iter()
        .all(|language| message.get(language).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty()));
    if complete { Ok(()) } else { Err(Mismatch::new(expected, format!("message {message}"))) }
}

/// `data` of an error, which must be this text.
pub fn error_data(exchange: &Exchange, text: &str) -> Verdict {
    let expected = format!("error.data {text:?}");
    let data = error_member(exchange, "data", &expected)?;
    if data == text { Ok(()) } else { Err(Mismatch::new(expected, format!("data {data}"))) }
}

fn error_member(exchange: &Exchange, name: &str, expected: &str) -> Result<Value, Mismatch> {
    let error = reply(exchange, expected)?.member("error");
    match error {
        Some(error) => Ok(error.get(name).cloned().unwrap_or(Value::Null)),
        None => Err(Mismatch::new(expected, describe(exchange))),
    }
}

/// `CheckPerformTransaction`'s only good answer.
pub fn allowed(exchange: &Exchange) -> Verdict {
    let expected = "result.allow true";
    match result(exchange, expected)?.get("allow") {
        Some(Value::Bool(true)) => Ok(()),
        _ => Err(Mismatch::new(expected, describe(exchange))),
    }
}

/// The `id` that came back, compared by type and value: `1`, `1.0` and `"1"` are three different ids.
pub fn id_echoed(exchange: &Exchange) -> Verdict {
    let id = exchange.id.clone().unwrap_or(Value::Null);
    let expected = format!("id {id}");
    match reply(exchange, &expected)?.member("id") {
        Some(echo) if echo == id => Ok(()),
        Some(echo) => Err(Mismatch::new(expected, format!("id {echo}"))),
        None => Err(Mismatch::new(expected, "no id")),
    }
}

/// All answers carry the same `result`, byte for byte.
pub fn identical<'a>(exchanges: impl IntoIterator<Item = &'a Exchange>) -> Verdict {
    let mut first: Option<&str> = None;
    for exchange in exchanges {
        let expected = first.map_or_else(|| "a result".to_owned(), |first| format!("result {}", shorten(first)));
        let raw = reply(exchange, &expected)?.raw_member("result");
        let Some(raw) = raw else {
            return Err(Mismatch::new(expected, describe(exchange)));
        };
        match first {
            None => first = Some(raw),
            Some(first) if first == raw => {}
            Some(_) => return Err(Mismatch::new(expected, format!("result {}", shorten(raw)))),
        }
    }
    Ok(())
}

/// An exchange in one line.
pub fn describe(exchange: &Exchange) -> String {
    let reply = match &exchange.reply {
        Ok(reply) => reply,
        Err(reason) => return format!("no answer: {reason}"),
    };
    if reply.status != 200 {
        return format!("HTTP {} (Payme reads any status but 200 as -32400)", reply.status);
    }
    if let Err(reason) = &reply.members {
        return format!("a body that is not a JSON object ({reason}): {}", shorten(&reply.body));
    }
    match (reply.member("error"), reply.raw_member("result")) {
        (Some(error), None) => match error.get("code") {
            Some(code) => format!("error {code}, message {}", shorten(&error["message"].to_string())),
            None => format!("an error without a code: {}", shorten(&error.to_string())),
        },
        (None, Some(result)) => format!("result {}", shorten(result)),
        (Some(_), Some(_)) => "both a result and an error".to_owned(),
        (None, None) => format!("neither a result nor an error: {}", shorten(&reply.body)),
    }
}

/// A text that fits on a line or two.
pub fn shorten(text: &str) -> String {
    const LIMIT: usize = 240;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    let head: String = text.chars().take(LIMIT).collect();
    format!("{head}…")
}
