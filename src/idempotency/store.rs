//! Every statement about idempotency keys.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

use super::{Answer, Claim};
use crate::fault::Fault;

/// A key as it stands.
pub struct Stored {
    pub operation: String,
    pub hash: [u8; 32],
    pub request: Value,
    pub status: u16,
    pub answer: String,
}

/// Inserts keys and says how many were new; one that somebody else is inserting is waited for. The order of the
/// keys is that of the waits, so two of these never wait for each other in a circle.
pub async fn insert(conn: &mut PgConnection, claims: &[&Claim], now: DateTime<Utc>) -> Result<usize, Fault> {
    let clients: Vec<String> = claims.iter().map(|claim| claim.owner.clone()).collect();
    let keys: Vec<String> = claims.iter().map(|claim| claim.key.0.clone()).collect();
    let operations: Vec<String> = claims.iter().map(|claim| claim.operation.clone()).collect();
    let hashes: Vec<Vec<u8>> = claims.iter().map(|claim| claim.hash.to_vec()).collect();
    let requests: Vec<String> = claims.iter().map(|claim| claim.request.to_string()).collect();
    let done = sqlx::query!(
        "-- idempotency::insert
         INSERT INTO idempotency_keys (client, key, operation, request_hash, request, created_at)
         SELECT c.client, c.key, c.operation, c.request_hash, c.request, $6
           FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[])
                AS c (client, key, operation, request_hash, request)
          ORDER BY c.client, c.key
             ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO NOTHING",
        &clients,
        &keys,
        &operations,
        &hashes,
        &requests,
        now,
    )
    .execute(conn)
    .await?;
    usize::try_from(done.rows_affected()).map_err(|error| Fault::new("too many keys were inserted").because(error))
}

pub async fn find(conn: &mut PgConnection, claim: &Claim) -> Result<Stored, Fault> {
    let row = sqlx::query!(
        "-- idempotency::find
           SELECT operation, request_hash, request, status, answer
             FROM idempotency_keys WHERE client = $1 AND key = $2",
        claim.owner,
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

pub async fn finish(conn: &mut PgConnection, finished: &[(&Claim, &Answer)]) -> Result<(), Fault> {
    let clients: Vec<String> = finished.iter().map(|(claim, _)| claim.owner.clone()).collect();
    let keys: Vec<String> = finished.iter().map(|(claim, _)| claim.key.0.clone()).collect();
    let statuses: Vec<i16> = finished.iter().map(|(_, answer)| i16::try_from(answer.status).unwrap_or(500)).collect();
    let bodies: Vec<String> = finished.iter().map(|(_, answer)| answer.body.clone()).collect();
    let done = sqlx::query!(
        "-- idempotency::finish
         UPDATE idempotency_keys k SET status = f.status, answer = f.answer
           FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[]) AS f (client, key, status, answer)
          WHERE k.client = f.client AND k.key = f.key AND k.status IS NULL",
        &clients,
        &keys,
        &statuses,
        &bodies,
    )
    .execute(conn)
    .await?;
    if usize::try_from(done.rows_affected()) == Ok(finished.len()) {
        Ok(())
    } else {
        Err(Fault::new("a claimed idempotency key was not there to finish"))
    }
}
