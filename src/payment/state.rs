//! What a payment is, and which state it is in.

use chrono::{DateTime, TimeDelta, Utc};

use crate::fault::Fault;
use crate::ids::{ExternalId, OrderId, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// Whether a payment is money. A provider's test key makes test payments: they go through every state, never
/// become a ledger row, and are never seen by live calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Money.
    Live,
    /// A rehearsal.
    Test,
}

impl Mode {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Test => "test",
        }
    }
}

/// What a payer pays into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountRef {
    /// A wallet: any number of payments, several open at once.
    Wallet(TenantId),
    /// An order: one payment succeeds, of exactly its amount.
    Order(OrderId),
}

/// A provider's name, its mode and its id together name a payment.
#[derive(Debug, Clone)]
pub struct PaymentKey {
    /// `payme`, …
    pub provider: &'static str,
    /// Live or test.
    pub mode: Mode,
    /// The provider's id.
    pub external_id: ExternalId,
}

/// What a provider says when it creates a payment.
#[derive(Debug, Clone)]
pub struct NewPayment {
    /// Its name.
    pub key: PaymentKey,
    /// What is paid into.
    pub account: AccountRef,
    /// The account as the provider sent it, JSON.
    pub account_as_received: String,
    /// What else the account said, as [`super::account_values`] makes it.
    pub account_values: Vec<String>,
    /// Minor units.
    pub amount: MinorUnits,
    /// The provider's own time.
    pub external_created_at: DateTime<Utc>,
}

/// Where a payment stands, with what is known there and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Promised.
    Created,
    /// Paid.
    Performed {
        /// When.
        performed_at: DateTime<Utc>,
    },
    /// Never paid.
    Cancelled {
        /// When.
        cancelled_at: DateTime<Utc>,
        /// The provider's code for why.
        reason: i64,
    },
    /// Paid and given back.
    Refunded {
        /// When it was paid.
        performed_at: DateTime<Utc>,
        /// When it was given back.
        cancelled_at: DateTime<Utc>,
        /// The provider's code for why.
        reason: i64,
    },
}

impl State {
    /// Reads the state from which times are set.
    ///
    /// # Errors
    /// A fault when a reason stands without its time or the other way round.
    pub fn from_columns(
        performed_at: Option<DateTime<Utc>>,
        cancelled_at: Option<DateTime<Utc>>,
        reason: Option<i64>,
    ) -> Result<Self, Fault> {
        match (performed_at, cancelled_at, reason) {
            (None, None, None) => Ok(Self::Created),
            (Some(performed_at), None, None) => Ok(Self::Performed { performed_at }),
            (None, Some(cancelled_at), Some(reason)) => Ok(Self::Cancelled { cancelled_at, reason }),
            (Some(performed_at), Some(cancelled_at), Some(reason)) => {
                Ok(Self::Refunded { performed_at, cancelled_at, reason })
            }
            (_, None, Some(_)) | (_, Some(_), None) => Err(Fault::new("a payment's cancellation is half written")),
        }
    }
}

/// A payment.
#[derive(Debug, Clone)]
pub struct Payment {
    /// Our id.
    pub payment_id: i64,
    /// Live or test.
    pub mode: Mode,
    /// The provider's id.
    pub external_id: ExternalId,
    /// Whose wallet is credited.
    pub tenant_id: TenantId,
    /// The order that is paid, if it is one.
    pub order_id: Option<OrderId>,
    /// The currency.
    pub currency: CurrencyCode,
    /// Minor units.
    pub amount: MinorUnits,
    /// The account as the provider sent it, JSON.
    pub account_as_received: String,
    /// The provider's own time of creation.
    pub external_created_at: DateTime<Utc>,
    /// Our time of creation.
    pub created_at: DateTime<Utc>,
    /// Where it stands.
    pub state: State,
}

impl Payment {
    /// Whether the payment is for this account.
    #[must_use]
    pub fn is_for(&self, account: &AccountRef) -> bool {
        match account {
            AccountRef::Wallet(tenant_id) => self.order_id.is_none() && self.tenant_id == *tenant_id,
            AccountRef::Order(order_id) => self.order_id.as_ref() == Some(order_id),
        }
    }

    /// Whether it was promised longer ago than `lifetime`, by the provider's clock. Exactly as long ago is
    /// still alive.
    #[must_use]
    pub fn is_expired(&self, lifetime: TimeDelta, now: DateTime<Utc>) -> bool {
        now.signed_duration_since(self.external_created_at) > lifetime
    }

    /// A time for a change of state: never before the times that are set already, whatever this machine's
    /// clock says.
    #[must_use]
    pub fn not_before_own_times(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let last = match self.state {
            State::Created | State::Cancelled { .. } => self.created_at,
            State::Performed { performed_at } | State::Refunded { performed_at, .. } => performed_at,
        };
        now.max(last)
    }
}

/// Which of a payment's two tax receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiscalKind {
    /// Of the sale.
    Perform,
    /// Of its return.
    Cancel,
}

impl FiscalKind {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Perform => "perform",
            Self::Cancel => "cancel",
        }
    }
}
