//! The events, which are a published format: a kind keeps its name, and a member of its data its meaning.

use chrono::{DateTime, Utc};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::fault::Fault;
use crate::ids::TenantId;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A payment was performed: its money is in the wallet.
    PaymentPerformed,
    /// A performed payment went back through its provider.
    PaymentReversed,
    /// A payment came that can't have what it was for: it will go back to its payer.
    PaymentRefundDue,
    /// An order got its slot.
    BookingConfirmed,
    /// A booking was cancelled, and its slot is free.
    BookingCancelled,
    /// A refund was posted.
    RefundPosted,
    /// A fee was charged.
    FeeCharged,
    /// A fee fell due and there wasn't enough money.
    FeeOverdue,
    /// A fee is still unpaid after some days.
    FeeReminder,
    /// A fee is unpaid for so long that access should be suspended.
    AccessSuspended,
    /// The last unpaid fee was paid.
    AccessRestored,
    /// Money was promised to a job.
    HoldPlaced,
    /// A job still waits for a worker, some seconds after its hold was placed.
    HoldWaiting,
    /// A job's work was paid.
    HoldSettled,
    /// A job cost nothing, and what it held is free again.
    HoldReleased,
    /// Nobody ended a hold in its time, so the reconciler did.
    HoldExpired,
    /// An allowance was filled for somebody who is away.
    AllowanceRefilled,
}

impl EventKind {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PaymentPerformed => "payment.performed",
            Self::PaymentReversed => "payment.reversed",
            Self::PaymentRefundDue => "payment.refund_due",
            Self::BookingConfirmed => "booking.confirmed",
            Self::BookingCancelled => "booking.cancelled",
            Self::RefundPosted => "refund.posted",
            Self::FeeCharged => "fee.charged",
            Self::FeeOverdue => "fee.overdue",
            Self::FeeReminder => "fee.reminder",
            Self::AccessSuspended => "access.suspended",
            Self::AccessRestored => "access.restored",
            Self::HoldPlaced => "hold.placed",
            Self::HoldWaiting => "hold.waiting",
            Self::HoldSettled => "hold.settled",
            Self::HoldReleased => "hold.released",
            Self::HoldExpired => "hold.expired",
            Self::AllowanceRefilled => "allowance.refilled",
        }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Whose.
    pub tenant_id: TenantId,
    /// What.
    pub kind: EventKind,
    /// The rest: an object.
    pub about: Value,
}

impl Event {
    /// The body as it is sent: `{"type", "timestamp", "data"}`.
    pub(super) fn body(&self, now: DateTime<Utc>) -> Result<String, Fault> {
        let body = Body { data: EventData(self), timestamp: now, r#type: self.kind.as_str() };
        serde_json::to_string(&body).map_err(|error| Fault::new("an event can't be written").because(error))
    }
}

#[derive(Serialize)]
struct Body<'a> {
    data: EventData<'a>,
    timestamp: DateTime<Utc>,
    r#type: &'static str,
}

/// What an event is about, with whose it is. Written member by member, without a copy: a fee run writes very many.
struct EventData<'a>(&'a Event);

impl Serialize for EventData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let about = self.0.about.as_object();
        let members = about.into_iter().flatten().filter(|(name, _)| *name != "tenant_id");
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in members {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("tenant_id", self.0.tenant_id.as_str())?;
        map.end()
    }
}
