//! Who uses the server, told by file locks.
//!
//! *start.lock* is held, exclusively and briefly, by whoever starts, joins or stops the server, so
//! these never mix. *users.lock* is held, shared, by every process for as long as it uses the
//! server. Whoever can have it exclusively is the last one and stops the server.
//!
//! The kernel drops the locks of a process that ends in whatever way: a killed process is never
//! counted as a user, and a server that it leaves behind is stopped by the next last user. The
//! locks are on the open file, not on the process, so two servers' users in one process count as
//! two.
//!
//! Closing a file isn't enough to give its lock back: a child that has not become its program yet
//! has a copy of every open file of ours, and the lock would last until its last copy is closed.
//! So [`Held`] says that it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::EmbeddedError;
use super::layout::Layout;

/// How often a lock or a server is looked at again.
pub(super) const POLL_STEP: Duration = Duration::from_millis(20);

/// Longer than the longest start (60 s) after the longest stop (40 s).
const START_LOCK_WAIT_MAX: Duration = Duration::from_mins(2);

/// A lock on a file that ends with this value, whoever else has a copy of the open file.
#[derive(Debug)]
pub(super) struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        // What remains if it fails is the end of the last copy, a moment later.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "a lock of the private PostgreSQL server could not be given back at once");
        }
    }
}

/// Held while the server is started, joined or stopped.
#[derive(Debug)]
pub(super) struct StartLock(#[expect(dead_code, reason = "kept for its end")] Held);

impl StartLock {
    /// Waits for the lock. Asks again and again instead of blocking in the kernel, so that the wait
    /// has an end and can be cancelled together with the future.
    pub(super) async fn acquire(layout: &Layout) -> Result<Self, EmbeddedError> {
        let began = Instant::now();
        loop {
            if let Some(lock) = Self::try_acquire(layout)? {
                return Ok(lock);
            }
            if began.elapsed() > START_LOCK_WAIT_MAX {
                return Err(EmbeddedError::Busy {
                    data_dir: layout.data_dir.clone(),
                    lock: layout.start_lock.clone(),
                    waited: START_LOCK_WAIT_MAX,
                });
            }
            tokio::time::sleep(POLL_STEP).await;
        }
    }

    /// Takes the lock if it is free.
    pub(super) fn try_acquire(layout: &Layout) -> Result<Option<Self>, EmbeddedError> {
        let file = open(&layout.start_lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(Held(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(EmbeddedError::system("lock", &layout.start_lock)(source)),
        }
    }
}

/// Held by a user of the server.
#[derive(Debug)]
pub(super) struct UserLock(Held);

/// What is left after a user has gone.
#[derive(Debug)]
pub(super) enum Leaving {
    /// Somebody else still uses the server.
    OthersRemain,
    /// Nobody else does; the lock keeps it so until it is dropped.
    LastOne(Held),
}

impl UserLock {
    /// Registers a user. Needs the start lock, under which nobody holds this lock exclusively, so
    /// there is nothing to wait for.
    pub(super) fn acquire(layout: &Layout, _held: &StartLock) -> Result<Self, EmbeddedError> {
        let file = open(&layout.users_lock)?;
        file.lock_shared().map_err(EmbeddedError::system("lock", &layout.users_lock))?;
        Ok(Self(Held(file)))
    }

    /// Leaves, and says whether anybody is left.
    pub(super) fn release(self, layout: &Layout, _held: &StartLock) -> Result<Leaving, EmbeddedError> {
        let path = &layout.users_lock;
        let Held(file) = &self.0;
        file.unlock().map_err(EmbeddedError::system("unlock", path))?;
        match file.try_lock() {
            Ok(()) => Ok(Leaving::LastOne(self.0)),
            Err(TryLockError::WouldBlock) => Ok(Leaving::OthersRemain),
            Err(TryLockError::Error(source)) => Err(EmbeddedError::system("lock", path)(source)),
        }
    }
}

/// The file is never removed: a process that waits on a removed file and one that makes a new one
/// would both hold "the" lock.
fn open(path: &Path) -> Result<File, EmbeddedError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(EmbeddedError::system("open", path))
}
