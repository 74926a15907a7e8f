//! Who is logged in: a random token in a cookie, an end when nothing happens and one whatever happens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use rand::RngCore as _;
use scoped_futures::ScopedFutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use subtle::ConstantTimeEq as _;

use super::{Member, store};
use crate::audit::{self, Line, Who};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};

/// After so many minutes without a request a session is over.
pub const IDLE_MINUTES: i64 = 30;
/// After so many hours it is over in any case.
pub const LIFETIME_HOURS: i64 = 12;
/// "Seen" is written down at most so often.
const SEEN_SECONDS: i64 = 60;

/// A session that has just begun.
#[derive(Debug)]
pub struct NewSession {
    /// What goes into the cookie, this once.
    pub token: SecretString,
}

/// A session that goes on.
#[derive(Debug, Clone)]
pub struct LoggedIn {
    /// Who.
    pub member: Member,
    csrf_token: SecretString,
    token_hash: [u8; 32],
}

impl LoggedIn {
    /// What every form carries.
    #[must_use]
    pub fn csrf_token(&self) -> &str {
        self.csrf_token.expose_secret()
    }

    /// Whether a form is one of this session's.
    #[must_use]
    pub fn owns_form(&self, csrf_token: &str) -> bool {
        self.csrf_token().as_bytes().ct_eq(csrf_token.as_bytes()).into()
    }
}

fn random() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

pub(super) async fn open(conn: &mut PgConnection, staff_id: i64, now: DateTime<Utc>) -> Result<NewSession, Fault> {
    let token = random();
    let expires_at = now
        .checked_add_signed(TimeDelta::hours(LIFETIME_HOURS))
        .ok_or_else(|| Fault::new("a session would end beyond all time"))?;
    store::insert_session(conn, &hash(&token), staff_id, &random(), now, expires_at).await?;
    Ok(NewSession { token: SecretString::from(token) })
}

/// Whose session this is, if it is still one, and notes that it was seen.
///
/// # Errors
/// A fault.
pub async fn authenticate(conn: &mut PgConnection, token: &str, now: DateTime<Utc>) -> Result<Option<LoggedIn>, Fault> {
    let token_hash = hash(token);
    let Some(found) = store::find_session(conn, &token_hash).await? else { return Ok(None) };
    let idle_since = now.checked_sub_signed(TimeDelta::minutes(IDLE_MINUTES)).unwrap_or(DateTime::UNIX_EPOCH);
    let over = found.ended_at.is_some()
        || found.member.disabled_at.is_some()
        || found.expires_at <= now
        || found.last_seen_at <= idle_since;
    if over {
        return Ok(None);
    }
    if now.signed_duration_since(found.last_seen_at) >= TimeDelta::seconds(SEEN_SECONDS) {
        store::set_seen(conn, &token_hash, now).await?;
    }
    Ok(Some(LoggedIn { member: found.member, csrf_token: SecretString::from(found.csrf_token), token_hash }))
}

/// Ends a session, with a line of the audit.
///
/// # Errors
/// A fault; nobody is logged out then.
pub async fn log_out(db: &Database, clock: &Clock, session: &LoggedIn, who: &Who) -> Result<(), Fault> {
    let ended = db
        .run("staff_log_out", |conn| {
            async move {
                let now = clock.now();
                // A second click finds it ended and says nothing more.
                if store::end_session(conn, &session.token_hash, now).await? {
                    let words = "logged out".to_owned();
                    let line = Line { action: "log_out", allowed: true, tenant_id: None, words };
                    audit::write(conn, who, &line, now).await?;
                }
                Ok::<_, Error<std::convert::Infallible>>(())
            }
            .scope_boxed()
        })
        .await;
    match ended {
        Ok(()) => Ok(()),
        Err(Error::Fault(fault)) => Err(fault),
        Err(Error::Refused(never)) => match never {},
    }
}
