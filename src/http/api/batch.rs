//! Postings, all or none.

use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ProblemDocument, Transaction};
use crate::allowance;
use crate::app::App;
use crate::batch::{self, Batch};
use crate::fault::Fault;
use crate::fee;
use crate::http::error::Problem;
use crate::http::extract::{Caller, IdempotencyKey, Json, LedgerPost, NoParameters, Query};
use crate::idempotency::Claim;
use crate::ids::{Pocket, Reason, Reference, TenantId};
use crate::ledger::{Entry, Floor, Kind, Metadata, PostedRow};
use crate::money::Currency;
use crate::payment;
use crate::payment::prepaid::GIVE_BACK_REFERENCE_PREFIX;
use crate::payment::prepaid::case::CASE_REFERENCE_PREFIX;
use crate::pocket;
use crate::support;

/// The most postings of one batch.
const ITEMS_MAX: usize = 5_000;

/// A batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchBody {
    /// 1 to 5,000 postings, booked in this order.
    pub transactions: Vec<PostingBody>,
}

/// One posting.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostingBody {
    /// Whose wallet.
    #[schema(example = "acme")]
    pub tenant_id: String,
    /// Which of the tenant's wallets; opened with its first use.
    #[schema(example = "UZS")]
    pub currency: String,
    /// top_up, subscription_fee, refund, adjustment, or a kind of the product's own.
    #[schema(example = "purchase")]
    pub kind: String,
    /// Signed decimal text; positive is a credit.
    #[schema(example = "-15000.00")]
    pub amount: String,
    /// What is booked; unique per wallet and kind.
    #[schema(example = "invoice-2026-118")]
    pub reference: String,
    /// Why, in a sentence. An adjustment and a refund need it.
    pub reason: Option<String>,
    /// Which part of the wallet; main when left out.
    pub pocket: Option<String>,
    /// The number of the row that a refund gives back.
    pub transaction: Option<i64>,
    /// What else to remember: an object of at most 4,096 bytes.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

/// What was booked.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchResult {
    /// One row per posting, in the same order.
    pub transactions: Vec<Transaction>,
}

impl From<batch::Refusal> for Problem {
    fn from(refusal: batch::Refusal) -> Self {
        match refusal {
            batch::Refusal::Key(reused) => reused.into(),
            batch::Refusal::Ledger(refusal) => refusal.into(),
            batch::Refusal::Import(refusal) => refusal.into(),
            batch::Refusal::GoesThroughBooking { seq, .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "goes_through_booking",
                "Cancel the booking instead",
                refusal.to_string(),
            )
            .with("transaction", seq),
        }
    }
}

/// Books postings, all or none. The same key with the same body is answered the same, for ever.
#[utoipa::path(post, path = "/v1/transactions/batch", tag = "ledger", request_body = BatchBody,
    params(("Idempotency-Key" = String, Header, description = "A value of your own; the same one for a repeat")),
    responses((status = 201, body = BatchResult),
        (status = 402, description = "insufficient_funds", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 404, description = "tenant_not_found, currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "idempotency_key_reused, already_booked, twice_in_batch, original_exceeded, payment_differs",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "wrong_sign, reason_missing, original_misplaced, original_unfit, kind_not_postable",
         body = ProblemDocument, content_type = "application/problem+json")))]
pub async fn post(
    caller: Caller<LedgerPost>,
    _: Query<NoParameters>,
    IdempotencyKey(key): IdempotencyKey,
    json: Json<BatchBody>,
) -> Result<Response, Problem> {
    let (entries, currencies) = entries(&caller.app, json.body).await?;
    let claim = Claim::new(caller.client.to_string(), key, "POST /v1/transactions/batch".to_owned(), json.value);
    let actor = caller.actor();
    let render = Box::new(move |rows: &[PostedRow]| {
        let transactions =
            rows.iter().zip(&currencies).map(|(row, currency)| Transaction::new(row, currency)).collect();
        serde_json::to_string(&BatchResult { transactions })
            .map_err(|error| Fault::new("a batch's answer can't be written").because(error))
    });
    let batch = Batch { entries, claim, actor, status: StatusCode::CREATED.as_u16(), render };
    Ok(super::answered(caller.app.batches.post(batch).await?))
}

/// References that rooms of ours give: a row of somebody else under such a name would stand in the way of theirs,
/// since an event is booked once (L5).
struct Reserved {
    kinds: &'static [Kind],
    prefix: &'static str,
    by: &'static str,
}

impl Reserved {
    fn takes(&self, kind: &Kind, reference: &str) -> bool {
        self.kinds.contains(kind) && reference.starts_with(self.prefix)
    }
}

const RESERVED: [Reserved; 7] = [
    Reserved { kinds: &[Kind::SubscriptionFee], prefix: fee::REFERENCE_PREFIX, by: "the fee run" },
    Reserved {
        kinds: &[Kind::Booking, Kind::Refund],
        prefix: payment::BOOKING_REFERENCE_PREFIX,
        by: "a booking or its cancel",
    },
    Reserved { kinds: &[Kind::TopUp], prefix: "telegram:", by: "Telegram's webhook or its list" },
    Reserved {
        kinds: &[Kind::Refund, Kind::Adjustment],
        prefix: support::REFERENCE_PREFIX,
        by: "the support desk: POST /v1/tenants/{tenant_id}/refunds or /adjustments",
    },
    Reserved { kinds: &[Kind::Adjustment], prefix: CASE_REFERENCE_PREFIX, by: "the resolution of a payment's case" },
    Reserved { kinds: &[Kind::Adjustment], prefix: GIVE_BACK_REFERENCE_PREFIX, by: "a refund task" },
    Reserved {
        kinds: &[Kind::Adjustment],
        prefix: pocket::COVER_REFERENCE_PREFIX,
        by: "the pockets, which cover what work cost beyond the balance",
    },
];

/// Turns the body into entries, with the currency of each.
async fn entries(app: &App, body: BatchBody) -> Result<(Vec<Entry>, Vec<Currency>), Problem> {
    let count = body.transactions.len();
    if count == 0 || count > ITEMS_MAX {
        return Err(Problem::invalid_field(
            "transactions",
            format!("must have 1 to {ITEMS_MAX} items, and has {count}"),
        ));
    }
    let mut entries = Vec::with_capacity(count);
    let mut currencies = Vec::with_capacity(count);
    for (index, posting) in body.transactions.into_iter().enumerate() {
        let (entry, currency) = entry(app, posting, &format!("transactions[{index}]"))
            .await
            .map_err(|problem| problem.with("index", index))?;
        entries.push(entry);
        currencies.push(currency);
    }
    Ok((entries, currencies))
}

async fn entry(app: &App, posting: PostingBody, at: &str) -> Result<(Entry, Currency), Problem> {
    let name = |field: &str| format!("{at}.{field}");
    let currency = super::currency(app, &name("currency"), &posting.currency).await?;
    let kind = super::field(&name("kind"), Kind::parse(&posting.kind))?;
    if kind == Kind::TopUpReversal {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "kind_not_postable",
            "Only a provider books this kind",
            "a top-up goes back to its payer through its provider, which books the top_up_reversal",
        ));
    }
    if matches!(kind, Kind::Expiry | Kind::HoldCharge) {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "kind_not_postable",
            "Only the ledger's own rooms book this kind",
            "an expiry is booked when a pocket's time is over, and a hold_charge when a hold is settled",
        ));
    }
    if let Some(reserved) = RESERVED.iter().find(|reserved| reserved.takes(&kind, &posting.reference)) {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "kind_not_postable",
            "Only a room of the wallet's own books this reference",
            format!("a {kind} whose reference begins with {} is booked by {}", reserved.prefix, reserved.by),
        ));
    }
    let metadata = match &posting.metadata {
        None => Metadata::empty(),
        Some(object) => {
            Metadata::from_object(object).map_err(|error| Problem::invalid_field(&name("metadata"), error))?
        }
    };
    let pocket = match posting.pocket {
        None => Pocket::main(),
        Some(pocket) => super::field(&name("pocket"), Pocket::parse(pocket))?,
    };
    let amount = super::amount(&name("amount"), &posting.amount, &currency)?;
    if pocket == Pocket::set_aside() {
        return Err(Problem::invalid_field(
            &name("pocket"),
            "set-aside is for money that waits for its way back or for a person",
        ));
    }
    if allowance::is_reserved(&pocket) && amount.is_positive() {
        return Err(Problem::invalid_field(&name("pocket"), "begins with allowance:, and only allowances fill those"));
    }
    if kind == Kind::Grant && posting.reference.starts_with("allowance:") {
        return Err(Problem::invalid_field(
            &name("reference"),
            "begins with allowance:, as only allowances' grants do",
        ));
    }
    let entry = Entry {
        tenant_id: super::field(&name("tenant_id"), TenantId::parse(posting.tenant_id))?,
        currency: currency.code.clone(),
        kind,
        amount,
        pocket,
        reference: super::field(&name("reference"), Reference::parse(posting.reference))?,
        original_seq: posting.transaction,
        reason: posting.reason.map(|reason| super::field(&name("reason"), Reason::parse(reason))).transpose()?,
        metadata,
        floor: Floor::Zero,
    };
    Ok((entry, currency))
}
