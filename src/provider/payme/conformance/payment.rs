//! The payer's side of one payment: the account it goes to and the values Payme would send with it.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::now_ms;

/// One field of the `account` object, exactly as it was given: `tenant_id=acme`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The field.
    pub field: String,
    /// Its value.
    pub value: String,
}

impl Account {
    /// The `account` object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ &self.field: &self.value })
    }

    /// The same field with a value that no merchant knows.
    #[must_use]
    pub fn unknown(&self) -> Self {
        Self { field: self.field.clone(), value: format!("unknown-{}", new_id()) }
    }
}

impl FromStr for Account {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Only the first `=` separates: a value may hold more of them.
        let (field, value) = text.split_once('=').ok_or("write it as field=value")?;
        if field.is_empty() || value.is_empty() {
            return Err("neither the field nor the value may be empty");
        }
        Ok(Self { field: field.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.field, self.value)
    }
}

/// What Payme knows of a payment before the merchant has answered.
#[derive(Clone, Debug)]
pub struct Payment {
    pub id: String,
    pub time: i64,
    pub amount: i64,
    pub account: Account,
}

impl Payment {
    /// A payment that starts now.
    pub fn new(account: &Account, amount: i64) -> Self {
        Self::started_at(account, amount, now_ms())
    }

    pub fn started_at(account: &Account, amount: i64, time: i64) -> Self {
        Self { id: new_id(), time, amount, account: account.clone() }
    }

    pub fn create_params(&self) -> Value {
        json!({"id": self.id, "time": self.time, "amount": self.amount, "account": self.account.to_json()})
    }
}

/// A transaction id in Payme's shape: 24 hexadecimal characters.
pub fn new_id() -> String {
    // Three words of eight digits.
    let [a, b, c] = rand::random::<[u32; 3]>();
    format!("{a:08x}{b:08x}{c:08x}")
}
