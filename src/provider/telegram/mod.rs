//! Telegram Stars: its servers call our webhook, and we call the Bot API.
//!
//! ```text
//! webhook     an update comes: whose bot's, about a payment or not, answered
//! wire        updates and lines of the list as they stand on the wire, read tolerantly
//! bot_api     the few methods we call
//! refunds     the worker of refund tasks: claim and commit, call, record
//! reconcile   the bot's own list of transactions against our book
//! words       what a payer reads when the answer is no, in their language
//! ```
//!
//! What a payment is and what becomes of it is the payment room's (`payment::prepaid`); it knows nothing of Telegram.
//! A payment's id there is `<bot>:<telegram_payment_charge_id>`, since one installation may serve several bots.
//!
//! Facts: <https://core.telegram.org/bots/payments-stars>, <https://core.telegram.org/bots/api>.

pub mod auth;
pub mod bot_api;
mod invoice;
mod reconcile;
mod refunds;
mod store;
mod webhook;
pub mod wire;
mod words;

pub use auth::Bot;
pub use invoice::InvoiceRefusal;
pub use webhook::{Delivered, Reply};
pub use words::refusal as refusal_words;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::clock::Clock;
use crate::db::Database;
use crate::fault::Fault;
use crate::ids::{Actor, ExternalId};
use crate::money::CurrencyCode;
use crate::payment::prepaid::CheckoutTerms;
use crate::payment::{Mode, PaymentKey};
use bot_api::BotApi;

/// The provider's name in our tables.
pub const PROVIDER: &str = "telegram";

/// Stars, whole ones.
pub const CURRENCY: &str = "XTR";

/// How a pre-checkout query is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswerBy {
    /// In the body of our answer to the webhook: one way less, and its result is never seen.
    Response,
    /// By a call of the Bot API.
    Api,
}

/// What is set about the bots.
#[derive(Debug, Clone)]
pub struct TelegramSettings {
    /// The bots. None: every call of the webhook is refused.
    pub bots: Vec<Bot>,
    /// Where the Bot API is.
    pub api_url: String,
    /// How a pre-checkout query is answered.
    pub answer_by: AnswerBy,
    /// How long a yes holds a slot.
    pub hold_for: TimeDelta,
    /// How long a call of the Bot API may take.
    pub timeout: Duration,
}

impl Default for TelegramSettings {
    fn default() -> Self {
        Self {
            bots: Vec::new(),
            api_url: "https://api.telegram.org".to_owned(),
            answer_by: AnswerBy::Response,
            hold_for: TimeDelta::minutes(5),
            timeout: Duration::from_secs(20),
        }
    }
}

/// The door.
#[derive(Debug)]
pub struct Telegram {
    db: Database,
    clock: Clock,
    settings: TelegramSettings,
    api: BotApi,
    currency: CurrencyCode,
    actor: Actor,
    /// Until when a bot's calls wait, because Telegram said so: for all of them, not only for the one that was told.
    pauses: Mutex<HashMap<i64, DateTime<Utc>>>,
    /// The bots whose lists could not be read when it was tried last.
    unreadable: Mutex<HashSet<i64>>,
}

impl Telegram {
    /// Opens the door.
    ///
    /// # Errors
    /// A fault when the HTTP client can't be made.
    pub fn new(db: Database, clock: Clock, settings: TelegramSettings) -> Result<Self, Fault> {
        let api = BotApi::new(&settings.api_url, settings.timeout)?;
        let currency = CurrencyCode::parse(CURRENCY)
            .map_err(|error| Fault::new("the code of stars breaks its rule").because(error))?;
        Ok(Self {
            db,
            clock,
            settings,
            api,
            currency,
            actor: Actor::provider(PROVIDER),
            pauses: Mutex::default(),
            unreadable: Mutex::default(),
        })
    }

    /// The bots.
    #[must_use]
    pub fn bots(&self) -> &[Bot] {
        &self.settings.bots
    }

    /// Begins the book of each bot that is new here: what it sold before is not ours to answer for.
    ///
    /// # Errors
    /// A fault.
    pub async fn begin(&self) -> Result<(), Fault> {
        let mut conn = self.db.pool().acquire().await?;
        for bot in self.bots() {
            store::begin(&mut conn, bot.bot_id, self.clock.now()).await?;
        }
        Ok(())
    }

    /// What holds for every question of a payer.
    fn checkout_terms(&self) -> CheckoutTerms {
        CheckoutTerms {
            hold_for: self.settings.hold_for,
            // Two locks and a few statements, and there is still time to say no within Telegram's ten seconds.
            lock_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(3),
        }
    }

    /// The name of a bot's payment in our book.
    fn key(bot_id: i64, charge_id: &str) -> Result<PaymentKey, crate::ids::InvalidName> {
        let external_id = ExternalId::parse(format!("{bot_id}:{charge_id}"))?;
        Ok(PaymentKey { provider: PROVIDER, mode: Mode::Live, external_id })
    }
}

/// Whether a text is a Telegram user's number: nobody else can pay in stars.
#[must_use]
pub fn is_payer(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|number| number > 0 && number.to_string() == text)
}

/// What the ids of a bot's payments begin with.
fn prefix(bot_id: i64) -> String {
    format!("{bot_id}:")
}

/// The charge of a payment's id.
fn charge_of(bot_id: i64, external_id: &str) -> &str {
    external_id.strip_prefix(&prefix(bot_id)).unwrap_or(external_id)
}
