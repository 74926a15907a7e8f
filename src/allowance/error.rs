//! Why an allowance says no.

use crate::ids::{OrderId, TenantId};

/// A refusal. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such allowance.
    #[error("there is no allowance {0}")]
    UnknownAllowance(String),
    /// It has no such tier.
    #[error("allowance {allowance_id} has no tier {tier}")]
    UnknownTier {
        /// Which allowance.
        allowance_id: String,
        /// Which tier.
        tier: String,
    },
    /// The id stands for another allowance.
    #[error("allowance {allowance_id} exists with another {}", fields.join(", "))]
    Differs {
        /// Which allowance.
        allowance_id: String,
        /// Which fields.
        fields: Vec<&'static str>,
    },
    /// No such tenant.
    #[error("there is no tenant {0}")]
    UnknownTenant(TenantId),
    /// No such plan.
    #[error("there is no plan {0}")]
    UnknownPlan(OrderId),
}
