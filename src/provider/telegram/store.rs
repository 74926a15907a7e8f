//! Every statement about updates and the list of transactions.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;

/// Keeps an update about a payment; one that came before is kept as it came first.
pub async fn keep_update(
    conn: &mut PgConnection,
    bot_id: i64,
    update_id: i64,
    kind: &str,
    body: &str,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- telegram::keep_update
         INSERT INTO telegram_updates (bot_id, update_id, kind, body, received_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT ON CONSTRAINT telegram_updates_pkey DO NOTHING",
        bot_id,
        update_id,
        kind,
        body,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn keep_unread(
    conn: &mut PgConnection,
    bot_id: i64,
    hash: &[u8; 32],
    body: &[u8],
    why: &str,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- telegram::keep_unread
         INSERT INTO telegram_unread_updates (bot_id, body_hash, body, why, received_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT ON CONSTRAINT telegram_unread_updates_pkey DO NOTHING",
        bot_id,
        hash.as_slice(),
        body,
        why,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// When a refund of a payment that we don't know was told first.
pub async fn first_told(conn: &mut PgConnection, bot_id: i64, update_id: i64) -> Result<Option<DateTime<Utc>>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- telegram::first_told
         SELECT received_at FROM telegram_updates WHERE bot_id = $1 AND update_id = $2",
        bot_id,
        update_id,
    )
    .fetch_optional(conn)
    .await?)
}

/// How far a bot's list has been read, and when a reading that came to its end began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    pub lines_read: i64,
    pub read_at: Option<DateTime<Utc>>,
    /// Since when the book answers for the bot's payments; none when from its first line on.
    pub begins_at: Option<DateTime<Utc>>,
}

/// Begins the book of a bot, unless it has begun. What the bot was told of before counts, too.
pub async fn begin(conn: &mut PgConnection, bot_id: i64, now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- telegram::begin
         INSERT INTO telegram_statements (bot_id, lines_read, begins_at)
         SELECT $1, 0, least($2, (SELECT min(received_at) FROM telegram_updates WHERE bot_id = $1))
          WHERE NOT EXISTS (SELECT FROM telegram_statements WHERE bot_id = $1)
             ON CONFLICT ON CONSTRAINT telegram_statements_pkey DO NOTHING",
        bot_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn find_cursor(conn: &mut PgConnection, bot_id: i64) -> Result<Cursor, Fault> {
    let row = sqlx::query_as!(
        Cursor,
        "-- telegram::find_cursor
         SELECT lines_read, read_at, begins_at FROM telegram_statements WHERE bot_id = $1",
        bot_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.unwrap_or_default())
}

/// Moves a bot's place in its list forward, never back.
pub async fn move_cursor(
    conn: &mut PgConnection,
    bot_id: i64,
    lines_read: i64,
    read_at: Option<DateTime<Utc>>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- telegram::move_cursor
         INSERT INTO telegram_statements (bot_id, lines_read, read_at) VALUES ($1, $2, $3)
             ON CONFLICT ON CONSTRAINT telegram_statements_pkey DO UPDATE
            SET lines_read = greatest(telegram_statements.lines_read, excluded.lines_read),
                read_at = greatest(telegram_statements.read_at, excluded.read_at)",
        bot_id,
        lines_read,
        read_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Moves a bot's place back to the beginning of its list, since that is another list.
pub async fn restart_cursor(conn: &mut PgConnection, bot_id: i64) -> Result<(), Fault> {
    sqlx::query!(
        "-- telegram::restart_cursor
         UPDATE telegram_statements SET lines_read = 0 WHERE bot_id = $1",
        bot_id,
    )
    .execute(conn)
    .await?;
    Ok(())
}
