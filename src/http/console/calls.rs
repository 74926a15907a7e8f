//! What a provider asked about a payment and what we answered, in a sentence.

use serde_json::Value;

use super::words::Words;
use crate::inquiry::CallLine;
use crate::tenant::Locale;

/// The sentence. What is kept of an answer is what stands inside of its envelope.
pub fn words(language: Locale, call: &CallLine) -> String {
    let w = Words::of(language);
    let asked = match call.method.as_deref().unwrap_or_default() {
        "CheckPerformTransaction" => w.asked_check,
        "CreateTransaction" => w.asked_create,
        "PerformTransaction" => w.asked_perform,
        "CancelTransaction" => w.asked_cancel,
        "CheckTransaction" => w.asked_state,
        "SetFiscalData" => w.asked_receipt,
        _ => w.asked_other,
    };
    let answer: Value = serde_json::from_str(&call.answer).unwrap_or_default();
    format!("{asked} {}", answered(w, language, call, &answer))
}

fn answered(w: &'static Words, language: Locale, call: &CallLine, answer: &Value) -> String {
    if call.error_code.is_some() {
        // The very words that we answered, and the payer may have been shown.
        let message = answer.get("message");
        let text = message.and_then(|message| message.get(language.as_str()).or(Some(message))?.as_str());
        return text.map_or_else(|| w.answered_no.to_owned(), |text| format!("{}: {text}", w.answered_no));
    }
    let state = match answer.get("state").and_then(Value::as_i64) {
        Some(1) => w.state_created,
        Some(2) => w.state_performed,
        Some(-1) => w.state_cancelled,
        Some(-2) => w.state_refunded,
        Some(_) | None => return w.answered_yes.to_owned(),
    };
    format!("{}: {state}", w.answered_yes)
}
