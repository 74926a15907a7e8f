//! The append-only log of what providers asked and what we answered.
//!
//! A call that changed something is written in the transaction of its effect, so the log and the money never
//! disagree; the others are written on their own. Headers are never kept, so no key can be in the log.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::payment::Mode;

/// The longest request or answer that is kept whole.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A call, as far as it is known when it arrives.
#[derive(Debug, Clone)]
pub struct Call {
    /// `payme`, …
    pub provider: &'static str,
    /// Which key it came with; none when it did not authenticate.
    pub mode: Option<Mode>,
    /// The method it asked for.
    pub method: Option<String>,
    /// The provider's id of the payment it is about.
    pub external_id: Option<String>,
    /// Where it came from.
    pub remote_address: Option<String>,
    /// Our id of the request, as in our own log.
    pub request_id: String,
    /// When it arrived.
    pub received_at: DateTime<Utc>,
    /// The body, without secrets.
    pub request: String,
    /// How long the body was.
    pub request_bytes: usize,
}

/// Writes a call with its answer.
///
/// # Errors
/// A fault.
pub async fn record(conn: &mut PgConnection, call: &Call, answer: &str, error_code: Option<i32>) -> Result<(), Fault> {
    sqlx::query!(
        "-- call_log::record
         INSERT INTO provider_calls (provider, mode, method, external_id, remote_address, request_id, received_at,
                                     request, request_bytes, answer, error_code)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        call.provider,
        call.mode.map(Mode::as_str),
        call.method.as_deref().map(|method| shorten(method, 64)),
        call.external_id.as_deref().map(|id| shorten(id, 64)),
        call.remote_address,
        call.request_id,
        call.received_at,
        shorten(&call.request, TEXT_BYTES_MAX),
        i32::try_from(call.request_bytes).unwrap_or(i32::MAX),
        shorten(answer, TEXT_BYTES_MAX),
        error_code,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Cuts a text at a character's border, and replaces NUL, which PostgreSQL refuses in text.
fn shorten(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default().replace('\0', "\u{FFFD}")
}
