//! The parts of a wallet, and what holds keep of each.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::money;
use crate::fault::Fault;
use crate::ids::Pocket;
use crate::ledger::Balance;
use crate::money::{Currency, MinorUnits};

/// A part of a wallet.
pub struct PocketLine {
    pub pocket: String,
    pub balance: String,
    pub held: String,
    pub available: String,
    pub priority: String,
    pub ends_at: String,
    pub closed: bool,
    /// It waits for a person's decision or for its way back, and nothing else spends it.
    pub set_aside: bool,
}

/// What a debit of the wallet can take: what is free in the main pocket, and no more than is available in all. Fees, a
/// provider's cancel and setting aside take from there only.
pub fn takeable(balance: &Balance) -> Result<MinorUnits, Fault> {
    let main = Pocket::main();
    let in_main = balance.pockets.get(&main).copied().unwrap_or_default();
    let free = balance.division.free_in(&main, in_main)?;
    Ok(free.min(balance.available).max(MinorUnits::ZERO))
}

/// The pockets of a wallet in the order in which they are spent (H3), then what is set aside, which isn't spent at all,
/// and the closed ones last. None of a wallet that is
/// in one piece and keeps nothing for anybody.
pub fn lines(balance: &Balance, currency: &Currency, zone: Tz) -> Result<Vec<PocketLine>, Fault> {
    let division = &balance.division;
    let (main, set_aside) = (Pocket::main(), Pocket::set_aside());
    let mut pockets: BTreeSet<&Pocket> = balance.pockets.keys().collect();
    pockets.extend(division.rules.keys());
    pockets.extend(division.promised.keys());
    if division.promised.is_empty() && pockets.iter().all(|pocket| **pocket == main) {
        return Ok(Vec::new());
    }
    let mut pockets: Vec<&Pocket> = pockets.into_iter().collect();
    pockets.sort_by_cached_key(|pocket| {
        let rule = division.rules.get(*pocket);
        let ends_at = rule.and_then(|rule| rule.ends_at).unwrap_or(DateTime::<Utc>::MAX_UTC);
        let priority = rule.map_or(i16::MAX, |rule| rule.priority);
        let created_at = rule.map_or(DateTime::<Utc>::MAX_UTC, |rule| rule.created_at);
        let never = (division.closed.contains(*pocket), **pocket == set_aside);
        (never, ends_at, rule.is_none(), priority, created_at, **pocket == main)
    });
    let digits = |amount: MinorUnits| money::digits(amount, currency.exponent);
    pockets
        .into_iter()
        .map(|pocket| {
            let amount = balance.pockets.get(pocket).copied().unwrap_or_default();
            let rule = division.rules.get(pocket);
            Ok(PocketLine {
                pocket: pocket.to_string(),
                balance: digits(amount),
                held: digits(division.held_of(pocket)),
                available: digits(if *pocket == set_aside {
                    MinorUnits::ZERO
                } else {
                    division.free_in(pocket, amount)?
                }),
                priority: rule.map(|rule| rule.priority.to_string()).unwrap_or_default(),
                ends_at: rule
                    .and_then(|rule| rule.ends_at)
                    .map(|ends_at| money::time(ends_at, zone))
                    .unwrap_or_default(),
                closed: division.closed.contains(pocket),
                set_aside: *pocket == set_aside,
            })
        })
        .collect()
}
