//! Rule S2: the audit holds what anybody at the desk did and was refused, and nobody can make it say something
//! else. An account that its subjects can correct proves nothing.

use std::process::Output;

use hamyon::audit::{self, AuditQuery, Line, Who};
use hamyon::fault::{Error, Fault};
use scoped_futures::ScopedFutureExt as _;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::api::Call;
use crate::support::app::entry;
use crate::support::intruder::{intruder, run};
use crate::support::process::{hamyon, run as run_program, said};

const ADJUSTMENTS: &str = "/v1/tenants/acme/adjustments";

fn line(words: &str) -> Line {
    Line { action: "test", allowed: true, tenant_id: None, words: words.to_owned() }
}

fn who() -> Who {
    Who {
        actor: "staff:ann".to_owned(),
        role: Some("agent"),
        remote_address: Some("10.1.2.3".to_owned()),
        request_id: Some("r1".to_owned()),
    }
}

/// Ten lines.
async fn written() -> TestApp {
    let app = TestApp::start().await;
    for number in 1..=10 {
        let who = if number % 2 == 0 { Who::cli() } else { who() };
        audit::write_alone(&app.app.db, &app.clock, &who, &line(&format!("line {number}"))).await.unwrap();
    }
    app
}

/// What the chain says of itself.
async fn wrong(app: &TestApp) -> Option<String> {
    audit::verify::verify(&mut app.superuser().await).await.unwrap().1
}

async fn verify(app: &TestApp, arguments: &[&str]) -> Output {
    run_program(hamyon().arg("verify").args(arguments).env("DATABASE_URL", app.database_url())).await
}

#[tokio::test]
async fn s2_neither_the_service_nor_the_owner_changes_what_was_written_or_moves_the_head() {
    let app = written().await;
    let everything = "SELECT string_agg(t::text, '|' ORDER BY seq) FROM audit_log t";
    let before: String = sqlx::query_scalar(everything).fetch_one(&mut app.superuser().await).await.unwrap();
    let history = [
        "UPDATE audit_log SET words = 'nothing happened'",
        "UPDATE audit_log SET allowed = NOT allowed WHERE seq = 5",
        "UPDATE audit_log SET seq = seq",
        "DELETE FROM audit_log",
        "DELETE FROM audit_log WHERE seq = 10",
        "TRUNCATE audit_log",
        "DELETE FROM audit_head",
        "TRUNCATE audit_head",
    ];
    let head = [
        "UPDATE audit_head SET seq = 9, hash = (SELECT hash FROM audit_log WHERE seq = 9)",
        "UPDATE audit_head SET seq = 0, hash = decode(repeat('00', 32), 'hex')",
        "UPDATE audit_head SET seq = 11",
        "UPDATE audit_head SET hash = sha256('x')",
        "UPDATE audit_head SET seq = 12, hash = hash",
        "UPDATE audit_head SET seq = seq",
    ];
    let code = |error: &sqlx::Error| {
        error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned))
    };
    let mut service = app.as_service().await;
    for statement in history {
        let error = service.execute(statement).await.expect_err(statement);
        assert_eq!(code(&error).as_deref(), Some("42501"), "{statement}: {error}");
    }
    let tricks = [
        "UPDATE audit_head SET only_row = only_row",
        "INSERT INTO audit_head (seq, hash) VALUES (11, sha256('x'))",
        "ALTER TABLE audit_log DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_log_is_history ON audit_log",
        "SET session_replication_role = replica",
    ];
    for statement in tricks {
        let error = service.execute(statement).await.expect_err(statement);
        assert_eq!(code(&error).as_deref(), Some("42501"), "{statement}: {error}");
    }
    let mut owner = app.superuser().await;
    owner.execute("SET SESSION AUTHORIZATION hamyon_owner").await.unwrap();
    for statement in history {
        let error = owner.execute(statement).await.expect_err(statement);
        assert_eq!(code(&error).as_deref(), Some("HM001"), "{statement}: {error}");
    }
    for statement in head {
        for conn in [&mut service, &mut owner] {
            let error = conn.execute(statement).await.expect_err(statement);
            assert_eq!(code(&error).as_deref(), Some("HM001"), "{statement}: {error}");
        }
    }
    let after: String = sqlx::query_scalar(everything).fetch_one(&mut app.superuser().await).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(wrong(&app).await, None);
}

#[tokio::test]
async fn s2_verify_names_an_edit_of_any_column() {
    let app = written().await;
    let columns: Vec<String> = sqlx::query_scalar(
        "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'audit_log' ORDER BY 1",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap();
    assert_eq!(columns.len(), 11, "{columns:?}");
    for column in columns {
        let edits: &[&str] = match column.as_str() {
            "seq" => continue,
            "at" => &["at + interval '1 microsecond'", "at - interval '1 day'"],
            "allowed" => &["NOT allowed"],
            "hash" => &["sha256('x')", "decode(repeat('00', 32), 'hex')"],
            "actor" => &["'staff:bob'", "''"],
            "action" => &["'refund'"],
            "words" => &["words || ' '", "''"],
            // Absent and empty are two things.
            "tenant_id" => &["'acme'", "''"],
            "role" => &["'admin'", "''", "NULL"],
            "remote_address" | "http_request_id" => &["'10.1.2.4'", "''", "NULL"],
            unknown => panic!("column {unknown} is new: is it in the chain? Say here how it is edited"),
        };
        for edit in edits {
            let mut conn = intruder(&app).await;
            run(&mut conn, "CREATE TEMP TABLE kept AS SELECT * FROM audit_log WHERE seq = 5").await;
            run(&mut conn, &format!("UPDATE audit_log SET {column} = {edit} WHERE seq = 5")).await;
            let found = wrong(&app).await;
            assert_eq!(found.as_deref(), Some("line 5 was changed: its hash is another"), "{column} = {edit}");
            run(&mut conn, "DELETE FROM audit_log WHERE seq = 5; INSERT INTO audit_log SELECT * FROM kept").await;
            assert_eq!(wrong(&app).await, None, "{column}: put back");
        }
    }
    // What one field loses the next can't gain.
    let mut conn = intruder(&app).await;
    run(
        &mut conn,
        "UPDATE audit_log SET remote_address = http_request_id, http_request_id = remote_address WHERE seq = 7",
    )
    .await;
    assert!(wrong(&app).await.is_some_and(|what| what.contains("line 7")));
}

#[tokio::test]
async fn s2_the_program_names_an_edit_a_gap_and_a_cut_tail() {
    let app = written().await;
    let clean = verify(&app, &[]).await;
    assert_eq!(clean.status.code(), Some(0), "{}", said(&clean));
    assert!(said(&clean).contains("10 lines of the audit"), "{}", said(&clean));
    for (change, says) in [
        ("UPDATE audit_log SET words = 'nothing' WHERE seq = 3", "line 3 was changed"),
        ("DELETE FROM audit_log WHERE seq = 4", "line 4 is missing"),
        ("DELETE FROM audit_log WHERE seq = 1", "line 1 is missing"),
        ("DELETE FROM audit_log WHERE seq > 7", "the lines after 7 are cut off: the head is at 10"),
        ("DELETE FROM audit_log", "the lines after 0 are cut off: the head is at 10"),
        ("TRUNCATE audit_log", "the lines after 0 are cut off: the head is at 10"),
        ("UPDATE audit_log SET seq = seq + 1 WHERE seq = 10", "line 10 is missing"),
        ("DELETE FROM audit_head", "the head is gone"),
        ("UPDATE audit_head SET seq = 9", "the head is not at line 10"),
        ("UPDATE audit_head SET hash = sha256('x')", "the head is not at line 10"),
        (
            "INSERT INTO audit_log SELECT 11, at, actor, role, remote_address, http_request_id, action, allowed,
                                          tenant_id, words, hash FROM audit_log WHERE seq = 10",
            "line 11 was changed",
        ),
    ] {
        let mut conn = intruder(&app).await;
        run(&mut conn, "CREATE TEMP TABLE kept AS SELECT * FROM audit_log; CREATE TEMP TABLE head AS TABLE audit_head")
            .await;
        run(&mut conn, change).await;
        let found = verify(&app, &[]).await;
        assert_eq!(found.status.code(), Some(1), "{change}: {}", said(&found));
        assert!(said(&found).contains("the audit") && said(&found).contains(says), "{change}: {}", said(&found));
        let back = "DELETE FROM audit_log; DELETE FROM audit_head; INSERT INTO audit_log SELECT * FROM kept;
                    INSERT INTO audit_head SELECT * FROM head";
        run(&mut conn, back).await;
    }
    let clean = verify(&app, &["--json"]).await;
    assert_eq!(clean.status.code(), Some(0), "{}", said(&clean));
    let report: Value = serde_json::from_slice(&clean.stdout).unwrap();
    assert_eq!((&report["audit_lines"], &report["wrong"]), (&json!(10), &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_lines_written_at_once_have_no_gap_and_one_chain() {
    let app = TestApp::start().await;
    let writes = (0..60).map(|number| {
        let app = &app;
        async move {
            if number % 3 == 0 {
                // Rolled back: its number is free again.
                let outcome = app
                    .app
                    .db
                    .run("test", |conn| {
                        async move {
                            audit::write(conn, &who(), &line("never"), app.clock.now()).await?;
                            Err::<(), _>(Error::Refused("no"))
                        }
                        .scope_boxed()
                    })
                    .await;
                assert!(matches!(outcome, Err(Error::Refused("no"))), "{outcome:?}");
            } else {
                audit::write_alone(&app.app.db, &app.clock, &who(), &line(&format!("{number}"))).await.unwrap();
            }
        }
    });
    futures::future::join_all(writes).await;
    let (lines, wrong) = audit::verify::verify(&mut app.superuser().await).await.unwrap();
    assert_eq!((lines, wrong), (40, None));
    let distinct = app.count("SELECT count(DISTINCT words) FROM audit_log WHERE words <> 'never'").await;
    assert_eq!(distinct, 40);
}

#[tokio::test]
async fn s2_a_refusal_is_a_line_although_its_transaction_was_rolled_back() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let before = app.everything_written().await;
    let body = json!({ "currency": "UZS", "amount": "-5", "reason": "fraud", "note": "a test" });
    let call = Call::new("POST", ADJUSTMENTS).token(&app.token).key("K1").header("X-Request-Id", "my-own-id");
    call.json(&body).send(&app).await.refused(402, "insufficient_funds", "nothing is there");
    assert_eq!(app.everything_written().await, before);
    let mut conn = app.superuser().await;
    let lines = audit::list(&mut conn, &AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.seq, line.allowed, line.action.as_str()), (1, false, "adjustment"));
    assert_eq!((line.actor.as_str(), line.role.as_deref()), ("api:tests", None));
    assert_eq!((line.remote_address.as_deref(), line.tenant_id.as_deref()), (Some("127.0.0.1"), Some("acme")));
    assert_eq!((line.http_request_id.as_deref(), line.at), (Some("my-own-id"), app.clock.now()));
    assert!(
        line.words.starts_with("adjustment of -5.00 UZS: ")
            && line.words.contains("500")
            && line.words.ends_with(", reason \"fraud\", note \"a test\""),
        "{line:?}"
    );
    assert_eq!(wrong(&app).await, None);
}

#[tokio::test]
async fn s2_what_is_not_in_the_audit_does_not_happen() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 100_000).await;
    app.post_entries(&[entry("acme", "purchase", -100, "bought")]).await.unwrap();
    let before = app.everything_written().await;
    // The audit's next number is taken, so no line can be written.
    run(
        &mut intruder(&app).await,
        "INSERT INTO audit_log (seq, at, actor, action, allowed, words, hash)
        VALUES (1, now(), 'x', 'x', true, 'x', sha256('x'))",
    )
    .await;
    for (path, body) in [
        (ADJUSTMENTS, json!({ "currency": "UZS", "amount": "5", "reason": "other", "note": "a test" })),
        (ADJUSTMENTS, json!({ "currency": "UZS", "amount": "5000", "reason": "other", "note": "a test" })),
        ("/v1/tenants/acme/refunds", json!({ "transaction": 2, "amount": "1", "reason": "a test" })),
    ] {
        let call = Call::new("POST", path).token(&app.token).key("K1").json(&body);
        call.send(&app).await.refused(500, "internal", path);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn s2_what_somebody_typed_stays_one_bounded_line() -> Result<(), Fault> {
    let app = TestApp::start().await;
    let words = format!("a\nb\0c\u{85}{}", "ў".repeat(5_000));
    audit::write_alone(&app.app.db, &app.clock, &who(), &line(&words)).await?;
    let mut conn = app.superuser().await;
    let lines = audit::list(&mut conn, &AuditQuery { limit: 1, ..AuditQuery::default() }).await?;
    assert!(lines[0].words.starts_with("a b c ў"), "{}", lines[0].words);
    assert_eq!(lines[0].words.chars().count(), 2_000);
    assert_eq!(wrong(&app).await, None);
    Ok(())
}

#[tokio::test]
async fn s2_the_audit_is_searched_by_who_what_and_outcome() {
    let app = written().await;
    app.tenant("acme").await;
    let body = json!({ "currency": "UZS", "amount": "5", "reason": "other", "note": "a test" });
    let call = Call::new("POST", ADJUSTMENTS).token(&app.token).key("K1").json(&body);
    assert_eq!(call.send(&app).await.status, 201);
    let find = async |query: AuditQuery| -> Vec<i64> {
        let mut conn = app.superuser().await;
        audit::list(&mut conn, &query).await.unwrap().iter().map(|line| line.seq).collect()
    };
    let all = AuditQuery { limit: 100, ..AuditQuery::default() };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(find(all.clone()).await, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(find(AuditQuery { limit: 2, before_seq: Some(9), ..all.clone() }).await, [8, 7]);
    assert_eq!(find(AuditQuery { actor: text("cli"), ..all.clone() }).await, [10, 8, 6, 4, 2]);
    assert_eq!(find(AuditQuery { tenant_id: text("acme"), ..all.clone() }).await, [11]);
    assert_eq!(find(AuditQuery { action: text("adjustment"), ..all.clone() }).await, [11]);
    assert_eq!(find(AuditQuery { allowed: Some(false), ..all }).await, [0_i64; 0]);
}

#[tokio::test]
async fn s2_a_line_of_somebody_elses_making_stops_nobody_and_is_found() {
    let app = TestApp::start().await;
    hamyon_line(&app).await;
    let mut service = app.as_service().await;
    let line = |seq: &str| {
        format!(
            "INSERT INTO audit_log (seq, at, actor, action, allowed, words, hash)
             VALUES ({seq}, now(), 'x', 'x', true, 'x', decode(repeat('00', 32), 'hex'))"
        )
    };
    let jump = line("1000");
    assert!(sqlx::query(sqlx::AssertSqlSafe(jump)).execute(&mut service).await.is_err(), "a gap");
    sqlx::query(sqlx::AssertSqlSafe(line("(SELECT seq + 1 FROM audit_head)"))).execute(&mut service).await.unwrap();
    hamyon_line(&app).await;
    let (_, wrong) = hamyon::audit::verify::verify(&mut app.superuser().await).await.unwrap();
    assert!(wrong.is_some_and(|wrong| wrong.contains("line 2")), "its hash is no hash of it");
}

/// An honest line.
async fn hamyon_line(app: &TestApp) {
    let line = hamyon::audit::Line { action: "test", allowed: true, tenant_id: None, words: "a test".to_owned() };
    hamyon::audit::write_alone(&app.app.db, &app.clock, &hamyon::audit::Who::cli(), &line).await.unwrap();
}
