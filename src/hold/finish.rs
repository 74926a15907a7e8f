//! Ending: settle, release, cancel. Once, whoever comes first.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::price::{credits_for, micro_per_unit};
use super::state::HoldEnd;
use super::{EndedBy, Hold, HoldId, Part, Refusal, charge, place, store};
use crate::fault::{Error, Fault, Widen as _};
use crate::fee;
use crate::ids::{Actor, Pocket, Reference};
use crate::ledger::{self, Entry, Floor, Kind, LockedWallet, Metadata, PostedRow, WalletState};
use crate::money::MinorUnits;
use crate::outbox::{self, Event, EventKind};
use crate::pocket;

/// How somebody wants a hold to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// What was held is the price.
    AsHeld,
    /// This much, at most the cost cap.
    Amount(MinorUnits),
    /// What the calls cost.
    ByUsage,
    /// The work failed: nothing, unless it used something.
    Release,
    /// The work shall not begin.
    Cancel {
        /// Whether its worker is asked to stop when it has begun.
        cooperative: bool,
    },
}

impl End {
    /// What is compared when the same end is asked for again, canonical JSON.
    fn canonical(self) -> Value {
        match self {
            Self::AsHeld => json!({ "end": "settle", "mode": "as_held" }),
            Self::Amount(amount) => json!({ "end": "settle", "mode": "amount", "amount": amount.get() }),
            Self::ByUsage => json!({ "end": "settle", "mode": "by_usage" }),
            Self::Release => json!({ "end": "release" }),
            Self::Cancel { .. } => json!({ "end": "cancel" }),
        }
    }
}

/// What became of a hold, and the rows that pay it.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The hold. Not ended after a cooperative cancel.
    pub hold: Hold,
    /// The rows that were written now.
    pub rows: Vec<PostedRow>,
}

/// Locks a hold's wallet and reads the hold after it: every transition begins here.
///
/// # Errors
/// [`Refusal::UnknownHold`].
pub(super) async fn lock(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    now: DateTime<Utc>,
) -> Result<(LockedWallet, Hold), Error<Refusal>> {
    let unknown = || Error::Refused(Refusal::UnknownHold(hold_id.clone()));
    // A hold keeps its wallet, so this may be read before the lock; all else is read after it.
    let (tenant_id, currency) = store::wallet_of(conn, hold_id).await?.ok_or_else(unknown)?;
    let locked = ledger::lock_wallet(conn, &tenant_id, &currency, now).await.widen()?;
    let hold = store::find(conn, hold_id).await?.ok_or_else(unknown)?;
    Ok((locked, hold))
}

/// A hold that a worker may still work with.
///
/// # Errors
/// [`Refusal::AlreadyEnded`], [`Refusal::Expired`].
pub(super) fn check_live(hold: &Hold, now: DateTime<Utc>) -> Result<(), Refusal> {
    if let Some(end) = &hold.end {
        return Err(Refusal::AlreadyEnded {
            hold_id: hold.hold_id.clone(),
            status: hold.status(),
            charged: end.charged,
            fields: Vec::new(),
        });
    }
    if hold.is_live(now) {
        Ok(())
    } else {
        Err(Refusal::Expired { hold_id: hold.hold_id.clone(), expired_at: hold.expires_at })
    }
}

/// Ends a hold as its worker or its caller asks, on a connection whose transaction the caller owns. The same end again
/// is answered the same.
///
/// # Errors
/// [`Refusal`].
pub(super) async fn end(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    end: End,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Ended, Error<Refusal>> {
    let (locked, hold) = lock(conn, hold_id, now).await?;
    if let Some(ended) = &hold.end {
        return ended_before(&hold, ended, end);
    }
    check_live(&hold, now)?;
    if let (End::Cancel { cooperative }, Some(started_at)) = (end, hold.started_at) {
        if !cooperative {
            return Err(Error::Refused(Refusal::AlreadyStarted { hold_id: hold_id.clone(), started_at }));
        }
        return Ok(Ended { hold: ask_to_stop(conn, hold, now).await?, rows: Vec::new() });
    }
    let mut conclusion = match end {
        End::AsHeld => Conclusion::settled(hold.amount, EndedBy::Worker),
        End::Amount(amount) if amount > hold.cost_cap => {
            let cost_cap = hold.cost_cap;
            return Err(Error::Refused(Refusal::CostCapExceeded { hold_id: hold_id.clone(), cost_cap, asked: amount }));
        }
        End::Amount(amount) => {
            check_there_is(conn, &hold, &locked, amount, now).await?;
            Conclusion::settled(amount, EndedBy::Worker)
        }
        End::ByUsage => {
            let micro = micro_per_unit(&hold.currency)
                .ok_or_else(|| Error::Refused(Refusal::NotMetered(hold.currency.clone())))?;
            Conclusion::settled(credits_for(hold.used_micro, micro), EndedBy::Worker)
        }
        End::Release => Conclusion::by_usage(&hold, EndedBy::Worker)?,
        End::Cancel { .. } => Conclusion::by_usage(&hold, EndedBy::Canceller)?,
    };
    conclusion.asked = end.canonical();
    conclude(conn, &hold, &locked, &conclusion, actor, now).await.widen()
}

/// Asks the worker of a hold at work to stop (H6), once: it hears so with its next sign of life or call. From now on the
/// hold belongs to no session, and is no double of the same work.
///
/// # Errors
/// A fault.
pub(super) async fn ask_to_stop(conn: &mut PgConnection, mut hold: Hold, now: DateTime<Utc>) -> Result<Hold, Fault> {
    if hold.cancel_asked_at.is_none() {
        store::set_cancel_asked(conn, &hold.hold_id, now).await?;
        hold.cancel_asked_at = Some(now);
    }
    Ok(hold)
}

/// An amount that somebody names is paid from what the hold keeps and what is free besides. It overdraws nothing (L4):
/// only calls that were reported do, since somebody has been paid for those (H10), and they are settled by usage. The
/// cost cap is what was available when the hold was placed, and several holds of a wallet have more of that than there is.
///
/// # Errors
/// [`Refusal::InsufficientFunds`].
async fn check_there_is(
    conn: &mut PgConnection,
    hold: &Hold,
    locked: &LockedWallet,
    amount: MinorUnits,
    now: DateTime<Utc>,
) -> Result<(), Error<Refusal>> {
    if amount <= hold.amount {
        return Ok(());
    }
    let wallet = locked.read(conn, now).await?;
    let mut others = store::unended_of_tenant(conn, &hold.tenant_id).await?;
    others.retain(|other| other.hold_id != hold.hold_id);
    let free = place::spendable(&wallet, &hold.currency, &others, now)?.max(MinorUnits::ZERO);
    let available = MinorUnits::sum([hold.amount, free])?;
    if amount <= available {
        return Ok(());
    }
    Err(Error::Refused(Refusal::InsufficientFunds { currency: hold.currency.clone(), available, needed: amount }))
}

/// A hold that has ended answers the same end again, and names what differs of another.
fn ended_before(hold: &Hold, ended: &HoldEnd, end: End) -> Result<Ended, Error<Refusal>> {
    let before: Value = serde_json::from_str(&ended.asked)
        .map_err(|error| Fault::new("what a hold's end was asked with can't be read").because(error))?;
    let fields = crate::idempotency::differing_fields(&before, &end.canonical());
    if fields.is_empty() {
        return Ok(Ended { hold: hold.clone(), rows: Vec::new() });
    }
    Err(Error::Refused(Refusal::AlreadyEnded {
        hold_id: hold.hold_id.clone(),
        status: hold.status(),
        charged: ended.charged,
        fields,
    }))
}

/// How a hold ends, decided.
#[derive(Debug, Clone)]
pub(super) struct Conclusion {
    pub settled: bool,
    pub cost: MinorUnits,
    pub by: EndedBy,
    pub asked: Value,
}

impl Conclusion {
    pub const fn settled(cost: MinorUnits, by: EndedBy) -> Self {
        Self { settled: true, cost, by, asked: Value::Null }
    }

    /// Work that didn't come to its result: it pays what it used (H10), and nothing when that is nothing (H6).
    ///
    /// # Errors
    /// A fault when there is usage in a currency that has no price.
    pub fn by_usage(hold: &Hold, by: EndedBy) -> Result<Self, Fault> {
        let asked = json!({ "end": by.as_str() });
        if hold.used_micro == 0 {
            return Ok(Self { settled: false, cost: MinorUnits::ZERO, by, asked });
        }
        let micro = micro_per_unit(&hold.currency)
            .ok_or_else(|| Fault::new("there is usage in a currency that has no price in dollars"))?;
        Ok(Self { settled: true, cost: credits_for(hold.used_micro, micro), by, asked })
    }

    fn event_kind(&self) -> EventKind {
        match (self.by, self.settled) {
            (EndedBy::Reconciler, _) => EventKind::HoldExpired,
            (_, true) => EventKind::HoldSettled,
            (_, false) => EventKind::HoldReleased,
        }
    }
}

/// Writes the end, the rows that pay it, what expires with it, and what outsiders hear.
pub(super) async fn conclude(
    conn: &mut PgConnection,
    hold: &Hold,
    locked: &LockedWallet,
    conclusion: &Conclusion,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Ended, Error<ledger::Refusal>> {
    let end = HoldEnd {
        at: now,
        settled: conclusion.settled,
        charged: conclusion.cost,
        by: conclusion.by,
        asked: conclusion.asked.to_string(),
    };
    store::set_ended(conn, &hold.hold_id, &end).await?;
    // Read after the hold has ended, so that what it kept is free.
    let wallet = locked.read(conn, now).await?;
    let entries = charge(&wallet, &hold.parts, conclusion.cost)?
        .iter()
        .map(|part| entry(hold, part))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = ledger::post(conn, &entries, actor, now).await?;
    expire_what_comes_back(conn, hold, locked, &wallet, now).await?;
    let ended = Hold { end: Some(end), ..hold.clone() };
    let mut events = vec![event(&ended, conclusion)];
    // What the hold kept and didn't cost is money again, which pays what is overdue like money that comes in (F5).
    events.extend(fee::pay_overdue(conn, &[(hold.tenant_id.clone(), hold.currency.clone())], now).await?);
    outbox::write(conn, &events, now).await?;
    Ok(Ended { hold: ended, rows })
}

/// What comes back to a pocket whose time is over meanwhile is gone at once, in a row of its own.
async fn expire_what_comes_back(
    conn: &mut PgConnection,
    hold: &Hold,
    locked: &LockedWallet,
    wallet: &WalletState,
    now: DateTime<Utc>,
) -> Result<(), Error<ledger::Refusal>> {
    if hold.parts.iter().any(|part| wallet.division.closed.contains(&part.pocket)) {
        pocket::expire_closed(conn, locked, &hold.tenant_id, &hold.currency, now).await?;
    }
    Ok(())
}

fn event(ended: &Hold, conclusion: &Conclusion) -> Event {
    place::event(ended, conclusion.event_kind())
}

/// What the row of a hold and a pocket is called: the two divided by what neither may contain, so no path books it
/// twice and no other hold can have it.
#[must_use]
pub fn charge_reference(hold_id: &HoldId, pocket: &Pocket) -> String {
    format!("hold:{hold_id}/{pocket}")
}

/// The row that pays a part of the work.
fn entry(hold: &Hold, part: &Part) -> Result<Entry, Fault> {
    let mut about = serde_json::Map::new();
    about.insert("hold_id".to_owned(), hold.hold_id.as_str().into());
    if let Some(tier) = &hold.tier {
        about.insert("tier".to_owned(), tier.as_str().into());
    }
    Ok(Entry {
        tenant_id: hold.tenant_id.clone(),
        currency: hold.currency.clone(),
        kind: Kind::HoldCharge,
        amount: part.amount.checked_neg().ok_or_else(|| Fault::new("a charge has no opposite"))?,
        pocket: part.pocket.clone(),
        reference: Reference::parse(charge_reference(&hold.hold_id, &part.pocket))
            .map_err(|error| Fault::new("a charge's reference breaks its rule").because(error))?,
        original_seq: None,
        reason: None,
        metadata: Metadata::from_object(&about)
            .map_err(|error| Fault::new("a charge's metadata breaks its rule").because(error))?,
        // What was held is charged also when its pocket's time is over; a real cost beyond it, too (H10).
        floor: Floor::None,
    })
}
