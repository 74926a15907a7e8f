//! An update comes: whose bot's is it, is it about a payment, and what is answered.
//!
//! A pre-checkout query gets its answer after the commit, never before, and within ten seconds of the moment at
//! which Telegram sent it. When the database can't make sure in time, the answer is an explicit no, and nothing is
//! given up early: a yes that couldn't be delivered holds its slot until its time is over (B3).

use std::convert::Infallible;
use std::time::{Duration, Instant};

use scoped_futures::ScopedFutureExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::auth::bot_of;
use super::wire::{GoneBack, Numbered, Paid, PreCheckout, Update, read_update};
use super::{AnswerBy, Bot, PROVIDER, Telegram, store, words};
use crate::fault::{Error, Fault};
use crate::payment::Refusal;
use crate::payment::prepaid::case::{self, CaseKind, NewCase};
use crate::payment::prepaid::refund::{ConfirmedBy, Refunded};
use crate::payment::prepaid::{self, Answer, Question, Receipt, Received, Source, refund};

/// What Telegram gives us from its sending of a query to the arrival of our answer is ten seconds. Two of them are
/// for the ways there and back.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// The least that is left for the call of the Bot API.
const CALL_WITHIN_MIN: Duration = Duration::from_millis(500);

/// The longest part of a body that is kept.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// A call of the webhook.
#[derive(Debug)]
pub struct Delivered {
    /// The secret that it came with.
    pub secret: Option<Vec<u8>>,
    /// The body.
    pub body: Vec<u8>,
    /// When its first byte came.
    pub received: Instant,
    /// Our id of the request.
    pub request_id: String,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// 200: it is done with.
    Done,
    /// 200 with a call of the Bot API as the body.
    Call(Value),
    /// Not 2xx: Telegram sends it again.
    Again,
    /// 401: nobody whom we know.
    Stranger,
}

impl Telegram {
    /// Whether a secret is one of our bots'.
    #[must_use]
    pub fn knows(&self, secret: Option<&[u8]>) -> bool {
        bot_of(self.bots(), secret).is_some()
    }

    /// Answers a call.
    pub async fn answer(&self, call: Delivered) -> Reply {
        let Some(bot) = bot_of(self.bots(), call.secret.as_deref()) else {
            count("stranger", "refused");
            return Reply::Stranger;
        };
        let Numbered { update_id, update } = match read_update(&call.body) {
            Ok(numbered) => numbered,
            Err(unread) => {
                count("unread", "failed");
                return self.keep_for_a_person(bot, &call, &format!("can't be read ({unread})")).await;
            }
        };
        let (kind, reference) = (update.kind(), &call.request_id);
        let outcome = match &update {
            Update::Other => Ok(Reply::Done),
            Update::PreCheckout(query) => Ok(self.pre_checkout(bot, update_id, query, &call).await),
            Update::Paid(paid) => self.paid(bot, update_id, paid, &call).await,
            Update::GoneBack(gone) => self.gone_back(bot, update_id, gone, &call).await,
        };
        match outcome {
            Ok(reply) => {
                count(kind, "ok");
                reply
            }
            Err(Error::Fault(fault)) => {
                count(kind, "failed");
                tracing::error!(reference, "Telegram's update {reference} ({kind}) failed: {}", fault.chain());
                Reply::Again
            }
            Err(Error::Refused(refusal)) => {
                count(kind, "refused");
                self.keep_for_a_person(bot, &call, &format!("can't be booked ({refusal})")).await
            }
        }
    }

    async fn pre_checkout(&self, bot: &Bot, update_id: i64, query: &PreCheckout, call: &Delivered) -> Reply {
        let language = words::language(query.language_code.as_deref());
        let left = ANSWER_WITHIN.saturating_sub(call.received.elapsed());
        let (answer, reference) = (self.ask(bot, update_id, query, &call.body), &call.request_id);
        let words = match tokio::time::timeout(left, answer).await {
            Ok(Ok(Answer::Yes)) => None,
            Ok(Ok(Answer::No(no))) => Some(words::refusal(no, language)),
            Ok(Err(fault)) => {
                tracing::warn!(reference, "a pre-checkout query could not be decided: {}", fault.chain());
                Some(words::not_now(language))
            }
            // What was begun may yet be committed; then the slot is held for a few minutes and nobody pays.
            Err(_) => {
                tracing::warn!(reference, "a pre-checkout query was not decided in time");
                Some(words::not_now(language))
            }
        };
        let status = if words.is_none() { "yes" } else { "no" };
        metrics::counter!("hamyon_pre_checkout_answers_total", "answer" => status).increment(1);
        let mut answer = json!({ "pre_checkout_query_id": query.id, "ok": words.is_none() });
        if let (Some(words), Some(answer)) = (words, answer.as_object_mut()) {
            answer.insert("error_message".to_owned(), words.into());
        }
        match self.settings.answer_by {
            AnswerBy::Response => {
                if let Some(answer) = answer.as_object_mut() {
                    answer.insert("method".to_owned(), "answerPreCheckoutQuery".into());
                }
                Reply::Call(answer)
            }
            AnswerBy::Api => {
                let left = ANSWER_WITHIN.saturating_sub(call.received.elapsed()).max(CALL_WITHIN_MIN);
                if let Err(error) = self.api.answer_pre_checkout(bot, &answer, left).await {
                    // Whether Telegram has the answer is unknown, so a slot that is held stays held (B3).
                    tracing::warn!(reference, "the answer to a pre-checkout query may not have arrived: {error}");
                }
                Reply::Done
            }
        }
    }

    /// Decides about a query and commits.
    async fn ask(&self, bot: &Bot, update_id: i64, query: &PreCheckout, body: &[u8]) -> Result<Answer, Fault> {
        let question = &Question {
            provider: PROVIDER,
            query_id: format!("{}:{}", bot.bot_id, query.id),
            named_order: storable(&query.payload),
            payer: query.payer.to_string(),
            currency: query.currency.clone(),
            amount: query.amount,
        };
        let (terms, bot_id, now) = (&self.checkout_terms(), bot.bot_id, self.clock.now());
        self.db
            .run("telegram_pre_checkout", |conn| {
                async move {
                    let answer = prepaid::check_out(conn, question, terms).await?;
                    store::keep_update(conn, bot_id, update_id, "pre_checkout_query", &text(body), now).await?;
                    Ok::<_, Error<Infallible>>(answer)
                }
                .scope_boxed()
            })
            .await
            .map_err(never_refused)
    }

    async fn paid(&self, bot: &Bot, update_id: i64, paid: &Paid, call: &Delivered) -> Result<Reply, Error<Refusal>> {
        let receipt = &Self::receipt(bot.bot_id, paid, Source::Update)?;
        let (bot_id, body) = (bot.bot_id, &call.body);
        let received = self
            .db
            .run("telegram_payment", |conn| {
                async move {
                    let now = self.clock.now();
                    let received = prepaid::receive(conn, receipt, &self.currency, &self.actor, now).await?;
                    store::keep_update(conn, bot_id, update_id, "successful_payment", &text(body), now).await?;
                    Ok(received)
                }
                .scope_boxed()
            })
            .await?;
        note(&received);
        Ok(Reply::Done)
    }

    /// A payment in the payment room's words.
    pub(super) fn receipt(bot_id: i64, paid: &Paid, source: Source) -> Result<Receipt, Fault> {
        let key = Self::key(bot_id, &paid.charge_id)
            .map_err(|error| Fault::new("a charge's id breaks its rule").because(error))?;
        let named_order = storable(&paid.payload);
        let account = json!({ "invoice_payload": named_order, "payer": paid.payer.to_string(), "bot": bot_id });
        Ok(Receipt {
            key,
            payer: paid.payer.to_string(),
            currency: storable(&paid.currency),
            amount: paid.amount,
            paid_at: paid.paid_at,
            account_as_received: account.to_string(),
            named_order,
            source,
        })
    }

    async fn gone_back(
        &self,
        bot: &Bot,
        update_id: i64,
        gone: &GoneBack,
        call: &Delivered,
    ) -> Result<Reply, Error<Refusal>> {
        let key = &Self::key(bot.bot_id, &gone.charge_id)
            .map_err(|error| Fault::new("a charge's id breaks its rule").because(error))?;
        let (bot_id, body) = (bot.bot_id, &call.body);
        let (refunded, is_listed) = self
            .db
            .run("telegram_gone_back", |conn| {
                async move {
                    let now = self.clock.now();
                    let refunded =
                        refund::confirm(conn, key, gone.amount, ConfirmedBy::Update, &self.actor, now).await?;
                    store::keep_update(conn, bot_id, update_id, "refunded_payment", &text(body), now).await?;
                    let told = store::first_told(conn, bot_id, update_id).await?;
                    let read = store::find_cursor(conn, bot_id).await?.read_at;
                    let is_listed = matches!((told, read), (Some(told), Some(read)) if told < read);
                    Ok::<_, Error<Refusal>>((refunded, is_listed))
                }
                .scope_boxed()
            })
            .await?;
        match refunded {
            Refunded::New | Refunded::Already | Refunded::Differs => Ok(Reply::Done),
            // The list was read past it and its payment isn't in the book: the bot sold it before the book began.
            // It must not keep this payer's later messages waiting for a day.
            Refunded::Unknown if is_listed => {
                tracing::warn!(bot_id, charge_id = gone.charge_id, "a payment from before the book began went back");
                Ok(Reply::Done)
            }
            // Its payment may still be on its way to us; the list brings both.
            Refunded::Unknown => Err(Fault::new("a payment that we don't know went back").into()),
        }
    }

    /// Keeps what may be a payment and can't be taken, raises the alarm, and lets it be sent again.
    async fn keep_for_a_person(&self, bot: &Bot, call: &Delivered, problem: &str) -> Reply {
        let reference = &call.request_id;
        tracing::error!(reference, "an update of Telegram {problem} and is kept");
        let hash: [u8; 32] = Sha256::digest(&call.body).into();
        let body = call.body.get(..call.body.len().min(BODY_BYTES_MAX)).unwrap_or_default();
        let (bot_id, now) = (bot.bot_id, self.clock.now());
        let case = &NewCase {
            provider: PROVIDER,
            kind: CaseKind::UnreadUpdate,
            subject: format!("{bot_id}:{}", hex(&hash)),
            payment_id: None,
            why: format!(
                "An update of bot {bot_id} that may be about a payment {problem}. Its body is kept in \
                 telegram_unread_updates, and Telegram sends it again for a day. A payment in it is found by the \
                 list all the same."
            ),
        };
        let kept = self
            .db
            .run("telegram_unread", |conn| {
                async move {
                    store::keep_unread(conn, bot_id, &hash, body, problem, now).await?;
                    case::open(conn, case, now).await?;
                    Ok::<_, Error<Infallible>>(())
                }
                .scope_boxed()
            })
            .await;
        if let Err(error) = kept {
            tracing::error!(reference, "and could not be kept: {}", never_refused(error).chain());
        }
        Reply::Again
    }
}

/// Says in the log what became of a payment that isn't what its payer wanted.
pub(super) fn note(received: &Received) {
    if let Received::New(outcome) = received {
        let (payment_id, decision) = (outcome.payment_id, outcome.decision.as_str());
        metrics::counter!("hamyon_payments_received_total", "provider" => PROVIDER, "decision" => decision)
            .increment(1);
        let why = outcome.decision.why().unwrap_or("as ordered");
        tracing::info!(payment_id, decision, "payment {payment_id} came: {decision}, {why}");
    }
}

fn count(kind: &'static str, status: &'static str) {
    metrics::counter!("hamyon_provider_calls_total", "provider" => PROVIDER, "method" => kind, "code" => status)
        .increment(1);
}

/// A text as PostgreSQL can hold it, and no longer than an invoice's payload may be.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{FFFD}").chars().take(128).collect()
}

/// A body, cut where it is too long to be kept.
fn text(body: &[u8]) -> String {
    let kept = body.get(..body.len().min(BODY_BYTES_MAX)).unwrap_or_default();
    String::from_utf8_lossy(kept).replace('\0', "\u{FFFD}")
}

pub(super) fn hex(hash: &[u8]) -> String {
    use std::fmt::Write as _;
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn never_refused(error: Error<Infallible>) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        Error::Refused(never) => match never {},
    }
}
