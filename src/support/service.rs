//! Asking, deciding, and trying out what would happen.

use chrono::{DateTime, TimeDelta, Utc};
use scoped_futures::ScopedFutureExt as _;
use sqlx::PgConnection;

use super::store::{self, Decision, NewDecision, NewRequest, Request};
use super::{AdjustmentReason, Limit, Limits, Refusal};
use crate::audit::{self, Line, Who};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::fee;
use crate::funding;
use crate::ids::{Actor, Pocket, Reason, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata, PostedRow};
use crate::money::{Currency, MinorUnits};
use crate::payment;
use crate::staff::Role;

/// How the references of the desk's rows begin.
pub const REFERENCE_PREFIX: &str = "support:";

/// What a caller may do at the desk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// A program with a token; `decides` says whether the token allows decisions.
    Program {
        /// Whether it may decide about requests.
        decides: bool,
    },
    /// A person.
    Staff(Role),
}

/// A caller at the desk.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    /// Who, and from where.
    pub who: &'a Who,
    /// What they may do.
    pub rights: Rights,
    /// The limits of this installation.
    pub limits: &'a Limits,
}

/// What somebody asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    kind: Kind,
    tenant_id: TenantId,
    currency: Currency,
    amount: MinorUnits,
    original_seq: Option<i64>,
    reason: String,
    note: String,
}

impl Ask {
    /// Give back a debit, or a part of it.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "whoever asks has just read it and needs it no more")]
    pub fn refund(
        tenant_id: TenantId,
        currency: Currency,
        original_seq: i64,
        amount: MinorUnits,
        reason: Reason,
    ) -> Self {
        Self {
            kind: Kind::Refund,
            tenant_id,
            currency,
            amount,
            original_seq: Some(original_seq),
            reason: reason.as_str().to_owned(),
            note: String::new(),
        }
    }

    /// Correct a wallet, by a signed amount.
    #[must_use]
    pub fn adjustment(
        tenant_id: TenantId,
        currency: Currency,
        amount: MinorUnits,
        reason: AdjustmentReason,
        note: &Reason,
    ) -> Self {
        Self {
            kind: Kind::Adjustment,
            tenant_id,
            currency,
            amount,
            original_seq: None,
            reason: reason.as_str().to_owned(),
            note: note.as_str().to_owned(),
        }
    }

    /// Whose wallet.
    #[must_use]
    pub const fn tenant_id(&self) -> &TenantId {
        &self.tenant_id
    }

    /// What the audit calls it.
    #[must_use]
    pub fn action(&self) -> &'static str {
        if self.kind == Kind::Refund { "refund" } else { "adjustment" }
    }

    /// What is asked, in words and numbers of ours.
    #[must_use]
    pub fn words(&self) -> String {
        movement(&self.kind, self.amount, &self.currency, self.original_seq)
    }

    /// What the asker wrote, for the end of a line.
    #[must_use]
    pub fn written(&self) -> String {
        written(&[("reason", &self.reason), ("note", &self.note)])
    }
}

/// What came of asking or deciding.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The request as it stands now.
    pub request: Request,
    /// The ledger's row, when it was posted.
    pub row: Option<PostedRow>,
}

/// What would come of asking now.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// Whether a second person has to approve.
    pub needs_approval: bool,
    /// What the asker may move alone in 24 hours, in words.
    pub limit: String,
    /// What they moved alone in this wallet in the last 24 hours.
    pub moved_lately: MinorUnits,
    /// The balance now.
    pub before: MinorUnits,
    /// The balance after it, and after the dues that it pays.
    pub after: MinorUnits,
    /// How many overdue dues it pays.
    pub dues_paid: usize,
}

type Result<T, R = Refusal> = std::result::Result<T, Error<R>>;

impl Desk<'_> {
    fn limit(&self) -> &Limit {
        match self.rights {
            Rights::Staff(Role::Approver | Role::Admin) => &self.limits.approver,
            Rights::Staff(Role::Viewer | Role::Agent) | Rights::Program { .. } => &self.limits.agent,
        }
    }

    fn may_ask(&self) -> Result<()> {
        match self.rights {
            Rights::Staff(role) if role < Role::Agent => {
                Err(Error::Refused(Refusal::RoleTooSmall { needed: Role::Agent.as_str() }))
            }
            Rights::Staff(_) | Rights::Program { .. } => Ok(()),
        }
    }

    fn may_decide(&self) -> Result<()> {
        match self.rights {
            Rights::Staff(role) if role >= Role::Approver => Ok(()),
            Rights::Program { decides: true } => Ok(()),
            Rights::Staff(_) | Rights::Program { .. } => {
                Err(Error::Refused(Refusal::RoleTooSmall { needed: Role::Approver.as_str() }))
            }
        }
    }

    /// Posts what is asked when it is within the asker's limit, else lets it wait for a second person. What the
    /// ledger would refuse now is refused in either case.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing was written.
    pub async fn ask(&self, conn: &mut PgConnection, ask: &Ask, now: DateTime<Utc>) -> Result<Outcome> {
        self.may_ask()?;
        if ask.amount.is_zero() || (ask.kind == Kind::Refund && !ask.amount.is_positive()) {
            let (kind, amount) = (ask.kind.clone(), ask.amount.get());
            return Err(Error::Refused(ledger::Refusal::WrongSign { index: 0, kind, amount }.into()));
        }
        // The lock comes first: what the asker moved lately is read after it, so two at once don't both fit.
        ledger::lock_wallet(conn, &ask.tenant_id, &ask.currency.code, now).await.widen()?;
        refuse_standing_booking(conn, ask).await?;
        let since = day_before(now);
        let lately = store::moved_alone(conn, &ask.tenant_id, &ask.currency.code, &self.who.actor, since).await?;
        let alone = self.limit().allows(&ask.currency, lately, ask.amount);
        let expires_at = now
            .checked_add_signed(TimeDelta::hours(i64::from(self.limits.request_hours)))
            .ok_or_else(|| Fault::new("a request would end beyond all time"))?;
        let request_id = store::insert(
            conn,
            &NewRequest {
                kind: &ask.kind,
                tenant_id: &ask.tenant_id,
                currency: &ask.currency.code,
                amount: ask.amount,
                original_seq: ask.original_seq,
                reason: &ask.reason,
                note: &ask.note,
                requested_by: &self.who.actor,
                requested_at: now,
                expires_at,
            },
        )
        .await?;
        let mut request =
            store::lock(conn, request_id).await?.ok_or_else(|| Fault::new("a new request was not there to read"))?;
        if alone {
            let row = self.grant(conn, &mut request, Decision::WithinLimit, None, now).await?;
            return Ok(Outcome { request, row: Some(row) });
        }
        let rehearsed = ledger::rehearse(conn, &[entry(&request, None)?], &self.actor()?, now).await;
        explain(conn, &request, rehearsed).await?;
        let words = format!("request {request_id}: {} waits for a second person{}", ask.words(), ask.written());
        self.note(conn, ask.action(), &request.tenant_id, words, now).await?;
        Ok(Outcome { request, row: None })
    }

    /// Approves what somebody else asked for: it is held against the ledger again and posted. Approving again
    /// what the same person approved answers the same.
    ///
    /// # Errors
    /// A [`Refusal`]; the request is as it was.
    pub async fn approve(
        &self,
        conn: &mut PgConnection,
        request_id: i64,
        note: Option<&Reason>,
        now: DateTime<Utc>,
    ) -> Result<Outcome> {
        let mut request = match self.take_up(conn, request_id, Decision::Approved, now).await? {
            Taken::Repeated(outcome) => return Ok(*outcome),
            Taken::Open(request) => request,
        };
        let row = self.grant(conn, &mut request, Decision::Approved, note, now).await?;
        Ok(Outcome { request: *request, row: Some(row) })
    }

    /// Says no to what somebody else asked for.
    ///
    /// # Errors
    /// A [`Refusal`]; the request is as it was.
    pub async fn reject(
        &self,
        conn: &mut PgConnection,
        request_id: i64,
        note: Option<&Reason>,
        now: DateTime<Utc>,
    ) -> Result<Outcome> {
        self.end(conn, request_id, Decision::Rejected, note, now).await
    }

    /// Takes back what one asked for oneself.
    ///
    /// # Errors
    /// A [`Refusal`]; the request is as it was.
    pub async fn withdraw(&self, conn: &mut PgConnection, request_id: i64, now: DateTime<Utc>) -> Result<Outcome> {
        self.end(conn, request_id, Decision::Withdrawn, None, now).await
    }

    async fn end(
        &self,
        conn: &mut PgConnection,
        request_id: i64,
        decision: Decision,
        note: Option<&Reason>,
        now: DateTime<Utc>,
    ) -> Result<Outcome> {
        let mut request = match self.take_up(conn, request_id, decision, now).await? {
            Taken::Repeated(outcome) => return Ok(*outcome),
            Taken::Open(request) => request,
        };
        self.decide(conn, &mut request, decision, note, None, now).await?;
        let words = format!("request {request_id} of {}: {}{}", request.requested_by, request.words(), said(&request));
        self.note(conn, action(decision), &request.tenant_id, words, now).await?;
        Ok(Outcome { request: *request, row: None })
    }

    /// Locks a request and finds out whether this caller may decide so about it.
    async fn take_up(
        &self,
        conn: &mut PgConnection,
        request_id: i64,
        decision: Decision,
        now: DateTime<Utc>,
    ) -> Result<Taken> {
        if decision == Decision::Withdrawn {
            self.may_ask()?;
        } else {
            self.may_decide()?;
        }
        let request =
            store::lock(conn, request_id).await?.ok_or(Error::Refused(Refusal::UnknownRequest(request_id)))?;
        let own = request.requested_by == self.who.actor;
        let withdraws = decision == Decision::Withdrawn;
        if withdraws && !own {
            return Err(Error::Refused(Refusal::NotYours { request_id, requested_by: request.requested_by }));
        }
        if own && !withdraws {
            return Err(Error::Refused(Refusal::OwnRequest(request_id)));
        }
        if let (Some(decided), Some(decided_by)) = (request.decision, &request.decided_by) {
            if decided == decision && *decided_by == self.who.actor {
                let row = match request.posted_seq {
                    Some(seq) => ledger::row(conn, &request.tenant_id, &request.currency.code, seq).await?,
                    None => None,
                };
                return Ok(Taken::Repeated(Box::new(Outcome { request, row })));
            }
            let decided_by = decided_by.clone();
            return Err(Error::Refused(Refusal::Decided { request_id, decision: decided.as_str(), decided_by }));
        }
        if request.expires_at <= now {
            return Err(Error::Refused(Refusal::Expired { request_id, expired_at: request.expires_at }));
        }
        Ok(Taken::Open(Box::new(request)))
    }

    /// Posts a request with what its credit sets off.
    async fn grant(
        &self,
        conn: &mut PgConnection,
        request: &mut Request,
        decision: Decision,
        note: Option<&Reason>,
        now: DateTime<Utc>,
    ) -> Result<PostedRow> {
        let decider = (decision == Decision::Approved).then_some(self.who.actor.as_str());
        let entry = entry(request, decider)?;
        let posted = funding::post(conn, &[entry], Vec::new(), &self.actor()?, now).await;
        let row = explain(conn, request, posted)
            .await?
            .pop()
            .ok_or_else(|| Fault::new("the ledger booked nothing of what it was asked"))?;
        self.decide(conn, request, decision, note, Some(row.seq), now).await?;
        let exponent = request.currency.exponent;
        let before = row.balance_after.checked_sub(row.amount).unwrap_or_default();
        let words = format!(
            "request {}: {} posted as row {}; balance {} before, {} after{}{}",
            request.request_id,
            request.words(),
            row.seq,
            before.to_text(exponent),
            row.balance_after.to_text(exponent),
            if decision == Decision::Approved { format!("; asked by {}", request.requested_by) } else { String::new() },
            said(request),
        );
        let action = if decision == Decision::Approved { action(decision) } else { request_action(request) };
        self.note(conn, action, &request.tenant_id, words, now).await?;
        Ok(row)
    }

    async fn decide(
        &self,
        conn: &mut PgConnection,
        request: &mut Request,
        decision: Decision,
        note: Option<&Reason>,
        posted_seq: Option<i64>,
        now: DateTime<Utc>,
    ) -> std::result::Result<(), Fault> {
        let note = note.map(Reason::as_str);
        let new = NewDecision { decision, decided_by: &self.who.actor, decided_at: now, note, posted_seq };
        store::decide(conn, request.request_id, &new).await?;
        request.decision = Some(decision);
        request.decided_by = Some(self.who.actor.clone());
        request.decided_at = Some(now);
        request.decision_note = note.map(ToOwned::to_owned);
        request.posted_seq = posted_seq;
        Ok(())
    }

    fn actor(&self) -> std::result::Result<Actor, Fault> {
        Actor::parse(self.who.actor.clone()).map_err(|error| Fault::new("a caller is no actor").because(error))
    }

    async fn note(
        &self,
        conn: &mut PgConnection,
        action: &'static str,
        tenant_id: &TenantId,
        words: String,
        now: DateTime<Utc>,
    ) -> std::result::Result<(), Fault> {
        let line = Line { action, allowed: true, tenant_id: Some(tenant_id.clone()), words };
        audit::write(conn, self.who, &line, now).await
    }

    /// Tries out what asking would do, on the real path, and rolls it back.
    ///
    /// # Errors
    /// The refusal that asking would meet.
    pub async fn rehearse(&self, db: &Database, clock: &Clock, ask: &Ask) -> Result<Rehearsal> {
        let rehearsed = db
            .run("support_rehearse", |conn| {
                async move {
                    let now = clock.now();
                    let wallet = &ask.currency.code;
                    let before = ledger::balance(conn, &ask.tenant_id, wallet, None, now).await?;
                    let owed_before = fee::overdue_of(conn, &ask.tenant_id).await?.len();
                    let since = day_before(now);
                    let moved_lately = store::moved_alone(conn, &ask.tenant_id, wallet, &self.who.actor, since).await?;
                    let outcome = self.ask(conn, ask, now).await.widen()?;
                    let needs_approval = outcome.row.is_none();
                    if needs_approval {
                        funding::post(conn, &[entry(&outcome.request, None)?], Vec::new(), &self.actor()?, now)
                            .await
                            .map_err(Error::widen::<Refusal>)
                            .widen()?;
                    }
                    let after = ledger::balance(conn, &ask.tenant_id, wallet, None, now).await?;
                    let owed_after = fee::overdue_of(conn, &ask.tenant_id).await?.len();
                    Err::<std::convert::Infallible, _>(Error::Refused(Ended::Rehearsed(Rehearsal {
                        needs_approval,
                        limit: self.limit().to_text(&ask.currency),
                        moved_lately,
                        before: before.map(|balance| balance.balance).unwrap_or_default(),
                        after: after.map(|balance| balance.balance).unwrap_or_default(),
                        dues_paid: owed_before.saturating_sub(owed_after),
                    })))
                }
                .scope_boxed()
            })
            .await;
        ended(rehearsed)
    }

    /// Tries out what approving a request would do to its wallet now, whoever asks, on the real path, and rolls it
    /// back.
    ///
    /// # Errors
    /// The refusal that approving would meet.
    pub async fn rehearse_approval(&self, db: &Database, clock: &Clock, request: &Request) -> Result<Rehearsal> {
        let rehearsed = db
            .run("support_rehearse_approval", |conn| {
                async move {
                    let now = clock.now();
                    let (tenant_id, wallet) = (&request.tenant_id, &request.currency.code);
                    let before = ledger::balance(conn, tenant_id, wallet, None, now).await?;
                    let owed_before = fee::overdue_of(conn, tenant_id).await?.len();
                    let posted = funding::post(conn, &[entry(request, None)?], Vec::new(), &self.actor()?, now).await;
                    explain(conn, request, posted).await.widen()?;
                    let after = ledger::balance(conn, tenant_id, wallet, None, now).await?;
                    let owed_after = fee::overdue_of(conn, tenant_id).await?.len();
                    Err::<std::convert::Infallible, _>(Error::Refused(Ended::Rehearsed(Rehearsal {
                        needs_approval: true,
                        limit: self.limit().to_text(&request.currency),
                        moved_lately: MinorUnits::ZERO,
                        before: before.map(|balance| balance.balance).unwrap_or_default(),
                        after: after.map(|balance| balance.balance).unwrap_or_default(),
                        dues_paid: owed_before.saturating_sub(owed_after),
                    })))
                }
                .scope_boxed()
            })
            .await;
        ended(rehearsed)
    }
}

fn day_before(now: DateTime<Utc>) -> DateTime<Utc> {
    now.checked_sub_signed(TimeDelta::days(1)).unwrap_or(DateTime::UNIX_EPOCH)
}

fn ended(rehearsed: std::result::Result<std::convert::Infallible, Error<Ended>>) -> Result<Rehearsal> {
    match rehearsed {
        Ok(never) => match never {},
        Err(Error::Refused(Ended::Rehearsed(rehearsal))) => Ok(rehearsal),
        Err(Error::Refused(Ended::Refused(refusal))) => Err(Error::Refused(refusal)),
        Err(Error::Fault(fault)) => Err(Error::Fault(fault)),
    }
}

/// How a rehearsal ends: always rolled back.
enum Ended {
    Rehearsed(Rehearsal),
    Refused(Refusal),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

enum Taken {
    Open(Box<Request>),
    Repeated(Box<Outcome>),
}

const fn action(decision: Decision) -> &'static str {
    match decision {
        Decision::WithinLimit => "request.post",
        Decision::Approved => "request.approve",
        Decision::Rejected => "request.reject",
        Decision::Withdrawn => "request.withdraw",
    }
}

fn request_action(request: &Request) -> &'static str {
    if request.kind == Kind::Refund { "refund" } else { "adjustment" }
}

/// A movement in numbers.
fn movement(kind: &Kind, amount: MinorUnits, currency: &Currency, original_seq: Option<i64>) -> String {
    let of = original_seq.map_or_else(String::new, |seq| format!(" of row {seq}"));
    format!("{kind} of {} {}{of}", amount.to_text(currency.exponent), currency.code)
}

impl Request {
    /// What is asked, in words and numbers of ours.
    #[must_use]
    pub fn words(&self) -> String {
        movement(&self.kind, self.amount, &self.currency, self.original_seq)
    }
}

/// What people wrote about a request.
fn said(request: &Request) -> String {
    let decision = request.decision_note.as_deref().unwrap_or_default();
    written(&[("reason", &request.reason), ("note", &request.note), ("decided with the note", decision)])
}

/// Words of people for the end of a sentence of ours, where a long one pushes no number off: in quotes, those of their
/// own escaped, and no mark that turns the direction of writing. So nobody writes what looks like the rest of the line.
pub(super) fn written(texts: &[(&str, &str)]) -> String {
    let written = texts.iter().filter(|(_, text)| !text.is_empty());
    written.fold(String::new(), |all, (what, text)| format!("{all}, {what} {text:?}"))
}

/// The movement of a request.
fn entry(request: &Request, decided_by: Option<&str>) -> std::result::Result<Entry, Fault> {
    let broken = |error: crate::ids::InvalidName| Fault::new("a request breaks a rule of the ledger").because(error);
    let reason =
        if request.note.is_empty() { request.reason.clone() } else { format!("{}: {}", request.reason, request.note) };
    let mut about = serde_json::Map::new();
    about.insert("request_id".to_owned(), request.request_id.to_string().into());
    if decided_by.is_some() {
        about.insert("requested_by".to_owned(), request.requested_by.clone().into());
    }
    Ok(Entry {
        tenant_id: request.tenant_id.clone(),
        currency: request.currency.code.clone(),
        kind: request.kind.clone(),
        amount: request.amount,
        pocket: Pocket::main(),
        reference: Reference::parse(format!("{REFERENCE_PREFIX}{}", request.request_id)).map_err(broken)?,
        original_seq: request.original_seq,
        reason: Some(Reason::parse(reason).map_err(broken)?),
        metadata: Metadata::from_object(&about)
            .map_err(|error| Fault::new("a request's metadata breaks its rule").because(error))?,
        floor: Floor::Zero,
    })
}

/// What a booking cost isn't given back while the booking stands: whoever cancels it frees the slot in the same step.
async fn refuse_standing_booking(conn: &mut PgConnection, ask: &Ask) -> Result<()> {
    let Some(seq) = ask.original_seq else { return Ok(()) };
    if payment::is_of_standing_booking(conn, &ask.tenant_id, &ask.currency.code, seq).await? {
        return Err(Error::Refused(Refusal::GoesThroughBooking { tenant_id: ask.tenant_id.clone(), seq }));
    }
    Ok(())
}

/// Says of a top-up that can't be refunded how it goes back instead.
async fn explain<T>(
    conn: &mut PgConnection,
    request: &Request,
    outcome: std::result::Result<T, Error<ledger::Refusal>>,
) -> Result<T> {
    match outcome {
        Err(Error::Refused(ledger::Refusal::OriginalUnfit { seq, .. })) => {
            let row = ledger::row(conn, &request.tenant_id, &request.currency.code, seq).await?;
            if row.is_some_and(|row| row.kind == Kind::TopUp) {
                let tenant_id = request.tenant_id.clone();
                return Err(Error::Refused(Refusal::GoesThroughProvider { tenant_id, seq }));
            }
            Err(Error::Refused(ledger::Refusal::OriginalUnfit { index: 0, kind: request.kind.clone(), seq }.into()))
        }
        outcome => outcome.widen(),
    }
}
