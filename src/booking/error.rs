//! Why a slot isn't to be had, and why a resource or a slot can't be made.

use chrono::{DateTime, Utc};

use crate::ids::{OrderId, ResourceId};

/// Why a slot can't be held or booked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotRefusal {
    /// Another order holds it; that may pass.
    #[error("another order holds the slot")]
    Held,
    /// Another order has booked it.
    #[error("the slot is booked")]
    Booked,
    /// It was taken out of sale.
    #[error("the slot was withdrawn")]
    Withdrawn,
    /// It has begun.
    #[error("the slot has begun already")]
    Past,
    /// This order had its hold, and has it no more; a new attempt is a new order.
    #[error("this order has held the slot before; another attempt needs a new order")]
    HeldBefore,
    /// This order's hold is over, or it never had one.
    #[error("this order holds the slot no more")]
    HoldOver,
}

/// Why a resource or its slots can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceRefusal {
    /// The id stands for another resource.
    #[error("resource {resource_id} exists with another {}", fields.join(", "))]
    Differs {
        /// Which resource.
        resource_id: ResourceId,
        /// Which fields.
        fields: Vec<&'static str>,
    },
    /// No such resource.
    #[error("there is no resource {0}")]
    UnknownResource(ResourceId),
    /// Another slot of the resource is in the way.
    #[error("a slot from {starts_at} to {ends_at} would overlap another of {resource_id}")]
    Overlaps {
        /// Which resource.
        resource_id: ResourceId,
        /// The start of the slot that was asked for.
        starts_at: DateTime<Utc>,
        /// Its end.
        ends_at: DateTime<Utc>,
    },
    /// The slot is there with other prices, which are frozen.
    #[error("the slot from {starts_at} is there with other prices")]
    PricesDiffer {
        /// The start of the slot.
        starts_at: DateTime<Utc>,
    },
    /// Nobody could order it any more.
    #[error("a slot from {starts_at} would have begun already: nobody could order it")]
    Past {
        /// The start of the slot that was asked for.
        starts_at: DateTime<Utc>,
    },
}

/// Why a slot can't be taken out of sale.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WithdrawRefusal {
    /// No such slot.
    #[error("there is no slot {0}")]
    UnknownSlot(i64),
    /// An order holds it: its payer may be paying right now.
    #[error("order {order_id} holds slot {slot_id} until {}", held_until.format("%Y-%m-%d %H:%M:%S UTC"))]
    Held {
        /// Which slot.
        slot_id: i64,
        /// Which order.
        order_id: OrderId,
        /// Until when.
        held_until: DateTime<Utc>,
    },
    /// Somebody has it for good.
    #[error("order {order_id} has booked slot {slot_id}: cancel the booking first")]
    Booked {
        /// Which slot.
        slot_id: i64,
        /// Which order.
        order_id: OrderId,
    },
}
