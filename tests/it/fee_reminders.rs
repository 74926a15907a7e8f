//! An unpaid fee is recalled on day 3 and day 7 and leads to a suspension on day 14: each said once, whenever
//! the job comes by and however often, and never about a fee that is paid. Paying is all that lifts it.

use chrono::TimeDelta;
use hamyon::jobs::Job;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::Executor as _;

use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::app::entry;

/// Two tenants who could not pay December.
async fn two_overdue() -> TestApp {
    let app = TestApp::start().await;
    app.plan("standard", "100.00").await;
    for tenant in ["acme", "other"] {
        app.tenant(tenant).await;
        app.subscribe(tenant, "standard", "2026-12-01", "full").await;
    }
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 2);
    app
}

/// What a tenant was told since it became overdue: kind and day.
async fn told(app: &TestApp, tenant_id: &str) -> Vec<String> {
    let bodies: Vec<String> = sqlx::query_scalar("SELECT body FROM events WHERE tenant_id = $1 ORDER BY event_id")
        .bind(tenant_id)
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
    bodies
        .iter()
        .map(|body| {
            let body: Value = serde_json::from_str(body).unwrap();
            format!("{} {}", body["type"].as_str().unwrap(), body["data"]["day"]).replace(" null", "")
        })
        .collect()
}

async fn status(app: &TestApp, tenant_id: &str) -> (String, bool) {
    let (_, tenant) = app.get(&format!("/v1/tenants/{tenant_id}")).await;
    (tenant["status"].as_str().unwrap().to_owned(), tenant["payment_overdue"].as_bool().unwrap())
}

async fn remind(app: &TestApp) -> u64 {
    Job::Reminders.run(&app.app).await.unwrap()
}

#[tokio::test]
async fn c67_each_step_is_told_once_on_its_day_however_often_the_job_runs() {
    let app = two_overdue().await;
    assert_eq!(remind(&app).await, 0, "day 0 was told by the run");
    app.clock.advance(TimeDelta::days(3) - TimeDelta::microseconds(1));
    assert_eq!(remind(&app).await, 0);
    app.clock.advance(TimeDelta::microseconds(1));
    assert_eq!(remind(&app).await, 2);
    for (days, queued) in [(0, 0), (1, 0), (3, 2), (0, 0), (6, 0), (1, 2), (0, 0), (30, 0)] {
        app.clock.advance(TimeDelta::days(days));
        assert_eq!(remind(&app).await, queued, "{days} days later");
        let before = app.everything_written().await;
        assert_eq!(remind(&app).await, 0);
        assert_eq!(app.everything_written().await, before);
    }
    for tenant in ["acme", "other"] {
        assert_eq!(
            told(&app, tenant).await,
            ["fee.overdue", "fee.reminder 3", "fee.reminder 7", "access.suspended 14"],
            "{tenant}"
        );
    }
    let body: String =
        sqlx::query_scalar("SELECT body FROM events WHERE kind = 'access.suspended' AND tenant_id = 'acme'")
            .fetch_one(&mut app.superuser().await)
            .await
            .unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let subscription_id = &body["data"]["subscription_id"];
    assert_eq!(
        body["data"],
        json!({ "tenant_id": "acme", "subscription_id": subscription_id, "month": "2026-12", "amount": "100.00", "amount_minor_units": 10_000,
                "currency": "UZS", "day": 14, "overdue_since": "2026-12-01T09:00:00Z" })
    );
}

#[tokio::test]
async fn a_due_that_was_paid_meanwhile_is_not_recalled() {
    let app = two_overdue().await;
    app.clock.advance(TimeDelta::days(3));
    assert_eq!(remind(&app).await, 2);
    app.clock.advance(TimeDelta::days(1));
    app.post_entries(&[entry("acme", "bonus", 10_000, "paid")]).await.unwrap();
    app.clock.advance(TimeDelta::days(20));
    assert_eq!(remind(&app).await, 2, "the other's day 7 and its suspension");
    assert_eq!(told(&app, "acme").await, ["fee.overdue", "fee.reminder 3", "fee.charged", "access.restored"]);
    assert_eq!(status(&app, "acme").await, ("active".to_owned(), false));
    assert_eq!(status(&app, "other").await, ("suspended".to_owned(), true));
}

#[tokio::test]
async fn f5_a_suspended_tenant_is_active_again_with_the_payment_itself() {
    let app = two_overdue().await;
    app.clock.advance(TimeDelta::days(14) - TimeDelta::microseconds(1));
    remind(&app).await;
    assert_eq!(status(&app, "acme").await, ("active".to_owned(), true));
    app.clock.advance(TimeDelta::microseconds(1));
    remind(&app).await;
    assert_eq!(status(&app, "acme").await, ("suspended".to_owned(), true));
    app.post_entries(&[entry("acme", "bonus", 9_999, "not enough")]).await.unwrap();
    assert_eq!(status(&app, "acme").await, ("suspended".to_owned(), true));
    let id = "5f0000000000000000000001";
    app.payme_created(id, "acme", 100_000).await;
    app.payme("PerformTransaction", json!({ "id": id })).await;
    assert_eq!(status(&app, "acme").await, ("active".to_owned(), false));
    assert_eq!(told(&app, "acme").await.last().unwrap(), "access.restored");
    assert_eq!(status(&app, "other").await, ("suspended".to_owned(), true));
}

#[tokio::test]
async fn f5_who_was_suspended_is_let_in_as_soon_as_nothing_is_unpaid_for_so_long() {
    // At stake: the tenant's status says active, and the product that acts on events keeps them out.
    let app = two_overdue().await;
    app.clock.advance(TimeDelta::days(32));
    hamyon::jobs::Job::FeeRun.run(&app.app).await.unwrap();
    remind(&app).await;
    assert_eq!(status(&app, "acme").await, ("suspended".to_owned(), true));
    app.post_entries(&[entry("acme", "bonus", 10_000, "December")]).await.unwrap();
    assert_eq!(status(&app, "acme").await, ("active".to_owned(), true), "January is unpaid for a day");
    assert_eq!(restored(&app).await, [true], "let in, though something is overdue");
    app.post_entries(&[entry("acme", "bonus", 10_000, "January")]).await.unwrap();
    assert_eq!(restored(&app).await, [true, false]);
}

/// What `payment_overdue` was said to be with each `access.restored` of `acme`.
async fn restored(app: &TestApp) -> Vec<bool> {
    sqlx::query_scalar(
        "SELECT (body::jsonb #>> '{data,payment_overdue}')::boolean FROM events
          WHERE kind = 'access.restored' AND tenant_id = 'acme' ORDER BY event_id",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_jobs_at_once_tell_each_step_once() {
    let app = two_overdue().await;
    app.clock.advance(TimeDelta::days(8));
    let policy = &app.app.settings.reminders;
    let jobs = (0..10).map(|_| hamyon::fee::remind(&app.app.db, &app.app.clock, policy));
    let queued: u64 = futures::future::join_all(jobs).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(queued, 4);
    assert_eq!(told(&app, "acme").await, ["fee.overdue", "fee.reminder 3", "fee.reminder 7"]);
}

#[tokio::test]
async fn a_payment_that_is_on_its_way_is_not_recalled() {
    let app = two_overdue().await;
    app.clock.advance(TimeDelta::days(3));
    let mut holder = app.superuser().await;
    let mut holding = holder.begin().await.unwrap();
    // The payment has paid the due, and stops where it tells the endpoints.
    holding.execute("LOCK TABLE webhook_endpoints IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let paid = [entry("acme", "bonus", 10_000, "paid")];
    let (paid, queued, ()) = tokio::join!(
        app.post_entries(&paid),
        async {
            until_blocked(&app, 1).await;
            remind(&app).await
        },
        async {
            until_blocked(&app, 2).await;
            holding.rollback().await.unwrap();
        }
    );
    paid.unwrap();
    assert_eq!(queued, 1, "the other's");
    assert_eq!(told(&app, "acme").await, ["fee.overdue", "fee.charged", "access.restored"]);
}
