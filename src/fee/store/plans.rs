//! Every statement about plans and subscriptions.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::PgConnection;

use super::expect;
use crate::fault::Fault;
use crate::fee::owed::FirstMonth;
use crate::fee::plan::{NewSubscription, Plan, PlanId, Subscription};
use crate::ids::TenantId;
use crate::money::{CurrencyCode, Exponent, MinorUnits, Month};

pub async fn currency_exists(conn: &mut PgConnection, currency: &CurrencyCode) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- fee::currency_exists
           SELECT EXISTS (SELECT FROM currencies WHERE code = $1) AS "exists!""#,
        currency.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

/// Inserts a plan with its price from the beginning of time; `false` when its id is there already.
pub async fn insert_plan(conn: &mut PgConnection, plan: &Plan, now: DateTime<Utc>) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- fee::insert_plan
         WITH plan AS (
             INSERT INTO plans (plan_id, name, currency, created_at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT ON CONSTRAINT plans_pkey DO NOTHING
             RETURNING plan_id
         )
         INSERT INTO plan_prices (plan_id, from_month, amount, created_at)
         SELECT plan_id, '0001-01-01', $5, $4 FROM plan",
        plan.plan_id.as_str(),
        plan.name,
        plan.currency.as_str(),
        now,
        plan.price.get(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn plan_exists(conn: &mut PgConnection, plan_id: &PlanId) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- fee::plan_exists
           SELECT EXISTS (SELECT FROM plans WHERE plan_id = $1) AS "exists!""#,
        plan_id.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

/// A plan's name, currency and first price.
pub async fn read_plan(conn: &mut PgConnection, plan_id: &PlanId) -> Result<(String, CurrencyCode, MinorUnits), Fault> {
    let row = sqlx::query!(
        "-- fee::read_plan
         SELECT p.name, p.currency, r.amount
           FROM plans p JOIN plan_prices r ON r.plan_id = p.plan_id
          WHERE p.plan_id = $1
          ORDER BY r.from_month LIMIT 1",
        plan_id.as_str(),
    )
    .fetch_one(conn)
    .await?;
    Ok((row.name, CurrencyCode::from_column(row.currency)?, MinorUnits::new(row.amount)))
}

/// The prices of plans.
pub type Prices = HashMap<String, PlanPrices>;

/// The prices of a plan.
pub struct PlanPrices {
    /// The digits of its currency.
    pub exponent: Exponent,
    /// Each from its month on, the earliest first; of one month the last one counts.
    from: Vec<(NaiveDate, MinorUnits)>,
}

/// The prices of these plans. Of a month that has begun they don't change any more.
pub async fn read_prices(conn: &mut PgConnection, plans: &[String]) -> Result<Prices, Fault> {
    let rows = sqlx::query!(
        "-- fee::read_prices
         SELECT r.plan_id, r.from_month, r.amount, c.exponent
           FROM plan_prices r
           JOIN plans p ON p.plan_id = r.plan_id
           JOIN currencies c ON c.code = p.currency
          WHERE r.plan_id = ANY ($1)
          ORDER BY r.plan_id, r.from_month, r.price_id",
        plans,
    )
    .fetch_all(conn)
    .await?;
    let mut prices = Prices::new();
    for row in rows {
        let exponent = Exponent::from_column(row.exponent)?;
        let of_plan = prices.entry(row.plan_id).or_insert_with(|| PlanPrices { exponent, from: Vec::new() });
        of_plan.from.push((row.from_month, MinorUnits::new(row.amount)));
    }
    Ok(prices)
}

impl PlanPrices {
    /// The price of a month: the last one that begins by then.
    pub fn of(&self, month: Month) -> Option<MinorUnits> {
        self.from.iter().rev().find(|(from_month, _)| *from_month <= month.first_day()).map(|(_, amount)| *amount)
    }
}

pub async fn list_plans(conn: &mut PgConnection, month: Month) -> Result<Vec<Plan>, Fault> {
    sqlx::query!(
        "-- fee::list_plans
         SELECT p.plan_id, p.name, p.currency, price.amount
           FROM plans p
          CROSS JOIN LATERAL (SELECT amount FROM plan_prices r
                               WHERE r.plan_id = p.plan_id AND r.from_month <= $1
                               ORDER BY r.from_month DESC, r.price_id DESC LIMIT 1) price
          ORDER BY p.plan_id",
        month.first_day(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Plan {
            plan_id: PlanId::from_column(row.plan_id)?,
            name: row.name,
            currency: CurrencyCode::from_column(row.currency)?,
            price: MinorUnits::new(row.amount),
        })
    })
    .collect()
}

/// Until the transaction ends nobody else changes a price of this plan.
pub async fn lock_prices(conn: &mut PgConnection, plan_id: &PlanId) -> Result<(), Fault> {
    sqlx::query_scalar!(
        r#"-- fee::lock_prices
           SELECT pg_advisory_xact_lock(hashtextextended('plan_prices:' || $1, 0))::text AS "locked!""#,
        plan_id.as_str(),
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// Sets a price from a month on. What was set for it before stays to be read.
pub async fn insert_price(
    conn: &mut PgConnection,
    plan_id: &PlanId,
    from_month: Month,
    price: MinorUnits,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- fee::insert_price
         INSERT INTO plan_prices (plan_id, from_month, amount, created_at) VALUES ($1, $2, $3, $4)",
        plan_id.as_str(),
        from_month.first_day(),
        price.get(),
        now,
    )
    .execute(conn)
    .await?;
    expect(done.rows_affected(), 1)
}

/// The price that was set from exactly this month on.
pub async fn read_price_from(
    conn: &mut PgConnection,
    plan_id: &PlanId,
    from_month: Month,
) -> Result<Option<MinorUnits>, Fault> {
    let amount = sqlx::query_scalar!(
        "-- fee::price_from
         SELECT amount FROM plan_prices WHERE plan_id = $1 AND from_month = $2 ORDER BY price_id DESC LIMIT 1",
        plan_id.as_str(),
        from_month.first_day(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(amount.map(MinorUnits::new))
}

/// Inserts a subscription; `false` when the same plan began on the same day already.
pub async fn insert_subscription(
    conn: &mut PgConnection,
    new: &NewSubscription,
    first_owed: Month,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- fee::insert_subscription
         INSERT INTO subscriptions (tenant_id, plan_id, started_on, first_month, first_owed_month, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT ON CONSTRAINT subscriptions_tenant_plan_start_key DO NOTHING",
        new.tenant_id.as_str(),
        new.plan_id.as_str(),
        new.started_on,
        new.first_month.as_str(),
        first_owed.first_day(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A subscription of the same plan that pays for the first month of the new one, or for later ones.
pub async fn find_overlapping(
    conn: &mut PgConnection,
    new: &NewSubscription,
    first_owed: Month,
) -> Result<Option<Subscription>, Fault> {
    sqlx::query_as!(
        SubscriptionRow,
        "-- fee::find_overlapping
         SELECT subscription_id, tenant_id, plan_id, started_on, first_month, ended_on
           FROM subscriptions
          WHERE tenant_id = $1 AND plan_id = $2 AND started_on <> $3
            AND (ended_on IS NULL OR (ended_on >= started_on AND ended_on >= $4))
          ORDER BY subscription_id LIMIT 1",
        new.tenant_id.as_str(),
        new.plan_id.as_str(),
        new.started_on,
        first_owed.first_day(),
    )
    .fetch_optional(conn)
    .await?
    .map(Subscription::try_from)
    .transpose()
}

/// In which currency a subscription is paid.
pub async fn currency_of_subscription(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    subscription_id: i64,
) -> Result<Option<CurrencyCode>, Fault> {
    sqlx::query_scalar!(
        "-- fee::currency_of_subscription
         SELECT p.currency FROM subscriptions s JOIN plans p ON p.plan_id = s.plan_id
          WHERE s.subscription_id = $1 AND s.tenant_id = $2",
        subscription_id,
        tenant_id.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(CurrencyCode::from_column)
    .transpose()
}

/// The last month of a subscription that a run has decided.
pub async fn last_decided_month(conn: &mut PgConnection, subscription_id: i64) -> Result<Option<Month>, Fault> {
    let month = sqlx::query_scalar!(
        "-- fee::last_decided_month
         SELECT max(month) FROM dues WHERE subscription_id = $1",
        subscription_id,
    )
    .fetch_one(conn)
    .await?;
    Ok(month.map(Month::of))
}

struct SubscriptionRow {
    subscription_id: i64,
    tenant_id: String,
    plan_id: String,
    started_on: NaiveDate,
    first_month: String,
    ended_on: Option<NaiveDate>,
}

pub(super) fn first_month_from_column(text: &str) -> Result<FirstMonth, Fault> {
    FirstMonth::parse(text).map_err(|error| Fault::new("a stored first month is unknown").because(error))
}

impl TryFrom<SubscriptionRow> for Subscription {
    type Error = Fault;

    fn try_from(row: SubscriptionRow) -> Result<Self, Fault> {
        Ok(Self {
            subscription_id: row.subscription_id,
            tenant_id: TenantId::from_column(row.tenant_id)?,
            plan_id: PlanId::from_column(row.plan_id)?,
            started_on: row.started_on,
            first_month: first_month_from_column(&row.first_month)?,
            ended_on: row.ended_on,
        })
    }
}

pub async fn find_subscription_by_start(conn: &mut PgConnection, new: &NewSubscription) -> Result<Subscription, Fault> {
    sqlx::query_as!(
        SubscriptionRow,
        "-- fee::find_subscription_by_start
         SELECT subscription_id, tenant_id, plan_id, started_on, first_month, ended_on
           FROM subscriptions WHERE tenant_id = $1 AND plan_id = $2 AND started_on = $3",
        new.tenant_id.as_str(),
        new.plan_id.as_str(),
        new.started_on,
    )
    .fetch_one(conn)
    .await?
    .try_into()
}

pub async fn list_subscriptions(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<Subscription>, Fault> {
    sqlx::query_as!(
        SubscriptionRow,
        "-- fee::list_subscriptions
         SELECT subscription_id, tenant_id, plan_id, started_on, first_month, ended_on
           FROM subscriptions WHERE tenant_id = $1 ORDER BY subscription_id",
        tenant_id.as_str(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(Subscription::try_from)
    .collect()
}

pub async fn lock_subscription(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    subscription_id: i64,
) -> Result<Option<Subscription>, Fault> {
    sqlx::query_as!(
        SubscriptionRow,
        "-- fee::lock_subscription
         SELECT subscription_id, tenant_id, plan_id, started_on, first_month, ended_on
           FROM subscriptions WHERE subscription_id = $1 AND tenant_id = $2 FOR NO KEY UPDATE",
        subscription_id,
        tenant_id.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(Subscription::try_from)
    .transpose()
}

pub async fn set_ended(conn: &mut PgConnection, subscription_id: i64, day: NaiveDate) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- fee::set_ended
         UPDATE subscriptions SET ended_on = $2 WHERE subscription_id = $1 AND ended_on IS NULL",
        subscription_id,
        day,
    )
    .execute(conn)
    .await?;
    expect(done.rows_affected(), 1)
}
