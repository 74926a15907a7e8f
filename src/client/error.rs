//! What can go wrong for a caller, and what the service says about it.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

/// Why a call has no result. Neither its text nor its `Debug` holds the token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was given can't be sent, and nothing was.
    #[error("{0}")]
    Unusable(&'static str),
    /// The service says no. Nothing happened, and the same again would be answered the same (but for a 429, which
    /// passes).
    #[error("the service says no: {0}")]
    Refused(Box<Problem>),
    /// The service couldn't, however often it was asked. Whether it happened isn't known; the same call again happens
    /// once.
    #[error("the service failed ({attempts} times): {problem}")]
    Failed {
        /// How often it was asked.
        attempts: u32,
        /// What it said last.
        problem: Box<Problem>,
    },
    /// No answer came, however often it was asked. Whether it happened isn't known; the same call again happens once.
    #[error("no answer came from the service ({attempts} attempts)")]
    NoAnswer {
        /// How often it was asked.
        attempts: u32,
        /// Why the last time.
        #[source]
        cause: reqwest::Error,
    },
    /// The service did it, and its answer isn't what this client knows.
    #[error("the answer (HTTP {status}) can't be read")]
    Unreadable {
        /// The HTTP status.
        status: u16,
        /// Why.
        #[source]
        cause: serde_json::Error,
    },
}

impl Error {
    /// What the service said, if it said something.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) | Self::Failed { problem, .. } => Some(problem),
            Self::Unusable(_) | Self::NoAnswer { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// The problem's stable code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }

    /// Whether the service refused with this code.
    #[must_use]
    pub fn is_refusal(&self, code: &str) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == code)
    }
}

/// A problem document (RFC 9457) of the service.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// Stable, for programs; `unknown` when something between us and the service answered instead.
    pub code: String,
    /// What the code means.
    pub title: String,
    /// What happened here, for people.
    pub detail: String,
    /// When to try again, if the service said so.
    pub retry_after: Option<Duration>,
    /// The further members, such as `available_minor_units`.
    pub members: Map<String, Value>,
}

impl Problem {
    /// Reads the body of an answer that isn't a success.
    pub(super) fn read(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let mut members = match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let mut take = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let code = take("code").unwrap_or_else(|| "unknown".to_owned());
        let title = take("title").unwrap_or_default();
        let detail = take("detail").unwrap_or_else(|| "the answer holds no problem document".to_owned());
        members.remove("type");
        members.remove("status");
        Self { status, code, title, detail, retry_after, members }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}: {}", self.status, self.code, self.detail)
    }
}
