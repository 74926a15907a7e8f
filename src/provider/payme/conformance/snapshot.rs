//! The shapes of a transaction in the answers of Create, Perform, Cancel, `CheckTransaction` and `GetStatement`.
//!
//! Two of Payme's rules are easy to miss and break a merchant's reconciliation: an unset time is `0`, not `null`, and an
//! unset reason is `null`, not `0`. All members must be there, always.

use serde_json::{Map, Value};

use super::client::Exchange;
use super::expect::{self, Mismatch, Verdict};
use super::now_ms;

/// A day: wide enough for any clock, narrow enough to tell milliseconds from seconds and microseconds.
const CLOCK_TOLERANCE_MS: i64 = 86_400_000;

/// What a time in an answer should be.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    Unset,
    Exactly(i64),
}

/// What `CheckTransaction` and `GetStatement` should say of a transaction.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub transaction: String,
    pub state: i64,
    pub create_time: i64,
    pub perform_time: Moment,
    pub cancel_time: Moment,
    pub reason: Option<i64>,
}

impl Snapshot {
    /// A transaction that was just created.
    pub fn created(transaction: &str, create_time: i64) -> Self {
        Self {
            transaction: transaction.to_owned(),
            state: 1,
            create_time,
            perform_time: Moment::Unset,
            cancel_time: Moment::Unset,
            reason: None,
        }
    }

    pub fn performed(&self, perform_time: i64) -> Self {
        Self { state: 2, perform_time: Moment::Exactly(perform_time), ..self.clone() }
    }

    pub fn cancelled(&self, state: i64, cancel_time: i64, reason: i64) -> Self {
        Self { state, cancel_time: Moment::Exactly(cancel_time), reason: Some(reason), ..self.clone() }
    }

    /// Compares `CheckTransaction`'s answer.
    pub fn verify(&self, exchange: &Exchange) -> Verdict {
        let expected = self.sentence();
        let result = expect::result(exchange, &expected)?;
        self.verify_members(&result)
    }

    /// Compares the six members in any object that carries them.
    pub fn verify_members(&self, object: &Map<String, Value>) -> Verdict {
        let moment = |moment: Moment| match moment {
            Moment::Unset => Value::from(0),
            Moment::Exactly(at) => Value::from(at),
        };
        let wanted = [
            ("state", Value::from(self.state)),
            ("create_time", Value::from(self.create_time)),
            ("perform_time", moment(self.perform_time)),
            ("cancel_time", moment(self.cancel_time)),
            ("transaction", Value::from(self.transaction.as_str())),
            ("reason", self.reason.map_or(Value::Null, Value::from)),
        ];
        let wrong: Vec<String> = wanted
            .iter()
            .filter(|(name, value)| object.get(*name) != Some(value))
            .map(|(name, _)| object.get(*name).map_or_else(|| format!("no {name}"), |got| format!("{name} {got}")))
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(Mismatch::new(self.sentence(), wrong.join(", "))) }
    }

    fn sentence(&self) -> String {
        let moment = |moment: Moment| match moment {
            Moment::Unset => 0,
            Moment::Exactly(at) => at,
        };
        format!(
            "state {}, create_time {}, perform_time {}, cancel_time {}, transaction {:?}, reason {}",
            self.state,
            self.create_time,
            moment(self.perform_time),
            moment(self.cancel_time),
            self.transaction,
            self.reason.map_or_else(|| "null".to_owned(), |reason| reason.to_string()),
        )
    }
}

/// `CreateTransaction`'s answer, as the snapshot that must follow from it.
pub fn created(exchange: &Exchange) -> Result<Snapshot, Mismatch> {
    let expected = "create_time in milliseconds, transaction as a non-empty string, state 1";
    let (transaction, create_time) = transition(exchange, "create_time", 1, expected)?;
    Ok(Snapshot::created(&transaction, create_time))
}

/// `PerformTransaction`'s answer: its time.
pub fn performed(exchange: &Exchange, before: &Snapshot) -> Result<Snapshot, Mismatch> {
    let expected = format!("perform_time in milliseconds, transaction {:?}, state 2", before.transaction);
    let (transaction, perform_time) = transition(exchange, "perform_time", 2, &expected)?;
    if transaction != before.transaction {
        return Err(Mismatch::new(expected, format!("transaction {transaction:?}")));
    }
    Ok(before.performed(perform_time))
}

/// `CancelTransaction`'s answer: its time.
pub fn cancelled(exchange: &Exchange, before: &Snapshot, reason: i64) -> Result<Snapshot, Mismatch> {
    let state = if before.state == 2 { -2 } else { -1 };
    let expected = format!("cancel_time in milliseconds, transaction {:?}, state {state}", before.transaction);
    let (transaction, cancel_time) = transition(exchange, "cancel_time", state, &expected)?;
    if transaction != before.transaction {
        return Err(Mismatch::new(expected, format!("transaction {transaction:?}")));
    }
    Ok(before.cancelled(state, cancel_time, reason))
}

fn transition(exchange: &Exchange, time: &str, state: i64, expected: &str) -> Result<(String, i64), Mismatch> {
    let result = expect::result(exchange, expected)?;
    let wrong = || Mismatch::new(expected, expect::describe(exchange));
    if result.get("state") != Some(&Value::from(state)) {
        return Err(wrong());
    }
    let transaction = result.get("transaction").and_then(Value::as_str).filter(|text| !text.is_empty());
    let at = result.get(time).and_then(Value::as_i64).filter(|at| is_plausible(*at));
    match (transaction, at) {
        (Some(transaction), Some(at)) => Ok((transaction.to_owned(), at)),
        _ => Err(wrong()),
    }
}

fn is_plausible(at: i64) -> bool {
    at.abs_diff(now_ms()) <= CLOCK_TOLERANCE_MS.unsigned_abs()
}
