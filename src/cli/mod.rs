//! The command line: arguments → settings → telemetry → command.

mod demo;
mod export;
mod fees;
mod migrate;
pub mod payme;
mod reconcile;
mod serve;
mod staff;
mod token;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{DatabaseArgs, ServeArgs};
use crate::telemetry::{self, LogFormat};

/// Hamyon: an event-sourced wallet ledger
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    database: DatabaseArgs,
    /// How log lines look
    #[arg(long, env = "HAMYON_LOG_FORMAT", value_enum, default_value = "text", global = true)]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API and the payment providers
    Serve(Box<ServeArgs>),
    /// Bring the database's schema up to date
    Migrate,
    /// Check that the book agrees with itself; exit code 1 when it doesn't, 2 when that can't be found out
    Verify(verify::VerifyArgs),
    /// Write the book down for a spreadsheet, hledger or beancount
    Export(export::ExportArgs),
    /// Monthly fees: plans, subscriptions and the run
    #[command(subcommand)]
    Fees(fees::FeesCommand),
    /// End holds that nobody came back for and book pockets whose time is over; exit code 1 when one can't be
    Reconcile(reconcile::ReconcileArgs),
    /// Make, list and revoke API tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// The people at the support desk
    #[command(subcommand)]
    Staff(staff::StaffCommand),
    /// Tools for Payme
    #[command(subcommand)]
    Payme(PaymeCommand),
}

#[derive(Debug, Subcommand)]
enum PaymeCommand {
    /// Check any Payme merchant endpoint the way Payme's sandbox does
    Conformance(Box<payme::ConformanceArgs>),
}

/// Runs the command.
///
/// # Errors
/// What stopped it, as a chain of sentences.
pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let filter = match &arguments.command {
        Command::Serve(_) => "info,sqlx=warn,tokio_cron_scheduler=warn",
        Command::Migrate
        | Command::Verify(_)
        | Command::Export(_)
        | Command::Fees(_)
        | Command::Reconcile(_)
        | Command::Token(_)
        | Command::Staff(_)
        | Command::Payme(_) => "warn",
    };
    telemetry::start_log(arguments.log_format, filter)?;
    match arguments.command {
        Command::Serve(serve) => serve::run(&arguments.database, &serve).await,
        Command::Migrate => migrate::run(&arguments.database).await,
        Command::Verify(verify) => verify::run(&arguments.database, &verify).await,
        Command::Export(export) => export::run(&arguments.database, &export).await,
        Command::Fees(fees) => fees::run(&arguments.database, fees).await,
        Command::Reconcile(args) => reconcile::run(&arguments.database, &args).await,
        Command::Token(token) => token::run(&arguments.database, token).await,
        Command::Staff(staff) => staff::run(&arguments.database, staff).await,
        Command::Payme(PaymeCommand::Conformance(conformance)) => payme::conformance(*conformance).await,
    }
}
