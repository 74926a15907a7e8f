//! Rules L3, L4 and L8: lock the wallets in one order, read afterwards, decide, write once. Whoever reads
//! before the lock spends money that is gone, and whoever locks in another order makes callers fail.

use std::future::Future;
use std::time::{Duration, Instant};

use hamyon::db::PoolSettings;
use hamyon::fault::Error;
use hamyon::ids::{Actor, Pocket};
use hamyon::ledger::{self, Entry, Refusal};
use hamyon::money::{CurrencyCode, MinorUnits};
use serde_json::json;
use sqlx::{Connection as _, Executor as _};

use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};
use crate::support::app::{entry, fresh_database, settings};

/// How long anything that must come may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Asks until the answer is yes.
async fn until<F: Future<Output = bool>>(what: &str, ask: impl Fn() -> F) {
    let began = Instant::now();
    while !ask().await {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until so many sessions of this database wait for a lock.
pub async fn until_blocked(app: &TestApp, sessions: i64) {
    until("sessions wait for a lock", || async {
        app.count(
            "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
              WHERE NOT l.granted AND a.datname = current_database()",
        )
        .await
            >= sessions
    })
    .await;
}

/// An application in which hundreds of callers may wait for one wallet on a slow machine.
async fn patient_app() -> TestApp {
    let pool = PoolSettings {
        acquire_timeout: PATIENCE,
        lock_timeout: PATIENCE,
        statement_timeout: PATIENCE,
        ..PoolSettings::default()
    };
    TestApp::start_on(fresh_database().await, settings(), pool).await
}

fn in_currency(mut entry: Entry, currency: &str) -> Entry {
    entry.currency = CurrencyCode::parse(currency).expect("a currency");
    entry
}

fn in_pocket(mut entry: Entry, pocket: &str) -> Entry {
    entry.pocket = Pocket::parse(pocket).expect("a pocket");
    entry
}

#[tokio::test]
async fn l3_c23_what_was_spent_while_a_debit_waited_for_the_lock_is_gone_for_it() {
    let app = patient_app().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    let mut session = app.as_service().await;
    let mut first = session.begin().await.expect("a transaction");
    // Only the lock is held yet, so the second debit begins in a world where the money is there.
    first.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.expect("locked");
    let debit = [entry("acme", "purchase", -1_000, "second")];
    let (second, ()) = tokio::join!(app.post_entries(&debit), async {
        until_blocked(&app, 1).await;
        let all = [entry("acme", "purchase", -1_000, "first")];
        ledger::post(&mut first, &all, &Actor::job("first"), app.clock.now()).await.expect("the lock's holder spends");
        first.commit().await.expect("committed");
    });
    let refused = second.expect_err("the money is gone");
    let Error::Refused(Refusal::InsufficientFunds { available, needed, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((available, needed), (MinorUnits::ZERO, MinorUnits::new(1_000)));
    assert_eq!(app.sum("acme").await, 0);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn l3_what_was_earned_while_a_debit_waited_for_the_lock_is_there_for_it() {
    let app = patient_app().await;
    app.tenant("acme").await;
    let mut session = app.as_service().await;
    let mut first = session.begin().await.expect("a transaction");
    first.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.expect("locked");
    let debit = [entry("acme", "purchase", -1_000, "debit")];
    let (second, ()) = tokio::join!(app.post_entries(&debit), async {
        until_blocked(&app, 1).await;
        let credit = [entry("acme", "top_up", 1_000, "credit")];
        ledger::post(&mut first, &credit, &Actor::job("first"), app.clock.now()).await.expect("credited");
        first.commit().await.expect("committed");
    });
    assert_eq!(second.expect("the money is there")[0].balance_after, MinorUnits::ZERO);
}

#[tokio::test]
async fn l3_wallets_are_locked_in_the_order_of_their_ids_whatever_the_batch_says() {
    let app = patient_app().await;
    // The order of the names is the reverse of the order of the ids, and the last write of a wallet puts its
    // row behind the others: neither order may decide.
    for tenant in ["c", "b", "a"] {
        app.tenant(tenant).await;
    }
    for tenant in ["a", "b", "c"] {
        app.fund(tenant, 100).await;
    }
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.expect("a transaction");
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'c' FOR NO KEY UPDATE").await.expect("the lowest id");
    let all = ["a", "b", "c"].map(|tenant| entry(tenant, "purchase", -1, "batch"));
    let (booked, ()) = tokio::join!(app.post_entries(&all), async {
        until_blocked(&app, 1).await;
        let mut other = app.as_service().await;
        for tenant in ["a", "b"] {
            sqlx::query("SELECT FROM wallets WHERE tenant_id = $1 FOR NO KEY UPDATE NOWAIT")
                .bind(tenant)
                .execute(&mut other)
                .await
                .unwrap_or_else(|error| panic!("{tenant} was locked before c: {error}"));
        }
        holding.rollback().await.expect("released");
    });
    assert_eq!(booked.expect("booked").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_c25_transfers_both_ways_at_once_end_without_a_deadlock() {
    let app = patient_app().await;
    for tenant in ["a", "b"] {
        app.tenant(tenant).await;
        app.fund(tenant, 1_000).await;
    }
    let transfers = (0..200).flat_map(|number| [("a", "b", number), ("b", "a", number)]).map(|(from, to, number)| {
        let app = &app;
        async move {
            let out = entry(from, "transfer_out", -1, &format!("{from}-{to}-{number}"));
            let into = entry(to, "transfer_in", 1, &format!("{from}-{to}-{number}"));
            app.post_entries(&[out, into]).await
        }
    });
    let outcomes = futures::future::join_all(transfers).await;
    for outcome in &outcomes {
        outcome.as_ref().expect("booked");
    }
    assert_eq!((app.sum("a").await, app.sum("b").await), (1_000, 1_000));
    assert!(app.verify().await.is_clean());
    // A session that ends says what it saw, so no deadlock hides behind a repeat that went well.
    app.app.db.close().await;
    until("all sessions of the service have ended", || async {
        app.count(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hamyon'",
        )
        .await
            == 0
    })
    .await;
    let deadlocks = app.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
    assert_eq!(deadlocks, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_c27_the_first_use_of_a_wallet_by_many_at_once_opens_one() {
    let app = patient_app().await;
    app.tenant("acme").await;
    app.tenant("other").await;
    let firsts = (0..20).map(|number| {
        let app = &app;
        async move {
            let reference = format!("first-{number}");
            let mut entries = vec![
                in_currency(entry("acme", "bonus", 1, &reference), "CREDIT"),
                in_currency(entry("other", "bonus", 1, &reference), "XTR"),
                in_currency(entry("other", "bonus", 1, &reference), "USD"),
            ];
            // The order of a batch is not the order of its wallets.
            entries.rotate_left(number % 3);
            app.post_entries(&entries).await
        }
    });
    for outcome in futures::future::join_all(firsts).await {
        outcome.expect("booked");
    }
    assert_eq!(app.count("SELECT count(*) FROM wallets WHERE currency IN ('CREDIT', 'XTR', 'USD')").await, 3);
    let dense = app
        .count(
            "SELECT count(*) FROM wallets w WHERE currency <> 'UZS' AND head_seq = 20 AND
                    (SELECT array_agg(seq ORDER BY seq) FROM wallet_transactions x WHERE x.wallet_id = w.wallet_id)
                    = (SELECT array_agg(n::bigint) FROM generate_series(1, 20) n)",
        )
        .await;
    assert_eq!(dense, 3, "1 to 20 in each");
    let debit = in_currency(entry("acme", "purchase", -20, "all"), "CREDIT");
    assert_eq!(app.post_entries(&[debit]).await.expect("the first debit")[0].balance_after, MinorUnits::ZERO);
    assert!(app.verify().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_debits_of_many_wallets_at_once_never_overdraw_one() {
    let app = patient_app().await;
    let tenants = ["a", "b", "c", "d"];
    for tenant in tenants {
        app.tenant(tenant).await;
        app.fund(tenant, 100).await;
    }
    let debits = (0..120).map(|number: usize| {
        let app = &app;
        async move {
            let pair = [tenants[number % 4], tenants[(number / 4 + 1 + number) % 4]];
            let amount = -i64::try_from(number % 9 + 1).expect("small");
            let entries: Vec<Entry> = pair
                .iter()
                .enumerate()
                .map(|(place, tenant)| entry(tenant, "purchase", amount, &format!("debit-{number}-{place}")))
                .collect();
            app.post_entries(&entries).await
        }
    });
    let outcomes = futures::future::join_all(debits).await;
    let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!(refused > 0 && refused < outcomes.len(), "{refused} of {} were refused", outcomes.len());
    for outcome in outcomes {
        assert!(matches!(outcome, Ok(_) | Err(Error::Refused(Refusal::InsufficientFunds { .. }))), "{outcome:?}");
    }
    let lowest = app
        .count(
            "SELECT min(running)::bigint FROM (SELECT sum(amount) OVER (PARTITION BY wallet_id ORDER BY seq) AS running
                                                 FROM wallet_transactions) r",
        )
        .await;
    assert!(lowest >= 0, "a row took its wallet to {lowest}");
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn l4_a_pocket_does_not_go_below_zero_though_the_wallet_has_more() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 100).await;
    app.post_entries(&[in_pocket(entry("acme", "bonus", 50, "promo"), "promo")]).await.expect("funded");
    let before = app.everything_written().await;
    for (pocket, amount, there) in [("promo", -51, 50), ("main", -101, 100), ("never-used", -1, 0), ("promo", -150, 50)]
    {
        let debit = in_pocket(entry("acme", "purchase", amount, "debit"), pocket);
        let refused = app.post_entries(&[debit]).await.expect_err(pocket);
        let Error::Refused(Refusal::InsufficientFunds { available, needed, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((available.get(), needed.get()), (there, -amount), "{pocket}");
    }
    assert_eq!(app.everything_written().await, before);
    // A batch sees what its own items did before.
    let moves = [
        in_pocket(entry("acme", "transfer_out", -50, "move"), "promo"),
        entry("acme", "transfer_in", 50, "move"),
        entry("acme", "purchase", -150, "all"),
    ];
    app.post_entries(&moves).await.expect("a batch in its order");
    let (_, balance) = app.get("/v1/tenants/acme/balance").await;
    assert_eq!((&balance["balance"], &balance["pockets"]), (&json!("0.00"), &json!({})));
}

#[tokio::test]
async fn l8_c29_a_caller_who_hangs_up_leaves_neither_a_lock_nor_half_a_booking() {
    let app = patient_app().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.expect("a transaction");
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.expect("locked");
    let body = batch(&[posting("acme", "purchase", "-4.00", "hung-up")]);
    let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("hung-up").json(&body);
    tokio::select! {
        answer = call.clone().send(&app) => panic!("it was answered while the wallet was locked: {answer:?}"),
        // Leaving this branch drops the request, and with it the connection.
        () = until_blocked(&app, 1) => {}
    }
    holding.rollback().await.expect("released");
    let next = batch(&[posting("acme", "purchase", "-6.00", "next")]);
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "next", &next).await;
    assert_eq!(status, 201, "{answer}");
    let again = call.send(&app).await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (201, Some("true")), "{}", again.text());
    assert_eq!(app.sum("acme").await, 0);
}
