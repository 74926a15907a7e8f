//! C95: a database that is gone, or that hangs without a word, must not make callers hang. `/v1` says 503 and
//! Payme gets its -32400, each in a bounded time; once the database is back, a repeat with the same key is
//! booked once.

use std::fs;
use std::time::Duration;

use hamyon::db::embedded::{self, Embedded, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use crate::private_serve::DataFolder;
use crate::support::process::{Serving, creation, credits, eventually, hamyon, post_call, run, said};

/// Beyond this a caller would have hung: well above each bound of the service (3 s for a connection, 20 s for
/// an answer), so that a slow machine fails no test.
const HANGS: Duration = Duration::from_secs(50);

/// More than there are calls below.
const CONNECTIONS: usize = 12;

#[tokio::test]
async fn c95_a_stopped_database_is_answered_503_and_a_repeat_is_booked_once() {
    let folder = DataFolder::new();
    let database = start(&folder).await;
    let serving = Serving::start(&url(&database), &[]).await;
    serving.tenant("acme").await;
    let (status, _) = serving.get("/readyz").await.unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(database.stop().await.unwrap(), embedded::Stopped::Server);

    unavailable(&serving).await;

    let database = start(&folder).await;
    recovered(&serving).await;
    serving.stop().await;
    clean(&url(&database)).await;
    assert_eq!(database.stop().await.unwrap(), embedded::Stopped::Server);
}

#[tokio::test]
async fn c95_a_hanging_database_is_answered_503_and_a_repeat_is_booked_once() {
    let folder = DataFolder::new();
    let database = start(&folder).await;
    let serving = Serving::start(&url(&database), &[]).await;
    serving.tenant("acme").await;
    let ending = Serving::start(&url(&database), &[]).await;
    // Every call finds an open connection, and is left alone on it. One batch is in the middle of its work.
    let mut session = database.connect_options(embedded::SUPERUSER, embedded::DATABASE).connect().await.unwrap();
    open_connections(&serving, &database, &mut session).await;
    let mut holding = session.begin().await.unwrap();
    sqlx::query("LOCK TABLE wallets").execute(&mut *holding).await.unwrap();
    let caller = {
        let (client, url, body) = (ending.client.clone(), ending.url.clone(), credits("acme", &one_and_two(), "1.00"));
        tokio::spawn(async move { post_call(&client, &url, "/v1/transactions/batch", Some("K0"), &body).await })
    };
    waiting(&database, 1).await;
    let frozen = Frozen::new(folder.server_pid());

    // A hanging database does not keep the service from ending, either.
    ending.signal(Signal::SIGTERM);
    let (ended, ()) = tokio::join!(ending.ended(), unavailable(&serving));
    assert_eq!(ended.0.code(), Some(1), "work was left, and the exit says so: {}", ended.1);
    let (status, answer) = caller.await.unwrap().expect("the caller was told before");
    assert_eq!((status, &answer["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("timed_out")), "{answer}");

    drop(frozen);
    drop(holding);
    session.close().await.unwrap();
    recovered(&serving).await;
    serving.stop().await;
    clean(&url(&database)).await;
    assert_eq!(database.stop().await.unwrap(), embedded::Stopped::Server);
}

/// Makes the service open as many connections as it may need below: they all wait for one lock.
async fn open_connections(serving: &Serving, database: &Embedded, session: &mut PgConnection) {
    let mut holding = session.begin().await.unwrap();
    sqlx::query("LOCK TABLE wallets").execute(&mut *holding).await.unwrap();
    let callers = (0..CONNECTIONS).map(|_| serving.get("/v1/tenants/acme/balance"));
    let release = async {
        waiting(database, CONNECTIONS).await;
        holding.rollback().await.unwrap();
    };
    let (answers, ()) = tokio::join!(futures::future::join_all(callers), release);
    for answer in answers {
        assert_eq!(answer.unwrap().0, StatusCode::OK);
    }
}

/// Waits until so many statements wait for a lock.
async fn waiting(database: &Embedded, statements: usize) {
    // A session of its own: within a transaction this view stands still.
    let mut conn = database.connect_options(embedded::SUPERUSER, embedded::DATABASE).connect().await.unwrap();
    eventually("the statements wait", async || {
        let waiting: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            .fetch_one(&mut conn)
            .await
            .unwrap();
        usize::try_from(waiting).unwrap() >= statements
    })
    .await;
}

fn one_and_two() -> [String; 2] {
    ["one".to_owned(), "two".to_owned()]
}

/// Every door, all at once.
async fn unavailable(serving: &Serving) {
    let batch = credits("acme", &one_and_two(), "1.00");
    let creation = creation("5f0000000000000000000001", "acme", 1_500_000);
    let perform = json!({ "id": "5f0000000000000000000001" });
    let stranger = async {
        let body = json!({ "jsonrpc": "2.0", "id": 77, "method": "PerformTransaction", "params": perform });
        let url = format!("{}/payme", serving.url);
        let request = serving.client.post(url).basic_auth("Paycom", Some("nobody's")).json(&body);
        request.send().await.expect("an answer").json::<Value>().await.expect("JSON")
    };
    let every_door = async {
        tokio::join!(
            stranger,
            serving.get("/v1/tenants/acme/balance"),
            serving.get("/v1/tenants/acme/transactions"),
            serving.post("/v1/transactions/batch", Some("K1"), &batch),
            serving.payme("CreateTransaction", &creation),
            serving.payme("PerformTransaction", &perform),
            serving.get("/readyz"),
            serving.get("/healthz"),
        )
    };
    let answers = tokio::time::timeout(HANGS, every_door).await.expect("nobody hangs");
    let (stranger, balance, statement, booked, created, performed, ready, healthy) = answers;
    // Who isn't let in is told so without a look at the database, by the call's own id.
    assert_eq!((&stranger["error"]["code"], &stranger["id"]), (&json!(-32504), &json!(77)), "{stranger}");
    for (status, answer) in [balance.unwrap(), statement.unwrap(), booked.unwrap()] {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
        assert!(matches!(answer["code"].as_str(), Some("unavailable" | "timed_out")), "{answer}");
        assert_eq!(answer["status"], 503, "{answer}");
    }
    for answer in [created.unwrap(), performed.unwrap()] {
        assert_eq!(answer["error"]["code"], -32400, "{answer}");
        assert!(!answer["id"].is_null(), "whoever asked knows which call it was: {answer}");
    }
    assert_eq!(ready.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(healthy.unwrap().0, StatusCode::OK, "the process itself is well");
}

async fn recovered(serving: &Serving) {
    eventually("it is ready again", async || serving.get("/readyz").await.unwrap().0 == StatusCode::OK).await;
    let batch = credits("acme", &one_and_two(), "1.00");
    let mut booked = Value::Null;
    // A connection from before may still have to be found broken.
    eventually("the batch is booked", async || {
        let (status, answer) = serving.post("/v1/transactions/batch", Some("K1"), &batch).await.unwrap();
        assert!(matches!(status, StatusCode::CREATED | StatusCode::SERVICE_UNAVAILABLE), "{status} {answer}");
        booked = answer;
        status == StatusCode::CREATED
    })
    .await;
    assert_eq!(booked["transactions"][1]["seq"], 2, "{booked}");
    let (_, again) = serving.post("/v1/transactions/batch", Some("K1"), &batch).await.unwrap();
    assert_eq!(again, booked);
    for (method, params, state) in [
        ("CreateTransaction", creation("5f0000000000000000000001", "acme", 1_500_000), 1),
        ("PerformTransaction", json!({ "id": "5f0000000000000000000001" }), 2),
    ] {
        // The call that hung may have reached the database after all; then its creation stands.
        let params = match serving.payme("CheckTransaction", &json!({ "id": params["id"] })).await.unwrap() {
            known if method == "CreateTransaction" && known["result"]["state"] == 1 => continue,
            _ => params,
        };
        let answer = serving.payme(method, &params).await.unwrap();
        assert_eq!(answer["result"]["state"], state, "{answer}");
    }
    let (_, balance) = serving.get("/v1/tenants/acme/balance").await.unwrap();
    assert_eq!((&balance["balance"], &balance["seq"]), (&json!("15002.00"), &json!(3)), "{balance}");
}

/// Processes of the server that stand still, until this is dropped.
struct Frozen(Vec<Pid>);

impl Frozen {
    /// The postmaster first, so that it makes no more of them.
    fn new(postmaster: i32) -> Self {
        let mut frozen = Self(vec![Pid::from_raw(postmaster)]);
        kill(frozen.0[0], Signal::SIGSTOP).unwrap();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // "pid (name) state parent …"
            let parent = stat.rsplit_once(") ").and_then(|(_, after)| after.split(' ').nth(1)?.parse::<i32>().ok());
            if parent == Some(postmaster) && kill(Pid::from_raw(pid), Signal::SIGSTOP).is_ok() {
                frozen.0.push(Pid::from_raw(pid));
            }
        }
        assert!(frozen.0.len() > 1, "the server has sessions");
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

async fn start(folder: &DataFolder) -> Embedded {
    embedded::start(Options::new(folder.path()).extra_settings(&[("fsync", "off")])).await.unwrap()
}

fn url(database: &Embedded) -> String {
    database.url(embedded::SUPERUSER, embedded::DATABASE)
}

async fn clean(url: &str) {
    let verified = run(hamyon().arg("verify").env("DATABASE_URL", url)).await;
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}
