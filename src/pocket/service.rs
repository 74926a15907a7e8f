//! Granting, voiding, and booking what expired.

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde_json::json;
use sqlx::PgConnection;

use super::cover::{cover_overdraft, is_overdrawn};
use super::{Refusal, store};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::funding;
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, LockedWallet, Metadata, PostedRow, WalletState};
use crate::money::{CurrencyCode, MinorUnits};

/// The priority of a pocket that names none.
pub const DEFAULT_PRIORITY: i16 = 100;

/// How many wallets one look of the sweep takes.
const SWEEP_WALLETS: i64 = 200;

/// The rules of a pocket that is opened.
#[derive(Debug, Clone)]
pub struct NewPocket {
    /// Its name.
    pub pocket: Pocket,
    /// Lower is spent earlier.
    pub priority: i16,
    /// Its money is there while now is before this.
    pub expires_at: Option<DateTime<Utc>>,
}

/// Money that nobody paid for.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Whose wallet.
    pub tenant_id: TenantId,
    /// Which wallet.
    pub currency: CurrencyCode,
    /// Which part of it.
    pub pocket: Pocket,
    /// How much, positive.
    pub amount: MinorUnits,
    /// Lower is spent earlier; the pocket's own when left out.
    pub priority: Option<i16>,
    /// The pocket's end.
    pub expires_at: Option<DateTime<Utc>>,
    /// What is booked.
    pub reference: Reference,
    /// Why.
    pub reason: Option<Reason>,
}

/// Books a grant, opening its pocket when it is new. A pocket keeps its rules: one that has another end or priority
/// refuses, and so does one that holds bought money when the grant wants it to end.
///
/// # Errors
/// [`Refusal`].
pub async fn grant(
    conn: &mut PgConnection,
    grant: &Grant,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<PostedRow, Error<Refusal>> {
    let locked = ledger::lock_wallet(conn, &grant.tenant_id, &grant.currency, now).await.widen()?;
    let wallet = locked.read(conn, now).await?;
    let wants_rules = grant.priority.is_some() || grant.expires_at.is_some();
    if grant.pocket == Pocket::main() {
        if wants_rules {
            return Err(Error::Refused(Refusal::MainHasNoRules));
        }
    } else {
        match store::find(conn, wallet.wallet_id, &grant.pocket).await? {
            Some(stored) => {
                let expires_differs = grant.expires_at.is_some() && grant.expires_at != stored.expires_at
                    || grant.expires_at.is_none() && stored.expires_at.is_some();
                let priority_differs = grant.priority.is_some_and(|priority| priority != stored.priority);
                let fields: Vec<&'static str> = [("expires_at", expires_differs), ("priority", priority_differs)]
                    .into_iter()
                    .filter_map(|(field, differs)| differs.then_some(field))
                    .collect();
                if !fields.is_empty() {
                    return Err(Error::Refused(Refusal::Differs { pocket: grant.pocket.clone(), fields }));
                }
            }
            None if wallet.pockets.contains_key(&grant.pocket) => {
                if wants_rules {
                    let fields = vec!["kind of money: it holds bought money"];
                    return Err(Error::Refused(Refusal::Differs { pocket: grant.pocket.clone(), fields }));
                }
            }
            None => {
                let new = NewPocket {
                    pocket: grant.pocket.clone(),
                    priority: grant.priority.unwrap_or(DEFAULT_PRIORITY),
                    expires_at: grant.expires_at,
                };
                if let Some(expires_at) = new.expires_at.filter(|expires_at| *expires_at <= now) {
                    return Err(Error::Refused(Refusal::EndsInPast { expires_at, now }));
                }
                open(conn, &wallet, &new, now).await?;
            }
        }
    }
    let entry = Entry {
        tenant_id: grant.tenant_id.clone(),
        currency: grant.currency.clone(),
        kind: Kind::Grant,
        amount: grant.amount,
        pocket: grant.pocket.clone(),
        reference: grant.reference.clone(),
        original_seq: None,
        reason: grant.reason.clone(),
        metadata: Metadata::empty(),
        floor: Floor::Zero,
    };
    let mut rows = funding::post(conn, &[entry], Vec::new(), actor, now).await.widen()?;
    cover(conn, &locked, &wallet, &grant.tenant_id, &grant.currency, now).await.widen()?;
    rows.pop().ok_or_else(|| Fault::new("a grant was booked without a row").into())
}

/// Covers what `main` owes after money has come into a pocket of a locked wallet. `before` is the wallet as it was: a
/// debt of before is what there is to cover, and most wallets have none.
///
/// # Errors
/// A fault; the ledger has nothing to refuse here.
pub async fn cover(
    conn: &mut PgConnection,
    locked: &LockedWallet,
    before: &WalletState,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<(), Error<ledger::Refusal>> {
    if is_overdrawn(before) {
        let wallet = locked.read(conn, now).await?;
        cover_overdraft(conn, &wallet, tenant_id, currency, now).await?;
    }
    Ok(())
}

/// Opens a pocket of a locked wallet.
///
/// # Errors
/// A fault.
pub async fn open(
    conn: &mut PgConnection,
    wallet: &WalletState,
    new: &NewPocket,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    ledger::divide(conn, wallet).await?;
    store::insert(conn, wallet.wallet_id, new, now).await
}

/// Takes a grant back: what is left in its pocket and promised to no hold expires now. What was spent stays spent.
///
/// # Errors
/// [`Refusal::UnknownPocket`], [`Refusal::Closed`].
pub async fn void(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    pocket: &Pocket,
    reason: &Reason,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<Refusal>> {
    let locked = ledger::lock_wallet(conn, tenant_id, currency, now).await.widen()?;
    let wallet = locked.read(conn, now).await?;
    let rule = store::find(conn, wallet.wallet_id, pocket)
        .await?
        .ok_or_else(|| Error::Refused(Refusal::UnknownPocket(pocket.clone())))?;
    if rule.voided_at.is_some() || rule.expires_at.is_some_and(|expires_at| now >= expires_at) {
        return Err(Error::Refused(Refusal::Closed(pocket.clone())));
    }
    store::set_voided(conn, wallet.wallet_id, pocket, now).await?;
    expire(conn, &locked, tenant_id, currency, Some((pocket, reason)), now).await.widen()
}

/// Books what is left in the closed pockets of a locked wallet and promised to no hold, after they have paid what `main`
/// owes. Nothing left, nothing booked. Answers the expiries.
///
/// # Errors
/// A fault; the ledger has nothing to refuse here.
pub async fn expire_closed(
    conn: &mut PgConnection,
    locked: &LockedWallet,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<ledger::Refusal>> {
    expire(conn, locked, tenant_id, currency, None, now).await
}

async fn expire(
    conn: &mut PgConnection,
    locked: &LockedWallet,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    voided: Option<(&Pocket, &Reason)>,
    now: DateTime<Utc>,
) -> Result<Vec<PostedRow>, Error<ledger::Refusal>> {
    let mut wallet = locked.read(conn, now).await?;
    if wallet.division.closed.is_empty() {
        return Ok(Vec::new());
    }
    if cover_overdraft(conn, &wallet, tenant_id, currency, now).await? {
        wallet = locked.read(conn, now).await?;
    }
    let mut entries = Vec::new();
    for pocket in &wallet.division.closed {
        let there = wallet.pockets.get(pocket).copied().unwrap_or_default();
        // Holds whose time is over and that nobody has settled yet may still have used theirs.
        let promised = wallet.division.promised.get(pocket).map(|promised| promised.unended).unwrap_or_default();
        let left =
            there.checked_sub(promised).ok_or_else(|| Fault::new("a pocket's sums are beyond what an i64 holds"))?;
        if left.is_positive() {
            // Another pocket, whose time happens to be over as well, ends for its own reason.
            let reason = voided.filter(|(voided, _)| *voided == pocket).map(|(_, reason)| reason);
            entries.push(expiry(&wallet, tenant_id, currency, pocket, left, reason)?);
        }
    }
    let rows = ledger::post(conn, &entries, &Actor::job("pockets"), now).await?;
    let closed: Vec<String> = wallet.division.closed.iter().map(ToString::to_string).collect();
    store::set_expired(conn, wallet.wallet_id, &closed, now).await?;
    Ok(rows)
}

fn expiry(
    wallet: &WalletState,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    pocket: &Pocket,
    left: MinorUnits,
    reason: Option<&Reason>,
) -> Result<Entry, Fault> {
    let mut about = serde_json::Map::new();
    if let Some(ends_at) = wallet.division.rules.get(pocket).and_then(|rule| rule.ends_at) {
        about.insert("ended_at".to_owned(), json!(ends_at));
    }
    Ok(Entry {
        tenant_id: tenant_id.clone(),
        currency: currency.clone(),
        kind: Kind::Expiry,
        amount: left.checked_neg().ok_or_else(|| Fault::new("an expiry has no opposite"))?,
        pocket: pocket.clone(),
        // A pocket expires in parts when a hold kept some of it, and no two of them come after the same row.
        reference: Reference::parse(format!("expiry:{pocket}/{}", wallet.head_seq))
            .map_err(|error| Fault::new("an expiry's reference breaks its rule").because(error))?,
        original_seq: None,
        reason: reason.cloned(),
        metadata: Metadata::from_object(&about)
            .map_err(|error| Fault::new("an expiry's metadata breaks its rule").because(error))?,
        // The time is over, so the door would let nobody else take it.
        floor: Floor::None,
    })
}

/// Books every pocket whose time is over and whose end isn't booked yet. Takes no input but the clock. Returns how many
/// rows it booked.
///
/// # Errors
/// A fault: of looking, or at the end the last one of a wallet that couldn't be booked. That one stops no other's, and
/// the next sweep tries it again.
pub async fn sweep(db: &Database, clock: &Clock) -> Result<u64, Fault> {
    let mut booked: u64 = 0;
    let mut after = 0;
    let mut failure = None;
    loop {
        let mut conn = db.pool().acquire().await?;
        let wallets = store::wallets_to_expire(&mut conn, clock.now(), after, SWEEP_WALLETS).await?;
        drop(conn);
        let Some((last, ..)) = wallets.last() else { return failure.map_or(Ok(booked), Err) };
        after = *last;
        for (_, tenant_id, currency) in &wallets {
            let rows = db
                .run("pocket_expire", |conn| {
                    async move {
                        let now = clock.now();
                        let locked = ledger::lock_wallet(conn, tenant_id, currency, now).await?;
                        expire_closed(conn, &locked, tenant_id, currency, now).await
                    }
                    .scope_boxed()
                })
                .await;
            match rows {
                Ok(rows) => booked = booked.saturating_add(u64::try_from(rows.len()).unwrap_or(u64::MAX)),
                Err(Error::Refused(refusal)) => {
                    failure = Some(Fault::new("the ledger refused an expiry").because(refusal));
                }
                Err(Error::Fault(fault)) => failure = Some(fault),
            }
        }
    }
}
