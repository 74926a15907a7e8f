//! Migrations: run by the owner, checked by the service.

use sqlx::migrate::Migrator;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::{OWNER_ROLE, SERVICE_ROLE};
use crate::fault::Fault;

static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

/// Any number that nobody else uses: "hamyon" in ASCII. Two processes that start at once migrate one after
/// the other.
const MIGRATION_LOCK: i64 = 0x68_61_6d_79_6f_6e;

/// The oldest server we run on, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 150_000;

/// Makes the two roles where they are missing and applies what is pending, as the owner role.
///
/// # Errors
/// A fault that says what the connected user lacks, or that the database is newer than this program.
pub async fn run(connection: &mut PgConnection) -> Result<(), Fault> {
    let version: i32 =
        sqlx::query_scalar("SELECT current_setting('server_version_num')::integer").fetch_one(&mut *connection).await?;
    if version < SERVER_VERSION_MIN {
        return Err(Fault::new("the PostgreSQL server is older than version 15"));
    }
    // A service that may only serve starts on a schema that is up to date.
    if schema(connection).await?.is_current()? {
        return Ok(());
    }
    sqlx::query("SELECT pg_advisory_lock($1)").bind(MIGRATION_LOCK).execute(&mut *connection).await?;
    let outcome = run_locked(connection).await;
    sqlx::query("RESET ROLE").execute(&mut *connection).await?;
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(MIGRATION_LOCK).execute(&mut *connection).await?;
    outcome
}

async fn run_locked(connection: &mut PgConnection) -> Result<(), Fault> {
    prepare_roles(connection).await.map_err(|error| {
        Fault::new(
            "the database user can't set up the roles hamyon_owner and hamyon_service: migrate once as a superuser, \
             or as the database's owner with CREATEROLE (HAMYON_DATABASE_OWNER_URL)",
        )
        .because(error)
    })?;
    sqlx::query("SET ROLE hamyon_owner").execute(&mut *connection).await?;
    MIGRATOR
        .run(&mut *connection)
        .await
        .map_err(|error| Fault::new("the migrations could not be applied").because(error))?;
    // The service compares the applied migrations with its own before it serves.
    sqlx::query("GRANT SELECT ON _sqlx_migrations TO hamyon_service").execute(&mut *connection).await?;
    Ok(())
}

/// Lets the service's role log in, on a server where nobody else can reach the socket.
///
/// # Errors
/// A fault.
pub async fn let_service_log_in(connection: &mut PgConnection) -> Result<(), Fault> {
    sqlx::query("ALTER ROLE hamyon_service LOGIN").execute(connection).await?;
    Ok(())
}

/// Roles belong to the whole server, so another database's migration may make them at the same moment: the
/// block takes "already there" for an answer.
async fn prepare_roles(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(
        "DO $$
         BEGIN
             IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'hamyon_owner') THEN
                 CREATE ROLE hamyon_owner NOLOGIN;
             END IF;
         EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
         END $$;
         DO $$
         BEGIN
             IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'hamyon_service') THEN
                 CREATE ROLE hamyon_service NOLOGIN;
             END IF;
         EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
         END $$;
         DO $$
         DECLARE
             role text;
             -- From PostgreSQL 16 on, a member may be one without the right to SET ROLE.
             needed text := CASE WHEN current_setting('server_version_num')::integer >= 160000
                                 THEN 'SET' ELSE 'MEMBER' END;
         BEGIN
             FOREACH role IN ARRAY ARRAY['hamyon_owner', 'hamyon_service'] LOOP
                 IF NOT pg_has_role(current_user, role, needed) THEN
                     EXECUTE format('GRANT %I TO %I', role, current_user);
                 END IF;
             END LOOP;
             IF NOT has_schema_privilege('hamyon_owner', 'public', 'CREATE') THEN
                 GRANT CREATE, USAGE ON SCHEMA public TO hamyon_owner;
             END IF;
             IF NOT has_schema_privilege('hamyon_service', 'public', 'USAGE') THEN
                 GRANT USAGE ON SCHEMA public TO hamyon_service;
             END IF;
         END $$;",
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

/// How a database's schema stands to this program's migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schema {
    /// None of ours.
    Missing,
    /// Something is pending.
    Older,
    /// The same.
    Current,
    /// A migration is not what was applied.
    Changed,
    /// The database has migrations this program doesn't know.
    Newer,
}

impl Schema {
    /// Whether nothing is pending.
    ///
    /// # Errors
    /// A fault when migrating can't help.
    fn is_current(self) -> Result<bool, Fault> {
        match self {
            Self::Missing | Self::Older => Ok(false),
            Self::Current => Ok(true),
            Self::Changed => Err(Fault::new("a migration was changed after it had been applied to this database")),
            Self::Newer => {
                Err(Fault::new("the database's schema is newer than this program: install the newer program"))
            }
        }
    }
}

async fn schema(connection: &mut PgConnection) -> Result<Schema, Fault> {
    let ours: bool =
        sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(&mut *connection).await?;
    if !ours {
        return Ok(Schema::Missing);
    }
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version")
            .fetch_all(connection)
            .await?;
    let mut pending = false;
    for migration in MIGRATOR.iter() {
        match applied.iter().find(|(version, _)| *version == migration.version) {
            None => pending = true,
            Some((_, checksum)) if checksum.as_slice() != &*migration.checksum => return Ok(Schema::Changed),
            Some(_) => {}
        }
    }
    let unknown = applied.iter().any(|(version, _)| !MIGRATOR.version_exists(*version));
    Ok(match (unknown, pending) {
        (true, _) => Schema::Newer,
        (false, true) => Schema::Older,
        (false, false) => Schema::Current,
    })
}

/// Refuses to work with a schema this program doesn't know, or in a role that could change history.
///
/// # Errors
/// A fault with the sentence to act on.
pub async fn check(pool: &PgPool) -> Result<(), Fault> {
    let mut connection = pool.acquire().await?;
    let schema = schema(&mut connection).await?;
    if !schema.is_current()? {
        return Err(Fault::new(if schema == Schema::Missing {
            "the database has no schema of ours yet: run `hamyon migrate`"
        } else {
            "the database's schema is older than this program: run `hamyon migrate`"
        }));
    }
    drop(connection);
    let (role, powers): (String, bool) = sqlx::query_as(
        "SELECT current_user::text,
                (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
                OR has_table_privilege(current_user, 'wallet_transactions', 'UPDATE, DELETE, TRUNCATE, TRIGGER')
                OR pg_has_role(current_user, 'hamyon_owner', 'MEMBER')",
    )
    .fetch_one(pool)
    .await?;
    if role != SERVICE_ROLE || powers {
        tracing::error!(role, "connected as {role}, expected {SERVICE_ROLE}, never {OWNER_ROLE}");
        return Err(Fault::new("the service's role could change wallet_transactions, so it doesn't start"));
    }
    Ok(())
}
