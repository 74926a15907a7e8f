//! Amounts that are wrong (-31001) and amounts that are not integers at all (-32600), for Check and Create.
//!
//! The bodies are written by hand, since `1e3` and `1.5` must reach the merchant as they stand.

use std::sync::Arc;

use super::client::{Client, Exchange};
use super::expect;
use super::payment::Payment;
use super::suite::{Check, Kind, Suite, Target, check};

/// 10^17 tiyin is more money than there is; a larger amount is a mistake or an attack on somebody's integer type.
const OVER_MAXIMUM: i64 = 100_000_000_000_000_001;

const CHECKS: &[Check] = &[
    check("zero.check", "§2", "CheckPerformTransaction refuses 0"),
    check("zero.create", "§2", "CreateTransaction refuses 0"),
    check("negative.check", "§2", "CheckPerformTransaction refuses a negative amount"),
    check("negative.create", "§2", "CreateTransaction refuses a negative amount"),
    check("over-maximum.check", "§2", "CheckPerformTransaction refuses more than 10^17"),
    check("over-maximum.create", "§2", "CreateTransaction refuses more than 10^17"),
    check("one-more.check", "§4", "CheckPerformTransaction refuses one tiyin more than the order's total"),
    check("one-more.create", "§4", "CreateTransaction refuses one tiyin more than the order's total"),
    check("one-less.check", "§4", "CheckPerformTransaction refuses one tiyin less than the order's total"),
    check("one-less.create", "§4", "CreateTransaction refuses one tiyin less than the order's total"),
    check("string.check", "§1", "CheckPerformTransaction: a string is not an amount"),
    check("string.create", "§1", "CreateTransaction: a string is not an amount"),
    check("exponent.check", "§1", "CheckPerformTransaction: 1e3 is not an amount"),
    check("exponent.create", "§1", "CreateTransaction: 1e3 is not an amount"),
    check("fraction.check", "§1", "CheckPerformTransaction: 1.5 is not an amount"),
    check("fraction.create", "§1", "CreateTransaction: 1.5 is not an amount"),
    check("null.check", "§1", "CheckPerformTransaction: null is not an amount"),
    check("null.create", "§1", "CreateTransaction: null is not an amount"),
    check("nothing-created", "§3", "none of the refused transactions exists afterwards"),
];

const ONE_TIME_ONLY: &[&str] = &["one-more.check", "one-more.create", "one-less.check", "one-less.create"];

struct Wrong {
    check: &'static str,
    create: &'static str,
    amount: String,
    code: i64,
}

pub async fn run(suite: &mut Suite<'_>) {
    for kind in Kind::ALL {
        let target = suite.look_at(kind);
        let client = Arc::clone(&suite.client);
        let mut group = suite.group(kind.id(), CHECKS);
        if kind == Kind::Accumulative {
            group = group.without(ONE_TIME_ONLY);
        }
        let Some(target) = target else {
            group.close(kind.missing(), Some(kind.hint()));
            continue;
        };
        let mut created = Ok(());
        let mut evidence = Vec::new();
        for wrong in wrong_amounts(&target) {
            let Wrong { check, create, amount, code } = wrong;
            let params = format!(r#"{{"amount":{amount},"account":{}}}"#, target.account.to_json());
            let refused = client.send(client.call_with_raw_params("CheckPerformTransaction", &params)).await;
            group.expect_error(check, &refused, code);

            let (id, refused) = try_to_create(&client, &target, &amount).await;
            group.expect_error(create, &refused, code);
            let lookup = client.check(&id).await;
            if let (Ok(()), Err(mismatch)) = (&created, expect::error(&lookup, -31_003)) {
                created = Err(mismatch);
                evidence = vec![refused.clone(), lookup];
            }
            client.undo_if_created(&refused, &id).await;
        }
        let evidence: Vec<_> = evidence.iter().collect();
        group.record("nothing-created", &evidence, created);
        group.close_after_failure();
    }
}

fn wrong_amounts(target: &Target) -> Vec<Wrong> {
    let wrong = |check, create, amount: &str, code| Wrong { check, create, amount: amount.to_owned(), code };
    let mut all = vec![
        wrong("zero.check", "zero.create", "0", -31_001),
        wrong("negative.check", "negative.create", "-100000", -31_001),
        wrong("over-maximum.check", "over-maximum.create", &OVER_MAXIMUM.to_string(), -31_001),
    ];
    if target.kind == Kind::OneTime {
        let one_more = target.amount.saturating_add(1).to_string();
        let one_less = target.amount.saturating_sub(1).to_string();
        all.push(wrong("one-more.check", "one-more.create", &one_more, -31_001));
        all.push(wrong("one-less.check", "one-less.create", &one_less, -31_001));
    }
    all.extend([
        wrong("string.check", "string.create", &format!("\"{}\"", target.amount), -32_600),
        wrong("exponent.check", "exponent.create", "1e3", -32_600),
        wrong("fraction.check", "fraction.create", "1.5", -32_600),
        wrong("null.check", "null.create", "null", -32_600),
    ]);
    all
}

async fn try_to_create(client: &Client, target: &Target, amount: &str) -> (String, Arc<Exchange>) {
    let Payment { id, time, account, .. } = Payment::new(&target.account, target.amount);
    let params = format!(r#"{{"id":"{id}","time":{time},"amount":{amount},"account":{}}}"#, account.to_json());
    let exchange = client.send(client.call_with_raw_params("CreateTransaction", &params)).await;
    (id, exchange)
}
