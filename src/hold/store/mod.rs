//! The statements about holds. Whoever changes one holds its wallet's lock, but for the note that somebody waits.

pub mod catalogue;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::state::HoldEnd;
use super::usage::{Call, Metered};
use super::{Ask, Asked, EndedBy, Hold, HoldId, Part};
use crate::fault::Fault;
use crate::ids::{Actor, Pocket, TenantId};
use crate::money::{Currency, CurrencyCode, Exponent, MinorUnits};

/// What is known of a tenant when a hold is placed.
pub struct TenantFacts {
    pub status: String,
    pub has_allowances: bool,
    pub is_paying: bool,
    pub price_version: Option<i32>,
    pub tier_amount: Option<MinorUnits>,
}

/// Locks the tenant, behind the lock of the wallet, so that its jobs are counted one after the other also when they
/// are paid from different wallets. The prices are read on the way: which list is the newest is nobody's race.
pub async fn lock_tenant(conn: &mut PgConnection, ask: &Ask, now: DateTime<Utc>) -> Result<TenantFacts, Fault> {
    let tier = match &ask.asked {
        Asked::Amount(_) => None,
        Asked::Tier(tier) => Some(tier.as_str()),
    };
    let row = sqlx::query!(
        r#"-- hold::lock_tenant
           SELECT t.status,
                  EXISTS (SELECT FROM allowance_assignments a WHERE a.tenant_id = t.tenant_id)
                  OR EXISTS (SELECT FROM subscriptions s JOIN allowance_assignments a ON a.plan_id = s.plan_id
                              WHERE s.tenant_id = t.tenant_id) AS "has_allowances!",
                  EXISTS (SELECT FROM subscriptions s
                           WHERE s.tenant_id = t.tenant_id
                             AND s.started_on <= ($4::timestamptz AT TIME ZONE t.time_zone)::date
                             AND (s.ended_on IS NULL OR s.ended_on >= ($4::timestamptz AT TIME ZONE t.time_zone)::date))
                  AND NOT EXISTS (SELECT FROM dues d WHERE d.tenant_id = t.tenant_id AND d.charged_at IS NULL)
                      AS "is_paying!",
                  (SELECT max(version) FROM price_books) AS price_version,
                  (SELECT h.amount FROM hold_tiers h WHERE h.tier = $2 AND h.currency = $3
                    ORDER BY h.hold_tier_id DESC LIMIT 1) AS tier_amount
             FROM tenants t WHERE t.tenant_id = $1
              FOR NO KEY UPDATE OF t"#,
        ask.tenant_id.as_str(),
        tier,
        ask.currency.as_str(),
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(TenantFacts {
        status: row.status,
        has_allowances: row.has_allowances,
        is_paying: row.is_paying,
        price_version: row.price_version,
        tier_amount: row.tier_amount.map(MinorUnits::new),
    })
}

/// A hold as its columns are.
struct Row {
    hold_id: String,
    tenant_id: String,
    currency: String,
    asked: String,
    amount: i64,
    pockets: Vec<String>,
    pocket_amounts: Vec<i64>,
    cost_cap: i64,
    tier: Option<String>,
    price_version: Option<i32>,
    queue: String,
    ttl_secs: i32,
    placed_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    lease_until: Option<DateTime<Utc>>,
    started_at: Option<DateTime<Utc>>,
    cancel_asked_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    outcome: Option<String>,
    charged: Option<i64>,
    ended_by: Option<String>,
    end_asked: Option<String>,
    session: Option<String>,
    dedupe_key: Option<String>,
    used_micro: i64,
    largest_call_micro: i64,
    calls: i64,
}

impl TryFrom<Row> for Hold {
    type Error = Fault;

    fn try_from(row: Row) -> Result<Self, Fault> {
        let end = match (row.ended_at, row.outcome, row.charged, row.ended_by, row.end_asked) {
            (Some(at), Some(outcome), Some(charged), Some(by), Some(asked)) => Some(HoldEnd {
                at,
                settled: outcome == "settled",
                charged: MinorUnits::new(charged),
                by: EndedBy::from_column(&by)?,
                asked,
            }),
            _ => None,
        };
        let parts = row.pockets.into_iter().zip(row.pocket_amounts);
        Ok(Self {
            hold_id: HoldId::from_column(row.hold_id)?,
            tenant_id: TenantId::from_column(row.tenant_id)?,
            currency: CurrencyCode::from_column(row.currency)?,
            asked: row.asked,
            amount: MinorUnits::new(row.amount),
            parts: parts
                .map(|(pocket, amount)| {
                    Ok(Part { pocket: Pocket::from_column(pocket)?, amount: MinorUnits::new(amount) })
                })
                .collect::<Result<_, Fault>>()?,
            cost_cap: MinorUnits::new(row.cost_cap),
            tier: row.tier,
            price_version: row.price_version,
            queue: row.queue,
            ttl_secs: row.ttl_secs,
            placed_at: row.placed_at,
            expires_at: row.expires_at,
            lease_until: row.lease_until,
            started_at: row.started_at,
            cancel_asked_at: row.cancel_asked_at,
            end,
            used_micro: row.used_micro,
            largest_call_micro: row.largest_call_micro,
            calls: row.calls,
            session: row.session,
            dedupe_key: row.dedupe_key,
        })
    }
}

/// Every statement that reads whole holds, with their usage summed up.
macro_rules! select_holds {
    ($name:literal, $from:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            "-- hold::" + $name + "\n" + r#"SELECT h.hold_id, h.tenant_id, h.currency, h.asked, h.amount, h.pockets, h.pocket_amounts, h.cost_cap,
                      h.tier, h.price_version, h.queue, h.ttl_secs, h.placed_at, h.expires_at, h.lease_until,
                      h.started_at, h.cancel_asked_at, h.ended_at, h.outcome, h.charged, h.ended_by, h.end_asked,
                      h.session, h.dedupe_key, u.micro AS "used_micro!",
                      u.largest AS "largest_call_micro!", u.calls AS "calls!"
                 FROM (SELECT * FROM holds WHERE "#
                + $from
                + r#") h
                CROSS JOIN LATERAL (SELECT coalesce(sum(cost_micro), 0)::bigint AS micro,
                                           coalesce(max(cost_micro), 0) AS largest, count(*) AS calls
                                      FROM hold_usage WHERE hold_id = h.hold_id) u
                ORDER BY h.placed_at DESC, h.hold_id DESC"#,
            $($argument),+
        )
    };
}

pub async fn find(conn: &mut PgConnection, hold_id: &HoldId) -> Result<Option<Hold>, Fault> {
    select_holds!("find", "hold_id = $1", hold_id.as_str()).fetch_optional(conn).await?.map(Hold::try_from).transpose()
}

/// Which holds.
#[derive(Debug, Clone, Default)]
pub struct HoldQuery {
    /// Only this tenant's.
    pub tenant_id: Option<TenantId>,
    /// Only those that haven't ended.
    pub unended: bool,
    /// Only those placed before this one.
    pub before: Option<(DateTime<Utc>, String)>,
    /// At most so many.
    pub limit: i64,
}

/// Holds, the newest first.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection, query: &HoldQuery) -> Result<Vec<Hold>, Fault> {
    let (before_at, before_id) = match &query.before {
        Some((at, id)) => (Some(*at), Some(id.as_str())),
        None => (None, None),
    };
    select_holds!(
        "list",
        "($1::text IS NULL OR tenant_id = $1) AND (NOT $2::boolean OR ended_at IS NULL)
           AND ($3::timestamptz IS NULL OR (placed_at, hold_id) < ($3, $4::text))
         ORDER BY placed_at DESC, hold_id DESC LIMIT $5",
        query.tenant_id.as_ref().map(TenantId::as_str),
        query.unended,
        before_at,
        before_id,
        query.limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(Hold::try_from)
    .collect()
}

pub async fn wallet_of(conn: &mut PgConnection, hold_id: &HoldId) -> Result<Option<(TenantId, CurrencyCode)>, Fault> {
    sqlx::query!("-- hold::wallet_of\nSELECT tenant_id, currency FROM holds WHERE hold_id = $1", hold_id.as_str())
        .fetch_optional(conn)
        .await?
        .map(|row| Ok((TenantId::from_column(row.tenant_id)?, CurrencyCode::from_column(row.currency)?)))
        .transpose()
}

/// A currency, which is there when a hold is in it.
pub async fn currency(conn: &mut PgConnection, code: &CurrencyCode) -> Result<Currency, Fault> {
    let exponent =
        sqlx::query_scalar!("-- hold::currency\nSELECT exponent FROM currencies WHERE code = $1", code.as_str())
            .fetch_one(conn)
            .await?;
    Ok(Currency { code: code.clone(), exponent: Exponent::from_column(exponent)? })
}

/// What is known of a hold that hasn't ended.
#[derive(Debug, Clone)]
pub struct Unended {
    pub hold_id: HoldId,
    pub wallet_id: i64,
    pub amount: MinorUnits,
    pub used_micro: i64,
    pub session: Option<String>,
    pub dedupe_key: Option<String>,
    pub expires_at: DateTime<Utc>,
    pub lease_until: Option<DateTime<Utc>>,
    /// Its worker is asked to stop: it has left its session, and is no double of anything.
    pub is_asked_to_stop: bool,
}

impl Unended {
    pub fn is_live(&self, now: DateTime<Utc>) -> bool {
        self.expires_at > now || self.lease_until.is_some_and(|until| until > now)
    }
}

/// A tenant's holds that haven't ended; however many old ones there are, these are few.
pub async fn unended_of_tenant(conn: &mut PgConnection, tenant_id: &TenantId) -> Result<Vec<Unended>, Fault> {
    sqlx::query!(
        r#"-- hold::unended_of_tenant
           SELECT h.hold_id, h.wallet_id, h.amount, h.session, h.dedupe_key, h.expires_at, h.lease_until,
                  h.cancel_asked_at IS NOT NULL AS "is_asked_to_stop!",
                  (SELECT coalesce(sum(u.cost_micro), 0)::bigint FROM hold_usage u WHERE u.hold_id = h.hold_id)
                      AS "used_micro!"
             FROM holds h WHERE h.tenant_id = $1 AND h.ended_at IS NULL
            ORDER BY h.placed_at, h.hold_id"#,
        tenant_id.as_str(),
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Unended {
            hold_id: HoldId::from_column(row.hold_id)?,
            wallet_id: row.wallet_id,
            amount: MinorUnits::new(row.amount),
            used_micro: row.used_micro,
            session: row.session,
            dedupe_key: row.dedupe_key,
            expires_at: row.expires_at,
            lease_until: row.lease_until,
            is_asked_to_stop: row.is_asked_to_stop,
        })
    })
    .collect()
}

/// The newest hold with the job's fingerprint that was placed after a moment, and neither released nor asked to stop;
/// with a session, of that session.
pub async fn fingerprint_since(
    conn: &mut PgConnection,
    ask: &Ask,
    since: DateTime<Utc>,
) -> Result<Option<HoldId>, Fault> {
    let Some(fingerprint) = &ask.fingerprint else { return Ok(None) };
    sqlx::query_scalar!(
        "-- hold::fingerprint_since
         SELECT hold_id FROM holds
          WHERE tenant_id = $1 AND fingerprint = $2 AND placed_at > $3 AND ($4::text IS NULL OR session = $4)
            AND outcome IS DISTINCT FROM 'released' AND cancel_asked_at IS NULL
          ORDER BY placed_at DESC LIMIT 1",
        ask.tenant_id.as_str(),
        fingerprint,
        since,
        ask.session,
    )
    .fetch_optional(conn)
    .await?
    .map(HoldId::from_column)
    .transpose()
}

/// What is decided about a new hold.
#[derive(Debug)]
pub struct NewHold {
    pub amount: MinorUnits,
    pub parts: Vec<Part>,
    pub cost_cap: MinorUnits,
    pub price_version: Option<i32>,
    pub queue: &'static str,
    pub ttl_secs: i32,
    pub expires_at: DateTime<Utc>,
}

impl NewHold {
    /// The hold as it stands now.
    pub fn into_hold(self, ask: &Ask, now: DateTime<Utc>) -> Hold {
        Hold {
            hold_id: ask.hold_id.clone(),
            tenant_id: ask.tenant_id.clone(),
            currency: ask.currency.clone(),
            asked: ask.canonical().to_string(),
            amount: self.amount,
            parts: self.parts,
            cost_cap: self.cost_cap,
            tier: tier_of(ask),
            price_version: self.price_version,
            queue: self.queue.to_owned(),
            ttl_secs: self.ttl_secs,
            placed_at: now,
            expires_at: self.expires_at,
            lease_until: None,
            started_at: None,
            cancel_asked_at: None,
            end: None,
            used_micro: 0,
            largest_call_micro: 0,
            calls: 0,
            session: ask.session.clone(),
            dedupe_key: ask.dedupe_key.clone(),
        }
    }
}

fn tier_of(ask: &Ask) -> Option<String> {
    match &ask.asked {
        Asked::Amount(_) => None,
        Asked::Tier(tier) => Some(tier.clone()),
    }
}

/// Inserts a hold; `false` when its id is taken.
pub async fn insert(
    conn: &mut PgConnection,
    ask: &Ask,
    new: &NewHold,
    wallet_id: i64,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let pockets: Vec<String> = new.parts.iter().map(|part| part.pocket.to_string()).collect();
    let amounts: Vec<i64> = new.parts.iter().map(|part| part.amount.get()).collect();
    let inserted = sqlx::query!(
        "-- hold::insert
         INSERT INTO holds (hold_id, tenant_id, wallet_id, currency, asked, amount, pockets, pocket_amounts, cost_cap, tier,
                            price_version, session, dedupe_key, fingerprint, queue, ttl_secs, placed_by, placed_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
             ON CONFLICT ON CONSTRAINT holds_pkey DO NOTHING",
        ask.hold_id.as_str(),
        ask.tenant_id.as_str(),
        wallet_id,
        ask.currency.as_str(),
        ask.canonical().to_string(),
        new.amount.get(),
        &pockets,
        &amounts,
        new.cost_cap.get(),
        tier_of(ask),
        new.price_version,
        ask.session,
        ask.dedupe_key,
        ask.fingerprint,
        new.queue,
        new.ttl_secs,
        actor.as_str(),
        now,
        new.expires_at,
    )
    .execute(conn)
    .await?
    .rows_affected();
    Ok(inserted == 1)
}

/// Writes a hold's times of life.
pub async fn set_lease(conn: &mut PgConnection, hold: &Hold) -> Result<(), Fault> {
    expect_one(
        sqlx::query!(
            "-- hold::set_lease
             UPDATE holds SET started_at = $2, lease_until = $3, expires_at = $4 WHERE hold_id = $1 AND ended_at IS NULL",
            hold.hold_id.as_str(),
            hold.started_at,
            hold.lease_until,
            hold.expires_at,
        )
        .execute(conn)
        .await?
        .rows_affected(),
    )
}

pub async fn set_cancel_asked(conn: &mut PgConnection, hold_id: &HoldId, now: DateTime<Utc>) -> Result<(), Fault> {
    expect_one(
        sqlx::query!(
            "-- hold::set_cancel_asked
             UPDATE holds SET cancel_asked_at = $2 WHERE hold_id = $1 AND ended_at IS NULL",
            hold_id.as_str(),
            now,
        )
        .execute(conn)
        .await?
        .rows_affected(),
    )
}

pub async fn set_ended(conn: &mut PgConnection, hold_id: &HoldId, end: &HoldEnd) -> Result<(), Fault> {
    expect_one(
        sqlx::query!(
            "-- hold::set_ended
             UPDATE holds SET ended_at = $2, outcome = $3, charged = $4, ended_by = $5, end_asked = $6
              WHERE hold_id = $1 AND ended_at IS NULL",
            hold_id.as_str(),
            end.at,
            if end.settled { "settled" } else { "released" },
            end.charged.get(),
            end.by.as_str(),
            end.asked,
        )
        .execute(conn)
        .await?
        .rows_affected(),
    )
}

fn expect_one(rows: u64) -> Result<(), Fault> {
    if rows == 1 { Ok(()) } else { Err(Fault::new("a hold under its wallet's lock was not there to change")) }
}

/// Holds whose time is over, the oldest first, after one.
pub async fn expired(
    conn: &mut PgConnection,
    now: DateTime<Utc>,
    after: Option<&(DateTime<Utc>, HoldId)>,
    limit: i64,
) -> Result<Vec<(DateTime<Utc>, HoldId)>, Fault> {
    let (after_at, after_id) = match after {
        Some((at, id)) => (Some(*at), Some(id.as_str())),
        None => (None, None),
    };
    sqlx::query!(
        "-- hold::expired
         SELECT expires_at, hold_id FROM holds
          WHERE ended_at IS NULL AND expires_at <= $1
            AND ($2::timestamptz IS NULL OR (expires_at, hold_id) > ($2, $3::text))
          ORDER BY expires_at, hold_id LIMIT $4",
        now,
        after_at,
        after_id,
        limit,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| Ok((row.expires_at, HoldId::from_column(row.hold_id)?)))
    .collect()
}

/// Notes of holds that still wait since a moment that their owners hear so. A hold that somebody is ending or starting
/// right now is passed over: it doesn't wait any more.
pub async fn note_waiting(
    conn: &mut PgConnection,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Hold>, Fault> {
    let noted: Vec<String> = sqlx::query_scalar!(
        "-- hold::note_waiting
         UPDATE holds SET waiting_told_at = $2
          WHERE hold_id IN (SELECT hold_id FROM holds
                             WHERE ended_at IS NULL AND started_at IS NULL AND waiting_told_at IS NULL
                               AND placed_at <= $1 AND expires_at > $2
                             ORDER BY placed_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
         RETURNING hold_id",
        since,
        now,
        limit,
    )
    .fetch_all(&mut *conn)
    .await?;
    if noted.is_empty() {
        return Ok(Vec::new());
    }
    select_holds!("find_all", "hold_id = ANY ($1)", &noted)
        .fetch_all(conn)
        .await?
        .into_iter()
        .map(Hold::try_from)
        .collect()
}

/// A call as it was logged.
pub struct LoggedCall {
    pub model: Option<String>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub cached_tokens: Option<i64>,
    pub cost_micro: i64,
}

impl LoggedCall {
    /// In which fields the same call is reported differently.
    pub fn differences(&self, call: &Call) -> Vec<&'static str> {
        let (model, input, output, cached) = tokens(&call.metered);
        let cost_same = match call.metered {
            Metered::CostMicro(cost_micro) => self.cost_micro == cost_micro,
            Metered::Tokens { .. } => true,
        };
        [
            ("model", self.model.as_deref() == model),
            ("input_tokens", self.input_tokens == input),
            ("output_tokens", self.output_tokens == output),
            ("cached_tokens", self.cached_tokens == cached),
            ("cost_micro", cost_same),
        ]
        .into_iter()
        .filter_map(|(field, same)| (!same).then_some(field))
        .collect()
    }
}

fn tokens(metered: &Metered) -> (Option<&str>, Option<i64>, Option<i64>, Option<i64>) {
    match metered {
        Metered::Tokens { model, input, output, cached } => (Some(model), Some(*input), Some(*output), Some(*cached)),
        Metered::CostMicro(_) => (None, None, None, None),
    }
}

pub async fn find_call(conn: &mut PgConnection, hold_id: &HoldId, call_id: &str) -> Result<Option<LoggedCall>, Fault> {
    Ok(sqlx::query_as!(
        LoggedCall,
        "-- hold::find_call
         SELECT model, input_tokens, output_tokens, cached_tokens, cost_micro
           FROM hold_usage WHERE hold_id = $1 AND call_id = $2",
        hold_id.as_str(),
        call_id,
    )
    .fetch_optional(conn)
    .await?)
}

pub async fn insert_call(
    conn: &mut PgConnection,
    hold_id: &HoldId,
    call: &Call,
    cost_micro: i64,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    let (model, input, output, cached) = tokens(&call.metered);
    sqlx::query!(
        "-- hold::insert_call
         INSERT INTO hold_usage (hold_id, call_id, model, input_tokens, output_tokens, cached_tokens, cost_micro, recorded_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        hold_id.as_str(),
        call.call_id,
        model,
        input,
        output,
        cached,
        cost_micro,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
