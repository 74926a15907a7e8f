//! What a row says happened.

use crate::fault::Fault;
use crate::ids::InvalidName;
use crate::money::MinorUnits;

/// The kind of a ledger row. The ledger knows the rules of the named ones; a product adds its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Money came in from outside.
    TopUp,
    /// A top-up went back to where it came from. Names the top-up.
    TopUpReversal,
    /// The fee of one subscription for one month.
    SubscriptionFee,
    /// A debit given back. Names the debit.
    Refund,
    /// A correction by a person, with a reason.
    Adjustment,
    /// Money that nobody paid for: a promotion, an allowance.
    Grant,
    /// What was left in a pocket when its time was over.
    Expiry,
    /// What a hold's work cost.
    HoldCharge,
    /// What a slot cost: the spending of the payment that got it.
    Booking,
    /// A kind of the product's own, such as `purchase` or `bonus`.
    Custom(CustomKind),
}

/// The name of a product's own kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CustomKind(String);

/// Which way a kind may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Always a credit.
    Credit,
    /// Always a debit.
    Debit,
    /// Either.
    Either,
}

impl Direction {
    /// Whether an amount goes this way. Zero goes nowhere.
    #[must_use]
    pub const fn allows(self, amount: MinorUnits) -> bool {
        match self {
            Self::Credit => amount.is_positive(),
            Self::Debit => amount.is_negative(),
            Self::Either => !amount.is_zero(),
        }
    }
}

impl Kind {
    /// Parses a name.
    ///
    /// # Errors
    /// [`InvalidName`] when it isn't a small letter followed by up to 31 of a-z 0-9 _.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Ok(match text {
            "top_up" => Self::TopUp,
            "top_up_reversal" => Self::TopUpReversal,
            "subscription_fee" => Self::SubscriptionFee,
            "refund" => Self::Refund,
            "adjustment" => Self::Adjustment,
            "grant" => Self::Grant,
            "expiry" => Self::Expiry,
            "hold_charge" => Self::HoldCharge,
            "booking" => Self::Booking,
            custom => {
                let shape = custom.len() <= 32
                    && custom.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
                    && custom.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
                if !shape {
                    return Err(InvalidName {
                        what: "kind",
                        rule: "must be 1 to 32 characters of a-z 0-9 _, beginning with a letter",
                    });
                }
                Self::Custom(CustomKind(custom.to_owned()))
            }
        })
    }

    /// Parses a column.
    ///
    /// # Errors
    /// A fault when the stored text breaks the rule.
    pub fn from_column(text: &str) -> Result<Self, Fault> {
        Self::parse(text).map_err(|error| Fault::new("a stored kind breaks its rule").because(error))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::TopUp => "top_up",
            Self::TopUpReversal => "top_up_reversal",
            Self::SubscriptionFee => "subscription_fee",
            Self::Refund => "refund",
            Self::Adjustment => "adjustment",
            Self::Grant => "grant",
            Self::Expiry => "expiry",
            Self::HoldCharge => "hold_charge",
            Self::Booking => "booking",
            Self::Custom(custom) => &custom.0,
        }
    }

    /// Which way it may go.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        match self {
            Self::TopUp | Self::Refund | Self::Grant => Direction::Credit,
            Self::TopUpReversal | Self::SubscriptionFee | Self::Expiry | Self::HoldCharge | Self::Booking => {
                Direction::Debit
            }
            Self::Adjustment | Self::Custom(_) => Direction::Either,
        }
    }

    /// Whether a row of this kind must name the row it gives back.
    #[must_use]
    pub const fn names_original(&self) -> bool {
        match self {
            Self::TopUpReversal | Self::Refund => true,
            Self::TopUp
            | Self::SubscriptionFee
            | Self::Adjustment
            | Self::Grant
            | Self::Expiry
            | Self::HoldCharge
            | Self::Booking
            | Self::Custom(_) => false,
        }
    }

    /// Whether a row of this kind must say why.
    #[must_use]
    pub const fn needs_reason(&self) -> bool {
        match self {
            Self::Adjustment | Self::Refund => true,
            Self::TopUp
            | Self::TopUpReversal
            | Self::SubscriptionFee
            | Self::Grant
            | Self::Expiry
            | Self::HoldCharge
            | Self::Booking
            | Self::Custom(_) => false,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}
