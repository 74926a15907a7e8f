//! The people at the support desk: accounts, roles, and who is logged in.

mod account;
mod login;
mod password;
mod role;
mod second_factor;
mod session;
mod store;

pub use account::{Member, StaffRefusal, add, disable, list, set_password, set_role, set_second_factor};
pub use login::{Credentials, LoginRefusal, log_in};
pub use password::{PASSWORD_CHARS_MIN, PasswordRefusal};
pub use role::Role;
pub use session::{IDLE_MINUTES, LIFETIME_HOURS, LoggedIn, NewSession, authenticate, log_out};

use crate::fault::Fault;
use crate::ids::{Actor, InvalidName};

/// The name a person logs in with: 1 to 64 of a-z 0-9 . _ -.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Username(String);

impl Username {
    /// Parses a text from outside; capital letters are taken for small ones.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let name = text.trim().to_ascii_lowercase();
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if !name.is_empty() && name.len() <= 64 && name.bytes().all(known) {
            Ok(Self(name))
        } else {
            Err(InvalidName { what: "username", rule: "must be 1 to 64 characters of a-z 0-9 . _ -" })
        }
    }

    fn from_column(text: &str) -> Result<Self, Fault> {
        Self::parse(text).map_err(|error| Fault::new("a stored username breaks its rule").because(error))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Who the ledger and the audit say did it: `staff:<username>`.
    ///
    /// # Errors
    /// A fault; every username makes an actor.
    pub fn actor(&self) -> Result<Actor, Fault> {
        Actor::parse(format!("staff:{}", self.0)).map_err(|error| Fault::new("a username is no actor").because(error))
    }
}

impl std::fmt::Display for Username {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}
