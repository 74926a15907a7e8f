//! API tokens: who may call `/v1`, and for what.
//!
//! A token is 256 random bits. Only its SHA-256 is stored, so whoever reads the table can't call; a slow
//! hash would add nothing, since nobody guesses 256 bits.

mod store;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use rand::RngCore as _;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::ids::{ClientName, InvalidName};

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Read tenants and orders.
    TenantsRead,
    /// Make tenants.
    TenantsWrite,
    /// Read balances and transactions.
    LedgerRead,
    /// Post transactions.
    LedgerPost,
    /// Make orders and payment links.
    PaymentsWrite,
    /// Add currencies.
    CurrenciesWrite,
    /// Make plans and subscriptions, and start fee runs.
    FeesWrite,
    /// Register webhook endpoints and replay deliveries.
    WebhooksWrite,
    /// Refund and adjust within the limit, and ask for more.
    SupportWrite,
    /// Decide about what others asked for.
    SupportApprove,
    /// Place, work on and end holds, and note activity.
    HoldsWrite,
    /// Write price books, tiers and allowances.
    HoldsConfigure,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 12] = [
        Self::TenantsRead,
        Self::TenantsWrite,
        Self::LedgerRead,
        Self::LedgerPost,
        Self::PaymentsWrite,
        Self::CurrenciesWrite,
        Self::FeesWrite,
        Self::WebhooksWrite,
        Self::SupportWrite,
        Self::SupportApprove,
        Self::HoldsWrite,
        Self::HoldsConfigure,
    ];

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TenantsRead => "tenants:read",
            Self::TenantsWrite => "tenants:write",
            Self::LedgerRead => "ledger:read",
            Self::LedgerPost => "ledger:post",
            Self::PaymentsWrite => "payments:write",
            Self::CurrenciesWrite => "currencies:write",
            Self::FeesWrite => "fees:write",
            Self::WebhooksWrite => "webhooks:write",
            Self::SupportWrite => "support:write",
            Self::SupportApprove => "support:approve",
            Self::HoldsWrite => "holds:write",
            Self::HoldsConfigure => "holds:configure",
        }
    }

    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidName {
            what: "scope",
            rule: "must be one of tenants:read, tenants:write, ledger:read, ledger:post, payments:write, \
                   currencies:write, fees:write, webhooks:write, support:write, support:approve, holds:write, holds:configure",
        })
    }
}

/// A token as it stands in the table.
#[derive(Debug, Clone)]
pub struct Token {
    /// Its number.
    pub token_id: i64,
    /// The program that calls.
    pub client: ClientName,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// From when on it is nobody's.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// What every token begins with, so that a secret scanner finds one in the wrong place.
const PREFIX: &str = "hamyon_";

/// A new random token.
#[must_use]
pub fn generate() -> SecretString {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    SecretString::from(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Stores a token and returns its number; the same token again is the same row.
///
/// # Errors
/// A fault.
pub async fn store(
    conn: &mut PgConnection,
    token: &SecretString,
    client: &ClientName,
    scopes: &[Scope],
    expires_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<i64, Fault> {
    store::insert(conn, &hash(token.expose_secret()), client, scopes, expires_at, now).await
}

/// Whose token this is, if it is valid now.
///
/// # Errors
/// A fault.
pub async fn authenticate(conn: &mut PgConnection, token: &str, now: DateTime<Utc>) -> Result<Option<Token>, Fault> {
    let found = store::find(conn, &hash(token)).await?;
    Ok(found.filter(|token| token.revoked_at.is_none() && token.expires_at.is_none_or(|expires_at| now < expires_at)))
}

/// Every token, the oldest first.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Token>, Fault> {
    store::list(conn).await
}

/// Revokes a token; `false` when there is none with this number, or it is revoked already.
///
/// # Errors
/// A fault.
pub async fn revoke(conn: &mut PgConnection, token_id: i64, now: DateTime<Utc>) -> Result<bool, Fault> {
    store::set_revoked(conn, token_id, now).await
}
