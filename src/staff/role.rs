//! What a person at the desk may do.

use crate::ids::InvalidName;

/// A role. Each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look at everything but the audit.
    Viewer,
    /// Refund and adjust within the agents' limit, and ask for more; send webhook deliveries again.
    Agent,
    /// Decide about what others asked for, within no limit; read the audit.
    Approver,
    /// The same; the audit tells them apart.
    Admin,
}

impl Role {
    /// Every role, the smallest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Agent, Self::Approver, Self::Admin];

    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(InvalidName { what: "role", rule: "must be one of viewer, agent, approver, admin" })
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Agent => "agent",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}
