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
}

/// The pockets of a wallet in the order in which they are spent (H3), the closed ones last. None of a wallet that is
/// in one piece and keeps nothing for anybody.
pub fn lines(balance: &Balance, currency: &Currency, zone: Tz) -> Result<Vec<PocketLine>, Fault> {
    let division = &balance.division;
    let main = Pocket::main();
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
        (division.closed.contains(*pocket), ends_at, rule.is_none(), priority, created_at, **pocket == main)
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
                available: digits(division.free_in(pocket, amount)?),
                priority: rule.map(|rule| rule.priority.to_string()).unwrap_or_default(),
                ends_at: rule
                    .and_then(|rule| rule.ends_at)
                    .map(|ends_at| money::time(ends_at, zone))
                    .unwrap_or_default(),
                closed: division.closed.contains(pocket),
            })
        })
        .collect()
}
