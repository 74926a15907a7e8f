//! Texts from outside, written so that no program takes them for anything but text.
//!
//! Whatever is encoded here can be decoded again, and two texts never become one: a reader of the export must
//! not be made to believe in a row that isn't there, nor in one tenant where there are two. Only [`on_one_line`]
//! loses something; what it says is said again beside it, exactly.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A character that ends a line somewhere, that can't be seen, or that turns the direction of what follows it.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Separators of lines and paragraphs; marks of direction; the mark of the order of bytes.
            '\u{2028}' | '\u{2029}'
                | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// The text with its hidden characters, its per cent signs and the `also` ones written as in a URL: `%0A`.
#[must_use]
pub fn percent_encoded<'a>(text: &'a str, also: &[char]) -> Cow<'a, str> {
    encoded(text, |character| character != '%' && !is_hidden(character) && !also.contains(&character))
}

/// A text that may stand behind a tag of hledger: it goes on to the next comma or the end of the line, without
/// the white space around it.
#[must_use]
pub fn hledger_tag_value(text: &str) -> Cow<'_, str> {
    let value = percent_encoded(text, &[',']);
    if value.trim() == value {
        return value;
    }
    // The white space inside stays as it is.
    let inside = value.trim();
    let before = value.find(inside).unwrap_or_default();
    let (start, rest) = value.split_at(before);
    let end = rest.strip_prefix(inside).unwrap_or_default();
    Cow::Owned(format!("{}{inside}{}", encoded(start, |_| false), encoded(end, |_| false)))
}

/// A part of an account's name in hledger. Colons divide the parts, and two spaces would end the name.
#[must_use]
pub fn hledger_part(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        // A lone per cent sign stands for no character, so nothing else is written like this.
        return Cow::Borrowed("%");
    }
    encoded(text, |character| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '@' | '+' | '-'))
}

fn encoded(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len());
    for character in text.chars() {
        if stays(character) {
            written.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(written, "%{byte:02X}");
            }
        }
    }
    Cow::Owned(written)
}

/// A description in hledger: one line, without the semicolon that would begin a comment and the bar that would
/// divide it.
#[must_use]
pub fn on_one_line(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|character| if is_hidden(character) || matches!(character, ';' | '|') { ' ' } else { character })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A unit in hledger. Only letters need no quotes.
#[must_use]
pub fn hledger_unit(code: &str) -> Cow<'_, str> {
    if code.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        Cow::Borrowed(code)
    } else {
        Cow::Owned(format!("\"{code}\""))
    }
}

/// A string of beancount, with its quotes.
#[must_use]
pub fn beancount_string(text: &str) -> String {
    let visible = percent_encoded(text, &[]);
    let mut written = String::with_capacity(visible.len().saturating_add(2));
    written.push('"');
    for character in visible.chars() {
        if matches!(character, '"' | '\\') {
            written.push('\\');
        }
        written.push(character);
    }
    written.push('"');
    written
}

/// A part of an account's name in beancount, from any text, behind a prefix that the caller chooses. Letters and
/// digits stay; a dash becomes two; any other byte becomes a dash and its two hexadecimal digits.
#[must_use]
pub fn beancount_part(prefix: &str, text: &str) -> String {
    let mut written = String::with_capacity(text.len().saturating_add(prefix.len()));
    written.push_str(prefix);
    for byte in text.bytes() {
        match byte {
            b'-' => written.push_str("--"),
            _ if byte.is_ascii_alphanumeric() => written.push(char::from(byte)),
            _ => {
                let _ = write!(written, "-{byte:02x}");
            }
        }
    }
    written
}

/// A part of an account's name in beancount, from a name in small letters (a pocket, a kind): its first letter
/// becomes a capital. Another text gets a prefix that no such name can have.
#[must_use]
pub fn beancount_name(text: &str) -> String {
    match text.as_bytes().first() {
        Some(first) if first.is_ascii_lowercase() => {
            let (first, rest) = text.split_at(1);
            beancount_part(&first.to_ascii_uppercase(), rest)
        }
        Some(first) if first.is_ascii_digit() => beancount_part("", text),
        _ => beancount_part("X-X", text),
    }
}

/// A unit in beancount: 2 to 24 characters that end with a letter or a digit, and none of its own words. Ours
/// that don't fit get `.X` behind them; a point is in none of ours.
#[must_use]
pub fn beancount_unit(code: &str) -> Cow<'_, str> {
    let fits = code.len() >= 2 && !code.ends_with('_') && !matches!(code, "TRUE" | "FALSE" | "NULL");
    if fits { Cow::Borrowed(code) } else { Cow::Owned(format!("{code}.X")) }
}

/// A text in a cell that no spreadsheet takes for a formula. An apostrophe in front is taken away by whoever
/// wants the text itself, so a text that begins with one gets another.
#[must_use]
pub fn cell(text: &str) -> Cow<'_, str> {
    // The wide forms are what some of them read as the plain ones.
    const BEGINNINGS: [char; 12] = ['=', '+', '-', '@', '\t', '\r', '\n', '\'', '＝', '＋', '－', '＠'];
    if text.starts_with(BEGINNINGS) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}
