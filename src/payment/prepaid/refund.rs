//! Money that goes back to its payer through the provider (B5).
//!
//! A task is written with the decision that needs it. After that commit a worker claims it and commits, calls the
//! provider with no transaction open, and records what came of it. What it can't know (a time-out, a server's
//! error, a claim whose worker died) is *checking*: the provider's own list is read past that moment before it
//! calls again. The row of the ledger and the word "refunded" come with the confirmation, whoever brings it first:
//! the answer, the list, or the provider by itself.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::case::{self, CaseKind, NewCase};
use super::state::GivingBack;
use super::store;
pub use super::store::{ClaimedRefund, RefundTask};
use crate::fault::{Error, Fault, Widen as _};
use crate::funding;
use crate::ids::{Actor, Pocket, Reason};
use crate::ledger::{self, Floor, Kind};
use crate::money::MinorUnits;
use crate::outbox::EventKind;
use crate::payment::{Payment, PaymentKey, Refusal, State, service, store as payments};

/// Our own code for why a payment went back: we asked for it.
pub const REASON_ASKED: i64 = 1;

/// It went back and nobody here had asked for it.
const REASON_UNASKED: i64 = 2;

/// How long to wait after the first, second, … call whose outcome is unknown. It never ends: somebody's money is
/// with us.
const BACKOFF_SECS: [i64; 6] = [15, 60, 300, 900, 3_600, 21_600];

/// Who says that money has gone back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmedBy {
    /// The provider's answer to our call.
    Answer,
    /// An outgoing line of the provider's list.
    Statement,
    /// The provider, by itself.
    Update,
}

impl ConfirmedBy {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Statement => "statement",
            Self::Update => "update",
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    /// The money has gone back, by this call or an earlier one.
    Refunded,
    /// Nobody knows.
    Unknown(String),
    /// Nothing happened, and it may be asked for later: there were too many calls, for example.
    Later {
        /// When.
        retry_after: TimeDelta,
        /// Why.
        why: String,
    },
    /// The provider will never do it.
    Failed(String),
}

/// What came of a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refunded {
    /// Booked now.
    New,
    /// Booked before.
    Already,
    /// Not all of it, or more than it: nothing is booked, and a person looks at it.
    Differs,
    /// There is no such payment.
    Unknown,
}

/// Writes a task, in the transaction of the decision that needs it, and says its number. One that is open already is
/// enough: then there is none.
///
/// # Errors
/// A fault.
pub async fn ask(
    conn: &mut PgConnection,
    payment_id: i64,
    why: &str,
    by: &str,
    now: DateTime<Utc>,
) -> Result<Option<i64>, Fault> {
    store::insert_refund_task(conn, payment_id, why, by, now).await
}

/// Claims a task of one account at the provider, whose payments' ids begin with `prefix`. Of those that are being
/// checked, only such that the provider's list was read to its end (`list_read_at`) after the unknown call.
///
/// # Errors
/// A fault.
pub async fn claim(
    conn: &mut PgConnection,
    provider: &'static str,
    prefix: &str,
    list_read_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Option<ClaimedRefund>, Fault> {
    store::claim_refund(conn, provider, prefix, list_read_at, now, until).await
}

/// Takes the claims of workers that died: whether they called is unknown.
///
/// # Errors
/// A fault.
pub async fn give_up_dead_claims(conn: &mut PgConnection, now: DateTime<Utc>) -> Result<u64, Fault> {
    store::release_dead_claims(conn, now).await
}

/// Records what came of a call.
///
/// # Errors
/// A fault.
pub async fn record(
    conn: &mut PgConnection,
    claimed: &ClaimedRefund,
    key: &PaymentKey,
    outcome: &CallOutcome,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<(), Error<Refusal>> {
    match outcome {
        CallOutcome::Refunded => {
            confirm(conn, key, None, ConfirmedBy::Answer, actor, now).await?;
        }
        CallOutcome::Unknown(problem) => {
            let next = now.checked_add_signed(backoff(claimed.attempts)).unwrap_or(now);
            store::set_refund_unknown(conn, claimed.task_id, problem, next, now).await?;
        }
        CallOutcome::Later { retry_after, why } => {
            let next = now.checked_add_signed(*retry_after).unwrap_or(now);
            store::set_refund_later(conn, claimed.task_id, why, next).await?;
        }
        CallOutcome::Failed(why) => {
            // It may have been confirmed meanwhile, by the list or by the provider itself.
            if store::set_refund_failed(conn, claimed.task_id, why, now).await? {
                let new = NewCase {
                    provider: key.provider,
                    kind: CaseKind::RefundFailed,
                    subject: key.external_id.to_string(),
                    payment_id: Some(claimed.payment_id),
                    why: format!(
                        "The provider refused to give the payment back: {why}. The money is set aside. Have it tried \
                         again, or keep it and settle with payer {} by hand.",
                        claimed.payer
                    ),
                };
                case::open(conn, &new, now).await?;
            }
        }
    }
    Ok(())
}

fn backoff(attempts: i32) -> TimeDelta {
    let failed = usize::try_from(attempts.saturating_sub(1)).unwrap_or(0);
    let last = BACKOFF_SECS.len().saturating_sub(1);
    TimeDelta::seconds(BACKOFF_SECS.get(failed.min(last)).copied().unwrap_or(60))
}

/// Takes note that a payment has gone back: its reversal is booked, once, whoever says so first. `amount` is what they
/// say has gone; a part of a payment is none that was asked for.
///
/// # Errors
/// A refusal of the ledger, which can only be a fault of ours.
pub async fn confirm(
    conn: &mut PgConnection,
    key: &PaymentKey,
    amount: Option<MinorUnits>,
    by: ConfirmedBy,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Refunded, Error<Refusal>> {
    let Some(payment) = payments::lock(conn, key).await? else { return Ok(Refunded::Unknown) };
    if let Some(amount) = amount.filter(|amount| *amount != payment.amount) {
        note_other_amount(conn, &payment, key, amount, now).await?;
        return Ok(Refunded::Differs);
    }
    match payment.state {
        State::Refunded { .. } => {
            store::confirm_refund_task(conn, payment.payment_id, by, now).await?;
            Ok(Refunded::Already)
        }
        State::Created | State::Cancelled { .. } => Err(Error::Refused(Refusal::WrongState(payment.state))),
        State::Performed { .. } => {
            let giving_back = store::giving_back(conn, payment.payment_id).await?;
            reverse(conn, &payment, key, giving_back, actor, now).await?;
            if !store::confirm_refund_task(conn, payment.payment_id, by, now).await? {
                without_open_task(conn, &payment, key, giving_back, now).await?;
            }
            Ok(Refunded::New)
        }
    }
}

/// The book knows no part of a payment. Which of the two is true only the provider can say.
async fn note_other_amount(
    conn: &mut PgConnection,
    payment: &Payment,
    key: &PaymentKey,
    amount: MinorUnits,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let new = NewCase {
        provider: key.provider,
        kind: CaseKind::UnreadUpdate,
        subject: format!("{}:out-differs", key.external_id),
        payment_id: None,
        why: format!(
            "{} of payment {} were said to have gone back to its payer, and it is of {} {}. Nothing was booked: ask the \
             provider what has gone, and settle it by hand.",
            amount.get(),
            key.external_id,
            payment.amount.get(),
            payment.currency
        ),
    };
    case::open(conn, &new, now).await.map(|_| ())
}

/// Books that the money is gone. It is, so the row has no floor: a chargeback of money that was spent leaves a debt.
async fn reverse(
    conn: &mut PgConnection,
    payment: &Payment,
    key: &PaymentKey,
    giving_back: GivingBack,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<(), Error<Refusal>> {
    let reference = service::reference(key)?;
    let (seq, amount) = ledger::find(conn, &payment.tenant_id, &payment.currency, &Kind::TopUp, &reference)
        .await?
        .ok_or_else(|| Fault::new("a performed payment has no top-up row"))?;
    let back = amount.checked_neg().ok_or_else(|| Fault::new("a top-up's amount has no opposite"))?;
    let at = payment.not_before_own_times(now);
    let mut entry = service::entry(payment, key, Kind::TopUpReversal, back)?;
    entry.original_seq = Some(seq);
    entry.floor = Floor::None;
    let received = store::find_receipt(conn, payment.payment_id).await?;
    let asked = giving_back.is_asked();
    if giving_back.is_set_aside(received) {
        entry.pocket = Pocket::set_aside();
    }
    let why = if asked { "given back to its payer" } else { "taken back without our asking" };
    entry.reason = Reason::parse(why).ok();
    let event = service::event(payment, key, EventKind::PaymentReversed);
    funding::post(conn, &[entry], vec![event], actor, at).await.widen()?;
    let reason = if asked { REASON_ASKED } else { REASON_UNASKED };
    payments::set_cancelled(conn, payment.payment_id, at, reason).await?;
    Ok(())
}

/// A payment went back, and no task waits for it.
async fn without_open_task(
    conn: &mut PgConnection,
    payment: &Payment,
    key: &PaymentKey,
    giving_back: GivingBack,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    if giving_back.is_asked() {
        // A call that had failed for good has come to pass after all.
        return case::close_of_payment(conn, payment.payment_id, "the provider has given it back", now).await;
    }
    let new = NewCase {
        provider: key.provider,
        kind: CaseKind::UnaskedRefund,
        subject: key.external_id.to_string(),
        payment_id: Some(payment.payment_id),
        why: format!(
            "{} {} went back to their payer and nobody here had asked for it. The wallet of {} was charged. If the \
             payment bought a slot, its booking stands: cancel it, or settle with the payer.{}",
            payment.amount.get(),
            payment.currency,
            payment.tenant_id,
            if giving_back.kept_by_case.is_some() { " A person had decided that the money stays." } else { "" },
        ),
    };
    case::open(conn, &new, now).await.map(|_| ())
}

/// The tasks, the newest first; only those that aren't done when `open`.
///
/// # Errors
/// A fault.
pub async fn list(
    conn: &mut PgConnection,
    open: bool,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<RefundTask>, Fault> {
    store::list_refund_tasks(conn, open, before, limit).await
}

/// A task.
///
/// # Errors
/// A fault.
pub async fn find(conn: &mut PgConnection, task_id: i64) -> Result<Option<RefundTask>, Fault> {
    let tasks = store::list_refund_tasks(conn, false, task_id.checked_add(1), 1).await?;
    Ok(tasks.into_iter().find(|task| task.task_id == task_id))
}

/// Whether somebody is giving a payment back.
///
/// # Errors
/// A fault.
pub async fn is_on_its_way(conn: &mut PgConnection, payment_id: i64) -> Result<bool, Fault> {
    store::refund_is_open(conn, payment_id).await
}
