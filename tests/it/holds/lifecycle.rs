//! At stake: the plain life of a hold. What is held can't be spent, nothing is charged before the result, the result
//! is charged once, and every answer comes again the same (H1, H2, H4, H5, H6, H7).

use hamyon::app::AppSettings;
use serde_json::json;

use super::Shop;
use crate::support::app::settings;

#[tokio::test]
async fn h5_a_hold_is_placed_started_settled_and_every_answer_comes_again() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let placed = shop.place("job-1", "30", json!({})).await;
    assert_eq!(placed.status, 201, "{}", placed.text());
    let hold = placed.json();
    assert_eq!(hold["status"], "placed");
    assert_eq!(hold["amount"], "30");
    assert_eq!(hold["allocations"], json!([{ "pocket": "main", "amount": "30" }]));
    assert_eq!(hold["cost_cap"], "100", "it may cost what was available");
    assert_eq!(hold["outcome"], "placed");
    assert_eq!(shop.numbers("CREDIT").await, (100, 30, 70));

    // H4, C5: the same job again is the first hold, and nothing more is held.
    let again = shop.place("job-1", "30", json!({})).await;
    assert_eq!((again.status.as_u16(), &again.json()["outcome"]), (200, &json!("already_placed")));
    assert_eq!(shop.numbers("CREDIT").await, (100, 30, 70));

    shop.start("job-1").await;
    shop.start("job-1").await;
    assert_eq!(shop.rows("CREDIT").await.len(), 1, "a job at work has no row");

    let settled = shop.settle("job-1", "as_held").await;
    assert_eq!(settled.status, 200, "{}", settled.text());
    let body = settled.json();
    assert_eq!(
        (&body["status"], &body["charged"], &body["settled_by"]),
        (&json!("settled"), &json!("30"), &json!("worker"))
    );
    assert_eq!(body["transactions"][0]["kind"], "hold_charge");
    assert_eq!(body["transactions"][0]["reference"], "hold:job-1/main");
    let mut conn = shop.app.superuser().await;
    let hold_id = hamyon::hold::HoldId::parse("job-1").unwrap();
    let story = hamyon::inquiry::explain_hold(&mut conn, &hold_id).await.unwrap().unwrap();
    assert_eq!(story.charges.len(), 1, "the desk sees which row paid");
    assert_eq!(shop.numbers("CREDIT").await, (70, 0, 70));

    // C17: the second settle answers the first, another end is told what differs.
    let again = shop.settle("job-1", "as_held").await;
    assert_eq!((again.status.as_u16(), &again.json()["charged"]), (200, &json!("30")));
    let other = shop.act("job-1", "settle", json!({ "mode": "amount", "amount": "10" })).await;
    let problem = other.refused(409, "already_settled", "another settle");
    assert_eq!(problem["fields"], json!(["amount", "mode"]));
    shop.act("job-1", "release", json!({})).await.refused(409, "already_settled", "a release after the settle");
    shop.act("job-1", "cancel", json!({})).await.refused(409, "already_settled", "a cancel after the settle");
    shop.act("job-1", "start", json!({})).await.refused(409, "already_settled", "a start after the settle");
    assert_eq!(shop.rows("CREDIT").await.len(), 2);
    assert_eq!(shop.hold("job-1").await["status"], "settled");
    shop.is_right().await;
}

#[tokio::test]
async fn h6_a_failure_is_a_release_and_no_row_stands_in_the_ledger() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.placed("job-1", "30").await;
    shop.start("job-1").await;
    let released = shop.act("job-1", "release", json!({})).await;
    assert_eq!(
        (released.status.as_u16(), &released.json()["status"]),
        (200, &json!("released")),
        "{}",
        released.text()
    );
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100));
    assert_eq!(shop.rows("CREDIT").await.len(), 1, "there is nothing that could be given back twice");
    // C19: a second release is the first; a settle comes too late.
    assert_eq!(shop.act("job-1", "release", json!({})).await.status, 200);
    shop.settle("job-1", "as_held").await.refused(409, "already_released", "a settle after the release");
    // A body may be left out.
    shop.placed("job-2", "30").await;
    let path = "/v1/holds/job-2/cancel";
    let bare = crate::support::api::Call::new("POST", path).token(&shop.app.token).send(&shop.app).await;
    assert_eq!((bare.status.as_u16(), &bare.json()["settled_by"]), (200, &json!("canceller")), "{}", bare.text());
    shop.is_right().await;
}

#[tokio::test]
async fn h7_a_partial_hold_takes_what_there_is_and_only_nothing_is_refused() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 50, None).await;
    shop.place("job-1", "60", json!({})).await.refused(402, "insufficient_funds", "more than there is, all or nothing");
    let partial = shop.place("job-1", "60", json!({ "allow_partial": true })).await.json();
    assert_eq!((&partial["amount"], &partial["cost_cap"]), (&json!("50"), &json!("50")));
    let problem =
        shop.place("job-2", "60", json!({ "allow_partial": true })).await.refused(402, "insufficient_funds", "nothing");
    assert_eq!((&problem["available_minor_units"], &problem["needed_minor_units"]), (&json!(0), &json!(1)));
    assert_eq!(shop.numbers("CREDIT").await, (50, 50, 0));
    shop.is_right().await;
}

#[tokio::test]
async fn h6_a_price_of_zero_still_places_a_hold_and_counts_as_a_job_at_work() {
    let shop = Shop::open().await;
    let free = shop.place("job-1", "0", json!({ "max_in_flight": 1 })).await;
    assert_eq!(free.status, 201, "{}", free.text());
    let busy = shop.place("job-2", "0", json!({ "max_in_flight": 1 })).await;
    let problem = busy.refused(429, "too_many_in_flight", "a second job");
    assert_eq!((&problem["in_flight"], &problem["max_in_flight"]), (&json!(1), &json!(1)));
    assert!(busy.header("retry-after").is_some_and(|secs| secs.parse::<u64>().unwrap() >= 1));
    shop.start("job-1").await;
    let settled = shop.settle("job-1", "as_held").await.json();
    assert_eq!((&settled["status"], &settled["charged"]), (&json!("settled"), &json!("0")));
    assert_eq!(shop.rows("CREDIT").await, Vec::new(), "a price of zero is no row");
    assert_eq!(shop.place("job-2", "0", json!({ "max_in_flight": 1 })).await.status, 201);
    shop.is_right().await;
}

#[tokio::test]
async fn h1_held_money_can_t_be_spent_by_any_other_path() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.placed("job-1", "80").await;
    let debit = |amount: &str, key: &str| {
        let row = json!({
            "tenant_id": "acme", "currency": "CREDIT", "kind": "purchase", "amount": amount, "reference": key,
        });
        json!({ "transactions": [row] })
    };
    let (status, answer) = shop.app.post_with_key("/v1/transactions/batch", "k1", &debit("-21", "k1")).await;
    assert_eq!((status.as_u16(), &answer["code"]), (402, &json!("insufficient_funds")), "{answer}");
    assert_eq!(answer["available_minor_units"], 20);
    let (status, answer) = shop.app.post_with_key("/v1/transactions/batch", "k2", &debit("-20", "k2")).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    assert_eq!(shop.numbers("CREDIT").await, (80, 80, 0));
    assert_eq!(shop.settle("job-1", "as_held").await.status, 200);
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0));
    shop.is_right().await;
}

#[tokio::test]
async fn s1_a_settled_hold_is_refunded_up_to_what_it_cost_and_to_money_that_lasts() {
    let credits = |text| hamyon::support::Limit::parse(text).unwrap();
    let limits =
        hamyon::support::Limits { agent: credits("CREDIT=1000"), approver: credits("CREDIT=1000"), request_hours: 24 };
    let settings = AppSettings { support_limits: std::sync::Arc::new(limits), ..settings() };
    let shop = Shop::open_with(settings).await;
    shop.give("CREDIT", "daily", 30, Some(shop.in_hours(1))).await;
    shop.placed("job-1", "30").await;
    let settled = shop.settle("job-1", "as_held").await.json();
    let seq = settled["transactions"][0]["seq"].as_i64().unwrap();
    let refund =
        |amount: &str| json!({ "transaction": seq, "amount": amount, "currency": "CREDIT", "reason": "bad result" });
    // The pocket's time is over, and the refund goes where it can be spent.
    shop.wait(3_600);
    // C41
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/refunds", "r1", &refund("30")).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/refunds", "r2", &refund("1")).await;
    assert_eq!((status.as_u16(), &answer["code"]), (409, &json!("original_exceeded")), "{answer}");
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "30" }));
    shop.is_right().await;
}

#[tokio::test]
async fn l6_an_idempotency_key_that_is_sent_is_honoured() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let body = json!({ "hold_id": "job-1", "tenant_id": "acme", "currency": "CREDIT", "amount": "30" });
    let (status, first) = shop.app.post_with_key("/v1/holds", "k", &body).await;
    assert_eq!(status.as_u16(), 201, "{first}");
    let (status, again) = shop.app.post_with_key("/v1/holds", "k", &body).await;
    assert_eq!((status.as_u16(), &again), (201, &first), "byte for byte what was answered");
    let other = json!({ "hold_id": "job-2", "tenant_id": "acme", "currency": "CREDIT", "amount": "30" });
    let (status, answer) = shop.app.post_with_key("/v1/holds", "k", &other).await;
    assert_eq!((status.as_u16(), &answer["code"]), (409, &json!("idempotency_key_reused")), "{answer}");
    let settle = json!({ "mode": "as_held" });
    let (status, _) = shop.app.post_with_key("/v1/holds/job-1/settle", "s", &settle).await;
    assert_eq!(status.as_u16(), 200);
    let (status, answer) = shop.app.post_with_key("/v1/holds/job-1/release", "s", &json!({})).await;
    assert_eq!((status.as_u16(), &answer["code"]), (409, &json!("idempotency_key_reused")), "{answer}");
    assert_eq!(shop.numbers("CREDIT").await, (70, 0, 70));
}

#[tokio::test]
async fn h8_usage_is_reckoned_by_the_price_book_of_the_hold_and_rounded_once() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 1_000, None).await;
    let book = |version: i32, input: &str| json!({ "version": version, "models": [{ "model": "small", "input": input, "output": "15", "cached": "0.3" }] });
    assert_eq!(shop.post("/v1/price-books", &book(1, "3")).await.status, 201);
    assert_eq!(shop.placed("job-1", "20").await["price_version"], 1);
    // Dearer from now on, but not for a job that is placed.
    assert_eq!(shop.post("/v1/price-books", &book(2, "300")).await.status, 201);
    let call = json!({ "call_id": "c1", "model": "small", "input_tokens": 1_001, "output_tokens": 200, "cached_tokens": 5_000 });
    let used = shop.act("job-1", "usage", call.clone()).await;
    assert_eq!(used.status, 201, "{}", used.text());
    // 1,001 × 3 + 200 × 15 + 5,000 × 0.3 = 7,503 micro-dollars; 7.503 credits are 8.
    assert_eq!((&used.json()["cost_micro"], &used.json()["used"]), (&json!(7_503), &json!("8")), "{}", used.text());
    let again = shop.act("job-1", "usage", call).await;
    assert_eq!((again.status.as_u16(), &again.json()["used_micro"]), (200, &json!(7_503)));
    let other =
        json!({ "call_id": "c1", "model": "small", "input_tokens": 1, "output_tokens": 200, "cached_tokens": 5_000 });
    let problem = shop.act("job-1", "usage", other).await.refused(409, "call_differs", "the same call, other numbers");
    assert_eq!(problem["fields"], json!(["input_tokens"]));
    // 7,503 + 497 is exactly 8 credits; one micro-dollar more is a ninth.
    assert_eq!(shop.used("job-1", "c2", 497).await.json()["used"], "8");
    assert_eq!(shop.used("job-1", "c3", 1).await.json()["used"], "9");
    let settled = shop.settle("job-1", "by_usage").await.json();
    assert_eq!((&settled["charged"], &settled["used_micro"]), (&json!("9"), &json!(8_001)));
    assert_eq!(shop.numbers("CREDIT").await, (991, 0, 991));
    let new = shop.placed("job-2", "20").await;
    assert_eq!(new["price_version"], 2);
    let unknown = json!({ "call_id": "c1", "model": "large", "input_tokens": 1 });
    shop.act("job-2", "usage", unknown).await.refused(422, "unknown_model", "a model the book doesn't know");
    shop.is_right().await;
}

#[tokio::test]
async fn h10_failed_and_cancelled_work_pays_what_it_used() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.placed("failed", "20").await;
    shop.start("failed").await;
    shop.used("failed", "c1", 4_200).await;
    let released = shop.act("failed", "release", json!({})).await.json();
    assert_eq!((&released["status"], &released["charged"]), (&json!("settled"), &json!("5")), "{released}");
    // H6: after the start only the worker can stop; he hears it with his next sign of life.
    shop.placed("stopped", "20").await;
    shop.start("stopped").await;
    shop.act("stopped", "cancel", json!({})).await.refused(409, "already_started", "a plain cancel");
    let asked = shop.act("stopped", "cancel", json!({ "cooperative": true })).await;
    assert_eq!((asked.status.as_u16(), &asked.json()["cancel_requested"]), (202, &json!(true)), "{}", asked.text());
    assert_eq!(shop.act("stopped", "heartbeat", json!({})).await.json()["cancel_requested"], true);
    let last = shop.used("stopped", "c1", 1_000).await.json();
    assert_eq!((&last["stop"], &last["cancel_requested"]), (&json!(true), &json!(true)));
    assert_eq!(shop.settle("stopped", "by_usage").await.json()["charged"], "1");
    assert_eq!(shop.numbers("CREDIT").await, (94, 0, 94));
    shop.is_right().await;
}

#[tokio::test]
async fn h10_what_runs_over_the_hold_comes_from_available_and_what_is_beyond_makes_the_balance_negative() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "welcome", 10, None).await;
    shop.give("CREDIT", "main", 20, None).await;
    let hold = shop.placed("job-1", "5").await;
    assert_eq!(hold["allocations"], json!([{ "pocket": "welcome", "amount": "5" }]), "bought money is spent last");
    assert_eq!(hold["cost_cap"], "30");
    assert_eq!(shop.used("job-1", "c1", 29_000).await.json()["stop"], false);
    let over = shop.used("job-1", "c2", 8_000).await.json();
    assert_eq!((&over["used"], &over["remaining"], &over["stop"]), (&json!("37"), &json!("0"), &json!(true)), "{over}");
    // The cap is reached, so there is no further call: a job costs its cap and one call at the most.
    let problem = shop.used("job-1", "c3", 1).await.refused(409, "cost_cap_reached", "a call after the cap");
    assert_eq!((&problem["used_micro"], &problem["cap_micro"]), (&json!(37_000), &json!(30_000)));
    assert_eq!(shop.settle("job-1", "by_usage").await.json()["charged"], "37");
    assert_eq!(shop.numbers("CREDIT").await, (-7, 0, -7));
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "-7" }), "welcome is empty, main is overdrawn");
    shop.place("job-2", "1", json!({ "allow_partial": true })).await.refused(
        402,
        "insufficient_funds",
        "a negative balance",
    );
    shop.is_right().await;
}

#[tokio::test]
async fn h13_events_are_written_with_their_effect_and_waiting_is_said_only_when_it_is_true() {
    let shop = Shop::open().await;
    let url = "https://example.org/hook";
    let (status, answer) = shop.app.post("/v1/webhook-endpoints", &json!({ "url": url })).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    shop.give("CREDIT", "main", 100, None).await;
    shop.placed("quick", "10").await;
    shop.placed("slow", "10").await;
    shop.start("quick").await;
    let terms = hamyon::hold::Terms::default();
    let tell = || hamyon::hold::tell_waiting(&shop.app.app.db, &shop.app.clock, &terms);
    shop.wait(4);
    assert_eq!(tell().await.unwrap(), 0, "four seconds are no queue");
    shop.wait(1);
    assert_eq!(tell().await.unwrap(), 1, "only the one that still waits");
    assert_eq!(tell().await.unwrap(), 0, "once");
    shop.settle("quick", "as_held").await;
    shop.act("slow", "cancel", json!({})).await;
    let kinds: Vec<String> = sqlx::query_scalar("SELECT kind FROM events WHERE kind LIKE 'hold.%' ORDER BY event_id")
        .fetch_all(&mut shop.app.superuser().await)
        .await
        .unwrap();
    assert_eq!(kinds, ["hold.placed", "hold.placed", "hold.waiting", "hold.settled", "hold.released"]);
}

#[tokio::test]
async fn a_balance_of_the_past_knows_what_was_held_then() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.wait(10);
    shop.placed("job-1", "30").await;
    shop.wait(10);
    let then = shop.app.clock.now();
    shop.wait(10);
    shop.settle("job-1", "as_held").await;
    shop.wait(10);
    let path = format!("/v1/tenants/acme/balance?currency=CREDIT&at={}", then.format("%Y-%m-%dT%H:%M:%SZ"));
    let (_, balance) = shop.app.get(&path).await;
    assert_eq!(
        (&balance["balance"], &balance["held"], &balance["available"]),
        (&json!("100"), &json!("30"), &json!("70"))
    );
    assert_eq!(shop.numbers("CREDIT").await, (70, 0, 70));
}

#[tokio::test]
async fn h9_a_balance_of_the_past_leaves_out_holds_whose_time_was_over_then() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    let placed_at = shop.app.clock.now();
    shop.place("dead", "30", json!({ "ttl_secs": 10 })).await;
    shop.place("leased", "20", json!({ "ttl_secs": 10 })).await;
    shop.act("leased", "start", json!({ "lease_secs": 40 })).await;
    let held = async |secs: i64| {
        let at = (placed_at + chrono::TimeDelta::seconds(secs)).format("%Y-%m-%dT%H:%M:%SZ");
        let (_, balance) = shop.app.get(&format!("/v1/tenants/acme/balance?currency=CREDIT&at={at}")).await;
        (balance["held"].as_str().unwrap().to_owned(), balance["available"].as_str().unwrap().to_owned())
    };
    let expected = [(9, "50", "50"), (10, "20", "80"), (39, "20", "80"), (40, "0", "100")];
    shop.wait(50);
    assert_eq!(shop.numbers("CREDIT").await, (100, 0, 100));
    for (secs, kept, available) in expected {
        assert_eq!(held(secs).await, (kept.to_owned(), available.to_owned()), "after {secs} s, nobody has ended them");
    }
    let done = shop.reconcile().await;
    assert_eq!((done.released, done.settled), (1, 1));
    for (secs, kept, available) in expected {
        assert_eq!(held(secs).await, (kept.to_owned(), available.to_owned()), "after {secs} s, looked at later");
    }
}

#[tokio::test]
async fn holds_are_listed_in_pages_and_their_numbers_counted_by_tier() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 1_000, None).await;
    for (number, charged) in [2, 3, 4, 5, 40].into_iter().enumerate() {
        let tier = json!({ "tier": "standard", "currency": "CREDIT", "amount": "20" });
        assert_eq!(shop.post("/v1/hold-tiers", &tier).await.status, 201);
        let body = json!({
            "hold_id": format!("job-{number}"), "tenant_id": "acme", "currency": "CREDIT", "tier": "standard",
        });
        let placed = shop.post("/v1/holds", &body).await;
        assert_eq!((placed.status.as_u16(), &placed.json()["tier"]), (201, &json!("standard")), "{}", placed.text());
        shop.used(&format!("job-{number}"), "c", charged * 1_000).await;
        shop.settle(&format!("job-{number}"), "by_usage").await;
        shop.wait(1);
    }
    shop.placed("open", "1").await;
    let (_, stats) = shop.app.get("/v1/holds/stats").await;
    let tier = &stats["tiers"].as_array().unwrap().iter().find(|tier| tier["tier"] == "standard").unwrap().clone();
    assert_eq!((&tier["holds"], &tier["settled"], &tier["over"]), (&json!(5), &json!(5), &json!(1)), "{tier}");
    assert_eq!((&tier["held"], &tier["charged"]), (&json!("100"), &json!("54")));
    assert_eq!((&tier["charged_p50"], &tier["charged_p99"]), (&json!("4"), &json!("40")));
    let (_, page) = shop.app.get("/v1/holds?tenant_id=acme&limit=4").await;
    let ids = |page: &serde_json::Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|hold| hold["hold_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&page), ["open", "job-4", "job-3", "job-2"]);
    let next = page["next"].as_str().unwrap().to_owned();
    let (_, page) = shop.app.get(&format!("/v1/holds?tenant_id=acme&limit=4&before={next}")).await;
    assert_eq!((ids(&page), &page["next"]), (vec!["job-1".to_owned(), "job-0".to_owned()], &json!(null)));
    let (_, page) = shop.app.get("/v1/holds?tenant_id=acme&unended=true").await;
    assert_eq!(ids(&page), ["open"]);
}
