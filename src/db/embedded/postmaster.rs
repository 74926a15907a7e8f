//! What `postmaster.pid` says, and whether it is still true.
//!
//! The server writes the file into its cluster while it runs and removes it when it stops. After a
//! crash or a kill it stays, with a process id that belongs to nobody, or by now to some other
//! program. So a process is only taken for the server when its command line is that of a `postgres`
//! on this very cluster.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::EmbeddedError;

/// How far a running server has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Ready,
    Stopping,
}

/// A live server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) pid: i32,
    pub(super) phase: Phase,
    /// Empty until the server has made its socket.
    pub(super) socket_folder: PathBuf,
    pub(super) port: Option<u16>,
}

/// What the file and the process table say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Postmaster {
    /// No file: no server.
    Absent,
    /// A file without a readable process id: being written this moment, or cut off by a full disk.
    Unreadable,
    /// A file left behind. `pid_reused` when some other program has the process id now.
    Stale { pid_reused: bool },
    /// A server.
    Running(Running),
}

impl Postmaster {
    /// Looks at the cluster.
    pub(super) fn inspect(cluster: &Path) -> Result<Self, EmbeddedError> {
        let file = pid_file(cluster);
        let text = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(Self::Absent),
            Err(source) => return Err(EmbeddedError::system("read", &file)(source)),
        };
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let line = |number: usize| lines.get(number).copied().unwrap_or_default();
        let number = |index: usize| std::str::from_utf8(line(index)).ok().map(str::trim);

        let Some(pid) = number(0).and_then(|text| text.parse::<i32>().ok()).filter(|pid| *pid > 1) else {
            return Ok(Self::Unreadable);
        };
        if !is_server_of(pid, cluster) {
            return Ok(Self::Stale { pid_reused: is_alive(pid) });
        }
        Ok(Self::Running(Running {
            pid,
            phase: match number(7) {
                Some("ready") => Phase::Ready,
                Some("stopping") => Phase::Stopping,
                Some(_) | None => Phase::Starting,
            },
            socket_folder: PathBuf::from(OsStr::from_bytes(line(4))),
            port: number(3).and_then(|text| text.parse().ok()),
        }))
    }

    /// Makes PostgreSQL see that a left-behind file is just that, although the process id in it is
    /// alive.
    ///
    /// PostgreSQL takes the id of its own parent for "not another server", and then still checks by
    /// the shared memory named in the file that no orphaned backend writes to the cluster. Removing
    /// the file would skip that check and could corrupt data, so only the first line is changed, to
    /// our own id: we are the parent of the server about to start.
    pub(super) fn disarm(cluster: &Path) -> Result<(), EmbeddedError> {
        let path = pid_file(cluster);
        let text = fs::read(&path).map_err(EmbeddedError::system("read", &path))?;
        let rest_at = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let mut changed = std::process::id().to_string().into_bytes();
        changed.extend(text.iter().skip(rest_at));
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .and_then(|mut file| file.write_all(&changed))
            .map_err(EmbeddedError::system("correct", &path))
    }

    /// Removes a file that names no process at all; PostgreSQL would refuse to start over it.
    pub(super) fn discard(cluster: &Path) -> Result<(), EmbeddedError> {
        let path = pid_file(cluster);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(EmbeddedError::system("remove", &path)(source)),
        }
    }
}

/// Sends a signal to the server. False when it is gone.
pub(super) fn send(pid: i32, signal: Signal, cluster: &Path) -> Result<bool, EmbeddedError> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(errno) => Err(EmbeddedError::system("signal the server of", cluster)(errno.into())),
    }
}

fn pid_file(cluster: &Path) -> PathBuf {
    cluster.join("postmaster.pid")
}

/// Whether the process is a running `postgres` on this cluster.
pub(super) fn is_server_of(pid: i32, cluster: &Path) -> bool {
    if !is_alive(pid) {
        return false;
    }
    let process = PathBuf::from(format!("/proc/{pid}"));
    if !process.exists() {
        // A system without /proc: a live process id is all there is to go by.
        return !Path::new("/proc/self").exists();
    }
    let Ok(command_line) = fs::read(process.join("cmdline")) else {
        return false;
    };
    let arguments: Vec<&OsStr> = command_line.split(|byte| *byte == 0).map(OsStr::from_bytes).collect();
    let program = arguments.first().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    if program != "postgres" && program != "postmaster" {
        return false;
    }
    // The server never changes its own title (its children do), so `-D folder` stays readable to
    // everybody. The working directory, which is the cluster, helps with one that was started in
    // another way; only its own user may read that.
    let named = arguments
        .windows(2)
        .any(|pair| matches!(pair, [flag, folder] if *flag == "-D" && same_folder(folder, cluster)));
    named || fs::read_link(process.join("cwd")).is_ok_and(|folder| folder == cluster)
}

fn same_folder(named: &OsStr, cluster: &Path) -> bool {
    Path::new(named) == cluster || fs::canonicalize(named).is_ok_and(|folder| folder == cluster)
}

/// Whether the process exists and is more than a dead entry that its parent has not collected.
fn is_alive(pid: i32) -> bool {
    let exists = match kill(Pid::from_raw(pid), None) {
        Ok(()) | Err(Errno::EPERM) => true,
        Err(_) => false,
    };
    exists && !is_defunct(pid)
}

fn is_defunct(pid: i32) -> bool {
    // "pid (name) state …"; the name may hold anything, also a parenthesis.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|line| line.rsplit_once(')').map(|(_, after)| after.trim_start().to_owned()))
        .is_some_and(|after| after.starts_with(['Z', 'X']))
}
