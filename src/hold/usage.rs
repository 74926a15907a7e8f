//! The usage log, and the signs of life of a worker.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::finish::{check_live, lock};
use super::price::{self, credits_for, micro_per_unit};
use super::state::lease_until;
use super::store::catalogue;
use super::{Hold, HoldId, Refusal, place, store};
use crate::fault::{Error, Fault};
use crate::ledger::LockedWallet;
use crate::money::MinorUnits;

/// What a call used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metered {
    /// Tokens of a model, reckoned by the price book of the hold.
    Tokens {
        /// Which model.
        model: String,
        /// Tokens that were read.
        input: i64,
        /// Tokens that were written.
        output: i64,
        /// Tokens that were read from a cache.
        cached: i64,
    },
    /// Millionths of a US dollar, reckoned by the caller.
    CostMicro(i64),
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Unique within the hold.
    pub call_id: String,
    /// What it used.
    pub metered: Metered,
}

/// What a worker hears after a call.
#[derive(Debug, Clone)]
pub struct Used {
    /// The hold, the call counted.
    pub hold: Hold,
    /// What the call cost, in micro-dollars.
    pub cost_micro: i64,
    /// What the job has used, in minor units.
    pub used: MinorUnits,
    /// What it may still use now.
    pub remaining: MinorUnits,
    /// Whether there shall be no further call: the money is used up, or somebody asked to stop.
    pub stop: bool,
    /// Whether the call was logged before.
    pub repeated: bool,
}

/// Logs a call, once.
///
/// The hold's log may grow until the hold ends, its time over or not: the cost is real, and the reconciler settles by
/// it. A call after the cost cap is reached is refused, so a job costs its cap and one call at the most.
///
/// # Errors
/// [`Refusal`].
pub(super) async fn record(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    call: &Call,
    now: DateTime<Utc>,
) -> Result<Used, Error<Refusal>> {
    let (locked, mut hold) = lock(conn, hold_id, now).await?;
    let micro_per_unit =
        micro_per_unit(&hold.currency).ok_or_else(|| Error::Refused(Refusal::NotMetered(hold.currency.clone())))?;
    let logged = store::find_call(conn, hold_id, &call.call_id).await?;
    let repeated = logged.is_some();
    let cost_micro = if let Some(logged) = logged {
        let fields = logged.differences(call);
        if !fields.is_empty() {
            return Err(Error::Refused(Refusal::CallDiffers {
                hold_id: hold_id.clone(),
                call_id: call.call_id.clone(),
                fields,
            }));
        }
        logged.cost_micro
    } else {
        let cost_micro = log(conn, &hold, call, micro_per_unit, now).await?;
        hold.used_micro = hold.used_micro.checked_add(cost_micro).ok_or(Error::Refused(Refusal::UsageTooLarge))?;
        hold.largest_call_micro = hold.largest_call_micro.max(cost_micro);
        hold.calls = hold.calls.saturating_add(1);
        cost_micro
    };
    let used = credits_for(hold.used_micro, micro_per_unit);
    let standing = if hold.end.is_some() { None } else { Some(standing(conn, &locked, &hold, now).await?) };
    let remaining = match &standing {
        Some(standing) => standing.may_use.checked_sub(used).ok_or_else(beyond_reckoning)?,
        None => MinorUnits::ZERO,
    };
    // The last job at work may run over by a call. While others work, a job stops before one like its largest would,
    // or each of them would run over by one.
    let others_run = standing.is_some_and(|standing| standing.others_run);
    let another_call = if others_run { credits_for(hold.largest_call_micro, micro_per_unit) } else { MinorUnits::ZERO };
    let stop = !remaining.is_positive()
        || remaining < another_call
        || hold.cancel_asked_at.is_some()
        // Its money is promised to nobody any more.
        || !hold.is_live(now);
    Ok(Used { cost_micro, used, remaining: remaining.max(MinorUnits::ZERO), stop, repeated, hold })
}

/// What a job may use, as the wallet stands.
struct JobStanding {
    may_use: MinorUnits,
    others_run: bool,
}

/// A job may use what it keeps and its share of what is free: what all of them were told together is there.
async fn standing(
    conn: &mut PgConnection,
    locked: &LockedWallet,
    hold: &Hold,
    now: DateTime<Utc>,
) -> Result<JobStanding, Fault> {
    let wallet = locked.read(conn, now).await?;
    let mut others = store::unended_of_tenant(conn, &hold.tenant_id).await?;
    others.retain(|other| other.hold_id != hold.hold_id);
    let running = others.iter().filter(|other| other.wallet_id == wallet.wallet_id && other.is_live(now)).count();
    let jobs = i64::try_from(running).unwrap_or(i64::MAX).saturating_add(1);
    // An expired hold keeps nothing in the wallet's sums any more.
    let kept = if hold.is_live(now) { hold.amount } else { MinorUnits::ZERO };
    let free = place::spendable(&wallet, &hold.currency, &others, now)?.max(MinorUnits::ZERO);
    let share = MinorUnits::new(free.get().checked_div(jobs).unwrap_or_default());
    let may_use = share.checked_add(kept).ok_or_else(beyond_reckoning)?.min(hold.cost_cap);
    Ok(JobStanding { may_use, others_run: running > 0 })
}

const fn beyond_reckoning() -> Fault {
    Fault::new("what jobs used is beyond an i64")
}

async fn log(
    conn: &mut PgConnection,
    hold: &Hold,
    call: &Call,
    micro_per_unit: i64,
    now: DateTime<Utc>,
) -> Result<i64, Error<Refusal>> {
    if let Some(end) = &hold.end {
        metrics::counter!("hamyon_hold_usage_too_late_total").increment(1);
        return Err(Error::Refused(Refusal::AlreadyEnded {
            hold_id: hold.hold_id.clone(),
            status: hold.status(),
            charged: end.charged,
            fields: Vec::new(),
        }));
    }
    let cap_micro = hold.cost_cap.get().checked_mul(micro_per_unit).ok_or(Error::Refused(Refusal::UsageTooLarge))?;
    if hold.calls > 0 && hold.used_micro >= cap_micro {
        return Err(Error::Refused(Refusal::CostCapReached {
            hold_id: hold.hold_id.clone(),
            used_micro: hold.used_micro,
            cap_micro,
        }));
    }
    let cost_micro = match &call.metered {
        Metered::CostMicro(cost_micro) => *cost_micro,
        Metered::Tokens { model, input, output, cached } => {
            let version = hold.price_version.ok_or(Error::Refused(Refusal::NoPriceBook))?;
            let price = catalogue::find_price(conn, version, model)
                .await?
                .ok_or_else(|| Error::Refused(Refusal::UnknownModel { model: model.clone(), version }))?;
            price::cost_micro(&price, *input, *output, *cached).ok_or(Error::Refused(Refusal::UsageTooLarge))?
        }
    };
    if hold.used_micro.checked_add(cost_micro).is_none() {
        return Err(Error::Refused(Refusal::UsageTooLarge));
    }
    store::insert_call(conn, &hold.hold_id, call, cost_micro, now).await?;
    if hold.started_at.is_none() {
        // Who makes calls has begun, and can't be cancelled as if nothing had been spent.
        store::set_lease(conn, &Hold { started_at: Some(now), ..hold.clone() }).await?;
    }
    Ok(cost_micro)
}

/// Notes that a worker has begun. A job that is delivered twice is begun once.
///
/// # Errors
/// [`Refusal`].
pub(super) async fn start(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    lease_secs: Option<i32>,
    now: DateTime<Utc>,
) -> Result<Hold, Error<Refusal>> {
    beat(conn, hold_id, lease_secs, true, now).await
}

/// Notes that a worker is alive.
///
/// # Errors
/// [`Refusal`].
pub(super) async fn heartbeat(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    lease_secs: Option<i32>,
    now: DateTime<Utc>,
) -> Result<Hold, Error<Refusal>> {
    beat(conn, hold_id, lease_secs, false, now).await
}

async fn beat(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    lease_secs: Option<i32>,
    starts: bool,
    now: DateTime<Utc>,
) -> Result<Hold, Error<Refusal>> {
    let (_locked, mut hold) = lock(conn, hold_id, now).await?;
    check_live(&hold, now)?;
    // A late beat of a slow connection takes nothing back.
    let until = lease_until(&hold, lease_secs, now);
    hold.lease_until = Some(hold.lease_until.map_or(until, |lease| lease.max(until)));
    if starts && hold.started_at.is_none() {
        hold.started_at = Some(now);
    }
    store::set_lease(conn, &hold).await?;
    Ok(hold)
}
