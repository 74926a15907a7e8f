//! One deed on a hold in one transaction, under the caller's key when there is one.
//!
//! The job id is the key of a hold, and each deed is answered the same when it comes again; a caller that sends an
//! `Idempotency-Key` anyway gets what the key promises everywhere else.

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;

use super::finish::{self, End, Ended};
use super::place::{self, Ask, Placed};
use super::reconcile::raise_alarm;
use super::usage::{self, Call, Used};
use super::{Hold, HoldId, Refusal, Terms, store};
use crate::allowance;
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::idempotency::{self, Answer, Claim, Claimed, KeyReused};
use crate::ids::{Actor, TenantId};
use crate::money::Currency;

/// What somebody wants of a hold.
#[derive(Debug, Clone)]
pub enum Deed {
    /// To place it.
    Place(Box<Ask>),
    /// To begin the work.
    Start {
        /// Which hold.
        hold_id: HoldId,
        /// How long the sign of life counts.
        lease_secs: Option<i32>,
    },
    /// To say that the worker lives.
    Heartbeat {
        /// Which hold.
        hold_id: HoldId,
        /// How long the sign of life counts.
        lease_secs: Option<i32>,
    },
    /// To log a call.
    Use {
        /// Which hold.
        hold_id: HoldId,
        /// The call.
        call: Call,
    },
    /// To end it.
    End {
        /// Which hold.
        hold_id: HoldId,
        /// How.
        end: End,
    },
}

/// What came of a deed.
#[derive(Debug)]
pub enum Outcome {
    /// The hold is there.
    Placed(Placed),
    /// The worker is alive.
    Beaten(Hold),
    /// The call is logged.
    Used(Used),
    /// The hold has ended, or its worker is asked to stop.
    Ended(Ended),
}

/// A status and a body.
pub type Answered = (u16, String);

/// Turns an outcome into the status and the body that are kept with a key.
/// The currency is the hold's own: of a double, it may be another one than was asked.
pub type Render = Box<dyn Fn(&Outcome, &Currency, DateTime<Utc>) -> Result<Answered, Fault> + Send + Sync>;

/// Why a deed isn't done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeedRefusal {
    /// The key stands for another request.
    #[error(transparent)]
    Key(#[from] KeyReused),
    /// The hold says no.
    #[error(transparent)]
    Hold(#[from] Refusal),
}

/// Everything a deed needs; it owns it, so that it runs to its end without its caller (L8).
#[expect(missing_debug_implementations, reason = "a closure has none")]
pub struct Performance {
    /// The database.
    pub db: Database,
    /// The time.
    pub clock: Clock,
    /// How holds are kept.
    pub terms: Terms,
    /// Who.
    pub actor: Actor,
    /// The currency that was asked, or the hold's own.
    pub currency: Currency,
    /// The caller's key, if it sent one.
    pub claim: Option<Claim>,
    /// How the answer looks.
    pub render: Render,
}

impl Performance {
    /// Does it, or answers what was answered under its key before.
    ///
    /// # Errors
    /// A [`DeedRefusal`]; nothing was written, and the key isn't bound.
    pub async fn run(self, deed: Deed) -> Result<Answer, Error<DeedRefusal>> {
        let (performance, deed) = (&self, &deed);
        let done = self
            .db
            .run(deed.name(), |conn| {
                async move {
                    let now = performance.clock.now();
                    if let Some(claim) = &performance.claim {
                        match idempotency::claim(conn, claim, now).await.widen()? {
                            Claimed::Answered(answer) => return Ok((answer, Vec::new())),
                            Claimed::Fresh => {}
                        }
                    }
                    let outcome = performance.perform(conn, deed, now).await.widen()?;
                    let code = &outcome.hold().currency;
                    let other = if *code == performance.currency.code {
                        None
                    } else {
                        Some(store::currency(conn, code).await?)
                    };
                    let currency = other.as_ref().unwrap_or(&performance.currency);
                    let (status, body) = (performance.render)(&outcome, currency, now)?;
                    let answer = Answer { status, body, replayed: false };
                    if let Some(claim) = &performance.claim {
                        idempotency::finish_all(conn, &[(claim, &answer)]).await?;
                    }
                    let usage_lost = match outcome {
                        Outcome::Placed(placed) => placed.usage_lost,
                        Outcome::Beaten(_) | Outcome::Used(_) | Outcome::Ended(_) => Vec::new(),
                    };
                    Ok((answer, usage_lost))
                }
                .scope_boxed()
            })
            .await;
        if let (Deed::Place(ask), Err(Error::Refused(DeedRefusal::Hold(_)))) = (deed, &done) {
            self.note_presence(&ask.tenant_id).await;
        }
        let (answer, usage_lost) = done?;
        for hold_id in &usage_lost {
            raise_alarm(hold_id);
            metrics::counter!("hamyon_holds_reconciled_total", "outcome" => "usage_lost").increment(1);
        }
        Ok(answer)
    }

    /// Whoever is refused a hold is there, too, and shall not be told like somebody who stays away. In a transaction of
    /// its own, since the refused one left nothing; that it fails changes no answer.
    async fn note_presence(&self, tenant_id: &TenantId) {
        let noted = self
            .db
            .run("hold_note_presence", |conn| {
                async move {
                    allowance::note_presence(conn, tenant_id, self.clock.now()).await?;
                    Ok::<_, Error<std::convert::Infallible>>(())
                }
                .scope_boxed()
            })
            .await;
        match noted {
            Ok(()) => {}
            Err(Error::Fault(fault)) => {
                tracing::error!(
                    tenant_id = tenant_id.as_str(),
                    "that tenant {tenant_id} is there can't be noted: {}",
                    fault.chain()
                );
            }
            Err(Error::Refused(never)) => match never {},
        }
    }

    async fn perform(
        &self,
        conn: &mut sqlx::PgConnection,
        deed: &Deed,
        now: DateTime<Utc>,
    ) -> Result<Outcome, Error<Refusal>> {
        Ok(match deed {
            Deed::Place(ask) => Outcome::Placed(place::place(conn, ask, &self.terms, &self.actor, now).await?),
            Deed::Start { hold_id, lease_secs } => {
                Outcome::Beaten(usage::start(conn, hold_id, *lease_secs, now).await?)
            }
            Deed::Heartbeat { hold_id, lease_secs } => {
                Outcome::Beaten(usage::heartbeat(conn, hold_id, *lease_secs, now).await?)
            }
            Deed::Use { hold_id, call } => Outcome::Used(usage::record(conn, hold_id, call, now).await?),
            Deed::End { hold_id, end } => Outcome::Ended(finish::end(conn, hold_id, *end, &self.actor, now).await?),
        })
    }
}

impl Outcome {
    /// The hold it is about.
    const fn hold(&self) -> &Hold {
        match self {
            Self::Placed(placed) => &placed.hold,
            Self::Beaten(hold) => hold,
            Self::Used(used) => &used.hold,
            Self::Ended(ended) => &ended.hold,
        }
    }
}

impl Deed {
    /// The name of its transaction.
    const fn name(&self) -> &'static str {
        match self {
            Self::Place(_) => "hold_place",
            Self::Start { .. } => "hold_start",
            Self::Heartbeat { .. } => "hold_heartbeat",
            Self::Use { .. } => "hold_usage",
            Self::End { .. } => "hold_end",
        }
    }
}
