//! The statements about what is written beforehand and only grows: price books and tiers.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::hold::{ModelPrice, PriceBook, Tier};
use crate::ids::Actor;
use crate::money::{CurrencyCode, MinorUnits};

pub async fn newest_price_version(conn: &mut PgConnection) -> Result<Option<i32>, Fault> {
    Ok(sqlx::query_scalar!("-- hold::newest_price_version\nSELECT max(version) FROM price_books")
        .fetch_one(conn)
        .await?)
}

pub async fn insert_price_book(
    conn: &mut PgConnection,
    version: i32,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<bool, Fault> {
    let done = sqlx::query!(
        "-- hold::insert_price_book
         INSERT INTO price_books (version, created_at, created_by) VALUES ($1, $2, $3)
             ON CONFLICT ON CONSTRAINT price_books_pkey DO NOTHING",
        version,
        now,
        actor.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn insert_model_prices(conn: &mut PgConnection, version: i32, models: &[ModelPrice]) -> Result<(), Fault> {
    let names: Vec<String> = models.iter().map(|price| price.model.clone()).collect();
    // As text: the driver's own decimals are off, and these are the only ones that are stored.
    let text = |of: fn(&ModelPrice) -> Decimal| models.iter().map(|price| of(price).to_string()).collect::<Vec<_>>();
    let (input, output, cached) = (text(|price| price.input), text(|price| price.output), text(|price| price.cached));
    sqlx::query!(
        "-- hold::insert_model_prices
         INSERT INTO price_book_models (version, model, input, output, cached)
         SELECT $1, m.model, m.input::numeric, m.output::numeric, m.cached::numeric
           FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS m (model, input, output, cached)",
        version,
        &names,
        &input,
        &output,
        &cached,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A model's price as its columns are.
struct PriceRow {
    model: String,
    input: String,
    output: String,
    cached: String,
}

impl TryFrom<PriceRow> for ModelPrice {
    type Error = Fault;

    fn try_from(row: PriceRow) -> Result<Self, Fault> {
        let decimal = |text: &str| {
            text.parse::<Decimal>().map_err(|error| Fault::new("a stored price can't be read").because(error))
        };
        Ok(Self {
            input: decimal(&row.input)?,
            output: decimal(&row.output)?,
            cached: decimal(&row.cached)?,
            model: row.model,
        })
    }
}

async fn prices(conn: &mut PgConnection, version: i32, model: Option<&str>) -> Result<Vec<ModelPrice>, Fault> {
    sqlx::query_as!(
        PriceRow,
        r#"-- hold::prices
           SELECT model, input::text AS "input!", output::text AS "output!", cached::text AS "cached!"
             FROM price_book_models WHERE version = $1 AND ($2::text IS NULL OR model = $2) ORDER BY model"#,
        version,
        model,
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(ModelPrice::try_from)
    .collect()
}

pub async fn find_price(conn: &mut PgConnection, version: i32, model: &str) -> Result<Option<ModelPrice>, Fault> {
    Ok(prices(conn, version, Some(model)).await?.pop())
}

/// A version of the book, or the newest.
pub async fn find_book(conn: &mut PgConnection, version: Option<i32>) -> Result<Option<PriceBook>, Fault> {
    let book = sqlx::query!(
        "-- hold::find_book
         SELECT version, created_at FROM price_books WHERE $1::integer IS NULL OR version = $1
          ORDER BY version DESC LIMIT 1",
        version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(book) = book else { return Ok(None) };
    Ok(Some(PriceBook {
        version: book.version,
        created_at: book.created_at,
        models: prices(conn, book.version, None).await?,
    }))
}

pub async fn insert_tier(conn: &mut PgConnection, tier: &Tier) -> Result<(), Fault> {
    sqlx::query!(
        "-- hold::insert_tier
         INSERT INTO hold_tiers (tier, currency, amount, created_at) VALUES ($1, $2, $3, $4)",
        tier.tier,
        tier.currency.as_str(),
        tier.amount.get(),
        tier.created_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn list_tiers(conn: &mut PgConnection) -> Result<Vec<Tier>, Fault> {
    sqlx::query!(
        "-- hold::list_tiers
         SELECT DISTINCT ON (tier, currency) tier, currency, amount, created_at
           FROM hold_tiers ORDER BY tier, currency, hold_tier_id DESC"
    )
    .fetch_all(conn)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Tier {
            tier: row.tier,
            currency: CurrencyCode::from_column(row.currency)?,
            amount: MinorUnits::new(row.amount),
            created_at: row.created_at,
        })
    })
    .collect()
}
