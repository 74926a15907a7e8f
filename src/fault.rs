//! What can go wrong, in two kinds.
//!
//! A *refusal* is the business saying no: each room has its own enum of them, with the rule and the numbers.
//! A *fault* is everything else: a lost connection, a bug, a broken row. [`Error`] joins the two, so that
//! no room needs its own wrapper, and the transaction runner can tell which faults are worth another try.

use std::error::Error as StdError;
use std::fmt;

/// Either a refusal of the room `R`, or a fault.
#[derive(Debug)]
pub enum Error<R> {
    /// The business says no. Nothing was written.
    Refused(R),
    /// Something broke. Nothing was written.
    Fault(Fault),
}

impl<R> Error<R> {
    /// Carries a refusal up into the room that asked.
    pub fn widen<S: From<R>>(self) -> Error<S> {
        match self {
            Self::Refused(refusal) => Error::Refused(refusal.into()),
            Self::Fault(fault) => Error::Fault(fault),
        }
    }
}

impl<R> From<Fault> for Error<R> {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<R> From<sqlx::Error> for Error<R> {
    fn from(error: sqlx::Error) -> Self {
        Self::Fault(error.into())
    }
}

/// Carries refusals of one room into another on a `Result`.
pub trait Widen<T, S> {
    /// See [`Error::widen`].
    ///
    /// # Errors
    /// The same error, in the other room's words.
    fn widen(self) -> Result<T, Error<S>>;
}

impl<T, R, S: From<R>> Widen<T, S> for Result<T, Error<R>> {
    fn widen(self) -> Result<T, Error<S>> {
        self.map_err(Error::widen)
    }
}

/// What a caller can do about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Two transactions got in each other's way; the same one again will do.
    Repeat,
    /// The database can't be reached or has no room; later it may.
    Wait,
    /// A person has to look.
    Report,
}

/// Something broke. The text of its chain goes to the log, never to a caller.
pub struct Fault {
    what: &'static str,
    cause: Option<Box<dyn StdError + Send + Sync>>,
    remedy: Remedy,
}

impl Fault {
    /// A fault described by what we were doing or what we found.
    #[must_use]
    pub const fn new(what: &'static str) -> Self {
        Self { what, cause: None, remedy: Remedy::Report }
    }

    /// The database was asked and didn't answer: what became of it is open, and a repeat finds out.
    #[must_use]
    pub const fn unanswered(what: &'static str) -> Self {
        Self { what, cause: None, remedy: Remedy::Wait }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What a caller can do about it.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        self.remedy
    }

    /// The whole chain on one line, for the log.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.what.to_owned();
        let mut next = self.source();
        while let Some(cause) = next {
            let words = cause.to_string();
            // Some errors of others hold their cause's words already.
            if !text.ends_with(&words) {
                text.push_str(": ");
                text.push_str(&words);
            }
            next = cause.source();
        }
        text
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.chain())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.what)
    }
}

impl StdError for Fault {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.cause {
            Some(cause) => Some(cause.as_ref()),
            None => None,
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let remedy = remedy(&error);
        let what = match remedy {
            Remedy::Repeat => "two transactions collided",
            Remedy::Wait => "the database is not available",
            Remedy::Report => "a database statement failed",
        };
        Self { what, cause: Some(Box::new(error)), remedy }
    }
}

/// Reads SQLSTATE classes, never texts. <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn remedy(error: &sqlx::Error) -> Remedy {
    match error {
        sqlx::Error::Database(database) => match database.code().as_deref() {
            Some("40001" | "40P01") => Remedy::Repeat,
            // A lock not had in time, a statement cancelled, too many connections, shutting down.
            Some("55P03" | "57014" | "25P03") => Remedy::Wait,
            Some(code) if code.starts_with("08") || code.starts_with("53") || code.starts_with("57P") => Remedy::Wait,
            _ => Remedy::Report,
        },
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            Remedy::Wait
        }
        _ => Remedy::Report,
    }
}
