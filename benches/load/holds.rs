//! Holding and settling over HTTP, against pgbench; and whether a tenant with very many old holds is as fast as a new
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use hamyon::db::embedded::DATABASE;
use serde_json::json;
use sqlx::Executor as _;

use crate::Effort;
use crate::http::Connection;
use crate::pgbench::{self, statement};
use crate::posting::post;
use crate::providers::wallet;
use crate::stage::{RAW, Stage, WALLETS, entry};
use crate::table::{Reach, Table, median};

const CONNECTIONS: u32 = 32;

/// Pairs of a hold and its settlement, 32 at once.
pub async fn pairs(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    if pgbench::find().is_none() {
        table.skip("hold and settle: pgbench is not installed");
        return Ok(());
    }
    let money: Vec<_> = (1..=WALLETS)
        .map(|number| entry(&format!("load-{number}"), 1_000_000_000_000, "money for holds".to_owned()))
        .collect::<Result<_, _>>()?;
    post(&stage.db, &money).await?;
    // On both sides the wallets have had holds before, as those of a product that uses them have.
    for database in [DATABASE, RAW] {
        stage.session(database).await?.execute("UPDATE wallets SET divided = true WHERE NOT divided").await?;
    }
    let script = script()?;
    let serving = stage.serve().await?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let count = Arc::new(AtomicU32::new(0));
        let began = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = Connection::open(&serving.address).await?;
            let count = count.clone();
            tasks.push(tokio::spawn(async move {
                while began.elapsed() < effort.round {
                    pair(&mut connection, &wallet()).await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        ours.push(f64::from(count.load(Ordering::Relaxed)) / began.elapsed().as_secs_f64());
        raw.push(pgbench::run(stage, &script, CONNECTIONS, effort.round).await?);
    }
    serving.stop().await?;
    table.ratio(
        "hold and settle, 32 connections",
        (median(ours), "pairs/s"),
        (median(raw), "pairs/s"),
        Reach::AtLeast(0.35),
    );
    old_holds(stage, effort, table).await
}

/// One hold of a so'm and its settlement, on keep-alive.
async fn pair(connection: &mut Connection, tenant_id: &str) -> anyhow::Result<()> {
    let hold_id = uuid::Uuid::now_v7().to_string();
    let place = json!({ "hold_id": hold_id, "tenant_id": tenant_id, "currency": "UZS", "amount": "1.00" }).to_string();
    let (status, answer) = connection.post_without_key("/v1/holds", &place).await?;
    anyhow::ensure!(status == 201, "a hold was answered {status} {answer}");
    let settle = r#"{"mode":"as_held"}"#;
    let (status, answer) = connection.post_without_key(&format!("/v1/holds/{hold_id}/settle"), settle).await?;
    anyhow::ensure!(status == 200, "a settlement was answered {status} {answer}");
    Ok(())
}

/// A tenant with a million ended holds against one with none, in turns.
async fn old_holds(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let mut session = stage.session(DATABASE).await?;
    // Written past the door: what is measured is whether anybody has to look at them.
    session
        .execute(sqlx::AssertSqlSafe(format!(
            "INSERT INTO holds (hold_id, tenant_id, wallet_id, currency, asked, amount, pockets, pocket_amounts, cost_cap,
                                queue, ttl_secs, placed_by, placed_at, expires_at, ended_at, outcome, charged, ended_by,
                                end_asked)
             SELECT 'old-' || n, w.tenant_id, w.wallet_id, 'UZS', '{{}}', 100, '{{main}}', '{{100}}', 100, 'plain', 900,
                    'bench', now() - interval '1 day', now() - interval '1 day', now() - interval '1 day', 'released', 0,
                    'worker', '{{}}'
               FROM wallets w, generate_series(1, {rows}) n
              WHERE w.tenant_id = 'load-1' AND w.currency = 'UZS'",
            rows = effort.big_wallet_rows,
        )))
        .await?;
    session.execute("VACUUM ANALYZE holds").await?;
    let serving = stage.serve().await?;
    let mut connection = Connection::open(&serving.address).await?;
    let (mut old_times, mut new_times) = (Vec::new(), Vec::new());
    for turn in 0..effort.turns {
        let mut turns = [("load-1", &mut old_times), ("load-2", &mut new_times)];
        if !turn.is_multiple_of(2) {
            turns.reverse();
        }
        for (tenant_id, times) in turns {
            let began = Instant::now();
            pair(&mut connection, tenant_id).await?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    serving.stop().await?;
    table.ratio(
        format!("hold and settle, {} old holds against none", effort.big_wallet_rows),
        (median(old_times), "µs"),
        (median(new_times), "µs"),
        Reach::AtMost(1.3),
    );
    Ok(())
}

/// What the service sends to the database for one pair.
fn script() -> anyhow::Result<String> {
    let hold_id = "('b' || :number::bigint)";
    let tenant = "('load-' || :wallet::bigint)";
    let tenants = format!("ARRAY[{tenant}]");
    let wallets = "ARRAY[:wallet_id::bigint]";
    let no_texts = "'{}'::text[]";
    // To pgbench a colon with a word behind it is a variable.
    let body = "'{\"tenant_id\": \"load-1\", \"amount_minor_units\": 100, \"queue\": \"plain\"}'";
    let lock = || statement("ledger::lock_wallets", &[&tenants, "ARRAY['UZS']"]);
    let read = |kinds: &str, references: &str, entries: &str| {
        statement("ledger::read_wallets", &[wallets, entries, kinds, references])
    };
    let divisions = || statement("ledger::divisions", &[wallets, "ARRAY['main']", "now()"]);
    let find = || statement("hold::find", &[hold_id]);
    let events = |kind: &str| {
        statement("outbox::insert_events", &[&tenants, &format!("ARRAY['{kind}']"), &format!("ARRAY[{body}]"), "now()"])
    };
    let reference = format!("ARRAY['hold/' || {hold_id}]");
    let parts = [
        format!("\\set number random(1, 9000000000000000)\n\\set wallet random(1, {WALLETS})\nBEGIN;"),
        lock()? + " \\gset",
        statement("hold::lock_tenant", &[tenant, "NULL", "'UZS'", "now()"])? + ";",
        find()? + ";",
        statement("hold::unended_of_tenant", &[tenant])? + ";",
        read(no_texts, no_texts, "'{}'::bigint[]")? + ";",
        divisions()? + ";",
        statement(
            "hold::insert",
            &[
                hold_id,
                tenant,
                ":wallet_id::bigint",
                "'UZS'",
                "'{}'",
                "100",
                "ARRAY['main']",
                "ARRAY[100]",
                "100",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "'plain'",
                "900",
                "'api'",
                "now()",
                "now() + interval '900 seconds'",
            ],
        )? + ";",
        events("hold.placed")? + ";",
        "COMMIT;".to_owned(),
        statement("hold::wallet_of", &[hold_id])? + ";",
        "BEGIN;".to_owned(),
        statement("hold::wallet_of", &[hold_id])? + ";",
        lock()? + ";",
        find()? + ";",
        statement("hold::set_ended", &[hold_id, "now()", "'settled'", "100", "'worker'", "'{}'"])? + ";",
        read(no_texts, no_texts, "'{}'::bigint[]")? + ";",
        divisions()? + ";",
        lock()? + ";",
        read("ARRAY['hold_charge']", &reference, wallets)? + " \\gset",
        divisions()? + ";",
        statement(
            "ledger::write",
            &[
                wallets,
                "ARRAY[:head_seq::bigint + 1]",
                &tenants,
                "ARRAY['UZS']",
                "ARRAY['hold_charge']",
                "ARRAY[-100]",
                "ARRAY['main']",
                &reference,
                "ARRAY[NULL]",
                "ARRAY[NULL]",
                "ARRAY['api']",
                "ARRAY['{}']",
                "ARRAY[now()]",
                "ARRAY[sha256('a row')]",
                wallets,
                "ARRAY[:head_seq::bigint + 1]",
                "ARRAY[sha256('a row')]",
                "ARRAY[now()]",
                "'{}'::bigint[]",
                "'{}'::bigint[]",
                no_texts,
                "'{}'::timestamptz[]",
            ],
        )? + ";",
        events("hold.settled")? + ";",
        "COMMIT;\n".to_owned(),
    ];
    Ok(parts.join("\n"))
}
