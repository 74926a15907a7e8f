//! Every movement that may bring money in goes through here.
//!
//! What a credit sets off (overdue dues are paid, events are written) belongs into the credit's own
//! transaction, and there is one function for it, whoever brings the money: a provider, support, a booking or
//! the batch endpoint. Today a credit sets off nothing, since nothing can be owed yet.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Error;
use crate::ids::Actor;
use crate::ledger::{self, Entry, PostedRow, Refusal};

/// Books the entries and what they set off, on a connection whose transaction the caller owns.
///
/// # Errors
/// The ledger's refusal; the caller rolls back.
pub async fn post(
    conn: &mut PgConnection,
    entries: &[Entry],
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<Refusal>> {
    ledger::post(conn, entries, actor, now).await
}
