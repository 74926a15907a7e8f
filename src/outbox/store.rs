//! Every statement about events, endpoints and deliveries.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use sqlx::PgConnection;

use super::Event;
use super::endpoint::Endpoint;
use crate::fault::Fault;

/// Inserts the events in their order and a delivery of each for every endpoint that is on.
#[expect(clippy::as_conversions, reason = "the query macro takes the type of an array of references this way")]
pub async fn insert_events(conn: &mut PgConnection, events: &[Event], now: DateTime<Utc>) -> Result<(), Fault> {
    let tenants: Vec<&str> = events.iter().map(|event| event.tenant_id.as_str()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let bodies: Vec<String> = events.iter().map(|event| event.body(now)).collect::<Result<_, Fault>>()?;
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
        &tenants as &[&str],
        &kinds as &[&str],
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

/// Hands an endpoint what another one, which is off, hasn't got: what waited for it, what was given up, and what has
/// happened since it was switched off. Returns how many events; none when there is no such endpoint that is off.
pub async fn take_over(
    conn: &mut PgConnection,
    endpoint_id: i64,
    from_endpoint_id: i64,
    now: DateTime<Utc>,
) -> Result<Option<u64>, Fault> {
    let off_since = sqlx::query_scalar!(
        r#"-- outbox::off_since
           SELECT disabled_at AS "disabled_at!" FROM webhook_endpoints
            WHERE endpoint_id = $1 AND disabled_at IS NOT NULL"#,
        from_endpoint_id,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(off_since) = off_since else { return Ok(None) };
    let done = sqlx::query!(
        "-- outbox::take_over
         INSERT INTO webhook_deliveries (endpoint_id, event_id, tenant_id, next_attempt_at)
         SELECT $1, e.event_id, e.tenant_id, $4
           FROM events e
           LEFT JOIN webhook_deliveries d ON d.endpoint_id = $2 AND d.event_id = e.event_id
          WHERE CASE WHEN d.event_id IS NULL THEN e.created_at >= $3 ELSE d.delivered_at IS NULL END
          ORDER BY e.event_id
             ON CONFLICT DO NOTHING",
        endpoint_id,
        from_endpoint_id,
        off_since,
        now,
    )
    .execute(conn)
    .await?;
    Ok(Some(done.rows_affected()))
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
    pub tenant_id: String,
    pub attempts: i32,
    pub until: DateTime<Utc>,
    pub url: String,
    pub secret: SecretString,
    pub body: String,
}

/// Claims deliveries: for each endpoint and tenant only the oldest one that isn't delivered, so that a tenant's
/// events arrive in their order, and a tenant whose event fails holds up nobody else's. At most `per_endpoint`
/// of one endpoint are under way at once, so that a slow receiver takes no more than its share.
///
/// It looks at `look` deliveries of each endpoint at most, those that are ready the longest. Those that have to
/// wait for an earlier one are in the way there: [`find_blocked`] finds and [`park`] removes them. The LATERALs
/// with their LIMITs are load-bearing: a join or an EXISTS in their place is planned as a scan of all that waits.
pub async fn claim(
    conn: &mut PgConnection,
    limit: i64,
    per_endpoint: i64,
    look: i64,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Vec<Claimed>, Fault> {
    let rows = sqlx::query!(
        r#"-- outbox::claim
           WITH ready AS (
               SELECT c.endpoint_id, c.event_id,
                      row_number() OVER (PARTITION BY c.endpoint_id ORDER BY c.next_attempt_at, c.event_id)
                      + (SELECT count(*) FROM webhook_deliveries u
                          WHERE u.endpoint_id = c.endpoint_id AND u.claimed_until > $4) AS place
                 FROM webhook_endpoints p
                CROSS JOIN LATERAL (
                      SELECT d.endpoint_id, d.event_id, d.tenant_id, d.next_attempt_at
                        FROM webhook_deliveries d
                       WHERE d.endpoint_id = p.endpoint_id
                         AND d.delivered_at IS NULL AND d.dead_at IS NULL AND NOT d.parked
                         AND d.next_attempt_at <= $4 AND (d.claimed_until IS NULL OR d.claimed_until <= $4)
                       ORDER BY d.next_attempt_at, d.event_id
                       LIMIT $3
                      ) c
                CROSS JOIN LATERAL (
                      SELECT e.event_id FROM webhook_deliveries e
                       WHERE e.endpoint_id = c.endpoint_id AND e.tenant_id = c.tenant_id
                         AND e.delivered_at IS NULL AND e.dead_at IS NULL
                       ORDER BY e.event_id LIMIT 1
                      ) first
                WHERE p.disabled_at IS NULL AND first.event_id = c.event_id
           ), locked AS (
               SELECT d.place_on_disk
                 FROM (SELECT * FROM ready WHERE place <= $2 ORDER BY place, event_id) r
                CROSS JOIN LATERAL (
                      SELECT d.ctid AS place_on_disk FROM webhook_deliveries d
                       WHERE d.endpoint_id = r.endpoint_id AND d.event_id = r.event_id
                         AND d.delivered_at IS NULL AND d.dead_at IS NULL
                         AND (d.claimed_until IS NULL OR d.claimed_until <= $4)
                       LIMIT 1
                         FOR UPDATE SKIP LOCKED
                      ) d
                LIMIT $1
           )
           UPDATE webhook_deliveries d
              SET claimed_until = $5, attempts = d.attempts + 1
            WHERE d.ctid = ANY (ARRAY(SELECT place_on_disk FROM locked))
           RETURNING d.endpoint_id, d.event_id, d.tenant_id, d.attempts,
                     (SELECT p.url FROM webhook_endpoints p WHERE p.endpoint_id = d.endpoint_id) AS "url!",
                     (SELECT p.secret FROM webhook_endpoints p WHERE p.endpoint_id = d.endpoint_id) AS "secret!",
                     (SELECT e.body FROM events e WHERE e.event_id = d.event_id) AS "body!""#,
        limit,
        per_endpoint,
        look,
        now,
        until,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Claimed {
            endpoint_id: row.endpoint_id,
            event_id: row.event_id,
            tenant_id: row.tenant_id,
            attempts: row.attempts,
            until,
            url: row.url,
            secret: SecretString::from(row.secret),
            body: row.body,
        })
        .collect())
}

/// A delivery by what its order depends on.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the names of the columns")]
pub struct Place {
    pub endpoint_id: i64,
    pub tenant_id: String,
    pub event_id: i64,
}

/// What a claim would look at in vain: ready, but behind an earlier event of its tenant.
pub async fn find_blocked(conn: &mut PgConnection, look: i64, now: DateTime<Utc>) -> Result<Vec<Place>, Fault> {
    Ok(sqlx::query_as!(
        Place,
        r#"-- outbox::find_blocked
           SELECT c.endpoint_id AS "endpoint_id!", c.tenant_id AS "tenant_id!", c.event_id AS "event_id!"
             FROM webhook_endpoints p
            CROSS JOIN LATERAL (
                  SELECT d.endpoint_id, d.event_id, d.tenant_id
                    FROM webhook_deliveries d
                   WHERE d.endpoint_id = p.endpoint_id
                     AND d.delivered_at IS NULL AND d.dead_at IS NULL AND NOT d.parked
                     AND d.next_attempt_at <= $2 AND (d.claimed_until IS NULL OR d.claimed_until <= $2)
                   ORDER BY d.next_attempt_at, d.event_id
                   LIMIT $1
                  ) c
            CROSS JOIN LATERAL (
                  SELECT e.event_id FROM webhook_deliveries e
                   WHERE e.endpoint_id = c.endpoint_id AND e.tenant_id = c.tenant_id
                     AND e.delivered_at IS NULL AND e.dead_at IS NULL
                   ORDER BY e.event_id LIMIT 1
                  ) first
            WHERE p.disabled_at IS NULL AND first.event_id < c.event_id"#,
        look,
        now,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks the order of each endpoint and tenant until the transaction ends. Parking and ending a delivery both
/// take this lock and read in a later statement, so nothing is parked behind an event that has just ended.
/// Only deliverers take it: whoever writes an event never waits for one. Taken in the order of the keys.
pub async fn lock_order(conn: &mut PgConnection, places: &[Place]) -> Result<(), Fault> {
    let endpoints: Vec<i64> = places.iter().map(|place| place.endpoint_id).collect();
    let tenants: Vec<String> = places.iter().map(|place| place.tenant_id.clone()).collect();
    sqlx::query!(
        r#"-- outbox::lock_order
           SELECT pg_advisory_xact_lock(k.endpoint, k.tenant)::text AS "locked?"
             FROM (SELECT DISTINCT hashint8(o.endpoint_id) AS endpoint, hashtext(o.tenant_id) AS tenant
                     FROM unnest($1::bigint[], $2::text[]) AS o (endpoint_id, tenant_id)
                    ORDER BY endpoint, tenant) k"#,
        &endpoints,
        &tenants,
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// Parks those of the deliveries that are still behind an earlier one, under [`lock_order`].
pub async fn park(conn: &mut PgConnection, places: &[Place]) -> Result<u64, Fault> {
    let endpoints: Vec<i64> = places.iter().map(|place| place.endpoint_id).collect();
    let events: Vec<i64> = places.iter().map(|place| place.event_id).collect();
    let done = sqlx::query!(
        "-- outbox::park
         UPDATE webhook_deliveries d
            SET parked = true
           FROM unnest($1::bigint[], $2::bigint[]) AS o (endpoint_id, event_id)
          WHERE d.endpoint_id = o.endpoint_id AND d.event_id = o.event_id
            AND d.delivered_at IS NULL AND d.dead_at IS NULL AND NOT d.parked
            AND EXISTS (SELECT FROM webhook_deliveries e
                         WHERE e.endpoint_id = d.endpoint_id AND e.tenant_id = d.tenant_id
                           AND e.event_id < d.event_id AND e.delivered_at IS NULL AND e.dead_at IS NULL)",
        &endpoints,
        &events,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Lets the next event of a tenant be claimed, under [`lock_order`].
pub async fn wake_next(conn: &mut PgConnection, place: &Place) -> Result<(), Fault> {
    sqlx::query!(
        "-- outbox::wake_next
         UPDATE webhook_deliveries
            SET parked = false
          WHERE endpoint_id = $1 AND parked
            AND event_id = (SELECT event_id FROM webhook_deliveries
                             WHERE endpoint_id = $1 AND tenant_id = $2 AND delivered_at IS NULL AND dead_at IS NULL
                             ORDER BY event_id LIMIT 1)",
        place.endpoint_id,
        place.tenant_id,
    )
    .execute(conn)
    .await?;
    Ok(())
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

/// Records an attempt and how the delivery goes on. A failure counts only while the claim is still ours: by
/// then another worker may be at it. What has arrived has arrived.
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
                dead_at = $8,
                next_attempt_at = coalesce($9, next_attempt_at)
          WHERE endpoint_id = $1 AND event_id = $2
            AND ($7::timestamptz IS NOT NULL OR (claimed_until = $10 AND delivered_at IS NULL))",
        claimed.endpoint_id,
        claimed.event_id,
        attempt.attempted_at,
        attempt.duration_ms,
        attempt.status,
        attempt.problem,
        delivered_at,
        dead_at,
        retry_at,
        claimed.until,
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

/// Deliveries after a place (event, endpoint), the oldest first; only those in a state when asked.
pub async fn list_deliveries(
    conn: &mut PgConnection,
    state: Option<&str>,
    (after_event_id, after_endpoint_id): (i64, i64),
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
            WHERE (d.event_id, d.endpoint_id) > ($2, $4)
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
        after_endpoint_id,
    )
    .fetch_all(conn)
    .await?)
}

/// What came of asking for an event again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// It is sent again.
    Queued,
    /// Nothing is sent to this endpoint any more.
    EndpointOff,
    /// There is no such delivery.
    Unknown,
}

/// Puts a delivery that was given up, or that arrived, back into the queue; one that waits is tried at once. An
/// attempt that is under way keeps its claim.
pub async fn replay(
    conn: &mut PgConnection,
    endpoint_id: i64,
    event_id: i64,
    now: DateTime<Utc>,
) -> Result<Replay, Fault> {
    let done = sqlx::query!(
        "-- outbox::replay
         UPDATE webhook_deliveries d
            SET claimed_until = CASE WHEN d.dead_at IS NULL AND d.delivered_at IS NULL THEN d.claimed_until END,
                dead_at = NULL, delivered_at = NULL, attempts = 0, next_attempt_at = $3, parked = false
           FROM webhook_endpoints p
          WHERE d.endpoint_id = $1 AND d.event_id = $2
            AND p.endpoint_id = d.endpoint_id AND p.disabled_at IS NULL",
        endpoint_id,
        event_id,
        now,
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 1 {
        return Ok(Replay::Queued);
    }
    let there = sqlx::query_scalar!(
        r#"-- outbox::delivery_exists
           SELECT EXISTS (SELECT FROM webhook_deliveries WHERE endpoint_id = $1 AND event_id = $2) AS "there!""#,
        endpoint_id,
        event_id,
    )
    .fetch_one(conn)
    .await?;
    Ok(if there { Replay::EndpointOff } else { Replay::Unknown })
}

/// When the oldest event that waits was written.
///
/// # Errors
/// A fault.
pub async fn oldest_waiting_at(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- outbox::oldest_waiting_at
           SELECT min(e.created_at) AS "oldest?"
             FROM webhook_endpoints p
            CROSS JOIN LATERAL (SELECT min(d.event_id) AS event_id FROM webhook_deliveries d
                                 WHERE d.endpoint_id = p.endpoint_id
                                   AND d.delivered_at IS NULL AND d.dead_at IS NULL) waiting
             JOIN events e ON e.event_id = waiting.event_id
            WHERE p.disabled_at IS NULL"#
    )
    .fetch_one(conn)
    .await?)
}
