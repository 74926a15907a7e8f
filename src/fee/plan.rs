//! Plans and subscriptions.

use chrono::{DateTime, Datelike as _, NaiveDate, Utc};
use sqlx::PgConnection;

use super::owed::FirstMonth;
use super::store;
use crate::fault::{Error, Fault};
use crate::ids::{InvalidName, OrderId, TenantId};
use crate::ledger;
use crate::money::{CurrencyCode, MinorUnits, Month, local_day};
use crate::tenant;

/// A plan's id has the same form as an order's.
pub type PlanId = OrderId;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The product's own id.
    pub plan_id: PlanId,
    /// For people to read.
    pub name: String,
    /// What its price is in.
    pub currency: CurrencyCode,
    /// The price of the current month.
    pub price: MinorUnits,
}

/// A subscription to be made.
#[derive(Debug, Clone)]
pub struct NewSubscription {
    /// Whose.
    pub tenant_id: TenantId,
    /// Of which plan.
    pub plan_id: PlanId,
    /// A day in the tenant's zone.
    pub started_on: NaiveDate,
    /// What the first month costs.
    pub first_month: FirstMonth,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Its number.
    pub subscription_id: i64,
    /// Whose.
    pub tenant_id: TenantId,
    /// Of which plan.
    pub plan_id: PlanId,
    /// A day in the tenant's zone.
    pub started_on: NaiveDate,
    /// What the first month costs.
    pub first_month: FirstMonth,
    /// The last day, if it ends.
    pub ended_on: Option<NaiveDate>,
}

/// Why a plan or a subscription is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeeRefusal {
    /// The plan's id stands for another plan.
    #[error("plan {plan_id} exists with another {}", fields.join(", "))]
    PlanDiffers {
        /// Which plan.
        plan_id: PlanId,
        /// Which fields.
        fields: Vec<&'static str>,
    },
    /// No such plan.
    #[error("there is no plan {0}")]
    UnknownPlan(PlanId),
    /// No such currency.
    #[error("there is no currency {0}")]
    UnknownCurrency(CurrencyCode),
    /// No such tenant.
    #[error("there is no tenant {0}")]
    UnknownTenant(TenantId),
    /// No such subscription of this tenant.
    #[error("tenant {tenant_id} has no subscription {subscription_id}")]
    UnknownSubscription {
        /// Whose.
        tenant_id: TenantId,
        /// Which.
        subscription_id: i64,
    },
    /// The month has begun, so its price is fixed.
    #[error("a price can change from {earliest} on at the earliest, and {given} was given")]
    PriceTooEarly {
        /// The first month that hasn't begun anywhere.
        earliest: Month,
        /// The month that was given.
        given: Month,
    },
    /// The plan has another price from that month on, and nobody said that it is to be replaced.
    #[error("plan {plan_id} has another price from {month} on ({} in minor units): name it in `replaces` to correct it", there.get())]
    PriceDiffers {
        /// Which plan.
        plan_id: PlanId,
        /// The price that is there.
        there: MinorUnits,
        /// From which month on.
        month: Month,
    },
    /// The same plan began on the same day with another policy.
    #[error("this subscription exists with another first_month")]
    SubscriptionDiffers,
    /// The same plan began on the same day and was cancelled.
    #[error(
        "subscription {subscription_id} of this plan began on {started_on} and was cancelled (it ends on {ended_on}), \
         so nothing more would be charged: begin another one on a day after that, or today with first_month free"
    )]
    SubscriptionCancelled {
        /// Which.
        subscription_id: i64,
        /// The day.
        started_on: NaiveDate,
        /// Its last day.
        ended_on: NaiveDate,
    },
    /// Another subscription of the same plan pays for the same month.
    #[error(
        "subscription {subscription_id} of this plan pays for {month} already, which would be charged twice: {}",
        match ended_on {
            Some(day) => format!("it ends on {day}, so begin the new one after that month, or with first_month free"),
            None => "it goes on; cancel it first".to_owned(),
        }
    )]
    SubscriptionOverlaps {
        /// The one that is there.
        subscription_id: i64,
        /// Its last day, if it ends.
        ended_on: Option<NaiveDate>,
        /// The first month that the new one would pay.
        month: Month,
    },
    /// It ended on another day.
    #[error("the subscription ends on {ended_on}, which can't change")]
    EndsAlready {
        /// The day.
        ended_on: NaiveDate,
    },
    /// The past is fixed.
    #[error("a subscription can end on {earliest} at the earliest, and {given} was given")]
    EndTooEarly {
        /// Today in the tenant's zone, or the first day of a later month that is decided.
        earliest: NaiveDate,
        /// The day that was given.
        given: NaiveDate,
    },
}

/// Whether a subscription can begin on a day: one that every part of the system can reckon with.
///
/// # Errors
/// [`InvalidName`].
pub fn check_start(day: NaiveDate) -> std::result::Result<(), InvalidName> {
    if (2000..=9000).contains(&day.year()) {
        Ok(())
    } else {
        Err(InvalidName { what: "started_on", rule: "must be a day of the years 2000 to 9000" })
    }
}

type Result<T> = std::result::Result<T, Error<FeeRefusal>>;

/// Makes a plan, or finds the same one made. The second value says whether it is new.
///
/// # Errors
/// [`FeeRefusal`].
pub async fn create_plan(conn: &mut PgConnection, plan: &Plan, now: DateTime<Utc>) -> Result<bool> {
    if !store::currency_exists(conn, &plan.currency).await? {
        return Err(Error::Refused(FeeRefusal::UnknownCurrency(plan.currency.clone())));
    }
    if store::insert_plan(conn, plan, now).await? {
        return Ok(true);
    }
    let (name, currency, first_price) = store::read_plan(conn, &plan.plan_id).await?;
    let fields: Vec<&'static str> =
        [("name", name == plan.name), ("currency", currency == plan.currency), ("price", first_price == plan.price)]
            .into_iter()
            .filter_map(|(field, same)| (!same).then_some(field))
            .collect();
    if fields.is_empty() {
        Ok(false)
    } else {
        Err(Error::Refused(FeeRefusal::PlanDiffers { plan_id: plan.plan_id.clone(), fields }))
    }
}

/// Every plan with its price of the month it is in UTC.
///
/// # Errors
/// A fault.
pub async fn list_plans(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
) -> std::result::Result<Vec<Plan>, crate::fault::Fault> {
    store::list_plans(conn, Month::of(now.date_naive())).await
}

/// Changes a plan's price from a month on that hasn't begun anywhere. The same again changes nothing. A price that was
/// set for that month is corrected by whoever names it in `replaces`: a repeat that comes late replaces nothing else.
///
/// # Errors
/// [`FeeRefusal`].
pub async fn change_price(
    conn: &mut PgConnection,
    plan_id: &PlanId,
    from_month: Month,
    price: MinorUnits,
    replaces: Option<MinorUnits>,
    now: DateTime<Utc>,
) -> Result<()> {
    if !store::plan_exists(conn, plan_id).await? {
        return Err(Error::Refused(FeeRefusal::UnknownPlan(plan_id.clone())));
    }
    store::lock_prices(conn, plan_id).await?;
    let there = store::read_price_from(conn, plan_id, from_month).await?;
    // A repeat that comes when the month has begun is a repeat all the same.
    if there == Some(price) {
        return Ok(());
    }
    // The first zone to see a new day is 14 hours ahead of UTC.
    let furthest = now.checked_add_signed(chrono::TimeDelta::hours(14)).unwrap_or(now);
    let earliest = Month::of(furthest.date_naive()).next();
    if from_month < earliest {
        return Err(Error::Refused(FeeRefusal::PriceTooEarly { earliest, given: from_month }));
    }
    match there {
        Some(there) if replaces != Some(there) => {
            Err(Error::Refused(FeeRefusal::PriceDiffers { plan_id: plan_id.clone(), there, month: from_month }))
        }
        Some(_) | None => Ok(store::insert_price(conn, plan_id, from_month, price, now).await?),
    }
}

/// Subscribes a tenant to a plan, or finds the same subscription. The second value says whether it is new.
///
/// # Errors
/// [`FeeRefusal`].
pub async fn subscribe(
    conn: &mut PgConnection,
    new: &NewSubscription,
    now: DateTime<Utc>,
) -> Result<(Subscription, bool)> {
    if tenant::find(conn, &new.tenant_id).await?.is_none() {
        return Err(Error::Refused(FeeRefusal::UnknownTenant(new.tenant_id.clone())));
    }
    if !store::plan_exists(conn, &new.plan_id).await? {
        return Err(Error::Refused(FeeRefusal::UnknownPlan(new.plan_id.clone())));
    }
    let (_, currency, _) = store::read_plan(conn, &new.plan_id).await?;
    // A run locks the wallet, so there has to be one.
    ledger::open_wallet(conn, &new.tenant_id, &currency, now).await?;
    // Of two that are made at once the second sees the first.
    store::lock_tenants(conn, std::slice::from_ref(&new.tenant_id)).await?;
    let first_owed = new.first_month.first_owed(new.started_on);
    if let Some(other) = store::find_overlapping(conn, new, first_owed).await? {
        return Err(Error::Refused(FeeRefusal::SubscriptionOverlaps {
            subscription_id: other.subscription_id,
            ended_on: other.ended_on,
            month: first_owed,
        }));
    }
    let is_new = store::insert_subscription(conn, new, first_owed, now).await?;
    let there = store::find_subscription_by_start(conn, new).await?;
    if there.first_month != new.first_month {
        return Err(Error::Refused(FeeRefusal::SubscriptionDiffers));
    }
    match there.ended_on {
        None => Ok((there, is_new)),
        Some(ended_on) => Err(Error::Refused(FeeRefusal::SubscriptionCancelled {
            subscription_id: there.subscription_id,
            started_on: there.started_on,
            ended_on,
        })),
    }
}

/// A tenant's subscriptions, the oldest first.
///
/// # Errors
/// A fault.
pub async fn list_subscriptions(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
) -> std::result::Result<Vec<Subscription>, crate::fault::Fault> {
    store::list_subscriptions(conn, tenant_id).await
}

/// Ends a subscription on a day, today or later in the tenant's zone, and not before a month that is decided; without
/// one, with the month that is paid. One that hasn't begun never begins. Ending it on the same day again changes
/// nothing.
///
/// # Errors
/// [`FeeRefusal`].
pub async fn cancel(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    subscription_id: i64,
    ended_on: Option<NaiveDate>,
    now: DateTime<Utc>,
) -> Result<Subscription> {
    let unknown = || Error::Refused(FeeRefusal::UnknownSubscription { tenant_id: tenant_id.clone(), subscription_id });
    let tenant = tenant::find(conn, tenant_id).await?.ok_or_else(unknown)?;
    let currency = store::currency_of_subscription(conn, tenant_id, subscription_id).await?.ok_or_else(unknown)?;
    // A run decides under the wallet's lock. What it has decided by the time we have the lock was paid for.
    ledger::lock_wallet(conn, tenant_id, &currency, now).await.map_err(|error| match error {
        Error::Refused(refusal) => Fault::new("a subscription's wallet can't be locked").because(refusal),
        Error::Fault(fault) => fault,
    })?;
    let subscription = store::lock_subscription(conn, tenant_id, subscription_id).await?.ok_or_else(unknown)?;
    if let Some(ends) = subscription.ended_on {
        return if ended_on.is_none_or(|day| day == ends) {
            Ok(subscription)
        } else {
            Err(Error::Refused(FeeRefusal::EndsAlready { ended_on: ends }))
        };
    }
    let today = local_day(now, tenant.time_zone.zone());
    let last_decided = store::last_decided_month(conn, subscription_id).await?;
    let earliest = last_decided.map_or(today, |month| today.max(month.first_day()));
    let day = ended_on.unwrap_or_else(|| match last_decided {
        None if today < subscription.started_on => today,
        _ => Month::of(earliest).last_day(),
    });
    if day < earliest {
        return Err(Error::Refused(FeeRefusal::EndTooEarly { earliest, given: day }));
    }
    store::set_ended(conn, subscription_id, day).await?;
    Ok(Subscription { ended_on: Some(day), ..subscription })
}
