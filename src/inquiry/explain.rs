//! The story of one row: which rule it stands for, what caused it, what it caused.
//!
//! Cause and effect are told apart by what names what (a due its row, an event its payment, fee or refund), never by
//! their moment: the rows of one batch share that.

use sqlx::PgConnection;

use super::store::{self, CallLine, DueLine, EventLine, EventMarks, PaymentLine};
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::ledger::{self, Kind, PostedRow};
use crate::money::{Currency, MinorUnits};
use crate::outbox::EventKind;
use crate::payment::BOOKING_REFERENCE_PREFIX;
use crate::support::{Request, RequestQuery, list_requests};

/// How many of the rows that give a row back are told one by one.
const GIVEN_BACK_TOLD: i64 = 100;

/// A row with what led to it and what came of it.
#[derive(Debug, Clone)]
pub struct Story {
    /// The row.
    pub row: PostedRow,
    /// The balance before it.
    pub before: MinorUnits,
    /// The payment that brought it.
    pub payment: Option<PaymentLine>,
    /// What the provider asked and we answered.
    pub calls: Vec<CallLine>,
    /// The due that it pays.
    pub due: Option<DueLine>,
    /// The request of the desk that it grants.
    pub request: Option<Request>,
    /// The row that it gives back.
    pub original: Option<PostedRow>,
    /// The first rows that give it back, at most 100.
    pub given_back: Vec<PostedRow>,
    /// What all of them add up to.
    pub given_back_sum: MinorUnits,
    /// How much of it can still be given back; none when it can't be at all.
    pub left: Option<MinorUnits>,
    /// The overdue dues that a credit paid.
    pub dues_paid: Vec<DueLine>,
    /// What was told about it, and to whom it got.
    pub events: Vec<EventLine>,
}

/// Tells the story of a row; none when there is no such row.
///
/// # Errors
/// A fault.
pub async fn explain(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &Currency,
    seq: i64,
) -> Result<Option<Story>, Fault> {
    let code = &currency.code;
    let Some(row) = ledger::row(conn, tenant_id, code, seq).await? else { return Ok(None) };
    let payment_id = row.metadata.to_value().get("payment_id").and_then(|id| id.as_str()?.parse::<i64>().ok());
    let payment = match payment_id {
        Some(payment_id) => store::find_payment(conn, payment_id).await?,
        None => None,
    };
    // A product writes what it likes beside its own rows.
    let payment = payment.filter(|payment| payment.tenant_id == tenant_id.as_str());
    let calls = match &payment {
        Some(payment) => store::calls_of(conn, &payment.provider, &payment.external_id).await?,
        None => Vec::new(),
    };
    let query = RequestQuery {
        tenant_id: Some(tenant_id.clone()),
        posted: Some((code.clone(), seq)),
        limit: 1,
        ..RequestQuery::default()
    };
    let request = list_requests(conn, &query).await?.pop();
    let original = match row.original_seq {
        Some(original) => ledger::row(conn, tenant_id, code, original).await?,
        None => None,
    };
    let mut given_back = Vec::new();
    for given in store::seqs_giving_back(conn, row.wallet_id, seq, GIVEN_BACK_TOLD).await? {
        given_back.extend(ledger::row(conn, tenant_id, code, given).await?);
    }
    let refundable = ledger::can_be_refunded(&row.kind, row.amount, &row.reference);
    let given_back_sum = ledger::given_back(conn, tenant_id, code, seq).await?;
    let left = if refundable { row.amount.checked_add(given_back_sum).and_then(MinorUnits::checked_neg) } else { None };
    let due = match row.kind {
        Kind::SubscriptionFee => store::due_of_row(conn, tenant_id, code, seq).await?,
        _ => None,
    };
    let dues_paid = if row.amount.is_positive() { store::dues_paid_by(conn, &row).await? } else { Vec::new() };
    let restored_at = dues_paid.first().and_then(|due| due.charged_at);
    let events = store::events_about(conn, tenant_id, row.recorded_at, &marks(&row, due.as_ref()), restored_at).await?;
    Ok(Some(Story {
        before: row.balance_after.checked_sub(row.amount).unwrap_or_default(),
        due,
        dues_paid,
        events,
        row,
        payment,
        calls,
        request,
        original,
        given_back,
        given_back_sum,
        left,
    }))
}

/// What the body of an event has in it that is about this row.
fn marks(row: &PostedRow, due: Option<&DueLine>) -> EventMarks {
    let about = row.metadata.to_value();
    let named = |name: &str| about.get(name).map(|value| format!("\"{name}\":{value}"));
    let number = |name: &str, value: i64| vec![format!("\"{name}\":{value},"), format!("\"{name}\":{value}}}")];
    let of = |kinds: &[EventKind], marks: Vec<String>, and: Option<String>| EventMarks {
        kinds: kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
        marks,
        and,
    };
    let booking = row.reference.as_str().strip_prefix(BOOKING_REFERENCE_PREFIX).and_then(|id| id.parse::<i64>().ok());
    let currency = format!("\"currency\":\"{}\"", row.currency);
    match &row.kind {
        Kind::TopUp => {
            let kinds = [EventKind::PaymentPerformed, EventKind::PaymentRefundDue];
            of(&kinds, named("payment_id").into_iter().collect(), None)
        }
        Kind::TopUpReversal => of(&[EventKind::PaymentReversed], named("payment_id").into_iter().collect(), None),
        Kind::SubscriptionFee => due.map_or_else(EventMarks::default, |due| {
            let month = format!("\"month\":\"{}\"", due.month.format("%Y-%m"));
            of(&[EventKind::FeeCharged], number("subscription_id", due.subscription_id), Some(month))
        }),
        Kind::Booking => booking.map_or_else(EventMarks::default, |booking_id| {
            of(&[EventKind::BookingConfirmed], number("booking_id", booking_id), None)
        }),
        Kind::Refund => {
            let mut marks = number("transaction", row.seq);
            let mut kinds = vec![EventKind::RefundPosted];
            if let Some(booking_id) = booking {
                kinds.push(EventKind::BookingCancelled);
                marks.extend(number("booking_id", booking_id));
            }
            of(&kinds, marks, Some(currency))
        }
        Kind::HoldCharge => {
            of(&[EventKind::HoldSettled, EventKind::HoldExpired], named("hold_id").into_iter().collect(), None)
        }
        Kind::Adjustment | Kind::Grant | Kind::Expiry | Kind::Custom(_) => EventMarks::default(),
    }
}
