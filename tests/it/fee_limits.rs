//! What a fee run leaves to a person: too many months of somebody at once, and too many without money. A limit that
//! lets a wrong import through in small steps is none, and one that keeps the others from being charged is a fault.

use chrono::TimeDelta;
use hamyon::fault::Error;
use hamyon::fee::{RunOptions, RunRefusal, RunReport};
use hamyon::jobs::Job;
use reqwest::StatusCode;
use serde_json::json;

use crate::fee_run::{many, move_to, numbers, run_with};
use crate::support::TestApp;
use crate::support::app::entry;

fn too_many_overdue(outcome: &Result<RunReport, Error<RunRefusal>>) -> (u64, u64, RunReport) {
    let Err(Error::Refused(RunRefusal::TooManyOverdue { overdue, decided, report, .. })) = outcome else {
        panic!("{outcome:?}")
    };
    (*overdue, *decided, *report)
}

#[tokio::test]
async fn f4_too_many_overdue_stop_the_month_until_a_person_says_yes() {
    let app = TestApp::start().await;
    many(&app, 700, 600).await;
    let before = app.everything_written().await;
    let dry = run_with(&app, RunOptions { dry_run: true, ..RunOptions::default() }).await;
    let (overdue, decided, report) = too_many_overdue(&dry);
    assert_eq!((overdue, decided), (600, 700), "a rehearsal says the whole");
    assert_eq!((report.charged, report.overdue, report.open), (100, 600, 0));
    assert_eq!(app.everything_written().await, before);

    let refused = run_with(&app, RunOptions { workers: 1, ..RunOptions::default() }).await;
    let (overdue, decided, report) = too_many_overdue(&refused);
    assert_eq!((overdue, decided), (400, 500), "it stopped after the chunk in which it saw it");
    assert_eq!((report.expected, report.charged, report.overdue, report.open), (700, 100, 400, 200));
    assert_eq!(numbers(&app, "2026-12").await, [700, 100, 400, 200]);
    // However often it is poked, and by whom, not one more is decided.
    let before = app.everything_written().await;
    for _ in 0..3 {
        let fault = Job::FeeRun.run(&app.app).await.expect_err("it says so each time");
        assert!(fault.chain().contains("400 of the 500"), "{}", fault.chain());
        let (status, answer) = app.post("/v1/fee-runs", &json!({})).await;
        assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("too_many_overdue")), "{answer}");
        assert_eq!((&answer["charged"], &answer["open"]), (&json!(0), &json!(200)), "{answer}");
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(numbers(&app, "2026-12").await, [700, 100, 400, 200]);
    let (_, answer) = app.post("/v1/fee-runs", &json!({ "confirmed": true })).await;
    assert_eq!(answer["open"], 0, "{answer}");
    assert_eq!(numbers(&app, "2026-12").await, [700, 100, 600, 0]);
    // The yes was to this month: who comes later in it is charged, and the next month asks again.
    app.tenant("late").await;
    app.subscribe("late", "standard", "2026-12-01", "full").await;
    app.fund("late", 10_000).await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    move_to(&app, "2027-01-01T09:00:00Z");
    let refused = run_with(&app, RunOptions { workers: 1, ..RunOptions::default() }).await;
    too_many_overdue(&refused);
    assert!(numbers(&app, "2027-01").await[3] > 0);
}

#[tokio::test]
async fn f4_a_month_that_was_stopped_goes_on_when_the_money_has_come() {
    let app = TestApp::start().await;
    many(&app, 600, 400).await;
    let one_by_one = || RunOptions { workers: 1, ..RunOptions::default() };
    let (overdue, decided, _) = too_many_overdue(&run_with(&app, one_by_one()).await);
    assert_eq!((overdue, decided), (300, 500));
    let late: Vec<_> = (201..=300).map(|number| entry(&format!("many-{number}"), "top_up", 15_000, "late")).collect();
    app.post_entries(&late).await.unwrap();
    assert_eq!(numbers(&app, "2026-12").await, [600, 300, 200, 100], "the credit paid what was overdue (F5)");
    let report = run_with(&app, one_by_one()).await.expect("three of six are no more than half");
    assert_eq!((report.expected, report.overdue, report.open), (100, 100, 0));
}

#[tokio::test]
async fn f4_who_owes_too_many_months_waits_for_a_person_and_nobody_for_him() {
    let app = TestApp::start().await;
    app.plan("standard", "100.00").await;
    for (tenant, started_on) in [("old", "2026-10-01"), ("new", "2026-12-01"), ("both", "2026-12-01")] {
        app.tenant(tenant).await;
        app.subscribe(tenant, "standard", started_on, "full").await;
        app.fund(tenant, 100_000).await;
    }
    app.plan("second", "1.00").await;
    app.subscribe("both", "second", "2026-09-01", "full").await;
    let refused = run_with(&app, RunOptions { dry_run: true, ..RunOptions::default() }).await;
    let Err(Error::Refused(RunRefusal::TooManyMonths { months, subscriptions, report, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((months, subscriptions, report.charged, report.open), (4, 2, 2, 0));
    assert_eq!(app.count("SELECT count(*) FROM dues").await, 0);
    let (status, answer) = app.post("/v1/fee-runs", &json!({})).await;
    assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("too_many_months")), "{answer}");
    assert_eq!((&answer["charged"], &answer["open"], &answer["subscriptions"]), (&json!(2), &json!(0), &json!(2)));
    assert!(answer["detail"].as_str().unwrap().contains("of both, which owes 4"), "{answer}");
    assert_eq!(numbers(&app, "2026-12").await, [4, 2, 0, 2], "the others are charged, and nothing is forgotten");
    // The server's own run goes on telling, and charges whoever comes.
    app.tenant("later").await;
    app.subscribe("later", "standard", "2026-12-01", "full").await;
    app.fund("later", 10_000).await;
    Job::FeeRun.run(&app.app).await.expect_err("two still wait for a person");
    assert_eq!(numbers(&app, "2026-12").await, [5, 3, 0, 2]);
    let (_, answer) = app.post("/v1/fee-runs", &json!({ "confirmed": true })).await;
    assert_eq!((&answer["charged"], &answer["open"]), (&json!(7), &json!(0)), "{answer}");
    assert_eq!(numbers(&app, "2026-12").await, [5, 5, 0, 0]);
}

#[tokio::test]
async fn f4_who_signs_up_at_a_months_end_pays_both_months_without_a_person() {
    // Two minutes before the month turns in Tashkent.
    let app = TestApp::start().await;
    move_to(&app, "2026-12-31T18:58:00Z");
    app.plan("standard", "310.00").await;
    for (tenant, first_month) in [("full", "full"), ("part", "prorated"), ("free", "free")] {
        app.tenant(tenant).await;
        app.subscribe(tenant, "standard", "2026-12-31", first_month).await;
        app.fund(tenant, 100_000).await;
    }
    app.clock.advance(TimeDelta::minutes(5));
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 5);
    assert_eq!(numbers(&app, "2026-12").await, [2, 2, 0, 0]);
    assert_eq!(numbers(&app, "2027-01").await, [3, 3, 0, 0]);
    // A month that was missed beside it is one too many.
    app.tenant("missed").await;
    app.subscribe("missed", "standard", "2026-11-30", "full").await;
    app.fund("missed", 100_000).await;
    Job::FeeRun.run(&app.app).await.expect_err("December and January at once");
    assert_eq!(app.count("SELECT count(*) FROM dues WHERE tenant_id = 'missed'").await, 0);
}

#[tokio::test]
async fn f3_a_run_that_is_told_to_stop_ends_between_two_chunks_and_the_next_one_goes_on() {
    let app = TestApp::start().await;
    many(&app, 1_200, 0).await;
    let options = RunOptions { workers: 1, ..RunOptions::default() };
    let stop = options.stop.clone();
    let report = hamyon::fee::run(&app.app.db, &app.app.clock, options, &|running| {
        if running.decided >= 500 {
            stop.cancel();
        }
    })
    .await
    .unwrap();
    assert_eq!((report.expected, report.charged, report.open), (1_200, 500, 700));
    app.app.stopping.cancel();
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 0, "a service that stops begins nothing");
    assert_eq!(run_with(&app, RunOptions::default()).await.unwrap().charged, 700);
}
