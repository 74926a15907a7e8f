//! Does the audit agree with itself?

use sqlx::PgConnection;

use super::{Link, store};
use crate::fault::Fault;

/// How many lines are read at once.
const PAGE: i64 = 1_000;

/// Walks the chain on a read-only snapshot and returns how many lines there are, with what is wrong first, if
/// anything: every hash after a wrong line is wrong too and says nothing more.
///
/// # Errors
/// A fault of reading.
pub async fn verify(conn: &mut PgConnection) -> Result<(u64, Option<String>), Fault> {
    let mut lines: u64 = 0;
    let mut seq: i64 = 0;
    let mut hash = [0_u8; 32];
    loop {
        let page = store::page_after(conn, seq, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for kept in page {
            lines = lines.saturating_add(1);
            let line = &kept.line;
            if Some(line.seq) != seq.checked_add(1) {
                return Ok((lines, Some(format!("line {} is missing", seq.saturating_add(1)))));
            }
            let entry = Link {
                seq: line.seq,
                at: line.at,
                actor: &line.actor,
                role: line.role.as_deref(),
                remote_address: line.remote_address.as_deref(),
                http_request_id: line.http_request_id.as_deref(),
                action: &line.action,
                allowed: line.allowed,
                tenant_id: line.tenant_id.as_deref(),
                words: &line.words,
            };
            seq = line.seq;
            hash = entry.hash(&hash);
            if kept.hash != hash {
                return Ok((lines, Some(format!("line {seq} was changed: its hash is another"))));
            }
        }
    }
    let wrong = match store::read_head(conn).await? {
        None => Some("the head is gone".to_owned()),
        Some((head, _)) if head > seq => Some(format!("the lines after {seq} are cut off: the head is at {head}")),
        Some((head, kept)) if head != seq || kept != hash => Some(format!("the head is not at line {seq}")),
        Some(_) => None,
    };
    Ok((lines, wrong))
}
