//! Many postings of one wallet at once share a transaction. Rules L3 to L6 must not feel it: each is booked once
//! or refused alone, under its own key, with its own answer, in the order of arrival.

use futures::future::join_all;
use hamyon::batch::{Batch, Refusal};
use hamyon::fault::Error;
use hamyon::idempotency::{Answer, Claim, Key};
use hamyon::ids::Actor;
use hamyon::ledger::{self, Entry};
use serde_json::json;
use sqlx::{Connection as _, Executor as _};

use crate::locking::until_blocked;
use crate::support::TestApp;
use crate::support::app::entry;

/// A batch under a key, which is also what it asks for.
fn batch(key: &str, entries: Vec<Entry>) -> Batch {
    let request = json!(entries.iter().map(|entry| entry.reference.as_str()).collect::<Vec<_>>());
    Batch {
        entries,
        claim: Claim::new("shop".to_owned(), Key::parse(key).unwrap(), "test".to_owned(), request),
        actor: Actor::job("shop"),
        status: 201,
        render: Box::new(|rows| {
            Ok(rows.iter().map(|row| format!("{} {}", row.seq, row.reference)).collect::<Vec<_>>().concat())
        }),
    }
}

fn purchase(reference: &str, amount: i64) -> Batch {
    batch(reference, vec![entry("acme", "purchase", -amount, reference)])
}

fn bonus(reference: &str, amount: i64) -> Batch {
    batch(reference, vec![entry("acme", "bonus", amount, reference)])
}

/// Posts all of them while somebody else holds the wallet, so that those of a lane wait for its first.
async fn post_at_once(app: &TestApp, batches: Vec<Batch>) -> Vec<Result<Answer, Error<Refusal>>> {
    let mut session = app.superuser().await;
    let mut holder = session.begin().await.unwrap();
    holder.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.unwrap();
    let posts = join_all(batches.into_iter().map(|batch| app.app.batches.post(batch)));
    let (answers, ()) = tokio::join!(posts, async {
        until_blocked(app, 1).await;
        holder.rollback().await.unwrap();
    });
    answers
}

async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1_000).await;
    app
}

#[tokio::test]
async fn l3_what_waits_for_a_wallet_is_booked_together_in_its_order() {
    let app = app().await;
    let batches = (1..=40).map(|number| purchase(&format!("p{number}"), number)).collect();
    let answers = post_at_once(&app, batches).await;
    for (number, answer) in (1..=40).zip(answers) {
        let body = format!("{} p{number}", number + 1);
        assert_eq!(answer.unwrap(), Answer { status: 201, body, replayed: false });
    }
    assert_eq!(app.sum("acme").await, 1_000 - 820);
    let together = "SELECT count(DISTINCT xmin::text) FROM wallet_transactions WHERE kind = 'purchase'";
    assert!(app.count(together).await <= 2, "the first perhaps alone, the others together");
    assert_eq!(app.verify().await.wrong, 0);
}

#[tokio::test]
async fn l4_what_is_refused_is_refused_alone() {
    let app = app().await;
    let amounts = [("first", 100), ("second", 300), ("too much", 700), ("third", 600), ("none left", 1)];
    let answers =
        post_at_once(&app, amounts.iter().map(|(key, amount)| purchase(&key.replace(' ', "-"), *amount)).collect())
            .await;
    let refused: Vec<bool> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(_) => false,
            Err(Error::Refused(Refusal::Ledger(ledger::Refusal::InsufficientFunds { .. }))) => true,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(refused, [false, false, true, false, true]);
    assert_eq!(app.sum("acme").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM idempotency_keys WHERE client = 'shop'").await, 3);
}

#[tokio::test]
async fn l6_the_same_key_many_times_among_others_has_one_effect_and_one_answer() {
    let app = app().await;
    let mut batches = vec![purchase("zero", 1)];
    batches.extend((0..10).map(|_| purchase("same", 10)));
    batches.push(purchase("other", 5));
    let answers: Vec<Answer> = post_at_once(&app, batches).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(app.sum("acme").await, 984);
    assert_eq!(answers.iter().filter(|answer| answer.body.ends_with("same") && !answer.replayed).count(), 1);
    assert!(answers[1..=10].iter().all(|answer| answer.body == answers[1].body));
    // And later on: the answer comes from the key, also when others are booked beside it.
    let again = post_at_once(&app, vec![purchase("more", 1), purchase("same", 10), purchase("last", 1)]).await;
    let again: Vec<Answer> = again.into_iter().map(Result::unwrap).collect();
    assert_eq!((again[1].body.as_str(), again[1].replayed), (answers[1].body.as_str(), true));
    assert_eq!(app.sum("acme").await, 982);
}

#[tokio::test]
async fn l6_a_key_that_stands_for_another_request_is_a_conflict_for_that_one_only() {
    let app = app().await;
    app.app.batches.post(purchase("used", 10)).await.unwrap();
    let other = batch("used", vec![entry("acme", "purchase", -20, "another")]);
    let mut answers =
        post_at_once(&app, vec![purchase("one", 1), purchase("two", 2), other, purchase("three", 3)]).await;
    assert!(matches!(answers.remove(2), Err(Error::Refused(Refusal::Key(_)))));
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(app.sum("acme").await, 984);
}

#[tokio::test]
async fn l5_an_event_that_is_booked_is_refused_for_that_one_only() {
    let app = app().await;
    app.app.batches.post(purchase("event", 10)).await.unwrap();
    let twice = batch("new-key", vec![entry("acme", "purchase", -10, "event")]);
    let mut answers = post_at_once(&app, vec![purchase("one", 1), twice, purchase("two", 2)]).await;
    assert!(matches!(answers.remove(1), Err(Error::Refused(Refusal::Ledger(ledger::Refusal::AlreadyBooked { .. })))));
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(app.sum("acme").await, 987);
}

#[tokio::test]
async fn f5_a_debit_beside_credits_never_takes_what_a_due_had_a_right_to() {
    let app = app().await;
    app.plan("standard", "20.00").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(hamyon::jobs::Job::FeeRun.run(&app.app).await.unwrap(), 1);
    let answers = post_at_once(&app, vec![bonus("c1", 600), bonus("c2", 500), purchase("late", 2_000)]).await;
    // Whichever lane was first: the credits pay the due as soon as it can be paid, and the debit has what is left.
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert!(matches!(answers[2], Err(Error::Refused(Refusal::Ledger(ledger::Refusal::InsufficientFunds { .. })))));
    assert_eq!(app.sum("acme").await, 100);
}

#[tokio::test]
async fn l8_one_who_hangs_up_in_the_lane_is_booked_and_holds_up_nobody() {
    let app = app().await;
    let mut session = app.superuser().await;
    let mut holder = session.begin().await.unwrap();
    holder.execute("SELECT FROM wallets WHERE tenant_id = 'acme' FOR NO KEY UPDATE").await.unwrap();
    let posts: Vec<_> = ["a", "b", "c"]
        .map(|key| {
            let batches = app.app.batches.clone();
            tokio::spawn(async move { batches.post(purchase(key, 10)).await })
        })
        .into();
    until_blocked(&app, 1).await;
    posts[0].abort();
    posts[1].abort();
    holder.rollback().await.unwrap();
    let mut posts = posts;
    posts.pop().unwrap().await.unwrap().unwrap();
    for key in ["a", "b"] {
        assert!(app.app.batches.post(purchase(key, 10)).await.unwrap().replayed);
    }
    assert_eq!(app.sum("acme").await, 970);
}
