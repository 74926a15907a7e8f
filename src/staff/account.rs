//! Making people and changing what they may do. Each change is in the audit and ends the person's sessions
//! where it takes something away.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use sqlx::PgConnection;

use super::{PasswordRefusal, Role, Username, password, second_factor, store};
use crate::audit::{self, Line, Who};
use crate::fault::{Error, Fault};

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The number.
    pub staff_id: i64,
    /// The name to log in with.
    pub username: Username,
    /// What the person may do.
    pub role: Role,
    /// Whether a code is asked for besides the password.
    pub has_second_factor: bool,
    /// When the account was made.
    pub created_at: DateTime<Utc>,
    /// Since when the person can't log in.
    pub disabled_at: Option<DateTime<Utc>>,
}

/// Why an account isn't made or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaffRefusal {
    /// The name is taken, by somebody who may be gone: the books still name them.
    #[error("there is or was somebody called {0}; a name is never given twice")]
    Taken(Username),
    /// Nobody is called so.
    #[error("nobody is called {0}; `hamyon staff list` shows everybody")]
    Unknown(Username),
    /// The password isn't taken.
    #[error(transparent)]
    Password(#[from] PasswordRefusal),
}

/// Makes a person.
///
/// # Errors
/// [`StaffRefusal::Taken`], [`StaffRefusal::Password`].
pub async fn add(
    conn: &mut PgConnection,
    who: &Who,
    username: &Username,
    role: Role,
    password: SecretString,
    now: DateTime<Utc>,
) -> Result<(), Error<StaffRefusal>> {
    password::check(&password).map_err(|refusal| Error::Refused(refusal.into()))?;
    let hash = password::hash(password).await?;
    if !store::insert(conn, username, role, &hash, now).await? {
        return Err(Error::Refused(StaffRefusal::Taken(username.clone())));
    }
    note(conn, who, "staff.add", format!("{username} is new, as {role}"), now).await?;
    Ok(())
}

/// Everybody, in the order they came.
///
/// # Errors
/// A fault.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Member>, Fault> {
    store::list(conn).await
}

/// Gives a person another role and logs them out everywhere: what a page offered them may be more than they
/// have now.
///
/// # Errors
/// [`StaffRefusal::Unknown`].
pub async fn set_role(
    conn: &mut PgConnection,
    who: &Who,
    username: &Username,
    role: Role,
    now: DateTime<Utc>,
) -> Result<(), Error<StaffRefusal>> {
    let before = known(conn, username).await?;
    store::set_role(conn, before.staff_id, role).await?;
    if before.role != role {
        store::end_sessions(conn, before.staff_id, now).await?;
    }
    note(conn, who, "staff.role", format!("{username} was {} and is {role}", before.role), now).await?;
    Ok(())
}

/// Shuts a person out, at once.
///
/// # Errors
/// [`StaffRefusal::Unknown`].
pub async fn disable(
    conn: &mut PgConnection,
    who: &Who,
    username: &Username,
    now: DateTime<Utc>,
) -> Result<(), Error<StaffRefusal>> {
    let member = known(conn, username).await?;
    store::set_disabled(conn, member.staff_id, now).await?;
    store::end_sessions(conn, member.staff_id, now).await?;
    note(conn, who, "staff.disable", format!("{username} can't log in any more"), now).await?;
    Ok(())
}

/// Gives a person another password and logs them out everywhere.
///
/// # Errors
/// [`StaffRefusal::Unknown`], [`StaffRefusal::Password`].
pub async fn set_password(
    conn: &mut PgConnection,
    who: &Who,
    username: &Username,
    password: SecretString,
    now: DateTime<Utc>,
) -> Result<(), Error<StaffRefusal>> {
    password::check(&password).map_err(|refusal| Error::Refused(refusal.into()))?;
    let member = known(conn, username).await?;
    let hash = password::hash(password).await?;
    store::set_password(conn, member.staff_id, &hash).await?;
    store::end_sessions(conn, member.staff_id, now).await?;
    note(conn, who, "staff.password", format!("{username} has another password"), now).await?;
    Ok(())
}

/// Asks a person for a code from now on, and returns the URL an authenticator application reads; or stops asking.
///
/// # Errors
/// [`StaffRefusal::Unknown`].
pub async fn set_second_factor(
    conn: &mut PgConnection,
    who: &Who,
    username: &Username,
    on: bool,
    now: DateTime<Utc>,
) -> Result<Option<SecretString>, Error<StaffRefusal>> {
    let member = known(conn, username).await?;
    let secret = on.then(second_factor::generate);
    store::set_second_factor(conn, member.staff_id, secret.as_deref()).await?;
    store::end_sessions(conn, member.staff_id, now).await?;
    let words = if on { "a code is asked of {}" } else { "no code is asked of {} any more" };
    note(conn, who, "staff.second_factor", words.replace("{}", username.as_str()), now).await?;
    Ok(secret.map(|secret| second_factor::to_url(username, &secret).map(SecretString::from)).transpose()?)
}

async fn known(conn: &mut PgConnection, username: &Username) -> Result<Member, Error<StaffRefusal>> {
    store::lock_member(conn, username).await?.ok_or_else(|| Error::Refused(StaffRefusal::Unknown(username.clone())))
}

async fn note(
    conn: &mut PgConnection,
    who: &Who,
    action: &'static str,
    words: String,
    now: DateTime<Utc>,
) -> Result<(), Fault> {
    audit::write(conn, who, &Line { action, allowed: true, tenant_id: None, words }, now).await
}
