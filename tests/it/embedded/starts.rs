//! How the private server comes to be: who can get at it, where its files are, and in which words a start is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use hamyon::db::embedded::{self, Embedded, EmbeddedError, Origin, ServerUser, Stopped};
use nix::unistd::{Pid, Uid, getpgid};
use sqlx::Connection;

use super::{Helper, connect, data_folder, is_running, nobody, options, poll, server_pid, start};

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
