//! Plans and their prices.

use axum::http::StatusCode;
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::fee::{self, Plan};
use crate::http::error::Problem;
use crate::http::extract::{Caller, FeesWrite, Json, Named, NoParameters, Query, TenantsRead};
use crate::ids::OrderId;
use crate::money::Month;
use crate::tenant::check_name;

/// A plan to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlan {
    /// The product's own id: 1 to 64 of A-Z a-z 0-9 . _ : @ + -
    #[schema(example = "standard")]
    pub plan_id: String,
    /// For people to read.
    #[schema(example = "Standard")]
    pub name: String,
    /// The price of a month as decimal text.
    #[schema(example = "150000.00")]
    pub price: String,
    /// UZS when left out.
    #[schema(example = "UZS")]
    pub currency: Option<String>,
}

/// A plan.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlanBody {
    /// The product's own id.
    pub plan_id: String,
    /// For people to read.
    pub name: String,
    /// The price of this month as decimal text.
    pub price: String,
    /// Its currency.
    pub currency: String,
}

/// All plans.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlanList {
    /// By id.
    pub items: Vec<PlanBody>,
}

/// A price from a month on.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceBody {
    /// The price of a month as decimal text.
    #[schema(example = "175000.00")]
    pub price: String,
    /// From this month on; it may not have begun anywhere.
    #[schema(example = "2027-01")]
    pub from_month: String,
    /// The price that was set for that month and is to be corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1700000.00")]
    pub replaces: Option<String>,
}

/// Makes a plan. The same again is answered the same.
#[utoipa::path(post, path = "/v1/plans", tag = "fees", request_body = NewPlan,
    responses((status = 201, body = PlanBody), (status = 200, description = "It was there", body = PlanBody),
        (status = 409, description = "plan_differs", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn create(
    caller: Caller<FeesWrite>,
    _: Query<NoParameters>,
    json: Json<NewPlan>,
) -> Result<(StatusCode, axum::Json<PlanBody>), Problem> {
    let body = json.body;
    let currency = super::currency(&caller.app, "currency", body.currency.as_deref().unwrap_or("UZS")).await?;
    let price = super::amount("price", &body.price, &currency)?;
    if !price.is_positive() {
        return Err(Problem::invalid_field("price", "must be positive"));
    }
    super::field("name", check_name(&body.name))?;
    let plan = &Plan {
        plan_id: super::field("plan_id", OrderId::parse(body.plan_id))?,
        name: body.name,
        currency: currency.code.clone(),
        price,
    };
    let now = caller.app.clock.now();
    let new = caller
        .db()
        .run("plan_create", |conn| async move { fee::create_plan(conn, plan, now).await }.scope_boxed())
        .await?;
    let answer = PlanBody {
        plan_id: plan.plan_id.to_string(),
        name: plan.name.clone(),
        price: plan.price.to_text(currency.exponent),
        currency: plan.currency.to_string(),
    };
    Ok((if new { StatusCode::CREATED } else { StatusCode::OK }, axum::Json(answer)))
}

/// Lists the plans.
#[utoipa::path(get, path = "/v1/plans", tag = "fees", responses((status = 200, body = PlanList)))]
pub async fn list(caller: Caller<TenantsRead>, _: Query<NoParameters>) -> Result<axum::Json<PlanList>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let mut items = Vec::new();
    for plan in fee::list_plans(&mut conn, caller.app.clock.now()).await? {
        let currency = super::currency(&caller.app, "currency", plan.currency.as_str()).await?;
        items.push(PlanBody {
            plan_id: plan.plan_id.to_string(),
            name: plan.name,
            price: plan.price.to_text(currency.exponent),
            currency: plan.currency.to_string(),
        });
    }
    Ok(axum::Json(PlanList { items }))
}

impl crate::http::extract::PathName for PlanInPath {
    const NOT_FOUND: &'static str = "plan_not_found";
    fn parse(text: &str) -> Result<Self, crate::ids::InvalidName> {
        OrderId::parse(text).map(Self)
    }
}

/// A plan's id in a path.
#[derive(Debug)]
pub struct PlanInPath(pub OrderId);

/// Changes a plan's price from a month on. What fell due before keeps its price.
#[utoipa::path(post, path = "/v1/plans/{plan_id}/prices", tag = "fees", params(("plan_id" = String, Path)),
    request_body = PriceBody,
    responses((status = 200, body = PriceBody),
        (status = 404, description = "plan_not_found", body = ProblemDocument,
         content_type = "application/problem+json"),
        (status = 409, description = "price_too_early, price_differs", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn change_price(
    caller: Caller<FeesWrite>,
    _: Query<NoParameters>,
    Named(PlanInPath(plan_id)): Named<PlanInPath>,
    json: Json<PriceBody>,
) -> Result<axum::Json<PriceBody>, Problem> {
    let from_month = super::field("from_month", Month::parse(&json.body.from_month))?;
    let now = caller.app.clock.now();
    let mut conn = caller.db().pool().acquire().await.map_err(crate::fault::Fault::from)?;
    let plans = fee::list_plans(&mut conn, now).await?;
    drop(conn);
    let plan = plans
        .into_iter()
        .find(|plan| plan.plan_id == plan_id)
        .ok_or_else(|| Problem::not_found("plan_not_found", format!("there is no plan {plan_id}")))?;
    let currency = super::currency(&caller.app, "currency", plan.currency.as_str()).await?;
    let price = super::amount("price", &json.body.price, &currency)?;
    if !price.is_positive() {
        return Err(Problem::invalid_field("price", "must be positive"));
    }
    let replaces = json.body.replaces.as_deref().map(|text| super::amount("replaces", text, &currency)).transpose()?;
    let asked = &plan_id;
    caller
        .db()
        .run("plan_change_price", |conn| {
            async move { fee::change_price(conn, asked, from_month, price, replaces, now).await }.scope_boxed()
        })
        .await?;
    Ok(axum::Json(PriceBody {
        price: price.to_text(currency.exponent),
        from_month: from_month.to_string(),
        replaces: None,
    }))
}
