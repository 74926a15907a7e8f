//! Names that come from outside, each parsed once into a type that can't hold a bad value.
//!
//! A column read back is parsed again: bad text in the database is a fault, not a lie in the type.

use crate::fault::Fault;

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {rule}")]
pub struct InvalidName {
    /// What the text was meant to be, e.g. `tenant_id`.
    pub what: &'static str,
    /// The rule it breaks, as a phrase: "must be …".
    pub rule: &'static str,
}

/// Declares a text newtype with a parser, a column decoder and the usual traits.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Parses a text from outside.
            ///
            /// # Errors
            /// [`InvalidName`] with the rule that the text breaks.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&text) {
                    Ok(Self(text))
                } else {
                    Err(InvalidName { what: $what, rule: $rule })
                }
            }

            /// Parses a column; a value that breaks the rule is a fault of the database.
            ///
            /// # Errors
            /// A fault that names the type.
            pub fn from_column(text: String) -> Result<Self, Fault> {
                Self::parse(text).map_err(|error| Fault::new("a stored name breaks its rule").because(error))
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

fn is_name(text: &str, most: usize, extra: &str) -> bool {
    !text.is_empty()
        && text.len() <= most
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || extra.as_bytes().contains(&byte))
}

/// Whether every character can be shown on one line; NUL and other controls can't (and PostgreSQL refuses NUL).
#[must_use]
pub fn is_plain_text(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

text_id!(
    /// The product's own id of a customer.
    TenantId,
    "tenant_id",
    "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ + -",
    |text| is_name(text, 64, "._:@+-")
);

text_id!(
    /// The product's own id of something that is paid once.
    OrderId,
    "order_id",
    "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ + -",
    |text| is_name(text, 64, "._:@+-")
);

text_id!(
    /// The product's own id of what has slots.
    ResourceId,
    "resource_id",
    "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ + -",
    |text| is_name(text, 64, "._:@+-")
);

text_id!(
    /// The id a payment provider gave to a payment.
    ExternalId,
    "id",
    "must be 1 to 560 visible ASCII characters",
    // With its provider's name before it, it has to fit into a reference.
    |text| !text.is_empty() && text.len() <= 560 && text.bytes().all(|byte| byte.is_ascii_graphic())
);

text_id!(
    /// A named part of a wallet's money; `main` when nothing else is said.
    Pocket,
    "pocket",
    "must be 1 to 64 characters of a-z 0-9 . _ : -, beginning with a letter or digit",
    |text| is_name(text, 64, "._:-")
        && !text.bytes().any(|byte| byte.is_ascii_uppercase())
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
);

impl Pocket {
    /// The pocket that money is in unless somebody says otherwise.
    #[must_use]
    pub fn main() -> Self {
        Self("main".to_owned())
    }
}

impl Pocket {
    /// The pocket of money that came in and isn't the tenant's to spend: it goes back to its payer, or a person
    /// has to say whose it is.
    #[must_use]
    pub fn set_aside() -> Self {
        Self("set-aside".to_owned())
    }
}

text_id!(
    /// What a row books, in the words of its source. Unique per wallet and kind. An index carries it, which takes no
    /// more than 2,700 bytes.
    Reference,
    "reference",
    "must be 1 to 600 characters without control characters",
    |text| !text.trim().is_empty() && text.chars().count() <= 600 && is_plain_text(text)
);

text_id!(
    /// Why a person or a program moved money, in a sentence.
    Reason,
    "reason",
    "must be 1 to 500 characters without control characters",
    |text| !text.trim().is_empty() && text.chars().count() <= 500 && is_plain_text(text)
);

text_id!(
    /// The name of a program that calls the API.
    ClientName,
    "client",
    "must be 1 to 64 characters of A-Z a-z 0-9 . _ -",
    |text| is_name(text, 64, "._-")
);

text_id!(
    /// Who did it: `api:<client>`, `payme`, `job:<name>`, `staff:<name>`. Three different actors are never
    /// the same value, and there is no nobody.
    Actor,
    "actor",
    "must be 1 to 100 visible ASCII characters",
    |text| !text.is_empty() && text.len() <= 100 && text.bytes().all(|byte| byte.is_ascii_graphic())
);

impl Actor {
    /// A program with an API token.
    #[must_use]
    pub fn api(client: &ClientName) -> Self {
        Self(format!("api:{client}"))
    }

    /// A payment provider, acting through its callbacks.
    #[must_use]
    pub fn provider(name: &'static str) -> Self {
        Self(name.to_owned())
    }

    /// A job of ours that nobody asked for.
    #[must_use]
    pub fn job(name: &'static str) -> Self {
        Self(format!("job:{name}"))
    }
}
