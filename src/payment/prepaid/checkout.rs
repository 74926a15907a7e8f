//! "May this payer pay?"

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::state::{Answer, Known, No, Offer, decide_checkout, repeat_checkout};
use super::store::{self, StoredCheckout};
use crate::booking::{self, Locked};
use crate::fault::Fault;
use crate::ids::OrderId;
use crate::money::MinorUnits;
use crate::payment::order::{self, Order};
use crate::payment::{Mode, Payment};

/// A provider's question.
#[derive(Debug, Clone)]
pub struct Question {
    /// Who asks.
    pub provider: &'static str,
    /// The provider's id of the question. The same one again gets the same answer.
    pub query_id: String,
    /// The order that the invoice names.
    pub named_order: String,
    /// The provider's id of the payer.
    pub payer: String,
    /// The currency's code, as the provider writes it.
    pub currency: String,
    /// Minor units.
    pub amount: MinorUnits,
}

impl Question {
    fn offer(&self) -> Offer<'_> {
        Offer { payer: &self.payer, currency: &self.currency, amount: self.amount }
    }
}

/// What holds for every question.
#[derive(Debug, Clone, Copy)]
pub struct CheckoutTerms {
    /// How long a yes holds a slot.
    pub hold_for: TimeDelta,
    /// How long a statement may wait for a lock: short, so that time is left to say no.
    pub lock_timeout: Duration,
    /// How long a statement may take.
    pub statement_timeout: Duration,
}

/// An order under its lock, with what stands around it.
pub(super) struct LockedOrder {
    pub order: Order,
    pub standing: Option<Payment>,
    pub slot: Option<Locked>,
    pub now: DateTime<Utc>,
}

impl LockedOrder {
    pub(super) fn known(&self) -> Known<'_> {
        Known { order: &self.order, standing: self.standing.as_ref(), slot: self.slot.as_ref(), now: self.now }
    }
}

/// Locks the order, then its slot, and reads what stands and what time it is in statements after that. `None` when
/// there is no such order.
pub(super) async fn lock_order_and_slot(
    conn: &mut PgConnection,
    named_order: &str,
) -> Result<Option<LockedOrder>, Fault> {
    let Ok(order_id) = OrderId::parse(named_order) else { return Ok(None) };
    let Some(order) = order::lock(conn, &order_id).await? else { return Ok(None) };
    let slot = match order.slot_id {
        Some(slot_id) => Some(booking::lock_and_read(conn, slot_id, &order_id).await?),
        None => None,
    };
    let standing = order::latest(conn, &order_id, Mode::Live).await?;
    let now = match &slot {
        Some(slot) => slot.now,
        None => booking::database_now(conn).await?,
    };
    Ok(Some(LockedOrder { order, standing, slot, now }))
}

/// Answers a question and keeps the answer; a yes takes the slot for a while. The answer may be told only after the
/// caller has committed (B3).
///
/// # Errors
/// A fault: nothing was written, and the caller says no.
pub async fn check_out(conn: &mut PgConnection, question: &Question, terms: &CheckoutTerms) -> Result<Answer, Fault> {
    store::bound_waiting(conn, terms.lock_timeout, terms.statement_timeout).await?;
    let locked = lock_order_and_slot(conn, &question.named_order).await?;
    if let Some(stored) = store::find_checkout(conn, question.provider, &question.query_id).await? {
        return Ok(repeat(&stored, question, locked.as_ref()));
    }
    let decided = match &locked {
        Some(locked) => decide_checkout(&locked.known(), question.offer(), terms.hold_for),
        None => Err(No::UnknownOrder),
    };
    let now = match &locked {
        Some(locked) => locked.now,
        None => booking::database_now(conn).await?,
    };
    if !store::insert_checkout(conn, question, decided, now).await? {
        // The same question about no order has no lock to wait for; whoever was first has answered it.
        let stored = store::find_checkout(conn, question.provider, &question.query_id)
            .await?
            .ok_or_else(|| Fault::new("a checkout that conflicted with an insert was not there to read"))?;
        return Ok(repeat(&stored, question, locked.as_ref()));
    }
    if let (Ok(Some(held_until)), Some(LockedOrder { order, slot: Some(slot), .. })) = (decided, &locked) {
        booking::hold_for_checkout(conn, slot, &order.order_id, held_until).await?;
    }
    Ok(match decided {
        Ok(_) => Answer::Yes,
        Err(no) => Answer::No(no),
    })
}

/// What was said before, unless it was a yes whose promise is over, or the question isn't the same.
fn repeat(stored: &StoredCheckout, question: &Question, locked: Option<&LockedOrder>) -> Answer {
    // A provider that uses an id twice mustn't get one payer's yes for another, nor another order's.
    if stored.payer != question.payer {
        return Answer::No(No::WrongPayer);
    }
    if stored.named_order != question.named_order {
        return Answer::No(No::UnknownOrder);
    }
    match (stored.answer, locked) {
        (Answer::No(no), _) => Answer::No(no),
        (Answer::Yes, None) => Answer::No(No::UnknownOrder),
        (Answer::Yes, Some(locked)) => match repeat_checkout(&locked.known()) {
            Ok(()) => Answer::Yes,
            Err(no) => Answer::No(no),
        },
    }
}
