//! Why a hold says no, with the numbers it saw.

use chrono::{DateTime, Utc};

use super::HoldId;
use crate::ledger;
use crate::money::{CurrencyCode, MinorUnits};

/// A refusal. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The ledger says no.
    #[error(transparent)]
    Ledger(#[from] ledger::Refusal),
    /// No such hold.
    #[error("there is no hold {0}")]
    UnknownHold(HoldId),
    /// The job id stands for another job.
    #[error("hold {hold_id} was asked with another {}", fields.join(", "))]
    Differs {
        /// Which hold.
        hold_id: HoldId,
        /// Which fields.
        fields: Vec<String>,
    },
    /// As many jobs at work as may be.
    #[error("{in_flight} jobs are at work, and {max} may be: try again in {retry_after_secs} s")]
    TooManyInFlight {
        /// Jobs at work.
        in_flight: u64,
        /// As many as may be.
        max: u32,
        /// When one of them may be done.
        retry_after_secs: u64,
    },
    /// Not enough money.
    #[error("{} minor units of {currency} are available, and {} are needed", available.get(), needed.get())]
    InsufficientFunds {
        /// Which wallet.
        currency: CurrencyCode,
        /// What is available.
        available: MinorUnits,
        /// What was asked; with `allow_partial`, 1.
        needed: MinorUnits,
    },
    /// The tenant may not place holds.
    #[error("the tenant is {0}")]
    TenantBlocked(String),
    /// No such tier.
    #[error("there is no tier {tier} in {currency}")]
    UnknownTier {
        /// Which tier.
        tier: String,
        /// In which currency.
        currency: CurrencyCode,
    },
    /// It has ended another way.
    #[error("hold {hold_id} is {status} (charged {} minor units) and stays so", charged.get())]
    AlreadyEnded {
        /// Which hold.
        hold_id: HoldId,
        /// `settled` or `released`.
        status: &'static str,
        /// What it cost.
        charged: MinorUnits,
        /// What the end was asked with differently.
        fields: Vec<String>,
    },
    /// Its time is over.
    #[error("hold {hold_id} expired at {expired_at}; the reconciler ends it")]
    Expired {
        /// Which hold.
        hold_id: HoldId,
        /// When.
        expired_at: DateTime<Utc>,
    },
    /// The work has begun.
    #[error("hold {hold_id} was started at {started_at}; ask its worker to stop with \"cooperative\": true")]
    AlreadyStarted {
        /// Which hold.
        hold_id: HoldId,
        /// When.
        started_at: DateTime<Utc>,
    },
    /// More than the job may cost.
    #[error("hold {hold_id} may cost {} minor units at the most, and {} were asked", cost_cap.get(), asked.get())]
    CostCapExceeded {
        /// Which hold.
        hold_id: HoldId,
        /// The most.
        cost_cap: MinorUnits,
        /// What was asked.
        asked: MinorUnits,
    },
    /// The job has used what it may, so there is no further call.
    #[error("hold {hold_id} has used {used_micro} micro-dollars, and {cap_micro} is its cost cap: settle it")]
    CostCapReached {
        /// Which hold.
        hold_id: HoldId,
        /// What it used.
        used_micro: i64,
        /// What it may use.
        cap_micro: i64,
    },
    /// A call was reported before, with other numbers.
    #[error("call {call_id} of hold {hold_id} was reported with another {}", fields.join(", "))]
    CallDiffers {
        /// Which hold.
        hold_id: HoldId,
        /// Which call.
        call_id: String,
        /// Which fields.
        fields: Vec<&'static str>,
    },
    /// Its currency has no price in dollars.
    #[error("{0} has no price in US dollars, so it can't be settled by usage; CREDIT and USD can")]
    NotMetered(CurrencyCode),
    /// The price book doesn't know the model.
    #[error("version {version} of the price book, which this hold was placed under, has no model {model}")]
    UnknownModel {
        /// Which model.
        model: String,
        /// Which book.
        version: i32,
    },
    /// Tokens without a price book.
    #[error("there was no price book when the hold was placed: report cost_micro, or write a book for later holds")]
    NoPriceBook,
    /// A number that can't be.
    #[error("the usage is beyond what can be reckoned with")]
    UsageTooLarge,
}
