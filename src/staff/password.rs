//! Passwords: Argon2id with the crate's defaults (19 MiB, 2 passes), which are OWASP's.
//! <https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html>

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;

use crate::fault::Fault;

/// The shortest password. Long ones are good ones; there are no rules about their characters.
pub const PASSWORD_CHARS_MIN: usize = 10;
const PASSWORD_BYTES_MAX: usize = 1_000;

/// How many passwords are hashed at once. Each takes 19 MiB and a core for tens of milliseconds, and whoever logs in
/// needs no account for that; so the rest waits its turn and doesn't hold up the service.
pub const HASHED_AT_ONCE: usize = 3;

static TURNS: Semaphore = Semaphore::const_new(HASHED_AT_ONCE);

/// Runs what hashes where it holds up nobody, when its turn comes. The turn ends with the work, not with whoever waits
/// for it.
async fn in_turn<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let turn =
        TURNS.acquire().await.map_err(|error| Fault::new("nobody may hash passwords any more").because(error))?;
    tokio::task::spawn_blocking(move || {
        let outcome = work();
        drop(turn);
        outcome
    })
    .await
    .map_err(|error| Fault::new(what).because(error))?
}

/// Why a password isn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordRefusal {
    /// Too short.
    #[error("a password has at least {PASSWORD_CHARS_MIN} characters, and this one has {0}")]
    TooShort(usize),
    /// Too long to be hashed with care.
    #[error("a password has at most 1000 bytes")]
    TooLong,
}

pub(super) fn check(password: &SecretString) -> Result<(), PasswordRefusal> {
    let chars = password.expose_secret().chars().count();
    if chars < PASSWORD_CHARS_MIN {
        return Err(PasswordRefusal::TooShort(chars));
    }
    if password.expose_secret().len() > PASSWORD_BYTES_MAX {
        return Err(PasswordRefusal::TooLong);
    }
    Ok(())
}

/// Hashes a password. It takes tens of milliseconds by design.
pub(super) async fn hash(password: SecretString) -> Result<String, Fault> {
    in_turn("hashing a password panicked", move || {
        Argon2::default()
            .hash_password(password.expose_secret().as_bytes())
            .map(|hash| hash.to_string())
            .map_err(|error| Fault::new("a password could not be hashed").because(error.to_string()))
    })
    .await
}

/// Compares a password with a stored hash. Without one it works as long and says no, so that the time doesn't
/// tell which names exist.
pub(super) async fn matches(password: SecretString, stored: Option<String>) -> Result<bool, Fault> {
    in_turn("comparing a password panicked", move || {
        if password.expose_secret().len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let Some(stored) = stored else {
            let nobody = Argon2::default().hash_password(password.expose_secret().as_bytes());
            return nobody
                .map(|_| false)
                .map_err(|error| Fault::new("a password could not be hashed").because(error.to_string()));
        };
        let parsed = PasswordHash::new(&stored)
            .map_err(|error| Fault::new("a stored password hash can't be read").because(error.to_string()))?;
        Ok(Argon2::default().verify_password(password.expose_secret().as_bytes(), &parsed).is_ok())
    })
    .await
}
