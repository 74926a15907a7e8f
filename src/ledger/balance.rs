//! The decision, in memory: what the wallets hold, what is asked for, which rows come out.
//!
//! Nothing here touches the database. The caller holds the wallets' locks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::chain::{Hash, Link};
use super::original::{self, Original};
use super::{Entry, Floor, PostedRow, Refusal};
use crate::fault::{Error, Fault};
use crate::ids::{Actor, Pocket, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// A checkpoint is written when this many rows have come since the last one, within a batch as well, so no sum ever
/// reads more.
pub const CHECKPOINT_INTERVAL: i64 = 16;

/// What is special about a part of a wallet. A pocket without a rule is bought money: kept for ever, spent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PocketRule {
    /// Lower is spent earlier, among pockets that end at the same time.
    pub priority: i16,
    /// Since when the rule stands.
    pub created_at: DateTime<Utc>,
    /// Its money is there while now is before this.
    pub ends_at: Option<DateTime<Utc>>,
}

impl PocketRule {
    /// Whether its time is over: at the very moment it is.
    #[must_use]
    pub fn is_closed(&self, now: DateTime<Utc>) -> bool {
        self.ends_at.is_some_and(|ends_at| now >= ends_at)
    }
}

/// What holds keep of a pocket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promised {
    /// By holds that are alive.
    pub live: MinorUnits,
    /// By holds that haven't ended, those included whose time is over and that nobody has settled yet.
    pub unended: MinorUnits,
}

/// The rules and the promises of a wallet's pockets, as they were at a moment.
#[derive(Debug, Clone, Default)]
pub struct Division {
    /// The rules of pockets that have any.
    pub rules: BTreeMap<Pocket, PocketRule>,
    /// What is promised of each pocket.
    pub promised: BTreeMap<Pocket, Promised>,
    /// The pockets whose time is over.
    pub closed: BTreeSet<Pocket>,
}

impl Division {
    /// What live holds keep of a pocket.
    #[must_use]
    pub fn held_of(&self, pocket: &Pocket) -> MinorUnits {
        self.promised.get(pocket).map(|promised| promised.live).unwrap_or_default()
    }

    /// What live holds keep of the wallet.
    ///
    /// # Errors
    /// A fault when it is more than an `i64`.
    pub fn held(&self) -> Result<MinorUnits, Fault> {
        MinorUnits::sum(self.promised.values().map(|promised| promised.live))
    }

    /// What is in a pocket, may be spent and is promised to nobody. Nothing of a closed one; an overdrawn one counts
    /// as what it lacks.
    ///
    /// # Errors
    /// A fault when the sums are more than an `i64`.
    pub fn free_in(&self, pocket: &Pocket, amount: MinorUnits) -> Result<MinorUnits, Fault> {
        if self.closed.contains(pocket) {
            return Ok(MinorUnits::ZERO);
        }
        amount
            .checked_sub(self.held_of(pocket))
            .ok_or_else(|| Fault::new("a pocket's sums are beyond what an i64 holds"))
    }

    /// What may be spent of all pockets together. Money that is set aside for a person's decision is nobody's to spend.
    ///
    /// # Errors
    /// A fault when the sums are more than an `i64`.
    pub fn available(&self, pockets: &BTreeMap<Pocket, MinorUnits>) -> Result<MinorUnits, Fault> {
        let in_pockets = pockets
            .iter()
            .filter(|(pocket, _)| **pocket != Pocket::set_aside())
            .map(|(pocket, amount)| self.free_in(pocket, *amount));
        // A hold may outlive the money it was promised, when another rule took that away.
        let promised_of_nothing = self
            .promised
            .keys()
            .filter(|pocket| !pockets.contains_key(*pocket))
            .map(|pocket| self.free_in(pocket, MinorUnits::ZERO));
        MinorUnits::sum(in_pockets.chain(promised_of_nothing).collect::<Result<Vec<_>, _>>()?)
    }
}

/// A locked wallet, as read after the lock.
#[derive(Debug, Clone)]
pub struct WalletState {
    /// The wallet.
    pub wallet_id: i64,
    /// The number of its last row.
    pub head_seq: i64,
    /// The hash of its last row.
    pub head_hash: Hash,
    /// The time of its last row.
    pub head_recorded_at: Option<DateTime<Utc>>,
    /// The row the last checkpoint stands at, 0 for none.
    pub checkpoint_seq: i64,
    /// What each pocket holds.
    pub pockets: BTreeMap<Pocket, MinorUnits>,
    /// Whether it has pockets with rules or holds; most haven't.
    pub divided: bool,
    /// Those rules, and what is promised to work in progress.
    pub division: Division,
}

/// What becomes of a debit that is larger than what may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The whole batch is refused.
    Refuse,
    /// This entry is left out.
    LeaveOut,
    /// This entry and every later one of the same wallet are left out.
    LeaveOutRest,
}

/// What the ledger knows when it decides.
#[derive(Debug)]
pub struct Known {
    /// The locked wallets.
    pub wallets: HashMap<(TenantId, CurrencyCode), WalletState>,
    /// Rows that entries name as their original, by wallet and seq.
    pub originals: HashMap<(i64, i64), Original>,
    /// Entries whose event is booked already: position and the row that books it.
    pub booked: Vec<(usize, i64)>,
}

/// A row ready to be written.
#[derive(Debug)]
pub struct DecidedRow {
    /// The row.
    pub row: PostedRow,
    /// Its link of the chain.
    pub hash: Hash,
}

/// What a wallet's pockets hold after a row: a shorter way to the sum.
#[derive(Debug)]
pub struct Checkpoint {
    /// The wallet.
    pub wallet_id: i64,
    /// The row.
    pub seq: i64,
    /// When the row was recorded.
    pub recorded_at: DateTime<Utc>,
    /// What each pocket holds.
    pub pockets: BTreeMap<Pocket, MinorUnits>,
}

/// The rows, and the wallets as they stand after them.
#[derive(Debug)]
pub struct Decision {
    /// In the order of the entries; none for an entry that was left out.
    pub rows: Vec<Option<DecidedRow>>,
    /// Every wallet that got a row.
    pub wallets: Vec<WalletState>,
    /// The checkpoints that came due on the way.
    pub checkpoints: Vec<Checkpoint>,
}

impl WalletState {
    /// The sum over all pockets.
    ///
    /// # Errors
    /// A fault when the stored rows sum up to more than an `i64`.
    pub fn balance(&self) -> Result<MinorUnits, Fault> {
        MinorUnits::sum(self.pockets.values().copied())
    }

    /// What may be spent.
    ///
    /// # Errors
    /// A fault when the sums are more than an `i64`.
    pub fn available(&self) -> Result<MinorUnits, Fault> {
        self.division.available(&self.pockets)
    }

    /// The checkpoint at the last row, when one is due there.
    fn due_checkpoint(&mut self, recorded_at: DateTime<Utc>) -> Option<Checkpoint> {
        if self.head_seq.saturating_sub(self.checkpoint_seq) < CHECKPOINT_INTERVAL {
            return None;
        }
        self.checkpoint_seq = self.head_seq;
        Some(Checkpoint { wallet_id: self.wallet_id, seq: self.head_seq, recorded_at, pockets: self.pockets.clone() })
    }
}

/// Decides a batch: every entry in its order, each seeing what the ones before it did.
///
/// # Errors
/// The first refusal, or a fault when the state can't be what the ledger wrote.
pub fn decide(
    mut known: Known,
    entries: &[Entry],
    shortage: Shortage,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Decision, Error<Refusal>> {
    let booked: HashMap<usize, i64> = known.booked.into_iter().collect();
    let mut seen = HashSet::new();
    let mut rows = Vec::with_capacity(entries.len());
    let mut short_wallets = HashSet::new();
    let mut written_wallets = HashSet::new();
    let mut checkpoints = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let key = (entry.tenant_id.clone(), entry.currency.clone());
        let wallet = known.wallets.get_mut(&key).ok_or_else(|| Fault::new("an entry's wallet was not loaded"))?;
        if !seen.insert((wallet.wallet_id, &entry.kind, &entry.reference)) {
            return Err(Error::Refused(Refusal::TwiceInBatch {
                index,
                kind: entry.kind.clone(),
                reference: entry.reference.clone(),
            }));
        }
        if let Some(&seq) = booked.get(&index) {
            return Err(Error::Refused(Refusal::AlreadyBooked {
                index,
                kind: entry.kind.clone(),
                reference: entry.reference.clone(),
                seq,
            }));
        }
        check_form(index, entry).map_err(Error::Refused)?;
        original::give_back(index, entry, wallet.wallet_id, &mut known.originals).map_err(Error::Refused)?;
        if short_wallets.contains(&wallet.wallet_id) {
            rows.push(None);
            continue;
        }
        match take(index, entry, wallet) {
            Ok(balance_after) => {
                written_wallets.insert(wallet.wallet_id);
                let decided = append(entry, wallet, actor, now, balance_after);
                checkpoints.extend(wallet.due_checkpoint(decided.row.recorded_at));
                rows.push(Some(decided));
            }
            Err(Error::Refused(Refusal::InsufficientFunds { .. })) if shortage != Shortage::Refuse => {
                if shortage == Shortage::LeaveOutRest {
                    short_wallets.insert(wallet.wallet_id);
                }
                rows.push(None);
            }
            Err(error) => return Err(error),
        }
    }
    drop(seen);
    let mut wallets: Vec<WalletState> =
        known.wallets.into_values().filter(|wallet| written_wallets.contains(&wallet.wallet_id)).collect();
    wallets.sort_by_key(|wallet| wallet.wallet_id);
    Ok(Decision { rows, wallets, checkpoints })
}

/// What can be said about an entry without looking at any wallet.
fn check_form(index: usize, entry: &Entry) -> Result<(), Refusal> {
    let kind = &entry.kind;
    if !kind.direction().allows(entry.amount) {
        return Err(Refusal::WrongSign { index, kind: kind.clone(), amount: entry.amount.get() });
    }
    if kind.needs_reason() && entry.reason.is_none() {
        return Err(Refusal::ReasonMissing { index, kind: kind.clone() });
    }
    if kind.names_original() != entry.original_seq.is_some() {
        return Err(Refusal::OriginalMisplaced { index, kind: kind.clone() });
    }
    Ok(())
}

/// Applies the amount to its pocket; a debit may take neither the pocket nor what is available below zero (L4).
fn take(index: usize, entry: &Entry, wallet: &mut WalletState) -> Result<MinorUnits, Error<Refusal>> {
    let overflow = || Error::Refused(Refusal::Overflow { index });
    let balance = wallet.balance()?;
    let available = wallet.available()?;
    let in_pocket = wallet.pockets.get(&entry.pocket).copied().unwrap_or_default();
    if entry.amount.is_positive() && wallet.division.closed.contains(&entry.pocket) {
        return Err(Error::Refused(Refusal::PocketClosed { index, pocket: entry.pocket.clone() }));
    }
    if entry.amount.is_negative() && entry.floor == Floor::Zero {
        let free = wallet.division.free_in(&entry.pocket, in_pocket)?;
        // What is set aside isn't available, and goes only where it was set aside for.
        let bound = if entry.pocket == Pocket::set_aside() { free } else { free.min(available) };
        let may_take = bound.max(MinorUnits::ZERO);
        let left = may_take.checked_add(entry.amount).ok_or_else(overflow)?;
        if left.is_negative() {
            // The opposite of the smallest amount can't be said; nobody ever had the one beside it either.
            let needed = entry.amount.checked_neg().unwrap_or(MinorUnits::new(i64::MAX));
            return Err(Error::Refused(Refusal::InsufficientFunds {
                index,
                tenant_id: entry.tenant_id.clone(),
                currency: entry.currency.clone(),
                pocket: entry.pocket.clone(),
                available: may_take,
                needed,
            }));
        }
    }
    let pocket_after = in_pocket.checked_add(entry.amount).ok_or_else(overflow)?;
    let balance_after = balance.checked_add(entry.amount).ok_or_else(overflow)?;
    if pocket_after.is_zero() {
        wallet.pockets.remove(&entry.pocket);
    } else {
        wallet.pockets.insert(entry.pocket.clone(), pocket_after);
    }
    Ok(balance_after)
}

/// The next row of the wallet, chained to the one before.
fn append(
    entry: &Entry,
    wallet: &mut WalletState,
    actor: &Actor,
    now: DateTime<Utc>,
    balance_after: MinorUnits,
) -> DecidedRow {
    // Two machines' clocks may differ; within a wallet time never runs backwards.
    let recorded_at = wallet.head_recorded_at.map_or(now, |head| head.max(now));
    let seq = wallet.head_seq.saturating_add(1);
    let hash = Link {
        wallet_id: wallet.wallet_id,
        seq,
        tenant_id: entry.tenant_id.as_str(),
        currency: entry.currency.as_str(),
        kind: entry.kind.as_str(),
        amount: entry.amount.get(),
        pocket: entry.pocket.as_str(),
        reference: entry.reference.as_str(),
        original_seq: entry.original_seq,
        reason: entry.reason.as_ref().map(crate::ids::Reason::as_str),
        actor: actor.as_str(),
        metadata: entry.metadata.as_str(),
        recorded_at,
    }
    .hash(&wallet.head_hash);
    wallet.head_seq = seq;
    wallet.head_hash = hash;
    wallet.head_recorded_at = Some(recorded_at);
    let row = PostedRow {
        wallet_id: wallet.wallet_id,
        seq,
        tenant_id: entry.tenant_id.clone(),
        currency: entry.currency.clone(),
        kind: entry.kind.clone(),
        amount: entry.amount,
        pocket: entry.pocket.clone(),
        reference: entry.reference.clone(),
        original_seq: entry.original_seq,
        reason: entry.reason.clone(),
        actor: actor.to_string(),
        metadata: entry.metadata.clone(),
        recorded_at,
        balance_after,
    };
    DecidedRow { row, hash }
}
