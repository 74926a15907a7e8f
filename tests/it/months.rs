//! Rule F1: a fee falls due when the month begins where the tenant lives. An hour too early charges a month
//! that hasn't begun, and a zone taken from anywhere else (the machine, the database's session) charges a
//! whole country on the wrong day, or a second time.
//!
//! The instants are written down in `fixtures/fees/months.json`; another time zone library worked them out.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike as _, NaiveDate, TimeDelta, Utc};
use chrono_tz::Tz;
use hamyon::jobs::Job;
use hamyon::money::{Month, day_begins_at, local_day};
use serde::Deserialize;
use serde_json::json;

use crate::support::TestApp;
use crate::support::book::Book;
use crate::support::process::{hamyon, run, said};

#[derive(Deserialize)]
struct Fixture {
    months: BTreeMap<String, BTreeMap<String, DateTime<Utc>>>,
    days: Vec<Day>,
}

#[derive(Deserialize)]
struct Day {
    zone: String,
    day: NaiveDate,
    begins_at: DateTime<Utc>,
    why: String,
}

fn zone(name: &str) -> Tz {
    name.parse().unwrap()
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../../fixtures/fees/months.json")).unwrap()
}

#[test]
fn f1_months_begin_when_the_fixture_says() {
    let months = fixture().months;
    for (zone, months) in &months {
        for (month, begins_at) in months {
            assert_eq!(Month::parse(month).unwrap().begins_at(self::zone(zone)), *begins_at, "{month} in {zone}");
        }
    }
    for zone in [
        "Asia/Tashkent",
        "Asia/Samarkand",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Africa/Cairo",
        "Pacific/Apia",
        "Asia/Kathmandu",
    ] {
        let years = months[zone].keys().filter(|month| ["2026", "2027"].contains(&&month[..4]));
        assert_eq!(years.count(), 24, "{zone}");
    }
}

#[test]
fn f1_a_day_whose_midnight_does_not_exist_begins_with_its_first_moment() {
    for Day { zone, day, begins_at, why } in fixture().days {
        assert_eq!(day_begins_at(day, self::zone(&zone)), begins_at, "{day} in {zone}: {why}");
    }
}

#[test]
fn f1_the_moment_before_a_month_begins_is_still_the_last_day() {
    for (name, months) in &fixture().months {
        let zone = zone(name);
        for (month, begins_at) in months {
            let month = Month::parse(month).unwrap();
            assert_eq!(Month::of(local_day(*begins_at, zone)), month, "{month} in {zone}");
            let before = local_day(*begins_at - TimeDelta::microseconds(1), zone);
            assert_eq!(before.succ_opt().unwrap(), month.first_day(), "{month} in {zone}");
        }
    }
    // The one whole day that was left out: the month before December's last day ended is a day shorter.
    let apia = zone("Pacific/Apia");
    let left_out = "2011-12-30T10:00:00Z".parse::<DateTime<Utc>>().unwrap();
    assert_eq!(local_day(left_out - TimeDelta::microseconds(1), apia).day(), 29);
    assert_eq!(local_day(left_out, apia).day(), 31);
}

#[test]
fn c59_months_are_anchored_and_never_drift() {
    let mut month = Month::of("2026-01-31".parse().unwrap());
    let mut lasts = Vec::new();
    for _ in 0..12 {
        lasts.push(month.last_day().day());
        assert_eq!(month.first_day().day(), 1);
        month = month.next();
    }
    assert_eq!(lasts, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
    assert_eq!(month.to_string(), "2027-01");
    assert_eq!(Month::parse("2028-02").unwrap().days(), 29);
    for wrong in ["2026-13", "2026-00", "2026-1", "26-01", "2026-01-01", "2026/01", "+026-01", "２026-1", ""] {
        assert!(Month::parse(wrong).is_err(), "{wrong:?}");
    }
}

/// An application whose clock is moved to an instant.
async fn app_at(instant: &str) -> TestApp {
    let app = TestApp::start().await;
    move_to(&app, instant);
    app
}

fn move_to(app: &TestApp, instant: &str) {
    let instant: DateTime<Utc> = instant.parse().unwrap();
    app.clock.advance(instant - app.clock.now());
}

async fn tenant_in(app: &TestApp, tenant_id: &str, zone: &str) {
    let body = json!({ "tenant_id": tenant_id, "name": tenant_id, "time_zone": zone });
    let (status, answer) = app.post("/v1/tenants", &body).await;
    assert_eq!(status, 201, "{answer}");
    app.fund(tenant_id, 100_000_000).await;
}

/// The decided months of a tenant with the instant at which each fell due.
async fn dues(app: &TestApp, tenant_id: &str) -> Vec<(String, DateTime<Utc>)> {
    sqlx::query_as("SELECT to_char(month, 'YYYY-MM'), due_at FROM dues WHERE tenant_id = $1 ORDER BY month")
        .bind(tenant_id)
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn c57_a_subscription_that_begins_on_the_local_first_owes_that_month_first() {
    // 31 January in UTC, and 1 February where the tenant is.
    let app = app_at("2026-01-31T19:30:00Z").await;
    app.plan("standard", "100.00").await;
    tenant_in(&app, "acme", "Asia/Tashkent").await;
    app.subscribe("acme", "standard", "2026-02-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    let due_at = "2026-01-31T19:00:00Z".parse().unwrap();
    assert_eq!(dues(&app, "acme").await, [("2026-02".to_owned(), due_at)]);
    // An hour before, it was January there as well, and nothing was owed.
    let app = app_at("2026-01-31T18:59:59Z").await;
    app.plan("standard", "100.00").await;
    tenant_in(&app, "acme", "Asia/Tashkent").await;
    app.subscribe("acme", "standard", "2026-02-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 0);
    assert_eq!(dues(&app, "acme").await, []);
}

#[tokio::test]
async fn c61_c63_the_day_never_moves_with_the_clocks_of_berlin() {
    let app = app_at("2026-01-10T12:00:00Z").await;
    app.plan("standard", "100.00").await;
    tenant_in(&app, "winter", "Europe/Berlin").await;
    app.subscribe("winter", "standard", "2026-01-10", "full").await;
    Job::FeeRun.run(&app.app).await.unwrap();
    let berlin = &fixture().months["Europe/Berlin"];
    for (month, begins_at) in berlin.iter().filter(|(month, _)| ("2026-02".."2027-02").contains(&month.as_str())) {
        app.clock.advance(*begins_at - TimeDelta::microseconds(1) - app.clock.now());
        assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 0, "before {month}");
        app.clock.advance(TimeDelta::microseconds(1));
        let owing = if month.as_str() > "2026-07" { 2 } else { 1 };
        assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), owing, "{month}");
        if month == "2026-07" {
            app.clock.advance(TimeDelta::days(9));
            tenant_in(&app, "summer", "Europe/Berlin").await;
            app.subscribe("summer", "standard", "2026-07-10", "free").await;
        }
    }
    let (winter, summer) = (dues(&app, "winter").await, dues(&app, "summer").await);
    assert_eq!((winter.len(), summer.len()), (13, 6));
    assert_eq!(winter[7..], summer, "the same instants, whenever they began");
    for (month, due_at) in &winter[1..] {
        assert_eq!(berlin[month], *due_at);
    }
}

#[tokio::test]
async fn c65_neither_the_databases_zone_nor_the_machines_says_when_a_month_begins() {
    let book = Book::new().await;
    // Kiritimati is a day ahead of New York at any moment, so one of the two would see another month or day.
    let mut zones: Vec<String> = fixture().months.into_keys().collect();
    zones.extend(["Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York"].map(str::to_owned));
    let command = |zone: &str, arguments: &[&str]| {
        let mut command = hamyon();
        command.arg("fees").args(arguments).env("DATABASE_URL", &book.url).env("TZ", zone);
        command
    };
    let planned = run(&mut command("UTC", &["plan", "standard", "--name", "Standard", "--price", "1.00"])).await;
    assert!(planned.status.success(), "{}", said(&planned));
    for zone in &zones {
        sqlx::query(
            "WITH t AS (INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
                        VALUES ($1, $1, $2, 'uz', now()) RETURNING tenant_id),
                  w AS (INSERT INTO wallets (tenant_id, currency, created_at) SELECT tenant_id, 'UZS', now() FROM t)
             INSERT INTO subscriptions (tenant_id, plan_id, started_on, first_month, first_owed_month, created_at)
             SELECT tenant_id, 'standard', '2025-01-01', 'full', '2025-01-01', now() FROM t",
        )
        .bind(zone.replace('/', "."))
        .bind(zone)
        .execute(&mut book.session().await)
        .await
        .unwrap();
    }
    let mut seen = None;
    for (machine, database) in
        [("UTC", "UTC"), ("Asia/Tashkent", "America/New_York"), ("America/New_York", "Asia/Tashkent")]
    {
        sqlx::query(sqlx::AssertSqlSafe(format!("ALTER DATABASE {} SET timezone = '{database}'", book.database)))
            .execute(&mut book.session().await)
            .await
            .unwrap();
        let ran = run(&mut command(machine, &["run", "--yes"])).await;
        assert!(ran.status.success(), "{}", said(&ran));
        let written = book
            .number("SELECT count(*) + (SELECT count(*) FROM events) + (SELECT count(*) FROM fee_runs) FROM dues")
            .await;
        assert_eq!(*seen.get_or_insert(written), written, "machine in {machine}, database in {database}");
    }
    // Every due is dated by the tenant's own zone.
    let rows: Vec<(String, NaiveDate, DateTime<Utc>)> =
        sqlx::query_as("SELECT t.time_zone, d.month, d.due_at FROM dues d JOIN tenants t USING (tenant_id)")
            .fetch_all(&mut book.session().await)
            .await
            .unwrap();
    assert!(rows.len() > 20 * zones.len(), "{}", rows.len());
    for (zone, month, due_at) in rows {
        assert_eq!(due_at, Month::of(month).begins_at(self::zone(&zone)), "{month} in {zone}");
    }
    book.is_clean().await;
}
