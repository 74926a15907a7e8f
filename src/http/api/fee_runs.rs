//! Fee runs: one a month, however often it is started.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::fault::Error;
use crate::fee::{self, FeeRun, RunOptions};
use crate::http::error::Problem;
use crate::http::extract::{Caller, FeesWrite, Json, Named, NoParameters, Query, TenantsRead};
use crate::money::Month;

/// How to run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Only months up to this one; up to now when left out.
    #[schema(example = "2026-12")]
    pub period: Option<String>,
    /// Do it all and roll it back.
    pub dry_run: Option<bool>,
    /// Say yes to what is beyond the limits.
    pub confirmed: Option<bool>,
}

/// What a run did.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunBody {
    /// Months of subscriptions that were owed and undecided when it began.
    pub expected: u64,
    /// Dues that it charged.
    pub charged: u64,
    /// Dues that it found no money for.
    pub overdue: u64,
    /// Dues that another run decided meanwhile.
    pub by_others: u64,
    /// Months that are still undecided.
    pub open: u64,
    /// Whether it was rolled back.
    pub dry_run: bool,
}

/// The run of a month, counted now.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeeRunBody {
    /// The month: the run's id.
    #[schema(example = "2026-12")]
    pub period: String,
    /// When it was first started.
    pub first_started_at: chrono::DateTime<chrono::Utc>,
    /// Subscriptions that owe the month, counted from the subscriptions.
    pub expected: i64,
    /// Dues that are paid.
    pub charged: i64,
    /// Dues that aren't.
    pub overdue: i64,
    /// Subscriptions without a due.
    pub open: i64,
    /// expected − charged − overdue − open: always 0.
    pub difference: i64,
}

/// All runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeeRunList {
    /// The latest first.
    pub items: Vec<FeeRunBody>,
}

impl From<FeeRun> for FeeRunBody {
    fn from(run: FeeRun) -> Self {
        Self {
            period: run.period,
            first_started_at: run.first_started_at,
            expected: run.expected,
            charged: run.charged,
            overdue: run.overdue,
            open: run.open,
            difference: run.difference,
        }
    }
}

/// Decides every month that is owed and undecided. Starting it twice decides nothing twice.
#[utoipa::path(post, path = "/v1/fee-runs", tag = "fees", request_body = RunRequest,
    responses((status = 200, body = RunBody),
        (status = 409, description = "too_many_months, too_many_overdue", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn start(
    caller: Caller<FeesWrite>,
    _: Query<NoParameters>,
    json: Json<RunRequest>,
) -> Result<axum::Json<RunBody>, Problem> {
    let body = json.body;
    let period = body.period.as_deref().map(|period| super::field("period", Month::parse(period))).transpose()?;
    let dry_run = body.dry_run.unwrap_or(false);
    let options = RunOptions {
        period,
        dry_run,
        confirmed: body.confirmed.unwrap_or(false),
        limits: caller.app.settings.fee_limits,
        stop: caller.app.stopping.clone(),
        ..RunOptions::default()
    };
    let app = caller.app.clone();
    let report = caller
        .app
        .run_to_end(async move {
            let outcome = fee::run(&app.db, &app.clock, options, &|_| {}).await;
            // Of a long run the caller hears no more than that it takes long, so the log says how it ended.
            match &outcome {
                Ok(report) => tracing::info!(?report, "a fee run that was asked for has ended"),
                Err(Error::Refused(refusal)) => tracing::warn!("a fee run that was asked for has ended: {refusal}"),
                Err(Error::Fault(fault)) => tracing::error!("a fee run that was asked for failed: {}", fault.chain()),
            }
            outcome
        })
        .await??;
    Ok(axum::Json(RunBody {
        expected: report.expected,
        charged: report.charged,
        overdue: report.overdue,
        by_others: report.by_others,
        open: report.open,
        dry_run,
    }))
}

/// Lists the runs.
#[utoipa::path(get, path = "/v1/fee-runs", tag = "fees", responses((status = 200, body = FeeRunList)))]
pub async fn list(caller: Caller<TenantsRead>, _: Query<NoParameters>) -> Result<axum::Json<FeeRunList>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let runs = fee::list_runs(&mut conn, caller.app.clock.now()).await?;
    Ok(axum::Json(FeeRunList { items: runs.into_iter().map(FeeRunBody::from).collect() }))
}

/// The run of a month.
#[utoipa::path(get, path = "/v1/fee-runs/{period}", tag = "fees", params(("period" = String, Path)),
    responses((status = 200, body = FeeRunBody),
        (status = 404, description = "fee_run_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get(
    caller: Caller<TenantsRead>,
    _: Query<NoParameters>,
    Named(period): Named<Month>,
) -> Result<axum::Json<FeeRunBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let run = fee::find_run(&mut conn, period, caller.app.clock.now())
        .await?
        .ok_or_else(|| Problem::not_found("fee_run_not_found", format!("no run of {period} was started")))?;
    Ok(axum::Json(run.into()))
}
