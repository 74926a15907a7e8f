//! Reading: a balance now or at a moment, and the statement in pages.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{Division, Kind, Metadata, PostedRow, store};
use crate::fault::Fault;
use crate::ids::{Pocket, Reason, Reference, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// What a wallet holds at a moment.
#[derive(Debug, Clone)]
pub struct Balance {
    /// SUM of the rows.
    pub balance: MinorUnits,
    /// SUM of the live holds.
    pub held: MinorUnits,
    /// What may be spent.
    pub available: MinorUnits,
    /// The last row that is counted.
    pub seq: i64,
    /// What each pocket holds.
    pub pockets: BTreeMap<Pocket, MinorUnits>,
    /// The rules of the pockets, and what of each is held.
    pub division: Division,
}

/// The balance of a tenant's wallet; `at` asks for the past. `None` when the wallet isn't opened yet.
///
/// What may be spent is what live holds and pockets whose time is over leave of the balance. In the past a hold
/// counts from its placing to its end.
///
/// # Errors
/// A fault.
pub async fn balance(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Option<Balance>, Fault> {
    // The sum starts at the last checkpoint before the moment and ends at the first one after it, so it
    // reads few rows wherever the moment lies. Time never runs backwards within a wallet.
    let row = sqlx::query!(
        r#"-- ledger::balance
           SELECT w.wallet_id, w.divided, coalesce(c.seq, 0) AS "checkpoint_seq!",
                  c.pocket_sums AS "checkpoint_sums?",
                  tail.pockets AS "tail_pockets?: Vec<String>",
                  tail.sums AS "tail_sums?: Vec<i64>",
                  tail.seq AS "tail_seq?",
                  -- In the same statement, so that a hold which ends meanwhile is in both or in neither.
                  CASE WHEN w.divided AND $3::timestamptz IS NULL THEN
                      (SELECT json_agg(d) FROM wallet_divisions(
                           ARRAY[w.wallet_id],
                           tail.pockets || ARRAY(SELECT jsonb_object_keys(coalesce(c.pocket_sums, '{}'))),
                           $4) d)
                  END AS "division?"
             FROM wallets w
             LEFT JOIN LATERAL (
                  SELECT seq, pocket_sums FROM wallet_checkpoints
                   WHERE wallet_id = w.wallet_id AND recorded_at <= coalesce($3, 'infinity'::timestamptz)
                   ORDER BY recorded_at DESC, seq DESC LIMIT 1
             ) c ON true
             LEFT JOIN LATERAL (
                  SELECT seq FROM wallet_checkpoints
                   WHERE wallet_id = w.wallet_id AND recorded_at > coalesce($3, 'infinity'::timestamptz)
                   ORDER BY recorded_at, seq LIMIT 1
             ) bound ON true
             LEFT JOIN LATERAL (
                  SELECT array_agg(pocket) AS pockets, array_agg(pocket_sum) AS sums, max(last_seq) AS seq
                    FROM (SELECT pocket, sum(amount)::bigint AS pocket_sum, max(seq) AS last_seq
                            FROM wallet_transactions
                           WHERE wallet_id = w.wallet_id
                             AND seq > coalesce(c.seq, 0)
                             AND seq <= coalesce(bound.seq, w.head_seq)
                             AND recorded_at <= coalesce($3, 'infinity'::timestamptz)
                           GROUP BY pocket) per_pocket
             ) tail ON true
            WHERE w.tenant_id = $1 AND w.currency = $2"#,
        tenant_id.as_str(),
        currency.as_str(),
        at,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let pockets = store::add_up(
        row.checkpoint_sums.as_ref(),
        row.tail_pockets.unwrap_or_default(),
        row.tail_sums.unwrap_or_default(),
    )?;
    let division = match (row.divided, at) {
        (false, _) => Division::default(),
        (true, None) => division_from_column(row.division, now)?,
        (true, Some(at)) => store::division_at(conn, row.wallet_id, at).await?,
    };
    Ok(Some(Balance {
        balance: MinorUnits::sum(pockets.values().copied())?,
        held: division.held()?,
        available: division.available(&pockets)?,
        seq: row.tail_seq.unwrap_or(row.checkpoint_seq),
        pockets,
        division,
    }))
}

fn division_from_column(pockets: Option<serde_json::Value>, now: DateTime<Utc>) -> Result<Division, Fault> {
    let mut division = Division::default();
    let Some(pockets) = pockets else { return Ok(division) };
    let pockets: Vec<store::DividedPocket> = serde_json::from_value(pockets)
        .map_err(|error| Fault::new("a wallet's division can't be read").because(error))?;
    for pocket in pockets {
        pocket.add_to(&mut division, now)?;
    }
    Ok(division)
}

/// Which rows of a wallet.
#[derive(Debug, Clone)]
pub struct StatementQuery {
    /// Only rows after this one.
    pub after_seq: i64,
    /// At most so many.
    pub limit: i64,
    /// Only rows of this kind.
    pub kind: Option<Kind>,
    /// Only rows of this pocket.
    pub pocket: Option<Pocket>,
}

/// Some rows of a wallet, the oldest first.
#[derive(Debug)]
pub struct StatementPage {
    /// The rows.
    pub rows: Vec<PostedRow>,
    /// Where the next page begins, if there is one.
    pub next_after_seq: Option<i64>,
}

/// A page of a wallet's rows with the balance after each.
///
/// # Errors
/// A fault.
pub async fn statement(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    query: &StatementQuery,
) -> Result<StatementPage, Fault> {
    let asked = query.limit.saturating_add(1);
    // The balance after a row is summed from the checkpoint before it or from the row before it on the page,
    // whichever is nearer. So a page filtered by kind that spans a million rows reads a few dozen for each,
    // and a page of a wallet that lost its checkpoints reads no row twice. The wallet is looked up by itself: joined,
    // the planner may take one wallet for as long as the average and read the whole book for the page of a short one.
    let rows = sqlx::query!(
        r#"-- ledger::statement
           SELECT page.*, page.metadata::text AS "metadata_text!",
                  c.total AS "checkpoint_total?", part.total AS "part_total!"
             FROM (SELECT found.*, lag(seq) OVER (ORDER BY seq) AS previous_seq
                     FROM (SELECT x.wallet_id, x.seq, x.kind, x.amount, x.pocket, x.reference, x.original_seq, x.reason,
                          x.actor, x.metadata, x.recorded_at
                     FROM wallet_transactions x
                    WHERE x.wallet_id = (SELECT w.wallet_id FROM wallets w WHERE w.tenant_id = $1 AND w.currency = $2)
                      AND x.seq > $3 AND ($4::text IS NULL OR x.kind = $4) AND ($6::text IS NULL OR x.pocket = $6)
                    ORDER BY x.seq
                    LIMIT $5) found) page
             LEFT JOIN LATERAL (
                  SELECT seq, (SELECT coalesce(sum(value::bigint), 0) FROM jsonb_each_text(pocket_sums))::bigint AS total
                    FROM wallet_checkpoints
                   WHERE wallet_id = page.wallet_id AND seq > coalesce(page.previous_seq, 0) AND seq <= page.seq
                   ORDER BY seq DESC LIMIT 1
             ) c ON true
             CROSS JOIN LATERAL (
                  SELECT coalesce(sum(amount), 0)::bigint AS total
                    FROM wallet_transactions
                   WHERE wallet_id = page.wallet_id AND seq > coalesce(c.seq, page.previous_seq, 0)
                     AND seq <= page.seq
             ) part
            ORDER BY page.seq"#,
        tenant_id.as_str(),
        currency.as_str(),
        query.after_seq,
        query.kind.as_ref().map(Kind::as_str),
        asked,
        query.pocket.as_ref().map(Pocket::as_str),
    )
    .fetch_all(conn)
    .await?;
    let mut balance = MinorUnits::ZERO;
    let mut rows = rows
        .into_iter()
        .map(|row| {
            let from = row.checkpoint_total.map_or(balance, MinorUnits::new);
            balance = MinorUnits::sum([from, MinorUnits::new(row.part_total)])?;
            Ok(PostedRow {
                wallet_id: row.wallet_id,
                seq: row.seq,
                tenant_id: tenant_id.clone(),
                currency: currency.clone(),
                kind: Kind::from_column(&row.kind)?,
                amount: MinorUnits::new(row.amount),
                pocket: Pocket::from_column(row.pocket)?,
                reference: Reference::from_column(row.reference)?,
                original_seq: row.original_seq,
                reason: row.reason.map(Reason::from_column).transpose()?,
                actor: row.actor,
                metadata: Metadata::from_column(row.metadata_text),
                recorded_at: row.recorded_at,
                balance_after: balance,
            })
        })
        .collect::<Result<Vec<_>, Fault>>()?;
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_after_seq = if more { rows.last().map(|row| row.seq) } else { None };
    Ok(StatementPage { rows, next_after_seq })
}

/// One row of a wallet, with the balance after it.
///
/// # Errors
/// A fault.
pub async fn row(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    seq: i64,
) -> Result<Option<PostedRow>, Fault> {
    let Some(after_seq) = seq.checked_sub(1) else { return Ok(None) };
    let page =
        statement(conn, tenant_id, currency, &StatementQuery { after_seq, limit: 1, kind: None, pocket: None }).await?;
    Ok(page.rows.into_iter().find(|row| row.seq == seq))
}
