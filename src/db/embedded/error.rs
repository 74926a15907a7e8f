//! What can go wrong with the private server, in sentences that say what to do next.
//!
//! The reader is somebody who typed one command and wants a running wallet, not a student of
//! PostgreSQL. So every variant names the file, folder or program at fault and ends with the remedy
//! when there is one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A private server that could not be found, prepared, started, joined or stopped.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No usable installation of the PostgreSQL server anywhere we looked.
    #[error(
        "No PostgreSQL server is installed here ({looked}). Install it (on Debian and Ubuntu: apt-get install postgresql), \
         or name its folder of programs in HAMYON_POSTGRES_BIN, or name a server of your own in DATABASE_URL."
    )]
    NoServer {
        /// The places that were searched, for people whose installation is somewhere else.
        looked: String,
    },

    /// The folder the settings name holds no server.
    #[error(
        "HAMYON_POSTGRES_BIN names {}, but there is no `initdb` and `postgres` that can be run in it. Name the folder that holds \
         them, or leave it unset to have it found (on Debian and Ubuntu: apt-get install postgresql).",
        .folder.display()
    )]
    NoServerInFolder {
        /// The folder as it was given.
        folder: PathBuf,
    },

    /// A server is installed, but too old.
    #[error(
        "The PostgreSQL server in {} is version {found}; hamyon needs {needed} or newer. Install a newer one (on Debian and \
         Ubuntu: apt-get install postgresql), or name a newer server in DATABASE_URL.",
        .folder.display()
    )]
    ServerTooOld {
        /// Where the old one is.
        folder: PathBuf,
        /// Its major version.
        found: u32,
        /// The oldest major version that will do.
        needed: u32,
    },

    /// The cluster on disk was made by another major version than any that is installed.
    #[error(
        "The database in {} was made by PostgreSQL {made_by}, and only version {found} is installed. Install that version (on \
         Debian and Ubuntu: apt-get install postgresql-{made_by}), or move the data over with pg_upgrade.",
        .cluster.display()
    )]
    OtherVersion {
        /// The cluster folder.
        cluster: PathBuf,
        /// The major version in its `PG_VERSION`.
        made_by: String,
        /// The major version that is installed.
        found: u32,
    },

    /// There is no home folder to put data under.
    #[error("There is no home directory to keep data in (HOME is unset). Name a data directory in HAMYON_DATA_DIR.")]
    NoHome,

    /// Running as root without an unprivileged user to step down to.
    #[error(
        "PostgreSQL refuses to run as root, and there is neither a user `postgres` nor a user `nobody` to run it as. Create one \
         (useradd --system postgres), or run hamyon as an ordinary user."
    )]
    NoUnprivilegedUser,

    /// The unprivileged user can't get through to a folder it needs.
    #[error(
        "PostgreSQL is run as the user `{user}` because you are root, and that user cannot enter {}, which is on the way to {}. \
         Let it pass with `chmod o+x {}`, or choose another place{remedy}.",
        .closed.display(), .wanted.display(), .closed.display()
    )]
    Unreachable {
        /// The user the server would run as.
        user: String,
        /// The folder that is shut.
        closed: PathBuf,
        /// Where the user has to get to.
        wanted: PathBuf,
        /// Which setting chooses another place.
        remedy: &'static str,
    },

    /// A folder belongs to another user.
    #[error(
        "{} belongs to the user {owner}, and you are {me}. Run hamyon as {owner}, choose another data directory in \
         HAMYON_DATA_DIR, or give the directory to {me} with chown.",
        .folder.display()
    )]
    NotYours {
        /// The folder or file.
        folder: PathBuf,
        /// Its owner.
        owner: String,
        /// Who is asking.
        me: String,
    },

    /// There is no database where one was expected.
    #[error(
        "There is no database in {} yet. If yours is elsewhere, name its data directory in HAMYON_DATA_DIR, or its server in \
         DATABASE_URL; to make a new one here, run `hamyon serve` or `hamyon migrate`.",
        .data_dir.display()
    )]
    NoCluster {
        /// The data directory that was looked into.
        data_dir: PathBuf,
    },

    /// The cluster folder has content, but is not a cluster.
    #[error(
        "{} is not empty and is not a PostgreSQL database either (it has no PG_VERSION). Move it away, or choose another data \
         directory in HAMYON_DATA_DIR.",
        .cluster.display()
    )]
    NotACluster {
        /// The folder.
        cluster: PathBuf,
    },

    /// The short socket folder under /tmp exists and is not ours.
    #[error(
        "The path of {} is too long for a socket, so a folder in /tmp has to serve, but {} is not a private folder of the user \
         {user}. Remove it, or choose a data directory with a shorter path in HAMYON_DATA_DIR.",
        .data_dir.display(), .folder.display()
    )]
    SocketFolderTaken {
        /// The data directory with the long path.
        data_dir: PathBuf,
        /// The folder that somebody else made.
        folder: PathBuf,
        /// Who it should belong to.
        user: String,
    },

    /// A server that hamyon did not start runs on the cluster.
    #[error(
        "Another PostgreSQL server (process {pid}) is running on {} with its socket elsewhere, so hamyon did not start it. Stop \
         it first: pg_ctl stop -D {}",
        .cluster.display(), .cluster.display()
    )]
    ForeignServer {
        /// Its process id.
        pid: i32,
        /// The cluster folder.
        cluster: PathBuf,
    },

    /// The socket answers although no process of this machine serves the cluster.
    #[error(
        "A PostgreSQL server that is not a process of this machine or container answers on {}. Only one machine or container at a \
         time can use {}: stop the other one first.",
        .socket.display(), .data_dir.display()
    )]
    ServedFromElsewhere {
        /// The socket that answered.
        socket: PathBuf,
        /// The data directory both use.
        data_dir: PathBuf,
    },

    /// `initdb` failed.
    #[error("Creating the database in {} failed: {output}", .cluster.display())]
    Initdb {
        /// The cluster folder that was to be made.
        cluster: PathBuf,
        /// What initdb said.
        output: String,
    },

    /// The server ended while it was starting.
    #[error("The PostgreSQL server ended while it was starting ({status}). The end of {} says:\n{tail}", .log.display())]
    Died {
        /// How it ended.
        status: String,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },

    /// The server is still not ready at the end of the wait.
    #[error(
        "The PostgreSQL server is not ready after {} s (it may be recovering from a crash; it goes on doing so, try again in a \
         while). The end of {} says:\n{tail}",
        .waited.as_secs(), .log.display()
    )]
    NotReady {
        /// How long we waited.
        waited: Duration,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },

    /// Another process holds the start lock for too long.
    #[error(
        "Another hamyon process has been starting or stopping the server of {} for more than {} s. Look for it (`fuser {}`) and \
         try again.",
        .data_dir.display(), .waited.as_secs(), .lock.display()
    )]
    Busy {
        /// The data directory.
        data_dir: PathBuf,
        /// The lock file.
        lock: PathBuf,
        /// How long we waited.
        waited: Duration,
    },

    /// The server has ended while it was in use.
    #[error(
        "The private PostgreSQL server of {} has ended, and hamyon did not stop it. See the end of {}; the next start runs it \
         again.",
        .cluster.display(), .log.display()
    )]
    Lost {
        /// The cluster folder.
        cluster: PathBuf,
        /// The log file.
        log: PathBuf,
    },

    /// The server does not end although it was told to.
    #[error(
        "The PostgreSQL server (process {pid}) did not stop within {} s, not even an immediate stop. See {}.",
        .waited.as_secs(), .log.display()
    )]
    DidNotStop {
        /// Its process id.
        pid: i32,
        /// How long we waited.
        waited: Duration,
        /// The log file.
        log: PathBuf,
    },

    /// The server is up, but a statement of ours failed.
    #[error("The private PostgreSQL server answered {action} with an error")]
    Database {
        /// What we were doing.
        action: &'static str,
        /// Its answer.
        #[source]
        source: sqlx::Error,
    },

    /// The program is ending while it starts the server.
    #[error("The start of the private PostgreSQL server was interrupted")]
    Interrupted(#[source] tokio::task::JoinError),

    /// The operating system refused something.
    #[error("Could not {action} {}: {source}", .path.display())]
    System {
        /// What we were doing, as a verb.
        action: &'static str,
        /// To which file, folder or program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl EmbeddedError {
    /// For `map_err`: adds to a bare system error what was being done, and to what.
    pub(super) fn system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::System { action, path, source }
    }
}
