//! What a payment's account says beside the field that names the wallet or the order: a phone number, for example.
//! Support finds a payment by it, so it is kept in the one form that whoever looks for it makes of his words, too.

use std::collections::BTreeSet;

/// The most values that are kept of one account.
const VALUES_MAX: usize = 8;

/// The longest value, in characters.
const VALUE_CHARS_MAX: usize = 200;

/// From this many digits on, digits and the signs between them are a number that people write in many ways.
const NUMBER_DIGITS_MIN: usize = 7;

/// The form in which a value is kept and looked for: trimmed; of a phone number or the like the digits alone; else
/// its first 200 characters.
#[must_use]
pub fn normal_account_value(text: &str) -> String {
    let text = text.trim();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let is_number = text.chars().all(|c| c.is_ascii_digit() || matches!(c, ' ' | '+' | '(' | ')' | '-'));
    if is_number && digits.len() >= NUMBER_DIGITS_MIN {
        return digits.chars().take(VALUE_CHARS_MAX).collect();
    }
    text.chars().take(VALUE_CHARS_MAX).collect()
}

/// The values to keep of an account's other fields: each once, none that is empty or that PostgreSQL can't hold, and
/// no more than eight.
#[must_use]
pub fn account_values(texts: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts
        .iter()
        .map(|text| normal_account_value(text))
        .filter(|value| !value.is_empty() && !value.contains('\0') && seen.insert(value.clone()))
        .take(VALUES_MAX)
        .collect()
}
