//! What holds ask for by tier, and what metered calls cost.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use scoped_futures::ScopedFutureExt as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ProblemDocument;
use crate::fault::{Error, Fault};
use crate::hold::{self, ModelPrice, PriceBook, PriceRefusal, Tier};
use crate::http::error::Problem;
use crate::http::extract::{Caller, HoldsConfigure, Json, LedgerRead, NoParameters, Query};

/// The most models of one book.
const MODELS_MAX: usize = 1_000;

/// A tier's amount from now on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTier {
    /// Its name.
    #[schema(example = "standard")]
    pub tier: String,
    /// In which currency.
    #[schema(example = "CREDIT")]
    pub currency: String,
    /// What a hold of it asks for.
    #[schema(example = "20")]
    pub amount: String,
}

/// A tier.
#[derive(Debug, Serialize, ToSchema)]
pub struct TierBody {
    /// Its name.
    pub tier: String,
    /// In which currency.
    pub currency: String,
    /// What a hold of it asks for.
    pub amount: String,
    /// Since when.
    pub created_at: DateTime<Utc>,
}

/// The tiers.
#[derive(Debug, Serialize, ToSchema)]
pub struct TierList {
    /// One for a name and currency.
    pub items: Vec<TierBody>,
}

/// A model's prices: US dollars for a million tokens, as decimal text of at most six digits after the point.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelPriceBody {
    /// The model.
    #[schema(example = "small")]
    pub model: String,
    /// Tokens that are read.
    #[schema(example = "3")]
    pub input: String,
    /// Tokens that are written.
    #[schema(example = "15")]
    pub output: String,
    /// Tokens that are read from a cache.
    #[schema(example = "0.3")]
    pub cached: String,
}

/// A whole new price book.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPriceBook {
    /// One more than the newest, 1 for the first: who writes over somebody else's change is told.
    #[schema(example = 1)]
    pub version: i32,
    /// Every model.
    pub models: Vec<ModelPriceBody>,
}

/// A price book. Holds keep the version they were placed under.
#[derive(Debug, Serialize, ToSchema)]
pub struct PriceBookBody {
    /// Its version.
    pub version: i32,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// Every model.
    pub models: Vec<ModelPriceBody>,
}

impl PriceBookBody {
    fn new(book: PriceBook) -> Self {
        let text = |price: Decimal| price.normalize().to_string();
        Self {
            version: book.version,
            created_at: book.created_at,
            models: book
                .models
                .into_iter()
                .map(|price| ModelPriceBody {
                    model: price.model,
                    input: text(price.input),
                    output: text(price.output),
                    cached: text(price.cached),
                })
                .collect(),
        }
    }
}

/// Sets what holds of a tier ask for from now on. Holds that are placed keep theirs.
#[utoipa::path(post, path = "/v1/hold-tiers", tag = "holds", request_body = NewTier,
    responses((status = 201, body = TierBody),
        (status = 404, description = "currency_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn set_tier(
    caller: Caller<HoldsConfigure>,
    _: Query<NoParameters>,
    json: Json<NewTier>,
) -> Result<(StatusCode, axum::Json<TierBody>), Problem> {
    let currency = super::currency(&caller.app, "currency", &json.body.currency).await?;
    let amount = super::amount("amount", &json.body.amount, &currency)?;
    if amount.is_negative() {
        return Err(Problem::invalid_field("amount", "must not be negative"));
    }
    let tier = &Tier {
        tier: super::allowances::tier_name("tier", json.body.tier)?,
        currency: currency.code.clone(),
        amount,
        created_at: caller.app.clock.now(),
    };
    let set = caller.db().run("hold_tier_set", |conn| {
        async move { hold::set_tier(conn, tier).await.map_err(Error::<std::convert::Infallible>::from) }.scope_boxed()
    });
    never(set.await)?;
    Ok((StatusCode::CREATED, axum::Json(body(tier, amount.to_text(currency.exponent)))))
}

fn never<T>(outcome: Result<T, Error<std::convert::Infallible>>) -> Result<T, Fault> {
    outcome.map_err(|error| match error {
        Error::Fault(fault) => fault,
        Error::Refused(never) => match never {},
    })
}

fn body(tier: &Tier, amount: String) -> TierBody {
    TierBody { tier: tier.tier.clone(), currency: tier.currency.to_string(), amount, created_at: tier.created_at }
}

/// Lists the tiers.
#[utoipa::path(get, path = "/v1/hold-tiers", tag = "holds", responses((status = 200, body = TierList)))]
pub async fn list_tiers(caller: Caller<LedgerRead>, _: Query<NoParameters>) -> Result<axum::Json<TierList>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let tiers = hold::list_tiers(&mut conn).await?;
    drop(conn);
    let mut items = Vec::with_capacity(tiers.len());
    for tier in &tiers {
        let currency = super::currency(&caller.app, "currency", tier.currency.as_str()).await?;
        items.push(body(tier, tier.amount.to_text(currency.exponent)));
    }
    Ok(axum::Json(TierList { items }))
}

/// Writes the next version of the price book, whole. Holds that are placed keep theirs.
#[utoipa::path(post, path = "/v1/price-books", tag = "holds", request_body = NewPriceBook,
    responses((status = 201, body = PriceBookBody), (status = 200, description = "It was there", body = PriceBookBody),
        (status = 409, description = "price_version_taken", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn write_book(
    caller: Caller<HoldsConfigure>,
    _: Query<NoParameters>,
    json: Json<NewPriceBook>,
) -> Result<(StatusCode, axum::Json<PriceBookBody>), Problem> {
    let count = json.body.models.len();
    if count == 0 || count > MODELS_MAX {
        return Err(Problem::invalid_field("models", format!("must have 1 to {MODELS_MAX} items, and has {count}")));
    }
    let mut models: Vec<ModelPrice> = Vec::with_capacity(count);
    for (index, price) in json.body.models.into_iter().enumerate() {
        let at = |name: &str| format!("models[{index}].{name}");
        let price = ModelPrice {
            input: decimal(&at("input"), &price.input)?,
            output: decimal(&at("output"), &price.output)?,
            cached: decimal(&at("cached"), &price.cached)?,
            model: super::short_text(&at("model"), price.model)?,
        };
        if models.iter().any(|other| other.model == price.model) {
            return Err(Problem::invalid_field(&at("model"), "stands in this book twice"));
        }
        models.push(price);
    }
    let (version, models, actor, now) = (json.body.version, &models, &caller.actor(), caller.app.clock.now());
    if version < 1 {
        return Err(Problem::invalid_field("version", "must be 1 or more"));
    }
    let new = caller
        .db()
        .run("price_book_write", |conn| {
            async move { hold::write_book(conn, version, models, actor, now).await }.scope_boxed()
        })
        .await
        .map_err(|error: Error<PriceRefusal>| Problem::from(error))?;
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let book = hold::find_book(&mut conn, Some(version)).await?;
    let book = book.ok_or_else(|| Fault::new("a price book that was written was not there to read"))?;
    Ok((if new { StatusCode::CREATED } else { StatusCode::OK }, axum::Json(PriceBookBody::new(book))))
}

/// A price that the column holds exactly.
fn decimal(name: &str, text: &str) -> Result<Decimal, Problem> {
    let rule = "must be a price such as \"0.25\": not negative, below a million, at most six digits after the point";
    text.parse::<Decimal>()
        .ok()
        .filter(|price| {
            !price.is_sign_negative() && *price < Decimal::from(1_000_000) && price.normalize().scale() <= 6
        })
        .ok_or_else(|| Problem::invalid_field(name, rule))
}

/// Which price book.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PriceBookQuery {
    /// A version; the newest when left out.
    version: Option<i32>,
}

/// A price book.
#[utoipa::path(get, path = "/v1/price-books", tag = "holds", params(PriceBookQuery),
    responses((status = 200, body = PriceBookBody),
        (status = 404, description = "price_book_not_found", body = ProblemDocument,
         content_type = "application/problem+json")))]
pub async fn get_book(
    caller: Caller<LedgerRead>,
    Query(query): Query<PriceBookQuery>,
) -> Result<axum::Json<PriceBookBody>, Problem> {
    let mut conn = caller.db().pool().acquire().await.map_err(Fault::from)?;
    let book = hold::find_book(&mut conn, query.version).await?;
    let book = book.ok_or_else(|| Problem::not_found("price_book_not_found", "there is no such price book"))?;
    Ok(axum::Json(PriceBookBody::new(book)))
}
