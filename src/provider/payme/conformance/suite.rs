//! The run in progress: what was asked for, what is left of the one-time orders, and the results so far.
//!
//! A scenario declares its checks as a table before it runs them. What it could not reach, because an order was not given
//! or an earlier answer was unusable, is recorded as *skipped* from that table: a check never disappears silently.

use std::collections::VecDeque;
use std::sync::Arc;

use super::client::{Client, Exchange};
use super::expect::{self, Mismatch, Verdict};
use super::payment::Account;
use super::report::{CheckResult, Outcome};
use super::scenario::Scenario;
use super::{Options, Progress};

/// A check as it is declared: the last part of its id, its section and its sentence.
#[derive(Clone, Copy)]
pub struct Check {
    pub step: &'static str,
    pub spec: &'static str,
    pub title: &'static str,
}

pub const fn check(step: &'static str, spec: &'static str, title: &'static str) -> Check {
    Check { step, spec, title }
}

/// The two kinds of accounts, which refuse different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Accumulative,
    OneTime,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Accumulative, Self::OneTime];

    pub const fn id(self) -> &'static str {
        match self {
            Self::Accumulative => "accumulative",
            Self::OneTime => "one-time",
        }
    }

    /// The flag that gives such an account.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Accumulative => "--account field=value",
            Self::OneTime => "--one-time-account field=value, once more",
        }
    }

    pub const fn missing(self) -> &'static str {
        match self {
            Self::Accumulative => "no accumulative account was given",
            Self::OneTime => "no unused one-time order is left",
        }
    }
}

/// Why a scenario that takes either kind did not run, and what would let it.
pub const NO_ACCOUNT: &str = "neither a wallet nor an unused one-time order was given";
pub const ANY_ACCOUNT_HINT: &str = "--account field=value, or --one-time-account field=value once more";

/// An account, and what may be paid to it.
#[derive(Clone, Debug)]
pub struct Target {
    pub account: Account,
    pub amount: i64,
    pub kind: Kind,
}

pub struct Suite<'a> {
    pub client: Arc<Client>,
    pub options: &'a Options,
    pub scenario: Scenario,
    unused_orders: VecDeque<Account>,
    checks: Vec<CheckResult>,
    progress: &'a mut dyn Progress,
}

impl<'a> Suite<'a> {
    pub fn new(client: Arc<Client>, options: &'a Options, progress: &'a mut dyn Progress) -> Self {
        let unused_orders = options.one_time_accounts.iter().cloned().collect();
        Self { client, options, scenario: Scenario::Auth, unused_orders, checks: Vec::new(), progress }
    }

    pub fn enter(&mut self, scenario: Scenario, position: usize, total: usize) {
        self.scenario = scenario;
        self.progress.scenario(scenario, position, total);
    }

    pub fn into_checks(self) -> Vec<CheckResult> {
        self.checks
    }

    /// An account of this kind to create transactions on; a one-time order is used up by it.
    pub fn take(&mut self, kind: Kind) -> Option<Target> {
        match kind {
            Kind::Accumulative => self.accumulative(),
            Kind::OneTime => self.unused_orders.pop_front().map(|account| self.one_time(account)),
        }
    }

    /// Any account to create transactions on; a wallet where there is one, since it can be used again.
    pub fn take_any(&mut self) -> Option<Target> {
        self.take(Kind::Accumulative).or_else(|| self.take(Kind::OneTime))
    }

    /// An account for calls that must leave no trace; nothing is used up.
    pub fn look_at(&self, kind: Kind) -> Option<Target> {
        match kind {
            Kind::Accumulative => self.accumulative(),
            Kind::OneTime => self.unused_orders.front().cloned().map(|account| self.one_time(account)),
        }
    }

    fn accumulative(&self) -> Option<Target> {
        let account = self.options.account.clone()?;
        Some(Target { account, amount: self.options.amount, kind: Kind::Accumulative })
    }

    fn one_time(&self, account: Account) -> Target {
        let amount = self.options.one_time_amount.unwrap_or(self.options.amount);
        Target { account, amount, kind: Kind::OneTime }
    }

    /// Begins a table of checks whose ids start with the scenario's name and `path`.
    pub fn group(&mut self, path: &str, table: &'static [Check]) -> Group<'_, 'a> {
        let scenario = self.scenario.id();
        let prefix = if path.is_empty() { format!("{scenario}.") } else { format!("{scenario}.{path}.") };
        Group { suite: self, prefix, open: table.iter().collect() }
    }

    /// Records a check that no table declares, since its id is built from a method's name.
    pub fn record(
        &mut self,
        id: String,
        spec: &'static str,
        title: impl Into<String>,
        evidence: &[&Arc<Exchange>],
        verdict: Verdict,
    ) {
        let outcome = match verdict {
            Ok(()) => Outcome::Passed,
            Err(mismatch) => Outcome::Failed { expected: mismatch.expected, got: mismatch.got },
        };
        let exchanges = evidence.iter().map(|exchange| Arc::clone(exchange)).collect();
        self.push(CheckResult { id, scenario: self.scenario, title: title.into(), spec, outcome, exchanges });
    }

    fn push(&mut self, result: CheckResult) {
        self.progress.checked(&result);
        self.checks.push(result);
    }
}

/// A table of checks being worked through.
pub struct Group<'s, 'a> {
    suite: &'s mut Suite<'a>,
    prefix: String,
    open: Vec<&'static Check>,
}

impl Group<'_, '_> {
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.suite.client)
    }

    /// The code that a held order must be refused with, if one was asked for.
    pub fn busy_code(&self) -> Option<i64> {
        self.suite.options.busy_code
    }

    /// Records the verdict of a declared check; true if it passed.
    pub fn record(&mut self, step: &'static str, evidence: &[&Arc<Exchange>], verdict: Verdict) -> bool {
        let declared = self.open.iter().position(|check| check.step == step).map(|index| self.open.remove(index));
        debug_assert!(declared.is_some(), "{step} is declared once and recorded once");
        let (spec, title) = declared.map_or(("§5", step), |check| (check.spec, check.title));
        let passed = verdict.is_ok();
        self.suite.record(format!("{}{step}", self.prefix), spec, title, evidence, verdict);
        passed
    }

    /// Records whether an answer is the error with this code: by far the most frequent check.
    pub fn expect_error(&mut self, step: &'static str, answer: &Arc<Exchange>, code: i64) {
        self.record(step, &[answer], expect::error(answer, code));
    }

    /// Records a check whose verdict also carries a value that later checks need.
    pub fn keep<T>(
        &mut self,
        step: &'static str,
        evidence: &[&Arc<Exchange>],
        verdict: Result<T, Mismatch>,
    ) -> Option<T> {
        match verdict {
            Ok(value) => {
                self.record(step, evidence, Ok(()));
                Some(value)
            }
            Err(mismatch) => {
                self.record(step, evidence, Err(mismatch));
                None
            }
        }
    }

    /// Records one declared check as skipped.
    pub fn skip(&mut self, step: &'static str, reason: &str, hint: Option<&'static str>) {
        if let Some(index) = self.open.iter().position(|check| check.step == step) {
            let check = self.open.remove(index);
            self.push_skipped(check, reason, hint);
        }
    }

    /// Takes checks out of the table that have no meaning here.
    pub fn without(mut self, steps: &[&str]) -> Self {
        self.open.retain(|check| !steps.contains(&check.step));
        self
    }

    /// Records everything that was not reached as skipped.
    pub fn close(mut self, reason: &str, hint: Option<&'static str>) {
        for check in std::mem::take(&mut self.open) {
            self.push_skipped(check, reason, hint);
        }
    }

    /// Closes a table that was worked through; what is still open hung on a check that failed.
    pub fn close_after_failure(self) {
        self.close("it needs an answer that an earlier check did not get", None);
    }

    fn push_skipped(&mut self, check: &Check, reason: &str, hint: Option<&'static str>) {
        self.suite.push(CheckResult {
            id: format!("{}{}", self.prefix, check.step),
            scenario: self.suite.scenario,
            title: check.title.to_owned(),
            spec: check.spec,
            outcome: Outcome::Skipped { reason: reason.to_owned(), hint },
            exchanges: Vec::new(),
        });
    }
}
