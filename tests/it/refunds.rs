//! A refund gives back a debit, by name, and all refunds of one debit together never give back more than it
//! took. The cap comes from the rows themselves, so no flag can be lost.

use hamyon::fault::Error;
use hamyon::ids::Reason;
use hamyon::ledger::{Entry, Refusal};
use serde_json::json;
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::app::{entry, fresh_database, settings};

/// Row 1: a credit of 1,000. Row 2: a debit of 600.
async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    app.post_entries(&[entry("acme", "purchase", -600, "bought")]).await.expect("booked");
    app
}

fn refund(amount: i64, original: i64, reference: &str) -> Entry {
    Entry { original_seq: Some(original), ..entry("acme", "refund", amount, reference) }
}

async fn refused(app: &TestApp, entry: Entry) -> Refusal {
    match app.post_entries(&[entry]).await {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn parts_add_up_to_the_original_and_no_further() {
    let app = app().await;
    for (amount, reference) in [(100, "first"), (499, "second")] {
        app.post_entries(&[refund(amount, 2, reference)]).await.expect("a part");
    }
    let refusal = refused(&app, refund(2, 2, "third")).await;
    assert!(matches!(refusal, Refusal::OriginalExceeded { seq: 2, left: 1, asked: 2, .. }), "{refusal:?}");
    app.post_entries(&[refund(1, 2, "fourth")]).await.expect("the rest");
    let refusal = refused(&app, refund(1, 2, "fifth")).await;
    assert!(matches!(refusal, Refusal::OriginalExceeded { left: 0, asked: 1, .. }), "{refusal:?}");
    assert_eq!(app.sum("acme").await, 1_000);
}

#[tokio::test]
async fn parts_in_one_batch_count_together() {
    let app = app().await;
    let before = app.everything_written().await;
    let error = app.post_entries(&[refund(400, 2, "a"), refund(201, 2, "b")]).await.expect_err("601 of 600");
    let Error::Refused(Refusal::OriginalExceeded { index, left, asked, .. }) = error else { panic!("{error:?}") };
    assert_eq!((index, left, asked), (1, 200, 201));
    assert_eq!(app.everything_written().await, before);
    app.post_entries(&[refund(400, 2, "a"), refund(200, 2, "b")]).await.expect("600 of 600");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_refunds_of_one_debit_at_once_never_give_back_more() {
    let app = app().await;
    let refunds = (0..20).map(|number| {
        let app = &app;
        async move { app.post_entries(&[refund(100, 2, &format!("refund-{number}"))]).await }
    });
    let outcomes = futures::future::join_all(refunds).await;
    let given = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let exceeded = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(Error::Refused(Refusal::OriginalExceeded { .. }))))
        .count();
    assert_eq!((given, exceeded), (6, 14));
    assert_eq!(app.sum("acme").await, 1_000);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn only_a_debit_that_is_there_is_given_back() {
    let app = app().await;
    let id = "5305e3bab097f420a62ced0b";
    app.payme_created(id, "acme", 500_000).await;
    assert_eq!(app.payme("PerformTransaction", json!({ "id": id })).await["result"]["state"], 2);
    assert_eq!(app.payme("CancelTransaction", json!({ "id": id, "reason": 5 })).await["result"]["state"], -2);
    app.post_entries(&[refund(10, 2, "given")]).await.expect("row 5");
    let before = app.everything_written().await;
    for (original, what) in [
        (1, "a credit"),
        (3, "a top-up"),
        (4, "what went back through its provider"),
        (5, "a refund"),
        (6, "no row yet"),
        (0, "no row"),
        (-2, "no row"),
        (i64::MAX, "no row"),
    ] {
        let refusal = refused(&app, refund(1, original, "refund")).await;
        assert!(matches!(refusal, Refusal::OriginalUnfit { seq, .. } if seq == original), "{what}: {refusal:?}");
    }
    // A row of this very batch isn't there yet.
    let same_batch = [entry("acme", "purchase", -1, "new"), refund(1, 6, "refund")];
    let error = app.post_entries(&same_batch).await.expect_err("not there");
    assert!(matches!(error, Error::Refused(Refusal::OriginalUnfit { index: 1, seq: 6, .. })), "{error:?}");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_debit_of_another_wallet_is_not_given_back() {
    let app = app().await;
    app.tenant("other").await;
    let before = app.everything_written().await;
    let stolen = Entry { original_seq: Some(2), ..entry("other", "refund", 1, "stolen") };
    let refusal = refused(&app, stolen).await;
    assert!(matches!(refusal, Refusal::OriginalUnfit { .. }), "{refusal:?}");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_reason_is_needed_and_kept() {
    let app = app().await;
    let silent = Entry { reason: None, ..refund(1, 2, "refund") };
    assert!(matches!(refused(&app, silent).await, Refusal::ReasonMissing { .. }));
    let said = Entry { reason: Some(Reason::parse("Mijoz qaytardi").expect("a reason")), ..refund(1, 2, "refund") };
    let rows = app.post_entries(&[said]).await.expect("booked");
    assert_eq!((rows[0].original_seq, rows[0].reason.as_ref().map(Reason::as_str)), (Some(2), Some("Mijoz qaytardi")));
    for reason in ["", "  ", "two\nlines", "nul\0", &"x".repeat(501)] {
        Reason::parse(reason).expect_err(reason);
    }
}

#[tokio::test]
async fn c47_the_cap_survives_a_restore_because_it_is_read_from_the_rows() {
    let app = app().await;
    app.post_entries(&[refund(600, 2, "all")]).await.expect("given back");
    // A dump and its restore: the rows and nothing else. Another database with another application.
    let database = app.database.clone();
    app.app.db.close().await;
    let restored = fresh_database().await;
    let other = TestApp::start_on(restored, settings(), hamyon::db::PoolSettings::default()).await;
    copy(&app, &other).await;
    let refusal = refused(&other, refund(600, 2, "all-again")).await;
    assert!(matches!(refusal, Refusal::OriginalExceeded { left: 0, .. }), "{refusal:?} after {database}");
    assert!(other.verify().await.is_clean());
}

/// Carries the rows of the book over, as text and without any derived table.
async fn copy(from: &TestApp, to: &TestApp) {
    let (mut source, mut target) = (from.superuser().await, to.superuser().await);
    target.execute("SET session_replication_role = replica").await.expect("as a restore does");
    for (read, write) in [
        (
            "SELECT coalesce(json_agg(t), '[]')::text FROM tenants t",
            "INSERT INTO tenants SELECT * FROM json_populate_recordset(NULL::tenants, $1::json)",
        ),
        (
            "SELECT coalesce(json_agg(t), '[]')::text FROM wallets t",
            "INSERT INTO wallets OVERRIDING SYSTEM VALUE SELECT * FROM json_populate_recordset(NULL::wallets, $1::json)",
        ),
        (
            "SELECT coalesce(json_agg(t), '[]')::text FROM wallet_transactions t",
            "INSERT INTO wallet_transactions SELECT * FROM json_populate_recordset(NULL::wallet_transactions, $1::json)",
        ),
    ] {
        let rows: String = sqlx::query_scalar(read).fetch_one(&mut source).await.expect("dumped");
        sqlx::query(write).bind(rows).execute(&mut target).await.expect("restored");
    }
}
