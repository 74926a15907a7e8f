//! The twelve-hour limit, counted from Payme's `time`, not from the merchant's own clock at Create.
//!
//! Nobody waits twelve hours for a test. A Create may arrive late, however, so a `time` that lies almost twelve hours back
//! makes a transaction that expires in seconds; `--expiry-wait-secs` allows that wait.

use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::expect::{self, Mismatch, Verdict};
use super::now_ms;
use super::payment::Payment;
use super::snapshot;
use super::suite::{ANY_ACCOUNT_HINT, Check, Group, NO_ACCOUNT, Suite, Target, check};

const LIMIT_MS: i64 = 43_200_000;

/// The two clocks may differ; nobody should fail for that.
const CLOCK_DIFFERENCE_MS: i64 = 600_000;

const CHECKS: &[Check] = &[
    check("stale-create", "§3", "CreateTransaction whose time is more than 43,200,000 ms ago is answered with -31008"),
    check("stale-nothing-created", "§3", "and the transaction does not exist afterwards"),
    check("late-create", "§3", "CreateTransaction whose time is a little less ago is created"),
    check("expired-perform", "§3", "PerformTransaction of an expired transaction is answered with -31008"),
    check("expired-check", "§3", "and it is now cancelled: state -1, reason 4, a cancel_time"),
];

const HINT: &str = "--expiry-wait-secs 5";

pub async fn run(suite: &mut Suite<'_>) {
    let target = suite.take_any();
    let wait = suite.options.expiry_wait;
    let mut group = suite.group("", CHECKS);
    let Some(target) = target else {
        group.close(NO_ACCOUNT, Some(ANY_ACCOUNT_HINT));
        return;
    };
    let client = group.client();

    let time = now_ms().saturating_sub(LIMIT_MS).saturating_sub(CLOCK_DIFFERENCE_MS);
    let stale = Payment::started_at(&target.account, target.amount, time);
    let refused = client.create(&stale).await;
    group.expect_error("stale-create", &refused, -31_008);
    let check = client.check(&stale.id).await;
    group.record("stale-nothing-created", &[&refused, &check], expect::error(&check, -31_003));
    client.undo_if_created(&refused, &stale.id).await;

    let time = now_ms().saturating_sub(LIMIT_MS).saturating_add(CLOCK_DIFFERENCE_MS);
    let late = Payment::started_at(&target.account, target.amount, time);
    let created = client.create(&late).await;
    group.record("late-create", &[&created], snapshot::created(&created).map(|_| ()));
    client.undo_if_created(&created, &late.id).await;

    match wait {
        Some(wait) => {
            expired(&mut group, &client, &target, wait).await;
            group.close_after_failure();
        }
        None => group.close("a transaction has to expire first, and that takes a wait", Some(HINT)),
    }
}

async fn expired(group: &mut Group<'_, '_>, client: &Client, target: &Target, wait: Duration) {
    let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(LIMIT_MS);
    let time = now_ms().saturating_sub(LIMIT_MS).saturating_add(wait_ms);
    let payment = Payment::started_at(&target.account, target.amount, time);
    let create = client.create(&payment).await;
    if expect::error(&create, -31_008).is_ok() {
        let reason = "the merchant's clock is ahead of this one by more than the wait";
        group.skip("expired-perform", reason, Some("a longer --expiry-wait-secs"));
        group.skip("expired-check", reason, Some("a longer --expiry-wait-secs"));
        return;
    }
    let Ok(created) = snapshot::created(&create) else {
        return;
    };
    // Twice the wait: once for the limit, and as much again for a merchant whose clock is behind.
    tokio::time::sleep(wait.saturating_mul(2)).await;
    let refused = client.perform(&payment.id).await;
    group.record("expired-perform", &[&create, &refused], expect::error(&refused, -31_008));
    let check = client.check(&payment.id).await;
    let cancel_time = expect::result(&check, "a result")
        .ok()
        .and_then(|result| result.get("cancel_time").and_then(Value::as_i64))
        .filter(|cancel_time| *cancel_time > 0);
    let verdict: Verdict = match cancel_time {
        Some(cancel_time) => created.cancelled(-1, cancel_time, 4).verify(&check),
        None => Err(Mismatch::new("state -1, reason 4 and a cancel_time", expect::describe(&check))),
    };
    group.record("expired-check", &[&refused, &check], verdict);
    client.cancel(&payment.id, 4).await;
}
