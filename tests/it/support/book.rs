//! A database of a test's own, looked at from outside the program that serves on it.

use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnection;

use super::app::fresh_database;
use super::cluster::cluster;
use super::pg_proxy::{PgProxy, Upstream};
use super::process::{hamyon, run, said};

pub struct Book {
    pub database: String,
    pub url: String,
}

impl Book {
    /// With the schema, and nothing in it.
    pub async fn new() -> Self {
        Self::named(fresh_database().await).await
    }

    /// Without anything.
    pub async fn blank() -> Self {
        Self::named(cluster().await.create_database_from(None).await).await
    }

    async fn named(database: String) -> Self {
        let url = cluster().await.url("postgres", &database);
        Self { database, url }
    }

    /// A session of a superuser.
    pub async fn session(&self) -> PgConnection {
        let options = cluster().await.superuser_options(&self.database);
        options.disable_statement_logging().connect().await.expect("a superuser")
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.session().await).await.expect("a number")
    }

    pub async fn sum(&self, tenant_id: &str) -> i64 {
        sqlx::query_scalar(
            "SELECT coalesce(SUM(amount), 0)::bigint FROM wallet_transactions WHERE tenant_id = $1 AND currency = 'UZS'",
        )
        .bind(tenant_id)
        .fetch_one(&mut self.session().await)
        .await
        .expect("a sum")
    }

    /// How many statements wait for a lock in this database.
    pub async fn waiting(&self) -> i64 {
        self.number(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .await
    }

    /// `hamyon verify` as a process: everything must agree.
    pub async fn is_clean(&self) {
        let verified = run(hamyon().arg("verify").env("DATABASE_URL", &self.url)).await;
        assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
    }

    /// A proxy in front of the server, and the URL that leads through it.
    pub async fn proxy(&self) -> (PgProxy, String) {
        let url: reqwest::Url = self.url.parse().expect("a URL");
        let upstream = match cluster().await.socket_dir() {
            Some(folder) => Upstream::Socket(folder.join(".s.PGSQL.5432")),
            None => Upstream::Tcp(format!("{}:{}", url.host_str().expect("a host"), url.port().unwrap_or(5432))),
        };
        let proxy = PgProxy::start(upstream).await;
        let user = match url.password() {
            Some(password) => format!("{}:{password}", url.username()),
            None => url.username().to_owned(),
        };
        let through = format!("postgresql://{user}@127.0.0.1:{}/{}?sslmode=disable", proxy.port, self.database);
        (proxy, through)
    }
}
