//! The private PostgreSQL server, for when nobody has named one.
//!
//! Trying out a wallet must not begin with the installation of a database, so with no
//! `DATABASE_URL` set hamyon runs a server of its own: the installed binaries, a cluster under the
//! data directory, a socket in a folder that nobody else can enter, no network port. Ready-made
//! crates for this download binaries or refuse to work as root; this one does neither.
//!
//! Several processes may use one data directory at once: `serve`, and beside it `verify` or `fees
//! run`. The first one starts the server, the last one stops it, whichever they are, and a process
//! that was killed counts as gone. How that is told is described in `locks`; how a running server
//! is recognised, in `postmaster`; what belongs to whom, in `layout`.
//!
//! The path of a start: the data directory (made, or refused) → the start lock → registered as a
//! user → the cluster (`initdb`, once) → the server (joined, or started) → the database `hamyon`.

mod binaries;
mod error;
mod layout;
mod locks;
mod postmaster;
mod server;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

pub use binaries::{Binaries, OLDEST_MAJOR};
pub use error::EmbeddedError;
pub use layout::{ServerUser, default_data_dir};

use layout::{Layout, PORT};
use locks::{Leaving, StartLock, UserLock};
use postmaster::Postmaster;

/// The cluster's superuser, made by `initdb`.
pub const SUPERUSER: &str = "postgres";

/// The database that holds the wallets.
pub const DATABASE: &str = "hamyon";

/// How often it is looked whether the server still runs.
const WATCH_STEP: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    data_dir: PathBuf,
    postgres_bin: Option<PathBuf>,
    settings: Vec<(String, String)>,
    may_create: bool,
}

impl Options {
    /// A server whose files are under `data_dir`, made there when there are none.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), postgres_bin: None, settings: Vec::new(), may_create: true }
    }

    /// Only a cluster that is there. Whoever asks a question about a database doesn't want a new one that has
    /// nothing in it and finds nothing wrong.
    #[must_use]
    pub fn only_existing(mut self) -> Self {
        self.may_create = false;
        self
    }

    /// The folder of `initdb` and `postgres`, instead of looking for one.
    #[must_use]
    pub fn postgres_bin(mut self, folder: Option<PathBuf>) -> Self {
        self.postgres_bin = folder;
        self
    }

    /// Server settings beyond ours, such as `("fsync", "off")` in tests. They take effect when this
    /// call is the one that starts the server, not when it joins a running one.
    #[must_use]
    pub fn extra_settings(mut self, settings: &[(&str, &str)]) -> Self {
        self.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    fn wants_durability(&self) -> bool {
        !self.settings.iter().any(|(name, value)| name == "fsync" && value == "off")
    }
}

/// How a use of the server began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This call started it.
    Started,
    /// It was running already.
    Joined,
}

/// What became of the server when a user left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// The last user has left: the server has ended.
    Server,
    /// Other processes still use it: it goes on.
    LeftToOthers,
}

/// One use of the private server. End it with [`Embedded::stop`].
#[derive(Debug)]
pub struct Embedded {
    layout: Layout,
    origin: Origin,
    /// Empty before the start has registered us, and after the stop.
    user: Option<UserLock>,
}

/// Starts the private server, or joins the one that runs, and makes sure that the database `hamyon`
/// exists.
///
/// # Errors
/// When no server is installed, the data directory can't serve, or the server does not become
/// ready. Nothing is written in the first two cases.
pub async fn start(options: Options) -> Result<Embedded, EmbeddedError> {
    let wanted = options.clone();
    // Looking for binaries runs programs, and file systems may be slow.
    let layout = blocking(move || {
        if !wanted.may_create {
            layout::check_cluster_is_there(&wanted.data_dir)?;
        }
        Binaries::find(wanted.postgres_bin.as_deref(), None)?;
        Layout::prepare(&wanted.data_dir)
    })
    .await?;

    // Declared before the start lock, so that a future dropped half-way gives that lock back first,
    // and then leaves in an orderly way: with nobody else there, the server it was starting is told
    // to stop.
    let mut embedded = Embedded { layout: layout.clone(), origin: Origin::Joined, user: None };
    let start_lock = StartLock::acquire(&layout).await?;
    embedded.user = Some(UserLock::acquire(&layout, &start_lock)?);

    let given = options.postgres_bin.clone();
    let (layout, binaries, server_user) = blocking(move || {
        let server_user = layout.server_user()?;
        let binaries = matching_binaries(given.as_deref(), &layout)?;
        server_user.check_reach(&layout.data_dir, " in HAMYON_DATA_DIR")?;
        server_user.check_reach(binaries.folder(), " in HAMYON_POSTGRES_BIN")?;
        layout.prepare_socket_folder(&server_user)?;
        Ok((layout, binaries, server_user))
    })
    .await?;

    server::create_cluster(&layout, &binaries, &server_user, options.wants_durability()).await?;
    let superuser = connect_options(&layout.socket_folder, SUPERUSER, "postgres");
    match server::start_or_join(&layout, &binaries, &server_user, &options.settings, &superuser).await {
        Ok(origin) => embedded.origin = origin,
        Err(error) => {
            // A server that needs long to recover must not be stopped, or it would begin anew each
            // time.
            if matches!(error, EmbeddedError::NotReady { .. }) {
                embedded.user = None;
            }
            return Err(error);
        }
    }
    create_database(&superuser).await?;
    Ok(embedded)
}

impl Embedded {
    /// How to connect.
    #[must_use]
    pub fn connect_options(&self, user: &str, database: &str) -> PgConnectOptions {
        connect_options(&self.layout.socket_folder, user, database)
    }

    /// The same as a URL, for `psql`, `pg_dump` and `DATABASE_URL`:
    /// `postgresql://user@%2Ffolder:5432/database`. This form, with the folder as the host, is
    /// understood by both libpq and sqlx.
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        let folder = percent_encoded(self.layout.socket_folder.as_os_str().as_bytes());
        let (user, database) = (percent_encoded(user.as_bytes()), percent_encoded(database.as_bytes()));
        format!("postgresql://{user}@{folder}:{PORT}/{database}")
    }

    /// Whether this call started the server or found it running.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The folder that holds the server's socket.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        &self.layout.socket_folder
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.layout.log
    }

    /// Returns when the server has ended under us: killed, or stopped by somebody's hand.
    ///
    /// It is asked for in steps, since it may be another process' child. Each session would notice by itself, but
    /// only this says that no later one can succeed.
    pub async fn lost(&self) -> EmbeddedError {
        loop {
            tokio::time::sleep(WATCH_STEP).await;
            let cluster = self.layout.cluster.clone();
            let gone = blocking(move || {
                Ok(matches!(Postmaster::inspect(&cluster)?, Postmaster::Absent | Postmaster::Stale { .. }))
            })
            .await;
            match gone {
                Ok(false) => {}
                Ok(true) => {
                    return EmbeddedError::Lost { cluster: self.layout.cluster.clone(), log: self.layout.log.clone() };
                }
                Err(error) => tracing::warn!(%error, "can't see whether the private PostgreSQL server runs"),
            }
        }
    }

    /// Ends this use, and the server when nobody else uses it.
    ///
    /// # Errors
    /// When the server does not end, or the data directory has become unusable.
    pub async fn stop(mut self) -> Result<Stopped, EmbeddedError> {
        let start_lock = StartLock::acquire(&self.layout).await?;
        let Some(user) = self.user.take() else {
            return Ok(Stopped::LeftToOthers);
        };
        match user.release(&self.layout, &start_lock)? {
            Leaving::OthersRemain => Ok(Stopped::LeftToOthers),
            Leaving::LastOne(_nobody_enters) => {
                server::stop(&self.layout).await?;
                self.layout.clear_borrowed_socket_folder();
                tracing::info!(cluster = %self.layout.cluster.display(), "stopped the PostgreSQL server");
                Ok(Stopped::Server)
            }
        }
    }
}

/// For whoever forgets to stop, or panics: leaves, and if nobody else is there asks the server to
/// stop, without waiting for anything. When that can't be done at once the server stays, and the
/// next user finds it.
impl Drop for Embedded {
    fn drop(&mut self) {
        let Some(user) = self.user.take() else { return };
        let left = StartLock::try_acquire(&self.layout).and_then(|start_lock| {
            let Some(start_lock) = start_lock else {
                return Ok(());
            };
            match user.release(&self.layout, &start_lock)? {
                Leaving::OthersRemain => Ok(()),
                Leaving::LastOne(_nobody_enters) => server::ask_to_stop(&self.layout),
            }
        });
        if let Err(error) = left {
            tracing::warn!(%error, "the private PostgreSQL server may be left running");
        }
    }
}

/// The installation for this cluster: for an existing one, of the very version that made it.
fn matching_binaries(given: Option<&Path>, layout: &Layout) -> Result<Binaries, EmbeddedError> {
    let Some(made_by) = layout.cluster_version()? else {
        return Binaries::find(given, None);
    };
    let binaries = Binaries::find(given, made_by.parse().ok())?;
    if binaries.major().to_string() == made_by {
        Ok(binaries)
    } else {
        Err(EmbeddedError::OtherVersion { cluster: layout.cluster.clone(), made_by, found: binaries.major() })
    }
}

/// The start lock is held, so nobody creates it between the question and the answer.
async fn create_database(superuser: &PgConnectOptions) -> Result<(), EmbeddedError> {
    let failed = |action| move |source| EmbeddedError::Database { action, source };
    let mut session = superuser.connect().await.map_err(failed("a connection"))?;
    let there: Option<i32> = sqlx::query_scalar("SELECT 1 FROM pg_database WHERE datname = $1")
        .bind(DATABASE)
        .fetch_optional(&mut session)
        .await
        .map_err(failed("the question for its databases"))?;
    if there.is_none() {
        sqlx::query("CREATE DATABASE hamyon").execute(&mut session).await.map_err(failed("CREATE DATABASE hamyon"))?;
    }
    session.close().await.map_err(failed("the end of a connection"))
}

fn connect_options(socket_folder: &Path, user: &str, database: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass().socket(socket_folder).port(PORT).username(user).database(database)
}

/// Everything but letters and digits as `%XX`.
fn percent_encoded(bytes: &[u8]) -> String {
    let one = |byte: &u8| {
        if byte.is_ascii_alphanumeric() { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    };
    bytes.iter().map(one).collect()
}

/// Runs file system work off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EmbeddedError> + Send + 'static,
) -> Result<T, EmbeddedError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => Err(EmbeddedError::Interrupted(cancelled)),
        },
    }
}
