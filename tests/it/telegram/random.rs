//! Everything in any order: questions, payments, words that come twice, late, never or in the middle of a kill,
//! holds that run out, bookings that are cancelled, refunds whose answers are lost, chargebacks. However it went,
//! when all is quiet no slot has two owners, every payment is booked, gone back or with a person, the ledger's sum
//! is what Telegram holds for us, and no refund moved stars twice.
//!
//! A failure names its seed and what was done. `HAMYON_SEEDS=20000` tries more of them, `HAMYON_SEED_FIRST=123`
//! begins with that one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use futures::future::{BoxFuture, join_all};
use hamyon::app::App;
use hamyon::provider::telegram::{Delivered, Reply};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use tokio::sync::Mutex;

use super::{BOT, PRICE, SECRET, Stage, paid, pre_checkout};
use crate::support::fake_bot_api::Act;

/// How many seeds a run tries, unless it is told.
const SEEDS: u64 = 2_000;
/// How many of them share a database, one after the other.
const STAGES: u64 = 8;
/// How many steps each takes, at the most.
const STEPS_MAX: usize = 12;

fn number_from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b5_any_interleaving_ends_with_one_owner_a_slot_and_no_star_lost() {
    let (first, seeds) = (number_from_env("HAMYON_SEED_FIRST", 0), number_from_env("HAMYON_SEEDS", SEEDS));
    let stages = (0..STAGES).map(|stage| async move {
        let arena = Stage::start_with(|settings| {
            settings.telegram.timeout = Duration::from_millis(400);
            settings.telegram.bots.truncate(1);
        })
        .await;
        let session = Mutex::new(arena.app.superuser().await);
        let mut seen = Seen::default();
        for seed in (first..first + seeds).filter(|seed| seed % STAGES == stage) {
            let mut world = World::new(&arena, &session, seed).await;
            world.live().await;
            world.calm_down().await;
            world.is_sound(&mut seen).await;
        }
        arena.is_sound().await;
        seen
    });
    let seen = join_all(stages).await.into_iter().fold(Seen::default(), Seen::plus);
    // A generator that never gets anywhere would prove nothing.
    if seeds >= 200 {
        assert!(
            seen.booked > 50 && seen.refunded > 50 && seen.persons > 10 && seen.cancelled > 10 && seen.checked > 5,
            "{seen:?}"
        );
    }
}

/// What the seeds got to see.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    booked: u64,
    refunded: u64,
    persons: u64,
    cancelled: u64,
    checked: u64,
}

impl Seen {
    fn plus(self, other: Self) -> Self {
        Self {
            booked: self.booked + other.booked,
            refunded: self.refunded + other.refunded,
            persons: self.persons + other.persons,
            cancelled: self.cancelled + other.cancelled,
            checked: self.checked + other.checked,
        }
    }
}

/// One seed's slots, orders and payments.
struct World<'a> {
    stage: &'a Stage,
    /// One session for all that the test itself asks: opening one takes longer than asking.
    session: &'a Mutex<PgConnection>,
    rng: StdRng,
    seed: u64,
    slots: Vec<i64>,
    orders: Vec<(String, i64)>,
    /// Updates that Telegram still wants to tell.
    untold: Vec<Value>,
    told: Vec<Value>,
    queries: Vec<Value>,
    charges: Vec<String>,
    taken_back: BTreeSet<String>,
    /// Those that a person wanted to go back, if that could be.
    given_back: BTreeSet<String>,
    update_id: i64,
    trace: String,
}

type Step<'a> = BoxFuture<'a, ()>;

impl<'a> World<'a> {
    async fn new(stage: &'a Stage, session: &'a Mutex<PgConnection>, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = Self {
            stage,
            session,
            seed,
            slots: Vec::new(),
            orders: Vec::new(),
            untold: Vec::new(),
            told: Vec::new(),
            queries: Vec::new(),
            charges: Vec::new(),
            taken_back: BTreeSet::new(),
            given_back: BTreeSet::new(),
            update_id: i64::try_from(seed).expect("a seed") * 1_000,
            trace: String::new(),
            rng: StdRng::seed_from_u64(seed ^ 0x5bd1_e995),
        };
        let slots: Vec<i64> = sqlx::query_scalar(
            "WITH made AS (
                 INSERT INTO resources (resource_id, name, time_zone, refund_until_secs, created_at)
                 VALUES ($1, 'A room', 'Asia/Tashkent', 3600, $2) RETURNING resource_no
             )
             INSERT INTO slots (resource_no, starts_at, ends_at, created_at)
             SELECT resource_no, $2 + make_interval(days => 10, hours => n), $2 + make_interval(days => 10, hours => n + 1), $2
               FROM made, generate_series(1, $3) AS n
             RETURNING slot_id",
        )
        .bind(format!("room-{seed}"))
        .bind(stage.app.clock.now())
        .bind(rng.random_range(1..=2_i32))
        .fetch_all(&mut *session.lock().await)
        .await
        .expect("slots");
        world.slots = slots;
        for number in 0..rng.random_range(2..=4) {
            world.add_order(number).await;
        }
        let faults = Arc::new(std::sync::Mutex::new(StdRng::seed_from_u64(seed ^ 0xdead_beef)));
        stage.api.fares(move |_| {
            let mut rng = faults.lock().expect("not poisoned");
            match rng.random_range(0..100) {
                0..2 => Act::Silence,
                2..5 => Act::DoAndSilence,
                5..15 => Act::DoAndStatus(500),
                15..20 => Act::DoAndDrop,
                20..26 => Act::Refuse(502, "Bad Gateway"),
                26..31 => Act::TooMany(5),
                31..34 => Act::Refuse(400, "Bad Request: BOT_BALANCE_TOO_LOW"),
                _ => Act::Do,
            }
        });
        world
    }

    async fn add_order(&mut self, number: usize) {
        let (order_id, payer) = (format!("o{}-{number}", self.seed), self.rng.random_range(1..=2) + 700_000_000);
        // Some are for the wallet.
        let slot_id = if self.rng.random_range(0..8) == 0 { None } else { Some(self.some_slot()) };
        sqlx::query(
            "INSERT INTO orders (order_id, tenant_id, currency, amount, title, created_at, slot_id, payer)
             VALUES ($1, 'acme', 'XTR', $2, 'One hour', $3, $4, $5)",
        )
        .bind(&order_id)
        .bind(PRICE)
        .bind(self.stage.app.clock.now())
        .bind(slot_id)
        .bind(payer.to_string())
        .execute(&mut *self.session.lock().await)
        .await
        .expect("an order");
        self.orders.push((order_id, payer));
    }

    fn some_slot(&mut self) -> i64 {
        let slot = self.rng.random_range(0..self.slots.len());
        self.slots[slot]
    }

    fn some_order(&mut self) -> (String, i64) {
        let order = self.rng.random_range(0..self.orders.len());
        let (order_id, payer) = self.orders[order].clone();
        match self.rng.random_range(0..40) {
            0 => (format!("no-order-{}", self.seed), payer),
            1 => (order_id, payer + 1),
            _ => (order_id, payer),
        }
    }

    fn next_update(&mut self) -> i64 {
        self.update_id += 1;
        self.update_id
    }

    /// Some steps, a few of them at once.
    async fn live(&mut self) {
        let steps = self.rng.random_range(4..=STEPS_MAX);
        for _ in 0..steps {
            let together = if self.rng.random_range(0..3) == 0 { self.rng.random_range(2..=4) } else { 1 };
            let mut group: Vec<Step<'a>> = Vec::new();
            for _ in 0..together {
                if let Some(step) = self.step().await {
                    group.push(step);
                }
            }
            self.trace.push_str(" |");
            join_all(group).await;
        }
    }

    async fn step(&mut self) -> Option<Step<'a>> {
        let stage = self.stage;
        match self.rng.random_range(0..100) {
            // A question, new or again.
            0..28 => {
                let query = if !self.queries.is_empty() && self.rng.random_range(0..4) == 0 {
                    self.queries[self.rng.random_range(0..self.queries.len())].clone()
                } else {
                    let ((order_id, payer), update_id) = (self.some_order(), self.next_update());
                    let query_id = format!("q{update_id}");
                    let query = pre_checkout(update_id, &query_id, payer, &order_id, PRICE);
                    self.queries.push(query.clone());
                    query
                };
                self.says("ask", &query["pre_checkout_query"]["invoice_payload"]);
                Some(self.tell(query))
            }
            // Stars are taken; the word follows, or doesn't.
            28..48 => {
                let ((order_id, payer), update_id) = (self.some_order(), self.next_update());
                let charge_id = stage.api.pay(BOT, payer, &order_id, PRICE);
                let update = paid(update_id, payer, &order_id, PRICE, &charge_id, stage.app.clock.now());
                self.says("pay", &json!([order_id, charge_id]));
                self.charges.push(charge_id);
                if self.rng.random_range(0..8) > 0 {
                    self.untold.push(update.clone());
                    return Some(self.tell(update));
                }
                None
            }
            48..58 => {
                let told = if self.untold.is_empty() { &self.told } else { &self.untold };
                let update = told.get(self.rng.random_range(0..told.len().max(1)))?.clone();
                self.says("tell", &update["update_id"]);
                Some(self.tell(update))
            }
            58..68 => {
                let by = match self.rng.random_range(0..4) {
                    0 => TimeDelta::seconds(self.rng.random_range(1..300)),
                    1 => TimeDelta::seconds(300),
                    2 => TimeDelta::minutes(self.rng.random_range(5..7)),
                    _ => TimeDelta::milliseconds(299_999),
                };
                self.says("later", &json!(by.num_milliseconds()));
                Some(Box::pin(later(stage, self.session, by)))
            }
            68..76 => {
                self.says("give back", &Value::Null);
                let (app, killed) = (stage.app.app.clone(), self.killed());
                Some(Box::pin(run(killed, async move {
                    let _ = app.telegram.give_back().await;
                })))
            }
            76..82 => {
                self.says("reconcile", &Value::Null);
                let (app, killed) = (stage.app.app.clone(), self.killed());
                Some(Box::pin(run(killed, async move {
                    let _ = app.telegram.reconcile().await;
                })))
            }
            82..91 => {
                let slot_id = self.some_slot();
                let booking_id: Option<i64> =
                    sqlx::query_scalar("SELECT booking_id FROM bookings WHERE slot_id = $1 AND cancelled_at IS NULL")
                        .bind(slot_id)
                        .fetch_optional(&mut *self.session.lock().await)
                        .await
                        .expect("a booking or none");
                let booking_id = booking_id?;
                let refund = ["policy", "full", "none"][self.rng.random_range(0..3)];
                let to = ["payer", "wallet"][self.rng.random_range(0..2)];
                self.says("cancel", &json!([booking_id, refund, to]));
                let number = self.next_update();
                let key = format!("{}-{number}", self.seed);
                let body = json!({ "refund": refund, "refund_to": to, "reason": "a test" });
                Some(Box::pin(async move {
                    stage.app.post_with_key(&format!("/v1/bookings/{booking_id}/cancel"), &key, &body).await;
                }))
            }
            91..94 => {
                let (order_id, _) = self.some_order();
                self.says("close", &json!(order_id));
                Some(Box::pin(async move {
                    stage.app.post(&format!("/v1/orders/{order_id}/close"), &json!({})).await;
                }))
            }
            94..97 => {
                let charge_id = self.charges.get(self.rng.random_range(0..self.charges.len().max(1)))?.clone();
                // Telegram takes nothing back that has gone back.
                if stage.api.is_refunded(&charge_id) {
                    return None;
                }
                self.says("charge back", &json!(charge_id));
                stage.api.charge_back(&charge_id);
                self.taken_back.insert(charge_id);
                None
            }
            97..99 => {
                let charge_id = self.charges.get(self.rng.random_range(0..self.charges.len().max(1)))?.clone();
                let payment_id: Option<i64> =
                    sqlx::query_scalar("SELECT payment_id FROM payments WHERE external_id = '111:' || $1")
                        .bind(&charge_id)
                        .fetch_optional(&mut *self.session.lock().await)
                        .await
                        .expect("a payment or none");
                let payment_id = payment_id?.to_string();
                self.says("a person gives back", &json!([charge_id, payment_id]));
                self.given_back.insert(charge_id);
                let number = self.next_update();
                let key = format!("{}-{number}", self.seed);
                let body = json!({ "payment_id": payment_id, "reason": "a test" });
                Some(Box::pin(async move {
                    stage.app.post_with_key("/v1/refund-tasks", &key, &body).await;
                }))
            }
            _ => {
                let number = self.orders.len();
                self.add_order(number).await;
                None
            }
        }
    }

    fn says(&mut self, what: &str, about: &Value) {
        let _ = write!(self.trace, " {what} {about}");
    }

    /// After how many microseconds the process that does a step dies, if it does.
    fn killed(&mut self) -> Option<u64> {
        (self.rng.random_range(0..6) == 0).then(|| self.rng.random_range(0..4_000))
    }

    /// Telegram tells us something; a process that dies hasn't taken it.
    fn tell(&mut self, update: Value) -> Step<'a> {
        let (app, killed) = (self.stage.app.app.clone(), self.killed());
        if update.get("message").is_some() {
            self.told.push(update.clone());
        }
        Box::pin(run(killed, async move {
            deliver(&app, &update).await;
        }))
    }

    /// Telegram tells what it has to tell, the jobs do what they have to do, and people decide what is theirs.
    async fn calm_down(&mut self) {
        let stage = self.stage;
        stage.api.fares(|_| Act::Do);
        for update in std::mem::take(&mut self.untold) {
            // A killed session's locks end when the server has seen that it is gone.
            while deliver(&stage.app.app, &update).await != Reply::Done {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let mut problems = Vec::new();
        for _ in 0..40 {
            later(stage, self.session, TimeDelta::hours(7)).await;
            // What was dropped in its middle may still hold a lock for a moment; the jobs come again.
            problems.extend(stage.app.app.telegram.reconcile().await.err().map(|fault| fault.chain()));
            problems.extend(stage.app.app.telegram.give_back().await.err().map(|fault| fault.chain()));
            self.people_decide().await;
            // A busy machine may let a call take longer than it may; then the list comes next time.
            let (open, read): (i64, bool) = sqlx::query_as(
                "SELECT (SELECT count(*) FROM refund_tasks WHERE confirmed_at IS NULL AND failed_at IS NULL),
                        EXISTS (SELECT FROM telegram_statements WHERE read_at = $1)",
            )
            .bind(stage.app.clock.now())
            .fetch_one(&mut *self.session.lock().await)
            .await
            .expect("what is left");
            if open == 0 && read {
                return;
            }
        }
        let left: Vec<String> = sqlx::query_scalar(
            "SELECT t::text FROM refund_tasks t WHERE confirmed_at IS NULL AND failed_at IS NULL
              UNION ALL SELECT s::text FROM telegram_statements s
              UNION ALL SELECT concat_ws(' ', pid, state, wait_event_type, wait_event, clock_timestamp() - state_change, query)
                          FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL",
        )
        .fetch_all(&mut *self.session.lock().await)
        .await
        .expect("what is left");
        panic!("seed {}: it doesn't calm down: {left:#?}, {:?}\n{}", self.seed, problems.last(), self.trace);
    }

    async fn people_decide(&mut self) {
        let failed: Vec<i64> = sqlx::query_scalar(
            "SELECT case_id FROM payment_cases WHERE kind = 'refund_failed' AND resolved_at IS NULL",
        )
        .fetch_all(&mut *self.session.lock().await)
        .await
        .expect("cases");
        for case_id in failed {
            let resolution = ["refund", "keep"][self.rng.random_range(0..2)];
            let path = format!("/v1/payment-cases/{case_id}/resolve");
            let body = json!({ "resolution": resolution });
            let (status, answer) = self.stage.app.post_with_key(&path, &path, &body).await;
            assert_eq!(status, 200, "seed {}: {answer}\n{}", self.seed, self.trace);
        }
    }

    /// The invariants.
    async fn is_sound(&self, seen: &mut Seen) {
        let (stage, about) = (self.stage, format!("seed {}:{}", self.seed, self.trace));
        let mut conn = self.session.lock().await;
        let owners: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT slot_id, count(*) FROM bookings WHERE slot_id = ANY ($1) AND cancelled_at IS NULL GROUP BY slot_id",
        )
        .bind(&self.slots)
        .fetch_all(&mut *conn)
        .await
        .expect("owners");
        assert!(owners.iter().all(|(_, count)| *count == 1), "{about}");
        for charge_id in &self.charges {
            let row: Option<(String, bool, Option<String>, bool, bool, bool)> = sqlx::query_as(
                "SELECT r.decision, p.cancelled_at IS NOT NULL, b.refund, b.booking_id IS NOT NULL,
                        EXISTS (SELECT FROM payment_cases c WHERE c.payment_id = p.payment_id),
                        EXISTS (SELECT FROM refund_tasks t WHERE t.payment_id = p.payment_id AND t.checking_since IS NOT NULL)
                   FROM payments p JOIN receipts r USING (payment_id) LEFT JOIN bookings b USING (payment_id)
                  WHERE p.provider = 'telegram' AND p.external_id = '111:' || $1",
            )
            .bind(charge_id)
            .fetch_optional(&mut *conn)
            .await
            .expect("one receipt");
            let about = format!("{charge_id} {row:?} {about}");
            let Some((decision, gone, refund, booked, persons, checked)) = row else { panic!("lost: {about}") };
            // The book says what Telegram says, and a refund has moved stars once.
            assert_eq!(gone, stage.api.is_refunded(charge_id), "{about}");
            assert!(stage.api.effects(charge_id) <= 1, "{about}");
            match decision.as_str() {
                "booked" => assert!(booked, "{about}"),
                "credited" => assert!(!booked, "{about}"),
                // Gone back, or a person has decided about it.
                "refund" => assert!(!booked && (gone || persons), "{about}"),
                "person" => assert!(!booked && persons, "{about}"),
                other => panic!("{other} {about}"),
            }
            // Nobody's stars go back by our doing while the booking stands.
            let wanted = self.taken_back.contains(charge_id) || self.given_back.contains(charge_id);
            if gone && decision == "booked" && !self.taken_back.contains(charge_id) {
                let into_wallet = refund.as_deref() == Some("wallet") && wanted;
                assert!(into_wallet || refund.as_deref() == Some("payer"), "{about}");
            }
            if gone && decision == "credited" {
                assert!(wanted, "{about}");
            }
            seen.booked += u64::from(decision == "booked");
            seen.refunded += u64::from(gone);
            seen.persons += u64::from(persons);
            seen.cancelled += u64::from(refund.is_some());
            seen.checked += u64::from(checked);
        }
        let received: i64 = sqlx::query_scalar(
            "SELECT coalesce(sum(amount), 0)::bigint FROM wallet_transactions
              WHERE currency = 'XTR' AND kind IN ('top_up', 'top_up_reversal')",
        )
        .fetch_one(&mut *conn)
        .await
        .expect("a sum");
        assert_eq!(received, stage.api.kept(), "{about}");
        // What is set aside is what a person has still to decide about, and nothing else.
        let (set_aside, undecided): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT coalesce(sum(amount), 0)::bigint FROM wallet_transactions
                      WHERE currency = 'XTR' AND pocket = 'set-aside'),
                    (SELECT coalesce(sum(p.amount), 0)::bigint FROM payments p JOIN payment_cases c USING (payment_id)
                      WHERE c.kind = 'mismatch' AND c.resolved_at IS NULL AND p.cancelled_at IS NULL)",
        )
        .fetch_one(&mut *conn)
        .await
        .expect("two sums");
        assert_eq!(set_aside, undecided, "{about}");
    }
}

async fn deliver(app: &App, update: &Value) -> Reply {
    let delivered = Delivered {
        secret: Some(SECRET.as_bytes().to_vec()),
        body: update.to_string().into_bytes(),
        received: Instant::now(),
        request_id: "random".to_owned(),
    };
    app.telegram.answer(delivered).await
}

/// Time passes, for us and for the database.
async fn later(stage: &Stage, session: &Mutex<PgConnection>, by: TimeDelta) {
    stage.app.clock.advance(by);
    stage.api.set_now(stage.app.clock.now().timestamp());
    sqlx::query("UPDATE test_clock SET now = $1")
        .bind(stage.app.clock.now())
        .execute(&mut *session.lock().await)
        .await
        .expect("the clock moves");
}

/// Runs work, or drops it in the middle, as the end of its process would.
async fn run(killed: Option<u64>, work: impl Future<Output = ()> + Send + 'static) {
    let Some(micros) = killed else { return work.await };
    let running = tokio::spawn(work);
    tokio::time::sleep(Duration::from_micros(micros)).await;
    running.abort();
    let _ = running.await;
}
