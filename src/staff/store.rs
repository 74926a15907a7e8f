//! Every statement about staff, sessions and attempts to log in.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{Member, Role, Username};
use crate::fault::Fault;

/// An account with what is compared.
pub struct Account {
    pub member: Member,
    pub password_hash: String,
    pub totp_secret: Option<Vec<u8>>,
    pub totp_step: Option<i64>,
}

struct AccountRow {
    staff_id: i64,
    username: String,
    role: String,
    password_hash: String,
    totp_secret: Option<Vec<u8>>,
    totp_step: Option<i64>,
    created_at: DateTime<Utc>,
    disabled_at: Option<DateTime<Utc>>,
}

impl TryFrom<AccountRow> for Account {
    type Error = Fault;

    fn try_from(row: AccountRow) -> Result<Self, Fault> {
        let role = Role::parse(&row.role).map_err(|error| Fault::new("a stored role is unknown").because(error))?;
        Ok(Self {
            member: Member {
                staff_id: row.staff_id,
                username: Username::from_column(&row.username)?,
                role,
                has_second_factor: row.totp_secret.is_some(),
                created_at: row.created_at,
                disabled_at: row.disabled_at,
            },
            password_hash: row.password_hash,
            totp_secret: row.totp_secret,
            totp_step: row.totp_step,
        })
    }
}

pub async fn insert(
    conn: &mut PgConnection,
    username: &Username,
    role: Role,
    password_hash: &str,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- staff::insert
         INSERT INTO staff (username, role, password_hash, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT ON CONSTRAINT staff_username_key DO NOTHING",
        username.as_str(),
        role.as_str(),
        password_hash,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find(conn: &mut PgConnection, username: &Username) -> Result<Option<Account>, Fault> {
    sqlx::query_as!(
        AccountRow,
        "-- staff::find
         SELECT staff_id, username, role, password_hash, totp_secret, totp_step, created_at, disabled_at
           FROM staff WHERE username = $1",
        username.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(Account::try_from)
    .transpose()
}

/// Locks an account until the transaction ends.
pub async fn lock(conn: &mut PgConnection, username: &Username) -> Result<Option<Account>, Fault> {
    sqlx::query_as!(
        AccountRow,
        "-- staff::lock
         SELECT staff_id, username, role, password_hash, totp_secret, totp_step, created_at, disabled_at
           FROM staff WHERE username = $1 FOR NO KEY UPDATE",
        username.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(Account::try_from)
    .transpose()
}

pub async fn lock_member(conn: &mut PgConnection, username: &Username) -> Result<Option<Member>, Fault> {
    Ok(lock(conn, username).await?.map(|account| account.member))
}

pub async fn list(conn: &mut PgConnection) -> Result<Vec<Member>, Fault> {
    sqlx::query_as!(
        AccountRow,
        "-- staff::list
         SELECT staff_id, username, role, password_hash, totp_secret, totp_step, created_at, disabled_at
           FROM staff ORDER BY staff_id"
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| Account::try_from(row).map(|account| account.member))
    .collect()
}

fn expect_one(rows: u64) -> Result<(), Fault> {
    if rows == 1 { Ok(()) } else { Err(Fault::new("a locked account was not there to be changed")) }
}

pub async fn set_role(conn: &mut PgConnection, staff_id: i64, role: Role) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- staff::set_role
         UPDATE staff SET role = $2 WHERE staff_id = $1",
        staff_id,
        role.as_str()
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn set_password(conn: &mut PgConnection, staff_id: i64, password_hash: &str) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- staff::set_password
         UPDATE staff SET password_hash = $2 WHERE staff_id = $1",
        staff_id,
        password_hash
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn set_second_factor(conn: &mut PgConnection, staff_id: i64, secret: Option<&[u8]>) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- staff::set_second_factor
         UPDATE staff SET totp_secret = $2, totp_step = NULL WHERE staff_id = $1",
        staff_id,
        secret
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn set_totp_step(conn: &mut PgConnection, staff_id: i64, step: i64) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- staff::set_totp_step
         UPDATE staff SET totp_step = $2 WHERE staff_id = $1",
        staff_id,
        step
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn set_disabled(conn: &mut PgConnection, staff_id: i64, now: DateTime<Utc>) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- staff::set_disabled
         UPDATE staff SET disabled_at = coalesce(disabled_at, $2) WHERE staff_id = $1",
        staff_id,
        now
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn insert_session(
    conn: &mut PgConnection,
    token_hash: &[u8; 32],
    staff_id: i64,
    csrf_token: &str,
    now: DateTime<Utc>,
    expires_at: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- staff::insert_session
         INSERT INTO staff_sessions (token_hash, staff_id, csrf_token, created_at, last_seen_at, expires_at)
         VALUES ($1, $2, $3, $4, $4, $5)",
        &token_hash[..],
        staff_id,
        csrf_token,
        now,
        expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A session as it stands.
pub struct Session {
    pub member: Member,
    pub csrf_token: String,
    pub last_seen_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

pub async fn find_session(conn: &mut PgConnection, token_hash: &[u8; 32]) -> Result<Option<Session>, Fault> {
    let row = sqlx::query!(
        "-- staff::find_session
         SELECT s.csrf_token, s.last_seen_at, s.expires_at, s.ended_at,
                p.staff_id, p.username, p.role, p.password_hash, p.totp_secret, p.totp_step, p.created_at, p.disabled_at
           FROM staff_sessions s JOIN staff p ON p.staff_id = s.staff_id
          WHERE s.token_hash = $1",
        &token_hash[..],
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| {
        let account = Account::try_from(AccountRow {
            staff_id: row.staff_id,
            username: row.username,
            role: row.role,
            password_hash: row.password_hash,
            totp_secret: row.totp_secret,
            totp_step: row.totp_step,
            created_at: row.created_at,
            disabled_at: row.disabled_at,
        })?;
        Ok(Session {
            member: account.member,
            csrf_token: row.csrf_token,
            last_seen_at: row.last_seen_at,
            expires_at: row.expires_at,
            ended_at: row.ended_at,
        })
    })
    .transpose()
}

pub async fn set_seen(conn: &mut PgConnection, token_hash: &[u8; 32], now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- staff::set_seen
         UPDATE staff_sessions SET last_seen_at = greatest(last_seen_at, $2) WHERE token_hash = $1",
        &token_hash[..],
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a session; `false` when it had ended.
pub async fn end_session(conn: &mut PgConnection, token_hash: &[u8; 32], now: DateTime<Utc>) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- staff::end_session
         UPDATE staff_sessions SET ended_at = $2 WHERE token_hash = $1 AND ended_at IS NULL",
        &token_hash[..],
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn end_sessions(conn: &mut PgConnection, staff_id: i64, now: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!(
        "-- staff::end_sessions
         UPDATE staff_sessions SET ended_at = $2 WHERE staff_id = $1 AND ended_at IS NULL",
        staff_id,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lets attempts of one name and of one address come one after another until the transaction ends.
pub async fn lock_attempts(conn: &mut PgConnection, name: &str, address: &str) -> Result<(), Fault> {
    sqlx::query!(
        r#"-- staff::lock_attempts
           SELECT pg_advisory_xact_lock(key) IS NULL AS "locked!"
             FROM (SELECT DISTINCT hashtextextended(x, 0) AS key
                     FROM unnest(ARRAY['login name ' || $1::text, 'login address ' || $2::text]) AS x
                    ORDER BY key) keys"#,
        name,
        address,
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// Attempts within the window.
pub struct Attempts {
    pub count: i64,
    pub oldest: Option<DateTime<Utc>>,
}

pub async fn attempts_of_name(conn: &mut PgConnection, name: &str, since: DateTime<Utc>) -> Result<Attempts, Fault> {
    Ok(sqlx::query_as!(
        Attempts,
        r#"-- staff::attempts_of_name
           SELECT count(*) AS "count!", min(at) AS oldest FROM login_failures WHERE username = $1 AND at > $2"#,
        name,
        since,
    )
    .fetch_one(conn)
    .await?)
}

pub async fn attempts_of_address(
    conn: &mut PgConnection,
    address: &str,
    since: DateTime<Utc>,
) -> Result<Attempts, Fault> {
    Ok(sqlx::query_as!(
        Attempts,
        r#"-- staff::attempts_of_address
           SELECT count(*) AS "count!", min(at) AS oldest FROM login_failures WHERE address = $1 AND at > $2"#,
        address,
        since,
    )
    .fetch_one(conn)
    .await?)
}

pub async fn insert_attempt(
    conn: &mut PgConnection,
    name: &str,
    address: &str,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- staff::insert_attempt
         INSERT INTO login_failures (username, address, at) VALUES ($1, $2, $3)",
        name,
        address,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes that the audit hears of a throttled name or address; `false` when it has heard since a moment. Attempts of
/// one name or address come one after another.
pub async fn tell_throttled(
    conn: &mut PgConnection,
    subject: &str,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- staff::tell_throttled
         INSERT INTO login_throttles (subject, told_at)
         SELECT $1, $3 WHERE NOT EXISTS (SELECT FROM login_throttles WHERE subject = $1 AND told_at > $2)",
        subject,
        since,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn forget_attempts(conn: &mut PgConnection, before: DateTime<Utc>) -> Result<(), Fault> {
    sqlx::query!("-- staff::forget_throttles\n DELETE FROM login_throttles WHERE told_at < $1", before)
        .execute(&mut *conn)
        .await?;
    sqlx::query!(
        "-- staff::forget_attempts
         DELETE FROM login_failures WHERE at < $1",
        before
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn forget_attempts_of_name(conn: &mut PgConnection, name: &str) -> Result<(), Fault> {
    sqlx::query!(
        "-- staff::forget_attempts_of_name
         DELETE FROM login_failures WHERE username = $1",
        name
    )
    .execute(conn)
    .await?;
    Ok(())
}
