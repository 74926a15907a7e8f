//! Does the book agree with itself?
//!
//! One read-only snapshot, one pass over the rows in the order of their wallets: the chain is hashed anew,
//! gaps and cut tails are found against the wallet's head, checkpoints against the sums. What the database
//! can't know by itself, that somebody rewrote a tail *and* its head, is found against an anchor: a file of
//! heads that was kept elsewhere.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::chain::{GENESIS, Hash, Link};
use super::store::{hash_from_column, sums_from_column};
use crate::fault::Fault;

/// What was found wrong, the first thing first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where, for a person: the wallet and the row, or the payment.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

/// The outcome of a verification.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Wallets that were looked at.
    pub wallets: u64,
    /// Rows whose hash was made anew.
    pub rows: u64,
    /// Checkpoints that were summed up anew.
    pub checkpoints: u64,
    /// Payments that were held against their rows.
    pub payments: u64,
    /// Heads that an anchor knew.
    pub anchors: u64,
    /// Lines of the audit whose hash was made anew.
    pub audit_lines: u64,
    /// How many things are wrong.
    pub wrong: u64,
    /// The first ones of them.
    pub findings: Vec<Finding>,
}

/// The head of a wallet, as an anchor keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The wallet.
    pub wallet_id: i64,
    /// Whose.
    pub tenant_id: String,
    /// Its currency.
    pub currency: String,
    /// The number of the last row.
    pub seq: i64,
    /// The hash of the last row, in hexadecimal.
    pub hash: String,
}

const CHECKPOINT_OF_NOTHING: &str = "there is a checkpoint at a row that doesn't exist";

/// How many findings are kept; all are counted.
const FINDINGS_MAX: usize = 100;

impl Report {
    /// Notes something that is wrong.
    pub fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.wrong = self.wrong.saturating_add(1);
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { place: place.into(), what: what.into() });
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.wrong == 0
    }
}

struct WalletHead {
    tenant_id: String,
    currency: String,
    seq: i64,
    hash: Hash,
    /// None without rows, and for a time that the ledger never writes.
    recorded_at: Option<DateTime<Utc>>,
}

/// A stored checkpoint.
struct Checkpoint {
    seq: i64,
    sums: serde_json::Value,
    /// None for a time that the ledger never writes.
    recorded_at: Option<DateTime<Utc>>,
}

/// The pass over one wallet.
struct Walk {
    wallet_id: i64,
    /// What its first row says.
    tenant_id: String,
    currency: String,
    seq: i64,
    hash: Hash,
    recorded_at: Option<DateTime<Utc>>,
    /// After the first wrong row of a wallet every later hash is wrong too, which says nothing more.
    broken: bool,
    /// Wider than the rows, so that no edit of an amount can stop the pass.
    sums: BTreeMap<String, i128>,
    checkpoints: Vec<Checkpoint>,
    /// Rows whose hash an anchor knows.
    anchored: Vec<(i64, String)>,
}

/// Verifies everything on a connection whose transaction is a read-only snapshot. `progress` hears the number
/// of rows so far.
///
/// # Errors
/// A fault of reading; what is wrong with the book is in the report.
pub async fn verify(conn: &mut PgConnection, anchor: &[Head], mut progress: impl FnMut(u64)) -> Result<Report, Fault> {
    let mut report = Report::default();
    let heads = read_heads(conn).await?;
    report.wallets = u64::try_from(heads.len()).unwrap_or(u64::MAX);
    let mut checkpoints = read_checkpoints(conn).await?;
    let mut anchored: HashMap<i64, Vec<(i64, String)>> = HashMap::new();
    for head in anchor {
        report.anchors = report.anchors.saturating_add(1);
        match heads.get(&head.wallet_id) {
            None => report.add(
                place_of(head.wallet_id, &head.tenant_id, &head.currency),
                "the anchor knows this wallet, and it is gone",
            ),
            Some(_) => anchored.entry(head.wallet_id).or_default().push((head.seq, head.hash.clone())),
        }
    }
    let mut walk: Option<Walk> = None;
    let mut seen = std::collections::HashSet::new();
    {
        let mut rows = sqlx::query!(
            r#"-- verify::rows
               SELECT wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference, original_seq, reason,
                      actor, metadata::text AS "metadata!", hash,
                      CASE WHEN recorded_at BETWEEN '0001-01-01' AND '9999-12-31' THEN recorded_at END AS "recorded_at?"
                 FROM wallet_transactions ORDER BY wallet_id, seq"#
        )
        .fetch(&mut *conn);
        while let Some(row) = rows.try_next().await? {
            if walk.as_ref().is_none_or(|walk| walk.wallet_id != row.wallet_id) {
                if let Some(done) = walk.take() {
                    finish_wallet(&done, &heads, &mut report);
                }
                seen.insert(row.wallet_id);
                walk = Some(Walk {
                    wallet_id: row.wallet_id,
                    tenant_id: row.tenant_id.clone(),
                    currency: row.currency.clone(),
                    seq: 0,
                    hash: GENESIS,
                    recorded_at: None,
                    broken: false,
                    sums: BTreeMap::new(),
                    checkpoints: checkpoints.remove(&row.wallet_id).unwrap_or_default(),
                    anchored: anchored.remove(&row.wallet_id).unwrap_or_default(),
                });
            }
            let Some(walk) = walk.as_mut() else { continue };
            let link = Link {
                wallet_id: row.wallet_id,
                seq: row.seq,
                tenant_id: &row.tenant_id,
                currency: &row.currency,
                kind: &row.kind,
                amount: row.amount,
                pocket: &row.pocket,
                reference: &row.reference,
                original_seq: row.original_seq,
                reason: row.reason.as_deref(),
                actor: &row.actor,
                metadata: &row.metadata,
                // A time that the ledger never writes fits no hash.
                recorded_at: row.recorded_at.unwrap_or(DateTime::<Utc>::MIN_UTC),
            };
            step(walk, &link, &row.hash, &heads, &mut report)?;
            report.rows = report.rows.saturating_add(1);
            if report.rows.is_multiple_of(10_000) {
                progress(report.rows);
            }
        }
    }
    if let Some(done) = walk.take() {
        finish_wallet(&done, &heads, &mut report);
    }
    for (wallet_id, head) in &heads {
        if !seen.contains(wallet_id) {
            let place = format!("{}, row 1", place_of(*wallet_id, &head.tenant_id, &head.currency));
            if head.seq != 0 {
                report.add(&place, format!("row 1 is missing: the wallet had {} rows, and all are gone", head.seq));
            }
            if anchored.get(wallet_id).is_some_and(|rows| rows.iter().any(|(seq, _)| *seq > 0)) {
                report.add(place, "the anchor knows rows of this wallet, and all are gone");
            }
        }
    }
    for (wallet_id, left) in &checkpoints {
        for checkpoint in left {
            let wallet = heads.get(wallet_id).map_or_else(
                || format!("wallet {wallet_id}"),
                |head| place_of(*wallet_id, &head.tenant_id, &head.currency),
            );
            report.add(format!("{wallet}, row {}", checkpoint.seq), CHECKPOINT_OF_NOTHING);
        }
    }
    verify_payments(conn, &mut report).await?;
    verify_dues(conn, &mut report).await?;
    verify_divided(conn, &mut report).await?;
    verify_provider_rows(conn, &mut report).await?;
    progress(report.rows);
    Ok(report)
}

/// One row: its number, its wallet's words, its hash, and what is known about this very row.
fn step(
    walk: &mut Walk,
    link: &Link<'_>,
    stored: &[u8],
    heads: &HashMap<i64, WalletHead>,
    report: &mut Report,
) -> Result<(), Fault> {
    let place = || format!("{}, row {}", place_of(link.wallet_id, link.tenant_id, link.currency), link.seq);
    let expected = walk.seq.saturating_add(1);
    if link.seq != expected {
        let missing = format!("{}, row {expected}", place_of(link.wallet_id, link.tenant_id, link.currency));
        report.add(missing, format!("row {expected} is missing: row {} comes next", link.seq));
        walk.broken = true;
    }
    if let Some(head) = heads.get(&link.wallet_id)
        && (head.tenant_id != link.tenant_id || head.currency != link.currency)
    {
        report.add(
            place(),
            format!(
                "the row says {} {}, its wallet {} {}",
                link.tenant_id, link.currency, head.tenant_id, head.currency
            ),
        );
    }
    let hash = link.hash(&walk.hash);
    let stored = hash_from_column(stored)?;
    if hash != stored && !walk.broken {
        report.add(place(), "the row was changed after it had been written: its hash doesn't fit");
        walk.broken = true;
    }
    walk.seq = link.seq;
    walk.recorded_at = Some(link.recorded_at);
    // Going on from the stored hash finds a second change behind the first.
    walk.hash = stored;
    if hash == stored {
        walk.broken = false;
    }
    let sum = walk.sums.entry(link.pocket.to_owned()).or_default();
    *sum = sum.saturating_add(i128::from(link.amount));
    while let Some(checkpoint) = walk.checkpoints.pop_if(|checkpoint| checkpoint.seq <= link.seq) {
        if checkpoint.seq < link.seq {
            let wallet = place_of(link.wallet_id, link.tenant_id, link.currency);
            report.add(format!("{wallet}, row {}", checkpoint.seq), CHECKPOINT_OF_NOTHING);
            continue;
        }
        report.checkpoints = report.checkpoints.saturating_add(1);
        let summed: BTreeMap<String, i128> =
            walk.sums.iter().filter(|(_, sum)| **sum != 0).map(|(pocket, sum)| (pocket.clone(), *sum)).collect();
        let Ok(stored) = sums_from_column(&checkpoint.sums) else {
            report.add(place(), format!("the checkpoint says {}, which are no sums", checkpoint.sums));
            continue;
        };
        let stored: BTreeMap<String, i128> =
            stored.into_iter().map(|(pocket, sum)| (pocket.to_string(), i128::from(sum.get()))).collect();
        if stored != summed {
            report.add(place(), format!("the checkpoint says {stored:?}, the rows sum up to {summed:?}"));
        } else if checkpoint.recorded_at != Some(link.recorded_at) {
            report.add(place(), "the checkpoint has another time than its row");
        }
    }
    walk.anchored.retain(|(seq, anchored)| {
        if *seq != link.seq {
            return true;
        }
        if *anchored != to_hex(&hash) {
            report.add(place(), "the row isn't the one that the anchor knows");
        }
        false
    });
    Ok(())
}

/// The end of a wallet: its head, and what points behind it.
fn finish_wallet(walk: &Walk, heads: &HashMap<i64, WalletHead>, report: &mut Report) {
    let Some(head) = heads.get(&walk.wallet_id) else {
        let wallet = place_of(walk.wallet_id, &walk.tenant_id, &walk.currency);
        report.add(wallet, "the wallet is gone, and its rows are there");
        return;
    };
    let wallet = place_of(walk.wallet_id, &head.tenant_id, &head.currency);
    let next = walk.seq.saturating_add(1);
    if head.seq > walk.seq {
        report.add(format!("{wallet}, row {next}"), format!("row {next} is missing: the wallet had {} rows", head.seq));
    } else if head.seq < walk.seq {
        report.add(
            format!("{wallet}, row {next}"),
            format!("the wallet's head stands at {}, and there are {} rows", head.seq, walk.seq),
        );
    } else if head.hash != walk.hash {
        report.add(format!("{wallet}, row {}", walk.seq), "the last row isn't the one that the wallet's head knows");
    } else if head.recorded_at != walk.recorded_at {
        report.add(format!("{wallet}, row {}", walk.seq), "the wallet's head has another time than the last row");
    }
    for checkpoint in &walk.checkpoints {
        report.add(format!("{wallet}, row {}", checkpoint.seq), CHECKPOINT_OF_NOTHING);
    }
    for (seq, _) in walk.anchored.iter().filter(|(seq, _)| *seq > 0) {
        report.add(format!("{wallet}, row {seq}"), format!("row {seq} is missing: the anchor knows it"));
    }
}

fn place_of(wallet_id: i64, tenant_id: &str, currency: &str) -> String {
    format!("wallet {wallet_id} ({tenant_id} {currency})")
}

fn to_hex(hash: &Hash) -> String {
    use std::fmt::Write as _;
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn read_heads(conn: &mut PgConnection) -> Result<HashMap<i64, WalletHead>, Fault> {
    sqlx::query!(
        r#"-- verify::heads
           SELECT wallet_id, tenant_id, currency, head_seq, head_hash,
                  CASE WHEN head_recorded_at BETWEEN '0001-01-01' AND '9999-12-31' THEN head_recorded_at END
                  AS "head_recorded_at?"
             FROM wallets"#
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        let head = WalletHead {
            tenant_id: row.tenant_id,
            currency: row.currency,
            seq: row.head_seq,
            hash: hash_from_column(&row.head_hash)?,
            recorded_at: row.head_recorded_at,
        };
        Ok((row.wallet_id, head))
    })
    .collect()
}

/// Per wallet, the last one first, so that they are taken from the end as the rows come.
async fn read_checkpoints(conn: &mut PgConnection) -> Result<HashMap<i64, Vec<Checkpoint>>, Fault> {
    let mut checkpoints: HashMap<i64, Vec<Checkpoint>> = HashMap::new();
    let mut rows = sqlx::query!(
        r#"-- verify::checkpoints
           SELECT wallet_id, seq, pocket_sums,
                  CASE WHEN recorded_at BETWEEN '0001-01-01' AND '9999-12-31' THEN recorded_at END AS "recorded_at?"
             FROM wallet_checkpoints ORDER BY wallet_id, seq DESC"#
    )
    .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        let checkpoint = Checkpoint { seq: row.seq, sums: row.pocket_sums, recorded_at: row.recorded_at };
        checkpoints.entry(row.wallet_id).or_default().push(checkpoint);
    }
    Ok(checkpoints)
}

/// The heads of all wallets, for an anchor.
///
/// # Errors
/// A fault.
pub async fn heads(conn: &mut PgConnection) -> Result<Vec<Head>, Fault> {
    let mut heads: Vec<Head> = read_heads(conn)
        .await?
        .into_iter()
        .map(|(wallet_id, head)| Head {
            wallet_id,
            tenant_id: head.tenant_id,
            currency: head.currency,
            seq: head.seq,
            hash: to_hex(&head.hash),
        })
        .collect();
    heads.sort_by_key(|head| head.wallet_id);
    Ok(heads)
}

/// A live payment that is performed has its top-up of the same amount, and a refunded one its reversal, which
/// no other has: a write-once state that was rewritten shows here.
async fn verify_payments(conn: &mut PgConnection, report: &mut Report) -> Result<(), Fault> {
    let mut rows = sqlx::query!(
        r#"-- verify::payments
           SELECT p.payment_id, p.provider, p.external_id, p.mode, p.amount,
                  p.performed_at IS NOT NULL AS "performed!", p.cancelled_at IS NOT NULL AS "cancelled!",
                  credit.amount AS "credit?", debit.amount AS "debit?"
             FROM payments p
             LEFT JOIN wallets w ON w.tenant_id = p.tenant_id AND w.currency = p.currency
             LEFT JOIN wallet_transactions credit
                    ON credit.wallet_id = w.wallet_id AND credit.kind = 'top_up'
                   AND credit.reference = p.provider || ':' || p.external_id
             LEFT JOIN wallet_transactions debit
                    ON debit.wallet_id = w.wallet_id AND debit.kind = 'top_up_reversal'
                   AND debit.reference = p.provider || ':' || p.external_id
            WHERE p.mode = 'live'
            ORDER BY p.payment_id"#
    )
    .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        report.payments = report.payments.saturating_add(1);
        let place = || format!("payment {} ({} {})", row.payment_id, row.provider, row.external_id);
        let back = row.amount.checked_neg();
        match (row.performed, row.credit) {
            (true, None) => report.add(place(), "it is performed, and its top_up row is missing"),
            (true, Some(credit)) if credit != row.amount => {
                report.add(place(), format!("its amount is {}, and its top_up row says {credit}", row.amount));
            }
            // An open or cancelled payment may have an imported top_up of the same event; it isn't ours to judge.
            _ => {}
        }
        match (row.performed && row.cancelled, row.debit) {
            (true, None) => report.add(place(), "it is refunded, and its top_up_reversal row is missing"),
            (true, Some(debit)) if Some(debit) != back => {
                report.add(place(), format!("its amount is {}, and its top_up_reversal row says {debit}", row.amount));
            }
            (false, Some(_)) => report.add(place(), "it has a top_up_reversal row, and isn't refunded"),
            _ => {}
        }
    }
    Ok(())
}

/// The other way round: a row that a provider booked has its live payment, in the state that the row stands
/// for. A provider's name is an actor without a colon; every other actor has one.
async fn verify_provider_rows(conn: &mut PgConnection, report: &mut Report) -> Result<(), Fault> {
    let mut rows = sqlx::query!(
        "-- verify::provider_rows
         SELECT x.wallet_id, x.seq, x.tenant_id, x.currency, x.kind
           FROM wallet_transactions x
          WHERE x.kind IN ('top_up', 'top_up_reversal') AND position(':' IN x.actor) = 0
            AND NOT EXISTS (
                SELECT FROM payments p
                 WHERE p.provider = x.actor AND p.mode = 'live'
                   AND p.external_id = substr(x.reference, length(x.actor) + 2)
                   AND x.reference = p.provider || ':' || p.external_id
                   AND p.tenant_id = x.tenant_id AND p.currency = x.currency
                   AND p.performed_at IS NOT NULL AND (x.kind = 'top_up' OR p.cancelled_at IS NOT NULL))
          ORDER BY x.wallet_id, x.seq"
    )
    .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        let wallet = place_of(row.wallet_id, &row.tenant_id, &row.currency);
        report.add(format!("{wallet}, row {}", row.seq), format!("no payment stands behind this {}", row.kind));
    }
    Ok(())
}

/// A wallet that has pockets with rules, or promises to holds, says so: without that mark nobody would look for them,
/// and what is held or over could be spent.
async fn verify_divided(conn: &mut PgConnection, report: &mut Report) -> Result<(), Fault> {
    let mut rows = sqlx::query!(
        "-- verify::divided
         SELECT w.wallet_id, w.tenant_id, w.currency
           FROM wallets w
          WHERE NOT w.divided
            AND (EXISTS (SELECT FROM pockets k WHERE k.wallet_id = w.wallet_id)
                 OR EXISTS (SELECT FROM holds h WHERE h.wallet_id = w.wallet_id))
          ORDER BY w.wallet_id"
    )
    .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        report.add(
            place_of(row.wallet_id, &row.tenant_id, &row.currency),
            "it has pockets or holds, and is marked as having none",
        );
    }
    Ok(())
}

/// A paid due has its one fee row of the same amount, and a fee row of the run pays its due.
async fn verify_dues(conn: &mut PgConnection, report: &mut Report) -> Result<(), Fault> {
    let mut rows = sqlx::query!(
        r#"-- verify::dues
           SELECT coalesce(d.tenant_id, x.tenant_id) AS "tenant_id!",
                  coalesce(d.reference, x.reference) AS "reference!",
                  d.due_id AS "due_id?", d.amount AS "due_amount?", d.charged_seq AS "charged_seq?",
                  x.seq AS "row_seq?", x.amount AS "row_amount?"
             FROM (SELECT u.due_id, u.tenant_id, u.amount, u.charged_seq, w.wallet_id,
                          'fee:' || u.subscription_id || ':' || to_char(u.month, 'YYYY-MM') AS reference
                     FROM dues u
                     LEFT JOIN wallets w ON w.tenant_id = u.tenant_id AND w.currency = u.currency
                    WHERE u.charged_seq IS NOT NULL) d
             FULL JOIN (SELECT * FROM wallet_transactions
                         WHERE kind = 'subscription_fee' AND reference LIKE 'fee:%') x
               ON x.wallet_id = d.wallet_id AND x.reference = d.reference
            WHERE d.due_id IS NULL OR x.seq IS NULL OR x.seq <> d.charged_seq OR x.amount <> -d.amount
            ORDER BY 1, 2"#
    )
    .fetch(conn);
    while let Some(row) = rows.try_next().await? {
        let place = format!("fee {} of {}", row.reference, row.tenant_id);
        let what = match (row.due_id, row.row_seq) {
            (None, _) => "there is a fee row, and no paid due that it pays".to_owned(),
            (Some(_), None) => "its due is paid, and the row that pays it is missing".to_owned(),
            (Some(_), Some(seq)) => format!(
                "its due says row {:?} and {:?} minor units, and row {seq} says {:?}",
                row.charged_seq.unwrap_or_default(),
                row.due_amount.unwrap_or_default(),
                row.row_amount.unwrap_or_default()
            ),
        };
        report.add(place, what);
    }
    Ok(())
}
