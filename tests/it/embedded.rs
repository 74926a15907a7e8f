//! The private server: whoever types `hamyon serve` gets a database, shares it with the other
//! processes on the same data directory, and loses neither data nor a server to whatever way a
//! process ends.
//!
//! Processes that are killed have to be processes: [`helper_process`] is run as a program of its
//! own, from this very binary.

mod ends;
mod starts;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hamyon::db::embedded::{self, Embedded, Options};
use nix::unistd::{Uid, User};
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;

use crate::support::cluster;

const WAIT_MAX: Duration = Duration::from_mins(1);
const POLL_STEP: Duration = Duration::from_millis(20);

/// Marks the lines of the helper process among those of the test runner.
const MARK: &str = "helper says: ";
const HELPER_ACTION: &str = "HAMYON_TEST_HELPER_ACTION";
const HELPER_FOLDER: &str = "HAMYON_TEST_HELPER_FOLDER";

// The other process.

/// Not a test: the body of [`Helper`], told by the environment what to do.
#[tokio::test]
async fn helper_process() {
    let (Some(action), Some(folder)) = (std::env::var_os(HELPER_ACTION), std::env::var_os(HELPER_FOLDER)) else {
        return;
    };
    if action == "share" {
        println!("{MARK}{}", cluster::cluster().await.socket_dir().unwrap().display());
        wait_for_a_line();
        return;
    }
    match embedded::start(options(Path::new(&folder))).await {
        Ok(server) => {
            println!("{MARK}{:?}", server.origin());
            wait_for_a_line();
            println!("{MARK}{:?}", server.stop().await.unwrap());
        }
        Err(error) => println!("{MARK}{error}"),
    }
}

fn wait_for_a_line() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Another process that uses the server.
struct Helper {
    child: KilledAtTheEnd,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The copy of this program that another user can read.
    _program: Option<TempDir>,
}

impl Helper {
    fn spawn(action: &str, folder: &Path) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), action, folder, None)
    }

    fn spawn_as(user: &User, action: &str, folder: &Path) -> Self {
        // The build folder may be under /root.
        let readable = data_folder();
        let program = readable.path().join("tests");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(program);
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir("/");
        Self::run(command, action, folder, Some(readable))
    }

    fn run(mut command: Command, action: &str, folder: &Path, program: Option<TempDir>) -> Self {
        let mut child = command
            .args(["--exact", "embedded::helper_process", "--nocapture"])
            .env(HELPER_ACTION, action)
            .env(HELPER_FOLDER, folder)
            .env_remove("DATABASE_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child: KilledAtTheEnd(child), stdin, stdout, _program: program }
    }

    /// The next thing the helper says.
    fn heard(&mut self) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("the helper ended without a word");
    }

    fn say(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").unwrap();
    }

    fn kill(&mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }
}

/// A process that must not outlive its test, however that ends.
struct KilledAtTheEnd(Child);

impl Drop for KilledAtTheEnd {
    fn drop(&mut self) {
        // One that has ended by itself can't be killed any more, which is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

// Small tools.

/// A folder that the server's user can pass, and that is removed at the end.
fn data_folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("hamyon-test-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .unwrap()
}

fn options(data_dir: &Path) -> Options {
    Options::new(data_dir).extra_settings(&[("fsync", "off")])
}

async fn start(data_dir: &Path) -> Embedded {
    embedded::start(options(data_dir)).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn connect(server: &Embedded) -> sqlx::PgConnection {
    let options: PgConnectOptions = server.connect_options(embedded::SUPERUSER, embedded::DATABASE);
    options.connect().await.unwrap()
}

fn pid_file(data_dir: &Path) -> String {
    fs::read_to_string(data_dir.join("postgres/postmaster.pid")).unwrap()
}

fn server_pid(data_dir: &Path) -> i32 {
    pid_file(data_dir).lines().next().unwrap().parse().unwrap()
}

/// Alive, and not just waiting to be collected by its parent.
fn is_running(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|line| line.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with('Z')))
}

fn poll(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_MAX, "waited in vain: {what}");
        std::thread::sleep(POLL_STEP);
    }
}

/// Another user to be; only root can.
fn nobody() -> Option<User> {
    if Uid::effective().is_root() { User::from_name("nobody").unwrap() } else { None }
}
