//! Every movement that may bring money in goes through here.
//!
//! What a credit sets off (overdue dues are paid, events are written) belongs into the credit's own
//! transaction, and there is one function for it, whoever brings the money: a provider, support, a booking or
//! the batch endpoint.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Error;
use crate::fee;
use crate::ids::{Actor, Pocket};
use crate::ledger::{self, Entry, Kind, PostedRow, Refusal};
use crate::outbox::{self, Event, EventKind};

/// Books the entries and what they set off, on a connection whose transaction the caller owns. `events` are
/// the caller's own, written together with those of what was set off.
///
/// # Errors
/// The ledger's refusal; the caller rolls back.
pub async fn post(
    conn: &mut PgConnection,
    entries: &[Entry],
    mut events: Vec<Event>,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<Refusal>> {
    let rows = ledger::post(conn, entries, actor, now).await?;
    // What is only set aside, on its way to its payer, is nothing that a tenant has back.
    let is_back = |row: &&PostedRow| row.kind == Kind::Refund && row.pocket != Pocket::set_aside();
    events.extend(rows.iter().filter(is_back).map(refund_posted));
    let credited: BTreeSet<_> = rows
        .iter()
        .filter(|row| row.amount.is_positive())
        .map(|row| (row.tenant_id.clone(), row.currency.clone()))
        .collect();
    if !credited.is_empty() {
        let credited: Vec<_> = credited.into_iter().collect();
        events.extend(fee::pay_overdue(conn, &credited, now).await?);
    }
    outbox::write(conn, &events, now).await?;
    Ok(rows)
}

fn refund_posted(row: &PostedRow) -> Event {
    Event {
        tenant_id: row.tenant_id.clone(),
        kind: EventKind::RefundPosted,
        about: serde_json::json!({
            "transaction": row.seq,
            "original": row.original_seq,
            "amount_minor_units": row.amount.get(),
            "currency": row.currency.as_str(),
            "reference": row.reference.as_str(),
        }),
    }
}
