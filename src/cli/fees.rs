//! `hamyon fees …`

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use chrono::NaiveDate;
use indicatif::{ProgressBar, ProgressStyle};
use scoped_futures::ScopedFutureExt as _;

use crate::clock::Clock;
use crate::config::{self, DatabaseArgs};
use crate::db::{Database, Server};
use crate::fault::Error;
use crate::fee::{self, FeeRun, FirstMonth, NewSubscription, Plan, RunLimits, RunOptions, RunReport};
use crate::ids::{OrderId, TenantId};
use crate::ledger::Currencies;
use crate::money::{CurrencyCode, MinorUnits, Month};

/// What to do with fees.
#[derive(Debug, clap::Subcommand)]
pub enum FeesCommand {
    /// Decide every month that is owed and undecided; exit code 1 when something stays open or a limit stops it
    Run(RunArgs),
    /// Show the runs: expected = charged + overdue + open
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a plan
    Plan {
        /// The product's own id
        plan_id: String,
        /// For people to read
        #[arg(long)]
        name: String,
        /// The price of a month, such as 150000.00
        #[arg(long)]
        price: String,
        /// Its currency
        #[arg(long, default_value = "UZS")]
        currency: String,
    },
    /// Subscribe a tenant to a plan
    Subscribe {
        /// Whose
        tenant_id: String,
        /// Of which plan
        plan_id: String,
        /// The first day in the tenant's zone, such as 2026-12-10
        #[arg(long)]
        started_on: NaiveDate,
        /// What a first month costs that doesn't begin on the first: full, prorated or free
        #[arg(long, default_value = "full")]
        first_month: String,
    },
    /// End a subscription
    Cancel {
        /// Whose
        tenant_id: String,
        /// Its number
        subscription_id: i64,
        /// The last day [default: the last day of the paid month]
        #[arg(long)]
        ended_on: Option<NaiveDate>,
    },
}

/// How to run.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Only months up to this one, such as 2026-12
    #[arg(long)]
    period: Option<String>,
    /// Do it all and roll it back
    #[arg(long)]
    dry_run: bool,
    /// How many chunks at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Say yes to what is beyond the limits
    #[arg(long)]
    yes: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Months of one subscription that may be charged at once without --yes
    #[arg(long, env = "HAMYON_FEES_MONTHS_MAX", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=120))]
    months_max: u32,
    /// Per cent of the dues that may turn out overdue without --yes
    #[arg(long, env = "HAMYON_FEES_OVERDUE_PERCENT_MAX", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    overdue_percent_max: u8,
}

pub async fn run(database: &DatabaseArgs, command: FeesCommand) -> anyhow::Result<ExitCode> {
    let server = database.migrated_server().await?;
    let outcome = run_with(&server, database, command).await;
    config::leave(server, outcome).await
}

async fn run_with(server: &Server, database: &DatabaseArgs, command: FeesCommand) -> anyhow::Result<ExitCode> {
    let db = server.connect(database.patient_pool()).await?;
    let outcome = match command {
        FeesCommand::Run(args) => fee_run(&db, &args).await,
        FeesCommand::Status { json } => status(&db, json).await,
        FeesCommand::Plan { plan_id, name, price, currency } => plan(&db, plan_id, name, &price, currency).await,
        FeesCommand::Subscribe { tenant_id, plan_id, started_on, first_month } => {
            fee::check_start(started_on)?;
            let new = NewSubscription {
                tenant_id: TenantId::parse(tenant_id)?,
                plan_id: OrderId::parse(plan_id)?,
                started_on,
                first_month: FirstMonth::parse(&first_month)?,
            };
            subscribe(&db, &new).await
        }
        FeesCommand::Cancel { tenant_id, subscription_id, ended_on } => {
            cancel(&db, &TenantId::parse(tenant_id)?, subscription_id, ended_on).await
        }
    };
    db.close().await;
    outcome
}

/// A refusal is an answer for the person at the terminal, like a fault.
fn said<T, R>(outcome: Result<T, Error<R>>) -> anyhow::Result<T>
where
    R: std::error::Error + Send + Sync + 'static,
{
    outcome.map_err(|error| match error {
        Error::Refused(refusal) => refusal.into(),
        Error::Fault(fault) => fault.into(),
    })
}

async fn fee_run(db: &Database, args: &RunArgs) -> anyhow::Result<ExitCode> {
    let options = RunOptions {
        period: args.period.as_deref().map(Month::parse).transpose()?,
        dry_run: args.dry_run,
        workers: args.workers,
        confirmed: args.yes,
        limits: RunLimits { months_max: args.months_max, overdue_percent_max: args.overdue_percent_max },
        ..RunOptions::default()
    };
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} dues {per_sec} {eta}")?);
    let outcome = fee::run(db, &Clock::System, options, &|running| {
        bar.set_length(running.expected);
        bar.set_position(running.decided);
    })
    .await;
    bar.finish_and_clear();
    let report = said(outcome)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print_report(&report, args.dry_run);
    }
    Ok(if report.open == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_report(report: &RunReport, dry_run: bool) {
    if dry_run {
        println!("A dry run: nothing stays.");
    }
    println!(
        "expected {}, charged {}, overdue {}, decided by others {}, open {}",
        report.expected, report.charged, report.overdue, report.by_others, report.open
    );
    if report.open > 0 {
        println!("Somebody holds the wallets of the open ones; run it again.");
    }
}

async fn status(db: &Database, json: bool) -> anyhow::Result<ExitCode> {
    let mut conn = db.pool().acquire().await?;
    let runs: Vec<FeeRun> = fee::list_runs(&mut conn, Clock::System.now()).await?;
    if json {
        println!("{}", serde_json::to_string(&runs)?);
    } else {
        println!("period   expected   charged   overdue      open  difference");
        for run in &runs {
            println!(
                "{}  {:>9} {:>9} {:>9} {:>9} {:>11}",
                run.period, run.expected, run.charged, run.overdue, run.open, run.difference
            );
        }
    }
    let whole = runs.iter().all(|run| run.difference == 0);
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn plan(db: &Database, plan_id: String, name: String, price: &str, currency: String) -> anyhow::Result<ExitCode> {
    let code = CurrencyCode::parse(currency)?;
    let currency =
        Currencies::new(db.clone()).find(&code).await?.with_context(|| format!("there is no currency {code}"))?;
    let price = MinorUnits::parse(price, &currency).context("--price")?;
    anyhow::ensure!(price.is_positive(), "--price must be positive");
    crate::tenant::check_name(&name)?;
    let plan = &Plan { plan_id: OrderId::parse(plan_id)?, name, currency: code, price };
    let now = Clock::System.now();
    said(db.run("plan_create", |conn| async move { fee::create_plan(conn, plan, now).await }.scope_boxed()).await)?;
    println!("Plan {} costs {} {} a month.", plan.plan_id, plan.price.to_text(currency.exponent), plan.currency);
    Ok(ExitCode::SUCCESS)
}

async fn subscribe(db: &Database, new: &NewSubscription) -> anyhow::Result<ExitCode> {
    let now = Clock::System.now();
    let outcome = db.run("subscribe", |conn| async move { fee::subscribe(conn, new, now).await }.scope_boxed()).await;
    let (subscription, _) = said(outcome)?;
    println!("Subscription {} of {} began on {}.", subscription.subscription_id, new.tenant_id, new.started_on);
    Ok(ExitCode::SUCCESS)
}

async fn cancel(
    db: &Database,
    tenant_id: &TenantId,
    subscription_id: i64,
    ended_on: Option<NaiveDate>,
) -> anyhow::Result<ExitCode> {
    let now = Clock::System.now();
    let outcome = db
        .run("subscription_cancel", |conn| {
            async move { fee::cancel(conn, tenant_id, subscription_id, ended_on, now).await }.scope_boxed()
        })
        .await;
    let subscription = said(outcome)?;
    if let Some(day) = subscription.ended_on {
        println!("Subscription {subscription_id} of {tenant_id} ends on {day}.");
    }
    Ok(ExitCode::SUCCESS)
}
