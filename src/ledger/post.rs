//! The door.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::balance::{Decision, Known, Shortage, WalletState, decide};
use super::{Entry, Kind, PostedRow, Refusal, store};
use crate::fault::{Error, Fault};
use crate::ids::{Actor, Reference, TenantId};
use crate::money::CurrencyCode;

/// Books every entry or none, on a connection whose transaction the caller owns, and keeps the wallets locked
/// until that transaction ends.
///
/// Four statements at the most: lock, read, (read the originals,) write. A wallet that doesn't exist yet is
/// opened on the way.
///
/// # Errors
/// The first refusal in the order of the entries. After any error the caller rolls back.
pub async fn post(
    conn: &mut PgConnection,
    entries: &[Entry],
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<Refusal>> {
    let rows = post_or_leave_out(conn, entries, Shortage::Refuse, actor, now).await?;
    Ok(rows.into_iter().flatten().collect())
}

/// Books the entries like [`post()`], but a debit larger than what may be taken is treated as `shortage` says:
/// the answer holds none in its place.
///
/// # Errors
/// See [`post()`].
pub async fn post_or_leave_out(
    conn: &mut PgConnection,
    entries: &[Entry],
    shortage: Shortage,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<Option<PostedRow>>, Error<Refusal>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let decision = lock_and_decide(conn, entries, shortage, actor, now).await?;
    write(conn, decision).await
}

/// Books the entries like [`post_or_leave_out`], in wallets that this transaction has locked before: it found them by
/// a statement of its own, and to lock them again would cost a large run a tenth of its time.
///
/// # Errors
/// See [`post()`]; a fault when an entry is of another wallet.
pub async fn post_in_locked(
    conn: &mut PgConnection,
    wallets: &LockedWallets,
    entries: &[Entry],
    shortage: Shortage,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<Option<PostedRow>>, Error<Refusal>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let decision = read_and_decide(conn, &wallets.wallet_ids, entries, shortage, actor, now).await?;
    write(conn, decision).await
}

async fn write(conn: &mut PgConnection, decision: Decision) -> Result<Vec<Option<PostedRow>>, Error<Refusal>> {
    if !decision.wallets.is_empty() {
        store::write(conn, &decision).await?;
    }
    Ok(decision.rows.into_iter().map(|decided| decided.map(|decided| decided.row)).collect())
}

/// Decides like [`post()`] and writes nothing: the rows as they would be now. The wallets stay locked.
///
/// # Errors
/// See [`post()`].
pub async fn rehearse(
    conn: &mut PgConnection,
    entries: &[Entry],
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<Refusal>> {
    let decision = lock_and_decide(conn, entries, Shortage::Refuse, actor, now).await?;
    Ok(decision.rows.into_iter().flatten().map(|decided| decided.row).collect())
}

async fn lock_and_decide(
    conn: &mut PgConnection,
    entries: &[Entry],
    shortage: Shortage,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Decision, Error<Refusal>> {
    let keys = entries.iter().map(|entry| (entry.tenant_id.clone(), entry.currency.clone())).collect();
    let wallet_ids = lock(conn, keys, now).await?;
    read_and_decide(conn, &wallet_ids, entries, shortage, actor, now).await
}

/// Reads in a second statement: the one that waited for the lock still sees the time before its wait.
async fn read_and_decide(
    conn: &mut PgConnection,
    wallet_ids: &WalletIds,
    entries: &[Entry],
    shortage: Shortage,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Decision, Error<Refusal>> {
    let mut reading = store::read_wallets(conn, wallet_ids, entries).await?;
    store::read_divisions(conn, &mut reading.states, entries, now).await?;
    let mut wallets = HashMap::with_capacity(wallet_ids.len());
    for (key, wallet_id) in wallet_ids {
        let state =
            reading.states.remove(wallet_id).ok_or_else(|| Fault::new("a locked wallet was not there to read"))?;
        wallets.insert(key.clone(), state);
    }
    let originals = store::read_originals(conn, wallet_ids, entries).await?;
    let known = Known { wallets, originals, booked: reading.booked };
    decide(known, entries, shortage, actor, now)
}

/// Locks one wallet, opening it when it is missing, before something is read that the next posting must not
/// overtake. The lock is the one that [`post()`] takes.
///
/// # Errors
/// [`Refusal::UnknownTenant`], [`Refusal::UnknownCurrency`].
pub async fn lock_wallet(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<LockedWallet, Error<Refusal>> {
    let wallet_ids = lock(conn, vec![(tenant_id.clone(), currency.clone())], now).await?;
    Ok(LockedWallet { wallet_ids })
}

/// Locks several wallets of a tenant in their order, before a room that needs them one by one takes each.
///
/// # Errors
/// See [`lock_wallet`].
pub async fn lock_wallets(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currencies: &BTreeSet<CurrencyCode>,
    now: DateTime<Utc>,
) -> Result<(), Error<Refusal>> {
    let keys = currencies.iter().map(|currency| (tenant_id.clone(), currency.clone())).collect();
    lock(conn, keys, now).await.map(|_| ())
}

/// Wallets that this transaction has locked by a statement of its own, in the order of their ids and at least for NO
/// KEY UPDATE, as [`post()`] would have.
#[derive(Debug, Default)]
pub struct LockedWallets {
    wallet_ids: WalletIds,
}

impl LockedWallets {
    /// Takes note of one that is locked.
    pub fn insert(&mut self, tenant_id: TenantId, currency: CurrencyCode, wallet_id: i64) {
        self.wallet_ids.insert((tenant_id, currency), wallet_id);
    }
}

/// A wallet that this transaction has locked.
#[derive(Debug)]
pub struct LockedWallet {
    wallet_ids: WalletIds,
}

impl LockedWallet {
    /// Reads it as it stands now, in a statement of its own, for a room that decides before it posts.
    ///
    /// # Errors
    /// A fault.
    pub async fn read(&self, conn: &mut PgConnection, now: DateTime<Utc>) -> Result<WalletState, Fault> {
        let mut reading = store::read_wallets(conn, &self.wallet_ids, &[]).await?;
        store::read_divisions(conn, &mut reading.states, &[], now).await?;
        reading.states.into_values().next().ok_or_else(|| Fault::new("a locked wallet was not there to read"))
    }
}

/// Marks a locked wallet as one that has pockets with rules or holds; the next posting looks for them.
///
/// # Errors
/// A fault.
pub async fn divide(conn: &mut PgConnection, wallet: &WalletState) -> Result<(), Fault> {
    if wallet.divided { Ok(()) } else { store::divide(conn, wallet.wallet_id).await }
}

/// Opens a wallet, or finds it open.
///
/// # Errors
/// A fault; tenant and currency must exist.
pub async fn open_wallet(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    store::create_wallets(conn, &[(tenant_id.clone(), currency.clone())], now).await
}

/// The row that books an event, if there is one.
///
/// # Errors
/// A fault.
pub async fn find(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    kind: &Kind,
    reference: &Reference,
) -> Result<Option<(i64, crate::money::MinorUnits)>, Fault> {
    store::find(conn, tenant_id, currency, kind, reference).await
}

/// How much of a row was given back.
///
/// # Errors
/// A fault.
pub async fn given_back(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    seq: i64,
) -> Result<crate::money::MinorUnits, Fault> {
    store::given_back(conn, tenant_id, currency, seq).await
}

type WalletIds = HashMap<(TenantId, CurrencyCode), i64>;

/// Locks the wallets, opening those that are missing. `asked` names the wallet of each entry.
async fn lock(
    conn: &mut PgConnection,
    asked: Vec<(TenantId, CurrencyCode)>,
    now: DateTime<Utc>,
) -> Result<WalletIds, Error<Refusal>> {
    let keys: BTreeSet<(TenantId, CurrencyCode)> = asked.iter().cloned().collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let locked = store::lock_wallets(conn, &keys).await?;
    if locked.len() == keys.len() {
        return Ok(locked);
    }
    // A wallet opened now has a higher id than those already locked, so the order of the locks holds. Should
    // another transaction have opened one in between, PostgreSQL finds the deadlock and the runner repeats.
    store::create_wallets(conn, &keys, now).await?;
    let locked = store::lock_wallets(conn, &keys).await?;
    for (index, key) in asked.into_iter().enumerate() {
        if !locked.contains_key(&key) {
            let (tenant_id, currency) = key;
            let refusal = if store::tenant_exists(conn, &tenant_id).await? {
                Refusal::UnknownCurrency { index, currency }
            } else {
                Refusal::UnknownTenant { index, tenant_id }
            };
            return Err(Error::Refused(refusal));
        }
    }
    Ok(locked)
}
