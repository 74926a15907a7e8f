//! Logging in: a name, a password, a code perhaps, and a limit on trying.

use std::net::Ipv6Addr;

use chrono::{DateTime, TimeDelta, Utc};
use scoped_futures::ScopedFutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::PgConnection;

use super::{NewSession, Role, Username, password, second_factor, session, store};
use crate::audit::{self, Line, Who};
use crate::clock::Clock;
use crate::db::Database;
use crate::fault::{Error, Fault};

/// How many attempts a name and an address have within the window. An address may be a whole office.
const ATTEMPTS_PER_NAME: i64 = 5;
const ATTEMPTS_PER_ADDRESS: i64 = 30;
const WINDOW_MINUTES: i64 = 15;

/// What somebody types in.
#[derive(Clone)]
pub struct Credentials {
    /// The name, as typed.
    pub username: String,
    /// The password.
    pub password: SecretString,
    /// The authenticator's code, or nothing.
    pub code: SecretString,
}

/// Tells nothing: the name may be a password that was typed into the wrong field.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Why somebody isn't let in. Which of the three was wrong is not said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefusal {
    /// Name, password or code.
    #[error("the name, the password or the code is wrong")]
    Wrong,
    /// Too many attempts for this name or from this address.
    #[error("too many attempts; try again in {retry_after_minutes} minutes")]
    Throttled {
        /// When the oldest attempt has passed.
        retry_after_minutes: i64,
    },
}

/// Lets somebody in. An attempt counts before it is looked at, so many at once are no way around the limit.
///
/// # Errors
/// [`LoginRefusal`]; each is in the audit, those of the throttle once a window.
pub async fn log_in(
    db: &Database,
    clock: &Clock,
    credentials: Credentials,
    from: &Who,
) -> Result<NewSession, Error<LoginRefusal>> {
    let username = Username::parse(&credentials.username).ok();
    // What isn't a name could be a password in the wrong field, so it is written down nowhere.
    let name = username.as_ref().map_or("?", Username::as_str);
    let address = network(from.remote_address.as_deref().unwrap_or("?"));
    if let Some(throttled) = count_attempt(db, clock, username.as_ref(), name, &address, from).await? {
        return Err(Error::Refused(throttled));
    }
    let outcome = check(db, clock, username.as_ref(), credentials, from).await;
    if let Err(Error::Refused(refusal)) = &outcome {
        let mut conn = db.pool().acquire().await.map_err(Fault::from)?;
        let who = asker(&mut conn, username.as_ref(), from).await?;
        drop(conn);
        audit::write_alone(db, clock, &who, &refused_line(refusal)).await?;
    }
    outcome
}

fn refused_line(refusal: &LoginRefusal) -> Line {
    Line { action: "log_in", allowed: false, tenant_id: None, words: refusal.to_string() }
}

/// Who tries, as far as that is known: somebody with an account by its name.
async fn asker(conn: &mut PgConnection, username: Option<&Username>, from: &Who) -> Result<Who, Fault> {
    let member = match username {
        Some(username) => store::find(conn, username).await?.map(|account| account.member),
        None => None,
    };
    Ok(Who {
        actor: member.as_ref().map_or_else(|| "unknown".to_owned(), |member| format!("staff:{}", member.username)),
        role: member.map(|member| member.role.as_str()),
        ..from.clone()
    })
}

/// What counts as one address: whoever has one of IPv6 has 2^64 of them.
fn network(address: &str) -> String {
    match address.parse::<Ipv6Addr>() {
        Ok(v6) if v6.to_ipv4_mapped().is_none() => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        Ok(_) | Err(_) => address.to_owned(),
    }
}

/// Counts an attempt, or says that there were too many. The audit hears of that once for each name or address and
/// window: whoever goes on trying adds nothing to it, since it is never shortened.
async fn count_attempt(
    db: &Database,
    clock: &Clock,
    username: Option<&Username>,
    name: &str,
    address: &str,
    from: &Who,
) -> Result<Option<LoginRefusal>, Error<LoginRefusal>> {
    db.run("staff_login_attempt", |conn| {
        async move {
            let now = clock.now();
            let since = before(now, TimeDelta::minutes(WINDOW_MINUTES));
            store::lock_attempts(conn, name, address).await?;
            store::forget_attempts(conn, before(now, TimeDelta::days(1))).await?;
            let by_name = store::attempts_of_name(conn, name, since).await?;
            let by_address = store::attempts_of_address(conn, address, since).await?;
            let (oldest, subject) = match (by_name.count >= ATTEMPTS_PER_NAME, by_address.count >= ATTEMPTS_PER_ADDRESS)
            {
                (true, _) => (by_name.oldest, format!("name {name}")),
                (false, true) => (by_address.oldest, format!("address {address}")),
                (false, false) => {
                    store::insert_attempt(conn, name, address, now).await?;
                    return Ok(None);
                }
            };
            let passed = now.signed_duration_since(oldest.unwrap_or(now)).num_minutes();
            let retry_after_minutes = WINDOW_MINUTES.saturating_sub(passed).max(1);
            let refusal = LoginRefusal::Throttled { retry_after_minutes };
            if store::tell_throttled(conn, &subject, since, now).await? {
                let who = asker(conn, username, from).await?;
                audit::write(conn, &who, &refused_line(&refusal), now).await?;
            }
            Ok(Some(refusal))
        }
        .scope_boxed()
    })
    .await
}

async fn check(
    db: &Database,
    clock: &Clock,
    username: Option<&Username>,
    credentials: Credentials,
    from: &Who,
) -> Result<NewSession, Error<LoginRefusal>> {
    let found = match username {
        Some(username) => store::find(&mut *db.pool().acquire().await.map_err(Fault::from)?, username).await?,
        None => None,
    };
    let stored = found.as_ref().map(|found| found.password_hash.clone());
    // No connection waits while the password is hashed.
    let right = password::matches(credentials.password, stored.clone()).await?;
    let (Some(found), true) = (found, right) else { return Err(Error::Refused(LoginRefusal::Wrong)) };
    let (member, code) = (&found.member, &credentials.code);
    let stored = &stored;
    db.run("staff_login", |conn| {
        async move {
            let now = clock.now();
            // Looked at again under the lock: somebody may have been shut out or given another password meanwhile.
            let locked = store::lock(conn, &member.username).await?;
            let Some(locked) = locked
                .filter(|locked| locked.member.disabled_at.is_none() && Some(&locked.password_hash) == stored.as_ref())
            else {
                return Err(Error::Refused(LoginRefusal::Wrong));
            };
            if let Some(secret) = &locked.totp_secret {
                let code = code.expose_secret().trim();
                let step = second_factor::step_of(&member.username, secret, code, now)?;
                // A step that was taken is taken: a code works once.
                let Some(step) = step.filter(|step| locked.totp_step.is_none_or(|taken| *step > taken)) else {
                    return Err(Error::Refused(LoginRefusal::Wrong));
                };
                store::set_totp_step(conn, locked.member.staff_id, step).await?;
            }
            store::forget_attempts_of_name(conn, member.username.as_str()).await?;
            let session = session::open(conn, locked.member.staff_id, now).await?;
            let role: Role = locked.member.role;
            let who = Who { actor: format!("staff:{}", member.username), role: Some(role.as_str()), ..from.clone() };
            let line = Line { action: "log_in", allowed: true, tenant_id: None, words: format!("logged in as {role}") };
            audit::write(conn, &who, &line, now).await?;
            Ok(session)
        }
        .scope_boxed()
    })
    .await
}

fn before(now: DateTime<Utc>, by: TimeDelta) -> DateTime<Utc> {
    now.checked_sub_signed(by).unwrap_or(DateTime::UNIX_EPOCH)
}
