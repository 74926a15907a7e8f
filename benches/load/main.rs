//! How fast the wallet is, as ratios against raw PostgreSQL on the same server in the same run.
//!
//! `cargo bench --bench load` takes some minutes, `-- --quick` about one. The server is a private one of its
//! own with fsync on. `-- --only hot-wallet` measures one row, and may be said several times. What is compared is measured in turns, and medians are compared. A reach that is missed
//! is said so and fails nothing; a round trip too many does fail, because it is counted and not timed.

#![expect(clippy::float_arithmetic, reason = "a ratio is a float, and no money is")]

mod console;
mod fees;
mod holds;
mod http;
#[expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::as_conversions,
    clippy::similar_names,
    reason = "shared with the tests"
)]
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/it/support/pg_proxy.rs"]
mod pg_proxy;
mod pgbench;
mod posting;
mod providers;
mod round_trips;
mod stage;
mod start;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser as _, ValueEnum as _};
use stage::Stage;
use table::Table;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rows of the big wallet.
    pub big_wallet_rows: usize,
    /// Turns of single operations.
    pub turns: usize,
    /// Rounds of sustained load, ours and raw in turns.
    pub rounds: usize,
    /// Tenants of the fee run whose memory is looked at.
    pub fee_memory_tenants: i64,
    /// How long one round of sustained load takes.
    pub round: Duration,
}

const FULL: Effort = Effort {
    big_wallet_rows: 1_000_000,
    turns: 2_000,
    rounds: 5,
    fee_memory_tenants: 1_000_000,
    round: Duration::from_secs(8),
};
const QUICK: Effort = Effort {
    big_wallet_rows: 100_000,
    turns: 400,
    rounds: 2,
    fee_memory_tenants: 200_000,
    round: Duration::from_secs(3),
};

/// What to measure.
#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Fewer rows and shorter rounds.
    #[arg(long)]
    quick: bool,
    /// Only these; everything when left out.
    #[arg(long, value_enum)]
    only: Vec<Row>,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Row {
    RoundTrips,
    Start,
    Payme,
    Batch,
    Holds,
    HotWallet,
    BigWallet,
    FeeRun,
    FeeMemory,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let effort = if arguments.quick { QUICK } else { FULL };
    let rows: Vec<Row> = Row::value_variants()
        .iter()
        .copied()
        .filter(|row| arguments.only.is_empty() || arguments.only.contains(row))
        .collect();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stage = Stage::set().await?;
    let mut table = Table::new();
    let outcome = measure(&stage, effort, &rows, &mut table).await;
    stage.strike().await?;
    table.print();
    let fewer_or_same = outcome?;
    Ok(if fewer_or_same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(stage: &Stage, effort: Effort, rows: &[Row], table: &mut Table) -> anyhow::Result<bool> {
    let mut fewer_or_same = true;
    for row in rows {
        match row {
            Row::RoundTrips => fewer_or_same = round_trips::count(stage).await?,
            Row::Start => start::measure(stage, effort, table).await?,
            Row::Payme => providers::payme(stage, effort, table).await?,
            Row::Batch => providers::batch(stage, effort, table).await?,
            Row::Holds => holds::pairs(stage, effort, table).await?,
            Row::HotWallet => posting::hot_wallet(stage, effort, table).await?,
            Row::BigWallet => posting::big_wallet(stage, effort, table).await?,
            Row::FeeRun => fees::run(stage, effort, table).await?,
            Row::FeeMemory => fees::memory(stage, effort, table).await?,
        }
    }
    Ok(fewer_or_same)
}
