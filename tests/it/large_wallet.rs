//! A wallet of very many rows answers like one of ten, with its checkpoints and without any: history that
//! grew must not become history that can't be read.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use hamyon::fault::Error;
use hamyon::ledger::Refusal;
use hamyon::ledger::chain::{GENESIS, Link};
use serde_json::json;
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::app::entry;
use crate::support::intruder;

const ROWS: i64 = 1_000_000;

/// Rows that go to the database at once.
const CHUNK: i64 = 20_000;

/// In the middle.
const MIDDLE: i64 = 140_000;

/// Two credits, then a debit.
fn amount(seq: i64) -> i64 {
    if seq % 3 == 0 { -(seq % 50 + 1) } else { 100 + seq % 7 }
}

fn kind(amount: i64) -> &'static str {
    if amount % 2 == 0 { "even" } else { "odd" }
}

/// Three rows a second.
fn recorded_at(start: DateTime<Utc>, seq: i64) -> DateTime<Utc> {
    start + TimeDelta::seconds(seq / 3)
}

fn sum_until(seq: i64) -> i64 {
    (1..=seq).map(amount).sum()
}

fn text(units: i64) -> String {
    format!("{}.{:02}", units / 100, units % 100)
}

/// Writes the rows as the ledger would have, with every hash.
async fn fill(app: &TestApp, start: DateTime<Utc>) {
    let wallet_id = app.count("SELECT wallet_id FROM wallets WHERE tenant_id = 'acme'").await;
    let mut conn = intruder::intruder(app).await;
    let mut hash = GENESIS;
    let mut first = 1;
    while first <= ROWS {
        let seqs: Vec<i64> = (first..first + CHUNK).collect();
        let amounts: Vec<i64> = seqs.iter().map(|seq| amount(*seq)).collect();
        let times: Vec<DateTime<Utc>> = seqs.iter().map(|seq| recorded_at(start, *seq)).collect();
        let mut hashes = Vec::with_capacity(seqs.len());
        for ((seq, amount), recorded_at) in seqs.iter().zip(&amounts).zip(&times) {
            let link = Link {
                wallet_id,
                seq: *seq,
                tenant_id: "acme",
                currency: "UZS",
                kind: kind(*amount),
                amount: *amount,
                pocket: "main",
                reference: &format!("row-{seq}"),
                original_seq: None,
                reason: None,
                actor: "job:test",
                metadata: "{}",
                recorded_at: *recorded_at,
            };
            hash = link.hash(&hash);
            hashes.push(hash.to_vec());
        }
        sqlx::query(
            "INSERT INTO wallet_transactions (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference,
                                              actor, metadata, recorded_at, hash)
             SELECT $1, seq, 'acme', 'UZS', CASE WHEN amount % 2 = 0 THEN 'even' ELSE 'odd' END, amount, 'main',
                    'row-' || seq, 'job:test', '{}', recorded_at, hash
               FROM unnest($2::bigint[], $3::bigint[], $4::timestamptz[], $5::bytea[])
                    AS r (seq, amount, recorded_at, hash)",
        )
        .bind(wallet_id)
        .bind(&seqs)
        .bind(&amounts)
        .bind(&times)
        .bind(&hashes)
        .execute(&mut conn)
        .await
        .expect("written");
        first += CHUNK;
    }
    sqlx::query("UPDATE wallets SET head_seq = $2, head_hash = $3, head_recorded_at = $4 WHERE wallet_id = $1")
        .bind(wallet_id)
        .bind(ROWS)
        .bind(&hash[..])
        .bind(recorded_at(start, ROWS))
        .execute(&mut conn)
        .await
        .expect("the head");
    conn.execute(
        "INSERT INTO wallet_checkpoints (wallet_id, seq, pocket_sums, recorded_at)
         SELECT wallet_id, seq, jsonb_build_object('main', running), recorded_at
           FROM (SELECT wallet_id, seq, sum(amount) OVER (ORDER BY seq) AS running, recorded_at
                   FROM wallet_transactions) r
          WHERE seq % 64 = 0",
    )
    .await
    .expect("the checkpoints");
    conn.execute("VACUUM ANALYZE wallet_transactions, wallet_checkpoints").await.expect("as autovacuum would");
}

/// The balance now and in the past, a full page in the middle, and a page of one kind.
async fn read(app: &TestApp, start: DateTime<Utc>, rows: i64, sum: i64) {
    let (status, balance) = app.get("/v1/tenants/acme/balance").await;
    assert_eq!((status.as_u16(), &balance["balance"], &balance["seq"]), (200, &json!(text(sum)), &json!(rows)));
    for seq in [2, 100_001, ROWS - 2] {
        // The last of the rows of its second.
        let at = recorded_at(start, seq).to_rfc3339_opts(SecondsFormat::Micros, true);
        let (_, balance) = app.get(&format!("/v1/tenants/acme/balance?at={at}")).await;
        let expected = (json!(text(sum_until(seq))), json!(seq));
        assert_eq!((balance["balance"].clone(), balance["seq"].clone()), expected, "at {at}");
    }
    for query in ["", "&kind=odd"] {
        let (status, page) = app.get(&format!("/v1/tenants/acme/transactions?after={MIDDLE}&limit=500{query}")).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().expect("items");
        assert_eq!(items.len(), 500);
        let seqs = (MIDDLE + 1..).filter(|seq| query.is_empty() || amount(*seq) % 2 != 0);
        let mut running = sum_until(MIDDLE);
        let mut summed_to = MIDDLE;
        for (item, seq) in items.iter().zip(seqs) {
            running += (summed_to + 1..=seq).map(amount).sum::<i64>();
            summed_to = seq;
            assert_eq!((&item["seq"], &item["balance_after"]), (&json!(seq), &json!(text(running))), "{query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_a_wallet_of_very_many_rows_is_read_and_written_like_any_other() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let start = app.clock.now() - TimeDelta::days(30);
    fill(&app, start).await;
    let sum = sum_until(ROWS);
    read(&app, start, ROWS, sum).await;

    let booked = app.post_entries(&[entry("acme", "purchase", -sum, "everything")]).await.expect("a debit");
    assert_eq!((booked[0].seq, booked[0].balance_after.get()), (ROWS + 1, 0));
    app.post_entries(&[entry("acme", "purchase", -1, "one more")]).await.expect_err("nothing is left");
    app.fund("acme", sum).await;
    let long_ago = [entry("acme", kind(amount(MIDDLE)), 5, &format!("row-{MIDDLE}"))];
    let repeated = app.post_entries(&long_ago).await.expect_err("booked long ago");
    assert!(matches!(repeated, Error::Refused(Refusal::AlreadyBooked { seq: MIDDLE, .. })), "{repeated:?}");

    app.as_service().await.execute("DELETE FROM wallet_checkpoints").await.expect("dropped");
    read(&app, start, ROWS + 2, sum).await;
    app.post_entries(&[entry("acme", "purchase", -1, "without checkpoints")]).await.expect("a debit");
    read(&app, start, ROWS + 3, sum - 1).await;

    let report = app.verify().await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.rows, u64::try_from(ROWS + 3).expect("rows"));
}
