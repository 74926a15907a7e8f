//! The one test binary: one file per behaviour, one throw-away PostgreSQL for all of them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::items_after_statements,
    clippy::too_many_lines,
    clippy::large_futures,
    clippy::type_complexity,
    clippy::similar_names,
    clippy::single_match_else,
    clippy::struct_field_names,
    clippy::float_arithmetic,
    reason = "a test that can't go on says so by panicking"
)]

mod all_or_nothing;
mod api_access;
mod api_input;
mod audit;
mod balance;
mod booking;
mod cli_staff;
mod conformance;
mod connections;
mod console;
mod console_browser;
mod console_pages;
mod console_refusals;
mod crash;
mod currencies;
mod demo;
mod dropped;
mod embedded;
mod export;
mod export_texts;
mod fee_api;
mod fee_crash;
mod fee_credit;
mod fee_limits;
mod fee_reminders;
mod fee_run;
mod fee_world;
mod holds;
mod hot_wallet;
mod idempotency;
mod kill_storm;
mod large_wallet;
mod ledger;
mod locking;
mod money;
mod months;
mod openapi;
mod outage;
mod payme;
mod payme_fixtures;
mod private_serve;
mod refunds;
mod secrets;
mod settings;
mod shutdown;
mod staff;
mod start;
mod statement;
mod support;
mod support_desk;
mod telegram;
mod tenants;
mod transactions;
mod unanswered;
mod verify;
mod webhook_addresses;
mod webhook_api;
mod webhook_claims;
mod webhook_delivery;
mod webhook_events;
mod write_once;
