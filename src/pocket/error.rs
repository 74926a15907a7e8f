//! Why a pocket says no.

use chrono::{DateTime, Utc};

use crate::ids::Pocket;
use crate::ledger;

/// A refusal. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The ledger says no.
    #[error(transparent)]
    Ledger(#[from] ledger::Refusal),
    /// Bought money is kept for ever.
    #[error("the pocket main holds bought money: it has neither an end nor a priority; name another pocket")]
    MainHasNoRules,
    /// The pocket has other rules, or holds bought money.
    #[error("pocket {pocket} has another {}; a pocket keeps its rules, so name another one", fields.join(", "))]
    Differs {
        /// Which pocket.
        pocket: Pocket,
        /// Which rules.
        fields: Vec<&'static str>,
    },
    /// The end is not in the future.
    #[error("expires_at {expires_at} is not after now, {now}")]
    EndsInPast {
        /// What was asked.
        expires_at: DateTime<Utc>,
        /// The time.
        now: DateTime<Utc>,
    },
    /// No such pocket, or one without rules.
    #[error("there is no granted pocket {0} in this wallet")]
    UnknownPocket(Pocket),
    /// Its time is over already.
    #[error("the time of pocket {0} is over")]
    Closed(Pocket),
}
