//! Codes of an authenticator application (TOTP, RFC 6238): SHA-1, six digits, 30 seconds, one step of slack.

use chrono::{DateTime, Utc};
use rand::RngCore as _;
use totp_rs::{Builder, Totp};

use super::Username;
use crate::fault::Fault;

const SECRET_BYTES: usize = 20;

fn totp(username: &Username, secret: &[u8]) -> Result<Totp, Fault> {
    Builder::new()
        .with_secret(secret.to_vec())
        .with_skew(1)
        .with_account_name(username.as_str())
        .with_issuer(Some("Hamyon"))
        .build()
        .map_err(|error| Fault::new("a second factor can't be made").because(error.to_string()))
}

/// A new secret.
pub(super) fn generate() -> Vec<u8> {
    let mut secret = vec![0_u8; SECRET_BYTES];
    rand::rng().fill_bytes(&mut secret);
    secret
}

/// What an authenticator application reads, typed in or as a QR code.
pub(super) fn to_url(username: &Username, secret: &[u8]) -> Result<String, Fault> {
    totp(username, secret)?
        .to_url()
        .map_err(|error| Fault::new("a second factor has no URL").because(error.to_string()))
}

/// The time step of a code, if it is right now.
pub(super) fn step_of(
    username: &Username,
    secret: &[u8],
    code: &str,
    now: DateTime<Utc>,
) -> Result<Option<i64>, Fault> {
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    let step = totp(username, secret)?.check(code, seconds);
    Ok(step.and_then(|step| i64::try_from(step).ok()))
}
