//! Rule L2: rows that pass through states are write-once. A column that has a value keeps it, even for whoever
//! owns the database; otherwise a payment could be performed at another time, and a due be unpaid again.

use hamyon::jobs::Job;
use serde_json::json;
use sqlx::Executor as _;

use crate::idempotency::token_of;
use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};
use crate::telegram::{ALICE, Stage};

/// An application in which every write-once table has a row that went through its states.
async fn lived_in() -> TestApp {
    // A booking that was cancelled, and a case that was resolved.
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("booked", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "booked").await;
    stage.paid(ALICE, "booked").await;
    stage.paid(ALICE, "nothing").await;
    let app = stage.app;
    for (path, body) in [
        ("/v1/bookings/1/cancel", json!({ "reason": "a test" })),
        ("/v1/payment-cases/1/resolve", json!({ "resolution": "refund", "note": "a test" })),
    ] {
        let (status, answer) = app.post_with_key(path, path, &body).await;
        assert_eq!(status, 200, "{answer}");
    }
    let allowance = json!({
        "allowance_id": "daily", "currency": "CREDIT", "window": "rolling", "tiers": [{ "tier": "t", "amount": "5" }],
    });
    let promo = json!({ "currency": "CREDIT", "pocket": "promo", "amount": "5", "expires_at": "2100-01-01T00:00:00Z" });
    for (path, key, body) in [
        ("/v1/allowances", "a", allowance),
        ("/v1/tenants/acme/allowances", "b", json!({ "allowance_id": "daily", "tier": "t" })),
        ("/v1/tenants/acme/activity", "c", json!({})),
        ("/v1/tenants/acme/grants", "d", promo),
        ("/v1/tenants/acme/pockets/void", "e", json!({ "currency": "CREDIT", "pocket": "promo", "reason": "a test" })),
    ] {
        let (status, answer) = app.post_with_key(path, key, &body).await;
        assert!(status.is_success(), "{path}: {answer}");
    }
    app.plan("standard", "2000.00").await;
    let subscription_id = app.subscribe("acme", "standard", "2026-12-01", "full").await;
    Job::FeeRun.run(&app.app).await.unwrap();
    let id = "5f0000000000000000000001";
    app.payme_created(id, "acme", 300_000).await;
    for (method, params) in
        [("PerformTransaction", json!({ "id": id })), ("CancelTransaction", json!({ "id": id, "reason": 5 }))]
    {
        let answer = app.payme(method, params).await;
        // The fee took it, so it can't be cancelled before more has come.
        if answer["error"]["code"] == -31_007 {
            app.fund("acme", 300_000).await;
        }
    }
    let cancelled = app.payme("CancelTransaction", json!({ "id": id, "reason": 5 })).await;
    assert_eq!(cancelled["result"]["state"], -2, "{cancelled}");
    app.order("A1", "acme", "10.00").await;
    let body = batch(&[posting("acme", "bonus", "1.00", "one")]);
    for (path, key, body) in [
        ("/v1/orders/A1/close", None, json!({})),
        ("/v1/transactions/batch", Some("key"), body),
        ("/v1/webhook-endpoints", None, json!({ "url": "http://127.0.0.1:9/hook" })),
        (&format!("/v1/tenants/acme/subscriptions/{subscription_id}/cancel"), None, json!({})),
    ] {
        let (status, answer) = match key {
            Some(key) => app.post_with_key(path, key, &body).await,
            None => app.post(path, &body).await,
        };
        assert!(status.is_success(), "{path}: {answer}");
    }
    // Posted at once, and asked for and rejected by another with a note.
    for (amount, status) in [("1", 201), ("2000", 202)] {
        let body = json!({ "currency": "UZS", "amount": amount, "reason": "goodwill", "note": "a test" });
        let answer = app.post_with_key("/v1/tenants/acme/adjustments", amount, &body).await;
        assert_eq!(answer.0, status, "{}", answer.1);
    }
    let boss = token_of(&app, "boss").await;
    let call = Call::new("POST", "/v1/support-requests/2/reject").token(&boss).key("no");
    assert_eq!(call.json(&json!({ "note": "not this" })).send(&app).await.status, 200);
    app
}

#[tokio::test]
async fn l2_no_column_of_a_write_once_row_that_has_a_value_can_be_given_another() {
    let app = lived_in().await;
    let mut superuser = app.superuser().await;
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.table_name::text, c.column_name::text
           FROM information_schema.triggers t
           JOIN information_schema.columns c ON c.table_name = t.event_object_table AND c.table_schema = 'public'
          WHERE t.action_statement = 'EXECUTE FUNCTION refuse_overwrite()' AND c.is_identity = 'NO'
          ORDER BY 1, 2",
    )
    .fetch_all(&mut superuser)
    .await
    .unwrap();
    let mut tried = std::collections::BTreeSet::new();
    for (table, column) in &columns {
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count({column}) FROM {table}")))
            .fetch_one(&mut superuser)
            .await
            .unwrap();
        if rows == 0 {
            continue;
        }
        let statement = format!("UPDATE {table} SET {column} = NULL WHERE {column} IS NOT NULL");
        let error = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut superuser).await.expect_err(column);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("HM002"), "{table}.{column}: {error}");
        tried.insert(table.as_str());
    }
    let tables: std::collections::BTreeSet<&str> = columns.iter().map(|(table, _)| table.as_str()).collect();
    assert_eq!(tried, tables, "every such table had a row");
    assert!(tables.contains("dues") && tables.contains("payments"), "{tables:?}");
    for (table, column) in [
        ("payments", "performed_at"),
        ("payments", "cancelled_at"),
        ("orders", "closed_at"),
        ("idempotency_keys", "answer"),
        ("dues", "charged_seq"),
        ("support_requests", "decided_by"),
        ("support_requests", "decision_note"),
        ("support_requests", "posted_seq"),
        ("subscriptions", "ended_on"),
        ("orders", "slot_id"),
        ("slot_holds", "ended_at"),
        ("bookings", "cancelled_at"),
        ("bookings", "refund"),
        ("payment_cases", "resolved_at"),
    ] {
        let statement = format!("SELECT count({column}) FROM {table}");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(&mut superuser).await.unwrap();
        assert!(rows > 0, "{table}.{column} had a value");
    }
}

#[tokio::test]
async fn l7_the_head_of_a_wallet_moves_forward_only_and_belongs_to_whom_it_belonged() {
    // Whoever could set a head back could cut the tail off and nothing would miss it.
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.tenant("other").await;
    app.fund("acme", 1_000).await;
    app.fund("acme", 2_000).await;
    let before = app.everything_written().await;
    let (mut service, mut superuser) = (app.as_service().await, app.superuser().await);
    for (change, by_service, by_superuser) in [
        ("head_seq = head_seq", "HM003", "HM003"),
        ("head_seq = head_seq - 1", "HM003", "HM003"),
        ("head_hash = sha256('another')", "HM003", "HM003"),
        ("head_seq = 0, head_recorded_at = NULL", "HM003", "HM003"),
        ("head_seq = NULL", "23502", "23502"),
        ("tenant_id = 'other', head_seq = head_seq + 1", "42501", "HM003"),
        ("currency = 'USD', head_seq = head_seq + 1", "42501", "HM003"),
        ("created_at = now(), head_seq = head_seq + 1", "42501", "HM003"),
    ] {
        for (session, code) in [(&mut service, by_service), (&mut superuser, by_superuser)] {
            let statement = format!("UPDATE wallets SET {change} WHERE tenant_id = 'acme'");
            let error = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(session).await.expect_err(change);
            let seen = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(seen.as_deref(), Some(code), "{change}: {error}");
        }
    }
    assert_eq!(app.everything_written().await, before);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn f2_an_event_belongs_to_a_tenant_and_a_due_to_a_subscription() {
    // No foreign key says so (it would look each up by itself), so the triggers must refuse what it would.
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let allowance = json!({
        "allowance_id": "daily", "currency": "CREDIT", "window": "rolling", "tiers": [{ "tier": "t", "amount": "5" }],
    });
    let promo = json!({ "currency": "CREDIT", "pocket": "promo", "amount": "5", "expires_at": "2100-01-01T00:00:00Z" });
    for (path, key, body) in [
        ("/v1/allowances", "a", allowance),
        ("/v1/tenants/acme/allowances", "b", json!({ "allowance_id": "daily", "tier": "t" })),
        ("/v1/tenants/acme/activity", "c", json!({})),
        ("/v1/tenants/acme/grants", "d", promo),
        ("/v1/tenants/acme/pockets/void", "e", json!({ "currency": "CREDIT", "pocket": "promo", "reason": "a test" })),
    ] {
        let (status, answer) = app.post_with_key(path, key, &body).await;
        assert!(status.is_success(), "{path}: {answer}");
    }
    app.plan("standard", "2000.00").await;
    let subscription_id = app.subscribe("acme", "standard", "2026-12-01", "full").await;
    let before = app.everything_written().await;
    let event = "INSERT INTO events (tenant_id, kind, body, created_at)
                 SELECT tenant_id, 'a.test', '{}', now() FROM unnest(ARRAY['acme', 'nobody', 'acme']) AS t (tenant_id)";
    let due = format!(
        "INSERT INTO dues (subscription_id, month, tenant_id, currency, amount, due_at, decided_at, overdue_at)
         SELECT subscription_id, '2026-12-01', 'acme', 'UZS', 1, now(), now(), now()
           FROM unnest(ARRAY[{subscription_id}, {subscription_id} + 1]) AS s (subscription_id)"
    );
    let (mut service, mut superuser) = (app.as_service().await, app.superuser().await);
    for (statement, by_service, by_superuser) in [
        (event, "23503", "23503"),
        (&due, "23503", "23503"),
        // Nor can one lose what it belongs to.
        ("UPDATE tenants SET tenant_id = 'other' WHERE tenant_id = 'acme'", "42501", "HM001"),
        ("UPDATE subscriptions SET subscription_id = DEFAULT", "42501", "HM002"),
        ("DELETE FROM tenants", "42501", "HM001"),
        ("DELETE FROM subscriptions", "42501", "HM001"),
        ("TRUNCATE tenants CASCADE", "42501", "HM001"),
        ("TRUNCATE subscriptions", "42501", "HM001"),
    ] {
        for (session, code) in [(&mut service, by_service), (&mut superuser, by_superuser)] {
            let error = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(session).await.expect_err(statement);
            let seen = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(seen.as_deref(), Some(code), "{statement}: {error}");
        }
    }
    assert_eq!(app.everything_written().await, before);
}

/// What may vanish: derived, or about a moment.
const PASSING: [&str; 7] = [
    "_sqlx_migrations",
    "login_failures",
    "login_throttles",
    "staff_sessions",
    "tenant_activity",
    "wallet_checkpoints",
    "webhook_deliveries",
];

#[tokio::test]
async fn l2_no_table_of_history_is_emptied_and_no_row_of_one_deleted_by_anybody() {
    let app = TestApp::start().await;
    let (mut superuser, mut service) = (app.superuser().await, app.as_service().await);
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1",
    )
    .fetch_all(&mut superuser)
    .await
    .unwrap();
    let kept: Vec<&String> = tables.iter().filter(|table| !PASSING.contains(&table.as_str())).collect();
    assert!(kept.len() > 40 && kept.len() + PASSING.len() == tables.len(), "{tables:?}");
    for table in kept {
        let truncate = format!("TRUNCATE {table} CASCADE");
        let error = superuser.execute(sqlx::AssertSqlSafe(truncate.as_str())).await.expect_err(&truncate);
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("HM001"), "{truncate}: {error}");
        // A table may be empty, so the guard of its rows is looked up and not tried.
        let guarded: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_trigger
                             WHERE tgrelid = $1::regclass AND tgtype & 8 <> 0 AND tgtype & 2 <> 0
                               AND tgfoid = 'refuse_change'::regproc AND tgenabled = 'O')",
        )
        .bind(table)
        .fetch_one(&mut superuser)
        .await
        .unwrap();
        assert!(guarded, "a row of {table} can be deleted");
        for statement in [truncate, format!("DELETE FROM {table}")] {
            let error = service.execute(sqlx::AssertSqlSafe(statement.as_str())).await.expect_err(&statement);
            let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(code.as_deref(), Some("42501"), "the service may not: {statement}: {error}");
        }
    }
}
