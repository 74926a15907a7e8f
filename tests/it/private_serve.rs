//! `hamyon serve` without a database of its own to be given: the server it starts must be there for the other
//! commands, must end with it, and must survive it when it is killed. Whoever stops Hamyon must not find a
//! PostgreSQL left running, and whoever kills it must not find money gone.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::process::{Serving, eventually, hamyon, run, said, serve};

#[tokio::test]
async fn other_commands_attach_to_the_server_and_sigterm_leaves_none_behind() {
    let folder = DataFolder::new();
    let serving = Serving::launch(folder.of(serve())).await;
    serving.tenant("acme").await;
    let (status, answer) = serving.get("/readyz").await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let server = folder.server_pid();

    let verified = run(folder.of(hamyon()).arg("verify")).await;
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
    assert!(said(&verified).contains("1 wallets"), "the same book: {}", said(&verified));
    let made = run(folder.of(hamyon()).args(["token", "create", "--client", "shop"])).await;
    assert_eq!(made.status.code(), Some(0), "{}", said(&made));
    let token = String::from_utf8(made.stdout).unwrap();
    let balance = format!("{}/v1/tenants/acme/balance", serving.url);
    let answer = serving.client.get(balance).bearer_auth(token.trim()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(folder.server_pid(), server, "the commands used the server that ran");

    serving.stop().await;
    assert!(!folder.pid_file().exists());
    assert!(!is_running(server));

    // A command alone starts the server and ends it.
    let verified = run(folder.of(hamyon()).arg("verify")).await;
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
    assert!(said(&verified).contains("1 wallets"), "{}", said(&verified));
    assert!(!folder.pid_file().exists());
}

#[tokio::test]
async fn after_kill_9_the_next_serve_uses_the_server_that_is_still_there() {
    let folder = DataFolder::new();
    let serving = Serving::launch(folder.of(serve())).await;
    serving.tenant("acme").await;
    let server = folder.server_pid();
    serving.kill().await;
    assert!(is_running(server), "a killed process takes no server with it");

    let serving = Serving::launch(folder.of(serve())).await;
    assert_eq!(folder.server_pid(), server);
    let (status, answer) = serving.get("/v1/tenants/acme").await.unwrap();
    assert_eq!(status, 200, "{answer}");
    serving.stop().await;
    assert!(!is_running(server));
}

#[tokio::test]
async fn ctrl_c_at_a_terminal_reaches_the_whole_group_and_still_ends_in_order() {
    let folder = DataFolder::new();
    let mut command = folder.of(serve());
    command.process_group(0);
    let serving = Serving::launch(command).await;
    serving.tenant("acme").await;
    let server = folder.server_pid();
    let group = Pid::from_raw(serving.pid().checked_neg().unwrap());
    kill(group, Signal::SIGINT).unwrap();
    let (status, said) = serving.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!is_running(server));
    assert!(!folder.pid_file().exists(), "the server had the time to write everything down");
}

#[tokio::test]
async fn a_signal_while_it_starts_leaves_no_server_behind() {
    let folder = DataFolder::new();
    let mut child = folder.of(serve()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the cluster is being made", async || folder.cluster().exists()).await;
    kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = tokio::time::timeout(crate::support::process::WAIT_MAX, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    eventually("no server is left", async || !folder.pid_file().exists()).await;
}

/// Nothing heals it from inside: whoever watches over the process starts it again, and the next start recovers.
#[tokio::test]
async fn a_server_that_is_killed_under_serve_ends_it_with_a_word_and_a_bad_exit() {
    let folder = DataFolder::new();
    let serving = Serving::launch(folder.of(serve())).await;
    serving.tenant("acme").await;
    kill(Pid::from_raw(folder.server_pid()), Signal::SIGKILL).unwrap();
    let (status, said) = serving.ended().await;
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("has ended, and hamyon did not stop it"), "{said}");
    assert!(said.contains(&folder.path().join("postgres.log").display().to_string()), "{said}");

    let serving = Serving::launch(folder.of(serve())).await;
    let (status, answer) = serving.get("/v1/tenants/acme").await.unwrap();
    assert_eq!(status, 200, "{answer}");
    serving.stop().await;
}

/// Asked about the wrong place, they would find a new and empty book and praise it.
#[tokio::test]
async fn only_serve_and_migrate_make_a_database_where_there_is_none() {
    let folder = DataFolder::new();
    let empty = folder.path().join("typo");
    let commands: [(&[&str], i32); 9] = [
        (&["verify"], 2),
        (&["token", "create", "--client", "shop"], 1),
        (&["token", "list"], 1),
        (&["token", "revoke", "1"], 1),
        (&["fees", "run"], 1),
        (&["fees", "status"], 1),
        (&["fees", "plan", "standard", "--name", "Standard", "--price", "1.00"], 1),
        (&["staff", "list"], 1),
        (&["staff", "add", "olim", "--role", "admin"], 1),
    ];
    for made in [false, true] {
        if made {
            fs::create_dir(&empty).unwrap();
        }
        for (command, code) in commands {
            let ended = run(hamyon().args(command).env("HAMYON_DATA_DIR", &empty)).await;
            let said = said(&ended);
            assert_eq!(ended.status.code(), Some(code), "{command:?}: {said}");
            for words in [&*empty.display().to_string(), "HAMYON_DATA_DIR", "hamyon serve", "hamyon migrate"] {
                assert!(said.contains(words), "{command:?} must say {words:?}: {said}");
            }
            assert_eq!(fs::read_dir(&empty).map_or(0, Iterator::count), 0, "{command:?} made something");
            assert_eq!(empty.exists(), made, "{command:?} made a folder");
        }
    }
    let migrated = run(hamyon().arg("migrate").env("HAMYON_DATA_DIR", &empty)).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", said(&migrated));
    let verified = run(hamyon().arg("verify").env("HAMYON_DATA_DIR", &empty)).await;
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}

/// A data directory that the server's user can pass. What still runs in it at the end is stopped.
pub struct DataFolder(TempDir);

impl DataFolder {
    pub fn new() -> Self {
        let mut builder = tempfile::Builder::new();
        Self(builder.prefix("hamyon-test-").permissions(Permissions::from_mode(0o755)).tempdir_in("/tmp").unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn of(&self, mut command: Command) -> Command {
        command.env("HAMYON_DATA_DIR", self.path());
        command
    }

    fn cluster(&self) -> PathBuf {
        self.path().join("postgres")
    }

    pub fn pid_file(&self) -> PathBuf {
        self.cluster().join("postmaster.pid")
    }

    pub fn server_pid(&self) -> i32 {
        fs::read_to_string(self.pid_file()).unwrap().lines().next().unwrap().parse().unwrap()
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        let text = fs::read_to_string(self.pid_file()).unwrap_or_default();
        if let Some(pid) = text.lines().next().and_then(|line| line.parse::<i32>().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
    }
}

/// Alive, and not just waiting to be collected by its parent.
fn is_running(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|line| line.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with('Z')))
}
