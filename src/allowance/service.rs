//! Making allowances, giving them to tenants, and filling them.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde_json::json;
use sqlx::PgConnection;

use super::policy::{Due, Window, due, pocket_name};
use super::store::{self, Assigned};
use super::{Cycle, Refusal};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::funding;
use crate::ids::{Actor, OrderId, Pocket, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, LockedWallet, Metadata};
use crate::money::{CurrencyCode, MinorUnits};
use crate::outbox::{self, Event, EventKind};
use crate::pocket::{self, NewPocket};
use crate::tenant::TimeZone;

/// How long somebody has to be away before the sweep fills what activity would have.
const AWAY: TimeDelta = TimeDelta::hours(24);

/// How many allowances one look of the sweep takes.
const SWEEP_ALLOWANCES: i64 = 200;

/// An allowance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// The product's own id, which also begins the names of its pockets: 1 to 32 of a-z 0-9 _ -
    pub allowance_id: String,
    /// In which currency.
    pub currency: CurrencyCode,
    /// `Some` seconds for a rolling window, none for a calendar day.
    pub window_secs: Option<i32>,
    /// The zone of a calendar day; the tenant's own when none.
    pub time_zone: Option<TimeZone>,
    /// Lower is spent earlier, among pockets that end at the same time.
    pub priority: i16,
    /// How much for whom.
    pub tiers: Vec<(String, MinorUnits)>,
}

/// Who gets it.
#[derive(Debug, Clone)]
pub enum Owner {
    /// One tenant. What is said of a tenant goes before what is said of its plans.
    Tenant(TenantId),
    /// Everybody with a running subscription to a plan.
    Plan(OrderId),
}

/// What was filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Which allowance.
    pub allowance_id: String,
    /// In which currency.
    pub currency: CurrencyCode,
    /// Into which pocket.
    pub pocket: Pocket,
    /// How much.
    pub amount: MinorUnits,
    /// Until when.
    pub ends_at: Option<DateTime<Utc>>,
}

/// Makes an allowance, or finds the same one made. Says whether it is new.
///
/// # Errors
/// [`Refusal::Differs`].
pub async fn create(
    conn: &mut PgConnection,
    allowance: &Allowance,
    now: DateTime<Utc>,
) -> Result<bool, Error<Refusal>> {
    if store::insert(conn, allowance, now).await? {
        return Ok(true);
    }
    let there = store::find(conn, &allowance.allowance_id)
        .await?
        .ok_or_else(|| Fault::new("an allowance that conflicted with an insert was not there to read"))?;
    let mut tiers = allowance.tiers.clone();
    tiers.sort();
    let fields: Vec<&'static str> = [
        ("currency", there.currency == allowance.currency),
        ("window", there.window_secs == allowance.window_secs),
        ("time_zone", there.time_zone == allowance.time_zone),
        ("priority", there.priority == allowance.priority),
        ("tiers", there.tiers == tiers),
    ]
    .into_iter()
    .filter_map(|(field, same)| (!same).then_some(field))
    .collect();
    if fields.is_empty() {
        Ok(false)
    } else {
        Err(Error::Refused(Refusal::Differs { allowance_id: allowance.allowance_id.clone(), fields }))
    }
}

/// Every allowance.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Allowance>, Fault> {
    store::list(conn).await
}

/// Gives an allowance's tier to a tenant or a plan, or takes it away (`tier` is none). It applies from the next fill on.
///
/// # Errors
/// [`Refusal`].
pub async fn assign(
    conn: &mut PgConnection,
    owner: &Owner,
    allowance_id: &str,
    tier: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), Error<Refusal>> {
    let allowance = store::find(conn, allowance_id)
        .await?
        .ok_or_else(|| Error::Refused(Refusal::UnknownAllowance(allowance_id.to_owned())))?;
    if let Some(tier) = tier
        && !allowance.tiers.iter().any(|(name, _)| name == tier)
    {
        return Err(Error::Refused(Refusal::UnknownTier {
            allowance_id: allowance_id.to_owned(),
            tier: tier.to_owned(),
        }));
    }
    if !store::owner_exists(conn, owner).await? {
        return Err(Error::Refused(match owner {
            Owner::Tenant(tenant_id) => Refusal::UnknownTenant(tenant_id.clone()),
            Owner::Plan(plan_id) => Refusal::UnknownPlan(plan_id.clone()),
        }));
    }
    Ok(store::insert_assignment(conn, owner, allowance_id, tier, now).await?)
}

/// Notes that the tenant is there, and fills every allowance of its that is due, each in a transaction of its own.
///
/// # Errors
/// A fault; what was filled before it stays filled.
pub async fn refill_all(db: &Database, clock: &Clock, tenant_id: &TenantId) -> Result<Vec<Filled>, Fault> {
    let mut conn = db.pool().acquire().await?;
    let assigned = store::assigned(&mut conn, tenant_id, clock.now(), None).await?;
    // What was given while its owner was away begins now, also when the allowance was taken away since.
    let waiting = store::waiting_currencies(&mut conn, tenant_id).await?;
    drop(conn);
    let currencies: BTreeSet<CurrencyCode> =
        assigned.into_iter().map(|assigned| assigned.currency).chain(waiting).collect();
    let mut filled = Vec::new();
    for currency in &currencies {
        let done = db
            .run("allowance_refill", |conn| {
                async move {
                    let now = clock.now();
                    let locked = ledger::lock_wallet(conn, tenant_id, currency, now).await?;
                    refill_locked(conn, &locked, tenant_id, currency, now).await
                }
                .scope_boxed()
            })
            .await;
        filled.extend(done.map_err(refused_nothing)?);
    }
    Ok(filled)
}

/// Fills what is due in a locked wallet and notes that the tenant is there, on a connection whose transaction the
/// caller owns. What is left of a cycle that is over is booked as expired on the way.
///
/// # Errors
/// A fault; the ledger has nothing to refuse here.
pub async fn refill_locked(
    conn: &mut PgConnection,
    locked: &LockedWallet,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<Vec<Filled>, Error<ledger::Refusal>> {
    store::begin_waiting(conn, tenant_id, currency, now).await?;
    let assigned = store::assigned(conn, tenant_id, now, Some(currency)).await?;
    let due: Vec<(Assigned, Due)> = assigned
        .into_iter()
        .map(|assigned| {
            let due = due(assigned.window, assigned.last, now);
            (assigned, due)
        })
        .filter(|(_, due)| *due != Due::Nothing)
        .collect();
    let mut filled = Vec::new();
    if !due.is_empty() {
        pocket::expire_closed(conn, locked, tenant_id, currency, now).await?;
    }
    for (assigned, due) in due {
        if let Due::Fill { number, begun_at, ends_at } = due {
            let window = Some((begun_at, ends_at));
            filled.push(fill(conn, locked, tenant_id, &assigned, number, window, now).await?);
        }
    }
    // Whoever is there isn't away, also from an allowance in another currency. At the end: a fill may lock the tenant,
    // which whoever places a hold locks before this row.
    store::note_activity(conn, tenant_id, now).await?;
    Ok(filled)
}

/// Notes that a tenant with an allowance is there, who got nothing by it: what it wanted was refused, or is at work
/// already. Decides nothing about money, and locks nothing but its own row.
///
/// # Errors
/// A fault.
pub async fn note_presence(conn: &mut PgConnection, tenant_id: &TenantId, now: DateTime<Utc>) -> Result<(), Fault> {
    if store::has_any(conn, tenant_id).await? { store::note_activity(conn, tenant_id, now).await } else { Ok(()) }
}

/// Opens the cycle's pocket and puts the amount in.
async fn fill(
    conn: &mut PgConnection,
    locked: &LockedWallet,
    tenant_id: &TenantId,
    assigned: &Assigned,
    number: i64,
    window: Option<(DateTime<Utc>, DateTime<Utc>)>,
    now: DateTime<Utc>,
) -> Result<Filled, Error<ledger::Refusal>> {
    let bad = |error| Fault::new("an allowance's name breaks a rule").because(error);
    let wallet = locked.read(conn, now).await?;
    let pocket = Pocket::parse(pocket_name(&assigned.allowance_id, assigned.window, number)).map_err(bad)?;
    let ends_at = window.map(|(_, ends_at)| ends_at);
    let new = NewPocket { pocket: pocket.clone(), priority: assigned.priority, expires_at: ends_at };
    pocket::open(conn, &wallet, &new, now).await?;
    let entry = Entry {
        tenant_id: tenant_id.clone(),
        currency: assigned.currency.clone(),
        kind: Kind::Grant,
        amount: assigned.amount,
        pocket: pocket.clone(),
        reference: Reference::parse(pocket.as_str()).map_err(bad)?,
        original_seq: None,
        reason: None,
        metadata: Metadata::empty(),
        floor: Floor::Zero,
    };
    funding::post(conn, &[entry], Vec::new(), &Actor::job("allowances"), now).await?;
    pocket::cover(conn, locked, &wallet, tenant_id, &assigned.currency, now).await?;
    store::insert_cycle(conn, tenant_id, assigned, number, wallet.wallet_id, &pocket, window, now).await?;
    Ok(Filled {
        allowance_id: assigned.allowance_id.clone(),
        currency: assigned.currency.clone(),
        pocket,
        amount: assigned.amount,
        ends_at,
    })
}

/// Fills the rolling allowances of those who have been away for more than a day since their window ended, the blocked
/// excepted, and tells them. Takes no input but the clock. Returns how many it filled.
///
/// # Errors
/// A fault; what was filled before it stays filled.
pub async fn sweep(db: &Database, clock: &Clock) -> Result<u64, Fault> {
    let mut filled: u64 = 0;
    let mut after: Option<(String, String)> = None;
    let mut failure = None;
    loop {
        let now = clock.now();
        let away_since = now.checked_sub_signed(AWAY).unwrap_or(now);
        let mut conn = db.pool().acquire().await?;
        let away = store::away(&mut conn, now, away_since, after.as_ref(), SWEEP_ALLOWANCES).await?;
        drop(conn);
        let Some(last) = away.last() else { return failure.map_or(Ok(filled), Err) };
        after = Some((last.tenant_id.to_string(), last.allowance_id.clone()));
        for one in &away {
            let done = db
                .run("allowance_sweep", |conn| {
                    async move { fill_for_somebody_away(conn, one, clock.now()).await }.scope_boxed()
                })
                .await;
            // One that can't be filled stops no other's; the next night tries it again.
            match done {
                Ok(done) => filled = filled.saturating_add(u64::from(done)),
                Err(error) => failure = Some(refused_nothing(error)),
            }
        }
    }
}

async fn fill_for_somebody_away(
    conn: &mut PgConnection,
    away: &store::Away,
    now: DateTime<Utc>,
) -> Result<bool, Error<ledger::Refusal>> {
    let tenant_id = &away.tenant_id;
    let locked = ledger::lock_wallet(conn, tenant_id, &away.currency, now).await?;
    // Somebody may have come since we looked.
    let assigned = store::assigned(conn, tenant_id, now, Some(&away.currency)).await?;
    let Some(assigned) = assigned.into_iter().find(|assigned| assigned.allowance_id == away.allowance_id) else {
        return Ok(false);
    };
    let Some(Cycle { number, ends_at: Some(ended) }) = assigned.last else { return Ok(false) };
    if now < ended || !matches!(assigned.window, Window::Rolling { .. }) {
        return Ok(false);
    }
    pocket::expire_closed(conn, &locked, tenant_id, &away.currency, now).await?;
    let filled = fill(conn, &locked, tenant_id, &assigned, number.saturating_add(1), None, now).await?;
    let event = Event {
        tenant_id: tenant_id.clone(),
        kind: EventKind::AllowanceRefilled,
        about: json!({
            "allowance_id": filled.allowance_id,
            "currency": filled.currency.as_str(),
            "pocket": filled.pocket.as_str(),
            "amount_minor_units": filled.amount.get(),
        }),
    };
    outbox::write(conn, &[event], now).await?;
    Ok(true)
}

fn refused_nothing(error: Error<ledger::Refusal>) -> Fault {
    match error {
        Error::Refused(refusal) => Fault::new("the ledger refused an allowance").because(refusal),
        Error::Fault(fault) => fault,
    }
}
