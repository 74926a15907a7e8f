//! The doors through which money comes in. Each provider's words, numbers and oddities end here; behind the
//! door there is only the payment room.

pub mod call_log;
pub mod payme;
pub mod telegram;
