//! C95, F4: a connection that says nothing any more, and work that is dropped in its middle, take nobody else down with
//! them.

use std::convert::Infallible;
use std::time::Duration;

use hamyon::db::{Database, PoolSettings, Server};
use hamyon::fault::{Error, Remedy};
use hamyon::jobs::Job;
use scoped_futures::ScopedFutureExt as _;
use secrecy::SecretString;
use sqlx::{Connection as _, Executor as _};

use crate::fee_run::three;
use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::app::settings;
use crate::support::book::Book;
use crate::support::pg_proxy::AtCommit;

/// Much longer than the bound below, and only there to let a test that hangs end.
const HANGS: Duration = Duration::from_mins(1);

async fn marked(db: &Database) -> Result<(), Error<Infallible>> {
    let transaction = db.run("marked", |conn| {
        async move {
            sqlx::query("-- unanswered::marked\nSELECT 1").execute(conn).await?;
            Ok(())
        }
        .scope_boxed()
    });
    tokio::time::timeout(HANGS, transaction).await.expect("it comes to its end")
}

#[tokio::test]
async fn c95_a_transaction_that_is_never_answered_ends_and_the_next_one_is_served() {
    let book = Book::new().await;
    let (proxy, url) = book.proxy().await;
    let bounded = PoolSettings { transaction_timeout: Duration::from_millis(500), ..PoolSettings::default() };
    let server = Server::given(&SecretString::from(url), None).expect("a URL");
    let db = server.connect(bounded).await.expect("connected");
    marked(&db).await.expect("answered");
    for at_commit in [AtCommit::LoseAnswer, AtCommit::LoseCommit] {
        proxy.at_commit(at_commit, "unanswered::marked");
        let Err(Error::Fault(fault)) = marked(&db).await else { panic!("{at_commit:?}: nobody answered") };
        assert_eq!(fault.remedy(), Remedy::Wait, "a repeat finds out: {}", fault.chain());
        proxy.at_commit(AtCommit::Pass, "");
        marked(&db).await.expect("on another connection");
    }
}

#[tokio::test]
async fn f4_a_job_that_is_dropped_in_its_middle_keeps_no_other_process_from_leading() {
    let app = three().await;
    let other = TestApp::start_on(app.database.clone(), settings(), PoolSettings::default()).await;
    let mut superuser = app.superuser().await;
    let mut holding = superuser.begin().await.expect("a transaction");
    holding.execute("SELECT FROM wallets FOR UPDATE").await.expect("locked");
    tokio::select! {
        done = Job::FeeRun.run(&app.app) => panic!("the wallets are held: {done:?}"),
        () = until_blocked(&app, 1) => {}
    }
    holding.rollback().await.expect("given back");
    // The server sees that its session has ended within moments.
    crate::support::process::eventually("another process leads", async || {
        Job::FeeRun.run(&other.app).await.expect("a run") == 3
    })
    .await;
}
