//! Somebody with the database's master key, who switches every trigger and foreign key off and writes what
//! he likes.

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::TestApp;

/// A session of the intruder.
pub async fn intruder(app: &TestApp) -> PgConnection {
    let mut conn = app.superuser().await;
    conn.execute("SET session_replication_role = replica").await.expect("no trigger fires");
    conn
}

/// Runs statements of a test's own making.
pub async fn run(conn: &mut PgConnection, statements: &str) {
    conn.execute(sqlx::raw_sql(made_by_a_test(statements)))
        .await
        .unwrap_or_else(|error| panic!("{statements}: {error}"));
}

#[expect(clippy::disallowed_types, reason = "the statements are made in the tests, and a column can't be a parameter")]
fn made_by_a_test(statements: &str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(statements.to_owned())
}
