//! How a run is asked for, and what it says.

use tokio_util::sync::CancellationToken;

use crate::money::Month;

/// How much may happen without a person saying yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Months of one subscription in one run.
    pub months_max: u32,
    /// Per cent of the dues that may turn out overdue.
    pub overdue_percent_max: u8,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { months_max: 1, overdue_percent_max: 50 }
    }
}

/// How to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Only months up to this one.
    pub period: Option<Month>,
    /// Do it all and roll it back.
    pub dry_run: bool,
    /// How many chunks at once.
    pub workers: u16,
    /// A person said yes to what is beyond the limits.
    pub confirmed: bool,
    /// The limits.
    pub limits: RunLimits,
    /// Ends the run between two chunks.
    pub stop: CancellationToken,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            period: None,
            dry_run: false,
            workers: 4,
            confirmed: false,
            limits: RunLimits::default(),
            stop: CancellationToken::new(),
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunReport {
    /// Months of subscriptions that were owed and undecided when it began.
    pub expected: u64,
    /// Dues that it charged.
    pub charged: u64,
    /// Dues that it found no money for.
    pub overdue: u64,
    /// Dues that another run decided meanwhile.
    pub by_others: u64,
    /// Months that are still undecided: somebody holds their wallets, or the run was told to end.
    pub open: u64,
}

impl RunReport {
    pub(super) const fn of(expected: u64, charged: u64, overdue: u64, open: u64) -> Self {
        let known = charged.saturating_add(overdue).saturating_add(open);
        Self { expected, charged, overdue, by_others: expected.saturating_sub(known), open }
    }
}

/// What is seen of a run while it is on its way.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// Months owed when it began.
    pub expected: u64,
    /// Decided so far.
    pub decided: u64,
}

/// What a run leaves to a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    /// Somebody would be charged for several months at once. Everybody else was decided.
    #[error(
        "{subscriptions} subscriptions owe more than {allowed} months at once (the first is {subscription_id} of \
         {tenant_id}, which owes {months}), so they were left out: say --yes (or raise HAMYON_FEES_MONTHS_MAX) if that \
         is right. {}", others(*report, *dry_run)
    )]
    TooManyMonths {
        /// Which subscription owes most.
        subscription_id: i64,
        /// Whose.
        tenant_id: String,
        /// How many months.
        months: i64,
        /// The limit.
        allowed: u32,
        /// How many subscriptions are beyond it.
        subscriptions: i64,
        /// What the run did about the others.
        report: RunReport,
        /// Whether that was rolled back.
        dry_run: bool,
    },
    /// Too many have no money, which may mean that something is wrong.
    #[error(
        "{overdue} of the {decided} decided dues of these months are unpaid, more than {allowed} per cent, so {}: say \
         --yes (or raise HAMYON_FEES_OVERDUE_PERCENT_MAX) if that is right",
        if *dry_run { "a run would stop on its way" } else { "nothing more is decided. What was decided stays decided" }
    )]
    TooManyOverdue {
        /// How many are overdue.
        overdue: u64,
        /// Of how many, of all runs of these months together.
        decided: u64,
        /// The limit in per cent.
        allowed: u8,
        /// What this run did before it stopped; all that it would do, for a dry run.
        report: RunReport,
        /// Whether that was rolled back.
        dry_run: bool,
    },
}

impl RunRefusal {
    /// What the run did all the same.
    #[must_use]
    pub const fn report(&self) -> RunReport {
        match self {
            Self::TooManyMonths { report, .. } | Self::TooManyOverdue { report, .. } => *report,
        }
    }

    /// Which limit it was, in metrics.
    #[must_use]
    pub const fn limit(&self) -> &'static str {
        match self {
            Self::TooManyMonths { .. } => "months",
            Self::TooManyOverdue { .. } => "overdue",
        }
    }
}

fn others(report: RunReport, dry_run: bool) -> String {
    let RunReport { charged, overdue, open, .. } = report;
    if dry_run {
        format!("Of the others {charged} would be charged, {overdue} overdue and {open} open")
    } else {
        format!("Of the others {charged} were charged, {overdue} are overdue and {open} open")
    }
}

impl RunOptions {
    /// Whether so many months at once are charged without a person.
    pub(in crate::fee) fn allows_months(&self, at_once: i32) -> bool {
        self.confirmed || i64::from(at_once) <= i64::from(self.limits.months_max)
    }
}
