//! Every statement about idempotency keys.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

use super::Claim;
use crate::fault::Fault;

/// A key as it stands.
pub struct Stored {
    pub operation: String,
    pub hash: [u8; 32],
    pub request: Value,
    pub status: u16,
    pub answer: String,
}

/// Inserts the key; `false` when it is there, after the transaction that put it there has ended.
pub async fn insert(conn: &mut PgConnection, claim: &Claim, now: DateTime<Utc>) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- idempotency::insert
         INSERT INTO idempotency_keys (client, key, operation, request_hash, request, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO NOTHING",
        claim.client.as_str(),
        claim.key.0,
        claim.operation,
        &claim.hash[..],
        claim.request.to_string(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find(conn: &mut PgConnection, claim: &Claim) -> Result<Stored, Fault> {
    let row = sqlx::query!(
        "-- idempotency::find
           SELECT operation, request_hash, request, status, answer
             FROM idempotency_keys WHERE client = $1 AND key = $2",
        claim.client.as_str(),
        claim.key.0,
    )
    .fetch_one(conn)
    .await?;
    let unanswered = || Fault::new("a committed idempotency key has no answer");
    Ok(Stored {
        operation: row.operation,
        hash: row.request_hash.try_into().map_err(|_| Fault::new("a stored request hash is not 32 bytes long"))?,
        request: serde_json::from_str(&row.request)
            .map_err(|error| Fault::new("a stored request is not JSON").because(error))?,
        status: row.status.and_then(|status| u16::try_from(status).ok()).ok_or_else(unanswered)?,
        answer: row.answer.ok_or_else(unanswered)?,
    })
}

pub async fn finish(conn: &mut PgConnection, claim: &Claim, status: u16, body: &str) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- idempotency::finish
         UPDATE idempotency_keys SET status = $3, answer = $4
          WHERE client = $1 AND key = $2 AND status IS NULL",
        claim.client.as_str(),
        claim.key.0,
        i16::try_from(status).unwrap_or(500),
        body,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 1 {
        Ok(())
    } else {
        Err(Fault::new("a claimed idempotency key was not there to finish"))
    }
}
