//! What holds for every answer, looked at once over the whole run.
//!
//! A merchant may be right in every special check and still answer one error in fifty with HTTP 500; these rules are
//! therefore applied to all that was exchanged.

use std::sync::Arc;

use serde_json::Value;

use super::client::Exchange;
use super::envelope::json_content_type;
use super::expect::{self, Mismatch, Verdict};
use super::suite::{Check, Suite, check};

const CHECKS: &[Check] = &[
    check("answered", "§1", "every request was answered in time"),
    check("http-200", "§1", "every answer was HTTP 200, errors included"),
    check("content-type", "§1", "every answer's content type was application/json"),
    check("id-echoed", "§1", "every readable id was echoed"),
    check("result-or-error", "§1", "every answer had a result or an error, never both"),
    check("error-shape", "§2", "every error had an integer code and a message"),
    check("member-types", "§3", "every transaction was a string, every time an integer"),
];

type Rule = fn(&Exchange) -> Verdict;

const RULES: [(&str, Rule); 7] = [
    ("answered", answered),
    ("http-200", http_200),
    ("content-type", content_type),
    ("id-echoed", id_echoed),
    ("result-or-error", result_or_error),
    ("error-shape", error_shape),
    ("member-types", member_types),
];

pub fn run(suite: &mut Suite<'_>) {
    let log = suite.client.log();
    let mut group = suite.group("", CHECKS);
    for (step, rule) in RULES {
        let broken: Vec<(&Arc<Exchange>, Mismatch)> =
            log.iter().filter_map(|exchange| rule(exchange).err().map(|mismatch| (exchange, mismatch))).collect();
        let evidence: Vec<&Arc<Exchange>> = broken.iter().map(|(exchange, _)| *exchange).collect();
        let verdict = match broken.first() {
            None => Ok(()),
            Some((_, first)) => {
                let got = format!("{} ({} of {} answers are wrong)", first.got, broken.len(), log.len());
                Err(Mismatch::new(first.expected.clone(), got))
            }
        };
        group.record(step, &evidence, verdict);
    }
    group.close_after_failure();
}

fn answered(exchange: &Exchange) -> Verdict {
    match &exchange.reply {
        Ok(_) => Ok(()),
        Err(reason) => Err(Mismatch::new("an answer", format!("none: {reason}"))),
    }
}

fn http_200(exchange: &Exchange) -> Verdict {
    match &exchange.reply {
        Ok(reply) if reply.status != 200 => Err(Mismatch::new("HTTP 200", expect::describe(exchange))),
        // A missing answer has a rule of its own, and so on below: one fault, one failure.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn content_type(exchange: &Exchange) -> Verdict {
    if exchange.reply.is_ok() { json_content_type(exchange) } else { Ok(()) }
}

fn id_echoed(exchange: &Exchange) -> Verdict {
    if is_readable(exchange) && exchange.id.is_some() { expect::id_echoed(exchange) } else { Ok(()) }
}

fn result_or_error(exchange: &Exchange) -> Verdict {
    let Ok(reply) = &exchange.reply else {
        return Ok(());
    };
    let members = ["result", "error"].map(|name| reply.raw_member(name).is_some());
    if members == [true, false] || members == [false, true] {
        return Ok(());
    }
    Err(Mismatch::new("either a result or an error", expect::describe(exchange)))
}

fn error_shape(exchange: &Exchange) -> Verdict {
    let Some(error) = exchange.reply.as_ref().ok().and_then(|reply| reply.member("error")) else {
        return Ok(());
    };
    let has_code = error.get("code").is_some_and(Value::is_i64);
    let has_message = error.get("message").is_some_and(|message| message.is_object() || message.is_string());
    if has_code && has_message {
        return Ok(());
    }
    Err(Mismatch::new("an integer code and a message", format!("error {}", expect::shorten(&error.to_string()))))
}

fn member_types(exchange: &Exchange) -> Verdict {
    let Some(Value::Object(result)) = exchange.reply.as_ref().ok().and_then(|reply| reply.member("result")) else {
        return Ok(());
    };
    for (name, value) in &result {
        let right = match name.as_str() {
            "transaction" => value.is_string(),
            "create_time" | "perform_time" | "cancel_time" | "state" => value.is_i64(),
            "reason" => value.is_null() || value.is_i64(),
            _ => true,
        };
        if !right {
            return Err(Mismatch::new(format!("{name} in its own type"), format!("{name} {value}")));
        }
    }
    Ok(())
}

fn is_readable(exchange: &Exchange) -> bool {
    exchange.reply.as_ref().is_ok_and(|reply| reply.status == 200 && reply.members.is_ok())
}
