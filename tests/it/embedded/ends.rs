//! How a private server ends: by its last user, by a stop that somebody comes into, or in a way that nobody planned.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hamyon::db::embedded::{self, Embedded, Origin, ServerUser, Stopped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use sqlx::{ConnectOptions, Connection};

use crate::support::cluster;

use super::{
    Helper, KilledAtTheEnd, POLL_STEP, connect, data_folder, is_running, options, pid_file, poll, server_pid, start,
};

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
async fn a_program_that_is_being_run_keeps_no_lock_of_ours() {
    // At stake: a child shares every open file of ours until it has become its program. A lock that ended with the
    // last copy of its file only would outlive us there: the next one finds it taken, and the server stays.
    let folder = data_folder();
    // It ends with the test, also with one that fails.
    let wanted = Arc::new(());
    let runners: Vec<_> = (0..4)
        .map(|_| {
            let wanted = Arc::downgrade(&wanted);
            std::thread::spawn(move || {
                while wanted.strong_count() > 0 {
                    // With a user to become it is forked, and not made in one step with its program.
                    let ended = Command::new("true").uid(Uid::effective().as_raw()).status().unwrap();
                    assert!(ended.success());
                }
            })
        })
        .collect();
    for _ in 0..12 {
        let forgotten = start(folder.path()).await;
        let pid = server_pid(folder.path());
        drop(forgotten);
        poll("the server ends", || !is_running(pid));
    }
    drop(wanted);
    for runner in runners {
        runner.join().unwrap();
    }
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
