//! `hamyon payme conformance`: is a merchant's endpoint what Payme expects?
//!
//! The checks are in [`crate::provider::payme::conformance`]; here are the flags, the progress bar and the exit code:
//! 0 everything passed, 1 something failed, 2 it could not run.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use secrecy::{ExposeSecret as _, SecretString};

use crate::provider::payme::conformance::{self, Account, CheckResult, Options, Outcome, Progress, Scenario, Style};

const COULD_NOT_RUN: u8 = 2;

/// Check any Payme merchant endpoint the way Payme's sandbox does
///
/// Transactions are created, performed and cancelled on the accounts you name: use a test cashbox and test accounts.
/// Checks that need an account you did not name are shown as skipped. Exit code: 0 all passed, 1 some failed, 2 could not run.
#[derive(clap::Args, Debug)]
pub struct ConformanceArgs {
    /// The merchant's endpoint
    #[arg(long)]
    url: reqwest::Url,
    /// The cashbox key
    #[arg(long, env = "HAMYON_PAYME_KEY", hide_env_values = true)]
    key: Option<SecretString>,
    /// A file that holds the cashbox key; it goes before --key
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// The login of the Basic authorization
    #[arg(long, default_value = "Paycom")]
    login: String,
    /// A wallet that can be paid any number of times, such as `tenant_id=acme`
    #[arg(long, value_name = "FIELD=VALUE")]
    account: Option<Account>,
    /// An unpaid order that can be paid once, such as `order_id=17`; repeat it: a full run uses up to four
    #[arg(long = "one-time-account", value_name = "FIELD=VALUE")]
    one_time_accounts: Vec<Account>,
    /// What to pay, in tiyin
    #[arg(long, value_name = "TIYIN", default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..=100_000_000_000_000_000))]
    amount: i64,
    /// The total of each order, in tiyin [default: the amount]
    #[arg(long, value_name = "TIYIN", value_parser = clap::value_parser!(i64).range(1..=100_000_000_000_000_000))]
    one_time_amount: Option<i64>,
    /// An account that does not exist [default: the known account's field with a random value]
    #[arg(long, value_name = "FIELD=VALUE")]
    unknown_account: Option<Account>,
    /// The error code for an order that another payment holds [default: any from -31050 to -31099]
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    busy_code: Option<i64>,
    /// Spends what was just paid in, for the check that it cannot be refunded then
    ///
    /// A shell command, given `HAMYON_ACCOUNT` (the account's value), `HAMYON_ACCOUNT_FIELD`, `HAMYON_AMOUNT` (tiyin),
    /// `HAMYON_TRANSACTION` (the merchant's id) and `HAMYON_PAYME_ID`. It must leave the account with less than `HAMYON_AMOUNT`.
    #[arg(long, value_name = "COMMAND")]
    spend_command: Option<String>,
    /// Make a transaction that expires after so many seconds, and wait twice as long for it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    expiry_wait_secs: Option<u64>,
    /// For each request
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout_secs: u64,
    /// Only this scenario; can be repeated
    #[arg(long, value_name = "SCENARIO")]
    only: Vec<Scenario>,
    /// A report for machines on standard output
    #[arg(long)]
    json: bool,
    /// Show requests and answers of checks that passed, too
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the checks and prints the report.
///
/// # Errors
/// None that is not printed here; the exit code tells.
pub async fn conformance(args: ConformanceArgs) -> anyhow::Result<ExitCode> {
    match report(args).await {
        Ok(code) => Ok(ExitCode::from(code)),
        // Said here and not by the caller, whose exit code for an error would be that of a failed check.
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "hamyon payme conformance: could not run: {error:#}");
            Ok(ExitCode::from(COULD_NOT_RUN))
        }
    }
}

async fn report(args: ConformanceArgs) -> anyhow::Result<u8> {
    let (json, verbose) = (args.json, args.verbose);
    let mut watcher = Watcher::new();
    let outcome = conformance::run(options(args).await?, &mut watcher).await;
    watcher.finish();
    let report = outcome?;
    let text = if json {
        let mut text = report.to_json(verbose).context("the report could not be written as JSON")?;
        text.push('\n');
        text
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        report.to_table(Style { colour, verbose })
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // `… | head` closes the pipe early; the exit code still tells.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.context("the report could not be printed")?,
    }
    Ok(report.exit_code())
}

async fn options(args: ConformanceArgs) -> anyhow::Result<Options> {
    Ok(Options {
        key: key(args.key, args.key_file).await?,
        url: args.url,
        login: args.login,
        account: args.account,
        one_time_accounts: args.one_time_accounts,
        amount: args.amount,
        one_time_amount: args.one_time_amount,
        unknown_account: args.unknown_account,
        busy_code: args.busy_code,
        spend_command: args.spend_command,
        expiry_wait: args.expiry_wait_secs.map(Duration::from_secs),
        timeout: Duration::from_secs(args.timeout_secs),
        only: args.only,
    })
}

async fn key(given: Option<SecretString>, file: Option<PathBuf>) -> anyhow::Result<SecretString> {
    let key = match (file, given) {
        // The file first: it was named for this run, while the other may stand in the environment for something else.
        (Some(file), _) => {
            let text = tokio::fs::read_to_string(&file).await;
            let text = text.with_context(|| format!("the key file {} could not be read", file.display()))?;
            // Editors end a file with a line break, which is not part of the key.
            SecretString::from(text.trim())
        }
        (None, Some(key)) => key,
        (None, None) => bail!("give the cashbox key with --key, --key-file or HAMYON_PAYME_KEY"),
    };
    if key.expose_secret().is_empty() {
        bail!("the key is empty");
    }
    Ok(key)
}

/// A bar on a terminal, nothing elsewhere: a pipeline's log wants the report only.
struct Watcher {
    bar: ProgressBar,
    passed: u64,
    failed: u64,
}

impl Watcher {
    fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {prefix}  {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, passed: 0, failed: 0 }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Watcher {
    fn scenario(&mut self, scenario: Scenario, position: usize, total: usize) {
        self.bar.set_length(u64::try_from(total).unwrap_or(u64::MAX));
        self.bar.set_position(u64::try_from(position).unwrap_or(u64::MAX));
        self.bar.set_message(scenario.title());
    }

    fn checked(&mut self, check: &CheckResult) {
        match check.outcome {
            Outcome::Passed => self.passed = self.passed.saturating_add(1),
            Outcome::Failed { .. } => self.failed = self.failed.saturating_add(1),
            Outcome::Skipped { .. } => {}
        }
        self.bar.set_prefix(format!("{} passed, {} failed", self.passed, self.failed));
    }
}
