//! The monthly runs, each counted anew from both sides.

use askama::Template;
use axum::response::Response;
use chrono::{DateTime, Utc};

use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use crate::fee::{self, FeeRun};

/// How many runs are counted for the page.
const RUNS_MAX: usize = 12;

#[derive(Template)]
#[template(path = "fee_runs.html")]
struct FeeRunsPage {
    frame: Frame,
    runs: Vec<FeeRun>,
}

impl FeeRunsPage {
    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, super::health::OFFICE_ZONE)
    }

    /// Decided of expected, in per cent, for the progress bar.
    fn decided(run: &FeeRun) -> i64 {
        run.charged.saturating_add(run.overdue)
    }
}

/// The page.
pub async fn page(staff: Staff<Viewer>) -> Result<Response, ConsoleError> {
    let mut conn = staff.app.db.pool().acquire().await?;
    let mut runs = fee::list_runs(&mut conn, staff.app.clock.now()).await?;
    runs.truncate(RUNS_MAX);
    show(&FeeRunsPage { runs, frame: staff.frame })
}
