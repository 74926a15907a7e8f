//! The scenarios by name, in the order in which they run.
//!
//! The order matters: what leaves no trace comes first, so that a one-time order is still untouched when the scenarios
//! that use it up begin.

use clap::ValueEnum;

/// A group of checks that can be run on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Wrong credentials are refused before anything else
    Auth,
    /// HTTP methods, content types, JSON and the envelope
    Envelope,
    /// Unknown and missing accounts
    Accounts,
    /// Wrong amounts and amounts of a wrong type
    Amounts,
    /// Ids that the merchant has never seen
    UnknownIds,
    /// Created, repeated, cancelled
    #[value(name = "scenario-1")]
    Scenario1,
    /// Created, performed, refunded
    #[value(name = "scenario-2")]
    Scenario2,
    /// Many equal calls at once, and two payers for one order
    Concurrency,
    /// The twelve-hour limit
    Expiry,
    /// `GetStatement`
    Statement,
    /// `SetFiscalData`
    Fiscal,
    /// A refund after the money was spent
    Spent,
    /// What holds for every answer of the run
    #[value(skip)]
    Answers,
}

impl Scenario {
    /// All of them, in order.
    pub const ALL: [Self; 13] = [
        Self::Auth,
        Self::Envelope,
        Self::Accounts,
        Self::Amounts,
        Self::UnknownIds,
        Self::Scenario1,
        Self::Scenario2,
        Self::Concurrency,
        Self::Expiry,
        Self::Statement,
        Self::Fiscal,
        Self::Spent,
        Self::Answers,
    ];

    /// The name on the command line and the first part of the check ids.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Envelope => "envelope",
            Self::Accounts => "accounts",
            Self::Amounts => "amounts",
            Self::UnknownIds => "unknown-ids",
            Self::Scenario1 => "scenario-1",
            Self::Scenario2 => "scenario-2",
            Self::Concurrency => "concurrency",
            Self::Expiry => "expiry",
            Self::Statement => "statement",
            Self::Fiscal => "fiscal",
            Self::Spent => "spent",
            Self::Answers => "answers",
        }
    }

    /// Its heading in the report.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Auth => "Authorization",
            Self::Envelope => "Transport and envelope",
            Self::Accounts => "Accounts",
            Self::Amounts => "Amounts",
            Self::UnknownIds => "Unknown transactions",
            Self::Scenario1 => "Scenario 1: created, then cancelled",
            Self::Scenario2 => "Scenario 2: performed, then refunded",
            Self::Concurrency => "At the same time",
            Self::Expiry => "The twelve-hour limit",
            Self::Statement => "GetStatement",
            Self::Fiscal => "SetFiscalData",
            Self::Spent => "A refund after the money was spent",
            Self::Answers => "All answers of this run",
        }
    }
}
