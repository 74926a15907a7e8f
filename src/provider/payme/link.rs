//! Payment links: where a payer's browser is sent to.
//!
//! A link is not signed. Whatever it says, CheckPerformTransaction and CreateTransaction check everything,
//! and the browser's return proves nothing.
//! <https://developer.help.paycom.uz/initsializatsiya-platezhey/otpravka-cheka-po-metodu-get>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::ids::is_plain_text;
use crate::money::{CurrencyCode, MinorUnits};

/// What a link asks for.
#[derive(Debug, Clone)]
pub struct Link<'a> {
    /// The cashbox.
    pub merchant_id: &'a str,
    /// The account's field.
    pub field: &'a str,
    /// The account.
    pub account: &'a str,
    /// Tiyin.
    pub amount: MinorUnits,
    /// `ru`, `uz` or `en`.
    pub locale: Option<&'a str>,
    /// Where the browser goes afterwards.
    pub return_url: Option<&'a str>,
}

/// Why a link can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The format separates its fields by `;` and has no escape.
    #[error("{0} may not contain ';' or a control character, for which Payme's link has no escape")]
    Unwritable(&'static str),
    /// Payme takes so'm only.
    #[error("the order is in {0}, and Payme takes UZS only")]
    OtherCurrency(CurrencyCode),
    /// Nothing to pay.
    #[error("the amount must be positive")]
    NotPositive,
}

impl Link<'_> {
    /// The link behind a base such as `https://checkout.paycom.uz`.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn url(&self, base: &str) -> Result<String, LinkError> {
        if !self.amount.is_positive() {
            return Err(LinkError::NotPositive);
        }
        let parts = [
            ("merchant_id", Some(self.merchant_id)),
            ("account field", Some(self.field)),
            ("account", Some(self.account)),
            ("locale", self.locale),
            ("return_url", self.return_url),
        ];
        for (name, value) in parts {
            if value.is_some_and(|value| value.contains(';') || !is_plain_text(value)) {
                return Err(LinkError::Unwritable(name));
            }
        }
        let mut text = format!("m={};ac.{}={};a={}", self.merchant_id, self.field, self.account, self.amount.get());
        if let Some(locale) = self.locale {
            text.push_str(";l=");
            text.push_str(locale);
        }
        if let Some(return_url) = self.return_url {
            text.push_str(";c=");
            text.push_str(return_url);
        }
        Ok(format!("{}/{}", base.trim_end_matches('/'), STANDARD.encode(text)))
    }
}
