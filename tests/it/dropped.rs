//! At stake: a transaction whose caller goes away. Wherever it was, it is rolled back, and no connection comes back to
//! the pool with its locks or half of its work (L8).

use std::time::Duration;

use hamyon::fault::Error;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use scoped_futures::ScopedFutureExt as _;

use crate::support::TestApp;
use crate::support::process::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l8_a_transaction_that_is_dropped_anywhere_leaves_no_open_session_and_no_lock() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let mut dice = StdRng::seed_from_u64(8);
    let mut watcher = app.superuser().await;
    for _ in 0..40 {
        let tasks: Vec<_> = (0..15)
            .map(|_| {
                let (db, dies_after) = (app.app.db.clone(), Duration::from_micros(dice.random_range(0..800)));
                let work = async move {
                    db.run("test_dropped", |conn| {
                        async move {
                            sqlx::query("SELECT FROM tenants FOR SHARE").execute(&mut *conn).await?;
                            sqlx::query("SELECT FROM wallets FOR SHARE").execute(&mut *conn).await?;
                            Ok::<_, Error<std::convert::Infallible>>(())
                        }
                        .scope_boxed()
                    })
                    .await
                };
                // At the BEGIN, in the middle of a statement, between two, at the COMMIT.
                tokio::spawn(tokio::time::timeout(dies_after, work))
            })
            .collect();
        for task in tasks {
            let _ = task.await.expect("no panic");
        }
        eventually("every session has ended its transaction", async || {
            let open: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL",
            )
            .fetch_one(&mut watcher)
            .await
            .expect("the sessions");
            open == 0
        })
        .await;
    }
}
