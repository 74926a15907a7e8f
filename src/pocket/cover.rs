//! Covering what `main` owes.
//!
//! Work that cost more than there was leaves `main` below zero (H10). Money that comes into a pocket with rules would
//! stand beside that debt: its units couldn't be spent, would expire, and the debt would take as many of the next ones.
//! So the debt is paid from the pockets, once: one row takes from each pocket that pays, one row puts the sum into
//! `main`. Together they are zero, so the balance is what it was.
//!
//! It happens when money comes into a pocket by a grant or an allowance, and always before what is left of a pocket
//! expires. What a hold keeps is left alone.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::{Error, Fault};
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata, WalletState};
use crate::money::{CurrencyCode, MinorUnits};

/// What the references of these rows, which are adjustments, begin with. Nobody else may book one that does: the rows
/// belong together, and none of them is a debit that could be given back.
pub const COVER_REFERENCE_PREFIX: &str = ledger::COVER_TRANSFER;

/// Whether `main` is below zero.
pub(super) fn is_overdrawn(wallet: &WalletState) -> bool {
    wallet.pockets.get(&Pocket::main()).is_some_and(|amount| amount.is_negative())
}

/// Which pockets pay how much of what `main` owes: what ends first pays first (what has ended, and isn't booked yet,
/// before all), then the lower priority, then the older pocket. Bought money in named pockets pays nothing, as it lasts
/// and nobody loses it.
fn parts(wallet: &WalletState) -> Result<Vec<(Pocket, MinorUnits)>, Fault> {
    let main = wallet.pockets.get(&Pocket::main()).copied().unwrap_or_default();
    let mut owed = minus(MinorUnits::ZERO, main)?;
    let mut ruled: Vec<_> = wallet.division.rules.iter().collect();
    ruled.sort_by_key(|(pocket, rule)| {
        (rule.ends_at.unwrap_or(DateTime::<Utc>::MAX_UTC), rule.priority, rule.created_at, *pocket)
    });
    let mut parts = Vec::new();
    for (pocket, _) in ruled {
        if !owed.is_positive() {
            break;
        }
        let there = wallet.pockets.get(pocket).copied().unwrap_or_default();
        // Holds whose time is over and that nobody has settled yet may still have used theirs.
        let promised = wallet.division.promised.get(pocket).map(|promised| promised.unended).unwrap_or_default();
        let amount = minus(there, promised)?.min(owed);
        if amount.is_positive() && *pocket != Pocket::set_aside() {
            owed = minus(owed, amount)?;
            parts.push((pocket.clone(), amount));
        }
    }
    Ok(parts)
}

/// Covers what `main` of a locked wallet owes, as far as the pockets can. Says whether it wrote anything; then the wallet
/// stands otherwise than it was read.
///
/// # Errors
/// A fault; the ledger has nothing to refuse here.
pub(super) async fn cover_overdraft(
    conn: &mut PgConnection,
    wallet: &WalletState,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<bool, Error<ledger::Refusal>> {
    let parts = if is_overdrawn(wallet) { parts(wallet)? } else { Vec::new() };
    if parts.is_empty() {
        return Ok(false);
    }
    let sum = MinorUnits::sum(parts.iter().map(|(_, amount)| *amount))?;
    let mut entries = Vec::with_capacity(parts.len().saturating_add(1));
    for (pocket, amount) in parts {
        entries.push(row(wallet, tenant_id, currency, pocket, minus(MinorUnits::ZERO, amount)?)?);
    }
    entries.push(row(wallet, tenant_id, currency, Pocket::main(), sum)?);
    // Past the funding door: `main` is at most zero afterwards, so there is nothing that a due could be paid from.
    ledger::post(conn, &entries, &Actor::job("pockets"), now).await?;
    Ok(true)
}

fn row(
    wallet: &WalletState,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    pocket: Pocket,
    amount: MinorUnits,
) -> Result<Entry, Fault> {
    Ok(Entry {
        tenant_id: tenant_id.clone(),
        currency: currency.clone(),
        kind: Kind::Adjustment,
        amount,
        // The rows of one cover end alike, and no two covers come after the same row.
        reference: Reference::parse(format!("{COVER_REFERENCE_PREFIX}{pocket}/{}", wallet.head_seq))
            .map_err(|error| Fault::new("a cover's reference breaks its rule").because(error))?,
        pocket,
        original_seq: None,
        reason: Some(
            Reason::parse("covers what work cost beyond the balance")
                .map_err(|error| Fault::new("a cover's reason breaks its rule").because(error))?,
        ),
        metadata: Metadata::empty(),
        // It takes no more than is there, also of a pocket whose time is over, and what is available stays the same.
        floor: Floor::None,
    })
}

fn minus(from: MinorUnits, amount: MinorUnits) -> Result<MinorUnits, Fault> {
    from.checked_sub(amount).ok_or_else(|| Fault::new("a pocket's sums are beyond what an i64 holds"))
}
