//! Every statement about requests.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::ids::TenantId;
use crate::ledger::Kind;
use crate::money::{Currency, CurrencyCode, Exponent, MinorUnits};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Posted at once.
    WithinLimit,
    /// Posted by the approval.
    Approved,
    /// Never posted.
    Rejected,
    /// Taken back by who asked; never posted.
    Withdrawn,
}

impl Decision {
    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WithinLimit => "within_limit",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Withdrawn => "withdrawn",
        }
    }

    fn from_column(text: &str) -> Result<Self, Fault> {
        [Self::WithinLimit, Self::Approved, Self::Rejected, Self::Withdrawn]
            .into_iter()
            .find(|decision| decision.as_str() == text)
            .ok_or_else(|| Fault::new("a stored decision is unknown"))
    }
}

/// A refund or an adjustment that somebody asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The number.
    pub request_id: i64,
    /// `refund` or `adjustment`.
    pub kind: Kind,
    /// Whose wallet.
    pub tenant_id: TenantId,
    /// Which wallet.
    pub currency: Currency,
    /// Minor units with the sign of the row it becomes.
    pub amount: MinorUnits,
    /// The row a refund gives back.
    pub original_seq: Option<i64>,
    /// Why: a code for an adjustment, words for a refund.
    pub reason: String,
    /// More words.
    pub note: String,
    /// Who asked.
    pub requested_by: String,
    /// When.
    pub requested_at: DateTime<Utc>,
    /// Until when somebody may approve.
    pub expires_at: DateTime<Utc>,
    /// What was decided.
    pub decision: Option<Decision>,
    /// By whom.
    pub decided_by: Option<String>,
    /// When.
    pub decided_at: Option<DateTime<Utc>>,
    /// Why.
    pub decision_note: Option<String>,
    /// The ledger's row.
    pub posted_seq: Option<i64>,
}

impl Request {
    /// `posted`, `waiting`, `rejected`, `withdrawn` or `expired`.
    #[must_use]
    pub fn status(&self, now: DateTime<Utc>) -> &'static str {
        match self.decision {
            Some(Decision::WithinLimit | Decision::Approved) => "posted",
            Some(Decision::Rejected) => "rejected",
            Some(Decision::Withdrawn) => "withdrawn",
            None if self.expires_at <= now => "expired",
            None => "waiting",
        }
    }
}

struct RequestRow {
    request_id: i64,
    kind: String,
    tenant_id: String,
    currency: String,
    exponent: i16,
    amount: i64,
    original_seq: Option<i64>,
    reason: String,
    note: String,
    requested_by: String,
    requested_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    decision: Option<String>,
    decided_by: Option<String>,
    decided_at: Option<DateTime<Utc>>,
    decision_note: Option<String>,
    posted_seq: Option<i64>,
}

impl TryFrom<RequestRow> for Request {
    type Error = Fault;

    fn try_from(row: RequestRow) -> Result<Self, Fault> {
        Ok(Self {
            request_id: row.request_id,
            kind: Kind::from_column(&row.kind)?,
            tenant_id: TenantId::from_column(row.tenant_id)?,
            currency: Currency {
                code: CurrencyCode::from_column(row.currency)?,
                exponent: Exponent::from_column(row.exponent)?,
            },
            amount: MinorUnits::new(row.amount),
            original_seq: row.original_seq,
            reason: row.reason,
            note: row.note,
            requested_by: row.requested_by,
            requested_at: row.requested_at,
            expires_at: row.expires_at,
            decision: row.decision.as_deref().map(Decision::from_column).transpose()?,
            decided_by: row.decided_by,
            decided_at: row.decided_at,
            decision_note: row.decision_note,
            posted_seq: row.posted_seq,
        })
    }
}

/// What is to be written down before it is decided.
pub struct NewRequest<'a> {
    pub kind: &'a Kind,
    pub tenant_id: &'a TenantId,
    pub currency: &'a CurrencyCode,
    pub amount: MinorUnits,
    pub original_seq: Option<i64>,
    pub reason: &'a str,
    pub note: &'a str,
    pub requested_by: &'a str,
    pub requested_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

pub async fn insert(conn: &mut PgConnection, new: &NewRequest<'_>) -> Result<i64, Fault> {
    Ok(sqlx::query_scalar!(
        "-- support::insert
         INSERT INTO support_requests (kind, tenant_id, currency, amount, original_seq, reason, note, requested_by,
                                       requested_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING request_id",
        new.kind.as_str(),
        new.tenant_id.as_str(),
        new.currency.as_str(),
        new.amount.get(),
        new.original_seq,
        new.reason,
        new.note,
        new.requested_by,
        new.requested_at,
        new.expires_at,
    )
    .fetch_one(conn)
    .await?)
}

/// A decision as it is written.
pub struct NewDecision<'a> {
    pub decision: Decision,
    pub decided_by: &'a str,
    pub decided_at: DateTime<Utc>,
    pub note: Option<&'a str>,
    pub posted_seq: Option<i64>,
}

pub async fn decide(conn: &mut PgConnection, request_id: i64, new: &NewDecision<'_>) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- support::decide
         UPDATE support_requests
            SET decision = $2, decided_by = $3, decided_at = $4, decision_note = $5, posted_seq = $6
          WHERE request_id = $1 AND decision IS NULL",
        request_id,
        new.decision.as_str(),
        new.decided_by,
        new.decided_at,
        new.note,
        new.posted_seq,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(Fault::new("a locked request was not there to be decided")) }
}

/// Runs one SELECT of requests whose columns are always the same.
macro_rules! select_requests {
    ($fetch:ident, $conn:expr, $name:literal, $rest:literal, $($argument:expr),+) => {
        sqlx::query_as!(
            RequestRow,
            "-- support::" + $name + "
             SELECT r.request_id, r.kind, r.tenant_id, r.currency, c.exponent, r.amount, r.original_seq, r.reason,
                    r.note, r.requested_by, r.requested_at, r.expires_at, r.decision, r.decided_by, r.decided_at,
                    r.decision_note, r.posted_seq
               FROM support_requests r JOIN currencies c ON c.code = r.currency " + $rest,
            $($argument),+
        )
        .$fetch($conn)
        .await?
    };
}

/// Locks a request until the transaction ends.
pub async fn lock(conn: &mut PgConnection, request_id: i64) -> Result<Option<Request>, Fault> {
    select_requests!(fetch_optional, conn, "lock", "WHERE r.request_id = $1 FOR NO KEY UPDATE OF r", request_id)
        .map(Request::try_from)
        .transpose()
}

/// Which requests.
#[derive(Debug, Clone, Default)]
pub struct RequestQuery {
    /// Only this one.
    pub request_id: Option<i64>,
    /// Only of this tenant.
    pub tenant_id: Option<TenantId>,
    /// Only those nobody decided about.
    pub undecided: bool,
    /// Only those that didn't end before this moment.
    pub open_at: Option<DateTime<Utc>>,
    /// Only those before this one.
    pub before_id: Option<i64>,
    /// Only the one that became this row of the tenant's wallet in this currency.
    pub posted: Option<(CurrencyCode, i64)>,
    /// At most so many.
    pub limit: i64,
}

/// Requests, the newest first.
///
/// # Errors
/// A fault.
pub async fn list_requests(conn: &mut PgConnection, query: &RequestQuery) -> Result<Vec<Request>, Fault> {
    select_requests!(
        fetch_all,
        conn,
        "list_requests",
        "WHERE ($1::bigint IS NULL OR r.request_id = $1) AND ($2::text IS NULL OR r.tenant_id = $2)
           AND (NOT $3 OR r.decision IS NULL) AND ($4::bigint IS NULL OR r.request_id < $4)
           AND ($5::text IS NULL OR (r.currency = $5 AND r.posted_seq = $6))
           AND ($8::timestamptz IS NULL OR r.expires_at > $8)
         ORDER BY r.request_id DESC LIMIT $7",
        query.request_id,
        query.tenant_id.as_ref().map(TenantId::as_str),
        query.undecided,
        query.before_id,
        query.posted.as_ref().map(|(currency, _)| currency.as_str()),
        query.posted.as_ref().map(|(_, seq)| *seq),
        query.limit,
        query.open_at
    )
    .into_iter()
    .map(Request::try_from)
    .collect()
}

/// What somebody moved alone in a wallet since a moment, without signs. The wallet is locked.
pub async fn moved_alone(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    actor: &str,
    since: DateTime<Utc>,
) -> Result<MinorUnits, Fault> {
    let moved = sqlx::query_scalar!(
        r#"-- support::moved_alone
           SELECT coalesce(sum(abs(amount)), 0)::bigint AS "moved!" FROM support_requests
            WHERE tenant_id = $1 AND currency = $2 AND requested_by = $3 AND decided_at > $4
              AND decision = 'within_limit'"#,
        tenant_id.as_str(),
        currency.as_str(),
        actor,
        since,
    )
    .fetch_one(conn)
    .await?;
    Ok(MinorUnits::new(moved))
}

/// Requests that were granted and whose row isn't there or says something else, and rows of requests that weren't
/// granted or aren't there: the name of each row.
///
/// # Errors
/// A fault of reading.
pub async fn granted_amiss(conn: &mut PgConnection) -> Result<Vec<String>, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- support::granted_amiss
           SELECT coalesce('support:' || r.request_id, x.reference) AS "row!"
             FROM (SELECT r.*, w.wallet_id FROM support_requests r
                     LEFT JOIN wallets w ON w.tenant_id = r.tenant_id AND w.currency = r.currency
                    WHERE r.posted_seq IS NOT NULL) r
             FULL JOIN (SELECT * FROM wallet_transactions
                         WHERE kind IN ('refund', 'adjustment') AND starts_with(reference, 'support:')) x
               ON x.wallet_id = r.wallet_id AND x.seq = r.posted_seq
            WHERE (x.kind, x.amount, x.reference, x.actor, x.original_seq)
                  IS DISTINCT FROM (r.kind, r.amount, 'support:' || r.request_id, r.decided_by, r.original_seq)
            ORDER BY 1"#
    )
    .fetch_all(conn)
    .await?)
}
