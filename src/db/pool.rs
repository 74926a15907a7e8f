//! The server and the pool of connections to it, each connection in the service's role.

use std::str::FromStr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection as _, PgPool};

use super::embedded::{self, Embedded};
use super::{SERVICE_ROLE, migrate};
use crate::fault::Fault;

/// How many connections, and how long anything may wait.
#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    /// Most connections of this process.
    pub connections_max: u32,
    /// How long a request waits for a free connection before it is told to come back.
    pub acquire_timeout: Duration,
    /// How long one statement may run.
    pub statement_timeout: Duration,
    /// How long one statement may wait for a lock.
    pub lock_timeout: Duration,
    /// How long one transaction may take. The bounds above are the server's; this one is ours, for a server that has
    /// gone without a word: its address moved, or a firewall forgot the connection.
    pub transaction_timeout: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            connections_max: 20,
            acquire_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(15),
            lock_timeout: Duration::from_secs(5),
            transaction_timeout: Duration::from_mins(2),
        }
    }
}

impl PoolSettings {
    /// For work that reads the whole book: no bound on a statement.
    #[must_use]
    pub const fn for_long_reads(mut self) -> Self {
        self.statement_timeout = Duration::ZERO;
        self
    }
}

/// A PostgreSQL server: one that was given, or our own private one.
#[derive(Debug)]
pub struct Server {
    owner: PgConnectOptions,
    service: PgConnectOptions,
    embedded: Option<Embedded>,
}

impl Server {
    /// The server behind a URL. `owner_url` is for migrations and may be the same.
    ///
    /// # Errors
    /// A fault when a URL can't be read. The URL may hold a password, so it isn't in the text.
    pub fn given(url: &SecretString, owner_url: Option<&SecretString>) -> Result<Self, Fault> {
        let parse = |url: &SecretString, unreadable| {
            // The driver takes any scheme, and "user:password@host" for one.
            let known = ["postgresql://", "postgres://"].iter().any(|scheme| url.expose_secret().starts_with(scheme));
            let options = PgConnectOptions::from_str(url.expose_secret()).ok().filter(|_| known);
            options.ok_or_else(|| Fault::new(unreadable))
        };
        let service =
            parse(url, "DATABASE_URL can't be read; it looks like postgresql://user:password@host:5432/name")?;
        let owner = match owner_url {
            Some(url) => parse(
                url,
                "HAMYON_DATABASE_OWNER_URL can't be read; it looks like postgresql://user:password@host:5432/name",
            )?,
            None => service.clone(),
        };
        Ok(Self { owner, service, embedded: None })
    }

    /// Our own server in `options.data_dir`, started or attached to.
    ///
    /// # Errors
    /// A fault when PostgreSQL is missing or doesn't start.
    pub async fn private(options: embedded::Options) -> Result<Self, Fault> {
        let embedded = embedded::start(options)
            .await
            .map_err(|error| Fault::new("the private PostgreSQL server is not available").because(error))?;
        Ok(Self {
            owner: embedded.connect_options("postgres", "hamyon"),
            // Logged in as the service, nobody can take the owner's role back.
            service: embedded.connect_options(SERVICE_ROLE, "hamyon"),
            embedded: Some(embedded),
        })
    }

    /// Whether the server is our own.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        self.embedded.is_some()
    }

    /// A URL for `psql`, when the server is our own.
    #[must_use]
    pub fn psql_url(&self) -> Option<String> {
        self.embedded.as_ref().map(|embedded| embedded.url("postgres", "hamyon"))
    }

    /// Brings the schema up to date, in the owner's role and under an advisory lock.
    ///
    /// # Errors
    /// A fault when the schema can't be brought up to date, or is newer than this program.
    pub async fn migrate(&self) -> Result<(), Fault> {
        let mut connection = quiet(self.owner.clone()).connect().await?;
        migrate::run(&mut connection).await?;
        if self.is_private() {
            migrate::let_service_log_in(&mut connection).await?;
        }
        Ok(())
    }

    /// A pool in the service's role. The schema must be up to date.
    ///
    /// # Errors
    /// A fault when the server can't be reached, when the schema isn't the one this program knows, or when
    /// the role could change history.
    pub async fn connect(&self, settings: PoolSettings) -> Result<Database, Fault> {
        let options = quiet(self.service.clone()).application_name("hamyon").options([
            // Given at the start of the session, the role is what RESET ROLE returns to.
            ("role", SERVICE_ROLE.to_owned()),
            ("timezone", "UTC".to_owned()),
            // Every statement here is short. A plan whose cost is only guessed high (a limit that is a parameter)
            // would be compiled for longer than it runs.
            ("jit", "off".to_owned()),
            ("statement_timeout", settings.statement_timeout.as_millis().to_string()),
            ("lock_timeout", settings.lock_timeout.as_millis().to_string()),
            ("idle_in_transaction_session_timeout", "60000".to_owned()),
        ]);
        // The pool would try again until its time is over and then say only that; one connection says why.
        options.connect().await.map_err(why_not_connected)?.close().await?;
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections_max)
            .acquire_timeout(settings.acquire_timeout)
            .test_before_acquire(false)
            .connect_with(options)
            .await?;
        let database = Database { pool, transaction_timeout: settings.transaction_timeout };
        migrate::check(database.pool()).await?;
        Ok(database)
    }

    /// Returns when our own server has ended under us, and never for one that was given: that one may come back.
    pub async fn lost(&self) -> Fault {
        match &self.embedded {
            Some(embedded) => Fault::new("the database is gone").because(embedded.lost().await),
            None => std::future::pending().await,
        }
    }

    /// Leaves the server; our own one is stopped when nobody else uses it.
    ///
    /// # Errors
    /// A fault when it doesn't stop.
    pub async fn stop(self) -> Result<(), Fault> {
        if let Some(embedded) = self.embedded {
            let stopped = embedded
                .stop()
                .await
                .map_err(|error| Fault::new("the private PostgreSQL server did not stop").because(error))?;
            tracing::debug!("left the private PostgreSQL server: {stopped:?}");
        }
        Ok(())
    }
}

/// The role in the options doesn't exist before the first migration.
fn why_not_connected(error: sqlx::Error) -> Fault {
    const INVALID_PARAMETER_VALUE: &str = "22023";
    let code = error.as_database_error().and_then(DatabaseError::code);
    if code.as_deref() == Some(INVALID_PARAMETER_VALUE) {
        return Fault::new("the database has no schema of ours yet: run `hamyon migrate`").because(error);
    }
    Fault::new("the database can't be reached").because(error)
}

/// Statements are counted and timed by us; the driver's own log line per statement would hold their values.
fn quiet(options: PgConnectOptions) -> PgConnectOptions {
    options.disable_statement_logging()
}

/// The pool. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Database {
    pool: PgPool,
    transaction_timeout: Duration,
}

impl Database {
    /// The pool itself, for single statements outside any transaction.
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// How long one transaction may take.
    pub(super) const fn transaction_timeout(&self) -> Duration {
        self.transaction_timeout
    }

    /// Closes every connection, waiting for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
