//! Posting and reading through the library: does it stay fast when a wallet is long, or hot?

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hamyon::batch::{Batch, Batches};
use hamyon::clock::Clock;
use hamyon::db::Database;
use hamyon::idempotency::{self, Claim};
use hamyon::ids::{Actor, TenantId};
use hamyon::ledger::{self, Entry};
use hamyon::money::CurrencyCode;
use scoped_futures::ScopedFutureExt as _;
use sqlx::Executor as _;
use tokio_util::task::TaskTracker;

use crate::Effort;
use crate::console;
use crate::pgbench;
use crate::stage::{RAW, Stage, create_tenant, entry};
use crate::table::{Reach, Table, median};

const BATCH: usize = 5_000;
const HOT_ROWS: usize = 10_000;
const HOT_TASKS: u32 = 32;

/// A wallet with a million rows against one with ten.
pub async fn big_wallet(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let db = &stage.db;
    let began = Instant::now();
    fill(db, "big", effort.big_wallet_rows).await?;
    fill(db, "small", 10).await?;
    fill(db, "page", 100).await?;
    stage.session(hamyon::db::embedded::DATABASE).await?.execute("VACUUM ANALYZE").await?;
    eprintln!("  {} rows posted in {:.0} s", effort.big_wallet_rows, began.elapsed().as_secs_f64());
    let what = |verb: &str| format!("{verb}, {} rows against 10", effort.big_wallet_rows);

    let (mut big, mut small) = (Vec::new(), Vec::new());
    let mut conn = db.pool().acquire().await?;
    for turn in 0..effort.turns {
        for (tenant_id, times) in in_turns(turn, ("big", &mut big), ("small", &mut small)) {
            let tenant_id = TenantId::parse(tenant_id)?;
            let began = Instant::now();
            ledger::balance(&mut conn, &tenant_id, &CurrencyCode::uzs(), None, Clock::System.now()).await?;
            times.push(micros(began));
        }
    }
    drop(conn);
    table.ratio(what("balance read"), (median(big), "µs"), (median(small), "µs"), Reach::AtMost(1.3));

    let (mut big, mut small) = (Vec::new(), Vec::new());
    for turn in 0..effort.turns {
        for (tenant_id, times) in in_turns(turn, ("big", &mut big), ("small", &mut small)) {
            let debit = [entry(tenant_id, -1, format!("debit-{turn}"))?];
            let began = Instant::now();
            post(db, &debit).await?;
            times.push(micros(began));
        }
    }
    table.ratio(what("debit (disk not waited for)"), (median(big), "µs"), (median(small), "µs"), Reach::AtMost(1.3));
    console::page(stage, effort, table, "big", "page").await
}

/// The one that comes first has cold caches, so they take turns at that, too.
fn in_turns<T>(turn: usize, one: T, other: T) -> [T; 2] {
    if turn.is_multiple_of(2) { [one, other] } else { [other, one] }
}

/// Many at once on one wallet, against the textbook: lock, SUM, insert.
pub async fn hot_wallet(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if pgbench::find().is_none() {
        table.skip("one hot wallet: pgbench is not installed");
        return Ok(());
    }
    fill(&stage.db, "hot", HOT_ROWS).await?;
    let mut raw = stage.session(RAW).await?;
    raw.execute(
        "CREATE TABLE textbook_wallets (wallet_id bigint PRIMARY KEY);
         CREATE TABLE textbook_rows (row_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, wallet_id bigint NOT NULL,
                                     amount bigint NOT NULL, reference text NOT NULL,
                                     recorded_at timestamptz NOT NULL DEFAULT now());
         CREATE INDEX ON textbook_rows (wallet_id);
         INSERT INTO textbook_wallets VALUES (1);
         GRANT ALL ON textbook_wallets, textbook_rows TO hamyon_service",
    )
    .await?;
    let (mut ours, mut textbook) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        ours.push(hot_rate(&stage.db, round, effort.round).await?);
        // Every round begins with as many rows.
        raw.execute("TRUNCATE textbook_rows").await?;
        sqlx::query("INSERT INTO textbook_rows (wallet_id, amount, reference) SELECT 1, 1000, 'r' || n FROM generate_series(1, $1) n")
            .bind(i32::try_from(HOT_ROWS)?)
            .execute(&mut raw)
            .await?;
        raw.execute("VACUUM ANALYZE textbook_rows").await?;
        let script = "BEGIN;
            SELECT wallet_id FROM textbook_wallets WHERE wallet_id = 1 FOR UPDATE;
            SELECT sum(amount) FROM textbook_rows WHERE wallet_id = 1;
            INSERT INTO textbook_rows (wallet_id, amount, reference) VALUES (1, -1, 'r');
            COMMIT;";
        textbook.push(pgbench::run(stage, script, HOT_TASKS, effort.round).await?);
    }
    table.ratio(
        "one hot wallet, 32 at once, against lock-SUM-insert",
        (median(ours), "posts/s"),
        (median(textbook), "posts/s"),
        Reach::AtLeast(5.0),
    );
    Ok(())
}

/// As `/v1/transactions/batch` books: each posting under a key of its own.
async fn hot_rate(db: &Database, round: usize, time: Duration) -> anyhow::Result<f64> {
    let count = Arc::new(AtomicU32::new(0));
    let batches = Batches::new(db.clone(), Clock::System, TaskTracker::new());
    let began = Instant::now();
    let tasks: Vec<_> = (0..HOT_TASKS)
        .map(|task| {
            let (batches, count) = (batches.clone(), count.clone());
            tokio::spawn(async move {
                let mut number: u64 = 0;
                while began.elapsed() < time {
                    let reference = format!("hot-{round}-{task}-{number}");
                    let key = idempotency::Key::parse(&reference)?;
                    let request = serde_json::json!({ "reference": reference });
                    let batch = Batch {
                        entries: vec![entry("hot", -1, reference)?],
                        claim: Claim::new("bench".to_owned(), key, "bench".to_owned(), request),
                        actor: Actor::job("bench"),
                        status: 201,
                        render: Box::new(|rows| Ok(rows.len().to_string())),
                    };
                    batches.post(batch).await.map_err(|error| anyhow::anyhow!("a posting failed: {error:?}"))?;
                    count.fetch_add(1, Ordering::Relaxed);
                    number = number.saturating_add(1);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(f64::from(count.load(Ordering::Relaxed)) / began.elapsed().as_secs_f64())
}

/// A wallet with so many rows.
async fn fill(db: &Database, tenant_id: &str, rows: usize) -> anyhow::Result<()> {
    create_tenant(db, tenant_id).await?;
    let numbers: Vec<usize> = (0..rows).collect();
    for part in numbers.chunks(BATCH) {
        let entries: Vec<Entry> = part
            .iter()
            .map(|number| entry(tenant_id, 1_000_000, format!("fill-{number}")))
            .collect::<Result<_, _>>()?;
        post(db, &entries).await?;
    }
    Ok(())
}

/// Posts without waiting for the disk: it is only there to be read.
pub async fn post(db: &Database, entries: &[Entry]) -> anyhow::Result<()> {
    let actor = &Actor::job("bench");
    let posted = db
        .run("bench_post", |conn| {
            async move {
                sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut *conn).await?;
                ledger::post(conn, entries, actor, Clock::System.now()).await.map(|_| ())
            }
            .scope_boxed()
        })
        .await;
    posted.map_err(|error| anyhow::anyhow!("a posting failed: {error:?}"))
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}
