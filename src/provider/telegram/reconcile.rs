//! The bot's own list of transactions against our book.
//!
//! The list only grows, the oldest line first, so the count of lines that were read is a place in it. A few lines
//! before that place are read again. Each line is brought into the book by the very functions that the webhook
//! uses, and they do nothing twice; so a line that is read again, or was told by the webhook meanwhile, changes
//! nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::PoisonError;

use chrono::{SubsecRound as _, TimeDelta};
use scoped_futures::ScopedFutureExt as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::bot_api::CallError;
use super::webhook::{hex, never_refused, note};
use super::wire::{GoneBack, Line, Paid, Unread, read_line};
use super::{Bot, PROVIDER, Telegram, charge_of, prefix, store};
use crate::fault::{Error, Fault};
use crate::ids::OrderId;
use crate::payment::Refusal;
use crate::payment::order;
use crate::payment::prepaid::case::{self, CaseKind, NewCase};
use crate::payment::prepaid::refund::{self, ConfirmedBy, Refunded};
use crate::payment::prepaid::{self, KnownReceipt, Received, Source};

/// Telegram's most lines of a page.
const PAGE_LINES: i64 = 100;

/// How many lines before our place are read again.
const OVERLAP_LINES: i64 = 20;

/// A payment that is so young may still be on its way through the webhook: found here first, nothing is odd.
const ON_ITS_WAY: TimeDelta = TimeDelta::minutes(10);

/// How far Telegram's clock may be behind the one that says when an order was made.
const CLOCKS_DIFFER_BY: TimeDelta = TimeDelta::minutes(5);

impl Telegram {
    /// Reads each bot's list to its end, and its balance. Returns how many things were not in the book before.
    ///
    /// # Errors
    /// A fault; what was read before it stays read.
    pub async fn reconcile(&self) -> Result<u64, Fault> {
        let mut found: u64 = 0;
        for bot in self.bots() {
            match self.read_list(bot).await {
                Ok(news) => {
                    found = found.saturating_add(news);
                    self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).remove(&bot.bot_id);
                    self.look_at_balance(bot).await?;
                }
                Err(Error::Fault(fault)) => return Err(fault),
                // Another bot's list may be read all the same; this one's comes next time.
                Err(Error::Refused(error)) => self.note_unreadable(bot.bot_id, &error),
            }
        }
        Ok(found)
    }

    /// A list that has fewer lines than were read before is not the one that was read: it is read from its beginning,
    /// which books nothing twice, and a person hears of it.
    async fn note_other_list(&self, bot: &Bot, lines_read: i64, lines: i64) -> Result<(), Fault> {
        let bot_id = bot.bot_id;
        let why = format!(
            "The list of bot {bot_id} ends before line {lines}, and {lines_read} lines were read of it before. A list only \
             grows, so this is another one (another bot under this number, or another server). It is read from its \
             beginning; what it has is in the book, and what only the first list had is not confirmed any more."
        );
        self.open_case(CaseKind::UnreadLine, format!("{bot_id}:another-list"), None, why).await?;
        let mut conn = self.db.pool().acquire().await?;
        store::restart_cursor(&mut conn, bot_id).await
    }

    /// Says once that a list can't be read, and then again when it was read in between: it is tried each minute.
    fn note_unreadable(&self, bot_id: i64, error: &CallError) {
        metrics::counter!("hamyon_telegram_lists_unread_total").increment(1);
        if self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).insert(bot_id) {
            tracing::warn!(bot_id, "the list of bot {bot_id} is not read until the Bot API answers: {error}");
        }
    }

    async fn read_list(&self, bot: &Bot) -> Result<u64, Error<CallError>> {
        let began_at = self.clock.now();
        let cursor = {
            let mut conn = self.db.pool().acquire().await?;
            store::begin(&mut conn, bot.bot_id, began_at).await?;
            store::find_cursor(&mut conn, bot.bot_id).await?
        };
        // Telegram's dates are whole seconds.
        let begins_at = cursor.begins_at.map(|begins_at| begins_at.trunc_subsecs(0));
        let mut offset = cursor.lines_read.saturating_sub(OVERLAP_LINES).max(0);
        let mut found: u64 = 0;
        let mut lines_read = cursor.lines_read;
        loop {
            let page = self.api.star_transactions(bot, offset, PAGE_LINES).await.map_err(Error::Refused)?;
            let end = offset.saturating_add(i64::try_from(page.len()).unwrap_or(0));
            if end < lines_read && offset > 0 {
                // The list only grows, so this is another one, and whatever it holds hasn't been looked at.
                self.note_other_list(bot, lines_read, end).await?;
                (offset, lines_read) = (0, 0);
                continue;
            }
            let lines: Vec<(&Value, Result<Line, Unread>)> = page.iter().map(|line| (line, read_line(line))).collect();
            let known = self.known(bot, &lines).await?;
            for (line, read) in &lines {
                if let Ok(Line::Paid(paid)) = read
                    && begins_at.is_some_and(|begins_at| paid.paid_at < begins_at)
                    && !self.is_ours(paid).await?
                {
                    continue;
                }
                found = found.saturating_add(self.take_line(bot, line, read, &known).await?);
            }
            let lines = i64::try_from(page.len()).unwrap_or(0);
            offset = offset.saturating_add(lines);
            let at_the_end = lines < PAGE_LINES;
            // The place moves behind what has been booked, never before it.
            let mut conn = self.db.pool().acquire().await?;
            store::move_cursor(&mut conn, bot.bot_id, offset, at_the_end.then_some(began_at)).await?;
            if at_the_end {
                return Ok(found);
            }
        }
    }

    /// Whether a payment from before the book began names one of our orders all the same: one in stars that was there
    /// when it was paid. Names that are plain numbers come again, and an old sale must not pay for a new order.
    async fn is_ours(&self, paid: &Paid) -> Result<bool, Fault> {
        let Ok(order_id) = OrderId::parse(paid.payload.as_str()) else { return Ok(false) };
        let mut conn = self.db.pool().acquire().await?;
        let order = order::find(&mut conn, &order_id).await?;
        let there_by = paid.paid_at.checked_add_signed(CLOCKS_DIFFER_BY).unwrap_or(paid.paid_at);
        Ok(order.is_some_and(|order| order.currency == self.currency && order.created_at <= there_by))
    }

    /// Which payments of a page are in the book, and whether they have gone back. Almost every line of almost every
    /// page is there already, and one question for all of them is enough to know.
    async fn known(
        &self,
        bot: &Bot,
        lines: &[(&Value, Result<Line, Unread>)],
    ) -> Result<HashMap<String, KnownReceipt>, Fault> {
        let external_ids: Vec<String> = lines
            .iter()
            .filter_map(|(_, read)| match read {
                Ok(Line::Paid(paid)) => Some(&paid.charge_id),
                Ok(Line::GoneBack(gone)) => Some(&gone.charge_id),
                Ok(Line::Other) | Err(_) => None,
            })
            .map(|charge_id| format!("{}{charge_id}", prefix(bot.bot_id)))
            .collect();
        let mut conn = self.db.pool().acquire().await?;
        let known = prepaid::find_known(&mut conn, PROVIDER, &external_ids).await?;
        Ok(known.into_iter().map(|known| (charge_of(bot.bot_id, &known.external_id).to_owned(), known)).collect())
    }

    /// Brings one line into the book; 1 when it wasn't there.
    async fn take_line(
        &self,
        bot: &Bot,
        line: &Value,
        read: &Result<Line, Unread>,
        known: &HashMap<String, KnownReceipt>,
    ) -> Result<u64, Fault> {
        let taken = match read {
            Ok(Line::Other) => return Ok(0),
            Ok(Line::Paid(paid)) if known.get(&paid.charge_id).is_some_and(|known| says_the_same(known, paid)) => {
                return Ok(0);
            }
            Ok(Line::GoneBack(gone)) if known.get(&gone.charge_id).is_some_and(|known| known.gone) => return Ok(0),
            // One that is known as something else books nothing and is a case: the list is Telegram's own book.
            Ok(Line::Paid(paid)) => self.take_paid(bot, paid).await,
            Ok(Line::GoneBack(gone)) => self.take_gone_back(bot, gone).await,
            // One line that can't be read must not keep the others from being read.
            Err(unread) => {
                let hash: [u8; 32] = Sha256::digest(line.to_string().as_bytes()).into();
                let hash = hex(&hash);
                let text: String = line.to_string().chars().take(1_000).collect();
                let why = format!(
                    "A line of the list of bot {} can't be read ({unread}) and isn't in the book: {text}",
                    bot.bot_id
                );
                self.open_case(CaseKind::UnreadLine, format!("{}:{hash}", bot.bot_id), None, why).await
            }
        };
        taken.map(u64::from)
    }

    async fn take_paid(&self, bot: &Bot, paid: &Paid) -> Result<bool, Fault> {
        let receipt = &Self::receipt(bot.bot_id, paid, Source::Statement)?;
        let lost = self.clock.now().signed_duration_since(paid.paid_at) > ON_ITS_WAY;
        let received = self
            .db
            .run("telegram_lost_payment", |conn| {
                async move {
                    let now = self.clock.now();
                    let received = prepaid::receive(conn, receipt, &self.currency, &self.actor, now).await?;
                    if let (Received::New(outcome), true) = (&received, lost) {
                        let new = NewCase {
                            provider: PROVIDER,
                            kind: CaseKind::LostPayment,
                            subject: receipt.key.external_id.to_string(),
                            payment_id: Some(outcome.payment_id),
                            why: format!(
                                "Telegram never told us of this payment of {} stars for order {:?}; its list did. \
                                 It is {} now. Was the webhook away?",
                                receipt.amount.get(),
                                receipt.named_order,
                                outcome.decision.as_str()
                            ),
                        };
                        case::open(conn, &new, now).await?;
                    }
                    Ok(received)
                }
                .scope_boxed()
            })
            .await;
        match received {
            Ok(received) => {
                note(&received);
                Ok(matches!(received, Received::New(_)))
            }
            Err(Error::Fault(fault)) => Err(fault),
            // The ledger holds another row of that name; the line is kept for a person and the others go on.
            Err(Error::Refused(refusal)) => {
                let why = format!("A payment of Telegram's list can't be booked: {refusal}");
                self.open_case(CaseKind::UnreadLine, receipt.key.external_id.to_string(), None, why).await
            }
        }
    }

    async fn take_gone_back(&self, bot: &Bot, gone: &GoneBack) -> Result<bool, Fault> {
        let key = &Self::key(bot.bot_id, &gone.charge_id)
            .map_err(|error| Fault::new("a charge's id breaks its rule").because(error))?;
        let refunded = self
            .db
            .run("telegram_listed_refund", |conn| {
                async move {
                    let now = self.clock.now();
                    refund::confirm(conn, key, gone.amount, ConfirmedBy::Statement, &self.actor, now).await
                }
                .scope_boxed()
            })
            .await;
        match refunded {
            Ok(refunded) => Ok(refunded == Refunded::New),
            Err(Error::Fault(fault)) => Err(fault),
            Err(Error::Refused(refusal)) => {
                let why = format!("A refund of Telegram's list can't be booked: {}", said(&refusal));
                self.open_case(CaseKind::UnreadLine, format!("{}:out", key.external_id), None, why).await
            }
        }
    }

    /// A chargeback may take more than the bot has.
    async fn look_at_balance(&self, bot: &Bot) -> Result<(), Fault> {
        match self.api.star_balance(bot).await {
            Ok(stars) if stars < 0 => {
                let why = format!(
                    "Bot {} has {stars} stars at Telegram: payments were taken back after their stars had been \
                     withdrawn. Refunds may fail until it is paid.",
                    bot.bot_id
                );
                self.open_case(CaseKind::NegativeBalance, bot.bot_id.to_string(), None, why).await?;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(bot_id = bot.bot_id, "the balance of bot {} was not read: {error}", bot.bot_id);
            }
        }
        Ok(())
    }

    async fn open_case(
        &self,
        kind: CaseKind,
        subject: String,
        payment_id: Option<i64>,
        why: String,
    ) -> Result<bool, Fault> {
        let new = &NewCase { provider: PROVIDER, kind, subject, payment_id, why };
        self.db
            .run("telegram_open_case", |conn| {
                async move { Ok::<_, Error<Infallible>>(case::open(conn, new, self.clock.now()).await?) }.scope_boxed()
            })
            .await
            .map_err(never_refused)
    }
}

fn says_the_same(known: &KnownReceipt, paid: &Paid) -> bool {
    known.amount == paid.amount
        && known.payer == paid.payer.to_string()
        && known.named_order == super::webhook::storable(&paid.payload)
}

fn said(refusal: &Refusal) -> String {
    refusal.to_string()
}
