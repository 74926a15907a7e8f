//! A run proves itself: expected = charged + overdue + open, counted from two sides.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::PgConnection;

use super::run::Calendar;
use super::store;
use crate::fault::Fault;
use crate::money::Month;

/// The run of a month, counted now.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FeeRun {
    /// The month, `2026-12`: the run's id. However often it is started, it is one run.
    pub period: String,
    /// When it was first started.
    pub first_started_at: DateTime<Utc>,
    /// Subscriptions that owe the month by now, counted from the subscriptions.
    pub expected: i64,
    /// Dues that are paid, counted from the dues.
    pub charged: i64,
    /// Dues that aren't.
    pub overdue: i64,
    /// Subscriptions without a due.
    pub open: i64,
    /// expected − charged − overdue − open; anything but 0 is a fault.
    pub difference: i64,
}

/// The runs, the latest first.
///
/// # Errors
/// A fault.
pub async fn list_runs(conn: &mut PgConnection, now: DateTime<Utc>) -> Result<Vec<FeeRun>, Fault> {
    let mut runs = Vec::new();
    for (period, first_started_at) in store::list_runs(conn).await? {
        runs.push(count(conn, period, first_started_at, now).await?);
    }
    Ok(runs)
}

/// The run of a month.
///
/// # Errors
/// A fault.
pub async fn find_run(conn: &mut PgConnection, period: Month, now: DateTime<Utc>) -> Result<Option<FeeRun>, Fault> {
    match store::find_run(conn, period.first_day()).await? {
        Some(first_started_at) => Ok(Some(count(conn, period.first_day(), first_started_at, now).await?)),
        None => Ok(None),
    }
}

async fn count(
    conn: &mut PgConnection,
    period: NaiveDate,
    first_started_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<FeeRun, Fault> {
    let zones = store::tenant_zones(conn).await?;
    let calendar = Calendar::at(now, &zones, None);
    let counts = store::count_run(conn, &calendar, period).await?;
    let decided = counts.charged.saturating_add(counts.overdue).saturating_add(counts.open);
    Ok(FeeRun {
        period: Month::of(period).to_string(),
        first_started_at,
        expected: counts.expected,
        charged: counts.charged,
        overdue: counts.overdue,
        open: counts.open,
        difference: counts.expected.saturating_sub(decided),
    })
}
