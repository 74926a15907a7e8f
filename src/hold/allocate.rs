//! Which pocket pays, decided in memory.
//!
//! H3: what ends first is spent first, then the lower priority, then the older pocket. Bought money, which has no rule,
//! comes last, and of it the named pockets (by their name) before `main`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::fault::Fault;
use crate::ids::Pocket;
use crate::ledger::WalletState;
use crate::money::MinorUnits;

/// So much from one pocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The pocket.
    pub pocket: Pocket,
    /// Minor units, not negative.
    pub amount: MinorUnits,
}

/// The pockets in the order in which they are spent, with what is free in each; those with nothing free are left out.
fn free_pockets(wallet: &WalletState) -> Result<Vec<Part>, Fault> {
    let mut free = Vec::new();
    for (pocket, amount) in &wallet.pockets {
        let amount = wallet.division.free_in(pocket, *amount)?;
        if amount.is_positive() && *pocket != Pocket::set_aside() {
            free.push(Part { pocket: pocket.clone(), amount });
        }
    }
    free.sort_by_cached_key(|part| {
        let rule = wallet.division.rules.get(&part.pocket);
        let ends_at = rule.and_then(|rule| rule.ends_at).unwrap_or(DateTime::<Utc>::MAX_UTC);
        let bought = rule.is_none();
        let priority = rule.map_or(i16::MAX, |rule| rule.priority);
        let created_at = rule.map_or(DateTime::<Utc>::MAX_UTC, |rule| rule.created_at);
        (ends_at, bought, priority, created_at, part.pocket == Pocket::main(), part.pocket.clone())
    });
    Ok(free)
}

/// Takes `wanted` from the free pockets, no more than there is.
fn take_from(free: Vec<Part>, wanted: MinorUnits) -> Result<Vec<Part>, Fault> {
    let mut left = wanted;
    let mut parts = Vec::new();
    for part in free {
        if !left.is_positive() {
            break;
        }
        let amount = part.amount.min(left);
        left = minus(left, amount)?;
        parts.push(Part { pocket: part.pocket, amount });
    }
    Ok(parts)
}

/// Divides `amount`, which is no more than what is available, among the pockets of a locked wallet.
///
/// # Errors
/// A fault when the sums are beyond what an `i64` holds.
pub fn allocate(wallet: &WalletState, amount: MinorUnits) -> Result<Vec<Part>, Fault> {
    take_from(free_pockets(wallet)?, amount)
}

/// Which pockets pay what a job cost. `wallet` is read after the hold has ended, so what it kept is free.
///
/// First the pockets it was held in, in their order, also when their time is over meanwhile: what was held is charged
/// from where it was held. Then what else is free, the pockets in their order, also while `main` is below zero: money
/// that ends is not left to end beside a debt. What is beyond that is a real cost, too: it makes `main` negative (H10).
///
/// # Errors
/// A fault when the sums are beyond what an `i64` holds.
pub fn charge(wallet: &WalletState, held: &[Part], cost: MinorUnits) -> Result<Vec<Part>, Fault> {
    let mut left = cost;
    let mut taken: BTreeMap<Pocket, MinorUnits> = BTreeMap::new();
    let mut after = wallet.clone();
    for part in held {
        let there = after.pockets.get(&part.pocket).copied().unwrap_or_default();
        // Another hold may have been placed on money that this one kept and didn't end in time. One whose own time is
        // over keeps nothing from this one, whether or not the pocket's time is over as well.
        let free = minus(there, after.division.held_of(&part.pocket))?;
        let amount = left.min(part.amount).min(free);
        if amount.is_positive() {
            take(&mut taken, &mut after, &part.pocket, amount)?;
            left = minus(left, amount)?;
        }
    }
    for part in take_from(free_pockets(&after)?, left)? {
        take(&mut taken, &mut after, &part.pocket, part.amount)?;
        left = minus(left, part.amount)?;
    }
    if left.is_positive() {
        take(&mut taken, &mut after, &Pocket::main(), left)?;
    }
    Ok(taken.into_iter().map(|(pocket, amount)| Part { pocket, amount }).collect())
}

fn take(
    taken: &mut BTreeMap<Pocket, MinorUnits>,
    after: &mut WalletState,
    pocket: &Pocket,
    amount: MinorUnits,
) -> Result<(), Fault> {
    let sum = taken.entry(pocket.clone()).or_default();
    *sum = MinorUnits::sum([*sum, amount])?;
    let there = after.pockets.get(pocket).copied().unwrap_or_default();
    after.pockets.insert(pocket.clone(), minus(there, amount)?);
    Ok(())
}

fn minus(from: MinorUnits, amount: MinorUnits) -> Result<MinorUnits, Fault> {
    from.checked_sub(amount).ok_or_else(|| Fault::new("a pocket's sums are beyond what an i64 holds"))
}
