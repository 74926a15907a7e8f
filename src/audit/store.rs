//! Every statement about the audit.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::Link;
use crate::fault::Fault;

fn hash_from_column(bytes: Vec<u8>) -> Result<[u8; 32], Fault> {
    bytes.try_into().map_err(|_| Fault::new("a hash of the audit is not 32 bytes long"))
}

/// Locks the end of the audit until the transaction ends. It is the last lock that anything takes.
pub async fn lock_head(conn: &mut PgConnection) -> Result<(i64, [u8; 32]), Fault> {
    let head = sqlx::query!(
        "-- audit::lock_head
         SELECT seq, hash FROM audit_head FOR NO KEY UPDATE"
    )
    .fetch_one(conn)
    .await?;
    Ok((head.seq, hash_from_column(head.hash)?))
}

/// Appends a line; the database moves the head with it.
pub(super) async fn append(conn: &mut PgConnection, line: &Link<'_>, hash: &[u8; 32]) -> Result<(), Fault> {
    sqlx::query!(
        "-- audit::append
         INSERT INTO audit_log (seq, at, actor, role, remote_address, http_request_id, action, allowed, tenant_id,
                                words, hash)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        line.seq,
        line.at,
        line.actor,
        line.role,
        line.remote_address,
        line.http_request_id,
        line.action,
        line.allowed,
        line.tenant_id,
        line.words,
        &hash[..],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Which lines.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only about this tenant.
    pub tenant_id: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only what was done, or only what was refused.
    pub allowed: Option<bool>,
    /// Only lines before this one.
    pub before_seq: Option<i64>,
    /// At most so many.
    pub limit: i64,
}

/// A line of the audit.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its number, without gaps.
    pub seq: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// As what.
    pub role: Option<String>,
    /// From where.
    pub remote_address: Option<String>,
    /// Our id of the HTTP request.
    pub http_request_id: Option<String>,
    /// What it was about.
    pub action: String,
    /// Whether it was done.
    pub allowed: bool,
    /// About whom.
    pub tenant_id: Option<String>,
    /// What happened.
    pub words: String,
}

/// Lines, the newest first.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection, query: &AuditQuery) -> Result<Vec<Found>, Fault> {
    Ok(sqlx::query_as!(
        Found,
        "-- audit::list
         SELECT seq, at, actor, role, remote_address, http_request_id, action, allowed, tenant_id, words
           FROM audit_log
          WHERE ($1::text IS NULL OR actor = $1) AND ($2::text IS NULL OR tenant_id = $2)
            AND ($3::text IS NULL OR action = $3) AND ($4::boolean IS NULL OR allowed = $4)
            AND ($5::bigint IS NULL OR seq < $5)
          ORDER BY seq DESC LIMIT $6",
        query.actor,
        query.tenant_id,
        query.action,
        query.allowed,
        query.before_seq,
        query.limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A line with its hash.
pub struct Kept {
    pub line: Found,
    pub hash: Vec<u8>,
}

/// A page of lines in their order.
pub async fn page_after(conn: &mut PgConnection, after_seq: i64, limit: i64) -> Result<Vec<Kept>, Fault> {
    Ok(sqlx::query!(
        "-- audit::page_after
         SELECT seq, at, actor, role, remote_address, http_request_id, action, allowed, tenant_id, words, hash
           FROM audit_log WHERE seq > $1 ORDER BY seq LIMIT $2",
        after_seq,
        limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| Kept {
        line: Found {
            seq: row.seq,
            at: row.at,
            actor: row.actor,
            role: row.role,
            remote_address: row.remote_address,
            http_request_id: row.http_request_id,
            action: row.action,
            allowed: row.allowed,
            tenant_id: row.tenant_id,
            words: row.words,
        },
        hash: row.hash,
    })
    .collect())
}

/// The head as it stands, without a lock.
pub async fn read_head(conn: &mut PgConnection) -> Result<Option<(i64, Vec<u8>)>, Fault> {
    Ok(sqlx::query!("-- audit::read_head\n SELECT seq, hash FROM audit_head")
        .fetch_optional(conn)
        .await?
        .map(|head| (head.seq, head.hash)))
}
