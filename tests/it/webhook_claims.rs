//! Rule L8 for events: a worker may die between its claim and its record, and many may work at once. Nothing
//! is lost, nobody sends what another holds, and a long queue costs those who aren't in it nothing.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::{fresh_database, settings};
use crate::support::hooks::{deliver, deliver_after, deliveries, happen, patient_for, register};
use crate::support::process::{Serving, eventually};
use crate::support::receiver::{Receiver, Reply};

#[tokio::test]
async fn a_claim_that_nobody_ends_runs_out() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let receiver = Receiver::start().await;
    register(&app, &receiver.url()).await;
    happen(&app, "acme", [1, 2]).await;
    let dead_worker = sqlx::query(
        "UPDATE webhook_deliveries SET claimed_until = $1, attempts = attempts + 1
          WHERE event_id = (SELECT min(event_id) FROM webhook_deliveries)",
    )
    .bind(app.clock.now() + TimeDelta::seconds(60));
    dead_worker.execute(&mut app.as_service().await).await.expect("claimed");
    assert_eq!(deliver_after(&app, 59).await, 0, "it may still be alive");
    assert_eq!(deliver_after(&app, 1).await, 2);
    assert_eq!(receiver.numbers("acme"), [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_while_the_receiver_holds_its_request_loses_nothing() {
    let database = fresh_database().await;
    let app = TestApp::start_on(database, settings(), hamyon::db::PoolSettings::default()).await;
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Hold);
    app.clock.advance(DateTime::<Utc>::from(std::time::SystemTime::now()).signed_duration_since(app.clock.now()));
    app.tenant("acme").await;
    register(&app, &receiver.url()).await;
    happen(&app, "acme", [1, 2]).await;
    let process = Serving::start(&app.database_url(), &["--webhook-allow-private"]).await;
    receiver.has_heard(1).await;
    process.kill().await;
    assert_eq!(app.count("SELECT count(*) FROM webhook_deliveries WHERE claimed_until IS NOT NULL").await, 1);
    assert_eq!(app.count("SELECT count(*) FROM webhook_attempts").await, 0);
    receiver.answers(|_| Reply::Status(204));
    assert_eq!(deliver_after(&app, 120).await, 2);
    assert_eq!(receiver.numbers("acme"), [1, 1, 2]);
    let heard = receiver.heard();
    assert_eq!(heard[0].id(), heard[1].id(), "a receiver can tell the repeat");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_at_once_send_each_event_once() {
    let app = TestApp::start().await;
    let receiver = Receiver::start().await;
    register(&app, &receiver.url()).await;
    for tenant in 0..10 {
        app.tenant(&format!("t{tenant}")).await;
        happen(&app, &format!("t{tenant}"), 1..=10).await;
    }
    let workers = (0..4).map(|_| {
        let app = app.app.clone();
        tokio::spawn(async move { app.deliverer.deliver_ready().await })
    });
    let mut sent = 0;
    for worker in futures::future::join_all(workers).await {
        sent += worker.expect("it ends").expect("delivered");
    }
    assert_eq!(sent + deliver(&app).await, 100);
    assert_eq!(receiver.heard().len(), 100);
    for tenant in 0..10 {
        assert_eq!(receiver.numbers(&format!("t{tenant}")), (1..=10).collect::<Vec<i64>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_comes_back_late_with_a_failure_changes_nothing() {
    let app = TestApp::start_with(patient_for(Duration::from_mins(1))).await;
    app.tenant("acme").await;
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Hold);
    register(&app, &receiver.url()).await;
    happen(&app, "acme", [1]).await;
    let worker = app.app.clone();
    let late = tokio::spawn(async move { worker.deliverer.deliver_ready().await });
    receiver.has_heard(1).await;
    // Its claim runs out, and another worker fails at once.
    receiver.answers(|_| Reply::Status(500));
    assert_eq!(deliver_after(&app, 111).await, 1);
    receiver.release(1);
    late.await.expect("it ends").expect("recorded");
    // The late one has brought it after all.
    assert_eq!(deliveries(&app, "delivered").await.len(), 1);
    assert_eq!(deliver_after(&app, 100_000).await, 0);
}

/// The most rows that any node of a plan read, with its loops.
fn most_rows(plan: &Value) -> f64 {
    let own = plan["Actual Rows"].as_f64().unwrap_or(0.0) * plan["Actual Loops"].as_f64().unwrap_or(0.0)
        + plan["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
    let children = plan["Plans"].as_array().into_iter().flatten().map(most_rows);
    children.fold(own, f64::max)
}

/// The claim as the source has it, its parameters written in.
fn statement(name: &str, parameters: &[&str]) -> String {
    let source = include_str!("../../src/outbox/store.rs");
    let from = source.find(&format!("-- outbox::{name}\n")).expect("the statement");
    let mut text = source[from..].split("\"#").next().expect("its end").to_owned();
    for (index, value) in parameters.iter().enumerate() {
        text = text.replace(&format!("${}", index + 1), value);
    }
    // The names are for the query macro.
    for name in ["endpoint_id", "tenant_id", "event_id", "url", "secret", "body"] {
        text = text.replace(&format!(" AS \"{name}!\""), "");
    }
    text
}

#[tokio::test]
async fn twenty_thousand_waiting_for_a_dead_receiver_cost_the_claim_nothing() {
    let app = TestApp::start().await;
    let good = Receiver::start().await;
    let down = Receiver::start().await;
    down.answers(|_| Reply::Status(500));
    app.tenant("many").await;
    app.tenant("other").await;
    let (down_id, _) = register(&app, &down.url()).await;
    let mut conn = app.superuser().await;
    // Half of them of one tenant, half of a tenant each.
    sqlx::raw_sql(
        "INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
         SELECT 't' || n, 'T', 'Asia/Tashkent', 'uz', now() FROM generate_series(1, 10000) n;
         INSERT INTO events (tenant_id, kind, body, created_at)
         SELECT CASE WHEN n > 10000 THEN 'many' ELSE 't' || n END, 'payment.performed',
                '{\"data\":{\"tenant_id\":\"x\",\"n\":1}}', '2026-12-01T09:00:00Z' FROM generate_series(1, 20000) n;
         INSERT INTO webhook_deliveries (endpoint_id, event_id, tenant_id, next_attempt_at)
         SELECT p.endpoint_id, e.event_id, e.tenant_id,
                e.created_at + CASE WHEN e.tenant_id = 'many' AND e.event_id > 10001 THEN '0' ELSE '1 h' END::interval
           FROM events e CROSS JOIN webhook_endpoints p;
         ANALYZE webhook_deliveries, events, tenants;",
    )
    .execute(&mut conn)
    .await
    .expect("a pile");
    register(&app, &good.url()).await;
    happen(&app, "other", [1]).await;
    assert_eq!(deliver(&app).await, 2, "the pile is parked, what can be sent is sent");
    assert_eq!(good.numbers("other"), [1]);
    sqlx::raw_sql("VACUUM ANALYZE webhook_deliveries").execute(&mut conn).await.expect("vacuumed");
    happen(&app, "other", [2]).await;
    // Both when the pile is not ready and when all of it is.
    for now in ["'2026-12-01T09:00:00Z'::timestamptz", "'2026-12-01T12:00:00Z'::timestamptz"] {
        for (name, parameters) in [("claim", vec!["64", "16", "200", now, "now()"]), ("find_blocked", vec!["200", now])]
        {
            let sql = format!("EXPLAIN (ANALYZE, FORMAT JSON) {}", statement(name, &parameters));
            sqlx::raw_sql("BEGIN").execute(&mut conn).await.expect("begun");
            let plan: Value = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut conn).await.expect("a plan");
            sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.expect("undone");
            let rows = most_rows(&plan[0]["Plan"]);
            assert!(rows <= 1_000.0, "{name} at {now} reads {rows} rows: {plan:#}");
        }
    }
    let (_, page) = app.get("/v1/webhook-deliveries?state=waiting&limit=1").await;
    assert_eq!(page["items"][0]["endpoint_id"], json!(down_id));
    eventually("the other endpoint is served", async || deliver(&app).await == 0).await;
    assert_eq!(good.numbers("other"), [1, 2]);
}
