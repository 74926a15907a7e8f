//! What both journals say about a movement: two postings, and facts beside them.
//!
//! A wallet holds a customer's money, which is our liability: a credit makes it larger, and a liability that
//! grows is negative in both programs. So the posting on the wallet has the opposite sign of the row, and the
//! one on the other account the row's own.

use std::borrow::Cow;
use std::collections::HashSet;

use chrono::{NaiveDate, SecondsFormat};

use super::{Opening, Row, Selection, Wallet};
use crate::ledger::Kind;

/// Providers whose earlier payments somebody may have imported.
const PROVIDERS: [&str; 3] = ["payme", "click", "uzum"];

/// Where the money came from or went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contra<'a> {
    /// What a provider took for us, by the provider's name.
    Provider(&'a str),
    /// What we earned by fees and work.
    Fees,
    /// What we earned by slots.
    Bookings,
    /// What we gave back of it.
    Refunds,
    /// What a person corrected.
    Adjustments,
    /// A kind of the product's own.
    Other(&'a str),
    /// What was there before.
    Opening,
}

impl<'a> Contra<'a> {
    fn of(row: &'a Row) -> Self {
        match &row.kind {
            Kind::TopUp | Kind::TopUpReversal => Self::Provider(provider(row)),
            Kind::SubscriptionFee | Kind::HoldCharge => Self::Fees,
            // What was given away and what of it came to nothing meet on one account.
            Kind::Grant | Kind::Expiry => Self::Other("grant"),
            Kind::Refund => row.original_kind.as_ref().map_or(Self::Refunds, Self::of_refunded),
            Kind::Adjustment => Self::Adjustments,
            Kind::Booking => Self::Bookings,
            Kind::Custom(_) => Self::Other(row.kind.as_str()),
        }
    }

    /// What is given back leaves the account that it came to, so that both come to nothing there. What was earned has
    /// an account of its own for that, beside the one it was earned on.
    fn of_refunded(original: &'a Kind) -> Self {
        match original {
            Kind::SubscriptionFee
            | Kind::HoldCharge
            | Kind::Booking
            // None of these is refunded; should one have been, it is ours to explain.
            | Kind::TopUp
            | Kind::TopUpReversal
            | Kind::Refund
            | Kind::Grant
            | Kind::Expiry => Self::Refunds,
            Kind::Adjustment => Self::Adjustments,
            Kind::Custom(_) => Self::Other(original.as_str()),
        }
    }
}

/// A reference begins with its provider's name. That is believed of the provider itself (the actor then has the
/// same name) and of an import of a provider we know; else anybody could open accounts without end.
fn provider(row: &Row) -> &str {
    match row.reference.split_once(':') {
        Some((prefix, _)) if prefix == row.actor || PROVIDERS.contains(&prefix) => prefix,
        _ => "other",
    }
}

/// A fact beside a movement.
#[derive(Debug)]
pub enum Fact<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

/// A movement, as a journal has it.
#[derive(Debug)]
pub struct JournalEntry<'a> {
    pub day: NaiveDate,
    /// The row's number; zero for an opening.
    pub seq: i64,
    pub description: String,
    pub pocket: &'a str,
    pub contra: Contra<'a>,
    /// The row's amount, as the wallet sees it.
    pub amount: String,
    pub facts: Vec<(&'static str, Fact<'a>)>,
}

impl<'a> JournalEntry<'a> {
    pub fn of_row(wallet: &'a Wallet, row: &'a Row) -> Self {
        let mut facts = vec![
            ("wallet", Fact::Number(wallet.wallet_id)),
            ("tenant", Fact::Text(wallet.tenant_id.as_str().into())),
            ("reference", Fact::Text(row.reference.as_str().into())),
        ];
        facts.extend(row.original_seq.map(|seq| ("original", Fact::Number(seq))));
        facts.extend(row.reason.as_deref().map(|reason| ("reason", Fact::Text(reason.into()))));
        facts.push(("actor", Fact::Text(row.actor.as_str().into())));
        let recorded_at = row.recorded_at.to_rfc3339_opts(SecondsFormat::Micros, true);
        facts.push(("recorded_at", Fact::Text(recorded_at.into())));
        Self {
            day: wallet.day_of(row.recorded_at),
            seq: row.seq,
            description: format!("{} {}", row.kind, row.reference),
            pocket: &row.pocket,
            contra: Contra::of(row),
            amount: row.amount.to_text(wallet.currency.exponent),
            facts,
        }
    }

    pub fn of_opening(wallet: &'a Wallet, opening: &'a Opening) -> Self {
        Self {
            day: opening.day,
            seq: 0,
            description: "opening balance".to_owned(),
            pocket: &opening.pocket,
            contra: Contra::Opening,
            amount: opening.amount.to_text(wallet.currency.exponent),
            facts: vec![
                ("wallet", Fact::Number(wallet.wallet_id)),
                ("tenant", Fact::Text(wallet.tenant_id.as_str().into())),
            ],
        }
    }

    /// The amount with the other sign.
    pub fn opposite(&self) -> String {
        match self.amount.strip_prefix('-') {
            Some(positive) => positive.to_owned(),
            None => format!("-{}", self.amount),
        }
    }
}

/// Which accounts were declared. Tenants come one after the other, so only those of the present one are kept.
#[derive(Debug, Default)]
pub struct Declared {
    tenant: String,
    of_tenant: HashSet<String>,
    shared: HashSet<String>,
}

impl Declared {
    /// Whether a wallet's account comes for the first time.
    pub fn first_of_wallet(&mut self, wallet: &Wallet, account: &str) -> bool {
        if self.tenant != wallet.tenant_id.as_str() {
            wallet.tenant_id.as_str().clone_into(&mut self.tenant);
            self.of_tenant.clear();
        }
        !self.of_tenant.contains(account) && self.of_tenant.insert(account.to_owned())
    }

    /// Whether an account that all tenants share comes for the first time.
    pub fn first_of_all(&mut self, account: &str) -> bool {
        !self.shared.contains(account) && self.shared.insert(account.to_owned())
    }
}

/// What a journal holds, in a sentence for its head.
pub fn said_of(selection: &Selection) -> String {
    let whose = match &selection.tenant_id {
        Some(tenant_id) => format!("The wallets of {tenant_id}"),
        None => "All wallets".to_owned(),
    };
    let from = selection.from.map_or_else(|| "the first row".to_owned(), |day| day.to_string());
    let to = selection.to.map_or_else(|| "the last".to_owned(), |day| day.to_string());
    format!("{whose}, from {from} to {to}. Days are those of each tenant's time zone.")
}
