//! Where the programs of the PostgreSQL server are.
//!
//! Debian keeps them out of `PATH`, one folder a version, so that several versions live side by
//! side. The order is: what the settings say, Debian's folders with the newest first, what
//! `pg_config` says, and `PATH`. A cluster on disk can only be opened by the major version that
//! made it, so an existing cluster narrows the choice to that version.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::EmbeddedError;

/// The oldest major version hamyon's SQL runs on.
pub const OLDEST_MAJOR: u32 = 15;

/// Debian's folder of server versions.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

/// An installed PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
    major: u32,
}

impl Binaries {
    /// Finds the installation to use. `given` is the folder from the settings; `made_by` the major
    /// version of the cluster that is already there, which is preferred over a newer one.
    ///
    /// # Errors
    /// When there is none, or only one that is too old.
    pub fn find(given: Option<&Path>, made_by: Option<u32>) -> Result<Self, EmbeddedError> {
        if let Some(folder) = given {
            let found = Self::in_folder(folder)
                .ok_or_else(|| EmbeddedError::NoServerInFolder { folder: folder.to_path_buf() })?;
            return found.not_too_old();
        }
        let mut found: Vec<Self> = candidates().iter().filter_map(|folder| Self::in_folder(folder)).collect();
        // The sort is stable, so that of two installations of one version the earlier candidate is
        // taken.
        found.sort_by_key(|one| std::cmp::Reverse((made_by == Some(one.major), one.major)));
        match found.into_iter().next() {
            Some(best) => best.not_too_old(),
            None => Err(EmbeddedError::NoServer {
                looked: format!("looked in {DEBIAN_ROOT}/*/bin, `pg_config --bindir` and PATH"),
            }),
        }
    }

    /// The folder of programs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The major version, such as 15.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The program that creates a cluster.
    #[must_use]
    pub fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    /// The server itself.
    #[must_use]
    pub fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    fn in_folder(folder: &Path) -> Option<Self> {
        // The server finds its libraries and time zones relative to where it really is, so links
        // are followed first.
        let postgres = fs::canonicalize(folder.join("postgres")).ok()?;
        let folder = postgres.parent()?.to_path_buf();
        if !is_program(&postgres) || !is_program(&folder.join("initdb")) {
            return None;
        }
        let output = Command::new(&postgres).arg("--version").stdin(Stdio::null()).output().ok()?;
        let major = major_of(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { folder, major })
    }

    fn not_too_old(self) -> Result<Self, EmbeddedError> {
        if self.major < OLDEST_MAJOR {
            return Err(EmbeddedError::ServerTooOld { folder: self.folder, found: self.major, needed: OLDEST_MAJOR });
        }
        Ok(self)
    }
}

/// Every folder that may hold a server, the likeliest first.
fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(DEBIAN_ROOT)
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    let pg_config = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).stderr(Stdio::null()).output();
    if let Ok(output) = pg_config {
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !folder.is_empty() {
            folders.push(PathBuf::from(folder));
        }
    }
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The major version in a line such as `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` or
/// `postgres (PostgreSQL) 19devel`.
fn major_of(version_line: &str) -> Option<u32> {
    let (_, after) = version_line.split_once("(PostgreSQL)")?;
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
