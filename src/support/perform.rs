//! A caller's deed, once under its key, to its end, and in the audit whatever becomes of it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use scoped_futures::ScopedFutureExt as _;

use super::service::written;
use super::{Ask, Desk, Limits, Outcome, Refusal, RequestQuery, Rights, list_requests};
use crate::audit::{self, Line, Who};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::idempotency::{self, Answer, Claim, Claimed, KeyReused};
use crate::ids::Reason;

/// What a caller wants done.
#[derive(Debug, Clone)]
pub enum Deed {
    /// A refund or an adjustment.
    Ask(Ask),
    /// Say yes to somebody else's request.
    Approve {
        /// Which.
        request_id: i64,
        /// Why.
        note: Option<Reason>,
    },
    /// Say no to somebody else's request.
    Reject {
        /// Which.
        request_id: i64,
        /// Why.
        note: Option<Reason>,
    },
    /// Take back one's own.
    Withdraw {
        /// Which.
        request_id: i64,
    },
}

impl Deed {
    fn action(&self) -> &'static str {
        match self {
            Self::Ask(ask) => ask.action(),
            Self::Approve { .. } => "request.approve",
            Self::Reject { .. } => "request.reject",
            Self::Withdraw { .. } => "request.withdraw",
        }
    }

    /// Which request it decides about.
    const fn request_id(&self) -> Option<i64> {
        match self {
            Self::Ask(_) => None,
            Self::Approve { request_id, .. } | Self::Reject { request_id, .. } | Self::Withdraw { request_id } => {
                Some(*request_id)
            }
        }
    }

    /// What its person wrote.
    fn written(&self) -> String {
        match self {
            Self::Ask(ask) => ask.written(),
            Self::Approve { note: Some(note), .. } | Self::Reject { note: Some(note), .. } => {
                written(&[("note", note.as_str())])
            }
            Self::Approve { note: None, .. } | Self::Reject { note: None, .. } | Self::Withdraw { .. } => String::new(),
        }
    }
}

/// Why a deed isn't done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeedRefusal {
    /// The key stands for another request.
    #[error(transparent)]
    Key(#[from] KeyReused),
    /// The desk says no.
    #[error(transparent)]
    Desk(#[from] Refusal),
}

/// Turns an outcome into the status and the body that are kept with its key.
pub type Render = fn(&Outcome, DateTime<Utc>) -> Result<(u16, String), Fault>;

/// Everything a deed needs; it owns it, so that it runs to its end without its caller (L8).
#[derive(Debug, Clone)]
pub struct Performance {
    /// The database.
    pub db: Database,
    /// The time.
    pub clock: Clock,
    /// The limits of this installation.
    pub limits: Arc<Limits>,
    /// Who.
    pub who: Who,
    /// What they may do.
    pub rights: Rights,
    /// The caller's key.
    pub claim: Claim,
    /// How the answer looks.
    pub render: Render,
}

impl Performance {
    /// Does it, or answers what was answered under its key before.
    ///
    /// # Errors
    /// A [`DeedRefusal`], which is in the audit; no money moved, and the key isn't bound.
    pub async fn run(self, deed: Deed) -> Result<Answer, Error<DeedRefusal>> {
        let outcome = self.attempt(&deed).await;
        if let Err(Error::Refused(refusal)) = &outcome {
            let line = self.refused_line(&deed, refusal).await?;
            audit::write_alone(&self.db, &self.clock, &self.who, &line).await?;
        }
        outcome
    }

    /// What was refused, with whom it is about and the numbers, why, and last what its person wrote.
    async fn refused_line(&self, deed: &Deed, refusal: &DeedRefusal) -> Result<Line, Fault> {
        let (about, tenant_id) = match (deed, deed.request_id()) {
            (Deed::Ask(ask), _) => (ask.words(), Some(ask.tenant_id().clone())),
            (_, request_id) => {
                let verb = deed.action().trim_start_matches("request.");
                let number = request_id.unwrap_or_default();
                let query = RequestQuery { request_id, limit: 1, ..RequestQuery::default() };
                let mut conn = self.db.pool().acquire().await?;
                match list_requests(&mut conn, &query).await?.pop() {
                    None => (format!("{verb} request {number}"), None),
                    Some(request) => {
                        let (what, by) = (request.words(), &request.requested_by);
                        (format!("{verb} request {number} of {by}, {what}"), Some(request.tenant_id))
                    }
                }
            }
        };
        let words = format!("{about}: {refusal}{}", deed.written());
        Ok(Line { action: deed.action(), allowed: false, tenant_id, words })
    }

    async fn attempt(&self, deed: &Deed) -> Result<Answer, Error<DeedRefusal>> {
        let desk = Desk { who: &self.who, rights: self.rights, limits: &self.limits };
        self.db
            .run("support_perform", |conn| {
                async move {
                    let now = self.clock.now();
                    match idempotency::claim(conn, &self.claim, now).await.widen()? {
                        Claimed::Answered(answer) => return Ok(answer),
                        Claimed::Fresh => {}
                    }
                    let outcome = match deed {
                        Deed::Ask(ask) => desk.ask(conn, ask, now).await,
                        Deed::Approve { request_id, note } => desk.approve(conn, *request_id, note.as_ref(), now).await,
                        Deed::Reject { request_id, note } => desk.reject(conn, *request_id, note.as_ref(), now).await,
                        Deed::Withdraw { request_id } => desk.withdraw(conn, *request_id, now).await,
                    };
                    let outcome = outcome.widen()?;
                    let (status, body) = (self.render)(&outcome, now)?;
                    let answer = Answer { status, body, replayed: false };
                    idempotency::finish_all(conn, &[(&self.claim, &answer)]).await?;
                    Ok(answer)
                }
                .scope_boxed()
            })
            .await
    }
}
