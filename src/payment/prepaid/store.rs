//! Every statement about checkouts, receipts, refund tasks and cases.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::case::{NewCase, Resolution};
use super::checkout::Question;
use super::receipt::{Receipt, unmatched_tenant};
use super::refund::ConfirmedBy;
use super::state::{Answer, Decision, GivingBack, No};
use crate::fault::Fault;
use crate::ids::TenantId;
use crate::money::MinorUnits;
use crate::payment::order::Order;

/// Bounds how long the statements of this transaction wait and run.
pub async fn bound_waiting(conn: &mut PgConnection, lock: Duration, statement: Duration) -> Result<(), Fault> {
    sqlx::query!(
        "-- prepaid::bound_waiting
         SELECT set_config('lock_timeout', $1, true) AS lock_timeout,
                set_config('statement_timeout', $2, true) AS statement_timeout",
        lock.as_millis().to_string(),
        statement.as_millis().to_string(),
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// What was answered before, with what the question was about.
pub struct StoredCheckout {
    pub named_order: String,
    pub payer: String,
    pub answer: Answer,
}

pub async fn find_checkout(
    conn: &mut PgConnection,
    provider: &str,
    query_id: &str,
) -> Result<Option<StoredCheckout>, Fault> {
    let row = sqlx::query!(
        "-- prepaid::find_checkout
         SELECT named_order, payer, refusal FROM checkouts WHERE provider = $1 AND query_id = $2",
        provider,
        query_id,
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| {
        let answer = match row.refusal {
            None => Answer::Yes,
            Some(refusal) => Answer::No(No::from_column(&refusal)?),
        };
        Ok(StoredCheckout { named_order: row.named_order, payer: row.payer, answer })
    })
    .transpose()
}

/// Keeps an answer; `false` when the question was answered before.
pub async fn insert_checkout(
    conn: &mut PgConnection,
    question: &Question,
    decided: Result<Option<DateTime<Utc>>, No>,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- prepaid::insert_checkout
         INSERT INTO checkouts (provider, query_id, named_order, payer, refusal, held_until, decided_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT ON CONSTRAINT checkouts_pkey DO NOTHING",
        question.provider,
        question.query_id,
        question.named_order,
        question.payer,
        decided.err().map(No::as_str),
        decided.ok().flatten(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether somebody was ever told that they may pay this order.
pub async fn was_approved(conn: &mut PgConnection, provider: &str, order: &Order) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- prepaid::was_approved
           SELECT EXISTS (SELECT FROM checkouts WHERE provider = $1 AND named_order = $2 AND refusal IS NULL)
                  AS "approved!""#,
        provider,
        order.order_id.as_str(),
    )
    .fetch_one(conn)
    .await?)
}

/// The tenant of money that names no order, made with its first use.
pub async fn open_unmatched_tenant(
    conn: &mut PgConnection,
    provider: &str,
    now: DateTime<Utc>,
) -> Result<TenantId, Fault> {
    let tenant_id = unmatched_tenant(provider)?;
    sqlx::query!(
        "-- prepaid::open_unmatched_tenant
         INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
         VALUES ($1, $2, 'Asia/Tashkent', 'en', $3)
             ON CONFLICT ON CONSTRAINT tenants_pkey DO NOTHING",
        tenant_id.as_str(),
        format!("Payments of {provider} that name no order"),
        now,
    )
    .execute(conn)
    .await?;
    Ok(tenant_id)
}

pub async fn insert_receipt(
    conn: &mut PgConnection,
    payment_id: i64,
    receipt: &Receipt,
    decision: Decision,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- prepaid::insert_receipt
         INSERT INTO receipts (payment_id, payer, named_order, decision, why, source, received_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        payment_id,
        receipt.payer,
        receipt.named_order,
        decision.as_str(),
        decision.why(),
        receipt.source.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What was decided about a payment when it came.
pub async fn find_receipt(conn: &mut PgConnection, payment_id: i64) -> Result<Option<Decision>, Fault> {
    let row = sqlx::query!(
        "-- prepaid::find_receipt
         SELECT decision, why FROM receipts WHERE payment_id = $1",
        payment_id,
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| Decision::from_columns(&row.decision, row.why.as_deref())).transpose()
}

/// What a payment was booked as, in words, if that isn't what is told now.
pub async fn told_otherwise(
    conn: &mut PgConnection,
    payment_id: i64,
    receipt: &Receipt,
) -> Result<Option<String>, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- prepaid::told_otherwise
           SELECT format('%s %s from payer %s for order "%s"', p.amount, p.currency, r.payer, r.named_order) AS "booked!"
             FROM receipts r JOIN payments p ON p.payment_id = r.payment_id
            WHERE r.payment_id = $1
              AND (p.amount, p.currency, r.payer, r.named_order) IS DISTINCT FROM ($2::bigint, $3::text, $4::text, $5::text)"#,
        payment_id,
        receipt.amount.get(),
        receipt.currency,
        receipt.payer,
        receipt.named_order,
    )
    .fetch_optional(conn)
    .await?)
}

/// A payment of the book, as it was told.
#[derive(Debug)]
pub struct KnownReceipt {
    /// The provider's id of it.
    pub external_id: String,
    /// How much it was.
    pub amount: MinorUnits,
    /// The provider's id of its payer.
    pub payer: String,
    /// The order that it named.
    pub named_order: String,
    /// Whether it has gone back.
    pub gone: bool,
}

pub async fn find_known(
    conn: &mut PgConnection,
    provider: &str,
    external_ids: &[String],
) -> Result<Vec<KnownReceipt>, Fault> {
    let rows = sqlx::query!(
        r#"-- prepaid::find_known
           SELECT p.external_id, p.amount, r.payer, r.named_order, p.cancelled_at IS NOT NULL AS "gone!"
             FROM payments p JOIN receipts r ON r.payment_id = p.payment_id
            WHERE p.provider = $1 AND p.mode = 'live' AND p.external_id = ANY ($2)"#,
        provider,
        external_ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| KnownReceipt {
            external_id: row.external_id,
            amount: MinorUnits::new(row.amount),
            payer: row.payer,
            named_order: row.named_order,
            gone: row.gone,
        })
        .collect())
}

/// Writes a task; none when one is open already.
pub async fn insert_refund_task(
    conn: &mut PgConnection,
    payment_id: i64,
    why: &str,
    by: &str,
    now: DateTime<Utc>,
) -> Result<Option<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- prepaid::insert_refund_task
         INSERT INTO refund_tasks (payment_id, why, requested_by, created_at, next_attempt_at)
         VALUES ($1, $2, $3, $4, $4)
             ON CONFLICT (payment_id) WHERE failed_at IS NULL DO NOTHING
         RETURNING task_id",
        payment_id,
        why,
        by,
        now,
    )
    .fetch_optional(conn)
    .await?)
}

/// A task that a worker has.
#[derive(Debug, Clone)]
pub struct ClaimedRefund {
    /// The task.
    pub task_id: i64,
    /// Its payment.
    pub payment_id: i64,
    /// The provider's id of that.
    pub external_id: String,
    /// Who gets it back.
    pub payer: String,
    /// How many calls there were, with the one to come.
    pub attempts: i32,
}

/// Claims the task that has waited longest. SKIP LOCKED, since two workers may look at once.
pub async fn claim_refund(
    conn: &mut PgConnection,
    provider: &str,
    prefix: &str,
    list_read_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Option<ClaimedRefund>, Fault> {
    Ok(sqlx::query_as!(
        ClaimedRefund,
        "-- prepaid::claim_refund
         UPDATE refund_tasks t
            SET claimed_until = $5, attempts = t.attempts + 1
           FROM payments p JOIN receipts r ON r.payment_id = p.payment_id
          WHERE p.payment_id = t.payment_id
            AND t.task_id = (SELECT x.task_id
                               FROM refund_tasks x JOIN payments y ON y.payment_id = x.payment_id
                              WHERE x.confirmed_at IS NULL AND x.failed_at IS NULL AND x.claimed_until IS NULL
                                AND x.next_attempt_at <= $4
                                AND (x.unknown_at IS NULL OR x.unknown_at < $3)
                                AND y.provider = $1 AND starts_with(y.external_id, $2)
                              ORDER BY x.next_attempt_at, x.task_id
                              LIMIT 1
                                FOR UPDATE OF x SKIP LOCKED)
         RETURNING t.task_id, t.payment_id, p.external_id, r.payer, t.attempts",
        provider,
        prefix,
        list_read_at,
        now,
        until,
    )
    .fetch_optional(conn)
    .await?)
}

/// A claim that ran out: its worker may have called in the last moment of it.
pub async fn release_dead_claims(conn: &mut PgConnection, now: DateTime<Utc>) -> Result<u64, Fault> {
    let done = sqlx::query!(
        "-- prepaid::release_dead_claims
         UPDATE refund_tasks
            SET claimed_until = NULL, unknown_at = claimed_until, last_problem = 'the worker died',
                checking_since = coalesce(checking_since, claimed_until)
          WHERE claimed_until < $1 AND confirmed_at IS NULL AND failed_at IS NULL",
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

pub async fn set_refund_unknown(
    conn: &mut PgConnection,
    task_id: i64,
    problem: &str,
    next: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- prepaid::set_refund_unknown
         UPDATE refund_tasks
            SET claimed_until = NULL, unknown_at = $3, last_problem = $2, next_attempt_at = $4,
                checking_since = coalesce(checking_since, $3)
          WHERE task_id = $1 AND confirmed_at IS NULL AND failed_at IS NULL",
        task_id,
        problem,
        now,
        next,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn set_refund_later(
    conn: &mut PgConnection,
    task_id: i64,
    why: &str,
    next: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- prepaid::set_refund_later
         UPDATE refund_tasks
            SET claimed_until = NULL, next_attempt_at = $3, last_problem = $2
          WHERE task_id = $1 AND confirmed_at IS NULL AND failed_at IS NULL",
        task_id,
        why,
        next,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a task without success; `false` when it has ended already.
pub async fn set_refund_failed(
    conn: &mut PgConnection,
    task_id: i64,
    why: &str,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- prepaid::set_refund_failed
         UPDATE refund_tasks
            SET claimed_until = NULL, failed_at = $3, failure = $2
          WHERE task_id = $1 AND confirmed_at IS NULL AND failed_at IS NULL",
        task_id,
        why,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Confirms the open task of a payment; `false` when there is none.
pub async fn confirm_refund_task(
    conn: &mut PgConnection,
    payment_id: i64,
    by: ConfirmedBy,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- prepaid::confirm_refund_task
         UPDATE refund_tasks
            SET claimed_until = NULL, confirmed_at = $3, confirmed_by = $2
          WHERE payment_id = $1 AND confirmed_at IS NULL AND failed_at IS NULL",
        payment_id,
        by.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What was done so far to give a payment back.
pub async fn giving_back(conn: &mut PgConnection, payment_id: i64) -> Result<GivingBack, Fault> {
    Ok(sqlx::query_as!(
        GivingBack,
        r#"-- prepaid::giving_back
           SELECT EXISTS (SELECT FROM refund_tasks WHERE payment_id = $1 AND failed_at IS NULL) AS "standing!",
                  EXISTS (SELECT FROM refund_tasks WHERE payment_id = $1) AS "ever!",
                  (SELECT last.case_id
                     FROM (SELECT case_id, resolution FROM payment_cases
                            WHERE payment_id = $1 AND kind IN ('mismatch', 'refund_failed')
                            ORDER BY case_id DESC LIMIT 1) last
                    WHERE last.resolution = 'keep') AS kept_by_case"#,
        payment_id,
    )
    .fetch_one(conn)
    .await?)
}

pub async fn refund_is_open(conn: &mut PgConnection, payment_id: i64) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- prepaid::refund_is_open
           SELECT EXISTS (SELECT FROM refund_tasks
                           WHERE payment_id = $1 AND confirmed_at IS NULL AND failed_at IS NULL) AS "open!""#,
        payment_id,
    )
    .fetch_one(conn)
    .await?)
}

/// A task, to be looked at.
#[derive(Debug, Clone)]
pub struct RefundTask {
    /// Its number.
    pub task_id: i64,
    /// Its payment.
    pub payment_id: i64,
    /// Whose provider.
    pub provider: String,
    /// The provider's id of the payment.
    pub external_id: String,
    /// Whose wallet the payment is in.
    pub tenant_id: String,
    /// The currency.
    pub currency: String,
    /// Minor units.
    pub amount: i64,
    /// Who gets it back.
    pub payer: String,
    /// Why.
    pub why: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// How many calls there were.
    pub attempts: i32,
    /// When the next one is.
    pub next_attempt_at: DateTime<Utc>,
    /// What was wrong with the last one.
    pub last_problem: Option<String>,
    /// Since when an outcome is unknown.
    pub checking_since: Option<DateTime<Utc>>,
    /// When it was confirmed.
    pub confirmed_at: Option<DateTime<Utc>>,
    /// By whom.
    pub confirmed_by: Option<String>,
    /// When it was given up.
    pub failed_at: Option<DateTime<Utc>>,
    /// Why.
    pub failure: Option<String>,
}

impl RefundTask {
    /// waiting, checking, refunded or failed.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match (self.confirmed_at, self.failed_at, self.checking_since) {
            (Some(_), _, _) => "refunded",
            (None, Some(_), _) => "failed",
            (None, None, Some(_)) => "checking",
            (None, None, None) => "waiting",
        }
    }
}

pub async fn list_refund_tasks(
    conn: &mut PgConnection,
    open: bool,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<RefundTask>, Fault> {
    Ok(sqlx::query_as!(
        RefundTask,
        "-- prepaid::list_refund_tasks
         SELECT t.task_id, t.payment_id, p.provider, p.external_id, p.tenant_id, p.currency, p.amount, r.payer, t.why,
                t.created_at, t.attempts, t.next_attempt_at, t.last_problem, t.checking_since, t.confirmed_at,
                t.confirmed_by, t.failed_at, t.failure
           FROM refund_tasks t
           JOIN payments p ON p.payment_id = t.payment_id
           JOIN receipts r ON r.payment_id = t.payment_id
          WHERE (NOT $1 OR (t.confirmed_at IS NULL AND t.failed_at IS NULL))
            AND ($2::bigint IS NULL OR t.task_id < $2)
          ORDER BY t.task_id DESC LIMIT $3",
        open,
        before,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A case.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its number.
    pub case_id: i64,
    /// Whose money.
    pub provider: String,
    /// What is odd.
    pub kind: String,
    /// What it is about, in the provider's ids.
    pub subject: String,
    /// The payment.
    pub payment_id: Option<i64>,
    /// What happened, and what somebody may do.
    pub why: String,
    /// When.
    pub opened_at: DateTime<Utc>,
    /// When somebody ended it.
    pub resolved_at: Option<DateTime<Utc>>,
    /// Who.
    pub resolved_by: Option<String>,
    /// How.
    pub resolution: Option<String>,
    /// Why so.
    pub note: Option<String>,
}

/// Opens a case; `false` when the same is open, or was closed and can't come again.
pub async fn insert_case(
    conn: &mut PgConnection,
    new: &NewCase,
    may_come_again: bool,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- prepaid::insert_case
         INSERT INTO payment_cases (provider, kind, subject, payment_id, why, opened_at)
         SELECT $1, $2, $3, $4, $5, $6
          WHERE $7 OR NOT EXISTS (SELECT FROM payment_cases WHERE provider = $1 AND kind = $2 AND subject = $3)
             ON CONFLICT (provider, kind, subject) WHERE resolved_at IS NULL DO NOTHING",
        new.provider,
        new.kind.as_str(),
        new.subject,
        new.payment_id,
        new.why,
        now,
        may_come_again,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Runs one SELECT of cases whose columns are always the same.
macro_rules! select_cases {
    ($fetch:ident, $conn:expr, $name:literal, $rest:literal, $($argument:expr),+) => {
        sqlx::query_as!(
            Case,
            "-- prepaid::" + $name + "
             SELECT case_id, provider, kind, subject, payment_id, why, opened_at, resolved_at, resolved_by, resolution,
                    note
               FROM payment_cases " + $rest,
            $($argument),+
        )
        .$fetch($conn)
        .await?
    };
}

pub async fn find_case(conn: &mut PgConnection, case_id: i64) -> Result<Option<Case>, Fault> {
    Ok(select_cases!(fetch_optional, conn, "find_case", "WHERE case_id = $1", case_id))
}

pub async fn lock_case(conn: &mut PgConnection, case_id: i64) -> Result<Option<Case>, Fault> {
    Ok(select_cases!(fetch_optional, conn, "lock_case", "WHERE case_id = $1 FOR NO KEY UPDATE", case_id))
}

pub async fn list_cases(
    conn: &mut PgConnection,
    open: bool,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Case>, Fault> {
    Ok(select_cases!(
        fetch_all,
        conn,
        "list_cases",
        "WHERE (NOT $1 OR resolved_at IS NULL) AND ($2::bigint IS NULL OR case_id < $2)
         ORDER BY case_id DESC LIMIT $3",
        open,
        before,
        limit
    ))
}

/// Which of these cases have money that waits for a person, as `case::money_waits` says of one.
pub async fn cases_with_money(conn: &mut PgConnection, case_ids: &[i64]) -> Result<Vec<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- prepaid::cases_with_money
         SELECT c.case_id FROM payment_cases c JOIN payments p ON p.payment_id = c.payment_id
          WHERE c.case_id = ANY ($1) AND c.resolved_at IS NULL AND c.kind IN ('mismatch', 'refund_failed')
            AND p.performed_at IS NOT NULL AND p.cancelled_at IS NULL
            AND NOT EXISTS (SELECT FROM refund_tasks t
                             WHERE t.payment_id = p.payment_id AND t.confirmed_at IS NULL AND t.failed_at IS NULL)",
        case_ids,
    )
    .fetch_all(conn)
    .await?)
}

pub async fn resolve_case(
    conn: &mut PgConnection,
    case_id: i64,
    resolution: &Resolution,
    by: &str,
    note: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- prepaid::resolve_case
         UPDATE payment_cases SET resolved_at = $2, resolved_by = $3, resolution = $4, note = $5
          WHERE case_id = $1 AND resolved_at IS NULL",
        case_id,
        now,
        by,
        resolution.as_str(),
        note,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(Fault::new("a locked case was not there to be resolved")) }
}

pub async fn close_cases_of_payment(
    conn: &mut PgConnection,
    payment_id: i64,
    by: &str,
    note: &str,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    sqlx::query!(
        "-- prepaid::close_cases_of_payment
         UPDATE payment_cases SET resolved_at = $2, resolved_by = $3, resolution = 'closed', note = $4
          WHERE payment_id = $1 AND kind = 'refund_failed' AND resolved_at IS NULL",
        payment_id,
        now,
        by,
        note,
    )
    .execute(conn)
    .await?;
    Ok(())
}
