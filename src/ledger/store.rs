//! Every statement that posting issues. Nothing else in the crate writes `wallet_transactions`.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::balance::{DecidedRow, Decision, Original, WalletState};
use super::chain::Hash;
use super::{Entry, Kind};
use crate::fault::Fault;
use crate::ids::{Pocket, Reference, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

type WalletKey = (TenantId, CurrencyCode);

/// Locks wallets and says which of the asked ones exist.
///
/// The ORDER BY carries weight: rows are locked in the order they are returned, so two transactions that want
/// the same wallets take them in the same order and never wait for each other in a circle. NO KEY UPDATE is
/// the weakest lock that excludes another posting, and lets the foreign keys of other tables through.
pub async fn lock_wallets(conn: &mut PgConnection, keys: &[WalletKey]) -> Result<HashMap<WalletKey, i64>, Fault> {
    let tenants: Vec<String> = keys.iter().map(|(tenant, _)| tenant.to_string()).collect();
    let currencies: Vec<String> = keys.iter().map(|(_, currency)| currency.to_string()).collect();
    let rows = sqlx::query!(
        "-- ledger::lock_wallets
         SELECT w.wallet_id, w.tenant_id, w.currency
           FROM wallets w
           JOIN unnest($1::text[], $2::text[]) AS wanted (tenant_id, currency)
             ON w.tenant_id = wanted.tenant_id AND w.currency = wanted.currency
          ORDER BY w.wallet_id
            FOR NO KEY UPDATE OF w",
        &tenants,
        &currencies,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let key = (TenantId::from_column(row.tenant_id)?, CurrencyCode::from_column(row.currency)?);
            Ok((key, row.wallet_id))
        })
        .collect()
}

/// Opens the wallets that are missing, of tenants and currencies that exist.
pub async fn create_wallets(conn: &mut PgConnection, keys: &[WalletKey], now: DateTime<Utc>) -> Result<(), Fault> {
    let tenants: Vec<String> = keys.iter().map(|(tenant, _)| tenant.to_string()).collect();
    let currencies: Vec<String> = keys.iter().map(|(_, currency)| currency.to_string()).collect();
    sqlx::query!(
        "-- ledger::create_wallets
         INSERT INTO wallets (tenant_id, currency, created_at)
         SELECT t.tenant_id, c.code, $3
           FROM unnest($1::text[], $2::text[]) AS wanted (tenant_id, currency)
           JOIN tenants t ON t.tenant_id = wanted.tenant_id
           JOIN currencies c ON c.code = wanted.currency
          ORDER BY t.tenant_id, c.code
             ON CONFLICT ON CONSTRAINT wallets_tenant_currency_key DO NOTHING",
        &tenants,
        &currencies,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn tenant_exists(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- ledger::tenant_exists
           SELECT EXISTS (SELECT FROM tenants WHERE tenant_id = $1) AS "exists!""#,
        tenant_id.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

/// What was read after the lock.
pub struct Reading {
    /// The wallets.
    pub states: HashMap<i64, WalletState>,
    /// Entries that are booked already: position and row.
    pub booked: Vec<(usize, i64)>,
}

/// Reads the heads, the sums (from the last checkpoint on) and the events that are booked already.
pub async fn read_wallets(
    conn: &mut PgConnection,
    wallet_ids: &HashMap<WalletKey, i64>,
    entries: &[Entry],
) -> Result<Reading, Fault> {
    let ids: Vec<i64> = wallet_ids.values().copied().collect();
    let entry_wallets = entry_wallet_ids(wallet_ids, entries)?;
    let kinds: Vec<String> = entries.iter().map(|entry| entry.kind.to_string()).collect();
    let references: Vec<String> = entries.iter().map(|entry| entry.reference.to_string()).collect();
    let rows = sqlx::query!(
        r#"-- ledger::read_wallets
           WITH booked AS MATERIALIZED (
               SELECT x.wallet_id, array_agg(asked.position) AS positions, array_agg(x.seq) AS seqs
                 FROM unnest($2::bigint[], $3::text[], $4::text[]) WITH ORDINALITY
                      AS asked (wallet_id, kind, reference, position)
                 JOIN wallet_transactions x
                   ON x.wallet_id = asked.wallet_id AND x.kind = asked.kind AND x.reference = asked.reference
                GROUP BY x.wallet_id
           )
           SELECT w.wallet_id, w.head_seq, w.head_hash, w.head_recorded_at,
                  coalesce(c.seq, 0) AS "checkpoint_seq!",
                  c.pocket_sums AS "checkpoint_sums?",
                  tail.pockets AS "tail_pockets?: Vec<String>",
                  tail.sums AS "tail_sums?: Vec<i64>",
                  booked.positions AS "booked_positions?: Vec<i64>",
                  booked.seqs AS "booked_seqs?: Vec<i64>"
             FROM wallets w
             LEFT JOIN LATERAL (
                  SELECT seq, pocket_sums FROM wallet_checkpoints
                   WHERE wallet_id = w.wallet_id ORDER BY seq DESC LIMIT 1
             ) c ON true
             LEFT JOIN LATERAL (
                  SELECT array_agg(pocket) AS pockets, array_agg(pocket_sum) AS sums
                    FROM (SELECT pocket, sum(amount)::bigint AS pocket_sum
                            FROM wallet_transactions
                           WHERE wallet_id = w.wallet_id AND seq > coalesce(c.seq, 0)
                           GROUP BY pocket) per_pocket
             ) tail ON true
             LEFT JOIN booked ON booked.wallet_id = w.wallet_id
            WHERE w.wallet_id = ANY ($1)"#,
        &ids,
        &entry_wallets,
        &kinds,
        &references,
    )
    .fetch_all(conn)
    .await?;
    let mut states = HashMap::with_capacity(rows.len());
    let mut booked = Vec::new();
    for row in rows {
        for (position, seq) in row.booked_positions.unwrap_or_default().iter().zip(row.booked_seqs.unwrap_or_default())
        {
            let index = usize::try_from(position.saturating_sub(1)).unwrap_or_default();
            booked.push((index, seq));
        }
        let pockets = add_up(
            row.checkpoint_sums.as_ref(),
            row.tail_pockets.unwrap_or_default(),
            row.tail_sums.unwrap_or_default(),
        )?;
        let state = WalletState {
            wallet_id: row.wallet_id,
            head_seq: row.head_seq,
            head_hash: hash_from_column(&row.head_hash)?,
            head_recorded_at: row.head_recorded_at,
            checkpoint_seq: row.checkpoint_seq,
            pockets,
            held: MinorUnits::ZERO,
        };
        states.insert(row.wallet_id, state);
    }
    Ok(Reading { states, booked })
}

/// The sums of a checkpoint and of the rows after it, as one.
pub fn add_up(
    checkpoint: Option<&serde_json::Value>,
    tail_pockets: Vec<String>,
    tail_sums: Vec<i64>,
) -> Result<BTreeMap<Pocket, MinorUnits>, Fault> {
    let mut pockets = match checkpoint {
        Some(sums) => sums_from_column(sums)?,
        None => BTreeMap::new(),
    };
    for (pocket, sum) in tail_pockets.into_iter().zip(tail_sums) {
        let total = pockets.entry(Pocket::from_column(pocket)?).or_default();
        *total = total
            .checked_add(MinorUnits::new(sum))
            .ok_or_else(|| Fault::new("a pocket's sum is beyond what an i64 holds"))?;
    }
    pockets.retain(|_, sum| !sum.is_zero());
    Ok(pockets)
}

/// The sums of a checkpoint.
pub fn sums_from_column(sums: &serde_json::Value) -> Result<BTreeMap<Pocket, MinorUnits>, Fault> {
    let broken = || Fault::new("a checkpoint's sums are not an object of whole numbers");
    sums.as_object()
        .ok_or_else(broken)?
        .iter()
        .map(|(pocket, sum)| {
            let pocket = Pocket::from_column(pocket.clone())?;
            Ok((pocket, MinorUnits::new(sum.as_i64().ok_or_else(broken)?)))
        })
        .collect()
}

pub fn hash_from_column(bytes: &[u8]) -> Result<Hash, Fault> {
    Hash::try_from(bytes).map_err(|_| Fault::new("a stored hash is not 32 bytes long"))
}

fn entry_wallet_ids(wallet_ids: &HashMap<WalletKey, i64>, entries: &[Entry]) -> Result<Vec<i64>, Fault> {
    entries
        .iter()
        .map(|entry| {
            wallet_ids
                .get(&(entry.tenant_id.clone(), entry.currency.clone()))
                .copied()
                .ok_or_else(|| Fault::new("an entry's wallet was not locked"))
        })
        .collect()
}

/// The rows that entries want to give back, with what was given back already. Most batches name none.
pub async fn read_originals(
    conn: &mut PgConnection,
    wallet_ids: &HashMap<WalletKey, i64>,
    entries: &[Entry],
) -> Result<HashMap<(i64, i64), Original>, Fault> {
    let mut wallets = Vec::new();
    let mut seqs = Vec::new();
    for (entry, wallet_id) in entries.iter().zip(entry_wallet_ids(wallet_ids, entries)?) {
        if let Some(seq) = entry.original_seq {
            wallets.push(wallet_id);
            seqs.push(seq);
        }
    }
    if seqs.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query!(
        r#"-- ledger::read_originals
           SELECT x.wallet_id, x.seq, x.kind, x.amount,
                  coalesce((SELECT sum(y.amount) FROM wallet_transactions y
                             WHERE y.wallet_id = x.wallet_id AND y.original_seq = x.seq), 0)::bigint AS "given_back!"
             FROM (SELECT DISTINCT * FROM unnest($1::bigint[], $2::bigint[]) AS u (wallet_id, seq)) wanted
             JOIN wallet_transactions x ON x.wallet_id = wanted.wallet_id AND x.seq = wanted.seq"#,
        &wallets,
        &seqs,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let original = Original {
                kind: Kind::from_column(&row.kind)?,
                amount: MinorUnits::new(row.amount),
                given_back: MinorUnits::new(row.given_back),
            };
            Ok(((row.wallet_id, row.seq), original))
        })
        .collect()
}

/// Writes the rows, moves the heads and leaves checkpoints where they are due, in one statement.
#[expect(clippy::as_conversions, reason = "the query macro takes the type of an array with NULLs this way")]
pub async fn write(conn: &mut PgConnection, decision: &Decision) -> Result<(), Fault> {
    let rows: Vec<&DecidedRow> = decision.rows.iter().flatten().collect();
    let wallet_ids: Vec<i64> = rows.iter().map(|decided| decided.row.wallet_id).collect();
    let seqs: Vec<i64> = rows.iter().map(|decided| decided.row.seq).collect();
    let tenants: Vec<String> = rows.iter().map(|decided| decided.row.tenant_id.to_string()).collect();
    let currencies: Vec<String> = rows.iter().map(|decided| decided.row.currency.to_string()).collect();
    let kinds: Vec<String> = rows.iter().map(|decided| decided.row.kind.to_string()).collect();
    let amounts: Vec<i64> = rows.iter().map(|decided| decided.row.amount.get()).collect();
    let pockets: Vec<String> = rows.iter().map(|decided| decided.row.pocket.to_string()).collect();
    let references: Vec<String> = rows.iter().map(|decided| decided.row.reference.to_string()).collect();
    let original_seqs: Vec<Option<i64>> = rows.iter().map(|decided| decided.row.original_seq).collect();
    let reasons: Vec<Option<String>> =
        rows.iter().map(|decided| decided.row.reason.as_ref().map(ToString::to_string)).collect();
    let actors: Vec<String> = rows.iter().map(|decided| decided.row.actor.clone()).collect();
    let metadata: Vec<String> = rows.iter().map(|decided| decided.row.metadata.as_str().to_owned()).collect();
    let recorded: Vec<DateTime<Utc>> = rows.iter().map(|decided| decided.row.recorded_at).collect();
    let hashes: Vec<Vec<u8>> = rows.iter().map(|decided| decided.hash.to_vec()).collect();

    let heads = &decision.wallets;
    let head_wallets: Vec<i64> = heads.iter().map(|wallet| wallet.wallet_id).collect();
    let head_seqs: Vec<i64> = heads.iter().map(|wallet| wallet.head_seq).collect();
    let head_hashes: Vec<Vec<u8>> = heads.iter().map(|wallet| wallet.head_hash.to_vec()).collect();
    let head_times: Vec<Option<DateTime<Utc>>> = heads.iter().map(|wallet| wallet.head_recorded_at).collect();

    let mut checkpoint_wallets: Vec<i64> = Vec::new();
    let mut checkpoint_sums: Vec<String> = Vec::new();
    for wallet in heads.iter().filter(|wallet| wallet.checkpoint_is_due()) {
        checkpoint_wallets.push(wallet.wallet_id);
        checkpoint_sums.push(sums_to_text(&wallet.pockets));
    }

    let written = sqlx::query!(
        r#"-- ledger::write
           WITH new_rows AS (
               INSERT INTO wallet_transactions
                      (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference, original_seq, reason,
                       actor, metadata, recorded_at, hash)
               SELECT r.wallet_id, r.seq, r.tenant_id, r.currency, r.kind, r.amount, r.pocket, r.reference,
                      r.original_seq, r.reason, r.actor, r.metadata::json, r.recorded_at, r.hash
                 FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[],
                             $7::text[], $8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[],
                             $13::timestamptz[], $14::bytea[])
                      AS r (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference, original_seq,
                            reason, actor, metadata, recorded_at, hash)
               RETURNING 1
           ), new_heads AS (
               UPDATE wallets w
                  SET head_seq = h.seq, head_hash = h.hash, head_recorded_at = h.recorded_at
                 FROM unnest($15::bigint[], $16::bigint[], $17::bytea[], $18::timestamptz[])
                      AS h (wallet_id, seq, hash, recorded_at)
                WHERE w.wallet_id = h.wallet_id
               RETURNING w.wallet_id, w.head_seq, w.head_recorded_at
           ), new_checkpoints AS (
               INSERT INTO wallet_checkpoints (wallet_id, seq, pocket_sums, recorded_at)
               SELECT h.wallet_id, h.head_seq, p.sums::jsonb, h.head_recorded_at
                 FROM unnest($19::bigint[], $20::text[]) AS p (wallet_id, sums)
                 JOIN new_heads h ON h.wallet_id = p.wallet_id
           )
           SELECT (SELECT count(*) FROM new_rows) AS "rows!", (SELECT count(*) FROM new_heads) AS "heads!""#,
        &wallet_ids,
        &seqs,
        &tenants,
        &currencies,
        &kinds,
        &amounts,
        &pockets,
        &references,
        &original_seqs as &[Option<i64>],
        &reasons as &[Option<String>],
        &actors,
        &metadata,
        &recorded,
        &hashes,
        &head_wallets,
        &head_seqs,
        &head_hashes,
        &head_times as &[Option<DateTime<Utc>>],
        &checkpoint_wallets,
        &checkpoint_sums,
    )
    .fetch_one(conn)
    .await?;
    if usize::try_from(written.rows) != Ok(rows.len()) || usize::try_from(written.heads) != Ok(heads.len()) {
        return Err(Fault::new("the database wrote another number of rows than was decided"));
    }
    Ok(())
}

fn sums_to_text(pockets: &BTreeMap<Pocket, MinorUnits>) -> String {
    let sums: serde_json::Map<String, serde_json::Value> =
        pockets.iter().map(|(pocket, sum)| (pocket.to_string(), sum.get().into())).collect();
    serde_json::Value::Object(sums).to_string()
}

pub async fn find(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    kind: &Kind,
    reference: &Reference,
) -> Result<Option<(i64, MinorUnits)>, Fault> {
    let row = sqlx::query!(
        "-- ledger::find
         SELECT x.seq, x.amount
           FROM wallets w
           JOIN wallet_transactions x ON x.wallet_id = w.wallet_id
          WHERE w.tenant_id = $1 AND w.currency = $2 AND x.kind = $3 AND x.reference = $4",
        tenant_id.as_str(),
        currency.as_str(),
        kind.as_str(),
        reference.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.seq, MinorUnits::new(row.amount))))
}
