//! Making slots and finding the free ones.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::telegram::{ALICE, Stage, fix_database_clock};

async fn shop(zone: &str) -> TestApp {
    let app = TestApp::start().await;
    fix_database_clock(&app).await;
    app.tenant("acme").await;
    let body = json!({ "resource_id": "room", "name": "A room", "time_zone": zone });
    let (status, answer) = app.post("/v1/resources", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    app
}

fn pattern(weekdays: &[&str], starts: &str, minutes: u16, times: u16, from: &str, to: &str) -> Value {
    json!({ "resource_id": "room", "prices": [{ "currency": "XTR", "amount": "5" }],
            "pattern": { "weekdays": weekdays, "starts": starts, "minutes": minutes, "times": times,
                         "from": from, "to": to } })
}

fn starts(page: &Value) -> Vec<DateTime<Utc>> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("no items: {page}"));
    items.iter().map(|slot| slot["starts_at"].as_str().expect("a time").parse().expect("a time")).collect()
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

#[tokio::test]
async fn a_weekly_pattern_makes_slots_by_the_resources_own_clock() {
    let app = shop("Asia/Tashkent").await;
    let body = pattern(&["mon", "thu"], "18:00", 60, 2, "2026-12-01", "2026-12-10");
    let (status, page) = app.post("/v1/slots", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{page}");
    // The 3rd and the 10th are Thursdays, the 7th a Monday; 18:00 there is 13:00 UTC.
    let expected = ["03T13", "03T14", "07T13", "07T14", "10T13", "10T14"];
    assert_eq!(starts(&page), expected.map(|hour| at(&format!("2026-12-{hour}:00:00Z"))));
    // The same again is the same slots.
    assert_eq!(app.post("/v1/slots", &body).await.1, page);
    assert_eq!(app.count("SELECT count(*) FROM slots").await, 6);
    let (_, free) = app.get("/v1/slots?resource_id=room").await;
    assert_eq!(starts(&free), starts(&page));
    assert_eq!(free["items"][0]["prices"], json!([{ "currency": "XTR", "amount": "5" }]));
}

#[tokio::test]
async fn f1_a_pattern_keeps_its_local_hour_when_the_clocks_change() {
    let app = shop("Europe/Berlin").await;
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let (_, page) = app.post("/v1/slots", &pattern(&days, "10:00", 30, 1, "2027-03-27", "2027-03-29")).await;
    let expected = ["2027-03-27T09:00:00Z", "2027-03-28T08:00:00Z", "2027-03-29T08:00:00Z"];
    assert_eq!(starts(&page), expected.map(at));
    // 02:30 doesn't exist on the 28th of March, and exists twice on the 31st of October.
    let (_, page) = app.post("/v1/slots", &pattern(&days, "02:30", 30, 1, "2027-03-27", "2027-03-29")).await;
    assert_eq!(starts(&page), ["2027-03-27T01:30:00Z", "2027-03-29T00:30:00Z"].map(at));
    let (_, page) = app.post("/v1/slots", &pattern(&days, "02:30", 30, 1, "2027-10-31", "2027-10-31")).await;
    assert_eq!(starts(&page), ["2027-10-31T00:30:00Z"].map(at));
}

#[tokio::test]
async fn f1_each_slot_of_a_day_is_where_the_local_clock_shows_its_time() {
    let app = shop("Europe/Berlin").await;
    // The hour from 02:00 to 03:00 is missing on this day, and the others are where they always are.
    let (_, page) = app.post("/v1/slots", &pattern(&["sun"], "00:00", 60, 24, "2027-03-28", "2027-03-28")).await;
    let spring = starts(&page);
    assert_eq!((spring.len(), spring[0], spring[1]), (23, at("2027-03-27T23:00:00Z"), at("2027-03-28T00:00:00Z")));
    assert_eq!((spring[2], spring[22]), (at("2027-03-28T01:00:00Z"), at("2027-03-28T21:00:00Z")), "03:00 and 23:00");
    // The whole day isn't lost with its first hour.
    let (_, page) = app.post("/v1/slots", &pattern(&["sun"], "02:00", 30, 4, "2028-03-26", "2028-03-26")).await;
    assert_eq!(starts(&page), ["2028-03-26T01:00:00Z", "2028-03-26T01:30:00Z"].map(at));
    // Twenty-five hours have twenty-four slots: of the hour that comes twice the first is meant.
    let (_, page) = app.post("/v1/slots", &pattern(&["sun"], "00:00", 60, 24, "2027-10-31", "2027-10-31")).await;
    let autumn = starts(&page);
    assert_eq!((autumn.len(), autumn[2], autumn[3]), (24, at("2027-10-31T00:00:00Z"), at("2027-10-31T02:00:00Z")));
    assert_eq!(autumn[23], at("2027-10-31T22:00:00Z"), "23:00 there");
    // What would begin on the next day is no slot of this one.
    let (_, page) = app.post("/v1/slots", &pattern(&["tue"], "23:00", 30, 9, "2027-05-04", "2027-05-04")).await;
    assert_eq!(starts(&page), ["2027-05-04T21:00:00Z", "2027-05-04T21:30:00Z"].map(at));
}

#[tokio::test]
async fn a_pattern_that_makes_nothing_says_so() {
    let app = shop("Europe/Berlin").await;
    let before = app.everything_written().await;
    // A Sunday among no Sundays; and an hour that its only day doesn't have.
    for body in [
        pattern(&["sun"], "10:00", 60, 1, "2027-05-03", "2027-05-08"),
        pattern(&["sun"], "02:00", 60, 1, "2027-03-28", "2027-03-28"),
    ] {
        let (status, problem) = app.post("/v1/slots", &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("no_slots")), "{problem}");
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn an_order_for_a_slot_that_nobody_can_get_any_more_is_refused() {
    let stage = Stage::start().await;
    let (sold, gone, past) = (stage.slot(100).await, stage.slot(101).await, stage.slot(1).await);
    stage.order("a", sold, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    // Held isn't gone: the other may not pay.
    stage.order("b", sold, ALICE).await;
    stage.is_booked(&stage.paid(ALICE, "a").await).await;
    assert_eq!(stage.app.post(&format!("/v1/slots/{gone}/withdraw"), &json!({})).await.0.as_u16() / 100, 2);
    stage.later(TimeDelta::hours(2)).await;
    let before = stage.app.everything_written().await;
    for slot_id in [sold, gone, past] {
        let body = json!({ "order_id": "c", "tenant_id": "acme", "title": "One hour", "slot_id": slot_id,
                           "currency": "XTR", "payer": ALICE.to_string() });
        let (status, problem) = stage.app.post("/v1/orders", &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("slot_gone")), "{problem}");
    }
    assert_eq!(stage.app.everything_written().await, before);
    // The same order again is answered as it stands.
    let body = json!({ "order_id": "b", "tenant_id": "acme", "title": "One hour", "slot_id": sold,
                       "currency": "XTR", "payer": ALICE.to_string() });
    assert_eq!(stage.app.post("/v1/orders", &body).await.0.as_u16(), 200);
}

#[tokio::test]
async fn an_overlap_is_refused_and_nothing_of_the_request_is_made() {
    let app = shop("Asia/Tashkent").await;
    app.post("/v1/resources", &json!({ "resource_id": "other", "name": "Another" })).await;
    let slot = |resource: &str, starts: &str, ends: &str| {
        json!({ "resource_id": resource, "starts_at": format!("2026-12-05T{starts}:00Z"),
                "ends_at": format!("2026-12-05T{ends}:00Z") })
    };
    assert_eq!(app.post("/v1/slots", &slot("room", "10:00", "11:00")).await.0, 201);
    for (starts, ends) in [("10:30", "11:30"), ("09:30", "10:30"), ("10:15", "10:45"), ("09:00", "12:00")] {
        let (status, problem) = app.post("/v1/slots", &slot("room", starts, ends)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("slot_overlaps")), "{starts} {problem}");
    }
    for (resource, starts, ends) in
        [("room", "11:00", "12:00"), ("room", "09:00", "10:00"), ("other", "10:00", "11:00")]
    {
        assert_eq!(app.post("/v1/slots", &slot(resource, starts, ends)).await.0, 201, "{resource} {starts}");
    }
    let before = app.everything_written().await;
    let body = pattern(&["fri", "sat", "sun"], "15:30", 60, 1, "2026-12-04", "2026-12-06");
    // The Friday is free, and on Saturday 15:30 there is 10:30 UTC.
    assert_eq!(app.post("/v1/slots", &body).await.0, 409);
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_requests_that_make_the_same_slots_at_once_make_them_once() {
    let app = shop("Asia/Tashkent").await;
    let body = pattern(&["mon", "tue", "wed"], "09:00", 30, 10, "2026-12-07", "2026-12-31");
    let answers = futures::future::join_all((0..4).map(|_| app.post("/v1/slots", &body))).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count(), 1);
    assert!(answers.iter().all(|(status, page)| status.is_success() && *page == answers[0].1));
}

#[tokio::test]
async fn free_is_what_nobody_holds_has_booked_or_has_missed() {
    let stage = Stage::start().await;
    let slots = [stage.slot(1).await, stage.slot(10).await, stage.slot(20).await, stage.slot(30).await];
    let free = async |query: &str| -> Vec<i64> {
        let (status, page) = stage.app.get(&format!("/v1/slots{query}")).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().expect("items");
        items.iter().map(|slot| slot["slot_id"].as_i64().expect("a number")).collect()
    };
    assert_eq!(free("").await, slots);
    for (order_id, slot_id) in [("held", slots[1]), ("booked", slots[2])] {
        stage.order(order_id, slot_id, ALICE).await;
        stage.is_told_yes(order_id, ALICE, order_id).await;
    }
    stage.paid(ALICE, "booked").await;
    assert_eq!(free("").await, [slots[0], slots[3]]);
    stage.later(TimeDelta::minutes(5)).await;
    assert_eq!(free("").await, [slots[0], slots[1], slots[3]], "the hold is over");
    stage.later(TimeDelta::minutes(55)).await;
    assert_eq!(free("").await, [slots[1], slots[3]], "the first has begun");
    assert_eq!(free("?resource_id=nothing").await, [0; 0]);
    // Page by page.
    let (_, first) = stage.app.get("/v1/slots?limit=1").await;
    let next = first["next"].as_str().expect("a place");
    assert_eq!(free(&format!("?limit=1&after={next}")).await, [slots[3]]);
}

#[tokio::test]
async fn what_isnt_a_slot_is_refused_with_the_field_that_is_wrong() {
    let app = shop("Asia/Tashkent").await;
    let before = app.everything_written().await;
    let one = |starts: &str, ends: &str| json!({ "resource_id": "room", "starts_at": starts, "ends_at": ends });
    let priced = |prices: Value| {
        json!({ "resource_id": "room", "starts_at": "2026-12-05T10:00:00Z", "ends_at": "2026-12-05T11:00:00Z",
                "prices": prices })
    };
    let days = &["mon"];
    for (body, status) in [
        (json!({ "resource_id": "room" }), 400),
        (
            json!({ "resource_id": "nothing", "starts_at": "2026-12-05T10:00:00Z", "ends_at": "2026-12-05T11:00:00Z" }),
            404,
        ),
        (one("2026-12-05T10:00:00Z", "2026-12-05T10:00:00Z"), 400),
        (one("2026-12-05T10:00:00Z", "2026-12-05T09:00:00Z"), 400),
        (one("2026-12-05T10:00:00Z", "2028-12-05T09:00:00Z"), 400),
        (priced(json!([{ "currency": "XTR", "amount": "0" }])), 400),
        (priced(json!([{ "currency": "XTR", "amount": "-1" }])), 400),
        (priced(json!([{ "currency": "XTR", "amount": "1.5" }])), 400),
        (priced(json!([{ "currency": "ABC", "amount": "1" }])), 404),
        (priced(json!([{ "currency": "XTR", "amount": "1" }, { "currency": "XTR", "amount": "2" }])), 400),
        (pattern(&["someday"], "10:00", 60, 1, "2026-12-01", "2026-12-02"), 400),
        (pattern(&[], "10:00", 60, 1, "2026-12-01", "2026-12-02"), 400),
        (pattern(days, "25:00", 60, 1, "2026-12-01", "2026-12-02"), 400),
        (pattern(days, "10:00", 0, 1, "2026-12-01", "2026-12-02"), 400),
        (pattern(days, "10:00", 60, 0, "2026-12-01", "2026-12-02"), 400),
        (pattern(days, "10:00", 60, 1, "2026-12-02", "2026-12-01"), 400),
        (pattern(days, "10:00", 60, 1, "2026-12-01", "2030-12-01"), 400),
        (pattern(days, "10:00", 5, 96, "2026-01-01", "2026-12-31"), 400),
    ] {
        let (seen, problem) = app.post("/v1/slots", &body).await;
        assert_eq!(seen.as_u16(), status, "{body} {problem}");
    }
    for (body, status) in [
        (json!({ "resource_id": "room", "name": "Another name" }), 409),
        (json!({ "resource_id": "a b", "name": "A room" }), 400),
        (json!({ "resource_id": "x", "name": "" }), 400),
        (json!({ "resource_id": "x", "name": "X", "time_zone": "Mars/Base" }), 400),
    ] {
        let (seen, problem) = app.post("/v1/resources", &body).await;
        assert_eq!(seen.as_u16(), status, "{body} {problem}");
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_slot_that_has_begun_isnt_made_and_one_that_is_there_is_answered_the_same() {
    let app = shop("Asia/Tashkent").await;
    let now = app.clock.now();
    let slot = |hours: i64| {
        let starts_at = now + TimeDelta::hours(hours);
        json!({ "resource_id": "room", "starts_at": starts_at, "ends_at": starts_at + TimeDelta::hours(1) })
    };
    let before = app.everything_written().await;
    for hours in [-1, 0] {
        let (status, problem) = app.post("/v1/slots", &slot(hours)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("slot_past")), "{problem}");
    }
    assert_eq!(app.everything_written().await, before);
    let made = app.post("/v1/slots", &slot(1)).await;
    assert_eq!(made.0, 201);
    app.clock.advance(TimeDelta::hours(3));
    assert_eq!(app.post("/v1/slots", &slot(1)).await, (StatusCode::OK, made.1), "a repeat, after it has begun");
}

#[tokio::test]
async fn a_slot_made_by_mistake_is_withdrawn_and_another_stands_in_its_place() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    let path = format!("/v1/slots/{slot_id}/withdraw");
    for _ in 0..2 {
        let (status, answer) = stage.app.post(&path, &json!({})).await;
        assert_eq!((status.as_u16(), &answer["slot_id"]), (200, &json!(slot_id)), "{answer}");
    }
    assert_eq!(stage.app.get("/v1/slots").await.1["items"], json!([]));
    // Whoever had ordered it is told no, and a payment that comes all the same goes back.
    assert!(stage.asks("q", ALICE, "a").await.is_some());
    let charge_id = stage.paid(ALICE, "a").await;
    stage.goes_back(&charge_id, "hold_over").await;
    let again = stage.slot(100).await;
    assert_ne!(again, slot_id, "its time is free for another");
    assert_eq!(stage.app.post("/v1/slots/999/withdraw", &json!({})).await.1["code"], "slot_not_found");
    assert_eq!(stage.app.post("/v1/slots/x/withdraw", &json!({})).await.1["code"], "slot_not_found");
}

#[tokio::test]
async fn what_somebody_holds_or_has_booked_isnt_withdrawn() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    let path = format!("/v1/slots/{slot_id}/withdraw");
    let (status, problem) = stage.app.post(&path, &json!({})).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("slot_held")), "{problem}");
    let charge_id = stage.paid(ALICE, "a").await;
    stage.is_booked(&charge_id).await;
    let (status, problem) = stage.app.post(&path, &json!({})).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("slot_booked")), "{problem}");
    assert_eq!(stage.app.count("SELECT count(*) FROM slots WHERE withdrawn_at IS NOT NULL").await, 0);
    assert_eq!(stage.app.get("/v1/orders/a").await.1["booking_id"], json!(1), "an order says its booking");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawal_and_a_buyer_at_once_exactly_one_wins() {
    let stage = Stage::start().await;
    let (mut sold, mut withdrawn) = (0, 0);
    for round in 0..20 {
        let slot_id = stage.slot(100 + round).await;
        let order_id = format!("o{round}");
        stage.order(&order_id, slot_id, ALICE).await;
        let (path, query) = (format!("/v1/slots/{slot_id}/withdraw"), format!("q{round}"));
        let body = json!({});
        let (answer, withdrawal) = tokio::join!(stage.asks(&query, ALICE, &order_id), stage.app.post(&path, &body));
        let (yes, gone) = (answer.is_none(), withdrawal.0 == 200);
        assert!(yes != gone, "round {round}: {answer:?}, {withdrawal:?}");
        sold += i32::from(yes);
        withdrawn += i32::from(gone);
    }
    assert_eq!(sold + withdrawn, 20);
}

#[tokio::test]
async fn an_order_in_stars_is_paid_by_a_telegram_user_or_by_nobody() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    for payer in ["@alice", "0", "-5", "+7", "007", "1.5", "99999999999999999999"] {
        let body = json!({ "order_id": "a", "tenant_id": "acme", "currency": "XTR", "title": "One hour",
                           "slot_id": slot_id, "payer": payer });
        let (status, problem) = stage.app.post("/v1/orders", &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_request")), "{payer}: {problem}");
    }
    assert_eq!(stage.app.count("SELECT count(*) FROM orders").await, 0);
}

#[tokio::test]
async fn an_order_that_can_never_get_its_slot_any_more_says_so_and_has_no_invoice() {
    let stage = Stage::start().await;
    let (held, gone, past) = (stage.slot(100).await, stage.slot(110).await, stage.slot(1).await);
    for (order_id, slot_id) in [("held", held), ("gone", gone), ("past", past)] {
        stage.order(order_id, slot_id, ALICE).await;
        assert_eq!(stage.app.get(&format!("/v1/orders/{order_id}")).await.1["status"], "open");
    }
    stage.is_told_yes("q", ALICE, "held").await;
    assert_eq!(stage.app.get("/v1/orders/held").await.1["status"], "busy");
    assert_eq!(stage.app.post(&format!("/v1/slots/{gone}/withdraw"), &json!({})).await.0, 200);
    stage.later(TimeDelta::hours(2)).await;
    for order_id in ["held", "gone", "past"] {
        assert_eq!(stage.app.get(&format!("/v1/orders/{order_id}")).await.1["status"], "expired", "{order_id}");
        let (status, problem) = stage.app.post(&format!("/v1/orders/{order_id}/invoice"), &json!({})).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("order_not_payable")), "{problem}");
    }
}
