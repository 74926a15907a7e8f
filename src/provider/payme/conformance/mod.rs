//! The provider's sandbox, offline: every scenario of Payme's test environment as a client of any merchant endpoint.
//!
//! Payme's own sandbox is a web page that a person clicks through, and it needs a public address. This module asks the
//! same questions (and the ones that production asks later: repeats, races, wrong types) from a terminal or a pipeline.
//! It knows nothing of Hamyon's ledger and depends on nothing else in the crate, so that a merchant in any language can be
//! checked, and so that a mistake in our own handlers cannot hide behind the same mistake here.
//!
//! The way through: [`run`] → one file per scenario → `client` sends, `expect` and `snapshot` judge, `suite`
//! records → `report` prints. A scenario never panics on an answer: whatever came is a passed or a failed check.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use secrecy::SecretString;

mod accounts;
mod amounts;
mod answers;
mod auth;
mod client;
mod concurrency;
mod envelope;
mod expect;
mod expiry;
mod fiscal;
mod payment;
mod report;
mod scenario;
mod scenario_1;
mod scenario_2;
mod snapshot;
mod spent;
mod statement;
mod suite;
mod unknown_ids;

use client::Client;
pub use payment::Account;
pub use report::{CheckResult, Outcome, Report, Style, Summary};
pub use scenario::Scenario;
use suite::Suite;

/// What to check, and with which accounts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The endpoint.
    pub url: reqwest::Url,
    /// The login of the Basic authorization.
    pub login: String,
    /// The cashbox key.
    pub key: SecretString,
    /// A wallet that can be paid any number of times.
    pub account: Option<Account>,
    /// Orders that can be paid once; each scenario that creates transactions uses one up.
    pub one_time_accounts: Vec<Account>,
    /// In tiyin, for the wallet.
    pub amount: i64,
    /// In tiyin, the total of each order; the wallet's amount if unset.
    pub one_time_amount: Option<i64>,
    /// An account that does not exist; a random value of the known account's field if unset.
    pub unknown_account: Option<Account>,
    /// The code for an order that another payment holds; any of the account range if unset.
    pub busy_code: Option<i64>,
    /// A shell command that spends what was just paid in.
    pub spend_command: Option<String>,
    /// How long to wait for a transaction to expire; unset, that check is skipped.
    pub expiry_wait: Option<Duration>,
    /// For each request.
    pub timeout: Duration,
    /// Empty: all of them.
    pub only: Vec<Scenario>,
}

/// Watches a run, for a progress bar.
pub trait Progress: Send {
    /// A scenario begins: its place among those that will run.
    fn scenario(&mut self, _scenario: Scenario, _position: usize, _total: usize) {}
    /// A check has ended.
    fn checked(&mut self, _check: &CheckResult) {}
}

/// Nobody watches.
impl Progress for () {}

/// Runs the scenarios that were asked for.
///
/// # Errors
/// An error means that nothing could be checked (no connection, or the merchant refuses the key); everything else, however
/// broken, is in the report.
pub async fn run(options: Options, progress: &mut dyn Progress) -> anyhow::Result<Report> {
    refuse_contradictions(&options)?;
    let started = Instant::now();
    let client = Client::new(options.url.clone(), options.login.clone(), options.key.clone(), options.timeout)?;
    let client = Arc::new(client);
    refuse_to_run_in_vain(&client).await?;

    let wanted: Vec<Scenario> = Scenario::ALL
        .into_iter()
        // The last scenario sums up the others, so it belongs to any selection.
        .filter(|scenario| options.only.is_empty() || options.only.contains(scenario) || *scenario == Scenario::Answers)
        .collect();
    let mut suite = Suite::new(Arc::clone(&client), &options, progress);
    for (position, scenario) in wanted.iter().enumerate() {
        suite.enter(*scenario, position, wanted.len());
        match scenario {
            Scenario::Auth => auth::run(&mut suite).await,
            Scenario::Envelope => envelope::run(&mut suite).await,
            Scenario::Accounts => accounts::run(&mut suite).await,
            Scenario::Amounts => amounts::run(&mut suite).await,
            Scenario::UnknownIds => unknown_ids::run(&mut suite).await,
            Scenario::Scenario1 => scenario_1::run(&mut suite).await,
            Scenario::Scenario2 => scenario_2::run(&mut suite).await,
            Scenario::Concurrency => concurrency::run(&mut suite).await,
            Scenario::Expiry => expiry::run(&mut suite).await,
            Scenario::Statement => statement::run(&mut suite).await,
            Scenario::Fiscal => fiscal::run(&mut suite).await,
            Scenario::Spent => spent::run(&mut suite).await,
            Scenario::Answers => answers::run(&mut suite),
        }
    }
    Ok(Report {
        url: client.shown_url(),
        login: client.login().to_owned(),
        elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        checks: suite.into_checks(),
    })
}

/// Options that would quietly check something else than was meant.
fn refuse_contradictions(options: &Options) -> anyhow::Result<()> {
    if options.amount <= 0 || options.one_time_amount.is_some_and(|amount| amount <= 0) {
        bail!("the amounts must be positive numbers of tiyin");
    }
    let orders = &options.one_time_accounts;
    if let Some((_, twice)) =
        orders.iter().enumerate().find(|(at, order)| orders.iter().take(*at).any(|it| it == *order))
    {
        bail!("the one-time account {twice} was given twice: each scenario needs an order of its own");
    }
    let mut fields = options.account.iter().chain(orders).map(|account| &account.field).peekable();
    if let Some(unknown) = &options.unknown_account
        && fields.peek().is_some()
        && !fields.any(|field| *field == unknown.field)
    {
        bail!("the unknown account {unknown} has another field than the known accounts");
    }
    Ok(())
}

/// One harmless call: without a connection or with a key that the merchant does not know, two hundred failures would only
/// hide the one reason.
async fn refuse_to_run_in_vain(client: &Client) -> anyhow::Result<()> {
    let probe = client.check(&payment::new_id()).await;
    if let Err(reason) = &probe.reply {
        bail!("{} does not answer: {reason}", client.shown_url());
    }
    if expect::error(&probe, -32_504).is_ok() {
        bail!("the merchant refuses the key given (error -32504 for the login {})", client.login());
    }
    Ok(())
}

/// The clock of Payme's side, in milliseconds since the epoch.
///
/// This tool stands in for Payme, whose clock is its own: the crate's injected clock is the merchant's and must not be used.
fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
