//! The decisions about a question and about money that came, in memory.

use chrono::{DateTime, TimeDelta, Utc};

use crate::booking::{Locked, SlotRefusal};
use crate::fault::Fault;
use crate::money::MinorUnits;
use crate::payment::order::{Order, OrderStatus, status};
use crate::payment::{Payment, State};

/// Why a payer may not pay. The payer reads it, so it is about what they can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum No {
    /// No such order.
    UnknownOrder,
    /// The order is somebody else's to pay.
    WrongPayer,
    /// Not the order's price.
    WrongPrice,
    /// The order is paid, was withdrawn, or its time is over.
    NotPayable,
    /// Somebody else has the slot.
    SlotTaken,
    /// The slot has begun.
    SlotPast,
    /// The order had the slot once; a new attempt is a new order.
    NeedsNewOrder,
}

impl No {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::UnknownOrder,
        Self::WrongPayer,
        Self::WrongPrice,
        Self::NotPayable,
        Self::SlotTaken,
        Self::SlotPast,
        Self::NeedsNewOrder,
    ];

    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownOrder => "unknown_order",
            Self::WrongPayer => "wrong_payer",
            Self::WrongPrice => "wrong_price",
            Self::NotPayable => "not_payable",
            Self::SlotTaken => "slot_taken",
            Self::SlotPast => "slot_past",
            Self::NeedsNewOrder => "needs_new_order",
        }
    }

    /// Parses a column.
    ///
    /// # Errors
    /// A fault when there is no such answer.
    pub fn from_column(text: &str) -> Result<Self, Fault> {
        Self::ALL
            .into_iter()
            .find(|no| no.as_str() == text)
            .ok_or_else(|| Fault::new("a stored answer to a checkout is none that is known"))
    }
}

impl From<SlotRefusal> for No {
    fn from(refusal: SlotRefusal) -> Self {
        match refusal {
            SlotRefusal::Held | SlotRefusal::Booked | SlotRefusal::Withdrawn => Self::SlotTaken,
            SlotRefusal::Past => Self::SlotPast,
            SlotRefusal::HeldBefore | SlotRefusal::HoldOver => Self::NeedsNewOrder,
        }
    }
}

/// The answer to "may this payer pay?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Yes,
    /// No.
    No(No),
}

/// What a payer offers, in a question or with a payment.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The provider's id of the payer.
    pub payer: &'a str,
    /// The currency's code, as the provider writes it.
    pub currency: &'a str,
    /// Minor units.
    pub amount: MinorUnits,
}

/// Whether an offer is what its order asks for.
fn check_offer(order: &Order, offer: Offer<'_>) -> Result<(), No> {
    if order.payer.as_deref().is_some_and(|payer| payer != offer.payer) {
        return Err(No::WrongPayer);
    }
    if order.currency.as_str() != offer.currency || order.amount != offer.amount {
        return Err(No::WrongPrice);
    }
    Ok(())
}

/// What is known about an order under its lock, and about its slot under that one's.
#[derive(Debug)]
pub struct Known<'a> {
    /// The order.
    pub order: &'a Order,
    /// The payment of the order that is open or was successful.
    pub standing: Option<&'a Payment>,
    /// The order's slot, if it has one.
    pub slot: Option<&'a Locked>,
    /// The database's time, read after the locks.
    pub now: DateTime<Utc>,
}

/// Decides about a new question (B2): until when the slot is the order's; none for an order without a slot.
///
/// # Errors
/// Why not.
pub fn decide_checkout(known: &Known<'_>, offer: Offer<'_>, hold_for: TimeDelta) -> Result<Option<DateTime<Utc>>, No> {
    check_offer(known.order, offer)?;
    check_open(known)?;
    let Some(slot) = known.slot else { return Ok(None) };
    Ok(Some(slot.standing.hold(hold_for, known.now)?))
}

/// Decides about a question that was answered with a yes before (B3): the yes may be repeated only while what it
/// promised lives.
///
/// # Errors
/// Why it may not.
pub fn repeat_checkout(known: &Known<'_>) -> Result<(), No> {
    match known.slot {
        Some(slot) => slot.standing.book(&known.order.order_id, None, known.now).map(|_| ()).map_err(No::from),
        None => check_open(known),
    }
}

fn check_open(known: &Known<'_>) -> Result<(), No> {
    match status(known.order, known.standing, false, known.now) {
        OrderStatus::Open => Ok(()),
        OrderStatus::Busy | OrderStatus::Paid | OrderStatus::Refunded | OrderStatus::Expired | OrderStatus::Closed => {
            Err(No::NotPayable)
        }
    }
}

/// What becomes of money that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It bought its slot.
    Booked,
    /// It is the tenant's, in the wallet.
    Credited,
    /// It goes back to its payer.
    Refund(WhyRefund),
    /// A person has to look.
    Person(WhyPerson),
}

/// Why money goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyRefund {
    /// The order's hold is over, even if the slot is free.
    HoldOver,
    /// The order was paid before.
    Overpaid,
    /// The order was withdrawn, or its time was over and nobody had been told yes.
    OrderOver,
}

/// Why a person has to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyPerson {
    /// No such order.
    UnknownOrder,
    /// Another payer, amount or currency than the order's.
    Differs,
}

impl Decision {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Booked => "booked",
            Self::Credited => "credited",
            Self::Refund(_) => "refund",
            Self::Person(_) => "person",
        }
    }

    /// Why, as it is stored.
    #[must_use]
    pub const fn why(self) -> Option<&'static str> {
        match self {
            Self::Booked | Self::Credited => None,
            Self::Refund(WhyRefund::HoldOver) => Some("hold_over"),
            Self::Refund(WhyRefund::Overpaid) => Some("overpaid"),
            Self::Refund(WhyRefund::OrderOver) => Some("order_over"),
            Self::Person(WhyPerson::UnknownOrder) => Some("unknown_order"),
            Self::Person(WhyPerson::Differs) => Some("differs"),
        }
    }

    /// Parses the columns.
    ///
    /// # Errors
    /// A fault when they say nothing that is known.
    pub fn from_columns(decision: &str, why: Option<&str>) -> Result<Self, Fault> {
        [
            Self::Booked,
            Self::Credited,
            Self::Refund(WhyRefund::HoldOver),
            Self::Refund(WhyRefund::Overpaid),
            Self::Refund(WhyRefund::OrderOver),
            Self::Person(WhyPerson::UnknownOrder),
            Self::Person(WhyPerson::Differs),
        ]
        .into_iter()
        .find(|known| known.as_str() == decision && known.why() == why)
        .ok_or_else(|| Fault::new("a stored decision about a receipt is none that is known"))
    }
}

/// Decides about money that came (B4). `asked_before` says whether the order's payer was ever told yes.
#[must_use]
pub fn decide_receipt(known: Option<&Known<'_>>, offer: Offer<'_>, asked_before: bool) -> Decision {
    let Some(known) = known else { return Decision::Person(WhyPerson::UnknownOrder) };
    if check_offer(known.order, offer).is_err() {
        return Decision::Person(WhyPerson::Differs);
    }
    let paid = known.standing.is_some_and(|payment| match payment.state {
        State::Created | State::Performed { .. } | State::Refunded { .. } => true,
        State::Cancelled { .. } => false,
    });
    if paid {
        return Decision::Refund(WhyRefund::Overpaid);
    }
    match known.slot {
        Some(slot) => match slot.standing.book(&known.order.order_id, None, known.now) {
            Ok(_) => Decision::Booked,
            Err(_) => Decision::Refund(WhyRefund::HoldOver),
        },
        None => match status(known.order, None, false, known.now) {
            OrderStatus::Open => Decision::Credited,
            // A promise that was made before the time was over is kept.
            OrderStatus::Expired if asked_before => Decision::Credited,
            OrderStatus::Busy
            | OrderStatus::Paid
            | OrderStatus::Refunded
            | OrderStatus::Expired
            | OrderStatus::Closed => Decision::Refund(WhyRefund::OrderOver),
        },
    }
}

/// What was done so far to give a payment back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GivingBack {
    /// A task is open, or was confirmed.
    pub standing: bool,
    /// There was a task, maybe one that failed for good.
    pub ever: bool,
    /// The case in which a person decided that the money stays, if that was the last decision about it.
    pub kept_by_case: Option<i64>,
}

impl GivingBack {
    /// Whether the money, should it go back, goes because somebody here wanted it to.
    #[must_use]
    pub const fn is_asked(self) -> bool {
        self.standing || (self.ever && self.kept_by_case.is_none())
    }

    /// Whether the money waits in its own pocket, after what was decided when it came.
    #[must_use]
    pub const fn is_set_aside(self, received: Option<Decision>) -> bool {
        let set_aside_at_first = matches!(received, Some(Decision::Refund(_) | Decision::Person(_)));
        self.standing || (self.kept_by_case.is_none() && (self.ever || set_aside_at_first))
    }
}
