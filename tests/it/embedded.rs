//! The private server: whoever types `hamyon serve` gets a database, shares it with the other
//! processes on the same data directory, and loses neither data nor a server to whatever way a
//! process ends.
//!
//! Processes that are killed have to be processes: [`helper_process`] is run as a program of its
//! own, from this very binary.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hamyon::db::embedded::{self, Embedded, EmbeddedError, Options, Origin, ServerUser, Stopped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, getpgid};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use crate::support::cluster;

const WAIT_MAX: Duration = Duration::from_mins(1);
const POLL_STEP: Duration = Duration::from_millis(20);

/// Marks the lines of the helper process among those of the test runner.
const MARK: &str = "helper says: ";
const HELPER_ACTION: &str = "HAMYON_TEST_HELPER_ACTION";
const HELPER_FOLDER: &str = "HAMYON_TEST_HELPER_FOLDER";

// What is started, and who can get at it.

#[tokio::test]
async fn the_first_start_makes_a_database_that_nobody_else_can_reach() {
    // At stake: a superuser without a password must not be open to other users of the machine, nor
    // to the network.
    let folder = data_folder();
    let server = start(folder.path()).await;
    assert_eq!(server.origin(), Origin::Started);

    let facts: (String, String, String, String, String, String) = sqlx::query_as(
        "SELECT current_database()::text, current_setting('listen_addresses'), current_setting('data_checksums'),
                current_setting('server_encoding'), current_setting('timezone'), current_setting('max_connections')",
    )
    .fetch_one(&mut connect(&server).await)
    .await
    .unwrap();
    let expected = ("hamyon", "", "on", "UTF8", "UTC", "200");
    assert_eq!((&*facts.0, &*facts.1, &*facts.2, &*facts.3, &*facts.4, &*facts.5), expected);

    let socket_folder = fs::metadata(server.socket_folder()).unwrap();
    assert_eq!(socket_folder.mode() & 0o777, 0o700, "only its owner can enter the socket folder");

    let pid = server_pid(folder.path());
    assert_eq!(
        getpgid(Some(Pid::from_raw(pid))).unwrap().as_raw(),
        pid,
        "Ctrl-C on our terminal does not reach the server"
    );
    let owner = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
    if Uid::effective().is_root() {
        assert_ne!(owner, 0, "root has stepped down");
        let groups = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let groups = groups.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap().trim().to_owned();
        assert_eq!(groups, "", "and has given up its groups");
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("CARGO"), "our environment, which holds secrets, is not the server's");
    }
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
    poll("the server is gone", || !is_running(pid));
}

#[tokio::test]
async fn what_was_stored_is_there_after_the_next_start() {
    // At stake: money. A second start must open the first one's cluster, not make another.
    let folder = data_folder();
    let server = start(folder.path()).await;
    sqlx::query("CREATE TABLE kept AS SELECT 15000 AS tiyin").execute(&mut connect(&server).await).await.unwrap();
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);

    let server = start(folder.path()).await;
    let tiyin: i32 = sqlx::query_scalar("SELECT tiyin FROM kept").fetch_one(&mut connect(&server).await).await.unwrap();
    assert_eq!(tiyin, 15000);
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
}

#[tokio::test]
async fn the_url_serves_sqlx_and_psql() {
    // At stake: an operator who copies the URL into psql must land in the right database, also from
    // a folder with odd letters.
    let folder = data_folder();
    let server = start(&folder.path().join("moliya 'ҳамён' 100% & co")).await;
    assert!(server.socket_folder().starts_with(folder.path()));
    check_url(server).await;
    // A comma separates hosts in a URL, and a quote ends a name in a setting: the socket has to be
    // elsewhere.
    check_url(start(&folder.path().join("a,\"b\"")).await).await;
}

async fn check_url(server: Embedded) {
    let url = server.url("postgres", "hamyon");

    let database: String = sqlx::query_scalar("SELECT current_database()::text")
        .fetch_one(&mut sqlx::PgConnection::connect(&url).await.unwrap())
        .await
        .unwrap();
    assert_eq!(database, "hamyon");
    // psql may be absent where the server was found by HAMYON_POSTGRES_BIN.
    if let Ok(psql) = Command::new("psql").args(["-XAtc", "SELECT current_database()", &url]).output() {
        assert_eq!(String::from_utf8_lossy(&psql.stdout), "hamyon\n", "{}", String::from_utf8_lossy(&psql.stderr));
    }
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_gets_a_short_one_under_tmp() {
    // At stake: Linux cuts socket paths at 107 bytes; a deep home directory must not make the start
    // fail.
    let folder = data_folder();
    let deep = folder.path().join("d".repeat(60)).join("e".repeat(60));
    let server = start(&deep).await;
    let socket_folder = server.socket_folder().to_path_buf();
    assert!(socket_folder.starts_with("/tmp") && !socket_folder.starts_with(folder.path()));
    assert_eq!(fs::metadata(&socket_folder).unwrap().mode() & 0o777, 0o700);
    connect(&server).await.ping().await.unwrap();

    let joined = start(&deep).await;
    assert_eq!(joined.origin(), Origin::Joined, "another process finds the same folder");
    assert_eq!(joined.stop().await.unwrap(), Stopped::LeftToOthers);
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
    assert!(!socket_folder.exists(), "nothing stays behind in /tmp");
}

#[tokio::test]
async fn a_socket_folder_under_tmp_that_is_not_ours_is_refused() {
    // At stake: its name can be guessed, so somebody else may have made it, to sit between us and
    // the database.
    if !Uid::effective().is_root() {
        return;
    }
    let folder = data_folder();
    let deep = folder.path().join("d".repeat(60)).join("e".repeat(60));
    let server = start(&deep).await;
    let socket_folder = server.socket_folder().to_path_buf();
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);

    std::os::unix::fs::symlink(folder.path(), &socket_folder).unwrap();
    let link = embedded::start(options(&deep)).await;
    fs::remove_file(&socket_folder).unwrap();
    assert!(matches!(link, Err(EmbeddedError::SocketFolderTaken { .. })), "{link:?}");

    fs::create_dir(&socket_folder).unwrap();
    chown(&socket_folder, Some(12345), Some(12345)).unwrap();
    let strangers = embedded::start(options(&deep)).await;
    fs::remove_dir(&socket_folder).unwrap();
    assert!(matches!(strangers, Err(EmbeddedError::SocketFolderTaken { .. })), "{strangers:?}");
}

// Several users of one server.

#[tokio::test]
async fn the_last_user_stops_the_server_whoever_started_it() {
    // At stake: `serve` ends while `verify` still reads: the database must stay until `verify` is
    // through, and not for ever.
    let folder = data_folder();
    let first = start(folder.path()).await;
    let pid = server_pid(folder.path());
    let mut second = Helper::spawn("use", folder.path());
    assert_eq!(second.heard(), "Joined");

    assert_eq!(first.stop().await.unwrap(), Stopped::LeftToOthers);
    assert!(is_running(pid));
    second.say("stop");
    assert_eq!(second.heard(), "Server");
    poll("the server is gone", || !is_running(pid));
}

#[tokio::test]
async fn starts_at_the_same_time_share_one_server() {
    // At stake: two processes that both find nothing must not both run initdb.
    let folder = data_folder();
    let servers = futures::future::join_all((0..6).map(|_| start(folder.path()))).await;
    let started = servers.iter().filter(|server| server.origin() == Origin::Started).count();
    assert_eq!(started, 1);
    let ends = futures::future::join_all(servers.into_iter().map(Embedded::stop)).await;
    let stopped = ends.into_iter().filter(|end| matches!(end, Ok(Stopped::Server))).count();
    assert_eq!(stopped, 1);
}

#[tokio::test]
async fn a_newcomer_during_the_stop_gets_a_server() {
    // At stake: a restart by a supervisor overlaps with the old process's stop; the new one must
    // not be left with a dying server.
    let folder = data_folder();
    let mut server = start(folder.path()).await;
    for _ in 0..8 {
        let (end, next) = tokio::join!(server.stop(), start(folder.path()));
        // Either order is right, as long as the two agree.
        let expected = if next.origin() == Origin::Started { Stopped::Server } else { Stopped::LeftToOthers };
        assert_eq!(end.unwrap(), expected);
        connect(&next).await.ping().await.unwrap();
        server = next;
    }
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
}

#[tokio::test]
async fn a_server_that_others_ask_to_stop_is_started_anew() {
    // At stake: a server found in the middle of its stop still has its pid file; joining it would
    // mean losing it at once.
    let folder = data_folder();
    let server = start(folder.path()).await;
    let session = connect(&server).await;
    // This signal asks for a stop as soon as the last session has ended.
    kill(Pid::from_raw(server_pid(folder.path())), Signal::SIGTERM).unwrap();
    poll("the server is stopping", || pid_file(folder.path()).contains("stopping"));

    let mut next = std::pin::pin!(start(folder.path()));
    let too_early = tokio::time::timeout(Duration::from_millis(500), &mut next).await;
    assert!(too_early.is_err(), "a server that is stopping is not joined");
    session.close().await.unwrap();
    let next = next.await;
    assert_eq!(next.origin(), Origin::Started);
    connect(&next).await.ping().await.unwrap();
    assert_eq!(server.stop().await.unwrap(), Stopped::LeftToOthers);
    assert_eq!(next.stop().await.unwrap(), Stopped::Server);
}

// Ends that nobody planned.

#[tokio::test]
async fn a_server_left_by_a_killed_process_is_used_again_and_stopped() {
    // At stake: after `kill -9` of `serve` its server runs on. It must neither block the next start
    // nor run for ever.
    let folder = data_folder();
    let mut killed = Helper::spawn("use", folder.path());
    assert_eq!(killed.heard(), "Started");
    let pid = server_pid(folder.path());
    killed.kill();
    assert!(is_running(pid));

    let server = start(folder.path()).await;
    assert_eq!(server.origin(), Origin::Joined);
    assert_eq!(server_pid(folder.path()), pid);
    assert_eq!(server.stop().await.unwrap(), Stopped::Server, "the killed process does not count as a user");
    poll("the server is gone", || !is_running(pid));
}

#[tokio::test]
async fn a_user_that_forgets_to_stop_leaves_no_server_behind() {
    // At stake: a panic drops the server's handle. That must neither hang nor leave the server.
    let folder = data_folder();
    let forgotten = start(folder.path()).await;
    let pid = server_pid(folder.path());
    let began = Instant::now();
    drop(forgotten);
    assert!(began.elapsed() < Duration::from_secs(1), "dropping waits for nothing");
    poll("the server ends", || !is_running(pid));
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_server_behind() {
    // At stake: Ctrl-C during the start drops its future at any point.
    let folder = data_folder();
    assert_eq!(start(folder.path()).await.stop().await.unwrap(), Stopped::Server);
    for given_up_after_ms in [0, 5, 15, 30, 60, 90] {
        let given_up =
            tokio::time::timeout(Duration::from_millis(given_up_after_ms), embedded::start(options(folder.path())))
                .await;
        drop(given_up);
    }
    let server = start(folder.path()).await;
    connect(&server).await.ping().await.unwrap();
    let pid = server_pid(folder.path());
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
    poll("the server is gone", || !is_running(pid));
}

#[tokio::test]
async fn a_crashed_server_is_started_anew_and_recovers() {
    // At stake: after a power cut there is a pid file of a process that is gone, and committed
    // money in the log only.
    let folder = data_folder();
    let server = start(folder.path()).await;
    sqlx::query("CREATE TABLE kept AS SELECT 15000 AS tiyin").execute(&mut connect(&server).await).await.unwrap();
    let pid = server_pid(folder.path());
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    poll("the server is dead", || !is_running(pid));

    let next = start(folder.path()).await;
    assert_eq!(next.origin(), Origin::Started);
    let tiyin: i32 = sqlx::query_scalar("SELECT tiyin FROM kept").fetch_one(&mut connect(&next).await).await.unwrap();
    assert_eq!(tiyin, 15000);
    assert_eq!(server.stop().await.unwrap(), Stopped::LeftToOthers);
    assert_eq!(next.stop().await.unwrap(), Stopped::Server);
}

#[tokio::test]
async fn a_pid_file_that_names_another_program_is_seen_through() {
    // At stake: after a reboot the old process id belongs to something else. That must not be taken
    // for the server, nor be killed.
    let folder = data_folder();
    assert_eq!(start(folder.path()).await.stop().await.unwrap(), Stopped::Server);
    let user = ServerUser::for_new_cluster().unwrap();
    let mut innocent = Command::new("sleep");
    if let Some((uid, gid)) = user.step_down() {
        innocent.uid(uid).gid(gid);
    }
    let mut innocent = KilledAtTheEnd(innocent.arg("600").stdout(Stdio::null()).spawn().unwrap());
    let pid_file = folder.path().join("postgres/postmaster.pid");
    fs::write(&pid_file, format!("{}\n{}\n1700000000\n5432\n", innocent.0.id(), folder.path().display())).unwrap();
    user.give(&pid_file).unwrap();

    let server = start(folder.path()).await;
    assert_eq!(server.origin(), Origin::Started);
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
    assert!(innocent.0.try_wait().unwrap().is_none(), "the other program is still there");

    fs::write(&pid_file, "").unwrap();
    user.give(&pid_file).unwrap();
    let server = start(folder.path()).await;
    assert_eq!(server.origin(), Origin::Started, "an empty pid file, as a full disk leaves it, is no obstacle either");
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
}

#[tokio::test]
async fn an_interrupted_initdb_is_begun_again() {
    // At stake: Ctrl-C during the very first start must not leave a data directory that no later
    // start can use.
    let folder = data_folder();
    let half_made = folder.path().join("postgres.new");
    fs::create_dir_all(half_made.join("base/1")).unwrap();
    fs::write(half_made.join("PG_VERSION"), "15\n").unwrap();
    fs::create_dir(folder.path().join("postgres")).unwrap();
    ServerUser::for_new_cluster().unwrap().give(&folder.path().join("postgres")).unwrap();

    let server = start(folder.path()).await;
    connect(&server).await.ping().await.unwrap();
    assert!(!half_made.exists());
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
}

// Refusals, in words.

#[tokio::test]
async fn a_folder_with_something_else_in_it_is_left_alone() {
    // At stake: somebody's files. A wrong data directory must not be emptied for a cluster.
    let folder = data_folder();
    let precious = folder.path().join("postgres/precious");
    fs::create_dir(precious.parent().unwrap()).unwrap();
    fs::write(&precious, "data").unwrap();
    ServerUser::for_new_cluster().unwrap().give(precious.parent().unwrap()).unwrap();

    let error = embedded::start(options(folder.path())).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::NotACluster { .. }), "{error}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
}

#[tokio::test]
async fn a_cluster_of_another_version_is_named() {
    // At stake: after an upgrade of the machine, "the database files are incompatible" in some log
    // helps nobody.
    let folder = data_folder();
    assert_eq!(start(folder.path()).await.stop().await.unwrap(), Stopped::Server);
    fs::write(folder.path().join("postgres/PG_VERSION"), "9\n").unwrap();
    let error = embedded::start(options(folder.path())).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::OtherVersion { .. }), "{error}");
    assert!(error.to_string().contains("postgresql-9"), "{error}");
}

#[tokio::test]
async fn a_missing_server_is_named_with_the_remedy() {
    // At stake: the first five minutes of a newcomer.
    let folder = data_folder();
    let options = options(&folder.path().join("new")).postgres_bin(Some(folder.path().to_path_buf()));
    let error = embedded::start(options).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::NoServerInFolder { .. }), "{error}");
    assert!(error.to_string().contains("apt-get install postgresql"), "{error}");
    assert!(!folder.path().join("new").exists(), "nothing was written");
}

#[tokio::test]
async fn a_setting_the_server_refuses_is_shown() {
    // At stake: the reason is in a log file that nobody knows of yet; the error has to bring it
    // along.
    let folder = data_folder();
    let error = embedded::start(options(folder.path()).extra_settings(&[("work_mem", "plenty")])).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::Died { .. }), "{error}");
    assert!(error.to_string().contains("work_mem"), "{error}");
}

#[tokio::test]
async fn root_is_told_which_folder_the_server_cannot_pass() {
    // At stake: a data directory under /root. "Permission denied" from inside initdb would be a
    // riddle.
    if !Uid::effective().is_root() {
        return;
    }
    let folder = data_folder();
    let shut = folder.path().join("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, Permissions::from_mode(0o700)).unwrap();

    let error = embedded::start(options(&shut.join("hamyon"))).await.unwrap_err();
    assert!(matches!(&error, EmbeddedError::Unreachable { closed, .. } if *closed == shut), "{error}");
    assert!(error.to_string().contains(&format!("chmod o+x {}", shut.display())), "{error}");
    assert!(fs::read_dir(&shut).unwrap().next().is_none(), "nothing was written");
}

#[tokio::test]
async fn root_and_another_user_do_not_trip_over_each_other() {
    // At stake: one `sudo hamyon verify` in a user's data directory, and the user can never start
    // again.
    let Some(nobody) = nobody() else { return };
    let folder = data_folder();
    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
    let error = embedded::start(options(&theirs)).await.unwrap_err();
    assert!(matches!(&error, EmbeddedError::NotYours { owner, .. } if *owner == nobody.name), "{error}");
    assert!(fs::read_dir(&theirs).unwrap().next().is_none(), "nothing was written");

    let ours = folder.path().join("ours");
    let server = start(&ours).await;
    let mut helper = Helper::spawn_as(&nobody, "use", &ours);
    let heard = helper.heard();
    assert!(heard.contains("belongs to the user root"), "{heard}");
    assert_eq!(server.stop().await.unwrap(), Stopped::Server);
}

#[tokio::test]
async fn an_ordinary_user_needs_no_root() {
    // At stake: the usual case on a developer's machine, which a test run as root would never see.
    let Some(nobody) = nobody() else { return };
    let folder = data_folder();
    chown(folder.path(), Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
    let data_dir = folder.path().join("share/hamyon");
    let mut helper = Helper::spawn_as(&nobody, "use", &data_dir);
    assert_eq!(helper.heard(), "Started");
    assert_eq!(fs::metadata(&data_dir).unwrap().mode() & 0o777, 0o700);
    let pid = server_pid(&data_dir);
    assert_eq!(fs::metadata(format!("/proc/{pid}")).unwrap().uid(), nobody.uid.as_raw());
    helper.say("stop");
    assert_eq!(helper.heard(), "Server");
    poll("the server is gone", || !is_running(pid));
}

// The server that the tests share.

#[tokio::test]
async fn the_test_server_ends_with_the_test_process() {
    // At stake: a test run that is killed must not leave servers on the developer's machine, day
    // after day.
    let folder = data_folder();
    let mut helper = Helper::spawn("share", folder.path());
    let socket_folder = PathBuf::from(helper.heard());
    assert!(socket_folder.join(".s.PGSQL.5432").exists());
    helper.kill();
    poll("the server's folder is gone", || !socket_folder.exists());
}

#[tokio::test]
async fn each_test_gets_a_database_of_its_own() {
    // At stake: tests that see each other's rows fail by the day of the week; and a template is
    // copied while others copy it, too.
    let cluster = cluster::cluster().await;
    let template = cluster.create_database_from(None).await;
    let mut session = cluster.superuser_options(&template).connect().await.unwrap();
    sqlx::query("CREATE TABLE kept AS SELECT 15000 AS tiyin").execute(&mut session).await.unwrap();

    let copies = futures::future::join_all((0..4).map(|_| cluster.create_database_from(Some(&template))));
    let (copies, ()) = tokio::join!(copies, async {
        tokio::time::sleep(POLL_STEP).await;
        session.close().await.unwrap();
    });
    for copy in copies {
        let mut session = sqlx::PgConnection::connect(&cluster.url("postgres", &copy)).await.unwrap();
        let tiyin: i32 = sqlx::query_scalar("SELECT tiyin FROM kept").fetch_one(&mut session).await.unwrap();
        assert_eq!(tiyin, 15000);
    }
}

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
