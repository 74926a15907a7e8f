//! The runner of transactions: what collided is repeated, but not for ever, and nothing is committed after
//! an error: half a booking is money that was promised and isn't there.

use std::sync::atomic::{AtomicU32, Ordering};

use axum::response::IntoResponse as _;
use hamyon::fault::{Error, Fault, Remedy};
use hamyon::http::Problem;
use scoped_futures::ScopedFutureExt as _;
use sqlx::{Executor as _, PgConnection};
use tokio::sync::Barrier;

use crate::support::TestApp;

/// A refusal of nobody in particular.
#[derive(Debug, PartialEq, Eq)]
struct No;

async fn installed(app: &TestApp) -> i64 {
    app.count("SELECT count(*) FROM installation").await
}

async fn note(conn: &mut PgConnection, name: &str) -> Result<(), Fault> {
    sqlx::query("INSERT INTO installation (name, value) VALUES ($1, 'x')").bind(name).execute(conn).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_lock_each_other_out_are_both_done_in_the_end() {
    let app = TestApp::start().await;
    let (attempts, both) = (&AtomicU32::new(0), &Barrier::new(2));
    let work = async |name: &'static str, first: i64, second: i64| {
        app.app
            .db
            .run("deadlock", |conn| {
                async move {
                    let attempt = attempts.fetch_add(1, Ordering::SeqCst);
                    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(first).execute(&mut *conn).await?;
                    if attempt < 2 {
                        // Each holds one lock before either asks for the other.
                        both.wait().await;
                    }
                    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(second).execute(&mut *conn).await?;
                    note(conn, name).await?;
                    Ok::<_, Error<No>>(())
                }
                .scope_boxed()
            })
            .await
    };
    let (one, two) = tokio::join!(work("one", 1, 2), work("two", 2, 1));
    one.expect("done");
    two.expect("done");
    assert_eq!((installed(&app).await, attempts.load(Ordering::SeqCst)), (2, 3), "one of them was repeated, once");
}

#[tokio::test]
async fn what_read_an_old_world_is_done_again_in_the_new_one() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let attempts = &AtomicU32::new(0);
    let app_ref = &app;
    app.app
        .db
        .run("serialization", |conn| {
            async move {
                conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
                conn.execute("SELECT FROM wallets").await?;
                if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                    app_ref.fund("acme", 100).await;
                }
                conn.execute("SELECT FROM wallets FOR NO KEY UPDATE").await?;
                note(conn, "done").await?;
                Ok::<_, Error<No>>(())
            }
            .scope_boxed()
        })
        .await
        .expect("done the second time");
    assert_eq!((installed(&app).await, attempts.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn what_collides_every_time_is_given_up_and_the_caller_is_told_to_come_back() {
    let app = TestApp::start().await;
    for code in ["40001", "40P01"] {
        let attempts = &AtomicU32::new(0);
        let raise = match code {
            "40001" => "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$",
            _ => "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END $$",
        };
        let outcome = app
            .app
            .db
            .run("collides", |conn| {
                async move {
                    attempts.fetch_add(1, Ordering::SeqCst);
                    note(conn, "never").await?;
                    conn.execute(raise).await?;
                    Ok::<_, Error<No>>(())
                }
                .scope_boxed()
            })
            .await;
        let Err(Error::Fault(fault)) = outcome else { panic!("{outcome:?}") };
        assert_eq!((fault.remedy(), attempts.load(Ordering::SeqCst)), (Remedy::Repeat, 5), "{code}");
        let answer = Problem::from(fault).into_response();
        assert_eq!(answer.status().as_u16(), 503, "{code}");
        assert_eq!(answer.headers().get("retry-after").and_then(|value| value.to_str().ok()), Some("1"), "{code}");
        assert_eq!(installed(&app).await, 0);
    }
}

#[tokio::test]
async fn after_an_error_nothing_is_committed_and_nothing_is_repeated() {
    let app = TestApp::start().await;
    for way in ["refused", "fault", "statement", "unique"] {
        let attempts = &AtomicU32::new(0);
        let outcome: Result<(), Error<No>> = app
            .app
            .db
            .run("fails", |conn| {
                async move {
                    attempts.fetch_add(1, Ordering::SeqCst);
                    note(conn, "never").await?;
                    match way {
                        "refused" => return Err(Error::Refused(No)),
                        "fault" => return Err(Fault::new("broken").into()),
                        "statement" => {
                            conn.execute("SELECT 1 / 0").await?;
                        }
                        _ => note(conn, "never").await?,
                    }
                    Ok(())
                }
                .scope_boxed()
            })
            .await;
        match (way, &outcome) {
            ("refused", Err(Error::Refused(No))) => {}
            ("fault" | "statement" | "unique", Err(Error::Fault(fault))) => {
                assert_eq!(fault.remedy(), Remedy::Report, "{way}: {fault:?}");
            }
            _ => panic!("{way}: {outcome:?}"),
        }
        assert_eq!((installed(&app).await, attempts.load(Ordering::SeqCst)), (0, 1), "{way}");
    }
    // The connections are as good as new.
    for _ in 0..25 {
        app.tenant(&format!("tenant-{}", rand::random::<u32>())).await;
    }
}
