//! How the work of a run stands, counted by its workers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chrono::NaiveDate;

use super::report::RunLimits;
use crate::fee::store::Unconfirmed;

/// Below this many decided dues a share of overdue ones says nothing.
const SHARE_MEANS_SOMETHING_FROM: u64 = 100;

/// What a chunk did.
#[derive(Default)]
pub(super) struct ChunkDone {
    pub(super) charged: u64,
    pub(super) overdue: u64,
    pub(super) unconfirmed_charged: u64,
    pub(super) unconfirmed_overdue: u64,
}

/// How the work stands, for all workers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    charged: AtomicU64,
    overdue: AtomicU64,
    /// The months whose overdue dues nobody has agreed to, with all that is decided of them, by whatever run.
    pub(super) unconfirmed: BTreeSet<NaiveDate>,
    unconfirmed_charged: AtomicU64,
    unconfirmed_overdue: AtomicU64,
    pub(super) stopped: AtomicBool,
}

impl Tally {
    pub(super) fn starting_from(unconfirmed: &[Unconfirmed]) -> Self {
        let sum = |of: fn(&Unconfirmed) -> i64| {
            AtomicU64::new(
                unconfirmed.iter().fold(0, |sum, month| sum.saturating_add(u64::try_from(of(month)).unwrap_or(0))),
            )
        };
        Self {
            unconfirmed: unconfirmed.iter().map(|month| month.month).collect(),
            unconfirmed_charged: sum(|month| month.charged),
            unconfirmed_overdue: sum(|month| month.overdue),
            ..Self::default()
        }
    }

    pub(super) fn add(&self, done: &ChunkDone) {
        self.charged.fetch_add(done.charged, Ordering::Relaxed);
        self.overdue.fetch_add(done.overdue, Ordering::Relaxed);
        self.unconfirmed_charged.fetch_add(done.unconfirmed_charged, Ordering::Relaxed);
        self.unconfirmed_overdue.fetch_add(done.unconfirmed_overdue, Ordering::Relaxed);
    }

    pub(super) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    pub(super) fn overdue(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }

    pub(super) fn decided(&self) -> u64 {
        self.charged().saturating_add(self.overdue())
    }

    /// How many dues of unconfirmed months are overdue, of how many.
    pub(super) fn unconfirmed(&self) -> (u64, u64) {
        let overdue = self.unconfirmed_overdue.load(Ordering::Relaxed);
        (overdue, overdue.saturating_add(self.unconfirmed_charged.load(Ordering::Relaxed)))
    }

    /// Whether more of them are overdue than may be without a person.
    pub(super) fn is_beyond(&self, limits: RunLimits) -> bool {
        let (overdue, decided) = self.unconfirmed();
        decided >= SHARE_MEANS_SOMETHING_FROM
            && overdue.saturating_mul(100) > decided.saturating_mul(u64::from(limits.overdue_percent_max))
    }
}
