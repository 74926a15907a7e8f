//! Every statement that only looks.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::PgConnection;

use super::overview::KindSum;
use super::search::{OrderHit, RowHit, TenantHit};
use super::wallet::Point;
use crate::fault::Fault;
use crate::hold::HoldId;
use crate::ids::TenantId;
use crate::ledger::PostedRow;
use crate::money::{Currency, CurrencyCode, Exponent, MinorUnits};

/// The providers whose payments are looked for; the index wants each by name.
const PROVIDERS: [&str; 4] = ["payme", "telegram", "click", "uzum"];

/// A payment, as support sees it.
#[derive(Debug, Clone)]
pub struct PaymentLine {
    /// Our number.
    pub payment_id: i64,
    /// Whose money it is.
    pub tenant_id: String,
    /// The provider.
    pub provider: String,
    /// `live` or `test`.
    pub mode: String,
    /// The provider's id.
    pub external_id: String,
    /// The order that is paid.
    pub order_id: Option<String>,
    /// The currency.
    pub currency: String,
    /// Its digits.
    pub exponent: i16,
    /// Minor units.
    pub amount: i64,
    /// What the provider said is paid.
    pub account: String,
    /// When it was promised.
    pub created_at: DateTime<Utc>,
    /// When it became money.
    pub performed_at: Option<DateTime<Utc>>,
    /// When it was cancelled.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// The provider's reason.
    pub cancel_reason: Option<i64>,
}

/// Runs one SELECT of payments whose columns are always the same.
macro_rules! select_payments {
    ($fetch:ident, $conn:expr, $name:literal, $rest:literal, $($argument:expr),+) => {
        sqlx::query_as!(
            PaymentLine,
            "-- inquiry::" + $name + "
             SELECT p.payment_id, p.tenant_id, p.provider, p.mode, p.external_id, p.order_id, p.currency, c.exponent,
                    p.amount, p.account, p.created_at, p.performed_at, p.cancelled_at, p.cancel_reason
               FROM payments p JOIN currencies c ON c.code = p.currency " + $rest,
            $($argument),+
        )
        .$fetch($conn)
        .await?
    };
}

pub async fn find_payment(conn: &mut PgConnection, payment_id: i64) -> Result<Option<PaymentLine>, Fault> {
    Ok(select_payments!(fetch_optional, conn, "find_payment", "WHERE p.payment_id = $1", payment_id))
}

pub async fn payments_of(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    before_id: Option<i64>,
    limit: i64,
) -> Result<Vec<PaymentLine>, Fault> {
    Ok(select_payments!(
        fetch_all,
        conn,
        "payments_of",
        "WHERE p.tenant_id = $1 AND ($2::bigint IS NULL OR p.payment_id < $2) ORDER BY p.payment_id DESC LIMIT $3",
        tenant_id.as_str(),
        before_id,
        limit
    ))
}

pub async fn find_payments(
    conn: &mut PgConnection,
    external_id: &str,
    order_id: Option<&str>,
    account_value: &str,
    limit: i64,
) -> Result<Vec<PaymentLine>, Fault> {
    let providers: Vec<String> = PROVIDERS.iter().map(|name| (*name).to_owned()).collect();
    Ok(select_payments!(
        fetch_all,
        conn,
        "find_payments",
        "WHERE p.payment_id IN (
               SELECT x.payment_id FROM payments x
                WHERE x.provider = ANY ($1) AND x.mode IN ('live', 'test') AND x.external_id = $2
                UNION ALL
               SELECT x.payment_id FROM payments x
                WHERE strpos(x.external_id, ':') > 0
                  AND substr(x.external_id, strpos(x.external_id, ':') + 1) = $2
                UNION ALL
               SELECT x.payment_id FROM payments x WHERE x.order_id = $3
                UNION ALL
               SELECT v.payment_id FROM payment_account_values v WHERE v.value = $4)
         ORDER BY p.payment_id DESC LIMIT $5",
        &providers,
        external_id,
        order_id,
        account_value,
        limit
    ))
}

/// `amount` is decimal text without a sign. A payment belongs to the day on which it was promised and to the one on
/// which it was performed, which is the same or, around midnight, the next.
pub async fn find_payments_of_day(
    conn: &mut PgConnection,
    amount: &str,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<PaymentLine>, Fault> {
    Ok(select_payments!(
        fetch_all,
        conn,
        "find_payments_of_day",
        "WHERE p.created_at >= $2::timestamptz - interval '1 day' AND p.created_at < $3
           AND (p.created_at >= $2 OR (p.performed_at >= $2 AND p.performed_at < $3))
           AND p.amount::numeric = $1::text::numeric * 10::numeric ^ c.exponent::integer
         ORDER BY p.payment_id DESC LIMIT $4",
        amount,
        from,
        to,
        limit
    ))
}

/// An order by its id.
pub async fn find_order(conn: &mut PgConnection, order_id: &str) -> Result<Vec<OrderHit>, Fault> {
    Ok(sqlx::query_as!(
        OrderHit,
        "-- inquiry::find_order
         SELECT o.order_id, o.tenant_id, o.title, o.currency, c.exponent, o.amount
           FROM orders o JOIN currencies c ON c.code = o.currency WHERE o.order_id = $1",
        order_id,
    )
    .fetch_all(conn)
    .await?)
}

pub async fn find_tenants(
    conn: &mut PgConnection,
    exact: Option<&str>,
    words: Option<&str>,
    limit: i64,
) -> Result<Vec<TenantHit>, Fault> {
    Ok(sqlx::query_as!(
        TenantHit,
        "-- inquiry::find_tenants
         SELECT tenant_id, name, status FROM tenants
          WHERE tenant_id = $1 OR to_tsvector('simple', name) @@ to_tsquery('simple', $2)
          ORDER BY (tenant_id = $1) DESC NULLS LAST, name, tenant_id LIMIT $3",
        exact,
        words,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// `amount` is decimal text without a sign.
pub async fn find_rows(
    conn: &mut PgConnection,
    amount: &str,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<RowHit>, Fault> {
    Ok(sqlx::query_as!(
        RowHit,
        "-- inquiry::find_rows
         SELECT x.tenant_id, x.currency, c.exponent, x.seq, x.kind, x.amount, x.recorded_at
           FROM wallet_transactions x JOIN currencies c ON c.code = x.currency
          WHERE x.recorded_at >= $2 AND x.recorded_at < $3
            AND abs(x.amount::numeric) = $1::text::numeric * 10::numeric ^ c.exponent::integer
          ORDER BY x.recorded_at, x.wallet_id, x.seq LIMIT $4",
        amount,
        from,
        to,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

pub async fn wallets_of(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<Currency>, Fault> {
    sqlx::query!(
        "-- inquiry::wallets_of
         SELECT w.currency, c.exponent FROM wallets w JOIN currencies c ON c.code = w.currency
          WHERE w.tenant_id = $1 ORDER BY (w.currency = 'UZS') DESC, w.currency",
        tenant_id.as_str(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Currency { code: CurrencyCode::from_column(row.currency)?, exponent: Exponent::from_column(row.exponent)? })
    })
    .collect()
}

/// The numbers of a wallet's rows between two rows, the newest first.
pub async fn seqs_before(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    kind: Option<&str>,
    (after_seq, before_seq): (i64, i64),
    limit: i64,
) -> Result<Vec<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- inquiry::seqs_before
         SELECT x.seq FROM wallet_transactions x
          WHERE x.wallet_id = (SELECT w.wallet_id FROM wallets w WHERE w.tenant_id = $1 AND w.currency = $2)
            AND ($3::text IS NULL OR x.kind = $3) AND x.seq > $4 AND x.seq < $5
          ORDER BY x.seq DESC LIMIT $6",
        tenant_id.as_str(),
        currency.as_str(),
        kind,
        after_seq,
        before_seq,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A provider's question with our answer.
#[derive(Debug, Clone)]
pub struct CallLine {
    /// The number.
    pub call_id: i64,
    /// When it came.
    pub received_at: DateTime<Utc>,
    /// The provider.
    pub provider: String,
    /// What it asked.
    pub method: Option<String>,
    /// Which payment it is about.
    pub external_id: Option<String>,
    /// From where.
    pub remote_address: Option<String>,
    /// The body, without secrets.
    pub request: String,
    /// Our answer.
    pub answer: String,
    /// Our error code, if it was one.
    pub error_code: Option<i32>,
}

pub async fn calls_of(conn: &mut PgConnection, provider: &str, external_id: &str) -> Result<Vec<CallLine>, Fault> {
    Ok(sqlx::query_as!(
        CallLine,
        "-- inquiry::calls_of
         SELECT call_id, received_at, provider, method, external_id, remote_address, request, answer, error_code
           FROM provider_calls WHERE external_id = $2 AND provider = $1 ORDER BY call_id LIMIT 50",
        provider,
        external_id,
    )
    .fetch_all(conn)
    .await?)
}

pub async fn refused_calls(conn: &mut PgConnection, limit: i64) -> Result<Vec<CallLine>, Fault> {
    Ok(sqlx::query_as!(
        CallLine,
        "-- inquiry::refused_calls
         SELECT call_id, received_at, provider, method, external_id, remote_address, request, answer, error_code
           FROM provider_calls WHERE error_code IS NOT NULL ORDER BY call_id DESC LIMIT $1",
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// The fee of a month.
#[derive(Debug, Clone)]
pub struct DueLine {
    /// The number.
    pub due_id: i64,
    /// Which subscription.
    pub subscription_id: i64,
    /// Its plan.
    pub plan_name: String,
    /// The month's first day.
    pub month: NaiveDate,
    /// The currency.
    pub currency: String,
    /// Its digits.
    pub exponent: i16,
    /// Minor units.
    pub amount: i64,
    /// When it fell due.
    pub due_at: DateTime<Utc>,
    /// Since when it is, or was, overdue.
    pub overdue_at: Option<DateTime<Utc>>,
    /// When it was paid.
    pub charged_at: Option<DateTime<Utc>>,
    /// By which row.
    pub charged_seq: Option<i64>,
}

/// Runs one SELECT of dues whose columns are always the same.
macro_rules! select_dues {
    ($conn:expr, $name:literal, $rest:literal, $($argument:expr),+) => {
        sqlx::query_as!(
            DueLine,
            "-- inquiry::" + $name + "
             SELECT d.due_id, d.subscription_id, p.name AS plan_name, d.month, d.currency, c.exponent, d.amount,
                    d.due_at, d.overdue_at, d.charged_at, d.charged_seq
               FROM dues d JOIN currencies c ON c.code = d.currency
               JOIN subscriptions s ON s.subscription_id = d.subscription_id JOIN plans p ON p.plan_id = s.plan_id
               " + $rest,
            $($argument),+
        )
        .fetch_all($conn)
        .await?
    };
}

pub async fn dues_of(conn: &mut PgConnection, tenant_id: &TenantId, limit: i64) -> Result<Vec<DueLine>, Fault> {
    Ok(select_dues!(
        conn,
        "dues_of",
        "WHERE d.tenant_id = $1 ORDER BY d.month DESC, d.due_id DESC LIMIT $2",
        tenant_id.as_str(),
        limit
    ))
}

/// The due that a row pays.
pub async fn due_of_row(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    seq: i64,
) -> Result<Option<DueLine>, Fault> {
    Ok(select_dues!(
        conn,
        "due_of_row",
        "WHERE d.tenant_id = $1 AND d.currency = $2 AND d.charged_seq = $3",
        tenant_id.as_str(),
        currency.as_str(),
        seq
    )
    .pop())
}

/// The overdue dues that a credit paid. Their fees are the rows right behind it, of the same transaction and so of the
/// same moment; of several credits in one transaction, the last one is followed by them.
pub async fn dues_paid_by(conn: &mut PgConnection, row: &PostedRow) -> Result<Vec<DueLine>, Fault> {
    Ok(select_dues!(
        conn,
        "dues_paid_by",
        "WHERE d.tenant_id = $1 AND d.currency = $2 AND d.overdue_at IS NOT NULL AND d.charged_seq > $4
           AND d.charged_seq < coalesce((SELECT min(x.seq) FROM wallet_transactions x
                                          WHERE x.wallet_id = $3 AND x.seq > $4
                                            AND NOT (x.kind = 'subscription_fee' AND x.recorded_at = $5)),
                                        9223372036854775807)
         ORDER BY d.charged_seq LIMIT 100",
        row.tenant_id.as_str(),
        row.currency.as_str(),
        row.wallet_id,
        row.seq,
        row.recorded_at
    ))
}

/// The first rows that give a row back, as many as a page shows.
pub async fn seqs_giving_back(
    conn: &mut PgConnection,
    wallet_id: i64,
    seq: i64,
    limit: i64,
) -> Result<Vec<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- inquiry::seqs_giving_back
         SELECT seq FROM wallet_transactions WHERE wallet_id = $1 AND original_seq = $2 ORDER BY seq LIMIT $3",
        wallet_id,
        seq,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// An event, and how far it got.
#[derive(Debug, Clone)]
pub struct EventLine {
    /// The number.
    pub event_id: i64,
    /// Its kind.
    pub kind: String,
    /// How many endpoints it is for.
    pub endpoints: i64,
    /// How many have it.
    pub delivered: i64,
    /// How many it was given up for.
    pub dead: i64,
}

/// Events of these kinds whose body has one of the marks and the other one, if there is one; those of the moments
/// before `at`, since a row's time may be later than its event's by what two machines' clocks differ. And the news
/// that access was restored with dues that were paid at `restored_at`.
pub async fn events_about(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    at: DateTime<Utc>,
    about: &EventMarks,
    restored_at: Option<DateTime<Utc>>,
) -> Result<Vec<EventLine>, Fault> {
    Ok(sqlx::query_as!(
        EventLine,
        r#"-- inquiry::events_about
           SELECT e.event_id, e.kind, count(d.event_id) AS "endpoints!", count(d.delivered_at) AS "delivered!",
                  count(d.dead_at) AS "dead!"
             FROM events e LEFT JOIN webhook_deliveries d ON d.event_id = e.event_id
            WHERE e.tenant_id = $1 AND e.created_at >= $2::timestamptz - interval '10 minutes' AND e.created_at <= $2
              AND ((e.kind = ANY ($3) AND EXISTS (SELECT FROM unnest($4::text[]) AS mark WHERE strpos(e.body, mark) > 0)
                    AND ($5::text IS NULL OR strpos(e.body, $5) > 0))
                   OR (e.kind = 'access.restored' AND e.created_at = $6))
            GROUP BY e.event_id, e.kind ORDER BY e.event_id LIMIT 100"#,
        tenant_id.as_str(),
        at,
        &about.kinds,
        &about.marks,
        about.and,
        restored_at,
    )
    .fetch_all(conn)
    .await?)
}

/// How an event is recognised that is about a row: a member of its body as it is written there, a quote of which no
/// text inside of it can have unescaped.
#[derive(Debug, Default)]
pub struct EventMarks {
    /// The kinds.
    pub kinds: Vec<String>,
    /// One of these stands in the body.
    pub marks: Vec<String>,
    /// And this.
    pub and: Option<String>,
}

/// What is unpaid in one currency.
#[derive(Debug, Clone)]
pub struct OverdueSum {
    /// The currency.
    pub currency: String,
    /// Its digits.
    pub exponent: i16,
    /// How many tenants owe.
    pub tenants: i64,
    /// How many dues.
    pub dues: i64,
    /// Minor units.
    pub amount: i64,
}

pub async fn overdue_sums(conn: &mut PgConnection) -> Result<Vec<OverdueSum>, Fault> {
    Ok(sqlx::query_as!(
        OverdueSum,
        r#"-- inquiry::overdue_sums
           SELECT d.currency, c.exponent, count(DISTINCT d.tenant_id) AS "tenants!", count(*) AS "dues!",
                  sum(d.amount)::bigint AS "amount!"
             FROM dues d JOIN currencies c ON c.code = d.currency
            WHERE d.charged_at IS NULL GROUP BY d.currency, c.exponent ORDER BY d.currency"#
    )
    .fetch_all(conn)
    .await?)
}

pub async fn sums_between(
    conn: &mut PgConnection,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<Vec<KindSum>, Fault> {
    Ok(sqlx::query_as!(
        KindSum,
        r#"-- inquiry::sums_between
           SELECT CASE WHEN x.kind IN ('top_up', 'top_up_reversal') AND x.actor NOT LIKE 'api:%'
                       THEN x.kind || ':' || split_part(x.reference, ':', 1)
                       ELSE x.kind END AS "kind!",
                  x.currency, c.exponent, count(*) AS "rows!", sum(x.amount)::bigint AS "amount!"
             FROM wallet_transactions x JOIN currencies c ON c.code = x.currency
            WHERE x.recorded_at >= $1 AND x.recorded_at < $2
            GROUP BY 1, x.currency, c.exponent ORDER BY x.currency, 1"#,
        from,
        to,
    )
    .fetch_all(conn)
    .await?)
}

/// The balance at evenly spread rows, each summed up from the checkpoint before it.
pub async fn history(
    conn: &mut PgConnection,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    points: i32,
) -> Result<Vec<Point>, Fault> {
    Ok(sqlx::query!(
        r#"-- inquiry::history
           SELECT x.seq, x.recorded_at,
                  (coalesce(c.total, 0) + coalesce(
                      (SELECT sum(y.amount) FROM wallet_transactions y
                        WHERE y.wallet_id = x.wallet_id AND y.seq > coalesce(c.seq, 0) AND y.seq <= x.seq), 0)
                  )::bigint AS "balance!"
             FROM wallets w
             CROSS JOIN LATERAL (
                  SELECT DISTINCT greatest(1, (w.head_seq * n) / $3::integer) AS seq
                    FROM generate_series(1, $3::integer) n
                   WHERE w.head_seq > 0
             ) wanted
             JOIN wallet_transactions x ON x.wallet_id = w.wallet_id AND x.seq = wanted.seq
             LEFT JOIN LATERAL (
                  SELECT k.seq, (SELECT sum(value::bigint) FROM jsonb_each_text(k.pocket_sums)) AS total
                    FROM wallet_checkpoints k
                   WHERE k.wallet_id = w.wallet_id AND k.seq <= x.seq ORDER BY k.seq DESC LIMIT 1
             ) c ON true
            WHERE w.tenant_id = $1 AND w.currency = $2
            ORDER BY x.seq"#,
        tenant_id.as_str(),
        currency.as_str(),
        points,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| Point { seq: row.seq, at: row.recorded_at, balance: MinorUnits::new(row.balance) })
    .collect())
}

/// What a hold itself doesn't carry along of its placing.
pub struct Placing {
    pub placed_by: String,
    pub fingerprint: Option<String>,
    pub waiting_told_at: Option<DateTime<Utc>>,
}

pub async fn placing_of(conn: &mut PgConnection, hold_id: &HoldId) -> Result<Placing, Fault> {
    Ok(sqlx::query_as!(
        Placing,
        "-- inquiry::placing_of
         SELECT placed_by, fingerprint, waiting_told_at FROM holds WHERE hold_id = $1",
        hold_id.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

/// A call of a hold's usage log.
#[derive(Debug, Clone)]
pub struct UsageLine {
    /// The call.
    pub call_id: String,
    /// Which model, when it was reported in tokens.
    pub model: Option<String>,
    /// Tokens that were read.
    pub input_tokens: Option<i64>,
    /// Tokens that were written.
    pub output_tokens: Option<i64>,
    /// Tokens that were read from a cache.
    pub cached_tokens: Option<i64>,
    /// What it cost, in millionths of a US dollar.
    pub cost_micro: i64,
    /// When it was logged.
    pub recorded_at: DateTime<Utc>,
}

pub async fn usage_of(conn: &mut PgConnection, hold_id: &HoldId, limit: i64) -> Result<Vec<UsageLine>, Fault> {
    Ok(sqlx::query_as!(
        UsageLine,
        "-- inquiry::usage_of
         SELECT call_id, model, input_tokens, output_tokens, cached_tokens, cost_micro, recorded_at
           FROM hold_usage WHERE hold_id = $1 ORDER BY recorded_at DESC, call_id DESC LIMIT $2",
        hold_id.as_str(),
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A row that pays a hold, or a part of it.
#[derive(Debug, Clone)]
pub struct ChargeLine {
    /// The row.
    pub seq: i64,
    /// The pocket that pays.
    pub pocket: String,
    /// Minor units, negative.
    pub amount: i64,
    /// When.
    pub recorded_at: DateTime<Utc>,
}

/// The rows with these references that pay a hold.
pub async fn charges_of(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    references: &[String],
) -> Result<Vec<ChargeLine>, Fault> {
    Ok(sqlx::query_as!(
        ChargeLine,
        "-- inquiry::charges_of
         SELECT x.seq, x.pocket, x.amount, x.recorded_at FROM wallet_transactions x
          WHERE x.wallet_id = (SELECT h.wallet_id FROM holds h WHERE h.hold_id = $1)
            AND x.kind = 'hold_charge' AND x.reference = ANY ($2) AND x.metadata ->> 'hold_id' = $1
          ORDER BY x.seq",
        hold_id.as_str(),
        references,
    )
    .fetch_all(conn)
    .await?)
}
