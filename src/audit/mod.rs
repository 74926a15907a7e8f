//! The append-only account of what people at the desk did and were refused (S2).
//!
//! A line about something allowed is written in the transaction of its effect, so neither is there without the
//! other; one about a refusal is written after the refused transaction has been rolled back. The lines form a
//! hash chain of their own, and `hamyon verify` walks it.

mod store;
pub mod verify;

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::ids::TenantId;

pub use store::{AuditQuery, Found, list};

/// Who acts, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// `staff:<username>`, `api:<client>`, `cli`.
    pub actor: String,
    /// The role of a person at that moment.
    pub role: Option<&'static str>,
    /// The address it came from.
    pub remote_address: Option<String>,
    /// Our id of the HTTP request.
    pub request_id: Option<String>,
}

impl Who {
    /// Somebody at a terminal of the server.
    #[must_use]
    pub fn cli() -> Self {
        Self { actor: "cli".to_owned(), role: None, remote_address: None, request_id: None }
    }
}

/// What is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What somebody wanted to do: `refund`, `request.approve`, `log_in`, …
    pub action: &'static str,
    /// Whether it was done.
    pub allowed: bool,
    /// The tenant it is about.
    pub tenant_id: Option<TenantId>,
    /// What happened with the numbers before and after, or why it was refused.
    pub words: String,
}

/// The longest words that are kept.
const WORDS_CHARS_MAX: usize = 2_000;

/// Writes a line behind the last one. The caller's transaction holds the end of the audit from here on, so this
/// comes last in it.
///
/// # Errors
/// A fault; what isn't written down doesn't happen.
pub async fn write(conn: &mut PgConnection, who: &Who, line: &Line, now: DateTime<Utc>) -> Result<(), Fault> {
    let (head_seq, head_hash) = store::lock_head(conn).await?;
    let seq = head_seq.checked_add(1).ok_or_else(|| Fault::new("the audit has no number left"))?;
    let words: String =
        line.words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_CHARS_MAX).collect();
    let entry = Link {
        seq,
        at: now,
        actor: &who.actor,
        role: who.role,
        remote_address: who.remote_address.as_deref(),
        http_request_id: who.request_id.as_deref(),
        action: line.action,
        allowed: line.allowed,
        tenant_id: line.tenant_id.as_ref().map(TenantId::as_str),
        words: &words,
    };
    store::append(conn, &entry, &entry.hash(&head_hash)).await
}

/// Writes a line in a transaction of its own: about a refusal, whose own transaction was rolled back.
///
/// # Errors
/// A fault.
pub async fn write_alone(db: &Database, clock: &Clock, who: &Who, line: &Line) -> Result<(), Fault> {
    let written = db
        .run("audit_write", |conn| {
            async move { Ok::<_, Error<std::convert::Infallible>>(write(conn, who, line, clock.now()).await?) }
                .scope_boxed()
        })
        .await;
    match written {
        Ok(()) => Ok(()),
        Err(Error::Fault(fault)) => Err(fault),
        Err(Error::Refused(never)) => match never {},
    }
}

/// A line as it is hashed.
#[derive(Debug, Clone, Copy)]
struct Link<'a> {
    seq: i64,
    at: DateTime<Utc>,
    actor: &'a str,
    role: Option<&'a str>,
    remote_address: Option<&'a str>,
    http_request_id: Option<&'a str>,
    action: &'a str,
    allowed: bool,
    tenant_id: Option<&'a str>,
    words: &'a str,
}

impl Link<'_> {
    /// The hash of this line behind the one that hashes to `previous`: every column with its length before it,
    /// and absent ones marked.
    fn hash(&self, previous: &[u8; 32]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(previous);
        let mut field = |bytes: Option<&[u8]>| match bytes {
            None => hasher.update([0]),
            Some(bytes) => {
                hasher.update([1]);
                hasher.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
                hasher.update(bytes);
            }
        };
        field(Some(b"hamyon-audit-1"));
        field(Some(&self.seq.to_be_bytes()));
        field(Some(&self.at.timestamp_micros().to_be_bytes()));
        field(Some(self.actor.as_bytes()));
        field(self.role.map(str::as_bytes));
        field(self.remote_address.map(str::as_bytes));
        field(self.http_request_id.map(str::as_bytes));
        field(Some(self.action.as_bytes()));
        field(Some(&[u8::from(self.allowed)]));
        field(self.tenant_id.map(str::as_bytes));
        field(Some(self.words.as_bytes()));
        hasher.finalize().into()
    }
}
