//! A person decides that money which is in the wallet goes back to its payer.
//!
//! Until the provider has given it back it waits in the pocket `set-aside`, so that nobody spends it meanwhile.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::refund::{self, RefundTask};
use super::store;
use crate::fault::{Error, Fault, Widen as _};
use crate::funding;
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata};
use crate::money::MinorUnits;
use crate::payment::slot::{self, SpentOn};
use crate::payment::{Payment, State, store as payments};

/// How the references of rows begin that set money aside for its way back.
pub const GIVE_BACK_REFERENCE_PREFIX: &str = ledger::REFUND_TASK_TRANSFER;

/// Why money can't be given back like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GiveBackRefusal {
    /// No such payment.
    #[error("there is no payment {0}")]
    UnknownPayment(i64),
    /// Its provider takes money back only by itself.
    #[error("payment {0} goes back only by its provider's own cancel")]
    OtherWay(i64),
    /// It isn't here any more.
    #[error("payment {0} has gone back to its payer already")]
    Gone(i64),
    /// Somebody has asked for it.
    #[error("payment {0} is on its way back already")]
    Asked(i64),
    /// A person has to decide about it, in its case.
    #[error("the money of payment {0} is set aside and its case is open: resolve that")]
    CaseOpen(i64),
    /// It bought a slot.
    #[error("payment {0} bought a slot: cancel the booking, and its money goes back with it")]
    BoughtSlot(i64),
    /// It bought a slot, and its booking was cancelled without giving it back.
    #[error(
        "payment {0} bought a slot whose booking was cancelled, and its money stays spent: refund the booking's row \
         into the wallet first"
    )]
    StaysSpent(i64),
    /// A person gave it to somebody else.
    #[error("a person has put the money of payment {payment_id} into another wallet than that of {tenant_id}")]
    KeptElsewhere {
        /// Which payment.
        payment_id: i64,
        /// Whose wallet it came into.
        tenant_id: TenantId,
    },
    /// The ledger says no: the money was spent.
    #[error(transparent)]
    Ledger(#[from] ledger::Refusal),
}

/// Sets a payment's money aside and writes the task that gives it back (S1, B5).
///
/// # Errors
/// [`GiveBackRefusal`]; nothing is written then.
pub async fn give_back(
    conn: &mut PgConnection,
    payment_id: i64,
    reason: &Reason,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<RefundTask, Error<GiveBackRefusal>> {
    let Some(payment) = payments::lock_by_id(conn, payment_id).await? else {
        return Err(Error::Refused(GiveBackRefusal::UnknownPayment(payment_id)));
    };
    check(conn, &payment).await?;
    let task_id = refund::ask(conn, payment_id, reason.as_str(), actor.as_str(), now)
        .await?
        .ok_or_else(|| Fault::new("a payment that nobody was giving back had an open task"))?;
    funding::post(conn, &set_aside(&payment, task_id, reason)?, Vec::new(), actor, now).await.widen()?;
    refund::find(conn, task_id).await?.ok_or_else(|| Fault::new("a new refund task was not there to read").into())
}

/// Whether a payment may be given back, but for whether there is enough money. Reads only; what is decided by it is
/// decided behind the payment's lock.
///
/// # Errors
/// The refusal that [`give_back`] would meet.
pub(in crate::payment) async fn check(
    conn: &mut PgConnection,
    payment: &Payment,
) -> Result<(), Error<GiveBackRefusal>> {
    let payment_id = payment.payment_id;
    let refused = |refusal| Err(Error::Refused(refusal));
    let Some(received) = store::find_receipt(conn, payment_id).await? else {
        return refused(GiveBackRefusal::OtherWay(payment_id));
    };
    match payment.state {
        State::Performed { .. } => {}
        State::Created | State::Cancelled { .. } | State::Refunded { .. } => {
            return refused(GiveBackRefusal::Gone(payment_id));
        }
    }
    let giving_back = store::giving_back(conn, payment_id).await?;
    if giving_back.standing {
        return refused(GiveBackRefusal::Asked(payment_id));
    }
    if giving_back.is_set_aside(Some(received)) {
        return refused(GiveBackRefusal::CaseOpen(payment_id));
    }
    match slot::spent_on(conn, payment).await? {
        SpentOn::Nothing => {}
        // It couldn't go back, and a person kept it: it is money of the wallet, which may go back after all.
        SpentOn::BookingGivenBack if giving_back.kept_by_case.is_some() => {}
        SpentOn::Booking | SpentOn::BookingGivenBack => return refused(GiveBackRefusal::BoughtSlot(payment_id)),
        SpentOn::CancelledBooking => return refused(GiveBackRefusal::StaysSpent(payment_id)),
    }
    if let Some(case_id) = giving_back.kept_by_case {
        let reference = super::case::reference(case_id, "in")?;
        let (tenant_id, currency) = (&payment.tenant_id, &payment.currency);
        if ledger::find(conn, tenant_id, currency, &Kind::Adjustment, &reference).await?.is_none() {
            return refused(GiveBackRefusal::KeptElsewhere { payment_id, tenant_id: payment.tenant_id.clone() });
        }
    }
    Ok(())
}

/// From where a tenant can spend it to where it waits.
fn set_aside(payment: &Payment, task_id: i64, reason: &Reason) -> Result<Vec<Entry>, Fault> {
    let out = payment.amount.checked_neg().ok_or_else(|| Fault::new("a payment's amount has no opposite"))?;
    let entry = |amount: MinorUnits, pocket: Pocket, end: &str| {
        Ok::<_, Fault>(Entry {
            tenant_id: payment.tenant_id.clone(),
            currency: payment.currency.clone(),
            kind: Kind::Adjustment,
            amount,
            pocket,
            reference: Reference::parse(format!("{GIVE_BACK_REFERENCE_PREFIX}{task_id}:{end}"))
                .map_err(|error| Fault::new("a refund task's row breaks a rule").because(error))?,
            original_seq: None,
            reason: Some(reason.clone()),
            metadata: Metadata::empty(),
            floor: Floor::Zero,
        })
    };
    Ok(vec![entry(out, Pocket::main(), "out")?, entry(payment.amount, Pocket::set_aside(), "in")?])
}
