//! Allowances: what a tenant gets again and again without paying.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use super::plans::PlanInPath;
use crate::allowance::{self, Allowance, Filled, Owner};
use crate::fault::Fault;
use crate::http::error::Problem;
use crate::http::extract::{
    Caller, HoldsConfigure, HoldsWrite, Json, LedgerRead, Named, NoParameters, OptionalJson, Query,
};
use crate::ids::TenantId;
use crate::money::{Currency, MinorUnits};
use crate::tenant::{self, TimeZone};

/// The longest rolling window: a year.
const WINDOW_SECS_MAX: i32 = 31_536_000;
/// The most a cycle is filled with. Nobody's balance comes near what the ledger can hold by it, so a fill, which comes
/// with somebody's hold, is never refused.
const AMOUNT_MAX: MinorUnits = MinorUnits::new(1_000_000_000_000_000);
/// The window when none is said: a day.
const WINDOW_SECS: i32 = 86_400;

/// How much for whom.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowanceTier {
    /// Its name.
    #[schema(example = "account")]
    pub tier: String,
    /// How much a cycle is filled with.
    #[schema(example = "2000")]
    pub amount: String,
}

/// An allowance to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAllowance {
    /// The product's own id, which begins the names of its pockets: 1 to 32 of a-z 0-9 _ -
    #[schema(example = "daily")]
    pub allowance_id: String,
    /// In which currency.
    #[schema(example = "CREDIT")]
    pub currency: String,
    /// rolling or calendar_day.
    #[schema(example = "rolling")]
    pub window: String,
    /// How long a rolling window lasts, in seconds; a day when left out.
    pub window_secs: Option<i64>,
    /// The zone of a calendar day; the tenant's own when left out.
    pub time_zone: Option<String>,
    /// 0 to 1000, lower is spent earlier among pockets that end at the same time; 100 when left out.
    pub priority: Option<i16>,
    /// How much for whom.
    pub tiers: Vec<AllowanceTier>,
}

/// An allowance.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllowanceBody {
    /// The product's own id.
    pub allowance_id: String,
    /// In which currency.
    pub currency: String,
    /// rolling or calendar_day.
    pub window: String,
    /// How long a rolling window lasts, in seconds.
    pub window_secs: Option<i32>,
    /// The zone of a calendar day; null is the tenant's own.
    pub time_zone: Option<String>,
    /// Lower is spent earlier.
    pub priority: i16,
    /// How much for whom.
    pub tiers: Vec<AllowanceTier>,
}

/// The allowances.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllowanceList {
    /// All of them.
    pub items: Vec<AllowanceBody>,
}

/// Who gets it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Which allowance.
    #[schema(example = "daily")]
    pub allowance_id: String,
    /// Which of its tiers; null takes it away.
    #[schema(example = "account")]
    pub tier: Option<String>,
}

/// Nothing is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActivityBody {}

/// What was filled.
#[derive(Debug, Serialize, ToSchema)]
pub struct FilledBody {
    /// Which allowance.
    pub allowance_id: String,
    /// In which currency.
    pub currency: String,
    /// Into which pocket.
    pub pocket: String,
    /// How much.
    pub amount: String,
    /// Until when it is there.
    pub expires_at: Option<DateTime<Utc>>,
}

/// What activity filled.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActivityResult {
    /// One for each allowance that was due; none on most calls.
    pub filled: Vec<FilledBody>,
}

/// A tier's name.
pub fn tier_name(name: &str, tier: String) -> Result<String, Problem> {
    let shape = !tier.is_empty()
        && tier.len() <= 64
        && tier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    if shape {
        Ok(tier)
    } else {
        Err(Problem::invalid_field(name, "must be 1 to 64 characters of A-Z a-z 0-9 . _ : -"))
    }
}

fn allowance_name(id: String) -> Result<String, Problem> {
    let shape = id.len() <= 32
        && id.bytes().next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte));
    if shape {
        Ok(id)
    } else {
        let rule = "must be 1 to 32 characters of a-z 0-9 _ -, beginning with a letter or digit";
        Err(Problem::invalid_field("allowance_id", rule))
    }
}

impl AllowanceBody {
    fn new(allowance: &Allowance, currency: &Currency) -> Self {
        Self {
            allowance_id: allowance.allowance_id.clone(),
            currency: allowance.currency.to_string(),
            window: if allowance.window_secs.is_some() { "rolling" } else { "calendar_day" }.to_owned(),
            window_secs: allowance.window_secs,
            time_zone: allowance.time_zone.map(|zone| zone.as_str().to_owned()),
            priority: allowance.priority,
            tiers: allowance
                .tiers
                .iter()
                .map(|(tier, amount)| AllowanceTier { tier: tier.clone(), amount: amount.to_text(currency.exponent) })
                .collect(),
        }
    }
}

/// Makes an allowance. The same again is answered the same.
#[utoipa::path(post, path = "/v1/allowances", tag = "holds", request_body = NewAllowance,
    responses((status = 201, body = AllowanceBody), (status = 200, description = "It was there", body = AllowanceBody),
        (status = 404, description = "currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "allowance_differs", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<HoldsConfigure>,
    _: Query<NoParameters>,
    json: Json<NewAllowance>,
) -> Result<(StatusCode, axum::Json<AllowanceBody>), Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", &body.currency).await?;
    let window_secs = super::seconds("window_secs", body.window_secs, WINDOW_SECS_MAX)?;
    let (window_secs, time_zone) = match body.window.as_str() {
        "rolling" if body.time_zone.is_some() => {
            return Err(Problem::invalid_field("time_zone", "belongs to calendar_day only"));
        }
        "rolling" => (Some(window_secs.unwrap_or(WINDOW_SECS)), None),
        "calendar_day" if window_secs.is_some() => {
            return Err(Problem::invalid_field("window_secs", "belongs to rolling only"));
        }
        "calendar_day" => {
            let zone = body.time_zone.as_deref().map(|zone| super::field("time_zone", TimeZone::parse(zone)));
            (None, zone.transpose()?)
        }
        _ => return Err(Problem::invalid_field("window", "must be rolling or calendar_day")),
    };
    let priority = body.priority.unwrap_or(100);
    if !(0..=1000).contains(&priority) {
        return Err(Problem::invalid_field("priority", "must be 0 to 1000"));
    }
    if body.tiers.is_empty() || body.tiers.len() > 100 {
        return Err(Problem::invalid_field("tiers", "must have 1 to 100 items"));
    }
    let mut tiers = std::collections::BTreeMap::new();
    for (index, tier) in body.tiers.into_iter().enumerate() {
        let at = |name: &str| format!("tiers[{index}].{name}");
        let amount = super::amount(&at("amount"), &tier.amount, &currency)?;
        if !amount.is_positive() || amount > AMOUNT_MAX {
            return Err(Problem::invalid_field(
                &at("amount"),
                "must be positive, and at most a thousand million million of the smallest unit",
            ));
        }
        if tiers.insert(tier_name(&at("tier"), tier.tier)?, amount).is_some() {
            return Err(Problem::invalid_field(&at("tier"), "stands in this allowance twice"));
        }
    }
    let allowance = &Allowance {
        allowance_id: allowance_name(body.allowance_id)?,
        currency: currency.code.clone(),
        window_secs,
        time_zone,
        priority,
        tiers: tiers.into_iter().collect(),
    };
    let now = caller.app.clock.now();
    let new = caller
        .db()
        .run("allowance_create", |conn| async move { allowance::create(conn, allowance, now).await }.scope_boxed())
        .await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(AllowanceBody::new(allowance, &currency))))
}

/// Lists the allowances.
#[utoipa::path(get, path = "/v1/allowances", tag = "holds", responses((status = 200, body = AllowanceList)))]
pub async fn list(caller: Caller<LedgerRead>, _: Query<NoParameters>) -> Result<axum::Json<AllowanceList>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let allowances = allowance::list(&mut conn).await?;
    drop(conn);
    let mut items = Vec::with_capacity(allowances.len());
    for allowance in &allowances {
        let currency = super::currency(&caller.app, "currency", allowance.currency.as_str()).await?;
        items.push(AllowanceBody::new(allowance, &currency));
    }
    Ok(axum::Json(AllowanceList { items }))
}

async fn assign(
    caller: &Caller<HoldsConfigure>,
    owner: Owner,
    body: Assignment,
) -> Result<axum::Json<Assignment>, Problem> {
    let body = Assignment {
        allowance_id: allowance_name(body.allowance_id)?,
        tier: body.tier.map(|tier| tier_name("tier", tier)).transpose()?,
    };
    let (owner, assignment, now) = (&owner, &body, caller.app.clock.now());
    caller
        .db()
        .run("allowance_assign", |conn| {
            async move {
                allowance::assign(conn, owner, &assignment.allowance_id, assignment.tier.as_deref(), now).await
            }
            .scope_boxed()
        })
        .await?;
    Ok(axum::Json(body))
}

/// Gives a tenant an allowance, or takes it away. It applies from the next fill on.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/allowances", tag = "holds", params(("tenant_id" = String, Path)),
    request_body = Assignment,
    responses((status = 200, body = Assignment),
        (status = 404, description = "tenant_not_found, allowance_not_found, tier_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn assign_to_tenant(
    caller: Caller<HoldsConfigure>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    json: Json<Assignment>,
) -> Result<axum::Json<Assignment>, Problem> {
    assign(&caller, Owner::Tenant(tenant_id), json.body).await
}

/// Gives everybody with a running subscription to a plan an allowance, or takes it away.
#[utoipa::path(post, path = "/v1/plans/{plan_id}/allowances", tag = "holds", params(("plan_id" = String, Path)),
    request_body = Assignment,
    responses((status = 200, body = Assignment),
        (status = 404, description = "plan_not_found, allowance_not_found, tier_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn assign_to_plan(
    caller: Caller<HoldsConfigure>,
    _: Query<NoParameters>,
    Named(PlanInPath(plan_id)): Named<PlanInPath>,
    json: Json<Assignment>,
) -> Result<axum::Json<Assignment>, Problem> {
    assign(&caller, Owner::Plan(plan_id), json.body).await
}

/// The tenant is there: allowances that are due are filled, windows that wait begin. A hold does the same.
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/activity", tag = "holds", params(("tenant_id" = String, Path)),
    request_body(content = Option<ActivityBody>),
    responses((status = 200, body = ActivityResult),
        (status = 404, description = "tenant_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn activity(
    caller: Caller<HoldsWrite>,
    _: Query<NoParameters>,
    Named(tenant_id): Named<TenantId>,
    _body: OptionalJson<ActivityBody>,
) -> Result<axum::Json<ActivityResult>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    if tenant::find(&mut conn, &tenant_id).await?.is_none() {
        return Err(Problem::unknown_tenant(&tenant_id));
    }
    drop(conn);
    let (db, clock) = (caller.db().clone(), caller.app.clock.clone());
    let work = async move { allowance::refill_all(&db, &clock, &tenant_id).await };
    let filled = caller.app.run_to_end(work).await??;
    let mut items = Vec::with_capacity(filled.len());
    for one in filled {
        items.push(body_of(&caller, one).await?);
    }
    Ok(axum::Json(ActivityResult { filled: items }))
}

async fn body_of<P>(caller: &Caller<P>, filled: Filled) -> Result<FilledBody, Problem> {
    let currency = super::currency(&caller.app, "currency", filled.currency.as_str()).await?;
    Ok(FilledBody {
        allowance_id: filled.allowance_id,
        currency: filled.currency.to_string(),
        pocket: filled.pocket.to_string(),
        amount: filled.amount.to_text(currency.exponent),
        expires_at: filled.ends_at,
    })
}
