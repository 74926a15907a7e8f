//! Every statement about dues and runs, and in [`plans`] about plans and subscriptions.
//!
//! What a subscription owes is said once in SQL, in the migration's function `owed_through`: the last month
//! that is owed by a local day.

mod plans;

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use chrono_tz::Tz;
use sqlx::{Connection as _, PgConnection};

use super::owed::{Fee, Owed};
use super::run::{Calendar, Waiting};
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::money::{CurrencyCode, Exponent, MinorUnits, Month};

pub use plans::{
    currency_exists, find_subscription_by_start, insert_plan, insert_price, insert_subscription, list_plans,
    list_subscriptions, lock_subscription, plan_exists, read_plan, read_price_from, set_ended,
};
use plans::{first_month_from_column, price_of, read_prices};

fn zone_from_column(name: &str) -> Result<Tz, Fault> {
    name.parse().map_err(|_| Fault::new("a stored time zone is unknown"))
}

fn expect(rows: u64, expected: usize) -> Result<(), Fault> {
    if usize::try_from(rows) == Ok(expected) {
        Ok(())
    } else {
        Err(Fault::new("the database wrote another number of dues than was decided"))
    }
}

/// A due that isn't paid.
#[derive(Debug, Clone)]
pub struct UnpaidDue {
    /// Its number.
    pub due_id: i64,
    /// What it is for.
    pub fee: Fee,
    /// When it fell due.
    pub due_at: DateTime<Utc>,
    /// Since when it is overdue.
    pub overdue_at: DateTime<Utc>,
    /// Whether the tenant was told that access should be suspended.
    pub suspended: bool,
}

struct UnpaidRow {
    due_id: i64,
    subscription_id: i64,
    tenant_id: String,
    currency: String,
    exponent: i16,
    month: NaiveDate,
    amount: i64,
    due_at: DateTime<Utc>,
    overdue_at: Option<DateTime<Utc>>,
    suspended: bool,
}

impl TryFrom<UnpaidRow> for UnpaidDue {
    type Error = Fault;

    fn try_from(row: UnpaidRow) -> Result<Self, Fault> {
        Ok(Self {
            due_id: row.due_id,
            fee: Fee {
                subscription_id: row.subscription_id,
                tenant_id: TenantId::from_column(row.tenant_id)?,
                currency: CurrencyCode::from_column(row.currency)?,
                exponent: Exponent::from_column(row.exponent)?,
                month: Month::of(row.month),
                amount: MinorUnits::new(row.amount),
            },
            due_at: row.due_at,
            overdue_at: row.overdue_at.ok_or_else(|| Fault::new("an unpaid due isn't overdue"))?,
            suspended: row.suspended,
        })
    }
}

/// The unpaid dues of wallets, the oldest first within each.
pub async fn unpaid_of_wallets(
    conn: &mut PgConnection,
    wallets: &[(TenantId, CurrencyCode)],
) -> Result<Vec<UnpaidDue>, Fault> {
    let tenants: Vec<String> = wallets.iter().map(|(tenant_id, _)| tenant_id.to_string()).collect();
    let currencies: Vec<String> = wallets.iter().map(|(_, currency)| currency.to_string()).collect();
    sqlx::query_as!(
        UnpaidRow,
        r#"-- fee::unpaid_of_wallets
           SELECT d.due_id, d.subscription_id, d.tenant_id, d.currency, c.exponent, d.month, d.amount, d.due_at,
                  d.overdue_at, false AS "suspended!"
             FROM unnest($1::text[], $2::text[]) AS w (tenant_id, currency)
             JOIN dues d ON d.tenant_id = w.tenant_id AND d.currency = w.currency AND d.charged_at IS NULL
             JOIN currencies c ON c.code = d.currency
            ORDER BY d.tenant_id, d.currency, d.month, d.due_id"#,
        &tenants,
        &currencies,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(UnpaidDue::try_from)
    .collect()
}

pub async fn unpaid_of_tenant(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<UnpaidDue>, Fault> {
    sqlx::query_as!(
        UnpaidRow,
        r#"-- fee::unpaid_of_tenant
           SELECT d.due_id, d.subscription_id, d.tenant_id, d.currency, c.exponent, d.month, d.amount, d.due_at,
                  d.overdue_at,
                  EXISTS (SELECT FROM due_reminders r WHERE r.due_id = d.due_id AND r.step = 'suspended') AS "suspended!"
             FROM dues d
             JOIN currencies c ON c.code = d.currency
            WHERE d.tenant_id = $1 AND d.charged_at IS NULL
            ORDER BY d.month, d.due_id"#,
        tenant_id.as_str(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(UnpaidDue::try_from)
    .collect()
}

/// Locks tenants in the order of their ids, after their wallets.
pub async fn lock_tenants(conn: &mut PgConnection, tenants: &[TenantId]) -> Result<(), Fault> {
    let tenants: Vec<String> = tenants.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "-- fee::lock_tenants
         SELECT tenant_id FROM tenants WHERE tenant_id = ANY ($1) ORDER BY tenant_id FOR NO KEY UPDATE",
        &tenants,
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// Which of the tenants owe something.
pub async fn tenants_owing(conn: &mut PgConnection, tenants: &[TenantId]) -> Result<BTreeSet<TenantId>, Fault> {
    let tenants: Vec<String> = tenants.iter().map(ToString::to_string).collect();
    sqlx::query_scalar!(
        "-- fee::tenants_owing
         SELECT DISTINCT tenant_id FROM dues WHERE tenant_id = ANY ($1) AND charged_at IS NULL",
        &tenants,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(TenantId::from_column)
    .collect()
}

/// Marks dues as paid by rows.
pub async fn set_charged(conn: &mut PgConnection, paid: &[(i64, i64)], now: DateTime<Utc>) -> Result<(), Fault> {
    let dues: Vec<i64> = paid.iter().map(|(due_id, _)| *due_id).collect();
    let seqs: Vec<i64> = paid.iter().map(|(_, seq)| *seq).collect();
    let done = sqlx::query!(
        "-- fee::set_charged
         UPDATE dues d SET charged_at = $3, charged_seq = p.seq
           FROM unnest($1::bigint[], $2::bigint[]) AS p (due_id, seq)
          WHERE d.due_id = p.due_id AND d.charged_at IS NULL",
        &dues,
        &seqs,
        now,
    )
    .execute(conn)
    .await?;
    expect(done.rows_affected(), paid.len())
}

/// The zones of all tenants.
pub async fn tenant_zones(conn: &mut PgConnection) -> Result<Vec<Tz>, Fault> {
    sqlx::query_scalar!(
        "-- fee::tenant_zones
         SELECT DISTINCT time_zone FROM tenants ORDER BY time_zone"
    )
    .fetch_all(conn)
    .await?
    .iter()
    .map(|name| zone_from_column(name))
    .collect()
}

/// Subscriptions that owe the same undecided months.
#[derive(Debug)]
pub struct Owing {
    /// The first month.
    pub first: NaiveDate,
    /// The last month.
    pub last: NaiveDate,
    /// How many months that are.
    pub months: i64,
    /// How many subscriptions.
    pub subscriptions: i64,
    /// The one with the lowest number.
    pub lowest_subscription: i64,
}

/// All that is owed and undecided, in one look at the whole book: as many rows as there are different stretches
/// of months, which is one on most days.
///
/// Who has a due of the last month that can be owed anywhere owes nothing. That is said first, since it spares
/// the look for the last due of everybody who is decided.
pub async fn survey_owed(conn: &mut PgConnection, calendar: &Calendar) -> Result<Vec<Owing>, Fault> {
    let Some(furthest) = calendar.months.iter().max() else { return Ok(Vec::new()) };
    let mut transaction = conn.begin().await?;
    // A plan that was kept from before the first dues were written would read all of them for each subscription.
    // However large the book is, the look at it has to come to its end; and nothing else happens meanwhile, so
    // every core may look.
    sqlx::query!(
        "-- fee::patient_survey
         SELECT set_config('plan_cache_mode', 'force_custom_plan', true) AS plans,
                set_config('min_parallel_table_scan_size', '0', true) AS parallel,
                set_config('statement_timeout', '0', true) AS timeout"
    )
    .fetch_one(&mut *transaction)
    .await?;
    let owing = sqlx::query_as!(
        Owing,
        r#"-- fee::survey_owed
           SELECT o.first AS "first!", o.last AS "last!", months_between(o.first, o.last)::bigint AS "months!",
                  count(*) AS "subscriptions!", min(o.subscription_id) AS "lowest_subscription!"
             FROM (SELECT s.subscription_id, o.month AS last,
                          greatest(s.first_owed_month, (decided.month + interval '1 month')::date) AS first
                     FROM unnest($1::text[], $2::date[], $3::date[]) AS z (time_zone, today, month)
                     JOIN tenants t ON t.time_zone = z.time_zone AND t.status <> 'closed'
                     JOIN subscriptions s ON s.tenant_id = t.tenant_id
                    CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, z.today, z.month) AS month) o
                     LEFT JOIN LATERAL (SELECT max(d.month) AS month FROM dues d
                                         WHERE d.subscription_id = s.subscription_id) decided ON true
                    WHERE o.month >= s.first_owed_month
                      AND NOT EXISTS (SELECT FROM dues d WHERE d.subscription_id = s.subscription_id AND d.month >= $4)
                      AND (decided.month IS NULL OR o.month > decided.month)) o
            GROUP BY o.first, o.last"#,
        &calendar.zones,
        &calendar.todays,
        &calendar.months,
        furthest,
    )
    .fetch_all(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(owing)
}

/// Whose subscription it is.
pub async fn tenant_of_subscription(conn: &mut PgConnection, subscription_id: i64) -> Result<String, Fault> {
    Ok(sqlx::query_scalar!(
        "-- fee::tenant_of_subscription
         SELECT tenant_id FROM subscriptions WHERE subscription_id = $1",
        subscription_id,
    )
    .fetch_one(conn)
    .await?)
}

/// A run for each of the months, if there is none yet.
pub async fn insert_runs(conn: &mut PgConnection, months: &[NaiveDate], now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- fee::insert_runs
         INSERT INTO fee_runs (period, first_started_at) SELECT unnest($1::date[]), $2
             ON CONFLICT ON CONSTRAINT fee_runs_pkey DO NOTHING",
        months,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The lowest and the highest wallet.
pub async fn wallet_range(conn: &mut PgConnection) -> Result<(i64, i64), Fault> {
    let row = sqlx::query!(
        r#"-- fee::wallet_range
           SELECT coalesce(min(wallet_id), 0) AS "lowest!", coalesce(max(wallet_id), 0) AS "highest!" FROM wallets"#
    )
    .fetch_one(conn)
    .await?;
    Ok((row.lowest, row.highest))
}

/// Locks the next wallets that owe an undecided month, in the order of their ids.
///
/// The last owed month stands for all of them: a chunk decides a subscription's months from the oldest to the
/// last in one transaction, so when the last one is decided, none is missing.
pub async fn lock_owing_wallets(
    conn: &mut PgConnection,
    calendar: &Calendar,
    after: i64,
    to: i64,
    limit: i64,
    waiting: Waiting,
) -> Result<Vec<i64>, Fault> {
    /// The two statements differ in their last words only, which SQL has no parameter for.
    macro_rules! lock {
        ($name:literal, $lock:literal) => {
            sqlx::query_scalar!(
                "-- fee::" + $name + "
                 SELECT w.wallet_id
                   FROM wallets w
                  WHERE w.wallet_id > $4 AND w.wallet_id <= $5
                    AND EXISTS (
                        SELECT FROM tenants t
                          JOIN unnest($1::text[], $2::date[], $3::date[]) AS z (time_zone, today, month)
                            ON z.time_zone = t.time_zone
                          JOIN subscriptions s ON s.tenant_id = t.tenant_id
                          JOIN plans p ON p.plan_id = s.plan_id AND p.currency = w.currency
                         CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, z.today, z.month) AS month) o
                         WHERE t.tenant_id = w.tenant_id AND t.status <> 'closed'
                           AND o.month >= s.first_owed_month
                           AND NOT EXISTS (SELECT FROM dues d
                                            WHERE d.subscription_id = s.subscription_id AND d.month >= o.month))
                  ORDER BY w.wallet_id
                  LIMIT $6
                    FOR NO KEY UPDATE OF w " + $lock,
                &calendar.zones,
                &calendar.todays,
                &calendar.months,
                after,
                to,
                limit,
            )
            .fetch_all(conn)
            .await?
        };
    }
    Ok(match waiting {
        Waiting::PassOver => lock!("lock_owing_wallets", "SKIP LOCKED"),
        Waiting::Wait => lock!("wait_for_owing_wallets", ""),
    })
}

/// What locked wallets owe, the oldest month first.
pub async fn read_owed(conn: &mut PgConnection, calendar: &Calendar, wallets: &[i64]) -> Result<Vec<Owed>, Fault> {
    let rows = sqlx::query!(
        r#"-- fee::read_owed
           SELECT w.wallet_id, s.subscription_id, s.plan_id, s.tenant_id, t.time_zone, p.currency, c.exponent,
                  greatest(s.first_owed_month, (decided.month + interval '1 month')::date) AS "first!",
                  o.month AS "last!", s.started_on, s.first_month
             FROM wallets w
             JOIN tenants t ON t.tenant_id = w.tenant_id AND t.status <> 'closed'
             JOIN unnest($1::text[], $2::date[], $3::date[]) AS z (time_zone, today, month)
               ON z.time_zone = t.time_zone
             JOIN subscriptions s ON s.tenant_id = t.tenant_id
             JOIN plans p ON p.plan_id = s.plan_id AND p.currency = w.currency
             JOIN currencies c ON c.code = p.currency
            CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, z.today, z.month) AS month) o
             LEFT JOIN LATERAL (SELECT max(d.month) AS month FROM dues d
                                 WHERE d.subscription_id = s.subscription_id) decided ON true
            WHERE w.wallet_id = ANY ($4)
              AND o.month >= s.first_owed_month AND (decided.month IS NULL OR o.month > decided.month)"#,
        &calendar.zones,
        &calendar.todays,
        &calendar.months,
        wallets,
    )
    .fetch_all(&mut *conn)
    .await?;
    let plans: BTreeSet<&str> = rows.iter().map(|row| row.plan_id.as_str()).collect();
    let prices = read_prices(conn, &plans.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()).await?;
    let mut owed = Vec::with_capacity(rows.len());
    for row in rows {
        let tenant_id = TenantId::from_column(row.tenant_id)?;
        let zone = zone_from_column(&row.time_zone)?;
        let currency = CurrencyCode::from_column(row.currency)?;
        let exponent = Exponent::from_column(row.exponent)?;
        let first_month = first_month_from_column(&row.first_month)?;
        for month in Month::of(row.first).through(Month::of(row.last)) {
            let price = price_of(&prices, &row.plan_id, month)
                .ok_or_else(|| Fault::new("a plan has no price for a month that is owed"))?;
            let month_owed = Owed {
                subscription_id: row.subscription_id,
                tenant_id: tenant_id.clone(),
                wallet_id: row.wallet_id,
                zone,
                currency: currency.clone(),
                exponent,
                month,
                price,
                started_on: row.started_on,
                first_month,
            };
            owed.push(month_owed);
        }
    }
    owed.sort_by_key(|owed: &Owed| (owed.wallet_id, owed.month, owed.subscription_id));
    Ok(owed)
}

/// A due as it was decided.
#[derive(Debug)]
pub struct Decided {
    pub fee: Fee,
    pub due_at: DateTime<Utc>,
    pub charged: bool,
    pub charged_seq: Option<i64>,
}

#[expect(clippy::as_conversions, reason = "the query macro takes the type of an array with NULLs this way")]
pub async fn insert_dues(conn: &mut PgConnection, decided: &[Decided], now: DateTime<Utc>) -> Result<(), Fault> {
    let subscriptions: Vec<i64> = decided.iter().map(|due| due.fee.subscription_id).collect();
    let months: Vec<NaiveDate> = decided.iter().map(|due| due.fee.month.first_day()).collect();
    let tenants: Vec<&str> = decided.iter().map(|due| due.fee.tenant_id.as_str()).collect();
    let currencies: Vec<&str> = decided.iter().map(|due| due.fee.currency.as_str()).collect();
    let amounts: Vec<i64> = decided.iter().map(|due| due.fee.amount.get()).collect();
    let due_ats: Vec<DateTime<Utc>> = decided.iter().map(|due| due.due_at).collect();
    let charged: Vec<bool> = decided.iter().map(|due| due.charged).collect();
    let seqs: Vec<Option<i64>> = decided.iter().map(|due| due.charged_seq).collect();
    let done = sqlx::query!(
        "-- fee::insert_dues
         INSERT INTO dues (subscription_id, month, tenant_id, currency, amount, due_at, decided_at, overdue_at,
                           charged_at, charged_seq)
         SELECT d.subscription_id, d.month, d.tenant_id, d.currency, d.amount, d.due_at, $9::timestamptz,
                CASE WHEN d.charged THEN NULL ELSE $9::timestamptz END,
                CASE WHEN d.charged THEN $9::timestamptz END, d.seq
           FROM unnest($1::bigint[], $2::date[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[],
                       $7::boolean[], $8::bigint[]) WITH ORDINALITY
                AS d (subscription_id, month, tenant_id, currency, amount, due_at, charged, seq, position)
          ORDER BY d.position",
        &subscriptions,
        &months,
        &tenants as &[&str],
        &currencies as &[&str],
        &amounts,
        &due_ats,
        &charged,
        &seqs as &[Option<i64>],
        now,
    )
    .execute(conn)
    .await?;
    expect(done.rows_affected(), decided.len())
}

/// Locks dues that are unpaid for at least so many days and were not told this step yet.
pub async fn lock_dues_for_step(
    conn: &mut PgConnection,
    days: i32,
    step: &str,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<UnpaidDue>, Fault> {
    sqlx::query_as!(
        UnpaidRow,
        r#"-- fee::lock_dues_for_step
           SELECT d.due_id, d.subscription_id, d.tenant_id, d.currency, c.exponent, d.month, d.amount, d.due_at,
                  d.overdue_at, false AS "suspended!"
             FROM dues d
             JOIN currencies c ON c.code = d.currency
            WHERE d.charged_at IS NULL
              AND d.overdue_at <= $3::timestamptz - make_interval(days => $1)
              AND NOT EXISTS (SELECT FROM due_reminders r WHERE r.due_id = d.due_id AND r.step = $2)
            ORDER BY d.due_id
            LIMIT $4
              FOR NO KEY UPDATE OF d SKIP LOCKED"#,
        days,
        step,
        now,
        limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(UnpaidDue::try_from)
    .collect()
}

/// Notes the step for each of these dues and returns those it was new for. Somebody who had the same due a moment
/// ago may have told it: the statement that found the due can't see that, this one does.
pub async fn insert_reminders(
    conn: &mut PgConnection,
    dues: &[UnpaidDue],
    step: &str,
    now: DateTime<Utc>,
) -> Result<HashSet<i64>, Fault> {
    let ids: Vec<i64> = dues.iter().map(|due| due.due_id).collect();
    let noted = sqlx::query_scalar!(
        "-- fee::insert_reminders
         INSERT INTO due_reminders (due_id, step, queued_at) SELECT unnest($1::bigint[]), $2, $3
         ON CONFLICT (due_id, step) DO NOTHING
         RETURNING due_id",
        &ids,
        step,
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(noted.into_iter().collect())
}

pub async fn list_runs(conn: &mut PgConnection) -> Result<Vec<(NaiveDate, DateTime<Utc>)>, Fault> {
    Ok(sqlx::query!(
        "-- fee::list_runs
         SELECT period, first_started_at FROM fee_runs ORDER BY period DESC LIMIT 60"
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| (row.period, row.first_started_at))
    .collect())
}

pub async fn find_run(conn: &mut PgConnection, period: NaiveDate) -> Result<Option<DateTime<Utc>>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- fee::find_run
         SELECT first_started_at FROM fee_runs WHERE period = $1",
        period
    )
    .fetch_optional(conn)
    .await?)
}

/// The numbers of a month's run.
pub struct RunCounts {
    pub expected: i64,
    pub charged: i64,
    pub overdue: i64,
    pub open: i64,
}

/// Counts a month from both sides: the subscriptions that owe it, and the dues. A due whose tenant has moved
/// to a zone in which the month hasn't begun yet counts as expected all the same.
pub async fn count_run(conn: &mut PgConnection, calendar: &Calendar, period: NaiveDate) -> Result<RunCounts, Fault> {
    Ok(sqlx::query_as!(
        RunCounts,
        r#"-- fee::count_run
           WITH owing AS (
               SELECT s.subscription_id
                 FROM unnest($1::text[], $2::date[], $3::date[]) AS z (time_zone, today, month)
                 JOIN tenants t ON t.time_zone = z.time_zone
                 JOIN subscriptions s ON s.tenant_id = t.tenant_id
                CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, z.today, z.month) AS month) o
                WHERE s.first_owed_month <= $4
                  AND ((o.month >= $4 AND t.status <> 'closed')
                       OR EXISTS (SELECT FROM dues d WHERE d.subscription_id = s.subscription_id AND d.month = $4))
           )
           SELECT (SELECT count(*) FROM owing) AS "expected!",
                  (SELECT count(*) FROM dues WHERE month = $4 AND charged_at IS NOT NULL) AS "charged!",
                  (SELECT count(*) FROM dues WHERE month = $4 AND charged_at IS NULL) AS "overdue!",
                  (SELECT count(*) FROM owing o
                    WHERE NOT EXISTS (SELECT FROM dues d WHERE d.subscription_id = o.subscription_id
                                                           AND d.month = $4)) AS "open!""#,
        &calendar.zones,
        &calendar.todays,
        &calendar.months,
        period,
    )
    .fetch_one(conn)
    .await?)
}
