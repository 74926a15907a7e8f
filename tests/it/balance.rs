//! Rule L1: a balance is the SUM of the rows, now and at every moment of the past, whatever checkpoints say.
//! A balance that depends on something stored beside the rows is a balance that can be wrong.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use hamyon::ids::{Actor, Pocket};
use hamyon::ledger;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::support::TestApp;
use crate::support::app::entry;
use crate::support::intruder;

/// What was booked, kept beside the ledger.
#[derive(Debug, Clone)]
struct Booked {
    at: DateTime<Utc>,
    amount: i64,
    pocket: String,
}

/// Tiyin as the API writes them.
fn text(units: i64) -> String {
    format!("{}{}.{:02}", if units < 0 { "-" } else { "" }, units.abs() / 100, units.abs() % 100)
}

/// The answer to "balance at", added up naively.
fn naive(history: &[Booked], at: DateTime<Utc>) -> Value {
    let counted: Vec<&Booked> = history.iter().filter(|row| row.at <= at).collect();
    let mut pockets: BTreeMap<&str, i64> = BTreeMap::new();
    for row in &counted {
        *pockets.entry(&row.pocket).or_default() += row.amount;
    }
    let sum: i64 = pockets.values().sum();
    let by_pocket: Vec<Value> = pockets
        .iter()
        .filter(|(_, sum)| **sum != 0)
        .map(|(pocket, sum)| {
            json!({ "pocket": pocket, "balance": text(*sum), "held": "0.00", "available": text(*sum), "priority": null,
                    "expires_at": null })
        })
        .collect();
    json!({
        "balance": text(sum), "available": text(sum), "held": "0.00", "currency": "UZS", "seq": counted.len(),
        "pockets": pockets.into_iter().filter(|(_, sum)| *sum != 0).map(|(pocket, sum)| (pocket.to_owned(), json!(text(sum))))
            .collect::<serde_json::Map<_, _>>(),
        "by_pocket": by_pocket,
    })
}

async fn asked(app: &TestApp, at: Option<DateTime<Utc>>) -> Value {
    let path = match at {
        None => "/v1/tenants/acme/balance".to_owned(),
        Some(at) => format!("/v1/tenants/acme/balance?at={}", at.to_rfc3339_opts(SecondsFormat::Micros, true)),
    };
    let (status, mut answer) = app.get(&path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    let answered_at = answer.as_object_mut().and_then(|answer| answer.remove("at")).expect("the moment");
    let answered_at: DateTime<Utc> = answered_at.as_str().and_then(|at| at.parse().ok()).expect("a time");
    assert_eq!(answered_at, at.unwrap_or_else(|| app.clock.now()));
    answer
}

/// Batches of random rows, several of them at the same instant.
async fn random_history(app: &TestApp, dice: &mut StdRng, batches: usize, history: &mut Vec<Booked>) {
    for _ in 0..batches {
        app.clock.advance(TimeDelta::microseconds(match dice.random_range(0..4) {
            0 | 1 => 0,
            2 => 1,
            _ => dice.random_range(1..3_000_000),
        }));
        let size = if dice.random_range(0..10) == 0 { dice.random_range(60..140) } else { dice.random_range(1..6) };
        let mut entries = Vec::new();
        for _ in 0..size {
            let pocket = ["main", "purchased", "day:2026-12-01"][dice.random_range(0..3)];
            let has: i64 = history.iter().filter(|row| row.pocket == pocket).map(|row| row.amount).sum();
            let amount = if has > 0 && dice.random_bool(0.5) {
                // Often everything, so that pockets become empty.
                -if dice.random_bool(0.3) { has } else { dice.random_range(1..=has) }
            } else {
                dice.random_range(1..100_000)
            };
            let mut entry = entry("acme", "bonus", amount, &format!("row-{}", history.len()));
            entry.pocket = Pocket::parse(pocket).expect("a pocket");
            entries.push(entry);
            history.push(Booked { at: app.clock.now(), amount, pocket: pocket.to_owned() });
        }
        app.post_entries(&entries).await.expect("booked");
    }
}

/// Every kind of moment: before, after, at a row, a microsecond beside one, and anywhere.
fn moments(dice: &mut StdRng, history: &[Booked]) -> Vec<DateTime<Utc>> {
    let (first, last) = (history[0].at, history[history.len() - 1].at);
    let mut moments = vec![first - TimeDelta::microseconds(1), first, last, last + TimeDelta::days(400)];
    for _ in 0..12 {
        let row = history[dice.random_range(0..history.len())].at;
        moments.extend([row, row - TimeDelta::microseconds(1), row + TimeDelta::microseconds(1)]);
        let span = (last - first).num_microseconds().expect("a span");
        moments.push(first + TimeDelta::microseconds(dice.random_range(0..=span)));
    }
    moments
}

async fn compare(app: &TestApp, dice: &mut StdRng, history: &[Booked], about: &str) {
    assert_eq!(asked(app, None).await, naive(history, app.clock.now()), "{about}: now");
    for at in moments(dice, history) {
        assert_eq!(asked(app, Some(at)).await, naive(history, at), "{about}: at {at}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_the_balance_is_the_sum_at_every_moment_with_any_checkpoints() {
    for seed in [1, 2, rand::random()] {
        let mut dice = StdRng::seed_from_u64(seed);
        let app = TestApp::start().await;
        app.tenant("acme").await;
        let mut history = Vec::new();
        random_history(&app, &mut dice, 30, &mut history).await;
        let checkpoints = app.count("SELECT count(*) FROM wallet_checkpoints").await;
        assert!(checkpoints >= 2, "seed {seed}: the sums are shortened somewhere, {checkpoints} times");
        compare(&app, &mut dice, &history, &format!("seed {seed}, all checkpoints")).await;

        let mut service = app.as_service().await;
        service
            .execute("DELETE FROM wallet_checkpoints WHERE seq = (SELECT max(seq) FROM wallet_checkpoints)")
            .await
            .expect("dropped");
        compare(&app, &mut dice, &history, &format!("seed {seed}, without the last")).await;
        service.execute("DELETE FROM wallet_checkpoints WHERE random() < 0.5").await.expect("dropped");
        compare(&app, &mut dice, &history, &format!("seed {seed}, some dropped")).await;
        service.execute("DELETE FROM wallet_checkpoints").await.expect("dropped");
        compare(&app, &mut dice, &history, &format!("seed {seed}, none")).await;

        // What is booked afterwards stands on the sum as well.
        random_history(&app, &mut dice, 8, &mut history).await;
        compare(&app, &mut dice, &history, &format!("seed {seed}, booked on without them")).await;
        assert!(app.verify().await.is_clean());
    }
}

#[tokio::test]
async fn l1_a_checkpoint_that_lies_is_found_and_dropping_it_gives_the_answer_back() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let entries: Vec<_> = (0..64).map(|number| entry("acme", "bonus", 100, &format!("row-{number}"))).collect();
    app.post_entries(&entries).await.expect("booked");
    let mut conn = intruder::intruder(&app).await;
    intruder::run(&mut conn, "UPDATE wallet_checkpoints SET pocket_sums = '{\"main\": 999999}'").await;
    let report = app.verify().await;
    assert!(report.findings[0].place.ends_with("row 16"), "{report:?}");
    app.as_service().await.execute("DELETE FROM wallet_checkpoints").await.expect("the service may drop it");
    assert_eq!(app.get("/v1/tenants/acme/balance").await.1["balance"], "64.00");
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn c81_a_checkpoint_never_stands_past_a_row_that_is_still_in_flight() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    let mut slow = app.as_service().await;
    let mut open = slow.begin().await.expect("a transaction");
    let row = [entry("acme", "bonus", 7, "in-flight")];
    ledger::post(&mut open, &row, &Actor::job("slow"), app.clock.now()).await.expect("booked, not yet committed");
    // Long enough to leave a checkpoint.
    let many: Vec<_> = (0..70).map(|number| entry("acme", "bonus", 1, &format!("row-{number}"))).collect();
    let (behind, ()) = tokio::join!(app.post_entries(&many), async {
        super::locking::until_blocked(&app, 1).await;
        open.commit().await.expect("committed");
    });
    assert_eq!(behind.expect("booked behind it").first().map(|row| row.seq), Some(3));
    assert_eq!(
        app.count("SELECT count(*) FROM wallet_checkpoints").await,
        4,
        "one each sixteen rows, of the whole sums"
    );
    assert_eq!(app.get("/v1/tenants/acme/balance").await.1["balance"], "10.77");
    assert_eq!(app.sum("acme").await, 1_077);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn a_wallet_that_was_never_used_holds_nothing_and_a_stranger_has_none() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let (status, answer) = app.get("/v1/tenants/acme/balance?currency=CREDIT").await;
    assert_eq!((status.as_u16(), &answer["balance"], &answer["seq"]), (200, &json!("0"), &json!(0)), "{answer}");
    for (path, code) in [
        ("/v1/tenants/nobody/balance", "tenant_not_found"),
        ("/v1/tenants/acme/balance?currency=NOPE", "currency_not_found"),
        ("/v1/tenants/nobody/transactions", "tenant_not_found"),
        ("/v1/tenants/acme/transactions?currency=NOPE", "currency_not_found"),
        ("/v1/tenants/nobody", "tenant_not_found"),
    ] {
        let (status, answer) = app.get(path).await;
        assert_eq!((status.as_u16(), answer["code"].as_str()), (404, Some(code)), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_moment_beyond_what_anybody_can_store_is_an_answer_and_not_a_fault() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 100).await;
    for (at, balance) in [
        ("9999-12-31T23:59:59Z", "1.00"),
        ("1970-01-01T00:00:00Z", "0.00"),
        ("0001-01-01T00:00:00Z", "0.00"),
        ("2026-12-01T14:00:00%2B05:00", "1.00"),
        ("2026-12-01T13:59:59.999999%2B05:00", "0.00"),
    ] {
        let (status, answer) = app.get(&format!("/v1/tenants/acme/balance?at={at}")).await;
        assert_eq!((status.as_u16(), answer["balance"].as_str()), (200, Some(balance)), "{at}: {answer}");
    }
    for at in [
        "%2B262142-01-01T00:00:00Z",
        "-262143-01-01T00:00:00Z",
        "-9999-01-01T00:00:00Z",
        "%2B294277-01-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-12-01",
        "now",
        "infinity",
        "",
        "2026-12-01T00:00:00",
        "1764547200",
    ] {
        let (status, answer) = app.get(&format!("/v1/tenants/acme/balance?at={at}")).await;
        assert_eq!((status.as_u16(), answer["code"].as_str()), (400, Some("invalid_request")), "{at}: {answer}");
    }
}
