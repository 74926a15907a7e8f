//! Money that has come: decided about and booked in one transaction, once.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::case::{self, CaseKind, NewCase};
use super::checkout::{LockedOrder, lock_order_and_slot};
use super::state::{Decision, Offer, WhyPerson, decide_receipt};
use super::store::KnownReceipt;
use super::{refund, store};
use crate::booking::{self, Booked};
use crate::fault::{Error, Fault, Widen as _};
use crate::funding;
use crate::ids::{Actor, Pocket, TenantId};
use crate::ledger::Kind;
use crate::money::{CurrencyCode, MinorUnits};
use crate::outbox::EventKind;
use crate::payment::{AccountRef, NewPayment, Payment, PaymentKey, Refusal, State, service, slot, store as payments};

/// How we know of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The provider told us.
    Update,
    /// We found it in the provider's list.
    Statement,
}

impl Source {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Statement => "statement",
        }
    }
}

/// Money that a provider has taken for us.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// The payment's name: the one key of the money.
    pub key: PaymentKey,
    /// The order that it names.
    pub named_order: String,
    /// The provider's id of the payer.
    pub payer: String,
    /// The currency's code, as the provider writes it.
    pub currency: String,
    /// Minor units.
    pub amount: MinorUnits,
    /// When it was paid, by the provider's clock.
    pub paid_at: DateTime<Utc>,
    /// What the provider said, JSON, at most 4,096 bytes.
    pub account_as_received: String,
    /// How we know.
    pub source: Source,
}

/// More minor units than this are no payment of anybody's: a wallet has room for hundreds of millions of those below.
const AMOUNT_MAX: MinorUnits = MinorUnits::new(10_000_000_000);

/// What became of money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Our id of the payment.
    pub payment_id: i64,
    /// What was decided.
    pub decision: Decision,
}

/// What came of being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Decided now.
    New(Outcome),
    /// Decided before, unchanged.
    Already(Outcome),
    /// Not money of the currency this provider's book is kept in: a person looks at it.
    Foreign,
}

/// Whether a payment came from a provider that asks before and tells after.
///
/// # Errors
/// A fault.
pub async fn is_prepaid(conn: &mut PgConnection, payment_id: i64) -> Result<bool, Fault> {
    Ok(store::find_receipt(conn, payment_id).await?.is_some())
}

/// Which of these payments are in the book, each as it was told. Reads only.
///
/// # Errors
/// A fault.
pub async fn find_known(
    conn: &mut PgConnection,
    provider: &'static str,
    external_ids: &[String],
) -> Result<Vec<KnownReceipt>, Fault> {
    store::find_known(conn, provider, external_ids).await
}

/// Takes note of money that came (B4). `book` is the currency that the provider's book is kept in.
///
/// # Errors
/// [`Refusal::BookedOtherwise`] when the ledger holds a row of that name already; the caller raises an alarm.
pub async fn receive(
    conn: &mut PgConnection,
    receipt: &Receipt,
    book: &CurrencyCode,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Received, Error<Refusal>> {
    let locked = lock_order_and_slot(conn, &receipt.named_order).await?;
    if let Some(outcome) = decided_before(conn, &receipt.key).await? {
        note_difference(conn, outcome.payment_id, receipt, now).await?;
        return Ok(Received::Already(outcome));
    }
    if receipt.currency != book.as_str() || !is_believable(receipt.amount) {
        open_foreign(conn, receipt, now).await?;
        return Ok(Received::Foreign);
    }
    let asked_before = match &locked {
        Some(locked) => store::was_approved(conn, receipt.key.provider, &locked.order).await?,
        None => false,
    };
    let offer = Offer { payer: &receipt.payer, currency: &receipt.currency, amount: receipt.amount };
    let known = locked.as_ref().map(LockedOrder::known);
    let decision = decide_receipt(known.as_ref(), offer, asked_before);
    let Some(payment) = insert_payment(conn, receipt, book, locked.as_ref(), decision, now).await? else {
        // The same money under another name of an order was first; it has committed by now.
        let outcome = decided_before(conn, &receipt.key)
            .await?
            .ok_or_else(|| Fault::new("a receipt that conflicted with an insert was not there to read"))?;
        return Ok(Received::Already(outcome));
    };
    store::insert_receipt(conn, payment.payment_id, receipt, decision, now).await?;
    let booked = match (decision, &locked) {
        (Decision::Booked, Some(locked)) => book_slot(conn, locked, &payment).await?,
        _ => None,
    };
    post(conn, receipt, &payment, decision, booked.as_ref(), actor, now).await?;
    match decision {
        Decision::Booked | Decision::Credited => {}
        Decision::Refund(_) => {
            let why = decision.why().unwrap_or_default();
            refund::ask(conn, payment.payment_id, why, actor.as_str(), now).await?;
        }
        Decision::Person(why) => open_mismatch(conn, receipt, &payment, why, now).await?,
    }
    Ok(Received::New(Outcome { payment_id: payment.payment_id, decision }))
}

/// The provider's id of a payment is the key of the money. Told again with another content, nothing of it is booked;
/// but one of the two is not what happened, and a person has to know.
async fn note_difference(
    conn: &mut PgConnection,
    payment_id: i64,
    receipt: &Receipt,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let Some(booked) = store::told_otherwise(conn, payment_id, receipt).await? else { return Ok(()) };
    let new = NewCase {
        provider: receipt.key.provider,
        kind: CaseKind::UnreadUpdate,
        subject: format!("{}:differs", receipt.key.external_id),
        payment_id: None,
        why: format!(
            "Payment {} is in the book as {booked}, and was told again as {} {} from payer {} for order {:?}. Nothing was \
             booked for that: ask the provider which is true.",
            receipt.key.external_id,
            receipt.amount.get(),
            receipt.currency,
            receipt.payer,
            receipt.named_order
        ),
    };
    case::open(conn, &new, now).await.map(|_| ())
}

async fn decided_before(conn: &mut PgConnection, key: &PaymentKey) -> Result<Option<Outcome>, Fault> {
    let Some(payment) = payments::find(conn, key).await? else { return Ok(None) };
    let payment_id = payment.payment_id;
    let decision = store::find_receipt(conn, payment_id)
        .await?
        .ok_or_else(|| Fault::new("a payment of a provider that tells after has no receipt"))?;
    Ok(Some(Outcome { payment_id, decision }))
}

async fn insert_payment(
    conn: &mut PgConnection,
    receipt: &Receipt,
    book: &CurrencyCode,
    locked: Option<&LockedOrder>,
    decision: Decision,
    now: DateTime<Utc>,
) -> Result<Option<Payment>, Fault> {
    let tenant_id = match locked {
        Some(locked) => locked.order.tenant_id.clone(),
        None => store::open_unmatched_tenant(conn, receipt.key.provider, now).await?,
    };
    // Only the one payment that its order was for is the order's; the order is sold once.
    let account = match (decision, locked) {
        (Decision::Booked | Decision::Credited, Some(locked)) => AccountRef::Order(locked.order.order_id.clone()),
        _ => AccountRef::Wallet(tenant_id.clone()),
    };
    let new = NewPayment {
        key: receipt.key.clone(),
        account,
        account_as_received: receipt.account_as_received.clone(),
        account_values: Vec::new(),
        amount: receipt.amount,
        external_created_at: receipt.paid_at,
    };
    let Some(payment) = payments::insert(conn, &new, &tenant_id, book, now).await? else { return Ok(None) };
    // Support finds it by the payer, and by the order that it names.
    let values = crate::payment::account_values(&[receipt.payer.clone(), receipt.named_order.clone()]);
    payments::insert_account_values(conn, payment.payment_id, &values).await?;
    payments::set_performed(conn, payment.payment_id, now).await?;
    Ok(Some(Payment { state: State::Performed { performed_at: now }, ..payment }))
}

async fn book_slot(conn: &mut PgConnection, locked: &LockedOrder, payment: &Payment) -> Result<Option<Booked>, Fault> {
    let Some(slot) = &locked.slot else { return Ok(None) };
    let hold = slot
        .standing
        .book(&locked.order.order_id, None, slot.now)
        .map_err(|error| Fault::new("a slot that was decided to be booked can't be").because(error))?;
    booking::book(conn, slot, hold, payment.payment_id).await.map(Some)
}

/// The rows: the money that came in, and what it was spent on.
async fn post(
    conn: &mut PgConnection,
    receipt: &Receipt,
    payment: &Payment,
    decision: Decision,
    booked: Option<&Booked>,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<(), Error<Refusal>> {
    let mut entries = vec![service::entry(payment, &receipt.key, Kind::TopUp, payment.amount)?];
    let mut events = Vec::new();
    match decision {
        Decision::Booked | Decision::Credited => {
            events.push(service::event(payment, &receipt.key, EventKind::PaymentPerformed));
        }
        Decision::Refund(_) => events.push(service::event(payment, &receipt.key, EventKind::PaymentRefundDue)),
        Decision::Person(_) => {}
    }
    if matches!(decision, Decision::Refund(_) | Decision::Person(_)) {
        for entry in &mut entries {
            entry.pocket = Pocket::set_aside();
        }
    }
    if let Some(booked) = booked {
        entries.push(slot::spending(payment, booked)?);
        events.push(slot::confirmed(payment, booked));
    }
    funding::post(conn, &entries, events, actor, now).await.widen()?;
    Ok(())
}

async fn open_mismatch(
    conn: &mut PgConnection,
    receipt: &Receipt,
    payment: &Payment,
    why: WhyPerson,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let why = match why {
        WhyPerson::UnknownOrder => format!(
            "{} {} from payer {} name order {:?}, which doesn't exist. The money is set aside: refund it, or keep it \
             for the tenant it belongs to.",
            receipt.amount.get(),
            receipt.currency,
            receipt.payer,
            receipt.named_order
        ),
        WhyPerson::Differs => format!(
            "{} {} from payer {} came for order {}, which is of another payer, amount or currency. Nothing was \
             booked and the money is set aside: refund it, or keep it.",
            receipt.amount.get(),
            receipt.currency,
            receipt.payer,
            receipt.named_order
        ),
    };
    let new = NewCase {
        provider: receipt.key.provider,
        kind: CaseKind::Mismatch,
        subject: receipt.key.external_id.to_string(),
        payment_id: Some(payment.payment_id),
        why,
    };
    case::open(conn, &new, now).await.map(|_| ())
}

/// Whether a payment of this amount may be a row. Whoever has the webhook's secret may say any number, and one that
/// fills a wallet to the brim would keep everybody's payments out of it.
fn is_believable(amount: MinorUnits) -> bool {
    amount.is_positive() && amount <= AMOUNT_MAX
}

/// Money of a currency that no wallet here is kept in by this provider can't be a row of the book.
async fn open_foreign(conn: &mut PgConnection, receipt: &Receipt, now: DateTime<Utc>) -> Result<(), Fault> {
    let new = NewCase {
        provider: receipt.key.provider,
        kind: CaseKind::ForeignCurrency,
        subject: receipt.key.external_id.to_string(),
        payment_id: None,
        why: format!(
            "{} minor units of {:?} came from payer {} for order {:?}. {}, so nothing was booked: settle it with the \
             provider by hand.",
            receipt.amount.get(),
            receipt.currency,
            receipt.payer,
            receipt.named_order,
            if !receipt.amount.is_positive() {
                "A payment is more than nothing"
            } else if is_believable(receipt.amount) {
                "This provider's book is kept in another currency"
            } else {
                "Nobody pays so much, and a row of it would leave no room for the payments of others"
            },
        ),
    };
    case::open(conn, &new, now).await.map(|_| ())
}

/// Who owns money that names no order, until a person says whose it is.
pub(super) fn unmatched_tenant(provider: &str) -> Result<TenantId, Fault> {
    TenantId::parse(format!("unmatched:{provider}"))
        .map_err(|error| Fault::new("a provider's name makes no tenant's id").because(error))
}
