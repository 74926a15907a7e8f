//! The outcome of a run, as a table for people and as JSON for machines.
//!
//! The JSON members and the check ids are a published format: scripts in other people's pipelines read them.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use super::client::Exchange;
use super::scenario::Scenario;

/// The result of one check.
#[derive(Debug)]
pub struct CheckResult {
    /// Stable: scripts select by it.
    pub id: String,
    /// The scenario it belongs to.
    pub scenario: Scenario,
    /// What is checked, as a sentence.
    pub title: String,
    /// The section of the specification that the check follows.
    pub spec: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What was sent and answered for it.
    pub exchanges: Vec<Arc<Exchange>>,
}

/// How a check ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// As expected.
    Passed,
    /// Otherwise.
    Failed {
        /// What the specification wants.
        expected: String,
        /// What came.
        got: String,
    },
    /// Not run. The hint names the flag that would enable it, where one would.
    Skipped {
        /// Why it did not run.
        reason: String,
        /// What would make it run.
        hint: Option<&'static str>,
    },
}

/// All results of a run, in the order in which they were found.
#[derive(Debug)]
pub struct Report {
    /// The endpoint.
    pub url: String,
    /// The login that was used.
    pub login: String,
    /// How long the run took.
    pub elapsed_ms: u64,
    /// The results.
    pub checks: Vec<CheckResult>,
}

/// How many checks ended how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// As expected.
    pub passed: usize,
    /// Otherwise.
    pub failed: usize,
    /// Not run.
    pub skipped: usize,
}

/// How the table is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// With terminal colours.
    pub colour: bool,
    /// Shows requests and answers of checks that passed, too.
    pub verbose: bool,
}

impl Report {
    /// Counts the outcomes.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let count = |wanted: fn(&Outcome) -> bool| self.checks.iter().filter(|check| wanted(&check.outcome)).count();
        Summary {
            passed: count(|outcome| matches!(outcome, Outcome::Passed)),
            failed: count(|outcome| matches!(outcome, Outcome::Failed { .. })),
            skipped: count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
        }
    }

    /// 0: everything that ran passed. 1: something failed. 2: nothing ran, which must not look like success.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        // The rules for all answers pass even when there were next to none, so they alone prove nothing.
        let anything_ran = self
            .checks
            .iter()
            .any(|check| check.scenario != Scenario::Answers && !matches!(check.outcome, Outcome::Skipped { .. }));
        match self.summary().failed {
            1.. => 1,
            0 if anything_ran => 0,
            0 => 2,
        }
    }

    /// The report for people.
    #[must_use]
    pub fn to_table(&self, style: Style) -> String {
        let mut table = format!("Payme conformance of {} (login {})\n", self.url, self.login);
        let width = self.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
        let mut scenario = None;
        for (index, check) in self.checks.iter().enumerate() {
            let next = self.checks.get(index.saturating_add(1));
            if scenario != Some(check.scenario) {
                scenario = Some(check.scenario);
                let _ = writeln!(table, "\n{}", style.bold(check.scenario.title()));
            }
            let mark = match check.outcome {
                Outcome::Passed => style.green("ok  "),
                Outcome::Failed { .. } => style.red("FAIL"),
                Outcome::Skipped { .. } => style.yellow("skip"),
            };
            let _ = writeln!(table, "  {mark}  {:width$}  {}  [{}]", check.id, check.title, check.spec);
            match &check.outcome {
                Outcome::Passed => {}
                Outcome::Failed { expected, got } => {
                    let _ = writeln!(table, "          expected  {expected}\n          got       {got}");
                }
                // What was skipped for one reason gets one explanation, under its last line.
                Outcome::Skipped { .. } if next.is_some_and(|next| same_skip(check, next)) => {}
                Outcome::Skipped { reason, hint } => {
                    let _ = writeln!(table, "          {reason}");
                    if let Some(hint) = hint {
                        let _ = writeln!(table, "          to run it: {hint}");
                    }
                }
            }
            if style.verbose || matches!(check.outcome, Outcome::Failed { .. }) {
                write_exchanges(&mut table, &check.exchanges);
            }
        }
        let Summary { passed, failed, skipped } = self.summary();
        let verdict = match self.exit_code() {
            0 if skipped > 0 => style.green("conforms, as far as it was checked"),
            0 => style.green("conforms"),
            1 => style.red("does not conform"),
            _ => style.yellow("nothing was checked"),
        };
        let _ = writeln!(
            table,
            "\n{passed} passed, {failed} failed, {skipped} skipped in {}.{:03} s: {verdict}",
            self.elapsed_ms.div_euclid(1000),
            self.elapsed_ms.rem_euclid(1000),
        );
        table
    }

    /// The report for machines. Requests and answers of passed checks are left out unless asked for.
    ///
    /// # Errors
    /// When the report can't be written as JSON.
    pub fn to_json(&self, verbose: bool) -> Result<String, serde_json::Error> {
        let checks = self.checks.iter().map(|check| JsonCheck::new(check, verbose)).collect();
        let report = JsonReport {
            format: 1,
            url: &self.url,
            login: &self.login,
            elapsed_ms: self.elapsed_ms,
            exit_code: self.exit_code(),
            summary: self.summary(),
            checks,
        };
        serde_json::to_string_pretty(&report)
    }
}

fn same_skip(one: &CheckResult, other: &CheckResult) -> bool {
    match (&one.outcome, &other.outcome) {
        (Outcome::Skipped { reason, hint }, Outcome::Skipped { reason: other_reason, hint: other_hint }) => {
            one.scenario == other.scenario && reason == other_reason && hint == other_hint
        }
        _ => false,
    }
}

/// A burst has many equal exchanges; the first few tell the story.
const EXCHANGES_SHOWN: usize = 4;

fn write_exchanges(table: &mut String, exchanges: &[Arc<Exchange>]) {
    for exchange in exchanges.iter().take(EXCHANGES_SHOWN) {
        let request = &exchange.request;
        let _ = writeln!(
            table,
            "          request   {} ({}) {}",
            exchange.http_method,
            exchange.credentials,
            one_line(request)
        );
        let _ = match &exchange.reply {
            Ok(reply) => writeln!(
                table,
                "          answer    HTTP {}, {}: {}",
                reply.status,
                reply.content_type.as_deref().unwrap_or("no content type"),
                one_line(&reply.body)
            ),
            Err(reason) => writeln!(table, "          answer    none: {reason}"),
        };
    }
    if let Some(more) = exchanges.len().checked_sub(EXCHANGES_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(table, "          … and {more} more");
    }
}

/// Text from outside on one line, without control characters that could repaint somebody's terminal.
fn one_line(text: &str) -> String {
    const LIMIT: usize = 2000;
    let mut line: String = text.chars().take(LIMIT).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if text.chars().count() > LIMIT {
        line.push('…');
    }
    line
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }
}

#[derive(Serialize)]
struct JsonReport<'a> {
    /// Grows when a member changes its meaning.
    format: u32,
    url: &'a str,
    login: &'a str,
    elapsed_ms: u64,
    exit_code: u8,
    summary: Summary,
    checks: Vec<JsonCheck<'a>>,
}

#[derive(Serialize)]
struct JsonCheck<'a> {
    id: &'a str,
    scenario: &'static str,
    title: &'a str,
    spec: &'static str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exchanges: Vec<JsonExchange<'a>>,
}

#[derive(Serialize)]
struct JsonExchange<'a> {
    http_method: &'a str,
    credentials: &'static str,
    request: &'a str,
    status: Option<u16>,
    content_type: Option<&'a str>,
    answer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_answer: Option<&'a str>,
}

impl<'a> JsonCheck<'a> {
    fn new(check: &'a CheckResult, verbose: bool) -> Self {
        let (outcome, expected, got, reason, hint) = match &check.outcome {
            Outcome::Passed => ("passed", None, None, None, None),
            Outcome::Failed { expected, got } => ("failed", Some(expected.as_str()), Some(got.as_str()), None, None),
            Outcome::Skipped { reason, hint } => ("skipped", None, None, Some(reason.as_str()), *hint),
        };
        let shown = verbose || outcome == "failed";
        let exchanges = check.exchanges.iter().filter(|_| shown).map(|exchange| JsonExchange::new(exchange)).collect();
        Self {
            id: &check.id,
            scenario: check.scenario.id(),
            title: &check.title,
            spec: check.spec,
            outcome,
            expected,
            got,
            reason,
            hint,
            exchanges,
        }
    }
}

impl<'a> JsonExchange<'a> {
    fn new(exchange: &'a Exchange) -> Self {
        let reply = exchange.reply.as_ref();
        Self {
            http_method: &exchange.http_method,
            credentials: exchange.credentials,
            request: &exchange.request,
            status: reply.ok().map(|reply| reply.status),
            content_type: reply.ok().and_then(|reply| reply.content_type.as_deref()),
            answer: reply.ok().map(|reply| reply.body.as_str()),
            no_answer: reply.err().map(String::as_str),
        }
    }
}
