//! Who runs the server, and where its files are.
//!
//! ```text
//! <data_dir>/               0711 for root (the server's user must get through), 0700 otherwise
//!   postgres/               the cluster, owned by the server's user
//!   postgres.new/           only while initdb runs: renamed when complete, so `postgres/` is never half made
//!   postgres.log            what the server says
//!   run/                    0700, the socket; in /tmp instead when the path is too long for a socket
//!   users.lock start.lock   see `locks`
//! ```
//!
//! PostgreSQL refuses to run as root, so root steps down to an unprivileged user for everything the
//! server does. Whoever may enter the socket folder is a superuser of the database (authentication
//! is `trust`, there is no network port), which is why that folder is closed to everybody else and
//! its ownership is checked.
//!
//! The data directory belongs to one user. Root in a user's directory would leave files behind that
//! the user can't open, and a user in root's can't do anything: both are refused at once, before
//! anything is written.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use sha2::{Digest, Sha256};

use super::error::EmbeddedError;

/// The port is only a part of the socket's name; nothing listens on a network.
pub(super) const PORT: u16 = 5432;

/// The cluster's folder in the data directory.
const CLUSTER: &str = "postgres";

/// Linux keeps socket paths in 108 bytes, the last of them zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where the data goes when no setting says otherwise: `/var/lib/hamyon` for root,
/// `~/.local/share/hamyon` (or the place `XDG_DATA_HOME` names) for others.
///
/// # Errors
/// When the user has no home directory.
pub fn default_data_dir() -> Result<PathBuf, EmbeddedError> {
    if Uid::effective().is_root() {
        return Ok(PathBuf::from("/var/lib/hamyon"));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    if let Some(data_home) = absolute("XDG_DATA_HOME") {
        return Ok(data_home.join("hamyon"));
    }
    let home = absolute("HOME").or_else(|| User::from_uid(Uid::effective()).ok().flatten().map(|user| user.dir));
    home.map(|home| home.join(".local/share/hamyon")).ok_or(EmbeddedError::NoHome)
}

/// Whether a cluster is under `data_dir`. Makes nothing; what can't be looked at is left to [`Layout::prepare`],
/// which says why.
pub(super) fn check_cluster_is_there(data_dir: &Path) -> Result<(), EmbeddedError> {
    let data_dir = std::path::absolute(data_dir).map_err(EmbeddedError::system("make sense of the path", data_dir))?;
    match fs::metadata(data_dir.join(CLUSTER).join("PG_VERSION")) {
        Err(missing) if missing.kind() == ErrorKind::NotFound => Err(EmbeddedError::NoCluster { data_dir }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The user that `initdb` and `postgres` run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUser {
    name: String,
    uid: u32,
    gid: u32,
    steps_down: bool,
}

impl ServerUser {
    /// For a new cluster: the caller, or for root the user `postgres`, or else `nobody`.
    ///
    /// # Errors
    /// When root finds neither of the two.
    pub fn for_new_cluster() -> Result<Self, EmbeddedError> {
        if !Uid::effective().is_root() {
            return Ok(Self::caller());
        }
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw(), steps_down: true })
            .ok_or(EmbeddedError::NoUnprivilegedUser)
    }

    /// For a cluster that is there: its owner. (The user `postgres` may have appeared after a
    /// cluster was made as `nobody`.)
    fn for_cluster(cluster: &Path, owner: &Metadata) -> Result<Self, EmbeddedError> {
        let caller = Self::caller();
        if caller.uid == owner.uid() && caller.uid != 0 {
            return Ok(caller);
        }
        if caller.uid != 0 || owner.uid() == 0 {
            let me = if caller.uid == 0 { Self::for_new_cluster()?.name } else { caller.name };
            return Err(EmbeddedError::NotYours { folder: cluster.to_path_buf(), owner: name_of(owner.uid()), me });
        }
        Ok(Self { name: name_of(owner.uid()), uid: owner.uid(), gid: owner.gid(), steps_down: true })
    }

    fn caller() -> Self {
        let uid = Uid::effective();
        Self {
            name: name_of(uid.as_raw()),
            uid: uid.as_raw(),
            gid: nix::unistd::Gid::effective().as_raw(),
            steps_down: false,
        }
    }

    /// The name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// User and group to change to when the caller is root, nothing otherwise.
    #[must_use]
    pub fn step_down(&self) -> Option<(u32, u32)> {
        self.steps_down.then_some((self.uid, self.gid))
    }

    /// Gives a file or folder that we made to this user.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn give(&self, path: &Path) -> Result<(), EmbeddedError> {
        match self.step_down() {
            // Not following links: root must never hand out what a link points to.
            Some((uid, gid)) => {
                lchown(path, Some(uid), Some(gid)).map_err(EmbeddedError::system("change the owner of", path))
            }
            None => Ok(()),
        }
    }

    /// Checks that this user can get into `wanted`. Looks at permission bits only and in the order
    /// of the path, so that the message names the first closed door.
    ///
    /// # Errors
    /// When a folder on the way is closed.
    pub fn check_reach(&self, wanted: &Path, remedy: &'static str) -> Result<(), EmbeddedError> {
        if !self.steps_down {
            return Ok(());
        }
        let mut on_the_way: Vec<&Path> = wanted.ancestors().collect();
        on_the_way.reverse();
        for folder in on_the_way {
            let entry = fs::metadata(folder).map_err(EmbeddedError::system("look at", folder))?;
            if !self.may_enter(&entry) {
                return Err(EmbeddedError::Unreachable {
                    user: self.name.clone(),
                    closed: folder.to_path_buf(),
                    wanted: wanted.to_path_buf(),
                    remedy,
                });
            }
        }
        Ok(())
    }

    fn may_enter(&self, folder: &Metadata) -> bool {
        let needed = if folder.uid() == self.uid {
            0o100
        } else if folder.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        folder.mode() & needed != 0
    }

    fn owns(&self, entry: &Metadata) -> bool {
        entry.uid() == self.uid
    }
}

fn name_of(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("number {uid}"),
    }
}

/// The files of one data directory.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) data_dir: PathBuf,
    pub(super) cluster: PathBuf,
    pub(super) unfinished_cluster: PathBuf,
    pub(super) log: PathBuf,
    pub(super) users_lock: PathBuf,
    pub(super) start_lock: PathBuf,
    pub(super) socket_folder: PathBuf,
    socket_folder_is_borrowed: bool,
}

impl Layout {
    /// Makes the data directory when it is missing and checks that it can serve. Nothing is made
    /// when it can't.
    pub(super) fn prepare(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let data_dir =
            std::path::absolute(data_dir).map_err(EmbeddedError::system("make sense of the path", data_dir))?;
        let (existing, missing) = split_at_missing(&data_dir)?;
        if missing.is_empty() {
            let owner = fs::metadata(&existing).map_err(EmbeddedError::system("look at", &existing))?.uid();
            let me = Uid::effective().as_raw();
            if owner != me {
                return Err(EmbeddedError::NotYours { folder: existing, owner: name_of(owner), me: name_of(me) });
            }
        }
        ServerUser::for_new_cluster()?.check_reach(&existing, " in HAMYON_DATA_DIR")?;
        let data_dir = make_folders(existing, &missing)?;

        let run = data_dir.join("run");
        let short = short_socket_folder(&data_dir);
        let borrows = !fits_a_socket(&run);
        Ok(Self {
            cluster: data_dir.join(CLUSTER),
            unfinished_cluster: data_dir.join("postgres.new"),
            log: data_dir.join("postgres.log"),
            users_lock: data_dir.join("users.lock"),
            start_lock: data_dir.join("start.lock"),
            socket_folder: if borrows { short } else { run },
            socket_folder_is_borrowed: borrows,
            data_dir,
        })
    }

    /// Who runs the server here.
    pub(super) fn server_user(&self) -> Result<ServerUser, EmbeddedError> {
        match fs::symlink_metadata(&self.cluster) {
            Ok(entry) => ServerUser::for_cluster(&self.cluster, &entry),
            Err(missing) if missing.kind() == ErrorKind::NotFound => ServerUser::for_new_cluster(),
            Err(source) => Err(EmbeddedError::system("look at", &self.cluster)(source)),
        }
    }

    /// The major version in the cluster's `PG_VERSION`, or nothing when there is no cluster yet.
    pub(super) fn cluster_version(&self) -> Result<Option<String>, EmbeddedError> {
        let file = self.cluster.join("PG_VERSION");
        match fs::read_to_string(&file) {
            Ok(version) => Ok(Some(version.trim().to_owned())),
            Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EmbeddedError::system("read", &file)(source)),
        }
    }

    /// The socket's path.
    pub(super) fn socket(&self) -> PathBuf {
        self.socket_folder.join(format!(".s.PGSQL.{PORT}"))
    }

    /// Makes the socket folder, or checks the one that is there.
    pub(super) fn prepare_socket_folder(&self, user: &ServerUser) -> Result<(), EmbeddedError> {
        let folder = &self.socket_folder;
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => {}
            Err(there) if there.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(EmbeddedError::system("create", folder)(source)),
        }
        let entry = fs::symlink_metadata(folder).map_err(EmbeddedError::system("look at", folder))?;
        // Our own folder that we had no time to hand over is as good as a new one.
        let ours = user.owns(&entry) || entry.uid() == Uid::effective().as_raw();
        if !entry.is_dir() || !ours {
            return Err(EmbeddedError::SocketFolderTaken {
                data_dir: self.data_dir.clone(),
                folder: folder.clone(),
                user: user.name().to_owned(),
            });
        }
        if entry.mode() & 0o077 != 0 {
            fs::set_permissions(folder, Permissions::from_mode(0o700))
                .map_err(EmbeddedError::system("close", folder))?;
        }
        if user.owns(&entry) { Ok(()) } else { user.give(folder) }
    }

    /// Takes back what was put into /tmp. The folder in the data directory stays.
    pub(super) fn clear_borrowed_socket_folder(&self) {
        if self.socket_folder_is_borrowed && fs::remove_dir(&self.socket_folder).is_err() {
            tracing::debug!(folder = %self.socket_folder.display(), "the socket folder stays, it is not empty");
        }
    }
}

/// The longest part of `path` that exists, links resolved, and the names that are missing under it.
fn split_at_missing(path: &Path) -> Result<(PathBuf, Vec<PathBuf>), EmbeddedError> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        match fs::canonicalize(ancestor) {
            Ok(existing) => {
                missing.reverse();
                return Ok((existing, missing));
            }
            Err(absent) if absent.kind() == ErrorKind::NotFound => {
                missing.extend(ancestor.file_name().map(PathBuf::from));
            }
            Err(source) => return Err(EmbeddedError::system("look at", ancestor)(source)),
        }
    }
    Err(EmbeddedError::system("find a root above", path)(ErrorKind::NotFound.into()))
}

/// Makes the missing folders. For root they are passable, or the server's user couldn't get to its
/// cluster; the mode is set afterwards because a strict umask would take it away again.
fn make_folders(existing: PathBuf, missing: &[PathBuf]) -> Result<PathBuf, EmbeddedError> {
    let mode = if Uid::effective().is_root() { 0o711 } else { 0o700 };
    let mut folder = existing;
    for name in missing {
        folder.push(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                fs::set_permissions(&folder, Permissions::from_mode(mode))
                    .map_err(EmbeddedError::system("open", &folder))?;
            }
            // Another process of ours may be just as new.
            Err(there) if there.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(EmbeddedError::system("create", &folder)(source)),
        }
    }
    Ok(folder)
}

/// Whether a socket in this folder can be named: short enough, and without letters that end a name
/// in the lists of the server's settings (`"`) or of its clients' URLs (`,`).
fn fits_a_socket(folder: &Path) -> bool {
    let length = folder.join(format!(".s.PGSQL.{PORT}")).as_os_str().len();
    let plain = folder.to_str().is_some_and(|path| !path.contains(['"', ',', '\n', '\r']));
    length <= SOCKET_PATH_BYTES_MAX && plain
}

/// A folder in /tmp that every process finds from the data directory alone. Not `TMPDIR`: it may
/// differ from one process to the next. Its name can be guessed, so its owner is checked.
fn short_socket_folder(data_dir: &Path) -> PathBuf {
    let digest = Sha256::digest(data_dir.as_os_str().as_bytes());
    let start: [u8; 8] = std::array::from_fn(|index| digest.get(index).copied().unwrap_or_default());
    let name = u64::from_be_bytes(start);
    PathBuf::from(format!("/tmp/hamyon-{name:016x}"))
}
