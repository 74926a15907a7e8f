//! Which key a call came with.
//!
//! The whole decoded `login:key` is compared, in constant time, and never split: a key may hold colons.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq as _;

use crate::payment::Mode;

/// The keys of one cashbox. An unset or empty key admits nobody.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The user name of the Basic scheme, `Paycom`.
    pub login: String,
    /// The production key.
    pub live: Option<SecretString>,
    /// The sandbox key.
    pub test: Option<SecretString>,
}

impl Keys {
    /// The mode of the key in an `Authorization` header; `None` when it is nobody's.
    #[must_use]
    pub fn mode_of(&self, header: Option<&[u8]>) -> Option<Mode> {
        let given = header.and_then(credentials)?;
        // Both are always compared, so the time tells nothing about which key exists.
        let live = self.matches(self.live.as_ref(), &given);
        let test = self.matches(self.test.as_ref(), &given);
        if live {
            Some(Mode::Live)
        } else if test {
            Some(Mode::Test)
        } else {
            None
        }
    }

    fn matches(&self, key: Option<&SecretString>, given: &[u8]) -> bool {
        let Some(key) = key.map(|key| key.expose_secret().trim()).filter(|key| !key.is_empty()) else { return false };
        let expected = format!("{}:{key}", self.login);
        expected.as_bytes().ct_eq(given).into()
    }
}

/// The decoded credentials of a Basic header. The scheme's name is case-insensitive (RFC 9110, 11.1).
fn credentials(header: &[u8]) -> Option<Vec<u8>> {
    let header = std::str::from_utf8(header).ok()?.trim();
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let encoded = encoded.trim();
    STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).ok()
}
