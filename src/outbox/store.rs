//! Every statement about events, endpoints and deliveries.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::Event;
use super::endpoint::Endpoint;
use crate::fault::Fault;

/// Inserts the events in their order and a delivery of each for every endpoint that is on.
pub async fn insert_events(conn: &mut PgConnection, events: &[Event], now: DateTime<Utc>) -> Result<(), Fault> {
    let tenants: Vec<String> = events.iter().map(|event| event.tenant_id.to_string()).collect();
    let kinds: Vec<String> = events.iter().map(|event| event.kind.as_str().to_owned()).collect();
    let bodies: Vec<String> = events.iter().map(|event| event.body(now)).collect();
    sqlx::query!(
        "-- outbox::insert_events
         WITH written AS (
             INSERT INTO events (tenant_id, kind, body, created_at)
             SELECT e.tenant_id, e.kind, e.body, $4
               FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS e (tenant_id, kind, body, position)
              ORDER BY e.position
             RETURNING event_id, tenant_id
         )
         INSERT INTO webhook_deliveries (endpoint_id, event_id, tenant_id, next_attempt_at)
         SELECT p.endpoint_id, w.event_id, w.tenant_id, $4
           FROM written w CROSS JOIN webhook_endpoints p
          WHERE p.disabled_at IS NULL",
        &tenants,
        &kinds,
        &bodies,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

struct EndpointRow {
    endpoint_id: i64,
    url: String,
    created_at: DateTime<Utc>,
    disabled_at: Option<DateTime<Utc>>,
}

impl From<EndpointRow> for Endpoint {
    fn from(row: EndpointRow) -> Self {
        Self { endpoint_id: row.endpoint_id, url: row.url, created_at: row.created_at, disabled_at: row.disabled_at }
    }
}

pub async fn insert_endpoint(
    conn: &mut PgConnection,
    url: &str,
    secret: &str,
    now: DateTime<Utc>,
) -> Result<Endpoint, Fault> {
    Ok(sqlx::query_as!(
        EndpointRow,
        "-- outbox::insert_endpoint
         INSERT INTO webhook_endpoints (url, secret, created_at) VALUES ($1, $2, $3)
         RETURNING endpoint_id, url, created_at, disabled_at",
        url,
        secret,
        now,
    )
    .fetch_one(conn)
    .await?
    .into())
}

pub async fn list_endpoints(conn: &mut PgConnection) -> Result<Vec<Endpoint>, Fault> {
    Ok(sqlx::query_as!(
        EndpointRow,
        "-- outbox::list_endpoints
         SELECT endpoint_id, url, created_at, disabled_at FROM webhook_endpoints ORDER BY endpoint_id"
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(Endpoint::from)
    .collect())
}

/// Switches an endpoint off; `false` when there is none that is on.
pub async fn disable_endpoint(conn: &mut PgConnection, endpoint_id: i64, now: DateTime<Utc>) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- outbox::disable_endpoint
         UPDATE webhook_endpoints SET disabled_at = $2 WHERE endpoint_id = $1 AND disabled_at IS NULL",
        endpoint_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A delivery that a worker has claimed.
#[derive(Debug)]
pub struct Claimed {
    pub endpoint_id: i64,
    pub event_id: i64,
    pub attempts: i32,
    pub url: String,
    pub secret: String,
    pub body: String,
}

/// Claims deliveries: for each endpoint and tenant only the oldest one that isn't delivered, so that a tenant's
/// events arrive in their order, and a tenant whose event fails holds up nobody else's. At most `per_endpoint`
/// of one endpoint are under way at once, so that a slow receiver takes no more than its share.
pub async fn claim(
    conn: &mut PgConnection,
    limit: i64,
    per_endpoint: i64,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Vec<Claimed>, Fault> {
    Ok(sqlx::query_as!(
        Claimed,
        r#"-- outbox::claim
           WITH oldest AS (
               SELECT DISTINCT ON (d.endpoint_id, d.tenant_id)
                      d.endpoint_id, d.event_id, d.next_attempt_at, d.claimed_until
                 FROM webhook_deliveries d
                 JOIN webhook_endpoints p ON p.endpoint_id = d.endpoint_id AND p.disabled_at IS NULL
                WHERE d.delivered_at IS NULL AND d.dead_at IS NULL
                ORDER BY d.endpoint_id, d.tenant_id, d.event_id
           ), ready AS (
               SELECT endpoint_id, event_id,
                      row_number() OVER (PARTITION BY endpoint_id ORDER BY next_attempt_at, event_id)
                      + (SELECT count(*) FROM webhook_deliveries u
                          WHERE u.endpoint_id = oldest.endpoint_id AND u.claimed_until > $3
                            AND u.delivered_at IS NULL AND u.dead_at IS NULL) AS place
                 FROM oldest
                WHERE next_attempt_at <= $3 AND (claimed_until IS NULL OR claimed_until <= $3)
           ), locked AS (
               SELECT d.endpoint_id, d.event_id
                 FROM ready r
                 JOIN webhook_deliveries d ON d.endpoint_id = r.endpoint_id AND d.event_id = r.event_id
                WHERE r.place <= $2
                  AND d.delivered_at IS NULL AND d.dead_at IS NULL AND (d.claimed_until IS NULL OR d.claimed_until <= $3)
                ORDER BY d.event_id
                LIMIT $1
                  FOR UPDATE OF d SKIP LOCKED
           )
           UPDATE webhook_deliveries d
              SET claimed_until = $4, attempts = d.attempts + 1
             FROM locked l, webhook_endpoints p, events e
            WHERE d.endpoint_id = l.endpoint_id AND d.event_id = l.event_id
              AND p.endpoint_id = d.endpoint_id AND e.event_id = d.event_id
           RETURNING d.endpoint_id, d.event_id, d.attempts, p.url, p.secret, e.body"#,
        limit,
        per_endpoint,
        now,
        until,
    )
    .fetch_all(conn)
    .await?)
}

/// What became of an attempt.
#[derive(Debug)]
pub struct Attempt {
    pub attempted_at: DateTime<Utc>,
    pub duration_ms: i32,
    pub status: Option<i32>,
    pub problem: Option<String>,
}

/// How a delivery goes on after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Delivered,
    Retry(DateTime<Utc>),
    Dead,
}

/// Records an attempt and how the delivery goes on.
pub async fn record(
    conn: &mut PgConnection,
    claimed: &Claimed,
    attempt: &Attempt,
    next: Next,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let (delivered_at, dead_at, retry_at) = match next {
        Next::Delivered => (Some(now), None, None),
        Next::Dead => (None, Some(now), None),
        Next::Retry(at) => (None, None, Some(at)),
    };
    sqlx::query!(
        "-- outbox::record
         WITH attempt AS (
             INSERT INTO webhook_attempts (endpoint_id, event_id, attempted_at, duration_ms, status, problem)
             VALUES ($1, $2, $3, $4, $5, $6)
         )
         UPDATE webhook_deliveries
            SET claimed_until = NULL,
                delivered_at = coalesce(delivered_at, $7),
                dead_at = CASE WHEN delivered_at IS NULL THEN $8 ELSE dead_at END,
                next_attempt_at = coalesce($9, next_attempt_at)
          WHERE endpoint_id = $1 AND event_id = $2",
        claimed.endpoint_id,
        claimed.event_id,
        attempt.attempted_at,
        attempt.duration_ms,
        attempt.status,
        attempt.problem,
        delivered_at,
        dead_at,
        retry_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A delivery for people to look at.
#[derive(Debug, Clone)]
pub struct DeliveryRow {
    /// Where to.
    pub endpoint_id: i64,
    /// What.
    pub event_id: i64,
    /// Whose.
    pub tenant_id: String,
    /// The event's kind.
    pub kind: String,
    /// How often it was tried.
    pub attempts: i32,
    /// When it is tried next.
    pub next_attempt_at: DateTime<Utc>,
    /// When it arrived.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When it was given up.
    pub dead_at: Option<DateTime<Utc>>,
    /// The receiver's last status.
    pub last_status: Option<i32>,
    /// What was wrong the last time.
    pub last_problem: Option<String>,
}

/// Deliveries after an event, the oldest first; only the given-up or the waiting ones when asked.
pub async fn list_deliveries(
    conn: &mut PgConnection,
    state: Option<&str>,
    after_event_id: i64,
    limit: i64,
) -> Result<Vec<DeliveryRow>, Fault> {
    Ok(sqlx::query_as!(
        DeliveryRow,
        r#"-- outbox::list_deliveries
           SELECT d.endpoint_id, d.event_id, d.tenant_id, e.kind, d.attempts, d.next_attempt_at, d.delivered_at,
                  d.dead_at, last.status AS "last_status?", last.problem AS "last_problem?"
             FROM webhook_deliveries d
             JOIN events e ON e.event_id = d.event_id
             LEFT JOIN LATERAL (
                  SELECT status, problem FROM webhook_attempts a
                   WHERE a.endpoint_id = d.endpoint_id AND a.event_id = d.event_id
                   ORDER BY attempt_id DESC LIMIT 1
             ) last ON true
            WHERE d.event_id > $2
              AND CASE $1::text
                      WHEN 'dead' THEN d.dead_at IS NOT NULL
                      WHEN 'waiting' THEN d.dead_at IS NULL AND d.delivered_at IS NULL
                      WHEN 'delivered' THEN d.delivered_at IS NOT NULL
                      ELSE true
                  END
            ORDER BY d.event_id, d.endpoint_id
            LIMIT $3"#,
        state,
        after_event_id,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Puts a delivery that was given up, or that arrived, back into the queue. `false` when there is none.
pub async fn replay(
    conn: &mut PgConnection,
    endpoint_id: i64,
    event_id: i64,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- outbox::replay
         UPDATE webhook_deliveries
            SET dead_at = NULL, delivered_at = NULL, claimed_until = NULL, attempts = 0, next_attempt_at = $3
          WHERE endpoint_id = $1 AND event_id = $2",
        endpoint_id,
        event_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// When the oldest event that waits was written.
///
/// # Errors
/// A fault.
pub async fn oldest_waiting_at(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- outbox::oldest_waiting_at
           SELECT min(e.created_at) AS "oldest?"
             FROM webhook_deliveries d
             JOIN events e ON e.event_id = d.event_id
             JOIN webhook_endpoints p ON p.endpoint_id = d.endpoint_id AND p.disabled_at IS NULL
            WHERE d.delivered_at IS NULL AND d.dead_at IS NULL"#
    )
    .fetch_one(conn)
    .await?)
}
