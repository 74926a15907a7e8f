//! Whether everything runs, and what was refused lately.

use askama::Template;
use axum::response::Response;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::page::{ConsoleError, Frame, show};
use super::session::{Staff, Viewer};
use super::{calls, money};
use crate::inquiry::{self, CallLine};
use crate::jobs::Job;
use crate::outbox;

/// The zone of pages that are about no tenant.
pub const OFFICE_ZONE: Tz = chrono_tz::Asia::Tashkent;

#[derive(Template)]
#[template(path = "health.html")]
struct HealthPage {
    frame: Frame,
    jobs: Vec<Job>,
    oldest_event: Option<String>,
    calls: Vec<CallLine>,
}

impl HealthPage {
    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, OFFICE_ZONE)
    }

    fn call_words(&self, call: &CallLine) -> String {
        calls::words(self.frame.language, call)
    }
}

/// The page.
pub async fn page(staff: Staff<Viewer>) -> Result<Response, ConsoleError> {
    let mut conn = staff.app.db.pool().acquire().await?;
    let oldest = outbox::oldest_waiting_at(&mut conn).await?;
    let calls = inquiry::refused_calls(&mut conn, 30).await?;
    show(&HealthPage {
        jobs: Job::ALL.to_vec(),
        oldest_event: oldest.map(|at| money::time(at, OFFICE_ZONE)),
        calls,
        frame: staff.frame,
    })
}
