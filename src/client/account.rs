//! What a program around the worker needs: what there is, a grant, the prices.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::send::send;
use super::{Client, Error, Money};

/// What a wallet holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Balance {
    /// The wallet's currency.
    pub currency: String,
    /// The sum of the rows.
    pub balance: Money,
    /// Promised to work in progress.
    pub held: Money,
    /// What may be spent.
    pub available: Money,
    /// The number of the last row that is counted.
    pub seq: i64,
    /// What each pocket holds.
    pub pockets: BTreeMap<String, Money>,
}

/// Money that nobody paid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Which of the tenant's wallets.
    pub currency: String,
    /// Which part of it.
    pub pocket: String,
    /// How much.
    pub amount: Money,
    /// The pocket's end; a pocket keeps the one it was opened with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The row of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Granted {
    /// Its number within the wallet.
    pub seq: i64,
    /// Which pocket.
    pub pocket: String,
    /// How much.
    pub amount: Money,
    /// The wallet's balance after it.
    pub balance_after: Money,
}

/// What a model costs, in US dollars for a million tokens of each class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPrice {
    /// The model.
    pub model: String,
    /// Tokens that are read.
    pub input: Money,
    /// Tokens that are written.
    pub output: Money,
    /// Tokens that are read from a cache.
    pub cached: Money,
}

/// A version of the price book.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PriceBook {
    /// 1, 2, 3, …
    pub version: i32,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// Every model.
    pub models: Vec<ModelPrice>,
}

impl Client {
    /// What a tenant's wallet holds. Needs `ledger:read`.
    ///
    /// # Errors
    /// [`Error`]; refused with `tenant_not_found` (404).
    pub async fn balance(&self, tenant_id: &str, currency: &str) -> Result<Balance, Error> {
        let mut call = self.get(&["tenants", tenant_id, "balance"])?;
        call.url.query_pairs_mut().append_pair("currency", currency);
        send(self, &call).await
    }

    /// Grants money into a pocket. Needs `ledger:post`. The same key with the same grant happens once.
    ///
    /// # Errors
    /// [`Error`]; refused with `pocket_differs` (409) when the pocket has another end.
    pub async fn grant(&self, tenant_id: &str, key: &str, grant: &Grant) -> Result<Granted, Error> {
        let mut call = self.post(&["tenants", tenant_id, "grants"], &json!(grant))?;
        call.key = Some(key.to_owned());
        send(self, &call).await
    }

    /// The newest price book; none when there is none yet. Needs `ledger:read`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn price_book(&self) -> Result<Option<PriceBook>, Error> {
        match send(self, &self.get(&["price-books"])?).await {
            Ok(book) => Ok(Some(book)),
            Err(error) if error.is_refusal("price_book_not_found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the next version of the price book, whole. Needs `holds:configure`. When the version is there already
    /// and holds the same prices, an answer got lost or somebody else wrote the same: that book is the result.
    ///
    /// # Errors
    /// [`Error`]; refused with `price_version_taken` (409) when the newest version is another one.
    pub async fn write_price_book(&self, version: i32, models: &[ModelPrice]) -> Result<PriceBook, Error> {
        let body = json!({ "version": version, "models": models });
        match send(self, &self.post(&["price-books"], &body)?).await {
            Err(error) if error.is_refusal("price_version_taken") => {
                let by_name = |models: &[ModelPrice]| {
                    let mut models = models.to_vec();
                    models.sort_by(|one, other| one.model.cmp(&other.model));
                    models
                };
                match self.price_book().await? {
                    Some(book) if book.version == version && by_name(&book.models) == by_name(models) => Ok(book),
                    _ => Err(error),
                }
            }
            outcome => outcome,
        }
    }
}
