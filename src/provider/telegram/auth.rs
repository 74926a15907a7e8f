//! Which bot a call of the webhook is for.
//!
//! Telegram sends back the secret that the webhook was set with. It is compared in constant time; without a secret
//! nobody gets in.

use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use crate::ids::InvalidName;

/// A bot.
#[derive(Debug, Clone)]
pub struct Bot {
    /// Its user's number: what its token begins with.
    pub bot_id: i64,
    /// What we call the Bot API with.
    pub token: SecretString,
    /// What Telegram calls us with.
    pub webhook_secret: SecretString,
}

impl Bot {
    /// A bot by its token, which begins with its number.
    ///
    /// # Errors
    /// [`InvalidName`] when the token or the secret has not Telegram's shape. Neither is in the text.
    pub fn parse(token: &str, webhook_secret: &str) -> Result<Self, InvalidName> {
        let bot_id = token
            .split_once(':')
            .filter(|(_, key)| !key.is_empty() && key.bytes().all(is_secret_byte))
            .and_then(|(number, _)| number.parse::<i64>().ok())
            .filter(|number| *number > 0)
            .ok_or(InvalidName {
                what: "a bot's token",
                rule: "must look like 123456:AbC-dEf, as BotFather gives it",
            })?;
        let shape = (1..=256).contains(&webhook_secret.len()) && webhook_secret.bytes().all(is_secret_byte);
        if !shape {
            return Err(InvalidName {
                what: "a webhook's secret",
                rule: "must be 1 to 256 characters of A-Z a-z 0-9 _ -",
            });
        }
        Ok(Self { bot_id, token: SecretString::from(token), webhook_secret: SecretString::from(webhook_secret) })
    }
}

const fn is_secret_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The bot whose secret was given. Every secret is compared, so the time tells nothing about which one was close.
pub(super) fn bot_of<'a>(bots: &'a [Bot], given: Option<&[u8]>) -> Option<&'a Bot> {
    let given = given?;
    bots.iter().fold(None, |found, bot| {
        let expected = bot.webhook_secret.expose_secret().as_bytes();
        let same: bool = expected.ct_eq(given).into();
        if same && !expected.is_empty() { Some(bot) } else { found }
    })
}
