//! `hamyon verify`

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use indicatif::ProgressBar;

use crate::audit;
use crate::config::{self, DatabaseArgs};
use crate::db::Server;
use crate::hold;
use crate::ledger::verify::{self, Head, Report};
use crate::payment;
use crate::support;

/// What to verify against, and how to say it.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Also hold the chains against the heads in this file, kept away from the database
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
    /// When nothing is wrong, add the heads of all wallets to this file
    #[arg(long, value_name = "FILE")]
    write_anchor: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The exit code when it could not be found out whether something is wrong: not the one for "something is".
const COULD_NOT_RUN: u8 = 2;

pub async fn run(database: &DatabaseArgs, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    match verified(database, args).await {
        Ok(code) => Ok(code),
        Err(error) => {
            eprintln!("hamyon: could not verify: {error:#}");
            Ok(ExitCode::from(COULD_NOT_RUN))
        }
    }
}

async fn verified(database: &DatabaseArgs, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let server = database.migrated_server().await?;
    let outcome = verify_with(&server, database, args).await;
    config::leave(server, outcome).await
}

async fn verify_with(server: &Server, database: &DatabaseArgs, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let anchor = match &args.anchor {
        Some(file) => read_anchor(file)?,
        None => Vec::new(),
    };
    let db = server.connect(database.patient_pool().for_long_reads()).await?;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let mut snapshot =
        db.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.context("no snapshot")?;
    let mut report = verify::verify(&mut snapshot, &anchor, |rows| {
        bar.set_message(format!("{rows} rows"));
        bar.tick();
    })
    .await?;
    let (lines, wrong) = audit::verify::verify(&mut snapshot).await?;
    report.audit_lines = lines;
    if let Some(what) = wrong {
        report.add("the audit", what);
    }
    for row in support::granted_amiss(&mut snapshot).await? {
        report.add(row, "the request of the support desk and its row don't say the same, or one of them is missing");
    }
    for booking in payment::bookings_amiss(&mut snapshot).await? {
        report.add(booking, "the booking and the row of what it cost don't say the same, or one of them is missing");
    }
    for amiss in hold::verify(&mut snapshot).await? {
        report.add(format!("hold {}", amiss.hold_id), amiss.what);
    }
    let heads = verify::heads(&mut snapshot).await?;
    snapshot.rollback().await?;
    bar.finish_and_clear();
    db.close().await;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_report(&report);
    }
    if !report.is_clean() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(file) = &args.write_anchor {
        write_anchor(file, &heads)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_report(report: &Report) {
    println!(
        "{} wallets, {} rows, {} checkpoints, {} payments, {} anchored heads, {} lines of the audit",
        report.wallets, report.rows, report.checkpoints, report.payments, report.anchors, report.audit_lines
    );
    if report.is_clean() {
        println!("Nothing is wrong.");
        return;
    }
    println!("{} wrong; the first:", report.wrong);
    for finding in &report.findings {
        println!("  {}: {}", finding.place, finding.what);
    }
}

fn read_anchor(file: &Path) -> anyhow::Result<Vec<Head>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("the anchor {} can't be read", file.display()))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| {
                format!("line {} of the anchor {} can't be read", index.saturating_add(1), file.display())
            })
        })
        .collect()
}

/// One JSON object a line; the file only grows.
fn write_anchor(file: &Path, heads: &[Head]) -> anyhow::Result<()> {
    let mut lines = String::new();
    for head in heads {
        lines.push_str(&serde_json::to_string(head)?);
        lines.push('\n');
    }
    let mut anchor = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .with_context(|| format!("the anchor {} can't be opened", file.display()))?;
    anchor.write_all(lines.as_bytes()).and_then(|()| anchor.sync_all()).context("the anchor can't be written")
}
