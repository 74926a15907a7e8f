//! Making a cluster, starting its server, and stopping it.
//!
//! Everything here happens under the start lock.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::Origin;
use super::binaries::Binaries;
use super::error::EmbeddedError;
use super::layout::{Layout, PORT, ServerUser};
use super::locks::POLL_STEP;
use super::postmaster::{Phase, Postmaster, Running, is_server_of, send};

/// From the start of a server to its readiness. Long, because a server that crashed recovers first.
const READY_WAIT_MAX: Duration = Duration::from_mins(1);

/// How long a server may take to open one session, before it is asked again.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long orphaned backends of a killed server may take to notice that it is gone. PostgreSQL
/// refuses to start until then.
const ORPHANS_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a file without a process id may be one that is just being written.
const UNREADABLE_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long an orderly stop may take.
const FAST_STOP_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long an immediate stop may take.
const IMMEDIATE_STOP_WAIT_MAX: Duration = Duration::from_secs(10);

/// A log of more than this is put aside at the next start.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// How much of the end of the log goes into an error.
const TAIL_LINES: usize = 12;

/// Creates the cluster unless it is there. `initdb` works in a folder of its own, which gets the
/// cluster's name when it is complete: one that was interrupted leaves nothing that could be taken
/// for a cluster.
pub(super) async fn create_cluster(
    layout: &Layout,
    binaries: &Binaries,
    user: &ServerUser,
    durable: bool,
) -> Result<(), EmbeddedError> {
    let (cluster, unfinished) = (&layout.cluster, &layout.unfinished_cluster);
    if layout.cluster_version()?.is_some() {
        return Ok(());
    }
    match fs::remove_dir(cluster) {
        Ok(()) => {}
        Err(missing) if missing.kind() == ErrorKind::NotFound => {}
        Err(_) => {
            return Err(EmbeddedError::NotACluster { cluster: cluster.clone() });
        }
    }
    match fs::remove_dir_all(unfinished) {
        Ok(()) => {
            tracing::info!(folder = %unfinished.display(), "removed a database whose creation was interrupted");
        }
        Err(missing) if missing.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(EmbeddedError::system("remove", unfinished)(source)),
    }
    DirBuilder::new().mode(0o700).create(unfinished).map_err(EmbeddedError::system("create", unfinished))?;
    user.give(unfinished)?;

    tracing::info!(cluster = %cluster.display(), version = binaries.major(), user = user.name(), "creating the database");
    let mut command = unprivileged(&binaries.initdb(), user);
    command.args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--data-checksums"]);
    if !durable {
        command.arg("--no-sync");
    }
    command.arg("-D").arg(unfinished);
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(EmbeddedError::system("run", &binaries.initdb()))?;
    if !output.status.success() {
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        return Err(EmbeddedError::Initdb { cluster: cluster.clone(), output: last_lines(&said) });
    }
    fs::rename(unfinished, cluster).map_err(EmbeddedError::system("put in place", cluster))?;
    // The rename is as durable as the files that initdb has synced.
    File::open(&layout.data_dir)
        .and_then(|folder| folder.sync_all())
        .map_err(EmbeddedError::system("sync", &layout.data_dir))
}

/// Joins the server that runs on the cluster, or starts one and waits until it answers.
pub(super) async fn start_or_join(
    layout: &Layout,
    binaries: &Binaries,
    user: &ServerUser,
    settings: &[(String, String)],
    superuser: &PgConnectOptions,
) -> Result<Origin, EmbeddedError> {
    let began = Instant::now();
    let mut spawned_at = began;
    let mut unreadable_since = None;
    let mut child: Option<Spawned> = None;
    let mut log_end_before = log_length(&layout.log);
    loop {
        let found = Postmaster::inspect(&layout.cluster)?;
        if found != Postmaster::Unreadable {
            unreadable_since = None;
        }
        match (&found, &child) {
            (Postmaster::Running(running), _) => {
                check_is_ours(layout, running)?;
                if running.phase == Phase::Ready && answers(superuser).await {
                    return Ok(if child.is_some() { Origin::Started } else { Origin::Joined });
                }
            }
            (Postmaster::Unreadable, None) => {
                let since: Instant = *unreadable_since.get_or_insert_with(Instant::now);
                if since.elapsed() > UNREADABLE_WAIT_MAX {
                    Postmaster::discard(&layout.cluster)?;
                }
            }
            (Postmaster::Absent | Postmaster::Stale { .. }, None) => {
                if answers(superuser).await {
                    return Err(EmbeddedError::ServedFromElsewhere {
                        socket: layout.socket(),
                        data_dir: layout.data_dir.clone(),
                    });
                }
                if found == (Postmaster::Stale { pid_reused: true }) {
                    Postmaster::disarm(&layout.cluster)?;
                }
                remove_socket(layout)?;
                log_end_before = log_length(&layout.log);
                child = Some(Spawned::spawn(layout, binaries, user, settings)?);
                spawned_at = Instant::now();
            }
            // Our server has just been started: the file will be there, and right, in a moment.
            (Postmaster::Absent | Postmaster::Stale { .. } | Postmaster::Unreadable, Some(_)) => {}
        }
        if let Some(ended) = child.as_ref().and_then(Spawned::ended) {
            // Backends of a killed server may still be there, or another server was faster: both
            // are over, or joined, in a while.
            let passes = still_in_use(&layout.log, log_end_before) && began.elapsed() < ORPHANS_WAIT_MAX;
            if !passes {
                let tail = log_tail(&layout.log, log_end_before);
                return Err(EmbeddedError::Died { status: ended.to_owned(), log: layout.log.clone(), tail });
            }
            child = None;
        }
        if spawned_at.elapsed() > READY_WAIT_MAX {
            let tail = log_tail(&layout.log, log_end_before);
            return Err(EmbeddedError::NotReady { waited: READY_WAIT_MAX, log: layout.log.clone(), tail });
        }
        tokio::time::sleep(POLL_STEP).await;
    }
}

/// Stops whatever server runs on the cluster and waits until it has ended.
pub(super) async fn stop(layout: &Layout) -> Result<(), EmbeddedError> {
    let steps = [(Signal::SIGINT, FAST_STOP_WAIT_MAX), (Signal::SIGQUIT, IMMEDIATE_STOP_WAIT_MAX)];
    for (signal, wait_max) in steps {
        let Postmaster::Running(running) = Postmaster::inspect(&layout.cluster)? else {
            return Ok(());
        };
        if signal == Signal::SIGQUIT {
            tracing::warn!(
                pid = running.pid,
                "the PostgreSQL server does not stop in an orderly way, stopping it at once"
            );
        }
        if !send(running.pid, signal, &layout.cluster)? {
            return Ok(());
        }
        let began = Instant::now();
        while began.elapsed() < wait_max {
            if !is_server_of(running.pid, &layout.cluster) {
                return Ok(());
            }
            tokio::time::sleep(POLL_STEP).await;
        }
    }
    match Postmaster::inspect(&layout.cluster)? {
        Postmaster::Running(running) => Err(EmbeddedError::DidNotStop {
            pid: running.pid,
            waited: FAST_STOP_WAIT_MAX.saturating_add(IMMEDIATE_STOP_WAIT_MAX),
            log: layout.log.clone(),
        }),
        Postmaster::Absent | Postmaster::Unreadable | Postmaster::Stale { .. } => Ok(()),
    }
}

/// Asks the server to stop without waiting for it, for callers that can't wait.
pub(super) fn ask_to_stop(layout: &Layout) -> Result<(), EmbeddedError> {
    if let Postmaster::Running(running) = Postmaster::inspect(&layout.cluster)? {
        send(running.pid, Signal::SIGINT, &layout.cluster)?;
    }
    Ok(())
}

/// A server started by this process.
///
/// A thread waits for it. Without one, a server that another process stops would stay in the
/// process table as a dead entry for as long as we live, and look alive to anybody who asks for its
/// id.
struct Spawned {
    ended: Arc<OnceLock<String>>,
}

impl Spawned {
    fn spawn(
        layout: &Layout,
        binaries: &Binaries,
        user: &ServerUser,
        settings: &[(String, String)],
    ) -> Result<Self, EmbeddedError> {
        let log = open_log(&layout.log)?;
        let log_too = log.try_clone().map_err(EmbeddedError::system("open", &layout.log))?;
        let mut command = unprivileged(&binaries.postgres(), user);
        command.arg("-D").arg(&layout.cluster).stdout(log).stderr(log_too);
        // Ctrl-C on a terminal goes to the whole process group. The server must outlive our work in
        // progress, so it gets its own.
        command.process_group(0);
        let sockets = quoted_for_a_list(&layout.socket_folder);
        let port = PORT.to_string();
        let ours: [(&str, &str); 9] = [
            ("listen_addresses", ""),
            ("port", &port),
            ("unix_socket_directories", &sockets),
            ("unix_socket_permissions", "0700"),
            ("max_connections", "200"),
            ("shared_buffers", "128MB"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
            // The log goes to our file; a collector of the server's own would move it elsewhere.
            ("logging_collector", "off"),
        ];
        let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in ours.into_iter().chain(given) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let mut child = command.spawn().map_err(EmbeddedError::system("run", &binaries.postgres()))?;
        tracing::info!(pid = child.id(), cluster = %layout.cluster.display(), user = user.name(), "starting the PostgreSQL server");

        let ended = Arc::new(OnceLock::new());
        let report = Arc::clone(&ended);
        std::thread::Builder::new()
            .name("postgres-reaper".to_owned())
            .spawn(move || {
                let how = child.wait().map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string());
                report.set(how)
            })
            .map_err(EmbeddedError::system("start a thread for", &binaries.postgres()))?;
        Ok(Self { ended })
    }

    fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }
}

/// A program with as little of our surroundings as possible: not our secrets in its environment
/// (which the server's user may read), not `PGPORT` and the like, no working directory that the
/// user can't enter.
fn unprivileged(program: &Path, user: &ServerUser) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("TZ", "UTC").current_dir("/").stdin(Stdio::null());
    for kept in ["PATH", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    if let Some((uid, gid)) = user.step_down() {
        // The standard library also gives up root's supplementary groups when it changes the user.
        command.uid(uid).gid(gid);
    }
    command
}

/// A server on our cluster, but with its socket elsewhere, was started by hand; joining it would
/// end in a vain wait.
fn check_is_ours(layout: &Layout, running: &Running) -> Result<(), EmbeddedError> {
    let undecided = running.phase != Phase::Ready;
    let elsewhere = running.socket_folder != layout.socket_folder || running.port != Some(PORT);
    if elsewhere && !undecided {
        return Err(EmbeddedError::ForeignServer { pid: running.pid, cluster: layout.cluster.clone() });
    }
    Ok(())
}

/// Whether a session can be opened. Any failure counts as "not yet": while starting and stopping
/// the server refuses in many ways.
async fn answers(superuser: &PgConnectOptions) -> bool {
    let session = async { superuser.connect().await?.close().await };
    matches!(tokio::time::timeout(ANSWER_WAIT_MAX, session).await, Ok(Ok(())))
}

/// Removes the socket and its lock file of a server that is gone: the lock file's process id may
/// belong to another program by now, and PostgreSQL would refuse to start. The folder serves this
/// cluster alone, so they can't be another server's.
fn remove_socket(layout: &Layout) -> Result<(), EmbeddedError> {
    let socket = layout.socket();
    let mut lock = socket.clone().into_os_string();
    lock.push(".lock");
    for path in [socket.as_path(), Path::new(&lock)] {
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(missing) if missing.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(EmbeddedError::system("remove", path)(source)),
        }
    }
    Ok(())
}

/// A path as one element of a comma-separated setting.
fn quoted_for_a_list(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

fn open_log(path: &Path) -> Result<File, EmbeddedError> {
    if log_length(path) > LOG_BYTES_MAX {
        let aside = path.with_extension("log.old");
        fs::rename(path, &aside).map_err(EmbeddedError::system("put aside", path))?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(EmbeddedError::system("open", path))
}

fn log_length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Whether the server gave up over a cluster that is still in use, which passes by itself.
fn still_in_use(log: &Path, from: u64) -> bool {
    let said = log_since(log, from);
    said.contains("pre-existing shared memory block") || said.contains("postmaster.pid\" already exists")
}

fn log_tail(log: &Path, from: u64) -> String {
    last_lines(&log_since(log, from))
}

fn log_since(log: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        // The log may have been put aside in the meantime.
        let from = if file.metadata()?.len() < from { 0 } else { from };
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(could not be read: {error})"),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
}
