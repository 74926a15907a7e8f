//! Who did what, and who was refused what.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::health::OFFICE_ZONE;
use super::money;
use super::page::{ConsoleError, Frame, show};
use super::session::{Approver, Staff};
use crate::audit::{AuditQuery, Found, list};

const PAGE_ROWS: i64 = 100;

/// Which lines.
#[derive(Debug, Deserialize)]
pub struct LineQuery {
    #[serde(default)]
    actor: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    action: String,
    #[serde(default)]
    outcome: String,
    before: Option<i64>,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    query: LineQuery,
    lines: Vec<Found>,
    next: Option<i64>,
}

impl AuditPage {
    fn time(at: &DateTime<Utc>) -> String {
        money::time(*at, OFFICE_ZONE)
    }

    /// The same question, for the next page.
    fn question(&self) -> String {
        let query = &self.query;
        serde_urlencoded::to_string([
            ("actor", &query.actor),
            ("tenant", &query.tenant),
            ("action", &query.action),
            ("outcome", &query.outcome),
        ])
        .unwrap_or_default()
    }
}

/// The page.
pub async fn page(staff: Staff<Approver>, Query(query): Query<LineQuery>) -> Result<Response, ConsoleError> {
    let given = |text: &str| Some(text.trim().replace('\0', "")).filter(|text| !text.is_empty());
    let asked = AuditQuery {
        actor: given(&query.actor),
        tenant_id: given(&query.tenant),
        action: given(&query.action),
        allowed: match query.outcome.as_str() {
            "allowed" => Some(true),
            "refused" => Some(false),
            _ => None,
        },
        before_seq: query.before,
        limit: PAGE_ROWS,
    };
    let mut conn = staff.app.db.pool().acquire().await?;
    let lines = list(&mut conn, &asked).await?;
    let full = i64::try_from(lines.len()) == Ok(PAGE_ROWS);
    let next = lines.last().map(|line| line.seq).filter(|_| full);
    show(&AuditPage { query, lines, next, frame: staff.frame })
}
