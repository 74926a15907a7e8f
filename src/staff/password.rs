//! Passwords: Argon2id with the crate's defaults (19 MiB, 2 passes), which are OWASP's.
//! <https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html>

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use secrecy::{ExposeSecret as _, SecretString};

use crate::fault::Fault;

/// The shortest password. Long ones are good ones; there are no rules about their characters.
pub const PASSWORD_CHARS_MIN: usize = 10;
const PASSWORD_BYTES_MAX: usize = 1_000;

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

/// Hashes a password. It takes tens of milliseconds by design, so it runs where it holds up nobody.
pub(super) async fn hash(password: SecretString) -> Result<String, Fault> {
    tokio::task::spawn_blocking(move || {
        Argon2::default()
            .hash_password(password.expose_secret().as_bytes())
            .map(|hash| hash.to_string())
            .map_err(|error| Fault::new("a password could not be hashed").because(error.to_string()))
    })
    .await
    .map_err(|error| Fault::new("hashing a password panicked").because(error))?
}

/// Compares a password with a stored hash. Without one it works as long and says no, so that the time doesn't
/// tell which names exist.
pub(super) async fn matches(password: SecretString, stored: Option<String>) -> Result<bool, Fault> {
    tokio::task::spawn_blocking(move || {
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
    .map_err(|error| Fault::new("comparing a password panicked").because(error))?
}
