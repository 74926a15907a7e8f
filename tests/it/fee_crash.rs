//! Rule F3: `hamyon fees run` killed at any moment and started again charges nobody twice and forgets nobody.
//! What two thousand tenants end with is compared, as text, with what one undisturbed run gives them.

use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hamyon::funding;
use hamyon::ids::Actor;
use rand::Rng as _;
use reqwest::StatusCode;
use scoped_futures::ScopedFutureExt as _;
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnection;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::support::app::{entry, fresh_database, server};
use crate::support::cluster::cluster;
use crate::support::process::{Serving, creation, credits, eventually, hamyon, run, said};

const TENANTS: usize = 2_000;
/// So many processes must have been killed in the middle of their work.
const KILLS: usize = 200;
/// Every so many tenants one has no money, and another one money for one of two subscriptions.
const EVERY: usize = 5;

/// The months of all databases of this file, so that the clock of the processes doesn't matter.
const PERIOD: &str = "2026-11";

/// A database with two thousand tenants who owe a month, from which each test gets its copies.
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

async fn template() -> &'static str {
    TEMPLATE
        .get_or_init(|| async {
            let name = fresh_database().await;
            fill(&name).await;
            name
        })
        .await
}

async fn fill(database: &str) {
    let mut session = session(database).await;
    // A plan of each price; every tenant has the one, every third the other as well, begun in the middle.
    sqlx::raw_sql(
        "INSERT INTO plans (plan_id, name, currency, created_at)
         VALUES ('standard', 'Standard', 'UZS', now()), ('extra', 'Extra', 'UZS', now());
         INSERT INTO plan_prices (plan_id, from_month, amount, created_at)
         VALUES ('standard', '0001-01-01', 10000, now()), ('extra', '0001-01-01', 5000, now());",
    )
    .execute(&mut session)
    .await
    .unwrap();
    sqlx::query(
        "WITH n AS (SELECT n, 'tenant-' || n AS tenant_id FROM generate_series(1, $1) n),
              t AS (INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
                    SELECT tenant_id, 'Tenant', CASE n % 3 WHEN 0 THEN 'Europe/Berlin' ELSE 'Asia/Tashkent' END, 'uz',
                           now() FROM n ORDER BY n),
              w AS (INSERT INTO wallets (tenant_id, currency, created_at)
                    SELECT tenant_id, 'UZS', now() FROM n ORDER BY n)
         INSERT INTO subscriptions (tenant_id, plan_id, started_on, first_month, first_owed_month, created_at)
         SELECT tenant_id, plan_id, '2026-11-16', CASE plan_id WHEN 'extra' THEN 'prorated' ELSE 'full' END,
                '2026-11-01', now()
           FROM n JOIN (VALUES ('standard', 1), ('extra', 3)) p (plan_id, each) ON n % each = 0
          ORDER BY n, plan_id DESC",
    )
    .bind(i32::try_from(TENANTS).unwrap())
    .execute(&mut session)
    .await
    .unwrap();
    let balances: Vec<_> = (1..=TENANTS)
        .filter(|number| number % EVERY != 0)
        .map(|number| {
            // Enough for both, or for the first only.
            let amount = if number % EVERY == 1 { 11_000 } else { 20_000 };
            entry(&format!("tenant-{number}"), "top_up", amount, "first")
        })
        .collect();
    let db = server(cluster().await, database).connect(hamyon::db::PoolSettings::default()).await.unwrap();
    let (balances, actor, now) = (&balances, &Actor::job("test"), "2026-11-01T00:00:00Z".parse().unwrap());
    db.run("fill", |conn| async move { funding::post(conn, balances, Vec::new(), actor, now).await }.scope_boxed())
        .await
        .unwrap();
    db.close().await;
}

async fn session(database: &str) -> PgConnection {
    cluster().await.superuser_options(database).disable_statement_logging().connect().await.unwrap()
}

struct World {
    database: String,
    url: String,
}

impl World {
    async fn new() -> Self {
        let cluster = cluster().await;
        let database = cluster.create_database_from(Some(template().await)).await;
        Self { url: cluster.url("postgres", &database), database }
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut session(&self.database).await).await.unwrap()
    }

    fn fees_run(&self) -> Command {
        // Many shares of the wallets make many small transactions, so that a kill finds something half done.
        let mut command = hamyon();
        command.args(["fees", "run", "--period", PERIOD, "--workers", "24", "--json"]).env("DATABASE_URL", &self.url);
        command
    }

    /// Runs until it ends well.
    async fn run_to_its_end(&self) {
        let ended = run(&mut self.fees_run()).await;
        assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
    }

    /// What matters, without the times and the numbers that depend on who came first.
    async fn outcome(&self) -> String {
        let mut session = session(&self.database).await;
        let mut text = String::new();
        for (name, sql) in [
            (
                "rows",
                "SELECT concat_ws(' ', tenant_id, currency, seq, kind, amount, pocket, reference, actor, metadata) AS line
                   FROM wallet_transactions",
            ),
            (
                "dues",
                "SELECT concat_ws(' ', subscription_id, month, tenant_id, currency, amount, due_at,
                                  overdue_at IS NOT NULL, charged_at IS NOT NULL, charged_seq) AS line FROM dues",
            ),
            ("events", "SELECT concat_ws(' ', tenant_id, kind, (body::jsonb -> 'data')::text) AS line FROM events"),
            ("heads", "SELECT concat_ws(' ', tenant_id, currency, head_seq) AS line FROM wallets"),
            ("runs", "SELECT period::text AS line FROM fee_runs"),
        ] {
            let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "SELECT coalesce(string_agg(line, E'\\n' ORDER BY line), '') FROM ({sql}) x"
            )))
            .fetch_one(&mut session)
            .await
            .unwrap();
            writeln!(text, "{name}:\n{rows}").unwrap();
        }
        text
    }

    async fn is_clean(&self) {
        let verified = run(hamyon().arg("verify").env("DATABASE_URL", &self.url)).await;
        assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
    }

    async fn drop(self) {
        let statement = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut session("postgres").await).await.unwrap();
    }
}

const OPEN: &str = "SELECT count(*) FROM subscriptions s
                     WHERE NOT EXISTS (SELECT FROM dues d WHERE d.subscription_id = s.subscription_id)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f3_two_hundred_kills_of_the_run_leave_what_one_undisturbed_run_leaves() {
    let undisturbed = World::new().await;
    let began = Instant::now();
    undisturbed.run_to_its_end().await;
    let whole = began.elapsed();
    let expected = undisturbed.outcome().await;
    undisturbed.is_clean().await;
    assert_eq!(undisturbed.number(OPEN).await, 0);

    let (mut kills, mut before_work, mut worlds, mut after_deciding) = (0, 0, 0, 0);
    while kills < KILLS {
        let world = World::new().await;
        worlds += 1;
        let mut runs = 0;
        let mut decided = 0;
        let mut session = session(&world.database).await;
        loop {
            let mut child = world
                .fees_run()
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program can be started");
            runs += 1;
            // At a random moment of its first half: one that goes on from where another died ends sooner.
            let life = whole.mul_f64(rand::rng().random_range(0.0..0.5));
            if let Ok(ended) = tokio::time::timeout(life, child.wait()).await {
                assert_eq!(ended.unwrap().code(), Some(0));
                break;
            }
            child.kill().await.unwrap();
            // The sessions of the dead end when PostgreSQL notices; the next run meets them, or doesn't.
            let (started, dues, open): (bool, i64, i64) = sqlx::query_as(sqlx::AssertSqlSafe(format!(
                "SELECT EXISTS (SELECT FROM fee_runs), (SELECT count(*) FROM dues), ({OPEN})"
            )))
            .fetch_one(&mut session)
            .await
            .unwrap();
            if open == 0 {
                break;
            }
            if started {
                kills += 1;
                after_deciding += usize::from(dues > decided);
            } else {
                before_work += 1;
            }
            decided = dues;
        }
        world.run_to_its_end().await;
        assert!(
            world.outcome().await == expected,
            "after {runs} runs: {}",
            first_difference(&world.outcome().await, &expected)
        );
        if worlds % 10 == 1 {
            world.is_clean().await;
        }
        world.drop().await;
    }
    println!(
        "{kills} kills with work left and {before_work} before it began, in {worlds} worlds; a whole run takes {whole:?}; \
         {after_deciding} had decided something of their own"
    );
    assert!(after_deciding > 0, "some died half way");
}

fn first_difference(left: &str, right: &str) -> String {
    let pairs = left.lines().zip(right.lines());
    pairs
        .filter(|(left, right)| left != right)
        .map(|(left, right)| format!("{left}\n{right}"))
        .next()
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f3_f5_two_runs_and_a_stream_of_top_ups_at_once_decide_each_month_once() {
    let world = World::new().await;
    let serving = Serving::start(&world.url, &["--jobs", "off"]).await;
    let over = AtomicBool::new(false);
    let runs = async {
        let (mut first, mut second) = (world.fees_run(), world.fees_run());
        let (first, second) = tokio::join!(run(&mut first), run(&mut second));
        over.store(true, Ordering::SeqCst);
        (first, second)
    };
    // Each payer goes through the tenants who have nothing or not enough, before, while and after they are decided.
    let top_ups = (0..4).map(|payer: usize| {
        let (serving, over) = (&serving, &over);
        async move {
            let mut paid = 0;
            for number in (1..=TENANTS).filter(|number| number % EVERY < 2).skip(payer).step_by(4) {
                if over.load(Ordering::SeqCst) && paid > 20 {
                    break;
                }
                top_up(serving, payer, number).await;
                paid += 1;
            }
            paid
        }
    });
    let ((first, second), paid) = tokio::join!(runs, futures::future::join_all(top_ups));
    for ended in [&first, &second] {
        assert_eq!(ended.status.code(), Some(0), "{}", said(ended));
    }
    let paid: i64 = paid.into_iter().sum();
    assert!(paid > 0);
    assert_eq!(world.number(OPEN).await, 0);
    let twice = "SELECT count(*) FROM (SELECT FROM wallet_transactions WHERE kind = 'subscription_fee'
                                        GROUP BY reference HAVING count(*) > 1) x";
    assert_eq!(world.number(twice).await, 0);
    let unpaired = "SELECT count(*) FROM (SELECT * FROM dues WHERE charged_at IS NOT NULL) d
                      FULL JOIN (SELECT * FROM wallet_transactions WHERE kind = 'subscription_fee') x
                        ON x.tenant_id = d.tenant_id AND x.seq = d.charged_seq AND x.amount = -d.amount
                     WHERE x.seq IS NULL OR d.due_id IS NULL";
    assert_eq!(world.number(unpaired).await, 0);
    let below_zero = "SELECT count(*) FROM (SELECT sum(amount) OVER (PARTITION BY wallet_id ORDER BY seq) AS running
                                              FROM wallet_transactions) r WHERE running < 0";
    assert_eq!(world.number(below_zero).await, 0);
    // Nobody who could pay is left blocked.
    let blocked = "SELECT count(*) FROM dues d
                    WHERE charged_at IS NULL
                      AND amount <= (SELECT coalesce(sum(amount), 0) FROM wallet_transactions x
                                      WHERE x.tenant_id = d.tenant_id)
                      AND NOT EXISTS (SELECT FROM dues o WHERE o.tenant_id = d.tenant_id AND o.charged_at IS NULL
                                                           AND o.due_id < d.due_id)";
    assert_eq!(world.number(blocked).await, 0);
    let (_, month) = serving.get(&format!("/v1/fee-runs/{PERIOD}")).await.unwrap();
    assert_eq!((&month["open"], &month["difference"]), (&json!(0), &json!(0)), "{month}");
    let told = "SELECT count(*) FROM dues d WHERE (SELECT count(*) FROM events e
                   WHERE e.tenant_id = d.tenant_id AND e.kind IN ('fee.charged', 'fee.overdue')
                     AND (e.body::jsonb -> 'data' ->> 'subscription_id')::bigint = d.subscription_id)
                <> (d.charged_at IS NOT NULL)::int + (d.overdue_at IS NOT NULL)::int";
    assert_eq!(world.number(told).await, 0, "each decision is told once, and a later payment once");
    serving.stop().await;
    eventually("the sessions have ended", async || {
        world
            .number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'hamyon'")
            .await
            == 0
    })
    .await;
    let deadlocks = world.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
    println!("{paid} top-ups beside two runs; deadlocks that PostgreSQL saw: {deadlocks}");
    assert_eq!(deadlocks, 0);
    world.is_clean().await;
}

/// Money for a tenant, by one of two doors. A door that is too busy says so (503, -32400), and its caller comes
/// again with the same id, as Payme does; anything else is a failure.
async fn top_up(serving: &Serving, payer: usize, number: usize) {
    let tenant = format!("tenant-{number}");
    if payer.is_multiple_of(2) {
        let id = format!("{payer:04}{number:020}");
        for (method, params, state) in
            [("CreateTransaction", creation(&id, &tenant, 100_000), 1), ("PerformTransaction", json!({ "id": id }), 2)]
        {
            let mut answer = serving.payme(method, &params).await.unwrap();
            for _ in 0..TRIES {
                if answer["error"]["code"] != -32_400 {
                    break;
                }
                answer = serving.payme(method, &params).await.unwrap();
            }
            assert_eq!(answer["result"]["state"], state, "{answer}");
        }
    } else {
        let (key, body) = (format!("top-up-{number}"), credits(&tenant, &[format!("top-up-{number}")], "60.00"));
        let mut answer = serving.post("/v1/transactions/batch", Some(&key), &body).await.unwrap();
        for _ in 0..TRIES {
            if answer.0 != StatusCode::SERVICE_UNAVAILABLE {
                break;
            }
            answer = serving.post("/v1/transactions/batch", Some(&key), &body).await.unwrap();
        }
        assert_eq!(answer.0, StatusCode::CREATED, "{}", answer.1);
    }
}

/// How often a busy door is tried again.
const TRIES: usize = 10;
