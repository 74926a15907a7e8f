//! The decisions, in memory: whether an order may have a slot, by what was read after the slot's lock.

use chrono::{DateTime, TimeDelta, Utc};

use super::{SlotRefusal, WithdrawRefusal};
use crate::ids::OrderId;

/// A hold that nobody has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its number.
    pub hold_id: i64,
    /// Whose.
    pub order_id: OrderId,
    /// The payment whose life it has; none for a checkout.
    pub payment_id: Option<i64>,
    /// It holds nothing from this moment on.
    pub held_until: DateTime<Utc>,
}

impl Hold {
    /// Whether it still holds.
    #[must_use]
    pub fn is_alive(&self, now: DateTime<Utc>) -> bool {
        now < self.held_until
    }
}

/// What is known about a slot under its lock.
#[derive(Debug, Clone)]
pub struct Standing {
    /// When it begins.
    pub starts_at: DateTime<Utc>,
    /// Whether it was taken out of sale.
    pub withdrawn: bool,
    /// The order that has booked it.
    pub booked_by: Option<OrderId>,
    /// The holds that nobody has ended, alive or past their time.
    pub holds: Vec<Hold>,
    /// Whether the order that asks has ever been approved for it by a checkout.
    pub approved_before: bool,
}

impl Standing {
    /// Who holds the slot at a moment. The database lets two holds never overlap, so there is one at most.
    #[must_use]
    pub fn holder(&self, now: DateTime<Utc>) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.is_alive(now))
    }

    /// Whether the order holds the slot by a checkout.
    #[must_use]
    pub fn is_held_for_checkout(&self, order_id: &OrderId, now: DateTime<Utc>) -> bool {
        self.holder(now).is_some_and(|hold| hold.order_id == *order_id && hold.payment_id.is_none())
    }

    /// Whether the order that asks, which doesn't hold the slot, can never get it any more.
    #[must_use]
    pub fn is_over(&self, now: DateTime<Utc>) -> bool {
        self.withdrawn || self.starts_at <= now || self.approved_before
    }

    /// Free, or held by a hold that is past its time, and not booked, and not begun.
    ///
    /// # Errors
    /// Why it isn't.
    pub fn check_free(&self, now: DateTime<Utc>) -> Result<(), SlotRefusal> {
        if self.booked_by.is_some() {
            return Err(SlotRefusal::Booked);
        }
        if self.withdrawn {
            return Err(SlotRefusal::Withdrawn);
        }
        if self.starts_at <= now {
            return Err(SlotRefusal::Past);
        }
        if self.holder(now).is_some() {
            return Err(SlotRefusal::Held);
        }
        Ok(())
    }

    /// Whether the slot may be taken out of sale: nobody has it or is about to.
    ///
    /// # Errors
    /// Who has it.
    pub fn check_unwanted(&self, slot_id: i64, now: DateTime<Utc>) -> Result<(), WithdrawRefusal> {
        if let Some(order_id) = &self.booked_by {
            return Err(WithdrawRefusal::Booked { slot_id, order_id: order_id.clone() });
        }
        match self.holder(now) {
            Some(hold) => {
                let (order_id, held_until) = (hold.order_id.clone(), hold.held_until);
                Err(WithdrawRefusal::Held { slot_id, order_id, held_until })
            }
            None => Ok(()),
        }
    }

    /// Until when a checkout of an order may have the slot (B2).
    ///
    /// # Errors
    /// Why it may not.
    pub fn hold(&self, length: TimeDelta, now: DateTime<Utc>) -> Result<DateTime<Utc>, SlotRefusal> {
        if self.approved_before {
            return Err(SlotRefusal::HeldBefore);
        }
        self.check_free(now)?;
        Ok(now.checked_add_signed(length).unwrap_or(now))
    }

    /// The hold by which an order that has been paid gets the slot (B4): still its own, and alive. `payment_id` is
    /// the payment that has held it, or none when a checkout has.
    ///
    /// # Errors
    /// Why it doesn't.
    pub fn book(&self, order_id: &OrderId, payment_id: Option<i64>, now: DateTime<Utc>) -> Result<&Hold, SlotRefusal> {
        if self.booked_by.is_some() {
            return Err(SlotRefusal::Booked);
        }
        self.holder(now)
            .filter(|hold| hold.order_id == *order_id && hold.payment_id == payment_id)
            .ok_or(SlotRefusal::HoldOver)
    }
}
