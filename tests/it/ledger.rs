//! Rules L1 to L5: what stands in `wallet_transactions` is the only truth, it is never changed, and no
//! concurrency makes money out of nothing or takes more than there is.

use hamyon::fault::Error;
use hamyon::ledger::Refusal;
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::app::entry;

#[tokio::test]
async fn l2_the_service_can_neither_change_nor_delete_history_nor_disable_what_guards_it() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    let before = app.everything_written().await;
    let mut service = app.as_service().await;
    for statement in [
        "UPDATE wallet_transactions SET amount = amount + 1",
        "UPDATE wallet_transactions SET metadata = '{}'",
        "DELETE FROM wallet_transactions",
        "TRUNCATE wallet_transactions",
        "TRUNCATE wallet_transactions CASCADE",
        "ALTER TABLE wallet_transactions DISABLE TRIGGER ALL",
        "ALTER TABLE wallet_transactions DISABLE TRIGGER wallet_transactions_are_history",
        "DROP TRIGGER wallet_transactions_are_history ON wallet_transactions",
        "DROP TABLE wallet_transactions",
        "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE sql AS 'SELECT NULL'",
        "SET session_replication_role = replica",
        "SET ROLE hamyon_owner",
        "SET ROLE postgres",
        "DELETE FROM wallets",
        "UPDATE wallets SET tenant_id = 'other'",
        "DELETE FROM payments",
        "UPDATE payments SET amount = 1",
        "DELETE FROM provider_calls",
        "DELETE FROM idempotency_keys",
        "UPDATE currencies SET exponent = 3",
    ] {
        let refused = service.execute(statement).await.expect_err(statement);
        let code = refused.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|code| code.to_string());
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused}");
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn l2_even_the_owner_of_the_table_is_refused_by_its_triggers() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    app.superuser()
        .await
        .execute("INSERT INTO installation (name, value) VALUES ('test', 'true')")
        .await
        .expect("a fact to delete");
    let mut owner = app.superuser().await;
    owner.execute("SET SESSION AUTHORIZATION hamyon_owner").await.expect("the owner's role");
    for statement in [
        "UPDATE wallet_transactions SET amount = amount + 1",
        "DELETE FROM wallet_transactions",
        "TRUNCATE wallet_transactions CASCADE",
        "DELETE FROM installation",
        "TRUNCATE idempotency_keys",
        "TRUNCATE provider_calls",
        "TRUNCATE payments CASCADE",
    ] {
        let refused = owner.execute(statement).await.expect_err(statement);
        let code = refused.as_database_error().and_then(sqlx::error::DatabaseError::code).map(|code| code.to_string());
        assert_eq!(code.as_deref(), Some("HM001"), "{statement}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_c21_fifty_debits_at_once_take_exactly_what_is_there() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 100).await;
    let debits = (0..50).map(|number| {
        let app = &app;
        async move { app.post_entries(&[entry("acme", "purchase", -10, &format!("debit-{number}"))]).await }
    });
    let outcomes = futures::future::join_all(debits).await;
    let booked = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(Error::Refused(Refusal::InsufficientFunds { .. }))))
        .count();
    assert_eq!((booked, refused), (10, 40));
    assert_eq!(app.sum("acme").await, 0);
    let lowest = app
        .count("SELECT min(running)::bigint FROM (SELECT sum(amount) OVER (ORDER BY seq) AS running FROM wallet_transactions) r")
        .await;
    assert_eq!(lowest, 0, "no row ever took the wallet below zero");
    assert!(app.verify().await.is_clean());
}
