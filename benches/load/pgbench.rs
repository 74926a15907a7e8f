//! Raw PostgreSQL: pgbench, running scripts made of the very statements the service runs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hamyon::db::embedded::{Binaries, SUPERUSER};
use tokio::process::Command;

use crate::stage::{RAW, Stage};

/// pgbench, if it is installed.
pub fn find() -> Option<PathBuf> {
    let beside = Binaries::find(None, None).ok().map(|binaries| binaries.folder().join("pgbench"));
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&in_path).map(|folder| folder.join("pgbench")).collect();
    beside.into_iter().chain(in_path).find(|file| file.is_file())
}

/// Runs a script on the raw database; transactions a second.
pub async fn run(stage: &Stage, script: &str, clients: u32, time: Duration) -> anyhow::Result<f64> {
    let program = find().context("pgbench is not installed")?;
    let file = stage.folder.path().join("script.sql");
    std::fs::write(&file, script)?;
    let output = Command::new(program)
        .args(["--no-vacuum", "--protocol=prepared", "--username", SUPERUSER, "--port", "5432", "--host"])
        .arg(stage.server.socket_folder())
        .args(["--client", &clients.to_string(), "--jobs", "2", "--time", &time.as_secs().to_string(), "--file"])
        .arg(&file)
        .arg(RAW)
        .env("PGOPTIONS", "-c role=hamyon_service")
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench failed: {complaint}");
    let failed = said.lines().find_map(|line| line.strip_prefix("number of failed transactions: "));
    ensure!(failed.is_none_or(|failed| failed.starts_with("0 ")), "pgbench's transactions failed: {said}");
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")).context("pgbench said no rate")?;
    Ok(rate.split(' ').next().unwrap_or_default().parse()?)
}

/// A statement of the service by its name, with SQL for its parameters, in order.
pub fn statement(name: &str, parameters: &[&str]) -> anyhow::Result<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/.sqlx");
    let first_line = format!("-- {name}\n");
    for file in std::fs::read_dir(folder)? {
        let query: serde_json::Value = serde_json::from_slice(&std::fs::read(file?.path())?)?;
        let text = query["query"].as_str().unwrap_or_default();
        if let Some(text) = text.strip_prefix(&first_line) {
            return Ok(fill_in(&plain_names(text), parameters));
        }
    }
    anyhow::bail!("the service has no statement {name} any more")
}

/// `$10` before `$1`.
fn fill_in(text: &str, parameters: &[&str]) -> String {
    let mut text = text.to_owned();
    for (index, parameter) in parameters.iter().enumerate().rev() {
        text = text.replace(&format!("${}", index.saturating_add(1)), parameter);
    }
    text
}

/// Columns such as `"rows!"` and `"sums?: Vec<i64>"` tell the driver their type; to pgbench they are names.
fn plain_names(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            let end = part.find(['!', '?', ':']).unwrap_or(part.len());
            plain.push('"');
            plain.push_str(&part[..end]);
            plain.push('"');
        } else {
            plain.push_str(part);
        }
    }
    plain
}
