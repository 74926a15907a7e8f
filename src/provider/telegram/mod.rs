//! Telegram Stars: its servers call our webhook, and we call the Bot API.
pub const CURRENCY: &str = "XTR";
