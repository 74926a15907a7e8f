//! Telegram waits ten seconds. Whatever the database does, the answer is there by then, and it is a yes only when the
//! slot is the order's for certain.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use hamyon::db::PoolSettings;
use reqwest::StatusCode;
use sqlx::{Connection as _, Executor as _};

use super::{ALICE, BOB, SECRET, Stage, by_api, said, send};
use crate::support::fake_bot_api::Act;

/// What Telegram gives us, with its own ways there and back.
const BUDGET: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b2_a_hundred_buyers_of_one_slot_at_once_are_one_hold_and_ninety_nine_refusals_in_time() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    for buyer in 0..100 {
        stage.order(&format!("order-{buyer}"), slot_id, ALICE + buyer).await;
    }
    let began = Instant::now();
    let answers = join_all((0..100).map(|buyer| {
        let (stage, order_id, query_id) = (&stage, format!("order-{buyer}"), format!("q{buyer}"));
        async move {
            let asked = Instant::now();
            let answer = stage.asks(&query_id, ALICE + buyer, &order_id).await;
            (answer, asked.elapsed())
        }
    }))
    .await;
    assert!(began.elapsed() < BUDGET, "{:?}", began.elapsed());
    assert_eq!(answers.iter().filter(|(answer, _)| answer.is_none()).count(), 1, "one yes");
    assert!(answers.iter().all(|(_, took)| *took < BUDGET));
    for (answer, _) in &answers {
        // An explicit no, whether the slot was seen taken or there was no time to see.
        assert!(answer.as_ref().is_none_or(|words| !words.is_empty()));
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM slot_holds").await, 1);
    let winner = answers.iter().position(|(answer, _)| answer.is_none()).expect("a winner");
    let charge_id = stage.paid(ALICE + i64::try_from(winner).unwrap(), &format!("order-{winner}")).await;
    stage.is_booked(&charge_id).await;
    stage.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b3_a_slot_that_somebody_keeps_locked_is_an_explicit_no_in_time_and_writes_nothing() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let before = stage.app.everything_written().await;
    for lock in ["SELECT FROM orders FOR NO KEY UPDATE", "SELECT FROM slots FOR NO KEY UPDATE"] {
        let mut holder = stage.app.superuser().await;
        let mut held = holder.begin().await.unwrap();
        held.execute(lock).await.unwrap();
        let asked = Instant::now();
        let words = stage.asks("q", ALICE, "a").await;
        assert!(asked.elapsed() < BUDGET, "{lock}: {:?}", asked.elapsed());
        let expected = "It could not be checked right now; nothing was charged. Try again in a moment.";
        assert_eq!(words.as_deref(), Some(expected), "{lock}");
        held.rollback().await.unwrap();
        assert_eq!(stage.app.everything_written().await, before, "{lock}");
    }
    // Nothing was decided, so the same query may still be told yes.
    stage.is_told_yes("q", ALICE, "a").await;
}

#[tokio::test]
async fn b3_without_a_database_the_answer_is_no() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let query = stage.query("q", ALICE, "a");
    stage.app.app.db.pool().close().await;
    let (status, answer) = send(&stage.app, SECRET, &query).await;
    assert_eq!(status, StatusCode::OK);
    assert!(said("q", &answer).is_some());
    // A payment, however, is never swallowed.
    let (_, update) = stage.pays(ALICE, "a", 250);
    assert_eq!(send(&stage.app, SECRET, &update).await.0, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn b3_an_answer_that_timed_out_frees_nothing() {
    // The hold may not be given up because the answer's way failed: Telegram may have it all the same.
    for act in [Act::Silence, Act::DoAndSilence, Act::DoAndStatus(502), Act::DoAndDrop, Act::Refuse(400, "too old")] {
        let stage = Stage::start_with(by_api).await;
        let slot_id = stage.slot(100).await;
        stage.order("a", slot_id, ALICE).await;
        stage.order("b", slot_id, BOB).await;
        stage.api.fares(move |_| act);
        let (status, _) = send(&stage.app, SECRET, &stage.query("q", ALICE, "a")).await;
        assert_eq!(status, StatusCode::OK, "{act:?}: the update is done with");
        assert_eq!(stage.api.called("answerPreCheckoutQuery"), 1);
        assert_eq!(stage.holder(slot_id).await.expect("it holds").0, "a", "{act:?}");
        stage.api.fares(|_| Act::Do);
        send(&stage.app, SECRET, &stage.query("qb", BOB, "b")).await;
        let last = stage.api.calls().pop().expect("a call");
        assert_eq!(
            (last.params["pre_checkout_query_id"].as_str(), last.params["ok"].as_bool()),
            (Some("qb"), Some(false))
        );
        let charge_id = stage.paid(ALICE, "a").await;
        stage.is_booked(&charge_id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b3_the_yes_is_told_after_the_commit() {
    // When the answer goes out, another session must already see the hold: a yes before the commit could be a yes
    // that the database then refuses.
    let stage = Stage::start_with(by_api).await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    // How many holds there were at each answer.
    let (seen, url) = (Arc::new(Mutex::new(Vec::<i64>::new())), stage.app.database_url());
    let seeing = seen.clone();
    stage.api.fares(move |_| {
        let (url, seeing) = (url.clone(), seeing.clone());
        // The script isn't async; a thread of its own looks while the call waits for its answer.
        let looked = std::thread::spawn(move || {
            // A runtime of its own, since the thread of the test's may be the one that waits here.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut conn = sqlx::PgConnection::connect(&url).await.unwrap();
                let holds: i64 =
                    sqlx::query_scalar("SELECT count(*) FROM slot_holds").fetch_one(&mut conn).await.unwrap();
                seeing.lock().unwrap().push(holds);
            });
        });
        looked.join().expect("looked");
        Act::Do
    });
    send(&stage.app, SECRET, &stage.query("q", ALICE, "a")).await;
    assert_eq!(*seen.lock().unwrap(), [1], "one answer, and the hold was there before it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c95_a_pool_without_a_free_connection_is_a_no_in_time() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let small = PoolSettings { connections_max: 1, ..PoolSettings::default() };
    let settings = super::with_bots(&stage.api);
    let narrow = crate::support::TestApp::start_on(stage.app.database.clone(), settings, small).await;
    let taken = narrow.app.db.pool().acquire().await.unwrap();
    let asked = Instant::now();
    let (_, answer) = send(&narrow, SECRET, &stage.query("q", ALICE, "a")).await;
    assert!(asked.elapsed() < BUDGET, "{:?}", asked.elapsed());
    assert!(said("q", &answer).is_some());
    drop(taken);
}
