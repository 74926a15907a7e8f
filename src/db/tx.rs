//! The one way to run a transaction: named, repeated a bounded number of times when two transactions got in
//! each other's way, measured.
//!
//! The work may run more than once, so it must do nothing outside its connection. An error rolls back. Never
//! swallow the error of a statement inside: PostgreSQL would refuse every later statement, and the driver's
//! `commit` would still say `Ok`.

use std::time::{Duration, Instant};

use rand::Rng as _;
use scoped_futures::ScopedBoxFuture;
use sqlx::PgConnection;

use super::Database;
use crate::fault::{Error, Fault, Remedy};

/// How often a transaction is tried. A collision that repeats five times is load, and the caller hears so.
const ATTEMPTS_MAX: u32 = 5;

impl Database {
    /// Runs `work` in one transaction and commits what it did when it returns `Ok`.
    ///
    /// `name` is static: it labels the metrics `hamyon_transactions_total` and
    /// `hamyon_transaction_duration_seconds`.
    ///
    /// # Errors
    /// What the work returned, or the fault of the transaction itself; nothing was written then, except that a
    /// connection lost during the commit leaves it open whether it came to pass. A repeat finds out.
    pub async fn run<'a, T, R, F>(&self, name: &'static str, work: F) -> Result<T, Error<R>>
    where
        F: for<'c> Fn(&'c mut PgConnection) -> ScopedBoxFuture<'a, 'c, Result<T, Error<R>>> + Send + Sync,
        T: Send,
        R: Send,
    {
        let mut attempt: u32 = 1;
        loop {
            let started = Instant::now();
            let outcome = match tokio::time::timeout(self.transaction_timeout(), self.attempt(&work)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    Err(Fault::unanswered("the database didn't answer; what became of it a repeat finds out").into())
                }
            };
            let status = match &outcome {
                Ok(_) => "committed",
                Err(Error::Refused(_)) => "refused",
                Err(Error::Fault(fault)) if fault.remedy() == Remedy::Repeat => "collided",
                Err(Error::Fault(_)) => "failed",
            };
            metrics::counter!("hamyon_transactions_total", "transaction" => name, "status" => status).increment(1);
            metrics::histogram!("hamyon_transaction_duration_seconds", "transaction" => name).record(started.elapsed());
            match outcome {
                Err(Error::Fault(fault)) if fault.remedy() == Remedy::Repeat && attempt < ATTEMPTS_MAX => {
                    tracing::debug!(transaction = name, attempt, "repeating transaction {name}: {}", fault.chain());
                    tokio::time::sleep(pause_before_repeat(attempt)).await;
                    attempt = attempt.saturating_add(1);
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt<'a, T, R, F>(&self, work: &F) -> Result<T, Error<R>>
    where
        F: for<'c> Fn(&'c mut PgConnection) -> ScopedBoxFuture<'a, 'c, Result<T, Error<R>>> + Send + Sync,
        T: Send,
        R: Send,
    {
        // A BEGIN whose caller goes away half-way would come back to the pool as an open transaction: the driver rolls
        // back only what it knows to have begun. So it comes to its end in a task of its own, and is rolled back there.
        let pool = self.pool().clone();
        let begun = tokio::spawn(async move { pool.begin().await }).await;
        let mut transaction = begun.map_err(|error| Fault::new("a transaction's begin panicked").because(error))??;
        match work(&mut transaction).await {
            Ok(value) => {
                transaction.commit().await?;
                Ok(value)
            }
            Err(error) => {
                if let Err(rollback) = transaction.rollback().await {
                    // The connection is gone, and with it the transaction; the first error tells more.
                    tracing::debug!("rollback failed: {}", Fault::from(rollback).chain());
                }
                Err(error)
            }
        }
    }
}

/// Two transactions that collided should not meet again at the same moment.
fn pause_before_repeat(attempt: u32) -> Duration {
    let most_ms = 10_u64.saturating_mul(1 << attempt.min(6));
    Duration::from_millis(rand::rng().random_range(1..=most_ms))
}
