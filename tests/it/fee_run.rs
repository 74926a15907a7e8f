//! Rules F2, F3 and F6: a run decides every month once, with all that belongs to it or with nothing, whoever
//! else is at work; and it can say at any moment how it stands.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hamyon::db::PoolSettings;
use hamyon::fault::Error;
use hamyon::fee::{self, RunLimits, RunOptions, RunRefusal, RunReport};
use hamyon::jobs::Job;
use hamyon::money::Month;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};
use crate::support::app::{entry, fresh_database, settings};

pub async fn run(app: &TestApp) -> RunReport {
    run_with(app, RunOptions::default()).await.expect("the run ends well")
}

pub async fn run_with(app: &TestApp, options: RunOptions) -> Result<RunReport, Error<RunRefusal>> {
    fee::run(&app.app.db, &app.app.clock, options, &|_| {}).await
}

pub fn move_to(app: &TestApp, instant: &str) {
    let instant: DateTime<Utc> = instant.parse().unwrap();
    app.clock.advance(instant - app.clock.now());
}

/// Three tenants who owe December: two with money, one without.
pub async fn three() -> TestApp {
    three_on(PoolSettings::default()).await
}

async fn three_on(pool: PoolSettings) -> TestApp {
    let app = TestApp::start_on(fresh_database().await, settings(), pool).await;
    app.plan("standard", "100.00").await;
    for tenant in ["a", "b", "c"] {
        app.tenant(tenant).await;
        app.subscribe(tenant, "standard", "2026-12-01", "full").await;
    }
    app.fund("a", 10_000).await;
    app.fund("b", 50_000).await;
    app
}

/// What is decided, as text.
async fn decided(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT d.tenant_id || ' ' || to_char(d.month, 'YYYY-MM') || ' ' || d.amount || ' ' ||
                CASE WHEN d.charged_at IS NULL THEN 'overdue' ELSE 'charged ' || coalesce(d.charged_seq, 0) END
           FROM dues d ORDER BY d.tenant_id, d.month, d.due_id",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap()
}

/// expected, charged, overdue, open of a month; the difference must be 0.
pub async fn numbers(app: &TestApp, period: &str) -> [i64; 4] {
    let (status, run) = app.get(&format!("/v1/fee-runs/{period}")).await;
    assert_eq!(status, StatusCode::OK, "{run}");
    assert_eq!(run["difference"], 0, "{run}");
    ["expected", "charged", "overdue", "open"].map(|name| run[name].as_i64().unwrap())
}

const DONE: [&str; 3] = ["a 2026-12 10000 charged 2", "b 2026-12 10000 charged 2", "c 2026-12 10000 overdue"];

#[tokio::test]
async fn f2_a_run_writes_the_row_the_due_and_the_event_or_nothing() {
    let app = three().await;
    let mut superuser = app.superuser().await;
    superuser
        .execute("CREATE FUNCTION break_down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$")
        .await
        .unwrap();
    for table in ["dues", "events", "wallet_transactions", "wallets"] {
        // One row of the chunk is enough.
        let (event, of) =
            if table == "wallets" { ("UPDATE", "NEW.tenant_id = 'b'") } else { ("INSERT", "NEW.tenant_id = 'b'") };
        superuser
            .execute(sqlx::AssertSqlSafe(format!(
                "CREATE TRIGGER broken BEFORE {event} ON {table} FOR EACH ROW WHEN ({of}) EXECUTE FUNCTION break_down()"
            )))
            .await
            .unwrap();
        let before = book_of(&app).await;
        assert!(matches!(
            run_with(&app, RunOptions { workers: 1, ..RunOptions::default() }).await,
            Err(Error::Fault(_))
        ));
        assert_eq!(book_of(&app).await, before, "a run that broke at {table} left something");
        superuser.execute(sqlx::AssertSqlSafe(format!("DROP TRIGGER broken ON {table}"))).await.unwrap();
        assert_eq!(numbers(&app, "2026-12").await, [3, 0, 0, 3], "the run was started, and everything is open");
    }
    assert_eq!(run(&app).await, RunReport { expected: 3, charged: 2, overdue: 1, by_others: 0, open: 0 });
    assert_eq!(decided(&app).await, DONE);
    assert_eq!(app.count("SELECT count(*) FROM events").await, 3);
    assert!(app.verify().await.is_clean());
}

/// Everything written but the fact that a run of the month was started.
async fn book_of(app: &TestApp) -> String {
    let all = app.everything_written().await;
    let (before, after) = all.split_once("fee_runs:\n").unwrap();
    format!("{before}{}", after.split_once("events:\n").unwrap().1)
}

#[tokio::test]
async fn f3_c67_c107_the_second_run_writes_nothing_nor_does_the_hundredth() {
    let app = three().await;
    run(&app).await;
    let before = app.everything_written().await;
    for _ in 0..20 {
        // Later ticks of the same month find the unpaid one decided: no row a tick.
        app.clock.advance(TimeDelta::minutes(5));
        assert_eq!(run(&app).await, RunReport::default());
        assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 0);
    }
    assert_eq!(app.everything_written().await, before);
    for tenant in ["a", "b", "c"] {
        let (_, balance) = app.get(&format!("/v1/tenants/{tenant}/balance")).await;
        let sum = app.sum(tenant).await;
        assert_eq!(balance["balance"], format!("{}.{:02}", sum / 100, sum % 100));
    }
    assert!(app.verify().await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f3_c107_ten_runs_at_once_decide_each_month_once() {
    let app = TestApp::start().await;
    many(&app, 300, 0).await;
    let runs = (0..10).map(|_| run(&app));
    let reports = futures::future::join_all(runs).await;
    let sum = |of: fn(&RunReport) -> u64| reports.iter().map(of).sum::<u64>();
    assert_eq!((sum(|report| report.charged), sum(|report| report.overdue)), (300, 0), "{reports:?}");
    for report in &reports {
        assert_eq!(report.expected, report.charged + report.overdue + report.by_others + report.open, "{report:?}");
        assert_eq!(report.open, 0, "each waits for what others hold: {report:?}");
    }
    assert_eq!(app.count("SELECT count(*) FROM wallet_transactions WHERE kind = 'subscription_fee'").await, 300);
    assert_eq!(app.count("SELECT count(*) FROM dues").await, 300);
    assert_eq!(app.count("SELECT count(*) FROM events").await, 300);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn f3_the_workers_share_what_is_owed_and_not_the_numbers_of_the_wallets() {
    // Wallets that owe nothing any more fill the lower numbers after some years; half of the workers must not have
    // only those.
    let app = TestApp::start().await;
    let mut superuser = app.superuser().await;
    superuser
        .execute(
            "WITH t AS (INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
                        SELECT 'gone-' || n, 'Tenant', 'Asia/Tashkent', 'uz', now() FROM generate_series(1, 3000) n
                        RETURNING tenant_id)
             INSERT INTO wallets (tenant_id, currency, created_at) SELECT tenant_id, 'UZS', now() FROM t",
        )
        .await
        .unwrap();
    many(&app, 1_500, 1_500).await;
    superuser
        .execute(
            "CREATE TABLE deciders (pid integer PRIMARY KEY);
             CREATE FUNCTION note_decider() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
             BEGIN INSERT INTO deciders VALUES (pg_backend_pid()) ON CONFLICT DO NOTHING; RETURN NULL; END $$;
             CREATE TRIGGER note_decider AFTER INSERT ON dues FOR EACH STATEMENT EXECUTE FUNCTION note_decider()",
        )
        .await
        .unwrap();
    let options = RunOptions { workers: 2, confirmed: true, ..RunOptions::default() };
    let report = run_with(&app, options).await.unwrap();
    assert_eq!(report, RunReport { expected: 1_500, charged: 0, overdue: 1_500, by_others: 0, open: 0 });
    assert!(app.count("SELECT count(*) FROM deciders").await >= 2, "one worker did it all");
}

/// So many tenants who owe December, the last `poor` of them without money.
pub async fn many(app: &TestApp, tenants: usize, poor: usize) {
    app.plan("standard", "100.00").await;
    sqlx::query(
        "WITH t AS (INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
                    SELECT 'many-' || n, 'Tenant', 'Asia/Tashkent', 'uz', now() FROM generate_series(1, $1) n
                    RETURNING tenant_id),
              w AS (INSERT INTO wallets (tenant_id, currency, created_at) SELECT tenant_id, 'UZS', now() FROM t)
         INSERT INTO subscriptions (tenant_id, plan_id, started_on, first_month, first_owed_month, created_at)
         SELECT tenant_id, 'standard', '2026-12-01', 'full', '2026-12-01', now() FROM t",
    )
    .bind(i32::try_from(tenants).unwrap())
    .execute(&mut app.superuser().await)
    .await
    .unwrap();
    let credits: Vec<_> =
        (1..=tenants - poor).map(|number| entry(&format!("many-{number}"), "top_up", 15_000, "first")).collect();
    app.post_entries(&credits).await.unwrap();
}

#[tokio::test]
async fn c111_pressing_the_button_twice_is_one_run() {
    let app = three().await;
    let (any, december) = (json!({}), json!({ "period": "2026-12" }));
    let (first, second) = tokio::join!(app.post("/v1/fee-runs", &any), app.post("/v1/fee-runs", &december));
    for (status, answer) in [&first, &second] {
        assert_eq!(*status, StatusCode::OK, "{answer}");
    }
    let before = app.everything_written().await;
    let (status, third) = app.post("/v1/fee-runs", &json!({})).await;
    assert_eq!((status, &third["expected"]), (StatusCode::OK, &json!(0)));
    assert_eq!(app.everything_written().await, before);
    let (_, runs) = app.get("/v1/fee-runs").await;
    assert_eq!(runs["items"].as_array().unwrap().len(), 1, "{runs}");
    assert_eq!(numbers(&app, "2026-12").await, [3, 2, 1, 0]);
    assert_eq!(decided(&app).await, DONE);
}

#[tokio::test]
async fn f3_a_wallet_that_somebody_holds_holds_up_nobody_else_and_is_decided_when_it_is_free() {
    let app = three().await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'a' FOR NO KEY UPDATE").await.unwrap();
    let (report, ()) = tokio::join!(run(&app), async {
        // The run has come back to wait for the one that is held; the others are done.
        until_blocked(&app, 1).await;
        assert_eq!(decided(&app).await, DONE[1..]);
        assert_eq!(numbers(&app, "2026-12").await, [3, 1, 1, 1], "half done it adds up as well");
        holding.rollback().await.unwrap();
    });
    assert_eq!(report, RunReport { expected: 3, charged: 2, overdue: 1, by_others: 0, open: 0 });
    assert_eq!(decided(&app).await, DONE);
}

#[tokio::test]
async fn f3_a_wallet_that_is_held_to_the_end_is_reported_open_and_the_next_run_decides_it() {
    let impatient = PoolSettings { lock_timeout: Duration::from_millis(50), ..PoolSettings::default() };
    let app = three_on(impatient).await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'a' FOR NO KEY UPDATE").await.unwrap();
    let mut other = app.as_service().await;
    let mut brief = other.begin().await.unwrap();
    brief.execute("SELECT FROM wallets WHERE tenant_id = 'b' FOR NO KEY UPDATE").await.unwrap();
    let (report, ()) = tokio::join!(run(&app), async {
        // While the run waits for the first, the second becomes free: it must not stay behind the first.
        until_blocked(&app, 1).await;
        brief.rollback().await.unwrap();
    });
    assert_eq!(report, RunReport { expected: 3, charged: 1, overdue: 1, by_others: 0, open: 1 });
    assert_eq!(decided(&app).await, DONE[1..]);
    let dry = run_with(&app, RunOptions { dry_run: true, ..RunOptions::default() }).await.unwrap();
    assert_eq!(dry, RunReport { expected: 1, charged: 0, overdue: 0, by_others: 0, open: 1 });
    holding.rollback().await.unwrap();
    assert_eq!(run(&app).await, RunReport { expected: 1, charged: 1, overdue: 0, by_others: 0, open: 0 });
    assert_eq!(decided(&app).await, DONE);
    assert_eq!(app.count("SELECT count(*) FROM events").await, 3);
}

#[tokio::test]
async fn f3_what_was_spent_while_the_run_waited_for_the_wallet_is_gone_for_it() {
    let app = three().await;
    let mut holder = app.as_service().await;
    let mut holding = holder.begin().await.unwrap();
    holding.execute("SELECT FROM wallets WHERE tenant_id = 'a' FOR NO KEY UPDATE").await.unwrap();
    let ((), report) = tokio::join!(
        async {
            until_blocked(&app, 1).await;
            let all = [entry("a", "purchase", -10_000, "all")];
            let actor = hamyon::ids::Actor::job("test");
            hamyon::ledger::post(&mut holding, &all, &actor, app.clock.now()).await.unwrap();
            holding.commit().await.unwrap();
        },
        run(&app)
    );
    assert_eq!((report.charged, report.overdue), (1, 2));
    assert_eq!((app.sum("a").await, app.sum("b").await), (0, 40_000));
}

#[tokio::test]
async fn f6_a_dry_run_says_what_a_run_would_do_and_leaves_nothing() {
    let app = three().await;
    let before = app.everything_written().await;
    let dry = run_with(&app, RunOptions { dry_run: true, ..RunOptions::default() }).await.unwrap();
    let (_, by_http) = app.post("/v1/fee-runs", &json!({ "dry_run": true })).await;
    assert_eq!(app.everything_written().await, before);
    let (status, _) = app.get("/v1/fee-runs/2026-12").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(run(&app).await, dry);
    assert_eq!((dry.charged, dry.overdue), (2, 1));
    assert_eq!(
        by_http,
        json!({ "expected": 3, "charged": 2, "overdue": 1, "by_others": 0, "open": 0, "dry_run": true })
    );
}

#[tokio::test]
async fn f4_a_run_up_to_a_month_goes_no_further() {
    let app = three().await;
    move_to(&app, "2027-02-15T09:00:00Z");
    let up_to = |period: &str| RunOptions { period: Some(Month::parse(period).unwrap()), ..RunOptions::default() };
    assert_eq!(run_with(&app, up_to("2026-11")).await.unwrap(), RunReport::default());
    assert_eq!(run_with(&app, up_to("2026-12")).await.unwrap().expected, 3);
    assert_eq!(run_with(&app, up_to("2026-12")).await.unwrap(), RunReport::default());
    assert_eq!(numbers(&app, "2026-12").await, [3, 2, 1, 0]);
    let before = app.everything_written().await;
    let refused = run_with(&app, RunOptions::default()).await;
    assert_eq!(app.everything_written().await, before);
    let Err(Error::Refused(RunRefusal::TooManyMonths { months, allowed, .. })) = refused else { panic!("{refused:?}") };
    assert_eq!((months, allowed), (2, 1));
    // A month that hasn't begun can't be run ahead of its time.
    let two = RunLimits { months_max: 2, ..RunLimits::default() };
    let ahead = RunOptions { limits: two, ..up_to("2030-01") };
    assert_eq!(run_with(&app, ahead).await.unwrap().expected, 6);
    assert_eq!(app.count("SELECT count(*) FROM dues WHERE month > '2027-02-01'").await, 0);
}

#[tokio::test]
async fn f3_nobody_else_can_book_the_reference_of_a_months_fee() {
    let app = three().await;
    let fee = posting("b", "subscription_fee", "-1.00", "fee:2:2026-12");
    let before = app.everything_written().await;
    let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("taken").json(&batch(&[fee]));
    call.send(&app).await.refused(422, "kind_not_postable", "a reference of the run's");
    assert_eq!(app.everything_written().await, before);
    // A product's own history may be imported under references of its own.
    let imported = posting("b", "subscription_fee", "-1.00", "2026-11");
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "imported", &batch(&[imported])).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(run(&app).await.charged, 2);
}

#[tokio::test]
async fn l2_a_due_is_paid_once_and_never_unpaid_by_the_service_or_anybody() {
    let app = three().await;
    run(&app).await;
    let (mut service, mut superuser) = (app.as_service().await, app.superuser().await);
    for (statement, by_service, by_superuser) in [
        ("UPDATE dues SET charged_seq = 7 WHERE tenant_id = 'a'", "HM002", "HM002"),
        ("UPDATE dues SET charged_at = NULL, charged_seq = NULL WHERE tenant_id = 'a'", "HM002", "HM002"),
        ("UPDATE dues SET charged_at = now() WHERE tenant_id = 'c'", "23514", "23514"),
        ("UPDATE dues SET amount = 1 WHERE tenant_id = 'c'", "42501", "HM002"),
        ("DELETE FROM dues", "42501", "HM001"),
        ("TRUNCATE dues CASCADE", "42501", "HM001"),
        ("UPDATE fee_runs SET first_started_at = now()", "42501", "HM001"),
        ("DELETE FROM subscriptions", "42501", "HM001"),
        ("UPDATE plan_prices SET amount = 1", "42501", "HM001"),
        (
            "INSERT INTO dues (subscription_id, month, tenant_id, currency, amount, due_at, decided_at, overdue_at)
             SELECT subscription_id, month, tenant_id, currency, amount, due_at, decided_at, now() FROM dues",
            "23505",
            "23505",
        ),
    ] {
        for (session, code) in [(&mut service, by_service), (&mut superuser, by_superuser)] {
            let error = session.execute(statement).await.expect_err(statement);
            let seen = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(seen.as_deref(), Some(code), "{statement}: {error}");
        }
    }
    assert_eq!(decided(&app).await, DONE);
}

#[tokio::test]
async fn f2_the_overdue_one_is_told_in_the_same_transaction() {
    let app = three().await;
    run(&app).await;
    let bodies: Vec<String> = sqlx::query_scalar("SELECT body FROM events ORDER BY tenant_id")
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
    let bodies: Vec<Value> = bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    let kinds: Vec<&str> = bodies.iter().map(|body| body["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["fee.charged", "fee.charged", "fee.overdue"]);
    let data = &bodies[2]["data"];
    assert_eq!(
        *data,
        json!({ "tenant_id": "c", "subscription_id": data["subscription_id"], "month": "2026-12", "amount": "100.00", "amount_minor_units": 10_000,
                "currency": "UZS" })
    );
    let (_, tenant) = app.get("/v1/tenants/c").await;
    assert_eq!(tenant["payment_overdue"], true, "{tenant}");
    let due_at = &tenant["dues"][0]["due_at"];
    assert_eq!(due_at, "2026-11-30T19:00:00Z", "when it fell due, not when the run came by: {tenant}");
}
