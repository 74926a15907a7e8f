//! The units of account, which are data.
//!
//! A currency never changes once it is there, so what was read once is remembered.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use sqlx::PgConnection;

use crate::db::Database;
use crate::fault::{Error, Fault};
use crate::money::{Currency, CurrencyCode, Exponent};

/// Why a currency can't be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CurrencyRefusal {
    /// The code stands for another unit.
    #[error("currency {code} exists with {exponent} digits after the point, which can't change")]
    Differs {
        /// The code.
        code: CurrencyCode,
        /// The digits it has.
        exponent: u8,
    },
}

/// The registry.
#[derive(Debug)]
pub struct Currencies {
    db: Database,
    seen: RwLock<HashMap<CurrencyCode, Currency>>,
}

impl Currencies {
    /// An empty memory over a database.
    #[must_use]
    pub fn new(db: Database) -> Self {
        Self { db, seen: RwLock::default() }
    }

    /// A currency by its code.
    ///
    /// # Errors
    /// A fault.
    pub async fn find(&self, code: &CurrencyCode) -> Result<Option<Currency>, Fault> {
        if let Some(currency) = self.seen.read().unwrap_or_else(PoisonError::into_inner).get(code) {
            return Ok(Some(currency.clone()));
        }
        let exponent = sqlx::query_scalar!(
            "-- currencies::find
             SELECT exponent FROM currencies WHERE code = $1",
            code.as_str()
        )
        .fetch_optional(self.db.pool())
        .await?;
        let Some(exponent) = exponent else { return Ok(None) };
        let currency = Currency { code: code.clone(), exponent: Exponent::from_column(exponent)? };
        self.seen.write().unwrap_or_else(PoisonError::into_inner).insert(code.clone(), currency.clone());
        Ok(Some(currency))
    }

    /// Every currency, by code.
    ///
    /// # Errors
    /// A fault.
    pub async fn list(&self) -> Result<Vec<Currency>, Fault> {
        let rows = sqlx::query!(
            "-- currencies::list
             SELECT code, exponent FROM currencies ORDER BY code"
        )
        .fetch_all(self.db.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(Currency {
                    code: CurrencyCode::from_column(row.code)?,
                    exponent: Exponent::from_column(row.exponent)?,
                })
            })
            .collect()
    }
}

/// Adds a currency, or finds the same one there. The value says whether it is new.
///
/// # Errors
/// [`CurrencyRefusal`].
pub async fn add_currency(conn: &mut PgConnection, currency: &Currency) -> Result<bool, Error<CurrencyRefusal>> {
    let exponent = i16::from(currency.exponent.digits());
    let done = sqlx::query!(
        "-- currencies::add
         INSERT INTO currencies (code, exponent) VALUES ($1, $2) ON CONFLICT ON CONSTRAINT currencies_pkey DO NOTHING",
        currency.code.as_str(),
        exponent,
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 1 {
        return Ok(true);
    }
    let there = sqlx::query_scalar!(
        "-- currencies::compare
         SELECT exponent FROM currencies WHERE code = $1",
        currency.code.as_str()
    )
    .fetch_one(conn)
    .await?;
    if there == exponent {
        Ok(false)
    } else {
        let exponent = Exponent::from_column(there)?.digits();
        Err(Error::Refused(CurrencyRefusal::Differs { code: currency.code.clone(), exponent }))
    }
}
