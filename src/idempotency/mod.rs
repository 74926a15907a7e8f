//! One key, one effect, one answer.
//!
//! The claim of a key is the first statement of the transaction that has the effect: a repeat that comes at
//! the same time waits on the unique index, and a crash leaves neither key nor effect. A key belongs to the
//! client that sent it, whatever token it used. A refusal has no effect, so it binds nothing: after a refused
//! request the same key may be used again, and the question is asked anew.

mod store;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use crate::fault::{Error, Fault};
use crate::ids::InvalidName;

/// A caller's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Parses the header's value.
    ///
    /// # Errors
    /// [`InvalidName`] when it isn't 1 to 255 visible ASCII characters.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if !text.is_empty() && text.len() <= 255 && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName { what: "Idempotency-Key", rule: "must be 1 to 255 visible ASCII characters" })
        }
    }
}

/// A request that wants to happen once.
#[derive(Debug, Clone)]
pub struct Claim {
    owner: String,
    key: Key,
    operation: String,
    request: Value,
    hash: [u8; 32],
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, JSON, byte for byte.
    pub body: String,
    /// Whether it was answered before.
    pub replayed: bool,
}

/// What a claim finds.
#[must_use]
#[derive(Debug)]
pub enum Claimed {
    /// Nobody used the key: do the work and call [`finish_all`].
    Fresh,
    /// The same request was answered before.
    Answered(Answer),
}

/// The key stands for another request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the idempotency key {key} was used for another request: {} differ", fields.join(", "))]
pub struct KeyReused {
    /// The key.
    pub key: String,
    /// The fields that differ, at most ten, as paths such as `transactions[3].amount`.
    pub fields: Vec<String>,
}

impl Claim {
    /// A claim of `owner` (a client's name, or `staff:<username>`, which is none) on `key` for an operation (method
    /// and path) with this request.
    #[must_use]
    pub fn new(owner: String, key: Key, operation: String, request: Value) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(operation.as_bytes());
        hasher.update([0]);
        hasher.update(request.to_string().as_bytes());
        Self { owner, key, operation, request, hash: hasher.finalize().into() }
    }

    /// A reference for what this request books, when its caller names none: the key belongs to its owner, and so does
    /// what is made of it.
    #[must_use]
    pub fn reference(&self, prefix: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.owner.as_bytes());
        hasher.update([0]);
        hasher.update(self.key.0.as_bytes());
        let digest = URL_SAFE_NO_PAD.encode(hasher.finalize());
        format!("{prefix}:{digest}")
    }
}

/// Claims the key, as the first statement of a transaction.
///
/// # Errors
/// [`KeyReused`] when the key stands for another request.
pub async fn claim(conn: &mut PgConnection, claim: &Claim, now: DateTime<Utc>) -> Result<Claimed, Error<KeyReused>> {
    if store::insert(conn, &[claim], now).await? == 1 {
        return Ok(Claimed::Fresh);
    }
    let stored = store::find(conn, claim).await?;
    if stored.hash == claim.hash {
        return Ok(Claimed::Answered(Answer { status: stored.status, body: stored.answer, replayed: true }));
    }
    let mut fields = Vec::new();
    if stored.operation != claim.operation {
        fields.push("operation".to_owned());
    }
    fields.extend(differing_fields(&stored.request, &claim.request));
    fields.truncate(10);
    Err(Error::Refused(KeyReused { key: claim.key.0.clone(), fields }))
}

/// Claims several keys. `false` when one of them was used before or stands twice among them: the caller rolls
/// back and claims each alone.
///
/// # Errors
/// A fault.
pub async fn claim_all(conn: &mut PgConnection, claims: &[&Claim], now: DateTime<Utc>) -> Result<bool, Fault> {
    Ok(store::insert(conn, claims, now).await? == claims.len())
}

/// Stores the answers of claimed keys, as the last statement of the transaction.
///
/// # Errors
/// A fault.
pub async fn finish_all(conn: &mut PgConnection, finished: &[(&Claim, &Answer)]) -> Result<(), Fault> {
    store::finish(conn, finished).await
}

/// The fields in which two requests differ, at most ten.
#[must_use]
pub fn differing_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    differences("", before, after, &mut fields);
    fields.truncate(10);
    fields
}

/// Names the fields in which two requests differ.
fn differences(path: &str, before: &Value, after: &Value, fields: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (before.get(name), after.get(name)) {
                    (Some(before), Some(after)) => differences(&path, before, after, fields),
                    // Left out and null are different requests.
                    _ => fields.push(path),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                differences(&format!("{path}[{index}]"), before, after, fields);
            }
        }
        (before, after) => {
            // What is compared is what was hashed.
            let (before, after) = (before.to_string(), after.to_string());
            if before != after {
                fields.push(path.to_owned());
            }
        }
    }
}
