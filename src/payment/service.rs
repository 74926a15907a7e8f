//! Load, decide, store: the life of a payment on a connection whose transaction the caller owns.

use chrono::{DateTime, TimeDelta, Utc};
use scoped_futures::ScopedFutureExt as _;
use sqlx::PgConnection;

use super::{AccountRef, FiscalKind, Mode, NewPayment, Payment, PaymentKey, Refusal, State, order, slot, store};
use crate::booking::Booked;
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::funding;
use crate::ids::{Actor, OrderId, Pocket, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata};
use crate::money::{CurrencyCode, MinorUnits};
use crate::outbox::{self, Event, EventKind};

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// What a provider's payments have in common.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The currency the provider pays in.
    pub currency: CurrencyCode,
    /// The least a wallet takes in one payment.
    pub top_up_min: MinorUnits,
    /// The most a wallet takes in one payment.
    pub top_up_max: MinorUnits,
    /// How long a promise lives, by the provider's clock.
    pub lifetime: TimeDelta,
    /// The provider's code for "timed out".
    pub timeout_reason: i64,
    /// Who acts.
    pub actor: Actor,
}

/// What came of a creation. Each of these is to be committed.
#[derive(Debug)]
pub enum Created {
    /// A new payment.
    New(Payment),
    /// The same call came before: its payment, unchanged.
    Already(Payment),
    /// The payment had timed out, and now says so.
    Expired(Payment),
}

/// What came of performing. Each of these is to be committed.
#[derive(Debug)]
pub enum Performed {
    /// Credited now.
    New(Payment),
    /// Credited before: the payment, unchanged.
    Already(Payment),
    /// The payment had timed out, and now says so.
    Expired(Payment),
}

/// What came of a cancellation.
#[derive(Debug)]
pub enum Cancelled {
    /// Cancelled or refunded now.
    New(Payment),
    /// Cancelled or refunded before: the payment, unchanged.
    Already(Payment),
}

/// How far a provider's clock may be ahead of ours.
const AHEAD_MAX: TimeDelta = TimeDelta::days(1);

/// Whether a payment of this amount into this account would be accepted now. Writes nothing.
///
/// # Errors
/// The refusal a creation would meet, in the same order: account, payable or busy, amount.
pub async fn check(
    conn: &mut PgConnection,
    account: &AccountRef,
    amount: MinorUnits,
    mode: Mode,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<TenantId> {
    match account {
        AccountRef::Wallet(tenant_id) => check_wallet(conn, tenant_id, amount, terms).await,
        AccountRef::Order(order_id) => {
            let order = order::find(conn, order_id).await?.ok_or(Error::Refused(Refusal::UnknownOrder))?;
            check_not_closed(conn, &order.tenant_id).await?;
            let standing = order::standing(conn, order_id, mode, terms.lifetime, now).await?;
            order::check_payable(&order, standing.as_ref(), terms, now).map_err(Error::Refused)?;
            if let Some(slot_id) = order.slot_id {
                slot::check_free(conn, slot_id, order_id).await?;
            }
            order::check_amount(&order, amount).map_err(Error::Refused)?;
            Ok(order.tenant_id)
        }
    }
}

/// Creates a payment, or finds it created.
///
/// # Errors
/// [`Refusal`]; nothing is written then.
pub async fn create(conn: &mut PgConnection, new: &NewPayment, terms: &Terms, now: DateTime<Utc>) -> Result<Created> {
    // The id comes first: a repeat gets its answer whatever has happened to the account since.
    if let Some(payment) = store::lock(conn, &new.key).await? {
        return created_before(conn, payment, new, terms, now).await;
    }
    let (tenant_id, slot) = match &new.account {
        AccountRef::Wallet(tenant_id) => {
            let tenant_id = check_wallet(conn, tenant_id, new.amount, terms).await?;
            check_age(new, terms, now)?;
            (tenant_id, None)
        }
        AccountRef::Order(order_id) => {
            // The order's lock makes "is it busy" and "now it is" one step. The answer is read after it.
            let order = order::lock(conn, order_id).await?.ok_or(Error::Refused(Refusal::UnknownOrder))?;
            if let Some(payment) = store::lock(conn, &new.key).await? {
                return created_before(conn, payment, new, terms, now).await;
            }
            let standing = store::lock_latest_of_order(conn, order_id, new.key.mode).await?;
            let standing = free_if_expired(conn, standing, terms, now).await?;
            check_not_closed(conn, &order.tenant_id).await?;
            order::check_payable(&order, standing.as_ref(), terms, now).map_err(Error::Refused)?;
            let slot = match order.slot_id {
                Some(slot_id) => Some(slot::lock_free(conn, slot_id, order_id).await?),
                None => None,
            };
            order::check_amount(&order, new.amount).map_err(Error::Refused)?;
            check_age(new, terms, now)?;
            (order.tenant_id, slot.zip(Some(order_id)))
        }
    };
    if let Some(payment) = store::insert(conn, new, &tenant_id, &terms.currency, now).await? {
        if !new.account_values.is_empty() {
            store::insert_account_values(conn, payment.payment_id, &new.account_values).await?;
        }
        if let Some((slot, order_id)) = slot {
            slot::hold(conn, &slot, order_id, &payment, terms, now).await?;
        }
        return Ok(Created::New(payment));
    }
    // The same id was inserted by another call while this one was looking; it has committed by now.
    let payment = store::lock(conn, &new.key)
        .await?
        .ok_or_else(|| Fault::new("a payment that conflicted with an insert was not there to read"))?;
    created_before(conn, payment, new, terms, now).await
}

async fn created_before(
    conn: &mut PgConnection,
    payment: Payment,
    new: &NewPayment,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<Created> {
    match payment.state {
        State::Performed { .. } | State::Cancelled { .. } | State::Refunded { .. } => {
            Err(Error::Refused(Refusal::WrongState(payment.state)))
        }
        // Whatever it is asked with: its time is over.
        State::Created if payment.is_expired(terms.lifetime, now) => {
            Ok(Created::Expired(time_out(conn, payment, terms, now).await?))
        }
        State::Created if payment.amount != new.amount => Err(Error::Refused(Refusal::Differs { field: "amount" })),
        State::Created if !payment.is_for(&new.account) => Err(Error::Refused(Refusal::Differs { field: "account" })),
        State::Created => Ok(Created::Already(payment)),
    }
}

/// Credits a payment exactly once (P1).
///
/// # Errors
/// [`Refusal`]; nothing is written then.
pub async fn perform(
    conn: &mut PgConnection,
    key: &PaymentKey,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<Performed> {
    let payment = store::lock(conn, key).await?.ok_or(Error::Refused(Refusal::UnknownPayment))?;
    match payment.state {
        State::Performed { .. } => Ok(Performed::Already(payment)),
        State::Cancelled { .. } | State::Refunded { .. } => Err(Error::Refused(Refusal::WrongState(payment.state))),
        State::Created if payment.is_expired(terms.lifetime, now) => {
            Ok(Performed::Expired(time_out(conn, payment, terms, now).await?))
        }
        State::Created => {
            let performed_at = payment.not_before_own_times(now);
            match payment.mode {
                Mode::Live => {
                    let booked = match slot::book(conn, &payment).await? {
                        slot::Outcome::NoSlot => None,
                        slot::Outcome::Booked(booked) => Some(booked),
                        // Its hold ran out by the database's clock; by ours it was about to.
                        slot::Outcome::Over => {
                            return Ok(Performed::Expired(time_out(conn, payment, terms, now).await?));
                        }
                    };
                    top_up(conn, &payment, key, booked.as_ref(), terms, performed_at).await?;
                }
                Mode::Test => {}
            }
            store::set_performed(conn, payment.payment_id, performed_at).await?;
            Ok(Performed::New(Payment { state: State::Performed { performed_at }, ..payment }))
        }
    }
}

/// Cancels a promise, or takes a performed payment back while its money is still there (P3).
///
/// # Errors
/// [`Refusal`]; nothing is written then.
pub async fn cancel(
    conn: &mut PgConnection,
    key: &PaymentKey,
    reason: i64,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<Cancelled> {
    let payment = store::lock(conn, key).await?.ok_or(Error::Refused(Refusal::UnknownPayment))?;
    let cancelled_at = payment.not_before_own_times(now);
    match payment.state {
        State::Cancelled { .. } | State::Refunded { .. } => Ok(Cancelled::Already(payment)),
        State::Created => {
            store::set_cancelled(conn, payment.payment_id, cancelled_at, reason).await?;
            slot::release(conn, &payment).await?;
            Ok(Cancelled::New(Payment { state: State::Cancelled { cancelled_at, reason }, ..payment }))
        }
        State::Performed { performed_at } => {
            match payment.mode {
                Mode::Live if slot::spent_on(conn, &payment).await? != slot::SpentOn::Nothing => {
                    return Err(Error::Refused(Refusal::MoneySpent {
                        available: MinorUnits::ZERO,
                        needed: payment.amount,
                    }));
                }
                Mode::Live => take_back(conn, &payment, key, terms, reason, cancelled_at).await?,
                Mode::Test => {}
            }
            store::set_cancelled(conn, payment.payment_id, cancelled_at, reason).await?;
            Ok(Cancelled::New(Payment { state: State::Refunded { performed_at, cancelled_at, reason }, ..payment }))
        }
    }
}

/// A payment as it stands. Reads only.
///
/// # Errors
/// [`Refusal::UnknownPayment`].
pub async fn find(conn: &mut PgConnection, key: &PaymentKey) -> Result<Payment> {
    store::find(conn, key).await?.ok_or(Error::Refused(Refusal::UnknownPayment))
}

/// Payments by the provider's own time, both ends included, in that time's order.
///
/// # Errors
/// A fault.
pub async fn list(
    conn: &mut PgConnection,
    provider: &'static str,
    mode: Mode,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<Vec<Payment>> {
    Ok(store::list(conn, provider, mode, from, to).await?)
}

/// Keeps a tax receipt; the first one of each kind stays. `false` when there is no such payment.
///
/// # Errors
/// A fault.
pub async fn keep_fiscal_receipt(
    conn: &mut PgConnection,
    key: &PaymentKey,
    kind: FiscalKind,
    receipt: &str,
    now: DateTime<Utc>,
) -> Result<bool> {
    Ok(store::insert_fiscal_receipt(conn, key, kind, receipt, now).await?)
}

/// Times out the promises of a provider that nobody came back for, each in a transaction of its own: the row
/// is locked and looked at again, since a Perform may have come first. Returns how many were timed out.
///
/// # Errors
/// A fault; what was timed out before it stays timed out.
pub async fn sweep_expired(
    db: &Database,
    clock: &Clock,
    provider: &'static str,
    terms: &Terms,
) -> std::result::Result<u64, Fault> {
    let mut swept: u64 = 0;
    let mut after = 0;
    loop {
        let mut conn = db.pool().acquire().await?;
        let before = clock.now_ms().checked_sub_signed(terms.lifetime).unwrap_or(DateTime::UNIX_EPOCH);
        let ids = store::list_open_before(&mut conn, provider, before, after).await?;
        drop(conn);
        let Some(&last) = ids.last() else { return Ok(swept) };
        after = last;
        for payment_id in ids {
            let timed_out = db
                .run("payment_time_out", |conn| {
                    async move {
                        let now = clock.now_ms();
                        match store::lock_by_id(conn, payment_id).await? {
                            Some(payment)
                                if payment.state == State::Created && payment.is_expired(terms.lifetime, now) =>
                            {
                                time_out(conn, payment, terms, now).await?;
                                Ok::<_, Error<Refusal>>(1)
                            }
                            _ => Ok(0),
                        }
                    }
                    .scope_boxed()
                })
                .await;
            match timed_out {
                Ok(count) => swept = swept.saturating_add(count),
                Err(Error::Fault(fault)) => return Err(fault),
                Err(Error::Refused(refusal)) => {
                    return Err(Fault::new("timing out a payment was refused").because(refusal));
                }
            }
        }
    }
}

async fn check_wallet(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    amount: MinorUnits,
    terms: &Terms,
) -> Result<TenantId> {
    check_not_closed(conn, tenant_id).await?;
    if amount < terms.top_up_min || amount > terms.top_up_max {
        return Err(Error::Refused(Refusal::WrongAmount {
            least: terms.top_up_min,
            most: terms.top_up_max,
            given: amount,
        }));
    }
    Ok(tenant_id.clone())
}

/// Whoever is gone takes no money any more, for whatever it is.
async fn check_not_closed(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<()> {
    match store::tenant_status(conn, tenant_id).await?.as_deref() {
        None => Err(Error::Refused(Refusal::UnknownTenant)),
        Some("closed") => Err(Error::Refused(Refusal::WalletClosed(tenant_id.clone()))),
        Some(_) => Ok(()),
    }
}

fn check_age(new: &NewPayment, terms: &Terms, now: DateTime<Utc>) -> Result<()> {
    if now.signed_duration_since(new.external_created_at) > terms.lifetime {
        return Err(Error::Refused(Refusal::TooOld));
    }
    if new.external_created_at.signed_duration_since(now) > AHEAD_MAX {
        return Err(Error::Refused(Refusal::FromTheFuture));
    }
    Ok(())
}

/// A promise on an order that nobody kept is timed out before the next one looks at the order.
async fn free_if_expired(
    conn: &mut PgConnection,
    standing: Option<Payment>,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<Option<Payment>> {
    match standing {
        Some(payment) if payment.state == State::Created && payment.is_expired(terms.lifetime, now) => {
            Ok(Some(time_out(conn, payment, terms, now).await?))
        }
        standing => Ok(standing),
    }
}

async fn time_out(conn: &mut PgConnection, payment: Payment, terms: &Terms, now: DateTime<Utc>) -> Result<Payment> {
    let cancelled_at = payment.not_before_own_times(now);
    let reason = terms.timeout_reason;
    store::set_cancelled(conn, payment.payment_id, cancelled_at, reason).await?;
    slot::release(conn, &payment).await?;
    Ok(Payment { state: State::Cancelled { cancelled_at, reason }, ..payment })
}

/// `payme:<id>`: the provider's name keeps the ids of two providers apart.
pub(super) fn reference(key: &PaymentKey) -> std::result::Result<Reference, Fault> {
    Reference::parse(format!("{}:{}", key.provider, key.external_id))
        .map_err(|error| Fault::new("a payment's reference breaks its rule").because(error))
}

pub(super) fn entry(
    payment: &Payment,
    key: &PaymentKey,
    kind: Kind,
    amount: MinorUnits,
) -> std::result::Result<Entry, Fault> {
    let mut about = serde_json::Map::new();
    about.insert("payment_id".to_owned(), payment.payment_id.to_string().into());
    if let Some(order_id) = &payment.order_id {
        about.insert("order_id".to_owned(), order_id.as_str().into());
    }
    let metadata = Metadata::from_object(&about)
        .map_err(|error| Fault::new("a payment's metadata breaks its rule").because(error))?;
    Ok(Entry {
        tenant_id: payment.tenant_id.clone(),
        currency: payment.currency.clone(),
        kind,
        amount,
        pocket: Pocket::main(),
        reference: reference(key)?,
        original_seq: None,
        reason: None,
        metadata,
        floor: Floor::Zero,
    })
}

pub(super) fn event(payment: &Payment, key: &PaymentKey, kind: EventKind) -> Event {
    Event {
        tenant_id: payment.tenant_id.clone(),
        kind,
        about: serde_json::json!({
            "payment_id": payment.payment_id.to_string(),
            "provider": key.provider,
            "external_id": key.external_id.as_str(),
            "order_id": payment.order_id.as_ref().map(OrderId::as_str),
            "amount_minor_units": payment.amount.get(),
            "currency": payment.currency.as_str(),
        }),
    }
}

async fn top_up(
    conn: &mut PgConnection,
    payment: &Payment,
    key: &PaymentKey,
    booked: Option<&Booked>,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Result<()> {
    let entry = entry(payment, key, Kind::TopUp, payment.amount)?;
    let spent = booked.map(|booked| slot::spending(payment, booked)).transpose()?;
    let entries: Vec<Entry> = [entry.clone()].into_iter().chain(spent.clone()).collect();
    let mut events = vec![event(payment, key, EventKind::PaymentPerformed)];
    events.extend(booked.map(|booked| slot::confirmed(payment, booked)));
    match funding::post(conn, &entries, events.clone(), &terms.actor, now).await {
        Ok(_) => Ok(()),
        // The row is there without the payment's state: somebody booked it by another path, an import for
        // example. It is the same event, so it isn't booked again; that the payment is performed is news all the same.
        Err(Error::Refused(ledger::Refusal::AlreadyBooked { index: 0, seq, .. })) => {
            let booked = ledger::find(conn, &entry.tenant_id, &entry.currency, &entry.kind, &entry.reference).await?;
            let (_, booked) = booked.ok_or_else(|| Fault::new("a row that is booked already was not there to read"))?;
            let otherwise = || {
                Error::Refused(Refusal::BookedOtherwise {
                    tenant_id: entry.tenant_id.clone(),
                    reference: entry.reference.clone(),
                    seq,
                    booked,
                    amount: payment.amount,
                })
            };
            if booked != payment.amount {
                return Err(otherwise());
            }
            match spent {
                // That money may have been spent since, so it pays for the slot like any other.
                Some(spent) => {
                    let spent = Entry { floor: Floor::Zero, ..spent };
                    match funding::post(conn, &[spent], events, &terms.actor, now).await {
                        Ok(_) => Ok(()),
                        Err(Error::Refused(ledger::Refusal::InsufficientFunds { .. })) => Err(otherwise()),
                        Err(error) => Err(error.widen()),
                    }
                }
                None => Ok(outbox::write(conn, &events, now).await?),
            }
        }
        Err(error) => Err(error.widen()),
    }
}

async fn take_back(
    conn: &mut PgConnection,
    payment: &Payment,
    key: &PaymentKey,
    terms: &Terms,
    reason: i64,
    now: DateTime<Utc>,
) -> Result<()> {
    let (seq, amount) = ledger::find(conn, &payment.tenant_id, &payment.currency, &Kind::TopUp, &reference(key)?)
        .await?
        .ok_or_else(|| Fault::new("a performed payment has no top-up row"))?;
    let back = amount.checked_neg().ok_or_else(|| Fault::new("a top-up's amount has no opposite"))?;
    let mut entry = entry(payment, key, Kind::TopUpReversal, back)?;
    entry.original_seq = Some(seq);
    entry.reason = crate::ids::Reason::parse(format!("cancelled by the provider, reason {reason}")).ok();
    let events = vec![event(payment, key, EventKind::PaymentReversed)];
    match funding::post(conn, std::slice::from_ref(&entry), events, &terms.actor, now).await {
        Ok(_) => Ok(()),
        Err(Error::Refused(ledger::Refusal::InsufficientFunds { available, needed, .. })) => {
            Err(Error::Refused(Refusal::MoneySpent { available, needed }))
        }
        Err(error) => Err(error.widen()),
    }
}
