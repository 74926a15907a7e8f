//! The desk sees whom a slot belongs to, why somebody who paid has no booking, what goes back, and what waits for a
//! person; and an approver's decision is done once.

use chrono::TimeDelta;
use hamyon::staff::Role;
use reqwest::StatusCode;

use super::{ALICE, BOB, PRICE, Stage};
use crate::support::console::Visitor;
use crate::support::fake_bot_api::Act;

#[tokio::test]
async fn the_slots_say_who_holds_and_who_has_booked_them() {
    let stage = Stage::start().await;
    let (one, two, _free) = (stage.slot(10).await, stage.slot(20).await, stage.slot(30).await);
    stage.order("held", one, ALICE).await;
    stage.order("booked", two, BOB).await;
    stage.is_told_yes("q1", ALICE, "held").await;
    stage.is_told_yes("q2", BOB, "booked").await;
    stage.paid(BOB, "booked").await;
    let viewer = Visitor::logged_in(&stage.app, "viewer", Role::Viewer).await;
    let page = viewer.get("/console/bookings").await;
    assert_eq!(page.status, StatusCode::OK);
    for link in ["/console/orders/held", "/console/orders/booked"] {
        assert!(page.has(link), "{}", page.html);
    }
    assert!(!page.has("<script"));
}

#[tokio::test]
async fn an_orders_story_says_why_there_is_no_booking() {
    let stage = Stage::start().await;
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    stage.later(TimeDelta::minutes(6)).await;
    let charge_id = stage.paid(ALICE, "a").await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: <b>NO</b>"));
    stage.give_back().await;
    let viewer = Visitor::logged_in(&stage.app, "viewer", Role::Viewer).await;
    let page = viewer.get("/console/orders/a").await;
    for text in [charge_id.as_str(), "hold_over", "refund_failed", &ALICE.to_string()] {
        assert!(page.has(text), "{text}: {}", page.html);
    }
    assert!(!page.has("<b>NO"), "text from outside is text");
    let page = viewer.get("/console/refund-tasks?all=1").await;
    assert!(page.has("Bad Request: ") && !page.has("<b>NO"), "{}", page.html);
    assert_eq!(viewer.get("/console/orders/nothing").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn s2_an_approver_resolves_a_case_once_and_a_viewer_only_looks() {
    let stage = Stage::start().await;
    let (charge_id, update) = stage.pays(ALICE, "nothing", PRICE);
    stage.tells(&update).await;
    let viewer = Visitor::logged_in(&stage.app, "viewer", Role::Viewer).await;
    let page = viewer.get("/console/cases").await;
    assert!(page.has("nothing") && !page.has("<form class=\"stack\""), "{}", page.html);
    let approver = Visitor::logged_in(&stage.app, "approver", Role::Approver).await;
    let page = approver.get("/console/cases").await;
    let key = page.hidden("key");
    for (fields, status) in [
        ([("resolution", "anything"), ("key", &*key)], StatusCode::FORBIDDEN),
        ([("resolution", "closed"), ("key", &*key)], StatusCode::CONFLICT),
        ([("resolution", "refund"), ("key", &*key)], StatusCode::SEE_OTHER),
        ([("resolution", "refund"), ("key", &*key)], StatusCode::SEE_OTHER),
        ([("resolution", "refund"), ("key", "another-key")], StatusCode::CONFLICT),
    ] {
        let page = approver.send("/console/cases/1/resolve", &fields).await;
        assert_eq!(page.status, status, "{fields:?} {}", page.html);
    }
    assert_eq!(stage.tasks().await, ["waiting"]);
    stage.give_back().await;
    assert_eq!(stage.api.effects(&charge_id), 1);
    assert_eq!(stage.app.count("SELECT count(*) FROM audit_log WHERE action = 'case.resolve' AND allowed").await, 1);
    let page = approver.get("/console/cases?all=1").await;
    assert!(page.has("staff:approver"), "{}", page.html);
}
