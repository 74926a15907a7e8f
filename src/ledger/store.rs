//! Every statement that posting issues. Nothing else in the crate writes `wallet_transactions`.

#![expect(clippy::as_conversions, reason = "the query macro takes the type of an array of references this way")]

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::balance::{DecidedRow, Decision, Division, PocketRule, Promised, WalletState};
use super::chain::Hash;
use super::original::Original;
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
    let tenants: Vec<&str> = keys.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let currencies: Vec<&str> = keys.iter().map(|(_, currency)| currency.as_str()).collect();
    let rows = sqlx::query!(
        "-- ledger::lock_wallets
         SELECT w.wallet_id, w.tenant_id, w.currency
           FROM wallets w
           JOIN unnest($1::text[], $2::text[]) AS wanted (tenant_id, currency)
             ON w.tenant_id = wanted.tenant_id AND w.currency = wanted.currency
          ORDER BY w.wallet_id
            FOR NO KEY UPDATE OF w",
        &tenants as &[&str],
        &currencies as &[&str],
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
    let tenants: Vec<&str> = keys.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let currencies: Vec<&str> = keys.iter().map(|(_, currency)| currency.as_str()).collect();
    sqlx::query!(
        "-- ledger::create_wallets
         INSERT INTO wallets (tenant_id, currency, created_at)
         SELECT t.tenant_id, c.code, $3
           FROM unnest($1::text[], $2::text[]) AS wanted (tenant_id, currency)
           JOIN tenants t ON t.tenant_id = wanted.tenant_id
           JOIN currencies c ON c.code = wanted.currency
          ORDER BY t.tenant_id, c.code
             ON CONFLICT ON CONSTRAINT wallets_tenant_currency_key DO NOTHING",
        &tenants as &[&str],
        &currencies as &[&str],
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
    let kinds: Vec<&str> = entries.iter().map(|entry| entry.kind.as_str()).collect();
    let references: Vec<&str> = entries.iter().map(|entry| entry.reference.as_str()).collect();
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
           SELECT w.wallet_id, w.head_seq, w.head_hash, w.head_recorded_at, w.divided,
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
        &kinds as &[&str],
        &references as &[&str],
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
            divided: row.divided,
            division: Division::default(),
        };
        states.insert(row.wallet_id, state);
    }
    Ok(Reading { states, booked })
}

/// Adds the rules and the promises of the wallets that have any. Of pockets whose end is booked, only those are read
/// that entries name, that hold money (which comes back when a hold ends), or that holds keep something of.
pub async fn read_divisions(
    conn: &mut PgConnection,
    states: &mut HashMap<i64, WalletState>,
    entries: &[Entry],
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let divided: Vec<i64> = states.values().filter(|state| state.divided).map(|state| state.wallet_id).collect();
    if divided.is_empty() {
        return Ok(());
    }
    let with_money = states.values().filter(|state| state.divided).flat_map(|state| state.pockets.keys());
    let named: Vec<String> =
        entries.iter().map(|entry| &entry.pocket).chain(with_money).map(ToString::to_string).collect();
    for (wallet_id, division) in divisions(conn, &divided, &named, now).await? {
        if let Some(state) = states.get_mut(&wallet_id) {
            state.division = division;
        }
    }
    Ok(())
}

/// The divisions of wallets at a moment.
pub async fn divisions(
    conn: &mut PgConnection,
    wallet_ids: &[i64],
    named_pockets: &[String],
    now: DateTime<Utc>,
) -> Result<HashMap<i64, Division>, Fault> {
    let rows = sqlx::query!(
        r#"-- ledger::divisions
           SELECT wallet_id AS "wallet_id!", pocket AS "pocket!", priority, created_at, ends_at, live AS "live!",
                  unended AS "unended!"
             FROM wallet_divisions($1, $2, $3)"#,
        wallet_ids,
        named_pockets,
        now,
    )
    .fetch_all(conn)
    .await?;
    let mut divisions: HashMap<i64, Division> = HashMap::new();
    for row in rows {
        let pocket = DividedPocket {
            pocket: row.pocket,
            priority: row.priority,
            created_at: row.created_at,
            ends_at: row.ends_at,
            live: row.live,
            unended: row.unended,
        };
        pocket.add_to(divisions.entry(row.wallet_id).or_default(), now)?;
    }
    Ok(divisions)
}

/// A pocket of `wallet_divisions`, as columns or as JSON.
#[derive(serde::Deserialize)]
pub struct DividedPocket {
    pocket: String,
    priority: Option<i16>,
    created_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
    live: i64,
    unended: i64,
}

impl DividedPocket {
    /// Adds it to the division of its wallet.
    pub fn add_to(self, division: &mut Division, now: DateTime<Utc>) -> Result<(), Fault> {
        let pocket = Pocket::from_column(self.pocket)?;
        if let (Some(priority), Some(created_at)) = (self.priority, self.created_at) {
            let rule = PocketRule { priority, created_at, ends_at: self.ends_at };
            if rule.is_closed(now) {
                division.closed.insert(pocket.clone());
            }
            division.rules.insert(pocket.clone(), rule);
        }
        let promised = Promised { live: MinorUnits::new(self.live), unended: MinorUnits::new(self.unended) };
        if promised != Promised::default() {
            division.promised.insert(pocket, promised);
        }
        Ok(())
    }
}

/// The division of a wallet at a moment of the past: a hold is there from its placing to its end, and keeps its money
/// while its time or its worker's lease lasts. Both only ever move on, and nothing revives a hold once both are over, so
/// the last of them says how it was then, too.
pub async fn division_at(conn: &mut PgConnection, wallet_id: i64, at: DateTime<Utc>) -> Result<Division, Fault> {
    let rows = sqlx::query!(
        r#"-- ledger::division_at
           WITH promised AS MATERIALIZED (
               SELECT p.pocket, sum(p.amount)::bigint AS unended,
                      coalesce(sum(p.amount) FILTER (WHERE h.expires_at > $2 OR h.lease_until > $2), 0)::bigint AS live
                 FROM (SELECT pockets, pocket_amounts, expires_at, lease_until FROM holds
                        WHERE wallet_id = $1 AND ended_at IS NULL AND placed_at <= $2
                       UNION ALL
                       SELECT pockets, pocket_amounts, expires_at, lease_until FROM holds
                        WHERE wallet_id = $1 AND ended_at > $2 AND placed_at <= $2) h
                CROSS JOIN LATERAL unnest(h.pockets, h.pocket_amounts) AS p (pocket, amount)
                GROUP BY p.pocket
           )
           SELECT coalesce(k.pocket, p.pocket) AS "pocket!", k.priority AS "priority?", k.created_at AS "created_at?",
                  least(k.expires_at, k.voided_at) AS "ends_at?",
                  coalesce(p.live, 0) AS "live!", coalesce(p.unended, 0) AS "unended!"
             FROM (SELECT * FROM pockets WHERE wallet_id = $1 AND created_at <= $2) k
             FULL JOIN promised p ON p.pocket = k.pocket"#,
        wallet_id,
        at,
    )
    .fetch_all(conn)
    .await?;
    let mut division = Division::default();
    for row in rows {
        let pocket = DividedPocket {
            pocket: row.pocket,
            priority: row.priority,
            created_at: row.created_at,
            ends_at: row.ends_at,
            live: row.live,
            unended: row.unended,
        };
        pocket.add_to(&mut division, at)?;
    }
    Ok(division)
}

/// Marks a locked wallet as divided.
pub async fn divide(conn: &mut PgConnection, wallet_id: i64) -> Result<(), Fault> {
    sqlx::query!(
        "-- ledger::divide\nUPDATE wallets SET divided = true WHERE wallet_id = $1 AND NOT divided",
        wallet_id
    )
    .execute(conn)
    .await?;
    Ok(())
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

/// The wallet of each entry. Looked up by reference: a large run asks for very many.
fn entry_wallet_ids(wallet_ids: &HashMap<WalletKey, i64>, entries: &[Entry]) -> Result<Vec<i64>, Fault> {
    let by_name: HashMap<(&str, &str), i64> = wallet_ids
        .iter()
        .map(|((tenant_id, currency), wallet_id)| ((tenant_id.as_str(), currency.as_str()), *wallet_id))
        .collect();
    entries
        .iter()
        .map(|entry| {
            by_name
                .get(&(entry.tenant_id.as_str(), entry.currency.as_str()))
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
    if entries.iter().all(|entry| entry.original_seq.is_none()) {
        return Ok(HashMap::new());
    }
    let mut wallets = Vec::new();
    let mut seqs = Vec::new();
    for (entry, wallet_id) in entries.iter().zip(entry_wallet_ids(wallet_ids, entries)?) {
        if let Some(seq) = entry.original_seq {
            wallets.push(wallet_id);
            seqs.push(seq);
        }
    }
    let rows = sqlx::query!(
        r#"-- ledger::read_originals
           SELECT x.wallet_id, x.seq, x.kind, x.amount, x.reference,
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
                reference: Reference::from_column(row.reference)?,
                amount: MinorUnits::new(row.amount),
                given_back: MinorUnits::new(row.given_back),
            };
            Ok(((row.wallet_id, row.seq), original))
        })
        .collect()
}

/// How much of a row was given back.
pub async fn given_back(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    seq: i64,
) -> Result<MinorUnits, Fault> {
    let sum = sqlx::query_scalar!(
        r#"-- ledger::given_back
           SELECT coalesce(sum(y.amount), 0)::bigint AS "sum!"
             FROM wallets w JOIN wallet_transactions y ON y.wallet_id = w.wallet_id
            WHERE w.tenant_id = $1 AND w.currency = $2 AND y.original_seq = $3"#,
        tenant_id.as_str(),
        currency.as_str(),
        seq,
    )
    .fetch_one(conn)
    .await?;
    Ok(MinorUnits::new(sum))
}

/// Writes the rows, moves the heads and leaves the checkpoints that came due, in one statement.
pub async fn write(conn: &mut PgConnection, decision: &Decision) -> Result<(), Fault> {
    let rows: Vec<&DecidedRow> = decision.rows.iter().flatten().collect();
    let wallet_ids: Vec<i64> = rows.iter().map(|decided| decided.row.wallet_id).collect();
    let seqs: Vec<i64> = rows.iter().map(|decided| decided.row.seq).collect();
    let tenants: Vec<&str> = rows.iter().map(|decided| decided.row.tenant_id.as_str()).collect();
    let currencies: Vec<&str> = rows.iter().map(|decided| decided.row.currency.as_str()).collect();
    let kinds: Vec<&str> = rows.iter().map(|decided| decided.row.kind.as_str()).collect();
    let amounts: Vec<i64> = rows.iter().map(|decided| decided.row.amount.get()).collect();
    let pockets: Vec<&str> = rows.iter().map(|decided| decided.row.pocket.as_str()).collect();
    let references: Vec<&str> = rows.iter().map(|decided| decided.row.reference.as_str()).collect();
    let original_seqs: Vec<Option<i64>> = rows.iter().map(|decided| decided.row.original_seq).collect();
    let reasons: Vec<Option<&str>> =
        rows.iter().map(|decided| decided.row.reason.as_ref().map(crate::ids::Reason::as_str)).collect();
    let actors: Vec<&str> = rows.iter().map(|decided| decided.row.actor.as_str()).collect();
    let metadata: Vec<&str> = rows.iter().map(|decided| decided.row.metadata.as_str()).collect();
    let recorded: Vec<DateTime<Utc>> = rows.iter().map(|decided| decided.row.recorded_at).collect();
    let hashes: Vec<&[u8]> = rows.iter().map(|decided| decided.hash.as_slice()).collect();

    let heads = &decision.wallets;
    let head_wallets: Vec<i64> = heads.iter().map(|wallet| wallet.wallet_id).collect();
    let head_seqs: Vec<i64> = heads.iter().map(|wallet| wallet.head_seq).collect();
    let head_hashes: Vec<&[u8]> = heads.iter().map(|wallet| wallet.head_hash.as_slice()).collect();
    let head_times: Vec<Option<DateTime<Utc>>> = heads.iter().map(|wallet| wallet.head_recorded_at).collect();

    let checkpoints = &decision.checkpoints;
    let checkpoint_wallets: Vec<i64> = checkpoints.iter().map(|checkpoint| checkpoint.wallet_id).collect();
    let checkpoint_seqs: Vec<i64> = checkpoints.iter().map(|checkpoint| checkpoint.seq).collect();
    let checkpoint_sums: Vec<String> = checkpoints.iter().map(|checkpoint| sums_to_text(&checkpoint.pockets)).collect();
    let checkpoint_times: Vec<DateTime<Utc>> = checkpoints.iter().map(|checkpoint| checkpoint.recorded_at).collect();

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
               RETURNING 1
           ), new_checkpoints AS (
               INSERT INTO wallet_checkpoints (wallet_id, seq, pocket_sums, recorded_at)
               SELECT c.wallet_id, c.seq, c.sums::jsonb, c.recorded_at
                 FROM unnest($19::bigint[], $20::bigint[], $21::text[], $22::timestamptz[])
                      AS c (wallet_id, seq, sums, recorded_at)
           )
           SELECT (SELECT count(*) FROM new_rows) AS "rows!", (SELECT count(*) FROM new_heads) AS "heads!""#,
        &wallet_ids,
        &seqs,
        &tenants as &[&str],
        &currencies as &[&str],
        &kinds as &[&str],
        &amounts,
        &pockets as &[&str],
        &references as &[&str],
        &original_seqs as &[Option<i64>],
        &reasons as &[Option<&str>],
        &actors as &[&str],
        &metadata as &[&str],
        &recorded,
        &hashes as &[&[u8]],
        &head_wallets,
        &head_seqs,
        &head_hashes as &[&[u8]],
        &head_times as &[Option<DateTime<Utc>>],
        &checkpoint_wallets,
        &checkpoint_seqs,
        &checkpoint_sums,
        &checkpoint_times,
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
         SELECT x.seq, x.amount FROM wallet_transactions x
          WHERE x.wallet_id = (SELECT w.wallet_id FROM wallets w WHERE w.tenant_id = $1 AND w.currency = $2)
            AND x.kind = $3 AND x.reference = $4",
        tenant_id.as_str(),
        currency.as_str(),
        kind.as_str(),
        reference.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.seq, MinorUnits::new(row.amount))))
}
