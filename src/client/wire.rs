//! The shapes of `/v1` that a worker needs. The service may add members; they are passed over.

use std::fmt;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// An amount in the wallet's currency: decimal text on the wire, so it is exact on both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub Decimal);

impl From<Decimal> for Money {
    fn from(amount: Decimal) -> Self {
        Self(amount)
    }
}

impl From<u32> for Money {
    fn from(amount: u32) -> Self {
        Self(Decimal::from(amount))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // An amount with more digits than its currency has is refused, zeros included.
        serializer.collect_str(&self.0.normalize())
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Decimal::from_str_exact(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// How much a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Amount(Money),
    Tier(String),
}

/// Which queue a job belongs into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    /// The queue of those who pay.
    Priority,
    /// Everybody else's.
    Plain,
}

/// A job that wants money kept for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHold {
    /// The job's own id: 1 to 64 of A-Z a-z 0-9 . _ : @ + -
    pub hold_id: String,
    /// Whose money.
    pub tenant_id: String,
    /// Which of the tenant's wallets.
    pub currency: String,
    asked: Asked,
    /// Whether less will do when there isn't enough.
    pub allow_partial: bool,
    /// How many jobs of the tenant may be at work, with this one.
    pub max_in_flight: Option<u32>,
    /// How long the hold lives when nobody comes back, in seconds.
    pub ttl_secs: Option<u32>,
    /// The most the job may cost.
    pub cost_cap: Option<Money>,
    /// Where the job belongs; a new one takes the place of the old one, which is over, or asked to stop if it has begun.
    pub session: Option<String>,
    /// What makes two jobs the same while the first is at work.
    pub dedupe_key: Option<String>,
    /// What makes two jobs the same for some seconds.
    pub fingerprint: Option<String>,
    /// Which queue; the service decides when none.
    pub priority_class: Option<PriorityClass>,
}

impl NewHold {
    /// A job that asks for so much. Zero costs nothing and counts as a job at work.
    pub fn of_amount(
        hold_id: impl Into<String>,
        tenant_id: impl Into<String>,
        currency: impl Into<String>,
        amount: Money,
    ) -> Self {
        Self::new(hold_id.into(), tenant_id.into(), currency.into(), Asked::Amount(amount))
    }

    /// A job that asks for what a tier asks for now.
    pub fn of_tier(
        hold_id: impl Into<String>,
        tenant_id: impl Into<String>,
        currency: impl Into<String>,
        tier: impl Into<String>,
    ) -> Self {
        Self::new(hold_id.into(), tenant_id.into(), currency.into(), Asked::Tier(tier.into()))
    }

    fn new(hold_id: String, tenant_id: String, currency: String, asked: Asked) -> Self {
        Self {
            hold_id,
            tenant_id,
            currency,
            asked,
            allow_partial: false,
            max_in_flight: None,
            ttl_secs: None,
            cost_cap: None,
            session: None,
            dedupe_key: None,
            fingerprint: None,
            priority_class: None,
        }
    }

    pub(super) fn body(&self) -> Value {
        let (amount, tier) = match &self.asked {
            Asked::Amount(amount) => (json!(amount), Value::Null),
            Asked::Tier(tier) => (Value::Null, json!(tier)),
        };
        let members = [
            ("hold_id", json!(self.hold_id)),
            ("tenant_id", json!(self.tenant_id)),
            ("currency", json!(self.currency)),
            ("amount", amount),
            ("tier", tier),
            ("allow_partial", json!(self.allow_partial)),
            ("max_in_flight", json!(self.max_in_flight)),
            ("ttl_secs", json!(self.ttl_secs)),
            ("cost_cap", json!(self.cost_cap)),
            ("session", json!(self.session)),
            ("dedupe_key", json!(self.dedupe_key)),
            ("fingerprint", json!(self.fingerprint)),
            ("priority_class", json!(self.priority_class)),
        ];
        // What isn't said is left out.
        let said = members.into_iter().filter(|(_, value)| !value.is_null());
        Value::Object(said.map(|(name, value)| (name.to_owned(), value)).collect::<Map<String, Value>>())
    }
}

/// What a call used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// Tokens of a model of the price book.
    Tokens {
        /// Which model.
        model: String,
        /// Tokens that were read.
        input: u64,
        /// Tokens that were written.
        output: u64,
        /// Tokens that were read from a cache.
        cached: u64,
    },
    /// Millionths of a US dollar.
    CostMicro(u64),
}

impl Usage {
    pub(super) fn body(&self, call_id: &str) -> Value {
        match self {
            Self::Tokens { model, input, output, cached } => json!({
                "call_id": call_id,
                "model": model,
                "input_tokens": input,
                "output_tokens": output,
                "cached_tokens": cached,
            }),
            Self::CostMicro(cost_micro) => json!({ "call_id": call_id, "cost_micro": cost_micro }),
        }
    }
}

/// How work is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// What was held is the price.
    AsHeld,
    /// This much: zero to the hold's cost cap.
    Amount(Money),
    /// What the reported calls cost.
    ByUsage,
}

impl Settle {
    pub(super) fn body(self) -> Value {
        match self {
            Self::AsHeld => json!({ "mode": "as_held" }),
            Self::Amount(amount) => json!({ "mode": "amount", "amount": amount }),
            Self::ByUsage => json!({ "mode": "by_usage" }),
        }
    }
}

/// Where a hold stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for a worker.
    Placed,
    /// A worker is at it.
    Started,
    /// Its work is paid.
    Settled,
    /// It cost nothing.
    Released,
}

/// How the answer to placing came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The hold is new.
    Placed,
    /// This job was placed before. After a repeat that may have been this very call.
    AlreadyPlaced,
    /// Another job with this dedupe key is at work: it is the answer.
    AlreadyRunning,
    /// Another job with this fingerprint came some seconds ago: it is the answer.
    Duplicate,
}

/// So much from one pocket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Allocation {
    /// The pocket.
    pub pocket: String,
    /// How much.
    pub amount: Money,
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Hold {
    /// The job's id; of a double, the first job's.
    pub hold_id: String,
    /// Where it stands.
    pub status: Status,
    /// Whose money.
    pub tenant_id: String,
    /// Which wallet.
    pub currency: String,
    /// How much it keeps, or kept.
    pub amount: Money,
    /// From which pockets.
    pub allocations: Vec<Allocation>,
    /// The most the job may cost, but for its last call.
    pub cost_cap: Money,
    /// The tier it was asked by.
    pub tier: Option<String>,
    /// The version of the price book its usage is reckoned by.
    pub price_version: Option<i32>,
    /// Which queue the job belongs into.
    pub queue: PriorityClass,
    /// When it was placed.
    pub placed_at: DateTime<Utc>,
    /// Until when it counts, unless a lease lasts longer.
    pub expires_at: DateTime<Utc>,
    /// Whether it still keeps its money.
    pub live: bool,
    /// When a worker began.
    pub started_at: Option<DateTime<Utc>>,
    /// Until when the worker's last sign of life counts.
    pub lease_until: Option<DateTime<Utc>>,
    /// Whether the worker is asked to stop.
    pub cancel_requested: bool,
    /// What its calls used, in millionths of a US dollar.
    pub used_micro: i64,
    /// What it cost; none until it ends.
    pub charged: Option<Money>,
    /// `worker`, `reconciler`, `canceller` or `successor`; none until it ends.
    pub settled_by: Option<String>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// In the answer to placing: how it came about.
    pub outcome: Option<Standing>,
}

/// What a worker hears after a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Used {
    /// What the call cost, in millionths of a US dollar.
    pub cost_micro: i64,
    /// What the job used, in millionths of a US dollar.
    pub used_micro: i64,
    /// What the job used, in the wallet's currency, rounded up.
    pub used: Money,
    /// What it may still use now.
    pub remaining: Money,
    /// Whether there shall be no further call: settle.
    pub stop: bool,
    /// Whether somebody asked to stop.
    pub cancel_requested: bool,
}
