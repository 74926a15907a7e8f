//! Rule L3: a batch is written whole or not at all. Whatever the ledger says no to, and wherever in the
//! batch it stands, the items before it leave no trace: no row, no wallet, no checkpoint, no key.

use std::collections::BTreeSet;

use hamyon::fault::Error;
use hamyon::ledger::{Entry, Refusal};
use hamyon::money::CurrencyCode;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};
use crate::support::app::entry;

/// A name for each refusal. A new one doesn't compile until it is tested here.
fn name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::UnknownTenant { .. } => "unknown tenant",
        Refusal::UnknownCurrency { .. } => "unknown currency",
        Refusal::WrongSign { .. } => "wrong sign",
        Refusal::ReasonMissing { .. } => "reason missing",
        Refusal::OriginalMisplaced { .. } => "original misplaced",
        Refusal::OriginalUnfit { .. } => "original unfit",
        Refusal::OriginalExceeded { .. } => "original exceeded",
        Refusal::AlreadyBooked { .. } => "already booked",
        Refusal::TwiceInBatch { .. } => "twice in batch",
        Refusal::InsufficientFunds { .. } => "insufficient funds",
        Refusal::PocketClosed { .. } => "pocket_closed",
        Refusal::Overflow { .. } => "overflow",
    }
}

const NAMES: usize = 11;

/// Row 1 is a credit of 10.00, row 2 a debit of 4.00.
async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    app.post_entries(&[entry("acme", "purchase", -400, "bought")]).await.expect("booked");
    app
}

/// Good items, among them the first use of a wallet and enough rows for a checkpoint.
fn good() -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..80).map(|number| entry("acme", "bonus", 1, &format!("good-{number}"))).collect();
    let mut dollars = entry("acme", "bonus", 1, "first use");
    dollars.currency = CurrencyCode::parse("USD").expect("a currency");
    entries.insert(0, dollars);
    entries
}

fn changed(mut entry: Entry, change: impl FnOnce(&mut Entry)) -> Entry {
    change(&mut entry);
    entry
}

#[tokio::test]
async fn l3_every_refusal_of_the_ledger_leaves_no_trace_of_the_items_around_it() {
    let app = app().await;
    let before = app.everything_written().await;
    let refund =
        |amount, original| changed(entry("acme", "refund", amount, "refund"), |entry| entry.original_seq = original);
    let bad = [
        ("unknown tenant", entry("nobody", "bonus", 1, "bad")),
        (
            "unknown currency",
            changed(entry("acme", "bonus", 1, "bad"), |entry| {
                entry.currency = CurrencyCode::parse("NOPE").expect("a code");
            }),
        ),
        ("wrong sign", entry("acme", "top_up", -1, "bad")),
        ("wrong sign", entry("acme", "subscription_fee", 1, "bad")),
        ("wrong sign", entry("acme", "refund", -1, "bad")),
        ("wrong sign", entry("acme", "top_up_reversal", 1, "bad")),
        ("wrong sign", entry("acme", "bonus", 0, "bad")),
        ("wrong sign", entry("acme", "adjustment", 0, "bad")),
        ("reason missing", changed(entry("acme", "adjustment", 1, "bad"), |entry| entry.reason = None)),
        ("reason missing", changed(refund(1, Some(2)), |entry| entry.reason = None)),
        ("original misplaced", refund(1, None)),
        ("original misplaced", changed(entry("acme", "bonus", 1, "bad"), |entry| entry.original_seq = Some(2))),
        ("original unfit", refund(1, Some(1))),
        ("original unfit", refund(1, Some(3))),
        ("original unfit", refund(1, Some(0))),
        ("original unfit", refund(1, Some(-1))),
        ("original unfit", refund(1, Some(i64::MAX))),
        ("original exceeded", refund(401, Some(2))),
        ("original exceeded", refund(i64::MAX, Some(2))),
        ("already booked", entry("acme", "purchase", -1, "bought")),
        ("twice in batch", entry("acme", "bonus", 1, "good-7")),
        ("insufficient funds", entry("acme", "purchase", -681, "bad")),
        ("insufficient funds", entry("acme", "purchase", -i64::MAX, "bad")),
        ("insufficient funds", entry("acme", "purchase", i64::MIN, "bad")),
        ("overflow", entry("acme", "bonus", i64::MAX, "bad")),
    ];
    let mut seen = BTreeSet::new();
    for (expected, bad) in bad {
        for place in [0, 40, 81] {
            // What is in a batch twice is refused at the second place, and funds come with the items before.
            if place == 0 && expected == "twice in batch" {
                continue;
            }
            let mut entries = good();
            entries.insert(place, bad.clone());
            let error = app.post_entries(&entries).await.expect_err(expected);
            let Error::Refused(refusal) = error else { panic!("{expected} at {place}: {error:?}") };
            assert_eq!((name(&refusal), refusal.index()), (expected, place), "{refusal:?}");
            assert_eq!(app.everything_written().await, before, "{expected} at {place}");
            seen.insert(name(&refusal));
        }
    }
    assert_eq!(seen.len(), NAMES, "{seen:?}");
    assert_eq!(app.post_entries(&good()).await.expect("the good ones alone").len(), 81);
}

#[tokio::test]
async fn l3_the_first_refusal_in_the_order_of_the_items_is_the_one_that_is_told() {
    let app = app().await;
    let wrong = entry("acme", "top_up", -1, "wrong");
    let booked = entry("acme", "purchase", -1, "bought");
    let poor = entry("acme", "purchase", -100_000, "poor");
    for (entries, expected) in [
        ([wrong.clone(), booked.clone(), poor.clone()], "wrong sign"),
        ([booked.clone(), poor.clone(), wrong.clone()], "already booked"),
        ([poor, wrong, booked], "insufficient funds"),
    ] {
        let error = app.post_entries(&entries).await.expect_err(expected);
        let Error::Refused(refusal) = error else { panic!("{error:?}") };
        assert_eq!((name(&refusal), refusal.index()), (expected, 0), "{refusal:?}");
    }
}

#[tokio::test]
async fn l3_the_api_tells_each_refusal_with_its_code_and_its_place() {
    let app = app().await;
    let before = app.everything_written().await;
    let with = |mut item: Value, field: &str, value: Value| {
        item[field] = value;
        item
    };
    let bad = |kind: &str, amount: &str| posting("acme", kind, amount, "bad");
    let without_reason = |mut item: Value| {
        item.as_object_mut().expect("an item").remove("reason");
        item
    };
    for (item, status, code) in [
        (posting("nobody", "bonus", "1", "bad"), 404, "tenant_not_found"),
        (with(bad("bonus", "1"), "currency", json!("NOPE")), 404, "currency_not_found"),
        (bad("top_up", "-1"), 422, "wrong_sign"),
        (bad("subscription_fee", "1"), 422, "wrong_sign"),
        (bad("refund", "-1"), 422, "wrong_sign"),
        (bad("bonus", "0"), 422, "wrong_sign"),
        (without_reason(bad("adjustment", "1")), 422, "reason_missing"),
        (without_reason(with(bad("refund", "1"), "transaction", json!(2))), 422, "reason_missing"),
        (bad("refund", "1"), 422, "original_misplaced"),
        (with(bad("bonus", "1"), "transaction", json!(2)), 422, "original_misplaced"),
        (with(bad("refund", "1"), "transaction", json!(1)), 422, "original_unfit"),
        (with(bad("refund", "1"), "transaction", json!(99)), 422, "original_unfit"),
        (with(bad("refund", "4.01"), "transaction", json!(2)), 409, "original_exceeded"),
        (posting("acme", "purchase", "-1", "bought"), 409, "already_booked"),
        (posting("acme", "bonus", "1", "good"), 409, "twice_in_batch"),
        (bad("purchase", "-100"), 402, "insufficient_funds"),
        (bad("bonus", "92233720368547758.07"), 422, "balance_too_large"),
        (bad("top_up_reversal", "-1"), 422, "kind_not_postable"),
        // Under these names the wallet's own rooms book, and a row of somebody else would stand in their way (L5).
        (posting("acme", "top_up", "1", "telegram:111:c"), 422, "kind_not_postable"),
        (posting("acme", "booking", "-1", "booking:1"), 422, "kind_not_postable"),
        (posting("acme", "refund", "1", "booking:1"), 422, "kind_not_postable"),
        (posting("acme", "refund", "1", "support:1"), 422, "kind_not_postable"),
        (posting("acme", "adjustment", "1", "support:1"), 422, "kind_not_postable"),
        (posting("acme", "adjustment", "1", "payment-case:1:in"), 422, "kind_not_postable"),
        (posting("acme", "adjustment", "-1", "refund-task:1:out"), 422, "kind_not_postable"),
        (posting("acme", "adjustment", "-1", "cover:1:out"), 422, "kind_not_postable"),
    ] {
        let dollars = with(posting("acme", "bonus", "1", "first use"), "currency", json!("USD"));
        let body = batch(&[dollars, posting("acme", "bonus", "1", "good"), item]);
        let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("K1").json(&body);
        let problem = call.send(&app).await.refused(status, code, code);
        assert_eq!(problem["index"], 2, "{problem}");
        assert_eq!(app.everything_written().await, before, "{code}");
    }
}
