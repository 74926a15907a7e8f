//! Every statement of an export.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};

use super::{Found, Row, Wallet};
use crate::db::Database;
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::ledger::Kind;
use crate::money::{Currency, CurrencyCode, Exponent, MinorUnits};
use crate::tenant::TimeZone;

/// A transaction that sees the book of this moment until it ends, and writes nothing.
///
/// The session would be ended after a minute in which it asks nothing. Whoever reads the export may stop that
/// long to think: a pager does.
pub async fn snapshot(db: &Database) -> Result<Transaction<'static, Postgres>, Fault> {
    let mut snapshot = db.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    sqlx::query!(
        "-- export::snapshot
         SELECT set_config('idle_in_transaction_session_timeout', '3600000', true)"
    )
    .fetch_one(&mut *snapshot)
    .await?;
    Ok(snapshot)
}

/// Every unit, by code.
pub async fn currencies(conn: &mut PgConnection) -> Result<Vec<Currency>, Fault> {
    let rows = sqlx::query!(
        "-- export::currencies
         SELECT code, exponent FROM currencies ORDER BY code"
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| currency(row.code, row.exponent)).collect()
}

fn currency(code: String, exponent: i16) -> Result<Currency, Fault> {
    Ok(Currency { code: CurrencyCode::from_column(code)?, exponent: Exponent::from_column(exponent)? })
}

/// The wallets behind the last one seen, in the order of tenant and currency. What is known about them is asked for
/// each of the page alone: a join would read the tenants from the first one on for every page.
pub async fn wallets(
    conn: &mut PgConnection,
    tenant_id: Option<&TenantId>,
    last: Option<&(TenantId, String)>,
    limit: i64,
) -> Result<Vec<Found>, Fault> {
    let (last_tenant, last_currency) = last.map_or(("", ""), |(tenant, currency)| (tenant.as_str(), currency));
    let rows = sqlx::query!(
        r#"-- export::wallets
           SELECT w.wallet_id, w.tenant_id, w.currency, w.head_seq,
                  (SELECT exponent FROM currencies c WHERE c.code = w.currency) AS "exponent?",
                  (SELECT time_zone FROM tenants t WHERE t.tenant_id = w.tenant_id) AS "time_zone?"
             FROM wallets w
            WHERE (w.tenant_id, w.currency) > ($1, $2) AND ($3::text IS NULL OR w.tenant_id = $3)
            ORDER BY w.tenant_id, w.currency
            LIMIT $4"#,
        last_tenant,
        last_currency,
        tenant_id.map(TenantId::as_str),
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let (Some(exponent), Some(time_zone)) = (row.exponent, row.time_zone) else {
                return Err(Fault::new("a wallet's tenant or currency is gone: run `hamyon verify`"));
            };
            let wallet = Wallet {
                wallet_id: row.wallet_id,
                tenant_id: TenantId::from_column(row.tenant_id)?,
                currency: currency(row.currency, exponent)?,
                time_zone: TimeZone::parse(&time_zone)
                    .map_err(|error| Fault::new("a stored tenant breaks a rule").because(error))?,
            };
            Ok(Found { wallet, rows_about: row.head_seq })
        })
        .collect()
}

/// What came before the first exported day, of one pocket.
pub struct Folded {
    /// The wallet's place among those that were asked for.
    pub wallet_index: usize,
    /// The pocket.
    pub pocket: String,
    /// The sum of its rows, which may be zero.
    pub amount: MinorUnits,
    /// The last of its rows.
    pub last_seq: i64,
}

/// Sums up the rows before the first one of each wallet's first day, by wallet and pocket.
pub async fn fold(conn: &mut PgConnection, wallet_ids: &[i64], begins: &[DateTime<Utc>]) -> Result<Vec<Folded>, Fault> {
    let rows = sqlx::query!(
        r#"-- export::fold
           SELECT asked.position AS "position!", x.pocket, sum(x.amount)::bigint AS "amount!", max(x.seq) AS "seq!"
             FROM unnest($1::bigint[], $2::timestamptz[]) WITH ORDINALITY AS asked (wallet_id, begins_at, position)
            CROSS JOIN LATERAL (
                  SELECT min(seq) AS seq FROM wallet_transactions
                   WHERE wallet_id = asked.wallet_id AND recorded_at >= asked.begins_at
                 ) first
             JOIN wallet_transactions x ON x.wallet_id = asked.wallet_id AND x.seq < coalesce(first.seq, 9223372036854775807)
            GROUP BY asked.position, x.pocket
            ORDER BY asked.position, x.pocket"#,
        wallet_ids,
        begins,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Folded {
            wallet_index: index(row.position),
            pocket: row.pocket,
            amount: MinorUnits::new(row.amount),
            last_seq: row.seq,
        })
        .collect())
}

/// At most `limit` rows of each wallet behind the row it has come to, each with the wallet's place among those
/// that were asked for. The balances are still to be summed up.
pub async fn rows(
    conn: &mut PgConnection,
    wallet_ids: &[i64],
    after_seqs: &[i64],
    limit: i64,
) -> Result<Vec<(usize, Row)>, Fault> {
    let rows = sqlx::query!(
        r#"-- export::rows
           SELECT asked.position AS "position!", x.seq AS "seq!", x.kind AS "kind!", x.amount AS "amount!",
                  x.pocket AS "pocket!", x.reference AS "reference!", x.original_seq AS "original_seq?",
                  (SELECT o.kind FROM wallet_transactions o
                    WHERE o.wallet_id = asked.wallet_id AND o.seq = x.original_seq) AS "original_kind?",
                  x.reason AS "reason?", x.actor AS "actor!", x.recorded_at AS "recorded_at?"
             FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (wallet_id, after_seq, position)
            CROSS JOIN LATERAL (
                  SELECT seq, kind, amount, pocket, reference, original_seq, reason, actor,
                         CASE WHEN recorded_at BETWEEN '0001-01-02' AND '9999-12-30' THEN recorded_at END AS recorded_at
                    FROM wallet_transactions
                   WHERE wallet_id = asked.wallet_id AND seq > asked.after_seq
                   ORDER BY seq
                   LIMIT $3
                 ) x
            ORDER BY asked.position, x.seq"#,
        wallet_ids,
        after_seqs,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let Some(recorded_at) = row.recorded_at else {
                return Err(Fault::new("a row has a time that the ledger never writes: run `hamyon verify`"));
            };
            let found = Row {
                seq: row.seq,
                kind: Kind::from_column(&row.kind)?,
                amount: MinorUnits::new(row.amount),
                pocket: row.pocket,
                reference: row.reference,
                original_seq: row.original_seq,
                original_kind: row.original_kind.as_deref().map(Kind::from_column).transpose()?,
                reason: row.reason,
                actor: row.actor,
                recorded_at,
                balance_after: MinorUnits::ZERO,
            };
            Ok((index(row.position), found))
        })
        .collect()
}

/// Positions are counted from one.
fn index(position: i64) -> usize {
    usize::try_from(position.saturating_sub(1)).unwrap_or_default()
}
