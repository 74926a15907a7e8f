//! `hamyon reconcile`: what the jobs do about holds and pockets, once, now.

use std::process::ExitCode;

use crate::clock::Clock;
use crate::config::{self, DatabaseArgs};
use crate::db::Server;
use crate::hold;
use crate::pocket;

/// How to say what was done.
#[derive(Debug, clap::Args)]
pub struct ReconcileArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(database: &DatabaseArgs, args: &ReconcileArgs) -> anyhow::Result<ExitCode> {
    let server = database.migrated_server().await?;
    let outcome = run_with(&server, database, args).await;
    config::leave(server, outcome).await
}

async fn run_with(server: &Server, database: &DatabaseArgs, args: &ReconcileArgs) -> anyhow::Result<ExitCode> {
    let db = server.connect(database.patient_pool()).await?;
    let clock = Clock::System;
    let holds = hold::reconcile(&db, &clock).await?;
    let expired = pocket::sweep(&db, &clock).await?;
    db.close().await;
    if args.json {
        println!(
            "{}",
            serde_json::json!({
                "holds": {
                    "extended": holds.extended, "settled": holds.settled, "released": holds.released,
                    "usage_lost": holds.usage_lost, "failed": holds.failed,
                },
                "expiry_rows": expired,
            })
        );
    } else {
        println!(
            "holds: {} settled ({} of them without usage), {} released, {} extended, {} failed; {expired} expiry rows",
            holds.settled, holds.usage_lost, holds.released, holds.extended, holds.failed
        );
    }
    Ok(if holds.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
