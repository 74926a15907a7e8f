//! Every statement about payments and orders.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::order::Order;
use super::{FiscalKind, Mode, NewPayment, Payment, PaymentKey, State};
use crate::fault::Fault;
use crate::ids::{ExternalId, OrderId, TenantId};
use crate::money::{CurrencyCode, MinorUnits};

/// The columns of a payment, as every query here returns them.
struct PaymentRow {
    payment_id: i64,
    mode: String,
    external_id: String,
    tenant_id: String,
    order_id: Option<String>,
    currency: String,
    amount: i64,
    account: String,
    external_created_at: DateTime<Utc>,
    created_at: DateTime<Utc>,
    performed_at: Option<DateTime<Utc>>,
    cancelled_at: Option<DateTime<Utc>>,
    cancel_reason: Option<i64>,
}

impl TryFrom<PaymentRow> for Payment {
    type Error = Fault;

    fn try_from(row: PaymentRow) -> Result<Self, Fault> {
        Ok(Self {
            payment_id: row.payment_id,
            mode: match row.mode.as_str() {
                "live" => Mode::Live,
                "test" => Mode::Test,
                _ => return Err(Fault::new("a stored payment's mode is neither live nor test")),
            },
            external_id: ExternalId::from_column(row.external_id)?,
            tenant_id: TenantId::from_column(row.tenant_id)?,
            order_id: row.order_id.map(OrderId::from_column).transpose()?,
            currency: CurrencyCode::from_column(row.currency)?,
            amount: MinorUnits::new(row.amount),
            account_as_received: row.account,
            external_created_at: row.external_created_at,
            created_at: row.created_at,
            state: State::from_columns(row.performed_at, row.cancelled_at, row.cancel_reason)?,
        })
    }
}

/// Runs one SELECT of payments whose columns are always the same.
macro_rules! select_payments {
    ($fetch:ident, $conn:expr, $name:literal, $rest:literal, $($argument:expr),+) => {
        sqlx::query_as!(
            PaymentRow,
            "-- payment::" + $name + "
             SELECT payment_id, mode, external_id, tenant_id, order_id, currency, amount,
                    account, external_created_at, created_at, performed_at, cancelled_at,
                    cancel_reason
               FROM payments " + $rest,
            $($argument),+
        )
        .$fetch($conn)
        .await?
    };
}

/// Locks a payment until the transaction ends.
pub async fn lock(conn: &mut PgConnection, key: &PaymentKey) -> Result<Option<Payment>, Fault> {
    select_payments!(
        fetch_optional,
        conn,
        "lock",
        "WHERE provider = $1 AND mode = $2 AND external_id = $3 FOR NO KEY UPDATE",
        key.provider,
        key.mode.as_str(),
        key.external_id.as_str()
    )
    .map(Payment::try_from)
    .transpose()
}

pub async fn lock_by_id(conn: &mut PgConnection, payment_id: i64) -> Result<Option<Payment>, Fault> {
    select_payments!(fetch_optional, conn, "lock_by_id", "WHERE payment_id = $1 FOR NO KEY UPDATE", payment_id)
        .map(Payment::try_from)
        .transpose()
}

/// A payment by our number, without a lock: for what only looks.
pub async fn find_by_id(conn: &mut PgConnection, payment_id: i64) -> Result<Option<Payment>, Fault> {
    select_payments!(fetch_optional, conn, "find_by_id", "WHERE payment_id = $1", payment_id)
        .map(Payment::try_from)
        .transpose()
}

pub async fn find(conn: &mut PgConnection, key: &PaymentKey) -> Result<Option<Payment>, Fault> {
    select_payments!(
        fetch_optional,
        conn,
        "find",
        "WHERE provider = $1 AND mode = $2 AND external_id = $3",
        key.provider,
        key.mode.as_str(),
        key.external_id.as_str()
    )
    .map(Payment::try_from)
    .transpose()
}

/// The payment of an order that is open or was successful; there is at most one.
pub async fn latest_of_order(
    conn: &mut PgConnection,
    order_id: &OrderId,
    mode: Mode,
) -> Result<Option<Payment>, Fault> {
    select_payments!(
        fetch_optional,
        conn,
        "latest_of_order",
        "WHERE order_id = $1 AND mode = $2 AND (cancelled_at IS NULL OR performed_at IS NOT NULL)",
        order_id.as_str(),
        mode.as_str()
    )
    .map(Payment::try_from)
    .transpose()
}

pub async fn lock_latest_of_order(
    conn: &mut PgConnection,
    order_id: &OrderId,
    mode: Mode,
) -> Result<Option<Payment>, Fault> {
    select_payments!(
        fetch_optional,
        conn,
        "lock_latest_of_order",
        "WHERE order_id = $1 AND mode = $2 AND (cancelled_at IS NULL OR performed_at IS NOT NULL) FOR NO KEY UPDATE",
        order_id.as_str(),
        mode.as_str()
    )
    .map(Payment::try_from)
    .transpose()
}

pub async fn list(
    conn: &mut PgConnection,
    provider: &str,
    mode: Mode,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<Vec<Payment>, Fault> {
    select_payments!(
        fetch_all,
        conn,
        "list",
        "WHERE provider = $1 AND mode = $2 AND external_created_at BETWEEN $3 AND $4
         ORDER BY external_created_at, payment_id",
        provider,
        mode.as_str(),
        from,
        to
    )
    .into_iter()
    .map(Payment::try_from)
    .collect()
}

/// Inserts a payment; `None` when its id is there already, after the transaction that put it there has ended.
pub async fn insert(
    conn: &mut PgConnection,
    new: &NewPayment,
    tenant_id: &TenantId,
    currency: &CurrencyCode,
    now: DateTime<Utc>,
) -> Result<Option<Payment>, Fault> {
    let order_id = match &new.account {
        super::AccountRef::Wallet(_) => None,
        super::AccountRef::Order(order_id) => Some(order_id.clone()),
    };
    let inserted = sqlx::query!(
        "-- payment::insert
         INSERT INTO payments (provider, mode, external_id, tenant_id, order_id, currency, amount, account,
                               external_created_at, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT ON CONSTRAINT payments_external_id_key DO NOTHING
         RETURNING payment_id",
        new.key.provider,
        new.key.mode.as_str(),
        new.key.external_id.as_str(),
        tenant_id.as_str(),
        order_id.as_ref().map(OrderId::as_str),
        currency.as_str(),
        new.amount.get(),
        new.account_as_received,
        new.external_created_at,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(inserted.map(|row| Payment {
        payment_id: row.payment_id,
        mode: new.key.mode,
        external_id: new.key.external_id.clone(),
        tenant_id: tenant_id.clone(),
        order_id,
        currency: currency.clone(),
        amount: new.amount,
        account_as_received: new.account_as_received.clone(),
        external_created_at: new.external_created_at,
        created_at: now,
        state: State::Created,
    }))
}

/// Keeps what else the account of a new payment said. The values are distinct.
pub async fn insert_account_values(conn: &mut PgConnection, payment_id: i64, values: &[String]) -> Result<(), Fault> {
    sqlx::query!(
        "-- payment::insert_account_values
         INSERT INTO payment_account_values (value, payment_id) SELECT value, $2 FROM unnest($1::text[]) AS value",
        values,
        payment_id,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a live payment is of.
pub struct Money {
    pub tenant_id: TenantId,
    pub currency: CurrencyCode,
    pub amount: MinorUnits,
    /// Whether it was cancelled, before or after it was performed.
    pub cancelled: bool,
}

/// The live payments of these names, in the order of the names.
pub async fn find_live(
    conn: &mut PgConnection,
    providers: &[String],
    external_ids: &[String],
) -> Result<Vec<Option<Money>>, Fault> {
    sqlx::query!(
        r#"-- payment::find_live
           SELECT p.tenant_id AS "tenant_id?", p.currency AS "currency?", p.amount AS "amount?",
                  (p.cancelled_at IS NOT NULL) AS "cancelled!"
             FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS named (provider, external_id, place)
             LEFT JOIN payments p
               ON p.provider = named.provider AND p.external_id = named.external_id AND p.mode = 'live'
            ORDER BY named.place"#,
        providers,
        external_ids,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| match (row.tenant_id, row.currency, row.amount) {
        (Some(tenant_id), Some(currency), Some(amount)) => Ok(Some(Money {
            tenant_id: TenantId::from_column(tenant_id)?,
            currency: CurrencyCode::from_column(currency)?,
            amount: MinorUnits::new(amount),
            cancelled: row.cancelled,
        })),
        _ => Ok(None),
    })
    .collect()
}

pub async fn set_performed(conn: &mut PgConnection, payment_id: i64, at: DateTime<Utc>) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- payment::set_performed
         UPDATE payments SET performed_at = $2
          WHERE payment_id = $1 AND performed_at IS NULL AND cancelled_at IS NULL",
        payment_id,
        at,
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

pub async fn set_cancelled(
    conn: &mut PgConnection,
    payment_id: i64,
    at: DateTime<Utc>,
    reason: i64,
) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- payment::set_cancelled
         UPDATE payments SET cancelled_at = $2, cancel_reason = $3
          WHERE payment_id = $1 AND cancelled_at IS NULL",
        payment_id,
        at,
        reason,
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}

fn expect_one(rows: u64) -> Result<(), Fault> {
    if rows == 1 { Ok(()) } else { Err(Fault::new("a locked row was not there to be updated")) }
}

/// The open payments promised before a moment, in pages of 200 by our id.
pub async fn list_open_before(
    conn: &mut PgConnection,
    provider: &str,
    before: DateTime<Utc>,
    after_id: i64,
) -> Result<Vec<i64>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- payment::list_open_before
         SELECT payment_id FROM payments
          WHERE provider = $1 AND external_created_at < $2 AND payment_id > $3
            AND performed_at IS NULL AND cancelled_at IS NULL
          ORDER BY payment_id LIMIT 200",
        provider,
        before,
        after_id,
    )
    .fetch_all(conn)
    .await?)
}

pub async fn insert_fiscal_receipt(
    conn: &mut PgConnection,
    key: &PaymentKey,
    kind: FiscalKind,
    receipt: &str,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    Ok(sqlx::query_scalar!(
        r#"-- payment::insert_fiscal_receipt
           WITH payment AS (
               SELECT payment_id FROM payments WHERE provider = $1 AND mode = $2 AND external_id = $3
           ), kept AS (
               INSERT INTO payment_fiscal_receipts (payment_id, kind, receipt, received_at)
               SELECT payment_id, $4, $5, $6 FROM payment
                   ON CONFLICT ON CONSTRAINT payment_fiscal_receipts_pkey DO NOTHING
           )
           SELECT EXISTS (SELECT FROM payment) AS "known!""#,
        key.provider,
        key.mode.as_str(),
        key.external_id.as_str(),
        kind.as_str(),
        receipt,
        now,
    )
    .fetch_one(conn)
    .await?)
}

pub async fn tenant_status(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Option<String>, Fault> {
    Ok(sqlx::query_scalar!(
        "-- payment::tenant_status
         SELECT status FROM tenants WHERE tenant_id = $1",
        tenant_id.as_str()
    )
    .fetch_optional(conn)
    .await?)
}

struct OrderRow {
    order_id: String,
    tenant_id: String,
    currency: String,
    amount: i64,
    title: String,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    closed_at: Option<DateTime<Utc>>,
    slot_id: Option<i64>,
    payer: Option<String>,
}

impl TryFrom<OrderRow> for Order {
    type Error = Fault;

    fn try_from(row: OrderRow) -> Result<Self, Fault> {
        Ok(Self {
            order_id: OrderId::from_column(row.order_id)?,
            tenant_id: TenantId::from_column(row.tenant_id)?,
            currency: CurrencyCode::from_column(row.currency)?,
            amount: MinorUnits::new(row.amount),
            title: row.title,
            created_at: row.created_at,
            expires_at: row.expires_at,
            closed_at: row.closed_at,
            slot_id: row.slot_id,
            payer: row.payer,
        })
    }
}

/// Inserts an order; `false` when its id is there already.
pub async fn insert_order(conn: &mut PgConnection, order: &Order) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- payment::insert_order
         INSERT INTO orders (order_id, tenant_id, currency, amount, title, created_at, expires_at, slot_id, payer)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT ON CONSTRAINT orders_pkey DO NOTHING",
        order.order_id.as_str(),
        order.tenant_id.as_str(),
        order.currency.as_str(),
        order.amount.get(),
        order.title,
        order.created_at,
        order.expires_at,
        order.slot_id,
        order.payer,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn find_order(conn: &mut PgConnection, order_id: &OrderId) -> Result<Option<Order>, Fault> {
    sqlx::query_as!(
        OrderRow,
        "-- payment::find_order
         SELECT order_id, tenant_id, currency, amount, title, created_at, expires_at, closed_at, slot_id, payer
           FROM orders WHERE order_id = $1",
        order_id.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(Order::try_from)
    .transpose()
}

/// Locks an order until the transaction ends; its payments are looked at after that, in another statement.
pub async fn lock_order(conn: &mut PgConnection, order_id: &OrderId) -> Result<Option<Order>, Fault> {
    sqlx::query_as!(
        OrderRow,
        "-- payment::lock_order
         SELECT order_id, tenant_id, currency, amount, title, created_at, expires_at, closed_at, slot_id, payer
           FROM orders WHERE order_id = $1 FOR NO KEY UPDATE",
        order_id.as_str(),
    )
    .fetch_optional(conn)
    .await?
    .map(Order::try_from)
    .transpose()
}

pub async fn set_order_closed(conn: &mut PgConnection, order_id: &OrderId, at: DateTime<Utc>) -> Result<(), Fault> {
    let done = sqlx::query!(
        "-- payment::set_order_closed
         UPDATE orders SET closed_at = $2 WHERE order_id = $1 AND closed_at IS NULL",
        order_id.as_str(),
        at,
    )
    .execute(conn)
    .await?;
    expect_one(done.rows_affected())
}
