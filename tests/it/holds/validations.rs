//! The three validations of the source document on metered credits, each a test named after it.

use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Shop;
use crate::support::app::fresh_database;
use crate::support::cluster::cluster;
use crate::support::process::{API_TOKEN, Serving, client, eventually, hamyon, run};

/// A call of the simulated jobs, in credits.
const CALL: i64 = 3;

#[tokio::test]
async fn validation_1_concurrent_overdraft() {
    // At stake: fifty credits and twenty requests at the same moment, ten times over.
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 50, None).await;
    let mut dice = rand::rngs::StdRng::seed_from_u64(3);
    let mut refused_for_funds = 0;
    for round in 0..10 {
        let before = shop.numbers("CREDIT").await.0;
        let job = json!({ "allow_partial": true, "max_in_flight": 3 });
        let answers = join_all((0..20).map(|number| {
            let (shop, job) = (&shop, job.clone());
            async move { shop.place(&format!("job-{round}-{number}"), "20", job).await }
        }))
        .await;
        let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
        let admitted: Vec<String> = answers
            .iter()
            .filter(|answer| answer.status == 201)
            .map(|answer| answer.json()["hold_id"].as_str().unwrap().to_owned())
            .collect();
        assert!(admitted.len() <= 3, "round {round}: {} in flight", admitted.len());
        assert_eq!(count(201) + count(429) + count(402), 20, "round {round}");
        assert_eq!(admitted.is_empty(), before <= 0, "round {round}: who has something left gets something done");
        refused_for_funds += count(402);
        let (balance, held, available) = shop.numbers("CREDIT").await;
        assert!(held <= before.max(0) && available >= before.min(0), "round {round}: {held} of {balance} are held");
        // The admitted jobs work side by side until they are done or told to stop.
        join_all(admitted.iter().map(|hold_id| {
            let (shop, calls) = (&shop, dice.random_range(8..=12));
            async move { work(shop, hold_id, calls, CALL).await }
        }))
        .await;
    }
    assert!(refused_for_funds >= 20, "in the end the money is gone: {refused_for_funds}");
    let left = shop.numbers("CREDIT").await.0;
    assert!((-CALL..=0).contains(&left), "what is charged beyond the balance is at most a last call: {left}");
    shop.is_right().await;
}

#[tokio::test]
async fn validation_1_the_same_with_200_tenants_in_parallel() {
    // At stake: the same for many at once. Each has fifty credits and asks four times at the same moment.
    let shop = Shop::open().await;
    let mut conn = shop.app.superuser().await;
    sqlx::raw_sql(
        "INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
         SELECT 'other-' || n, 'Other', 'Asia/Tashkent', 'uz', now() FROM generate_series(1, 200) n",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    let credits: Vec<Value> = (1..=200)
        .map(|number| {
            json!({
                "tenant_id": format!("other-{number}"), "currency": "CREDIT", "kind": "top_up", "amount": "50",
                "reference": "fifty",
            })
        })
        .collect();
    let (status, answer) =
        shop.app.post_with_key("/v1/transactions/batch", "fifty", &json!({ "transactions": credits })).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    // Two hundred requests at any moment, from fifty of them: a listener lets no more new connections wait.
    let balances: Vec<i64> = futures::stream::iter(1..=200)
        .map(|number| four_at_once(&shop, format!("other-{number}")))
        .buffer_unordered(50)
        .collect()
        .await;
    assert_eq!(balances.len(), 200);
    assert!(balances.iter().all(|left| (-LARGE_CALL..=0).contains(left)), "at most a last call beyond: {balances:?}");
    shop.is_right().await;
}

/// A call of the jobs of many tenants, in credits: a large one, so that the credits are used up in few.
const LARGE_CALL: i64 = 10;

/// Four jobs at once, again and again, until nothing is left: at most three get in, and somebody does as long as there is
/// something. Answers what is left.
async fn four_at_once(shop: &Shop, tenant_id: String) -> i64 {
    let tenant_id = tenant_id.as_str();
    let balance = async || {
        let (_, balance) = shop.app.get(&format!("/v1/tenants/{tenant_id}/balance?currency=CREDIT")).await;
        balance["balance"].as_str().unwrap().parse::<i64>().unwrap()
    };
    let mut left = 50;
    for round in 0.. {
        let answers = join_all((0..4).map(|number| async move {
            let body = json!({
                "hold_id": format!("{tenant_id}-{round}-{number}"), "tenant_id": tenant_id, "currency": "CREDIT",
                "amount": "20", "allow_partial": true, "max_in_flight": 3,
            });
            shop.post("/v1/holds", &body).await
        }))
        .await;
        let of = |status: u16| answers.iter().filter(move |answer| answer.status == status);
        let (admitted, poor, busy) = (of(201).count(), of(402).count(), of(429).count());
        let seen = format!("{tenant_id}, round {round}, {left} left: {admitted} {poor} {busy}");
        assert_eq!(admitted + poor + busy, 4, "{seen}");
        if left <= 0 {
            assert_eq!(poor, 4, "{seen}");
            return left;
        }
        assert!((1..=3).contains(&admitted), "{seen}");
        assert!(round < 5, "{seen}");
        join_all(of(201).map(|answer| async move {
            let hold_id = answer.json()["hold_id"].as_str().unwrap().to_owned();
            work(shop, &hold_id, 20, LARGE_CALL).await;
        }))
        .await;
        left = balance().await;
    }
    left
}

/// A metered job that makes so many calls of so many credits unless it is told to stop.
async fn work(shop: &Shop, hold_id: &str, calls: usize, credits: i64) {
    for call in 0..calls {
        let used = shop.used(hold_id, &format!("call-{call}"), credits * 1_000).await;
        assert_eq!(used.status, 201, "{}", used.text());
        if used.json()["stop"] == true {
            break;
        }
    }
    let settled = shop.settle(hold_id, "by_usage").await;
    assert_eq!(settled.status, 200, "{}", settled.text());
}

#[tokio::test]
async fn validation_1_tenants_don_t_wait_for_each_other() {
    // At stake: a tenant whose wallet is locked for long holds up himself only.
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 50, None).await;
    let mut conn = shop.app.superuser().await;
    sqlx::raw_sql(
        "INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
         SELECT 'other-' || n, 'Other', 'Asia/Tashkent', 'uz', now() FROM generate_series(1, 200) n",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM wallets FOR UPDATE; SELECT FROM tenants WHERE tenant_id = 'acme' FOR UPDATE")
        .execute(&mut conn)
        .await
        .unwrap();
    let answers = join_all((1..=200).map(|number| {
        let shop = &shop;
        async move {
            let hold_id = format!("job-{number}");
            let body = json!({
                "hold_id": hold_id, "tenant_id": format!("other-{number}"), "currency": "CREDIT", "amount": "0",
                "max_in_flight": 1,
            });
            let placed = shop.post("/v1/holds", &body).await;
            (placed.status.as_u16(), shop.settle(&hold_id, "as_held").await.status.as_u16())
        }
    }))
    .await;
    assert!(answers.iter().all(|statuses| *statuses == (201, 200)), "{answers:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.unwrap();
}

/// What a worker process of the crash test is told by; without it the "test" below has nothing to do.
const WORKER_OF: &str = "HAMYON_TEST_WORKER_OF";

/// Not a test of its own: the body of a worker process, which [`validation_2_crash`] starts from this very program.
/// It makes calls until it is killed, or settles at the end, and prints what it was answered.
#[tokio::test]
async fn worker_process_of_validation_2() {
    let Ok(told) = std::env::var(WORKER_OF) else { return };
    let (url, hold_id) = told.split_once(' ').expect("a URL and a hold");
    let client = client();
    let post = async |verb: &str, body: Value| {
        // A connection that the server has closed while this process was stopped is no answer; every call may be
        // repeated.
        for _ in 0..5 {
            let request = client.post(format!("{url}/v1/holds/{hold_id}/{verb}")).bearer_auth(API_TOKEN).json(&body);
            if let Ok(response) = request.send().await {
                println!("{verb} {}", response.status().as_u16());
                return;
            }
        }
        panic!("{verb} got no answer");
    };
    post("start", json!({})).await;
    for call in 0..200 {
        post("usage", json!({ "call_id": format!("call-{call}"), "cost_micro": 1_500 })).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    post("settle", json!({ "mode": "by_usage" })).await;
}

struct Worker {
    child: Child,
    said: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(url: &str, hold_id: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "holds::validations::worker_process_of_validation_2", "--nocapture"])
            .env(WORKER_OF, format!("{url} {hold_id}"))
            .kill_on_drop(true)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("a worker starts");
        let said = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, said }
    }

    /// Waits for so many answered calls.
    async fn has_called(&mut self, times: usize) {
        let mut seen = 0;
        while seen < times {
            let line = self.said.next_line().await.expect("its output").expect("more to come");
            seen += usize::from(line.ends_with("usage 201"));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("a running process")).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("a signal");
    }
}

#[tokio::test]
async fn validation_2_crash() {
    // At stake: workers killed in the middle of their calls. What they used is charged, to the unit, once.
    let database = fresh_database().await;
    let url = cluster().await.url("postgres", &database);
    let (one, two) = tokio::join!(Serving::start(&url, &["--jobs", "off"]), Serving::start(&url, &["--jobs", "off"]));
    // Their jobs are off, so that no round comes before the one below, however long a busy machine takes.
    one.tenant("acme").await;
    let grant = json!({ "currency": "CREDIT", "pocket": "promo", "amount": "100000" });
    let (status, answer) = one.post("/v1/tenants/acme/grants", Some("grant"), &grant).await.expect("an answer");
    assert_eq!(status.as_u16(), 201, "{answer}");
    let mut dice = rand::rngs::StdRng::seed_from_u64(2);
    let mut workers = Vec::new();
    for number in 0..8 {
        let hold_id = format!("job-{number}");
        let body = json!({
            "hold_id": hold_id, "tenant_id": "acme", "currency": "CREDIT", "amount": "20", "ttl_secs": 12,
        });
        let (status, answer) = one.post("/v1/holds", None, &body).await.expect("an answer");
        assert_eq!(status.as_u16(), 201, "{answer}");
        let server = if number % 2 == 0 { &one } else { &two };
        workers.push((hold_id.clone(), Worker::start(&server.url, &hold_id)));
    }
    for (number, (_, worker)) in workers.iter_mut().enumerate() {
        worker.has_called(dice.random_range(2..6)).await;
        // The last one isn't dead, only very slow.
        worker.signal(if number == 7 { Signal::SIGSTOP } else { Signal::SIGKILL });
    }
    eventually("every hold's time is over", async || {
        let (_, page) = one.get("/v1/holds?tenant_id=acme").await.expect("an answer");
        page["items"].as_array().unwrap().iter().all(|hold| hold["live"] == false)
    })
    .await;
    // One round, by two at once.
    let reconcile = || async {
        let mut command = hamyon();
        command.args(["reconcile"]).env("DATABASE_URL", &url);
        run(&mut command).await
    };
    let (first, second) = tokio::join!(reconcile(), reconcile());
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let before = agreement(&url).await;
    for (hold_id, used_micro, charged, booked, by) in &before {
        assert_eq!(by.as_deref(), Some("reconciler"), "{hold_id}");
        assert_eq!(*charged, Some((used_micro + 999) / 1_000), "{hold_id} used {used_micro}");
        assert_eq!(Some(*booked), *charged, "{hold_id}");
    }
    // The slow one wakes up, goes on calling and settles: nothing changes.
    let (_, slow) = workers.last_mut().expect("the slow one");
    slow.signal(Signal::SIGCONT);
    let mut last = String::new();
    while let Some(line) = slow.said.next_line().await.expect("its output") {
        if line.contains("settle") {
            last = line;
        }
    }
    assert!(last.ends_with("settle 409"), "{last}");
    assert_eq!(agreement(&url).await, before);
    drop(workers);
    one.stop().await;
    two.stop().await;
}

/// For each hold: what its log says, what it was charged, what its rows say, who ended it.
async fn agreement(url: &str) -> Vec<(String, i64, Option<i64>, i64, Option<String>)> {
    use sqlx::Connection as _;
    let mut conn = sqlx::PgConnection::connect(url).await.expect("a session");
    sqlx::query_as(
        "SELECT h.hold_id, (SELECT coalesce(sum(cost_micro), 0)::bigint FROM hold_usage u WHERE u.hold_id = h.hold_id),
                h.charged, (SELECT coalesce(-sum(amount), 0)::bigint FROM wallet_transactions x
                             WHERE x.kind = 'hold_charge' AND x.metadata ->> 'hold_id' = h.hold_id), h.ended_by
           FROM holds h ORDER BY h.hold_id",
    )
    .fetch_all(&mut conn)
    .await
    .expect("the numbers")
}

#[tokio::test]
async fn validation_3_duplicates() {
    // At stake: the same work asked for twice in four ways, each charged once.
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 1_000, None).await;
    let finish = async |hold_id: &str| {
        shop.used(hold_id, "call-1", 5_000).await;
        assert_eq!(shop.settle(hold_id, "by_usage").await.json()["charged"], "5");
    };
    let outcome = |answer: &crate::support::api::Answer| {
        let hold = answer.json();
        (hold["outcome"].as_str().unwrap().to_owned(), hold["hold_id"].as_str().unwrap().to_owned())
    };

    // A double click, and a page that is reloaded: same session, same question, the first still runs.
    let click = json!({ "session": "chat-1", "dedupe_key": "question-1" });
    let clicks = join_all((0..5).map(|number| {
        let (shop, click) = (&shop, click.clone());
        async move { shop.place(&format!("click-{number}"), "20", click).await }
    }))
    .await;
    let placed: Vec<_> = clicks.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(placed.len(), 1);
    let (_, first) = outcome(placed[0]);
    assert!(
        clicks
            .iter()
            .filter(|answer| answer.status == 200)
            .all(|answer| outcome(answer) == ("already_running".to_owned(), first.clone()))
    );
    assert_eq!(shop.numbers("CREDIT").await.1, 20, "nothing more is held");

    // Another question in the same session takes its place: two jobs. The old one is cancelled, stops, and pays what it
    // really used, the call included that was on its way when the question came.
    shop.used(&first, "call-1", 3_000).await;
    let next = shop.place("next", "20", json!({ "session": "chat-1", "dedupe_key": "question-2" })).await;
    assert_eq!(outcome(&next).0, "placed");
    let replaced = shop.hold(&first).await;
    assert_eq!((&replaced["status"], &replaced["cancel_requested"]), (&json!("started"), &json!(true)));
    assert_eq!(shop.used(&first, "call-2", 2_000).await.json()["stop"], true);
    let replaced = shop.settle(&first, "by_usage").await.json();
    assert_eq!((&replaced["status"], &replaced["charged"]), (&json!("settled"), &json!("5")));
    finish("next").await;
    // The question may be asked again once its job is done.
    assert_eq!(
        outcome(&shop.place("later", "20", json!({ "session": "chat-1", "dedupe_key": "question-2" })).await).0,
        "placed"
    );
    finish("later").await;

    // A script without a session, five times within five seconds.
    for number in 0..5 {
        let answer = shop.place(&format!("script-{number}"), "20", json!({ "fingerprint": "same words" })).await;
        let expected = if number == 0 { "placed" } else { "duplicate" };
        assert_eq!(outcome(&answer), (expected.to_owned(), "script-0".to_owned()), "{number}");
        shop.wait(1);
    }
    finish("script-0").await;
    assert_eq!(
        outcome(&shop.place("script-9", "20", json!({ "fingerprint": "same words" })).await).0,
        "placed",
        "five seconds later it is meant"
    );
    shop.act("script-9", "cancel", json!({})).await;
    // Whoever waits in a session gets nothing of another's.
    let in_session = json!({ "fingerprint": "same words", "session": "chat-2" });
    assert_eq!(outcome(&shop.place("chat", "20", in_session).await).0, "placed");
    shop.act("chat", "cancel", json!({})).await;

    // A queue that delivers the job again, before and after its end.
    shop.placed("delivered", "20").await;
    assert_eq!(outcome(&shop.place("delivered", "20", json!({})).await).0, "already_placed");
    finish("delivered").await;
    let again = shop.place("delivered", "20", json!({})).await;
    assert_eq!((again.status.as_u16(), &again.json()["status"]), (200, &json!("settled")));
    assert_eq!(shop.settle("delivered", "by_usage").await.json()["charged"], "5");

    let charged: i64 = shop.app.count("SELECT count(*) FROM holds WHERE charged > 0").await;
    let rows: i64 = shop.app.count("SELECT count(*) FROM wallet_transactions WHERE kind = 'hold_charge'").await;
    assert_eq!((charged, rows), (5, 5), "each job one charged row");
    assert_eq!(shop.numbers("CREDIT").await, (975, 0, 975));
    shop.is_right().await;
}
