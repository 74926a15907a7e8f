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

#[tokio::test]
async fn the_charge_on_the_buyers_receipt_leads_to_the_payment() {
    let stage = Stage::start().await;
    stage.top_up_order("t", ALICE, PRICE).await;
    let charge_id = stage.paid(ALICE, "t").await;
    let viewer = Visitor::logged_in(&stage.app, "viewer", Role::Viewer).await.speaking("en");
    let page = viewer.get(&format!("/console?q={charge_id}")).await;
    assert!(page.has("href=\"/console/payments/1\""), "{}", page.html);
    let page = viewer.get("/console/payments/1").await;
    for text in [charge_id.as_str(), "performed", "/console/orders/t", "/console/tenants/acme/XTR/1"] {
        assert!(page.has(text), "{text}: {}", page.html);
    }
}

#[tokio::test]
async fn a_tenant_goes_with_keep_only_and_the_key_stands_for_the_tenant_too() {
    let stage = Stage::start().await;
    stage.app.tenant("beta").await;
    stage.app.tenant("gamma").await;
    let (_, update) = stage.pays(ALICE, "nothing", PRICE);
    stage.tells(&update).await;
    let approver = Visitor::logged_in(&stage.app, "approver", Role::Approver).await.speaking("en");
    let before = stage.app.everything_written().await;
    for resolution in ["refund", "closed"] {
        let fields = [("resolution", resolution), ("tenant_id", "beta"), ("key", "k")];
        let page = approver.send("/console/cases/1/resolve", &fields).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{}", page.html);
        assert!(page.has("A tenant goes with"), "{}", page.html);
    }
    assert_eq!(stage.app.everything_written().await, before);
    let keep = |tenant_id: &'static str| [("resolution", "keep"), ("tenant_id", tenant_id), ("key", "k")];
    assert_eq!(approver.send("/console/cases/1/resolve", &keep("beta")).await.status, StatusCode::SEE_OTHER);
    assert_eq!(approver.send("/console/cases/1/resolve", &keep("gamma")).await.status, StatusCode::FORBIDDEN);
    let (tenant_id, words): (Option<String>, String) =
        sqlx::query_as("SELECT tenant_id, words FROM audit_log WHERE action = 'case.resolve' AND allowed")
            .fetch_one(&mut stage.app.superuser().await)
            .await
            .unwrap();
    // Money of no order's is in the wallet of the bot's own tenant until somebody decides.
    assert!(tenant_id.is_some(), "{words}");
    assert!(words.contains("keep for beta") && words.contains(&format!("of {PRICE} XTR")), "{words}");
}

#[tokio::test]
async fn only_a_case_with_money_that_waits_offers_to_move_it() {
    let stage = Stage::start().await;
    let (_, update) = stage.pays(ALICE, "nothing", PRICE);
    stage.tells(&update).await;
    stage.top_up_order("t", BOB, PRICE).await;
    let charge_id = stage.paid(BOB, "t").await;
    stage.api.charge_back(&charge_id);
    stage.reconcile().await;
    assert_eq!(stage.cases().await, ["mismatch", "unasked_refund"]);
    let approver = Visitor::logged_in(&stage.app, "approver", Role::Approver).await;
    let page = approver.get("/console/cases").await;
    let sections: Vec<&str> = page.html.split("<section>").skip(1).collect();
    for (section, waits) in [(sections[1], true), (sections[0], false)] {
        assert_eq!(section.contains("value=\"refund\"") && section.contains("value=\"keep\""), waits, "{section}");
        assert_eq!(section.contains("value=\"closed\""), !waits, "{section}");
        assert_eq!(section.contains("name=\"tenant_id\""), waits, "{section}");
    }
}

#[tokio::test]
async fn b5_rows_of_stars_say_what_is_true_of_them() {
    let stage = Stage::start().await;
    // Row 1: taken back without our asking. Row 2: spent before that.
    stage.top_up_order("t", BOB, PRICE).await;
    let taken = stage.paid(BOB, "t").await;
    stage.api.charge_back(&taken);
    stage.reconcile().await;
    let approver = Visitor::logged_in(&stage.app, "approver", Role::Approver).await.speaking("en");
    let page = approver.get("/console/tenants/acme/XTR/2").await;
    assert!(page.has("without our asking") && !page.has("there was enough money"), "{}", page.html);
    // Money of a case is set aside: no button gives it back past the case.
    let slot_id = stage.slot(100).await;
    stage.order("a", slot_id, ALICE).await;
    stage.is_told_yes("q", ALICE, "a").await;
    stage.later(TimeDelta::minutes(6)).await;
    stage.paid(ALICE, "a").await;
    stage.api.fares(|_| Act::Refuse(400, "Bad Request: no"));
    stage.give_back().await;
    let page = approver.get("/console/tenants/acme/XTR/3").await;
    assert!(page.has("its case is open") && !page.has("id=\"give-back\""), "{}", page.html);
    let page = approver.get("/console/tenants/acme?currency=XTR").await;
    let line = page.html.split("<bdi>set-aside</bdi>").nth(1).unwrap().split("</tr>").next().unwrap();
    let numbers: Vec<&str> =
        line.split("class=\"number\">").skip(1).map(|cell| cell.split('<').next().unwrap()).collect();
    assert_eq!(numbers, [&PRICE.to_string(), "0", "0", ""], "balance, held, available, priority: {line}");
    assert!(line.contains("set aside: not spent"), "{line}");
}
