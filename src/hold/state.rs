//! A hold as it stands.

use chrono::{DateTime, TimeDelta, Utc};

use super::Part;
use crate::fault::Fault;
use crate::ids::{InvalidName, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// The caller's id of the job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(String);

impl HoldId {
    /// Parses a text from outside.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        let shape = !text.is_empty()
            && text.len() <= 64
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte))
            // What a path means otherwise.
            && !matches!(text.as_str(), "stats" | "." | "..");
        if shape {
            Ok(Self(text))
        } else {
            Err(InvalidName {
                what: "hold_id",
                rule: "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ + - and not stats, . or ..",
            })
        }
    }

    /// Parses a column.
    ///
    /// # Errors
    /// A fault.
    pub fn from_column(text: String) -> Result<Self, Fault> {
        Self::parse(text).map_err(|error| Fault::new("a stored hold_id breaks its rule").because(error))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for HoldId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Who ended a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// Who placed it or worked for it.
    Worker,
    /// Nobody came back in its time.
    Reconciler,
    /// Somebody cancelled it before it was started.
    Canceller,
    /// A new job of the same session took its place.
    Successor,
}

impl EndedBy {
    /// The name in the API and in the column.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Reconciler => "reconciler",
            Self::Canceller => "canceller",
            Self::Successor => "successor",
        }
    }

    pub(super) fn from_column(text: &str) -> Result<Self, Fault> {
        match text {
            "worker" => Ok(Self::Worker),
            "reconciler" => Ok(Self::Reconciler),
            "canceller" => Ok(Self::Canceller),
            "successor" => Ok(Self::Successor),
            _ => Err(Fault::new("a stored end of a hold is by nobody known")),
        }
    }
}

/// How a hold ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldEnd {
    /// When.
    pub at: DateTime<Utc>,
    /// Whether its work was paid; else it cost nothing.
    pub settled: bool,
    /// What it cost, in minor units.
    pub charged: MinorUnits,
    /// Who ended it.
    pub by: EndedBy,
    /// What the end was asked for, canonical JSON.
    pub asked: String,
}

/// A hold.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The caller's id of the job.
    pub hold_id: HoldId,
    /// Whose money.
    pub tenant_id: TenantId,
    /// Which wallet.
    pub currency: CurrencyCode,
    /// What was asked, canonical JSON.
    pub asked: String,
    /// How much it keeps.
    pub amount: MinorUnits,
    /// From which pockets, in the order in which they are spent.
    pub parts: Vec<Part>,
    /// The most the job may cost, but for its last call.
    pub cost_cap: MinorUnits,
    /// The tier, if it was asked by one.
    pub tier: Option<String>,
    /// The price book that its usage is reckoned by.
    pub price_version: Option<i32>,
    /// Which queue its job belongs into: `priority` or `plain`.
    pub queue: String,
    /// How long it lives when nobody comes back.
    pub ttl_secs: i32,
    /// When it was placed.
    pub placed_at: DateTime<Utc>,
    /// Until when it counts, unless a worker's lease lasts longer.
    pub expires_at: DateTime<Utc>,
    /// Until when a worker's last sign of life counts.
    pub lease_until: Option<DateTime<Utc>>,
    /// When a worker began.
    pub started_at: Option<DateTime<Utc>>,
    /// When somebody asked the worker to stop.
    pub cancel_asked_at: Option<DateTime<Utc>>,
    /// How it ended.
    pub end: Option<HoldEnd>,
    /// The sum of its usage, in millionths of a US dollar.
    pub used_micro: i64,
    /// Its largest call, in millionths of a US dollar.
    pub largest_call_micro: i64,
    /// How many calls that are.
    pub calls: i64,
    /// The session, if it has one.
    pub session: Option<String>,
    /// The key that finds a double of it.
    pub dedupe_key: Option<String>,
}

impl Hold {
    /// Whether it still counts: it hasn't ended, and its time or its worker's lease isn't over.
    #[must_use]
    pub fn is_live(&self, now: DateTime<Utc>) -> bool {
        self.end.is_none() && (self.expires_at > now || self.lease_until.is_some_and(|until| until > now))
    }

    /// `placed`, `started`, `settled` or `released`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match (&self.end, self.started_at) {
            (Some(end), _) if end.settled => "settled",
            (Some(_), _) => "released",
            (None, Some(_)) => "started",
            (None, None) => "placed",
        }
    }
}

/// How holds are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a hold lives when the caller doesn't say.
    pub ttl_secs: i32,
    /// How long two jobs with one fingerprint are the same.
    pub duplicate_secs: i32,
    /// How long somebody waits before hearing that they are in the queue.
    pub waiting_secs: i32,
}

/// The longest a lease lasts without a new sign of life.
const LEASE_SECS_MAX: i64 = 60;

impl Default for Terms {
    fn default() -> Self {
        Self { ttl_secs: 900, duplicate_secs: 5, waiting_secs: 5 }
    }
}

/// Until when a sign of life counts: as long as the worker says, else a third of the hold's time and at most a minute.
#[must_use]
pub fn lease_until(hold: &Hold, asked_secs: Option<i32>, now: DateTime<Utc>) -> DateTime<Utc> {
    let secs = match asked_secs {
        Some(secs) => i64::from(secs),
        None => (i64::from(hold.ttl_secs) / 3).clamp(1, LEASE_SECS_MAX),
    };
    after(now, secs)
}

/// So many seconds earlier.
pub(super) fn before(now: DateTime<Utc>, secs: i32) -> DateTime<Utc> {
    now.checked_sub_signed(TimeDelta::seconds(i64::from(secs))).unwrap_or(now)
}

/// So many seconds later.
pub(super) fn after(now: DateTime<Utc>, secs: i64) -> DateTime<Utc> {
    now.checked_add_signed(TimeDelta::seconds(secs)).unwrap_or(now)
}
