//! Every statement about what is owed and about the runs that decide it.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::{Connection as _, PgConnection};

use super::plans::{first_month_from_column, read_prices};
use super::{expect, zone_from_column};
use crate::fault::Fault;
use crate::fee::owed::{Fee, Owed};
use crate::fee::run::{Calendar, RunOptions, Waiting};
use crate::ids::TenantId;
use crate::money::{CurrencyCode, Month};

/// Subscriptions that owe the same undecided months.
#[derive(Debug)]
pub struct Owing {
    /// The first month.
    pub first: NaiveDate,
    /// The last month.
    pub last: NaiveDate,
    /// How many months that are.
    pub months: i64,
    /// How many of them count as paid at once.
    pub months_at_once: i32,
    /// How many subscriptions.
    pub subscriptions: i64,
    /// The one with the lowest number.
    pub lowest_subscription: i64,
    /// The lowest of the wallets that pay.
    pub lowest_wallet: i64,
    /// The highest.
    pub highest_wallet: i64,
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
                  months_at_once(o.started_on, o.first, o.last) AS "months_at_once!",
                  count(*) AS "subscriptions!", min(o.subscription_id) AS "lowest_subscription!",
                  coalesce(min(w.wallet_id), 0) AS "lowest_wallet!", coalesce(max(w.wallet_id), 0) AS "highest_wallet!"
             FROM (SELECT s.subscription_id, s.tenant_id, p.currency, s.started_on, o.month AS last,
                          greatest(s.first_owed_month, (decided.month + interval '1 month')::date) AS first
                     FROM unnest($1::text[], $2::date[], $3::date[]) AS z (time_zone, today, month)
                     JOIN tenants t ON t.time_zone = z.time_zone AND t.status <> 'closed'
                     JOIN subscriptions s ON s.tenant_id = t.tenant_id
                     JOIN plans p ON p.plan_id = s.plan_id
                    CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, z.today, z.month) AS month) o
                     LEFT JOIN LATERAL (SELECT max(d.month) AS month FROM dues d
                                         WHERE d.subscription_id = s.subscription_id) decided ON true
                    WHERE o.month >= s.first_owed_month
                      AND NOT EXISTS (SELECT FROM dues d WHERE d.subscription_id = s.subscription_id AND d.month >= $4)
                      AND (decided.month IS NULL OR o.month > decided.month)) o
             LEFT JOIN wallets w ON w.tenant_id = o.tenant_id AND w.currency = o.currency
            GROUP BY o.first, o.last, months_at_once(o.started_on, o.first, o.last)"#,
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

/// Says of months that a person agreed to their overdue dues.
pub async fn confirm_runs(conn: &mut PgConnection, months: &[NaiveDate], now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- fee::confirm_runs
         INSERT INTO fee_run_confirmations (period, confirmed_at) SELECT unnest($1::date[]), $2
             ON CONFLICT ON CONSTRAINT fee_run_confirmations_pkey DO NOTHING",
        months,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What is decided of a month that nobody has confirmed.
#[derive(Debug)]
pub struct Unconfirmed {
    /// Its first day.
    pub month: NaiveDate,
    /// Dues that are paid.
    pub charged: i64,
    /// Dues that aren't.
    pub overdue: i64,
}

/// Those of the months whose overdue dues no person has agreed to, and what is decided of each.
pub async fn unconfirmed_months(conn: &mut PgConnection, months: &[NaiveDate]) -> Result<Vec<Unconfirmed>, Fault> {
    Ok(sqlx::query_as!(
        Unconfirmed,
        r#"-- fee::unconfirmed_months
           SELECT m.month AS "month!", count(d.due_id) FILTER (WHERE d.charged_at IS NOT NULL) AS "charged!",
                  count(d.due_id) FILTER (WHERE d.charged_at IS NULL) AS "overdue!"
             FROM unnest($1::date[]) AS m (month)
             LEFT JOIN dues d ON d.month = m.month
            WHERE NOT EXISTS (SELECT FROM fee_run_confirmations c WHERE c.period = m.month)
            GROUP BY m.month"#,
        months,
    )
    .fetch_all(conn)
    .await?)
}

/// A wallet that this transaction has locked because it owes, and for what.
#[derive(Debug)]
pub struct OwingWallet {
    pub wallet_id: i64,
    pub tenant_id: TenantId,
    pub currency: CurrencyCode,
    /// The tenant's.
    pub time_zone: String,
    pub subscriptions: Vec<i64>,
}

/// Locks the next wallets that owe an undecided month, in the order of their ids.
///
/// The last owed month stands for all of them: a chunk decides a subscription's months from the oldest to the
/// last in one transaction, so when the last one is decided, none is missing.
///
/// What a wallet owes is gathered to one row, so that the limit counts wallets, and so that they are gone through in
/// their order whatever the planner thinks of it.
pub async fn lock_owing_wallets(
    conn: &mut PgConnection,
    calendar: &Calendar,
    after: i64,
    to: i64,
    limit: i64,
    waiting: Waiting,
) -> Result<Vec<OwingWallet>, Fault> {
    /// The two statements differ in their last words only, which SQL has no parameter for.
    macro_rules! lock {
        ($name:literal, $lock:literal) => {
            sqlx::query!(
                "-- fee::" + $name + r#"
                 SELECT w.wallet_id, w.tenant_id, w.currency, owing.time_zone AS "time_zone!",
                        owing.subscriptions AS "subscriptions!"
                   FROM wallets w
                  CROSS JOIN LATERAL (
                        SELECT min(t.time_zone) AS time_zone, array_agg(s.subscription_id) AS subscriptions
                          FROM tenants t
                          JOIN unnest($1::text[], $2::date[], $3::date[]) AS z (time_zone, today, month)
                            ON z.time_zone = t.time_zone
                          JOIN subscriptions s ON s.tenant_id = t.tenant_id
                          JOIN plans p ON p.plan_id = s.plan_id AND p.currency = w.currency
                         CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, z.today, z.month) AS month) o
                         WHERE t.tenant_id = w.tenant_id AND t.status <> 'closed'
                           AND o.month >= s.first_owed_month
                           AND NOT EXISTS (SELECT FROM dues d
                                            WHERE d.subscription_id = s.subscription_id AND d.month >= o.month)
                        HAVING count(*) > 0) owing
                  WHERE w.wallet_id > $4 AND w.wallet_id <= $5
                  ORDER BY w.wallet_id
                  LIMIT $6
                    FOR NO KEY UPDATE OF w "# + $lock,
                &calendar.zones,
                &calendar.todays,
                &calendar.months,
                after,
                to,
                limit,
            )
            .fetch_all(conn)
            .await?
            .into_iter()
            .map(|row| {
                Ok(OwingWallet {
                    wallet_id: row.wallet_id,
                    tenant_id: TenantId::from_column(row.tenant_id)?,
                    currency: CurrencyCode::from_column(row.currency)?,
                    time_zone: row.time_zone,
                    subscriptions: row.subscriptions,
                })
            })
            .collect()
        };
    }
    match waiting {
        Waiting::PassOver => lock!("lock_owing_wallets", "SKIP LOCKED"),
        Waiting::Wait => lock!("wait_for_owing_wallets", ""),
    }
}

/// What locked wallets owe, the oldest month first. The subscriptions and their dues are read anew: whoever waited for
/// the lock still saw them as they were before.
///
/// A subscription that owes more months at once than the options allow is left out: it waits for a person, and nobody
/// else for it.
pub async fn read_owed(
    conn: &mut PgConnection,
    calendar: &Calendar,
    wallets: &[OwingWallet],
    options: &RunOptions,
) -> Result<Vec<Owed>, Fault> {
    let days: HashMap<&str, (NaiveDate, NaiveDate)> = calendar
        .zones
        .iter()
        .zip(calendar.todays.iter().zip(&calendar.months))
        .map(|(zone, (today, month))| (zone.as_str(), (*today, *month)))
        .collect();
    let mut owners: HashMap<i64, &OwingWallet> = HashMap::with_capacity(wallets.len());
    let (mut subscriptions, mut todays, mut months) = (Vec::new(), Vec::new(), Vec::new());
    for wallet in wallets {
        let (today, month) = days
            .get(wallet.time_zone.as_str())
            .copied()
            .ok_or_else(|| Fault::new("a wallet owes in a zone that the run doesn't know"))?;
        for subscription_id in &wallet.subscriptions {
            owners.insert(*subscription_id, wallet);
            subscriptions.push(*subscription_id);
            todays.push(today);
            months.push(month);
        }
    }
    let rows = sqlx::query!(
        r#"-- fee::read_owed
           SELECT s.subscription_id, s.plan_id, s.started_on, s.first_month,
                  greatest(s.first_owed_month, (decided.month + interval '1 month')::date) AS "first!",
                  o.month AS "last!", months_at_once(s.started_on, greatest(s.first_owed_month,
                                                     (decided.month + interval '1 month')::date), o.month)
                                      AS "months_at_once!"
             FROM unnest($1::bigint[], $2::date[], $3::date[]) AS asked (subscription_id, today, month)
             JOIN subscriptions s ON s.subscription_id = asked.subscription_id
            CROSS JOIN LATERAL (SELECT owed_through(s.started_on, s.ended_on, asked.today, asked.month) AS month) o
             LEFT JOIN LATERAL (SELECT max(d.month) AS month FROM dues d
                                 WHERE d.subscription_id = s.subscription_id) decided ON true
            WHERE o.month >= s.first_owed_month AND (decided.month IS NULL OR o.month > decided.month)"#,
        &subscriptions,
        &todays,
        &months,
    )
    .fetch_all(&mut *conn)
    .await?;
    let plans: BTreeSet<&str> = rows.iter().map(|row| row.plan_id.as_str()).collect();
    let prices = read_prices(conn, &plans.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()).await?;
    let mut owed = Vec::with_capacity(rows.len());
    for row in rows {
        if !options.allows_months(row.months_at_once) {
            continue;
        }
        let wallet = owners
            .get(&row.subscription_id)
            .ok_or_else(|| Fault::new("a subscription was read that no locked wallet owes"))?;
        let of_plan = prices.get(&row.plan_id).ok_or_else(|| Fault::new("a plan that is owed has no prices"))?;
        let zone = zone_from_column(&wallet.time_zone)?;
        let first_month = first_month_from_column(&row.first_month)?;
        for month in Month::of(row.first).through(Month::of(row.last)) {
            let price = of_plan.of(month).ok_or_else(|| Fault::new("a plan has no price for a month that is owed"))?;
            owed.push(Owed {
                subscription_id: row.subscription_id,
                tenant_id: wallet.tenant_id.clone(),
                wallet_id: wallet.wallet_id,
                zone,
                currency: wallet.currency.clone(),
                exponent: of_plan.exponent,
                month,
                price,
                started_on: row.started_on,
                first_month,
            });
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
