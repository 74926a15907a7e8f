//! Load over HTTP, against pgbench.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rand::Rng as _;
use serde_json::json;
use sqlx::Executor as _;

use crate::Effort;
use crate::http::Connection;
use crate::pgbench::{self, statement};
use crate::stage::{RAW, Stage, WALLETS};
use crate::table::{Reach, Table, median};

const CONNECTIONS: u32 = 32;
const BATCH_ROWS: u32 = 500;
const BATCHES_AT_ONCE: u32 = 4;

/// Create and Perform of one payment, as Payme's servers send them.
pub async fn payme(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if pgbench::find().is_none() {
        table.skip("Payme Create and Perform: pgbench is not installed");
        return Ok(());
    }
    let serving = stage.serve().await?;
    let script = payme_script()?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        ours.push(sustained(&serving.address, CONNECTIONS, effort.round, Work::Payment).await?);
        raw.push(pgbench::run(stage, &script, CONNECTIONS, effort.round).await?);
    }
    serving.stop().await?;
    table.ratio(
        "Payme Create and Perform, 32 connections",
        (median(ours), "payments/s"),
        (median(raw), "payments/s"),
        Reach::AtLeast(0.35),
    );
    Ok(())
}

/// Batches of 500 rows over many wallets, a few at once.
pub async fn batch(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if pgbench::find().is_none() {
        table.skip("batch of postings: pgbench is not installed");
        return Ok(());
    }
    let mut session = stage.session(RAW).await?;
    session
        .execute(
            "CREATE TABLE raw_rows (LIKE wallet_transactions INCLUDING ALL);
             GRANT ALL ON raw_rows TO hamyon_service",
        )
        .await?;
    let script = format!(
        "\\set wallet random(1, {WALLETS})
         \\set seq random(1, 9000000000000000)
         INSERT INTO raw_rows (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference, actor, metadata,
                               recorded_at, hash)
         VALUES (:wallet, :seq, 'load-' || :wallet::bigint, 'UZS', 'bench', 100, 'main', :seq::bigint::text, 'api', '{{}}',
                 now(), sha256('a row'));"
    );
    let serving = stage.serve().await?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let batches = sustained(&serving.address, BATCHES_AT_ONCE, effort.round, Work::Batch).await?;
        ours.push(batches * f64::from(BATCH_ROWS));
        raw.push(pgbench::run(stage, &script, CONNECTIONS, effort.round).await?);
    }
    serving.stop().await?;
    table.ratio(
        "batch of postings, 500 rows each, against one-row INSERTs",
        (median(ours), "rows/s"),
        (median(raw), "rows/s"),
        Reach::AtLeast(1.0),
    );
    Ok(())
}

#[derive(Clone, Copy)]
enum Work {
    Payment,
    Batch,
}

/// Keeps connections busy for a time; how often a second the work was done.
async fn sustained(address: &str, connections: u32, time: Duration, work: Work) -> anyhow::Result<f64> {
    let count = Arc::new(AtomicU32::new(0));
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let began = Instant::now();
    let tasks: Vec<_> = open
        .into_iter()
        .map(|mut connection| {
            let count = count.clone();
            tokio::spawn(async move {
                while began.elapsed() < time {
                    match work {
                        Work::Payment => pay(&mut connection).await?,
                        Work::Batch => post(&mut connection).await?,
                    }
                    count.fetch_add(1, Ordering::Relaxed);
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

pub fn wallet() -> String {
    format!("load-{}", rand::rng().random_range(1..=WALLETS))
}

pub fn create_body(id: &str) -> String {
    let time = hamyon::clock::Clock::System.now().timestamp_millis();
    json!({ "jsonrpc": "2.0", "id": 1, "method": "CreateTransaction",
            "params": { "id": id, "time": time, "amount": 150_000, "account": { "tenant_id": wallet() } } })
    .to_string()
}

pub fn perform_body(id: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "PerformTransaction", "params": { "id": id } }).to_string()
}

pub fn payment_id() -> String {
    format!("{:024}", rand::random::<u64>())
}

async fn pay(connection: &mut Connection) -> anyhow::Result<()> {
    let id = payment_id();
    connection.payme(&create_body(&id)).await?;
    connection.payme(&perform_body(&id)).await
}

pub fn batch_body(rows: u32) -> (String, String) {
    let key = uuid::Uuid::now_v7().to_string();
    let transactions: Vec<_> = (0..rows)
        .map(|row| {
            json!({ "tenant_id": wallet(), "currency": "UZS", "kind": "bench", "amount": "1.00",
                    "reference": format!("{key}-{row}") })
        })
        .collect();
    (key, json!({ "transactions": transactions }).to_string())
}

async fn post(connection: &mut Connection) -> anyhow::Result<()> {
    let (key, body) = batch_body(BATCH_ROWS);
    let (status, answer) = connection.post("/v1/transactions/batch", &key, &body).await?;
    anyhow::ensure!(status == 201, "a batch was answered {status} {answer}");
    Ok(())
}

/// What the service sends to the database for one payment.
fn payme_script() -> anyhow::Result<String> {
    let id = "lpad(:number::bigint::text, 24, '0')";
    let tenant = "('load-' || :wallet::bigint)";
    let tenants = format!("ARRAY[{tenant}]");
    let reference = format!("ARRAY['payme:' || {id}]");
    // To pgbench a colon with a word behind it is a variable.
    let answer = r#"'{"create_time": 1795985971616, "receivers": null, "state": 1, "transaction": "1"}'"#;
    let log = |method: &str, body: String| {
        let body = format!("'{}'", body.replace(':', ": "));
        let method = format!("'{method}'");
        statement(
            "call_log::record",
            &[
                "'payme'",
                "'live'",
                &method,
                id,
                "'127.0.0.1'",
                "'01a2291b-8879-7142-a2ec-a81cb1ba581b'",
                "now()",
                &body,
                "180",
                answer,
                "NULL",
            ],
        )
    };
    let no_rows = ["'{}'::bigint[]", "'{}'::text[]", "'{}'::timestamptz[]"];
    let parts = [
        format!("\\set number random(1, 9000000000000000)\n\\set wallet random(1, {WALLETS})\nBEGIN;"),
        statement("payment::lock", &["'payme'", "'live'", id])? + ";",
        statement("payment::tenant_status", &[tenant])? + ";",
        statement(
            "payment::insert",
            &[
                "'payme'",
                "'live'",
                id,
                tenant,
                "NULL",
                "'UZS'",
                "150000",
                "'{\"tenant_id\":\"load-1\"}'",
                "now()",
                "now()",
            ],
        )? + ";",
        log("CreateTransaction", create_body("000000000000000000000000"))? + ";",
        "COMMIT;\nBEGIN;".to_owned(),
        statement("payment::lock", &["'payme'", "'live'", id])? + " \\gset",
        statement("ledger::lock_wallets", &[&tenants, "ARRAY['UZS']"])? + " \\gset",
        statement(
            "ledger::read_wallets",
            &["ARRAY[:wallet_id::bigint]", "ARRAY[:wallet_id::bigint]", "ARRAY['top_up']", &reference],
        )? + " \\gset",
        statement(
            "ledger::write",
            &[
                "ARRAY[:wallet_id::bigint]",
                "ARRAY[:head_seq::bigint + 1]",
                &tenants,
                "ARRAY['UZS']",
                "ARRAY['top_up']",
                "ARRAY[150000]",
                "ARRAY['main']",
                &reference,
                "ARRAY[NULL]",
                "ARRAY[NULL]",
                "ARRAY['payme']",
                "ARRAY['{\"payment_id\":\"1\"}']",
                "ARRAY[now()]",
                "ARRAY[sha256('a row')]",
                "ARRAY[:wallet_id::bigint]",
                "ARRAY[:head_seq::bigint + 1]",
                "ARRAY[sha256('a row')]",
                "ARRAY[now()]",
                no_rows[0],
                no_rows[0],
                no_rows[1],
                no_rows[2],
            ],
        )? + ";",
        statement("payment::set_performed", &[":payment_id::bigint", "now()"])? + ";",
        log("PerformTransaction", perform_body("000000000000000000000000"))? + ";",
        "COMMIT;\n".to_owned(),
    ];
    Ok(parts.join("\n"))
}
