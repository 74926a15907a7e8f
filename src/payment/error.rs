//! Why a payment is refused, in no provider's words.

use crate::booking::SlotRefusal;
use crate::ids::{OrderId, Reference, TenantId};
use crate::ledger;
use crate::money::MinorUnits;
use crate::payment::State;

/// A refusal of the payment room. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such payment in this mode.
    #[error("there is no such payment")]
    UnknownPayment,
    /// The payment is in a state that doesn't allow this.
    #[error("the payment's state doesn't allow this")]
    WrongState(State),
    /// The same id came before with another amount or account.
    #[error("this payment id was used before with another {field}")]
    Differs {
        /// Which one.
        field: &'static str,
    },
    /// The provider's own creation time is too long ago.
    #[error("the payment was promised too long ago")]
    TooOld,
    /// The provider's own creation time is far ahead of our clock: such a promise would outlive every other.
    #[error("the payment's own time is in the future")]
    FromTheFuture,
    /// No such tenant.
    #[error("there is no such wallet")]
    UnknownTenant,
    /// No such order.
    #[error("there is no such order")]
    UnknownOrder,
    /// The tenant's account is closed.
    #[error("the wallet of {0} is closed")]
    WalletClosed(TenantId),
    /// The order is paid, was paid and refunded, has expired or was withdrawn.
    #[error("order {order_id} can't be paid: {why}")]
    OrderNotPayable {
        /// Which order.
        order_id: OrderId,
        /// Why, as a phrase.
        why: &'static str,
    },
    /// Another payment of the order is open.
    #[error("order {0} is being paid by another payment")]
    OrderBusy(OrderId),
    /// Another order holds the order's slot; that may pass.
    #[error("the slot of order {0} is held by another order")]
    SlotHeld(OrderId),
    /// The order's slot is booked or has begun.
    #[error("the slot of order {order_id} can't be had: {why}")]
    SlotGone {
        /// Which order.
        order_id: OrderId,
        /// Why.
        why: SlotRefusal,
    },
    /// Outside the wallet's bounds, or not the order's amount.
    #[error("the amount must be between {} and {} minor units, and {} came", least.get(), most.get(), given.get())]
    WrongAmount {
        /// The least that is accepted.
        least: MinorUnits,
        /// The most that is accepted.
        most: MinorUnits,
        /// What came.
        given: MinorUnits,
    },
    /// The money of a performed payment is spent, so it can't go back.
    #[error("the money is spent: {} minor units are available, {} would go back", available.get(), needed.get())]
    MoneySpent {
        /// Minor units available.
        available: MinorUnits,
        /// Minor units of the payment.
        needed: MinorUnits,
    },
    /// The ledger holds a top-up of this payment with another amount. Crediting it again would pay it twice, and
    /// saying that it is performed would be a lie.
    #[error(
        "row {seq} of {tenant_id}'s wallet is the top-up {reference} of {} minor units, and the payment is of {}",
        booked.get(), amount.get()
    )]
    BookedOtherwise {
        /// Whose wallet.
        tenant_id: TenantId,
        /// The payment's name in the book.
        reference: Reference,
        /// The row.
        seq: i64,
        /// Minor units of the row.
        booked: MinorUnits,
        /// Minor units of the payment.
        amount: MinorUnits,
    },
    /// The ledger doesn't take the credit.
    #[error("the ledger refuses: {0}")]
    Ledger(ledger::Refusal),
}

impl Refusal {
    /// Why an order can't have its slot.
    pub(super) fn of_slot(order_id: &OrderId, why: SlotRefusal) -> Self {
        match why {
            SlotRefusal::Held => Self::SlotHeld(order_id.clone()),
            SlotRefusal::Booked
            | SlotRefusal::Withdrawn
            | SlotRefusal::Past
            | SlotRefusal::HeldBefore
            | SlotRefusal::HoldOver => Self::SlotGone { order_id: order_id.clone(), why },
        }
    }
}

impl From<ledger::Refusal> for Refusal {
    fn from(refusal: ledger::Refusal) -> Self {
        Self::Ledger(refusal)
    }
}
