//! The PostgreSQL server that all tests of one run share.
//!
//! With `DATABASE_URL` set (to a superuser), that server. Otherwise one is started on the first
//! call, with everything off that makes data survive a power cut, and it must never outlive the
//! test process: not after a panic, not after `kill -9`. No code of ours is sure to run then, so
//! the server hangs on a pipe instead. A small shell process reads from it and holds the server;
//! the pipe closes when we end, in whatever way, and the shell stops the server and removes its
//! folder.
//!
//! Every test has a tokio runtime of its own, so nothing that belongs to a runtime (a pool, a
//! connection) is kept here.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hamyon::db::embedded::{Binaries, ServerUser};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};
use tokio::sync::OnceCell;

/// How long the server may take to start.
const READY_WAIT_MAX: Duration = Duration::from_mins(1);

/// How long a template may be in use by somebody else.
const TEMPLATE_WAIT_MAX: Duration = Duration::from_mins(1);

const POLL_STEP: Duration = Duration::from_millis(20);

/// PostgreSQL's code for a template that has sessions.
const OBJECT_IN_USE: &str = "55006";

/// Starts the program given as arguments and stops it when standard input ends.
const HOLDER: &str = r#""$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server; rm -rf "$CLUSTER_DIR""#;

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// The shared server; the first caller starts it.
pub async fn cluster() -> &'static Cluster {
    CLUSTER.get_or_init(Cluster::open).await
}

/// A server that tests may fill with databases.
#[derive(Debug)]
pub struct Cluster {
    superuser: PgConnectOptions,
    /// Holds the pipe whose end ends the server.
    _holder: Option<Child>,
}

impl Cluster {
    async fn open() -> Self {
        match std::env::var("DATABASE_URL") {
            Ok(url) if !url.is_empty() => {
                let superuser = PgConnectOptions::from_str(&url).expect("DATABASE_URL is a PostgreSQL URL");
                Self { superuser, _holder: None }
            }
            Ok(_) | Err(_) => Self::throw_away().await,
        }
    }

    async fn throw_away() -> Self {
        let binaries = Binaries::find(std::env::var_os("HAMYON_POSTGRES_BIN").as_deref().map(Path::new), None)
            .unwrap_or_else(|error| panic!("{error}"));
        let user = ServerUser::for_new_cluster().unwrap_or_else(|error| panic!("{error}"));
        let folder = private_folder(&user);
        let data = folder.join("data");

        let initdb = unprivileged(&binaries.initdb(), &user)
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--no-sync", "-D"])
            .arg(&data)
            .output()
            .expect("initdb can be run");
        assert!(initdb.status.success(), "initdb: {}", String::from_utf8_lossy(&initdb.stderr));

        let log = folder.join("postgres.log");
        let log_file = fs::File::create(&log).expect("the server's log");
        let mut holder = unprivileged(Path::new("/bin/sh"), &user);
        holder.arg("-c").arg(HOLDER).arg("sh").arg(binaries.postgres()).arg("-D").arg(&data).arg("-k").arg(&folder);
        for setting in [
            "listen_addresses=",
            "port=5432",
            "max_connections=400",
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "timezone=UTC",
            "log_timezone=UTC",
        ] {
            holder.arg("-c").arg(setting);
        }
        let holder = holder
            .env("CLUSTER_DIR", &folder)
            .stdin(Stdio::piped())
            .stdout(log_file.try_clone().expect("the server's log"))
            .stderr(log_file)
            // Ctrl-C must reach the tests first; the server follows by the pipe.
            .process_group(0)
            .spawn()
            .expect("a shell can be run");

        let superuser =
            PgConnectOptions::new_without_pgpass().socket(&folder).port(5432).username("postgres").database("postgres");
        let cluster = Self { superuser, _holder: Some(holder) };
        let began = Instant::now();
        while let Err(error) = cluster.superuser.connect().await {
            if began.elapsed() > READY_WAIT_MAX {
                let said = fs::read_to_string(&log).unwrap_or_default();
                panic!("the throw-away PostgreSQL does not answer: {error}\n{said}");
            }
            tokio::time::sleep(POLL_STEP).await;
        }
        cluster
    }

    /// A superuser in this database.
    pub fn superuser_options(&self, database: &str) -> PgConnectOptions {
        self.superuser.clone().database(database)
    }

    /// Another user in this database. A throw-away server asks for no password; with `DATABASE_URL`
    /// the superuser's is sent.
    pub fn options(&self, user: &str, database: &str) -> PgConnectOptions {
        self.superuser.clone().username(user).database(database)
    }

    /// The same as a URL, for programs under test.
    pub fn url(&self, user: &str, database: &str) -> String {
        self.options(user, database).to_url_lossy().to_string()
    }

    /// Where the socket is, unless `DATABASE_URL` names a server by host and port.
    pub fn socket_dir(&self) -> Option<&Path> {
        self.superuser.get_socket().map(PathBuf::as_path)
    }

    /// A new database with a name of its own: empty, or a copy of `template`. Nobody may be
    /// connected to a template while it is copied; a session that is just ending is waited for.
    pub async fn create_database_from(&self, template: Option<&str>) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // With DATABASE_URL the server may be shared by several runs, on several machines.
        let name = format!("test_{}_{number}_{:08x}", std::process::id(), rand::random::<u32>());
        let statement = format!("CREATE DATABASE {name} TEMPLATE {}", template.unwrap_or("template1"));

        let mut session = self.superuser.connect().await.expect("the test server answers");
        let began = Instant::now();
        loop {
            let Err(error) = session.execute(create_database(&statement)).await else {
                break;
            };
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            let in_use = code.is_some_and(|code| code == OBJECT_IN_USE);
            assert!(in_use && began.elapsed() < TEMPLATE_WAIT_MAX, "{statement}: {error}");
            tokio::time::sleep(POLL_STEP).await;
        }
        session.close().await.expect("the session ends");
        name
    }
}

#[expect(clippy::disallowed_types, reason = "a name can't be a parameter of CREATE DATABASE, and ours is made here")]
fn create_database(statement: &str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(statement.to_owned())
}

/// A folder with a short path (a socket goes into it) that only the server's user can enter.
fn private_folder(user: &ServerUser) -> PathBuf {
    let folder = tempfile::Builder::new()
        .prefix("hamyon-test-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in("/tmp")
        .expect("a temporary folder")
        .keep();
    user.give(&folder).expect("the folder can be handed over");
    folder
}

fn unprivileged(program: &Path, user: &ServerUser) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").current_dir("/");
    if let Some((uid, gid)) = user.step_down() {
        command.uid(uid).gid(gid);
    }
    command
}
