//! Starting on a database that was given: the service works with the rights an operator wants to give it, two
//! of them may start at once, and none serves on a schema that it doesn't know.

use sqlx::Executor as _;

use crate::support::book::Book;
use crate::support::cluster::cluster;
use crate::support::process::{Serving, hamyon, run, said, serve};

#[tokio::test]
async fn a_database_owner_with_createrole_can_migrate_and_serve() {
    let book = Book::blank().await;
    let (owner, url) = login(&book, "CREATEROLE").await;
    let mut session = book.session().await;
    session.execute(sqlx::AssertSqlSafe(format!("ALTER DATABASE {} OWNER TO {owner}", book.database))).await.unwrap();
    // From version 16 on CREATEROLE is about one's own roles, and these belong to the whole server.
    session
        .execute(sqlx::AssertSqlSafe(format!(
            "DO $$ BEGIN
                 IF current_setting('server_version_num')::integer >= 160000 THEN
                     GRANT hamyon_owner, hamyon_service TO {owner} WITH ADMIN OPTION;
                 END IF;
             END $$"
        )))
        .await
        .unwrap();

    let migrated = run(hamyon().arg("migrate").env("DATABASE_URL", &url)).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", said(&migrated));
    let serving = Serving::start(&url, &[]).await;
    serving.tenant("acme").await;
    serving.payme_created("5f0000000000000000000001", "acme", 1_500_000).await;
    serving.stop().await;
    assert_eq!(
        book.number("SELECT count(*) FROM pg_tables WHERE tablename = 'wallets' AND tableowner = 'hamyon_owner'").await,
        1
    );
    book.is_clean().await;
}

#[tokio::test]
async fn once_migrated_the_service_needs_no_right_but_its_role() {
    let book = Book::new().await;
    let (name, url) = login(&book, "").await;
    let mut session = book.session().await;
    session.execute(sqlx::AssertSqlSafe(format!("GRANT hamyon_service TO {name}"))).await.unwrap();
    let serving = Serving::start(&url, &[]).await;
    serving.tenant("acme").await;
    serving.stop().await;
    book.is_clean().await;
}

#[tokio::test]
async fn a_user_without_any_right_is_told_what_is_missing() {
    let book = Book::blank().await;
    let (_, url) = login(&book, "").await;
    let mut command = serve();
    command.env("DATABASE_URL", &url);
    let said = refused(command).await;
    assert!(said.contains("HAMYON_DATABASE_OWNER_URL"), "{said}");
    assert_eq!(book.number("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").await, 0);
}

#[tokio::test]
async fn two_that_start_at_once_on_an_empty_database_both_serve() {
    let book = Book::blank().await;
    let (one, other) = tokio::join!(Serving::start(&book.url, &[]), Serving::start(&book.url, &[]));
    one.tenant("acme").await;
    let (status, answer) = other.get("/v1/tenants/acme").await.unwrap();
    assert_eq!(status, 200, "{answer}");
    one.stop().await;
    other.stop().await;
    book.is_clean().await;
}

#[tokio::test]
async fn a_schema_that_is_missing_older_newer_or_changed_is_refused() {
    let book = Book::blank().await;
    let said = refused_verify(&book).await;
    assert!(said.contains("no schema of ours yet") && said.contains("hamyon migrate"), "{said}");
    for _ in 0..2 {
        let migrated = run(hamyon().arg("migrate").env("DATABASE_URL", &book.url)).await;
        assert_eq!(migrated.status.code(), Some(0), "{}", crate::support::process::said(&migrated));
    }
    book.is_clean().await;

    let mut session = book.session().await;
    session.execute("CREATE TABLE last AS SELECT * FROM _sqlx_migrations ORDER BY version DESC LIMIT 1").await.unwrap();
    session.execute("DELETE FROM _sqlx_migrations m USING last WHERE m.version = last.version").await.unwrap();
    let said = refused_verify(&book).await;
    assert!(said.contains("older than this program") && said.contains("hamyon migrate"), "{said}");
    session.execute("INSERT INTO _sqlx_migrations SELECT * FROM last").await.unwrap();
    session.execute("DROP TABLE last").await.unwrap();

    session
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time)
             VALUES (29990101000000, 'from the future', now(), true, '\\x00', 1)",
        )
        .await
        .unwrap();
    for said in [refused_verify(&book).await, refused_serve(&book).await, refused_migrate(&book).await] {
        assert!(said.contains("newer than this program"), "{said}");
    }
    session.execute("DELETE FROM _sqlx_migrations WHERE version = 29990101000000").await.unwrap();

    session.execute("UPDATE _sqlx_migrations SET checksum = '\\x00' WHERE version = (SELECT max(version) FROM _sqlx_migrations)").await.unwrap();
    for said in [refused_verify(&book).await, refused_serve(&book).await, refused_migrate(&book).await] {
        assert!(said.contains("was changed after it had been applied"), "{said}");
    }
}

/// A database user of this test's own, and its URL.
async fn login(book: &Book, rights: &str) -> (String, String) {
    let name = format!("user_{}", book.database);
    let url: reqwest::Url = book.url.parse().unwrap();
    // A server that was given may ask for a password; the URL of another user carries the superuser's.
    let password = url.password().map(|password| format!("PASSWORD '{password}'")).unwrap_or_default();
    let mut session = book.session().await;
    session.execute(sqlx::AssertSqlSafe(format!("CREATE ROLE {name} LOGIN {rights} {password}"))).await.unwrap();
    let url = cluster().await.url(&name, &book.database);
    (name, url)
}

async fn refused(command: tokio::process::Command) -> String {
    refused_with(command, 1).await
}

async fn refused_with(mut command: tokio::process::Command, code: i32) -> String {
    let ended = run(&mut command).await;
    assert_eq!(ended.status.code(), Some(code), "{}", said(&ended));
    said(&ended)
}

async fn refused_verify(book: &Book) -> String {
    let mut command = hamyon();
    command.arg("verify").env("DATABASE_URL", &book.url);
    // 1 would say that the book is wrong.
    refused_with(command, 2).await
}

async fn refused_migrate(book: &Book) -> String {
    let mut command = hamyon();
    command.arg("migrate").env("DATABASE_URL", &book.url);
    refused(command).await
}

async fn refused_serve(book: &Book) -> String {
    let mut command = serve();
    command.env("DATABASE_URL", &book.url);
    refused(command).await
}
