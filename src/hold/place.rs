//! Placing: is it a double, may another job run, is there money, which pockets.
//!
//! The order of the questions is the order of the rules: what is already there (H4, H11), how many are at work, then
//! the money (H1). They are asked under the locks of the wallet and of the tenant, in that order, since the jobs of a
//! tenant may be paid from several wallets; a credit that pays dues takes the same two in the same order.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use super::finish::{self, Conclusion};
use super::price::{credits_for, micro_per_unit};
use super::state::{after, before};
use super::store::{self, NewHold, Unended};
use super::{EndedBy, Hold, HoldId, Refusal, Terms, allocate, reconcile};
use crate::allowance;
use crate::fault::{Error, Fault, Widen as _};
use crate::ids::{Actor, TenantId};
use crate::ledger;
use crate::money::{CurrencyCode, MinorUnits};
use crate::outbox::{self, Event, EventKind};

/// The longest a caller who was told to wait is told to.
const RETRY_AFTER_SECS_MAX: u64 = 30;

/// How much a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// So much; zero is a job that costs nothing and still counts as one at work.
    Amount(MinorUnits),
    /// What this tier asks for now.
    Tier(String),
}

/// A job that wants money kept for it.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The job's own id.
    pub hold_id: HoldId,
    /// Whose money.
    pub tenant_id: TenantId,
    /// Which wallet.
    pub currency: CurrencyCode,
    /// How much.
    pub asked: Asked,
    /// Whether less will do.
    pub allow_partial: bool,
    /// How many jobs of the tenant may be at work with this one.
    pub max_in_flight: Option<u32>,
    /// How long the hold lives when nobody comes back.
    pub ttl_secs: Option<i32>,
    /// The most the job may cost; what is available bounds it anyway.
    pub budget: Option<MinorUnits>,
    /// Where the job belongs; a new one takes the place of the old one, which is over, or asked to stop if it has begun.
    pub session: Option<String>,
    /// What makes two jobs the same while the first runs.
    pub dedupe_key: Option<String>,
    /// What makes two jobs the same for some seconds.
    pub fingerprint: Option<String>,
    /// `priority` or `plain`, when the caller decides.
    pub queue: Option<&'static str>,
}

impl Ask {
    /// What is compared when the same job is placed again.
    #[must_use]
    pub fn canonical(&self) -> serde_json::Value {
        let (amount, tier) = match &self.asked {
            Asked::Amount(amount) => (Some(amount.get()), None),
            Asked::Tier(tier) => (None, Some(tier)),
        };
        json!({
            "tenant_id": self.tenant_id.as_str(), "currency": self.currency.as_str(), "amount": amount, "tier": tier,
            "allow_partial": self.allow_partial, "session": self.session, "dedupe_key": self.dedupe_key,
            "cost_cap": self.budget.map(MinorUnits::get),
        })
    }
}

/// How the answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The hold was placed.
    New,
    /// The job was placed before; a queue delivered it again.
    AlreadyPlaced,
    /// A job with this dedupe key is at work.
    AlreadyRunning,
    /// A job with this fingerprint was placed some seconds ago.
    Duplicate,
}

impl Standing {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "placed",
            Self::AlreadyPlaced => "already_placed",
            Self::AlreadyRunning => "already_running",
            Self::Duplicate => "duplicate",
        }
    }
}

/// A hold, and how it came about.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The hold; of a double, the first one.
    pub hold: Hold,
    /// Whether it is new.
    pub standing: Standing,
    /// Holds that were in its way, whose time was over and whose usage is lost: a person should look.
    pub usage_lost: Vec<HoldId>,
}

/// Places a hold, or finds the one that is there, on a connection whose transaction the caller owns.
///
/// # Errors
/// [`Refusal`].
pub(super) async fn place(
    conn: &mut PgConnection,
    ask: &Ask,
    terms: &Terms,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Placed, Error<Refusal>> {
    lock_what_is_in_the_way(conn, ask, now).await?;
    let locked = ledger::lock_wallet(conn, &ask.tenant_id, &ask.currency, now).await.widen()?;
    let facts = store::lock_tenant(conn, ask, now).await?;
    if let Some(hold) = store::find(conn, &ask.hold_id).await? {
        return again(ask, hold);
    }
    if facts.status == "closed" {
        return Err(Error::Refused(Refusal::TenantBlocked(facts.status)));
    }
    let mut unended = store::unended_of_tenant(conn, &ask.tenant_id).await?;
    if let Some(first) = double_of(conn, ask, &unended, terms, now).await? {
        allowance::note_presence(conn, &ask.tenant_id, now).await?;
        return Ok(first);
    }
    let usage_lost = make_room(conn, ask, &mut unended, actor, now).await?;
    check_in_flight(ask, &unended, now)?;
    if facts.has_allowances {
        allowance::refill_locked(conn, &locked, &ask.tenant_id, &ask.currency, now).await.widen()?;
    }
    let asked = match &ask.asked {
        Asked::Amount(amount) => *amount,
        Asked::Tier(tier) => facts.tier_amount.ok_or_else(|| {
            Error::Refused(Refusal::UnknownTier { tier: tier.clone(), currency: ask.currency.clone() })
        })?,
    };
    if let Some(cost_cap) = ask.budget.filter(|budget| *budget < asked) {
        return Err(Error::Refused(Refusal::CostCapExceeded { hold_id: ask.hold_id.clone(), cost_cap, asked }));
    }
    let wallet = locked.read(conn, now).await?;
    let available = spendable(&wallet, &ask.currency, &unended, now)?;
    let amount = amount_kept(ask, asked, available)?;
    let positive = available.max(MinorUnits::ZERO);
    let new = NewHold {
        amount,
        parts: allocate(&wallet, amount)?,
        cost_cap: ask.budget.map_or(positive, |budget| budget.min(positive)).max(amount),
        price_version: facts.price_version,
        queue: ask.queue.unwrap_or(if facts.is_paying { "priority" } else { "plain" }),
        ttl_secs: ask.ttl_secs.unwrap_or(terms.ttl_secs),
        expires_at: after(now, i64::from(ask.ttl_secs.unwrap_or(terms.ttl_secs))),
    };
    ledger::divide(conn, &wallet).await?;
    if !store::insert(conn, ask, &new, wallet.wallet_id, actor, now).await? {
        // Another tenant's job took the id at this very moment, behind locks of its own. Only this violation means that
        // it is there.
        let hold = store::find(conn, &ask.hold_id).await?;
        return again(ask, hold.ok_or_else(|| Fault::new("a hold that is there was not there to read"))?);
    }
    let hold = new.into_hold(ask, now);
    outbox::write(conn, &[event(&hold, EventKind::HoldPlaced)], now).await?;
    Ok(Placed { hold, standing: Standing::New, usage_lost })
}

/// The same job again: answered with the first hold, unless it is another job under the same id.
fn again(ask: &Ask, hold: Hold) -> Result<Placed, Error<Refusal>> {
    let before: serde_json::Value = serde_json::from_str(&hold.asked)
        .map_err(|error| Fault::new("what a hold was asked with can't be read").because(error))?;
    let mut asked = ask.canonical();
    if let Some(asked) = asked.as_object_mut().filter(|_| before.get("cost_cap").is_none()) {
        // A hold from before its cost cap was written down with what was asked: nobody knows which one it was.
        asked.remove("cost_cap");
    }
    let fields = crate::idempotency::differing_fields(&before, &asked);
    if fields.is_empty() {
        Ok(Placed { hold, standing: Standing::AlreadyPlaced, usage_lost: Vec::new() })
    } else {
        Err(Error::Refused(Refusal::Differs { hold_id: ask.hold_id.clone(), fields }))
    }
}

/// H11: the same work under another id. A fingerprint speaks of callers without a session; with one it finds doubles
/// of that session only, since whoever waits in a session hears nothing of another.
async fn double_of(
    conn: &mut PgConnection,
    ask: &Ask,
    unended: &[Unended],
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<Option<Placed>, Error<Refusal>> {
    let running = unended.iter().find(|other| {
        let same = ask.dedupe_key.is_some() && other.dedupe_key == ask.dedupe_key;
        same && other.is_live(now) && !other.is_asked_to_stop
    });
    let (hold_id, standing) = match running {
        Some(running) => (Some(running.hold_id.clone()), Standing::AlreadyRunning),
        None => (store::fingerprint_since(conn, ask, before(now, terms.duplicate_secs)).await?, Standing::Duplicate),
    };
    let Some(hold_id) = hold_id else { return Ok(None) };
    let hold = store::find(conn, &hold_id).await?.ok_or_else(|| Fault::new("a double's hold was not there to read"))?;
    Ok(Some(Placed { hold, standing, usage_lost: Vec::new() }))
}

/// A job that a session or a key puts in the way may be paid from another wallet of the tenant: all of them are locked
/// first, in their order, and before the tenant.
async fn lock_what_is_in_the_way(conn: &mut PgConnection, ask: &Ask, now: DateTime<Utc>) -> Result<(), Error<Refusal>> {
    if ask.session.is_none() && ask.dedupe_key.is_none() {
        return Ok(());
    }
    let mut currencies = BTreeSet::from([ask.currency.clone()]);
    for other in store::unended_of_tenant(conn, &ask.tenant_id).await?.iter().filter(|other| is_in_the_way(ask, other))
    {
        currencies.extend(store::wallet_of(conn, &other.hold_id).await?.map(|(_, currency)| currency));
    }
    if currencies.len() > 1 {
        ledger::lock_wallets(conn, &ask.tenant_id, &currencies, now).await.widen()?;
    }
    Ok(())
}

fn is_in_the_way(ask: &Ask, other: &Unended) -> bool {
    let same = ask.session.is_some() && other.session == ask.session
        || ask.dedupe_key.is_some() && other.dedupe_key == ask.dedupe_key;
    same && !other.is_asked_to_stop
}

/// A new job of a session takes the place of the old one. One that hasn't begun is over and costs nothing. One that has
/// is asked to stop, like by a cancel (H6): its worker is making calls that nobody has reported yet, and somebody will
/// have to pay for them. It stays at work, counts as such, and is settled by its worker or the reconciler. A hold whose
/// time is over and that has the same key is ended as the reconciler would. Answers whose usage is lost.
///
/// One that came into the way after [`lock_what_is_in_the_way`] looked may be paid from another wallet, which is locked
/// behind the tenant then. Should two such jobs wait for each other, PostgreSQL finds it and the runner repeats.
async fn make_room(
    conn: &mut PgConnection,
    ask: &Ask,
    unended: &mut Vec<Unended>,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Vec<HoldId>, Error<Refusal>> {
    let mut usage_lost = Vec::new();
    let in_the_way: Vec<HoldId> =
        unended.iter().filter(|other| is_in_the_way(ask, other)).map(|other| other.hold_id.clone()).collect();
    for hold_id in &in_the_way {
        // Its wallet may be another one, and somebody may have started or ended it while we waited for that.
        let (locked, hold) = finish::lock(conn, hold_id, now).await?;
        if hold.end.is_none() && hold.is_live(now) && hold.started_at.is_some() {
            finish::ask_to_stop(conn, hold, now).await?;
            continue;
        }
        unended.retain(|other| other.hold_id != *hold_id);
        if hold.end.is_some() {
            continue;
        }
        if hold.is_live(now) {
            let conclusion = Conclusion::by_usage(&hold, EndedBy::Successor)?;
            finish::conclude(conn, &hold, &locked, &conclusion, actor, now).await.widen()?;
        } else if reconcile::end_expired(conn, &hold, &locked, now).await.widen()?.is_usage_lost() {
            usage_lost.push(hold_id.clone());
        }
    }
    Ok(usage_lost)
}

/// H1: the limit first, since waiting helps.
fn check_in_flight(ask: &Ask, unended: &[Unended], now: DateTime<Utc>) -> Result<(), Refusal> {
    let Some(max) = ask.max_in_flight else { return Ok(()) };
    let live: Vec<&Unended> = unended.iter().filter(|other| other.is_live(now)).collect();
    let in_flight = u64::try_from(live.len()).unwrap_or(u64::MAX);
    if in_flight < u64::from(max) {
        return Ok(());
    }
    let soonest = live.iter().map(|other| other.expires_at.signed_duration_since(now).num_seconds()).min();
    let retry_after_secs =
        u64::try_from(soonest.unwrap_or_default()).unwrap_or_default().clamp(1, RETRY_AFTER_SECS_MAX);
    Err(Refusal::TooManyInFlight { in_flight, max, retry_after_secs })
}

impl From<Refusal> for Error<Refusal> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What may be promised: what is available, less what jobs at work have used beyond what they keep, and less what jobs
/// have used whose time is over and that nobody has settled yet. Only so is what is charged beyond the balance bounded
/// by a last call, however many jobs run.
pub(super) fn spendable(
    wallet: &ledger::WalletState,
    currency: &CurrencyCode,
    unended: &[Unended],
    now: DateTime<Utc>,
) -> Result<MinorUnits, Fault> {
    let mut available = wallet.available()?;
    let Some(micro_per_unit) = micro_per_unit(currency) else { return Ok(available) };
    for other in unended.iter().filter(|other| other.wallet_id == wallet.wallet_id) {
        let used = credits_for(other.used_micro, micro_per_unit);
        let kept = if other.is_live(now) { other.amount } else { MinorUnits::ZERO };
        let beyond = used.checked_sub(kept).filter(|beyond| beyond.is_positive()).unwrap_or_default();
        available = available.checked_sub(beyond).ok_or_else(|| Fault::new("what jobs used is beyond an i64"))?;
    }
    Ok(available)
}

/// H7: all of it, or with `allow_partial` as much as there is; refused only when there is nothing.
fn amount_kept(ask: &Ask, asked: MinorUnits, available: MinorUnits) -> Result<MinorUnits, Refusal> {
    let insufficient = |needed| Refusal::InsufficientFunds { currency: ask.currency.clone(), available, needed };
    if asked.is_zero() {
        Ok(asked)
    } else if !available.is_positive() {
        Err(insufficient(if ask.allow_partial { MinorUnits::new(1) } else { asked }))
    } else if asked <= available {
        Ok(asked)
    } else if ask.allow_partial {
        Ok(available)
    } else {
        Err(insufficient(asked))
    }
}

/// What outsiders hear about a hold.
pub(super) fn event(hold: &Hold, kind: EventKind) -> Event {
    let mut about = json!({
        "hold_id": hold.hold_id.as_str(),
        "status": hold.status(),
        "currency": hold.currency.as_str(),
        "amount_minor_units": hold.amount.get(),
        "queue": hold.queue,
        "tier": hold.tier,
        "placed_at": hold.placed_at,
        "expires_at": hold.expires_at,
    });
    if let (Some(end), Some(about)) = (&hold.end, about.as_object_mut()) {
        about.insert("charged_minor_units".to_owned(), end.charged.get().into());
        about.insert("settled_by".to_owned(), end.by.as_str().into());
    }
    Event { tenant_id: hold.tenant_id.clone(), kind, about }
}
