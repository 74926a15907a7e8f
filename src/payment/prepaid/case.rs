//! What a person has to look at, with why, and what they decided.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

pub use super::store::Case;
use super::{refund, store};
use crate::fault::{Error, Fault, Widen as _};
use crate::funding;
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata};
use crate::money::MinorUnits;
use crate::payment::{Payment, Refusal, State, store as payments};

/// How the references of rows begin that move money which a person has kept.
pub const CASE_REFERENCE_PREFIX: &str = ledger::CASE_TRANSFER;

/// What kind of thing is odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseKind {
    /// Money came that fits no order, or not its order.
    Mismatch,
    /// Money came in another currency than the provider's book.
    ForeignCurrency,
    /// The provider refused to give a payment back.
    RefundFailed,
    /// We were never told of a payment and found it in the provider's list.
    LostPayment,
    /// A payment went back and nobody had asked for it.
    UnaskedRefund,
    /// The provider says that we owe it.
    NegativeBalance,
    /// What the provider sent about a payment can't be read.
    UnreadUpdate,
    /// A line of the provider's list can't be read.
    UnreadLine,
}

impl CaseKind {
    /// The column's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mismatch => "mismatch",
            Self::ForeignCurrency => "foreign_currency",
            Self::RefundFailed => "refund_failed",
            Self::LostPayment => "lost_payment",
            Self::UnaskedRefund => "unasked_refund",
            Self::NegativeBalance => "negative_balance",
            Self::UnreadUpdate => "unread_update",
            Self::UnreadLine => "unread_line",
        }
    }

    /// Whether the same thing may become a case again once somebody has closed the first: a state that comes back,
    /// not something that happened.
    const fn may_come_again(self) -> bool {
        match self {
            Self::NegativeBalance | Self::RefundFailed => true,
            Self::Mismatch
            | Self::ForeignCurrency
            | Self::LostPayment
            | Self::UnaskedRefund
            | Self::UnreadUpdate
            | Self::UnreadLine => false,
        }
    }
}

/// A case to be opened.
#[derive(Debug, Clone)]
pub struct NewCase {
    /// Whose money.
    pub provider: &'static str,
    /// What is odd.
    pub kind: CaseKind,
    /// What it is about, in the provider's own ids.
    pub subject: String,
    /// The payment.
    pub payment_id: Option<i64>,
    /// What happened, and what somebody may do about it.
    pub why: String,
}

/// What a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The money goes back to its payer.
    Refund,
    /// It stays, in this tenant's wallet; in the one it is in when none.
    Keep(Option<TenantId>),
    /// Nothing has to be moved here.
    Close,
}

impl Resolution {
    /// The column's text.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Refund => "refund",
            Self::Keep(_) => "keep",
            Self::Close => "closed",
        }
    }
}

/// Why a case can't be resolved like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseRefusal {
    /// No such case.
    #[error("there is no case {0}")]
    UnknownCase(i64),
    /// Somebody was first.
    #[error("case {case_id} was resolved by {resolved_by} already")]
    Resolved {
        /// The case.
        case_id: i64,
        /// By whom.
        resolved_by: String,
    },
    /// There is no money of it that waits.
    #[error("case {0} has no money that waits: it can only be closed")]
    NoMoney(i64),
    /// Its money waits, so somebody has to say where it goes.
    #[error("the money of case {0} waits: refund it or keep it")]
    MoneyWaits(i64),
    /// The ledger says no.
    #[error(transparent)]
    Payment(#[from] Refusal),
}

impl From<crate::ledger::Refusal> for CaseRefusal {
    fn from(refusal: crate::ledger::Refusal) -> Self {
        Self::Payment(Refusal::Ledger(refusal))
    }
}

/// Opens a case, unless the same is one already. Says whether it is new.
///
/// # Errors
/// A fault.
pub async fn open(conn: &mut PgConnection, new: &NewCase, now: DateTime<Utc>) -> Result<bool, Fault> {
    let opened = store::insert_case(conn, new, new.kind.may_come_again(), now).await?;
    if opened {
        let (kind, subject) = (new.kind.as_str(), &new.subject);
        metrics::counter!("hamyon_payment_cases_total", "provider" => new.provider, "kind" => kind).increment(1);
        tracing::error!(kind, subject, "a payment needs a person ({kind}, {subject}): {}", new.why);
    }
    Ok(opened)
}

/// Closes what is open about a payment's refund that has come to pass after all.
pub(super) async fn close_of_payment(
    conn: &mut PgConnection,
    payment_id: i64,
    note: &str,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    store::close_cases_of_payment(conn, payment_id, "job:telegram", note, now).await
}

/// The cases, the newest first; only those that nobody has resolved when `open`.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection, open: bool, before: Option<i64>, limit: i64) -> Result<Vec<Case>, Fault> {
    store::list_cases(conn, open, before, limit).await
}

/// Which of these cases have money that waits for somebody to say where it goes.
///
/// # Errors
/// A fault.
pub async fn with_money(conn: &mut PgConnection, cases: &[Case]) -> Result<Vec<i64>, Fault> {
    store::cases_with_money(conn, &cases.iter().map(|case| case.case_id).collect::<Vec<_>>()).await
}

/// A case.
///
/// # Errors
/// A fault.
pub async fn find(conn: &mut PgConnection, case_id: i64) -> Result<Option<Case>, Fault> {
    store::find_case(conn, case_id).await
}

/// Does what a person decided about a case.
///
/// # Errors
/// [`CaseRefusal`]; nothing is written then.
pub async fn resolve(
    conn: &mut PgConnection,
    case_id: i64,
    resolution: &Resolution,
    note: Option<&Reason>,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<Case, Error<CaseRefusal>> {
    let unknown = || Error::Refused(CaseRefusal::UnknownCase(case_id));
    // The payment comes before its case, as everywhere; the case is looked at again behind both locks.
    let found = store::find_case(conn, case_id).await?.ok_or_else(unknown)?;
    let payment = match found.payment_id {
        Some(payment_id) => payments::lock_by_id(conn, payment_id).await?,
        None => None,
    };
    let found = store::lock_case(conn, case_id).await?.ok_or_else(unknown)?;
    if let Some(resolved_by) = found.resolved_by {
        return Err(Error::Refused(CaseRefusal::Resolved { case_id, resolved_by }));
    }
    let waiting = match payment {
        Some(payment) if money_waits(conn, &found.kind, &payment).await? => Some(payment),
        _ => None,
    };
    match (resolution, waiting) {
        (Resolution::Close, None) => {}
        (Resolution::Close, Some(_)) => return Err(Error::Refused(CaseRefusal::MoneyWaits(case_id))),
        (Resolution::Refund | Resolution::Keep(_), None) => {
            return Err(Error::Refused(CaseRefusal::NoMoney(case_id)));
        }
        (Resolution::Refund, Some(payment)) => {
            let why = format!("case {case_id}");
            refund::ask(conn, payment.payment_id, &why, actor.as_str(), now).await?;
        }
        (Resolution::Keep(tenant_id), Some(payment)) => {
            let to = tenant_id.as_ref().unwrap_or(&payment.tenant_id);
            let entries = moved(case_id, &payment, to)?;
            funding::post(conn, &entries, Vec::new(), actor, now).await.widen()?;
        }
    }
    store::resolve_case(conn, case_id, resolution, actor.as_str(), note.map(Reason::as_str), now).await?;
    store::find_case(conn, case_id).await?.ok_or_else(unknown)
}

/// Whether the money of a case is set aside and nobody is giving it back.
async fn money_waits(conn: &mut PgConnection, kind: &str, payment: &Payment) -> Result<bool, Fault> {
    let about_money = kind == CaseKind::Mismatch.as_str() || kind == CaseKind::RefundFailed.as_str();
    let here = match payment.state {
        State::Performed { .. } => true,
        State::Created | State::Cancelled { .. } | State::Refunded { .. } => false,
    };
    Ok(about_money && here && !store::refund_is_open(conn, payment.payment_id).await?)
}

/// The reference of a row that moves what a case is about.
pub(super) fn reference(case_id: i64, end: &str) -> Result<Reference, Fault> {
    Reference::parse(format!("{CASE_REFERENCE_PREFIX}{case_id}:{end}"))
        .map_err(|error| Fault::new("a case's reference breaks its rule").because(error))
}

/// From where it was set aside to where a tenant can spend it.
fn moved(case_id: i64, payment: &Payment, to: &TenantId) -> Result<Vec<Entry>, Fault> {
    let broken = |error| Fault::new("a case's row breaks a rule").because(error);
    let back = payment.amount.checked_neg().ok_or_else(|| Fault::new("a payment's amount has no opposite"))?;
    let entry = |tenant_id: &TenantId, amount: MinorUnits, pocket: Pocket, end: &str| {
        Ok::<_, Fault>(Entry {
            tenant_id: tenant_id.clone(),
            currency: payment.currency.clone(),
            kind: Kind::Adjustment,
            amount,
            pocket,
            reference: reference(case_id, end)?,
            original_seq: None,
            reason: Some(Reason::parse("a person decided that the money stays").map_err(broken)?),
            metadata: Metadata::empty(),
            floor: Floor::Zero,
        })
    };
    Ok(vec![
        entry(&payment.tenant_id, back, Pocket::set_aside(), "out")?,
        entry(to, payment.amount, Pocket::main(), "in")?,
    ])
}
