//! How often each operation waits for PostgreSQL: counted on the wire, exactly, and never more than before.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use hamyon::db::embedded::{DATABASE, SUPERUSER};

use crate::http::Connection;
use crate::pg_proxy::{PgProxy, Upstream};
use crate::providers::{batch_body, create_body, payment_id, perform_body, wallet};
use crate::stage::{Serving, Stage, serve};

/// Before counting: statements are prepared, and the caches are full.
const WARM_UP: usize = 3;
const TIMES: u64 = 20;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/load/round-trips.txt");

/// Counts, prints, compares; `false` when an operation needs more than the file allows.
pub async fn count(stage: &Stage) -> anyhow::Result<bool> {
    let proxy = PgProxy::start(Upstream::Socket(stage.server.socket_folder().join(".s.PGSQL.5432"))).await;
    let mut command = serve();
    // One connection: the next operation begins when the one before has given it back.
    command
        .args(["--jobs", "off", "--database-connections", "1"])
        .env("DATABASE_URL", format!("postgresql://{SUPERUSER}@127.0.0.1:{}/{DATABASE}?sslmode=disable", proxy.port));
    let serving = Serving::start(command).await?;
    let mut connection = Connection::open(&serving.address).await?;
    let mut counted = BTreeMap::new();
    for operation in
        ["balance read", "Payme CreateTransaction", "Payme PerformTransaction", "batch of 1", "batch of 500"]
    {
        let mut before = 0;
        let mut payments = Vec::new();
        for _ in 0..WARM_UP.saturating_add(usize::try_from(TIMES)?) {
            let id = payment_id();
            if operation == "Payme PerformTransaction" {
                connection.payme(&create_body(&id)).await?;
            }
            payments.push(id);
        }
        for (turn, id) in payments.iter().enumerate() {
            if turn == WARM_UP {
                before = proxy.round_trips();
            }
            match operation {
                "balance read" => {
                    let (status, answer) = connection.get(&format!("/v1/tenants/{}/balance", wallet())).await?;
                    ensure!(status == 200, "{answer}");
                }
                "Payme CreateTransaction" => connection.payme(&create_body(id)).await?,
                "Payme PerformTransaction" => connection.payme(&perform_body(id)).await?,
                _ => {
                    let (key, body) = batch_body(if operation == "batch of 1" { 1 } else { 500 });
                    let (status, answer) = connection.post("/v1/transactions/batch", &key, &body).await?;
                    ensure!(status == 201, "{answer}");
                }
            }
        }
        // The last one may still be giving its connection back, which is a round trip as well; so may the one
        // before the first. Rounding takes either out.
        let total = proxy.round_trips().saturating_sub(before);
        counted.insert(operation, total.saturating_add(TIMES / 2) / TIMES);
    }
    serving.stop().await?;
    compare(&counted)
}

fn compare(counted: &BTreeMap<&str, u64>) -> anyhow::Result<bool> {
    let text = std::fs::read_to_string(FILE).with_context(|| format!("{FILE} can't be read"))?;
    let mut allowed: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (number, operation) = line.trim().split_once(' ').with_context(|| format!("{FILE}: {line}"))?;
        allowed.insert(operation.trim(), number.parse()?);
    }
    let mut fewer_or_same = true;
    println!("\nround trips to PostgreSQL, the one that gives the connection back included:");
    for (operation, number) in counted {
        let remark = match allowed.get(operation) {
            Some(most) if number > most => {
                fewer_or_same = false;
                format!("TOO MANY: benches/load/round-trips.txt allows {most}, and they may only go down")
            }
            Some(most) if number < most => format!("fewer than {most}: write it into benches/load/round-trips.txt"),
            Some(_) => String::new(),
            None => {
                fewer_or_same = false;
                "not in benches/load/round-trips.txt".to_owned()
            }
        };
        println!("  {number:>2} {operation}  {remark}");
    }
    Ok(fewer_or_same)
}
