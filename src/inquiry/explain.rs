//! The story of one row: which rule it stands for, what caused it, what it caused.

use sqlx::PgConnection;

use super::store::{self, CallLine, DueLine, EventLine, PaymentLine};
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::ledger::{self, PostedRow};
use crate::money::{Currency, MinorUnits};
use crate::support::{Request, RequestQuery, list_requests};

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
    /// The rows that give it back.
    pub given_back: Vec<PostedRow>,
    /// How much of it can still be given back; none when it can't be at all.
    pub left: Option<MinorUnits>,
    /// Other dues that were paid in the same moment, for a credit.
    pub dues_paid: Vec<DueLine>,
    /// What was told in the same moment, and to whom it got.
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
        Some(payment_id) => store::find_payment(conn, tenant_id, payment_id).await?,
        None => None,
    };
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
    for given in store::seqs_giving_back(conn, row.wallet_id, seq).await? {
        given_back.extend(ledger::row(conn, tenant_id, code, given).await?);
    }
    let left = if ledger::can_be_refunded(&row.kind, row.amount, &row.reference) {
        let back = MinorUnits::sum(given_back.iter().map(|row| row.amount))?;
        row.amount.checked_add(back).and_then(MinorUnits::checked_neg)
    } else {
        None
    };
    let dues = store::dues_charged_at(conn, tenant_id, row.recorded_at).await?;
    let (own, others): (Vec<DueLine>, Vec<DueLine>) =
        dues.into_iter().partition(|due| due.charged_seq == Some(seq) && due.currency == code.as_str());
    Ok(Some(Story {
        before: row.balance_after.checked_sub(row.amount).unwrap_or_default(),
        due: own.into_iter().next(),
        dues_paid: if row.amount.is_positive() { others } else { Vec::new() },
        events: store::events_at(conn, tenant_id, row.recorded_at).await?,
        row,
        payment,
        calls,
        request,
        original,
        given_back,
        left,
    }))
}
