//! The worker of refund tasks: claim and commit, call with no transaction open, record.

use std::convert::Infallible;
use std::sync::PoisonError;

use chrono::TimeDelta;
use scoped_futures::ScopedFutureExt as _;

use super::bot_api::CallError;
use super::webhook::never_refused;
use super::{Bot, PROVIDER, Telegram, charge_of, prefix, store};
use crate::fault::{Error, Fault};
use crate::payment::Refusal;
use crate::payment::prepaid::refund::{self, CallOutcome, ClaimedRefund};

/// A claim lasts this much longer than a call may take.
const CLAIM_MARGIN: TimeDelta = TimeDelta::seconds(40);

impl Telegram {
    /// Gives back what has to go back and may be tried now. Returns how many calls were made.
    ///
    /// # Errors
    /// A fault; what was recorded before it stays recorded.
    pub async fn give_back(&self) -> Result<u64, Fault> {
        let now = self.clock.now();
        self.db
            .run("telegram_dead_claims", |conn| {
                async move { Ok::<_, Error<Infallible>>(refund::give_up_dead_claims(conn, now).await?) }.scope_boxed()
            })
            .await
            .map_err(never_refused)?;
        let mut calls: u64 = 0;
        for bot in self.bots() {
            if self.is_paused(bot) {
                continue;
            }
            while let Some(claimed) = self.claim(bot).await? {
                calls = calls.saturating_add(1);
                let outcome = self.call(bot, &claimed).await;
                self.record(bot, &claimed, &outcome).await?;
                // Whoever wants fewer calls wants fewer of all of them.
                if let CallOutcome::Later { retry_after, .. } = &outcome {
                    self.pause(bot, *retry_after);
                    break;
                }
            }
        }
        Ok(calls)
    }

    fn is_paused(&self, bot: &Bot) -> bool {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.get(&bot.bot_id).is_some_and(|until| self.clock.now() < *until)
    }

    fn pause(&self, bot: &Bot, time: TimeDelta) {
        let now = self.clock.now();
        let until = now.checked_add_signed(time).unwrap_or(now);
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).insert(bot.bot_id, until);
    }

    async fn claim(&self, bot: &Bot) -> Result<Option<ClaimedRefund>, Fault> {
        let claim_time = TimeDelta::from_std(self.settings.timeout)
            .ok()
            .and_then(|timeout| timeout.checked_add(&CLAIM_MARGIN))
            .unwrap_or(CLAIM_MARGIN);
        let prefix = &prefix(bot.bot_id);
        self.db
            .run("telegram_claim_refund", |conn| {
                async move {
                    let now = self.clock.now();
                    let until = now.checked_add_signed(claim_time).unwrap_or(now);
                    let list_read_at = store::find_cursor(conn, bot.bot_id).await?.read_at;
                    let claimed = refund::claim(conn, PROVIDER, prefix, list_read_at, now, until).await?;
                    Ok::<_, Error<Infallible>>(claimed)
                }
                .scope_boxed()
            })
            .await
            .map_err(never_refused)
    }

    async fn call(&self, bot: &Bot, claimed: &ClaimedRefund) -> CallOutcome {
        let charge_id = charge_of(bot.bot_id, &claimed.external_id);
        let Ok(payer) = claimed.payer.parse::<i64>() else {
            return CallOutcome::Failed("the payer is no Telegram user's number".to_owned());
        };
        match self.api.refund_star_payment(bot, payer, charge_id).await {
            Ok(()) => CallOutcome::Refunded,
            Err(CallError::Unknown(problem)) => CallOutcome::Unknown(problem),
            Err(CallError::Later { retry_after, why }) => CallOutcome::Later { retry_after, why },
            Err(error @ CallError::Refused { .. }) => CallOutcome::Failed(error.to_string()),
        }
    }

    async fn record(&self, bot: &Bot, claimed: &ClaimedRefund, outcome: &CallOutcome) -> Result<(), Fault> {
        let key = &Self::key(bot.bot_id, charge_of(bot.bot_id, &claimed.external_id))
            .map_err(|error| Fault::new("a charge's id breaks its rule").because(error))?;
        let recorded = self
            .db
            .run("telegram_record_refund", |conn| {
                async move { refund::record(conn, claimed, key, outcome, &self.actor, self.clock.now()).await }
                    .scope_boxed()
            })
            .await;
        metrics::counter!("hamyon_refund_calls_total", "provider" => PROVIDER, "outcome" => name(outcome)).increment(1);
        recorded.map_err(|error: Error<Refusal>| match error {
            Error::Fault(fault) => fault,
            Error::Refused(refusal) => Fault::new("what came of a refund could not be recorded").because(refusal),
        })
    }
}

const fn name(outcome: &CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::Refunded => "refunded",
        CallOutcome::Unknown(_) => "unknown",
        CallOutcome::Later { .. } => "later",
        CallOutcome::Failed(_) => "failed",
    }
}
