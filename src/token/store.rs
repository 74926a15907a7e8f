//! Every statement about tokens.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{Scope, Token};
use crate::fault::Fault;
use crate::ids::ClientName;

struct TokenRow {
    token_id: i64,
    client: String,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
}

impl TryFrom<TokenRow> for Token {
    type Error = Fault;

    fn try_from(row: TokenRow) -> Result<Self, Fault> {
        let scopes = row.scopes.iter().map(|scope| Scope::parse(scope)).collect::<Result<_, _>>();
        Ok(Self {
            token_id: row.token_id,
            client: ClientName::from_column(row.client)?,
            scopes: scopes.map_err(|error| Fault::new("a stored scope is unknown").because(error))?,
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
        })
    }
}

pub async fn insert(
    conn: &mut PgConnection,
    hash: &[u8; 32],
    client: &ClientName,
    scopes: &[Scope],
    expires_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<i64, Fault> {
    let scopes: Vec<String> = scopes.iter().map(|scope| scope.as_str().to_owned()).collect();
    let inserted = sqlx::query_scalar!(
        "-- token::insert
         INSERT INTO api_tokens (client, scopes, token_hash, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT ON CONSTRAINT api_tokens_hash_key DO NOTHING
         RETURNING token_id",
        client.as_str(),
        &scopes,
        &hash[..],
        now,
        expires_at,
    )
    .fetch_optional(&mut *conn)
    .await?;
    match inserted {
        Some(token_id) => Ok(token_id),
        None => Ok(sqlx::query_scalar!(
            "-- token::number
             SELECT token_id FROM api_tokens WHERE token_hash = $1",
            &hash[..]
        )
        .fetch_one(conn)
        .await?),
    }
}

pub async fn find(conn: &mut PgConnection, hash: &[u8; 32]) -> Result<Option<Token>, Fault> {
    sqlx::query_as!(
        TokenRow,
        "-- token::find
         SELECT token_id, client, scopes, created_at, expires_at, revoked_at FROM api_tokens WHERE token_hash = $1",
        &hash[..],
    )
    .fetch_optional(conn)
    .await?
    .map(Token::try_from)
    .transpose()
}

pub async fn list(conn: &mut PgConnection) -> Result<Vec<Token>, Fault> {
    sqlx::query_as!(
        TokenRow,
        "-- token::list
         SELECT token_id, client, scopes, created_at, expires_at, revoked_at FROM api_tokens ORDER BY token_id"
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(Token::try_from)
    .collect()
}

pub async fn set_revoked(conn: &mut PgConnection, token_id: i64, now: DateTime<Utc>) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- token::set_revoked
         UPDATE api_tokens SET revoked_at = $2 WHERE token_id = $1 AND revoked_at IS NULL",
        token_id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
