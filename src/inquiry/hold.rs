//! The story of one hold: who placed it, what its calls used, which rows paid it.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::store::{self, ChargeLine, UsageLine};
use crate::fault::Fault;
use crate::hold::{self, Hold, HoldId};
use crate::ids::Pocket;
use crate::ledger;

/// How many calls of a hold are told, the newest first.
pub const HOLD_CALLS_MAX: i64 = 200;

/// A hold with what led to it and what came of it.
#[derive(Debug, Clone)]
pub struct HoldStory {
    /// The hold.
    pub hold: Hold,
    /// Who placed it.
    pub placed_by: String,
    /// What makes another job the same for some seconds.
    pub fingerprint: Option<String>,
    /// When its owner heard that it waits.
    pub waiting_told_at: Option<DateTime<Utc>>,
    /// Its newest calls, at most [`HOLD_CALLS_MAX`].
    pub calls: Vec<UsageLine>,
    /// The rows that paid it.
    pub charges: Vec<ChargeLine>,
}

/// Tells the story of a hold; none when there is no such hold.
///
/// # Errors
/// A fault.
pub async fn explain_hold(conn: &mut PgConnection, hold_id: &HoldId) -> Result<Option<HoldStory>, Fault> {
    let Some(hold) = hold::find(conn, hold_id).await? else { return Ok(None) };
    let placing = store::placing_of(conn, hold_id).await?;
    let calls = store::usage_of(conn, hold_id, HOLD_CALLS_MAX).await?;
    let charges = match &hold.end {
        Some(end) if end.settled => {
            let references = charge_references(conn, &hold, end.at).await?;
            store::charges_of(conn, hold_id, &references).await?
        }
        _ => Vec::new(),
    };
    Ok(Some(HoldStory {
        placed_by: placing.placed_by,
        fingerprint: placing.fingerprint,
        waiting_told_at: placing.waiting_told_at,
        calls,
        charges,
        hold,
    }))
}

/// The references of the rows that may pay a hold: one for each pocket that it kept something of or that had money
/// when it ended, and for `main`, which pays what is beyond.
async fn charge_references(
    conn: &mut PgConnection,
    hold: &Hold,
    ended_at: DateTime<Utc>,
) -> Result<Vec<String>, Fault> {
    let mut pockets: BTreeSet<Pocket> = hold.parts.iter().map(|part| part.pocket.clone()).collect();
    pockets.insert(Pocket::main());
    let before = ended_at.checked_sub_signed(TimeDelta::microseconds(1)).unwrap_or(ended_at);
    for at in [before, ended_at] {
        let balance = ledger::balance(conn, &hold.tenant_id, &hold.currency, Some(at), at).await?;
        pockets.extend(balance.into_iter().flat_map(|balance| balance.pockets.into_keys()));
    }
    Ok(pockets.iter().map(|pocket| hold::charge_reference(&hold.hold_id, pocket)).collect())
}
