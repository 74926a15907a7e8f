//! What the desk's pages say is what the book holds: a payment that never became money has its calls, a statement's
//! pages neither repeat nor leave out, an explanation reckons as the ledger does.

use std::collections::BTreeSet;

use hamyon::jobs::Job;
use hamyon::ledger::Entry;
use hamyon::staff::Role;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::TestApp;
use crate::support::app::entry;
use crate::support::console::{Page, Visitor};

const PAYME_ID: &str = "5f0000000000000000000001";

/// A tenant who topped up 3,000 by Payme and paid a fee of 1,500: rows 1 and 2.
async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.payme_created(PAYME_ID, "acme", 300_000).await;
    app.payme("PerformTransaction", json!({ "id": PAYME_ID })).await;
    app.plan("standard", "1500").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    app
}

async fn viewer(app: &TestApp) -> Visitor {
    Visitor::logged_in(app, "viewer", Role::Viewer).await.speaking("en")
}

/// The numbers of the rows that a page of a statement links to.
fn seqs(page: &Page) -> Vec<i64> {
    let marker = "<tr><td><a href=\"/console/tenants/acme/UZS/";
    let section = page.html.split("id=\"statement\"").nth(1).expect("a statement").split("</table>").next().unwrap();
    section.split(marker).skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
}

/// The rows of all pages from the newest to the oldest, by the link "older".
async fn walk(visitor: &Visitor, question: &str) -> Vec<i64> {
    let mut all = Vec::new();
    let mut address = question.to_owned();
    loop {
        let page = visitor.get(&format!("/console/tenants/acme{address}")).await;
        assert_eq!(page.status, StatusCode::OK, "{address}: {}", page.html);
        all.extend(seqs(&page));
        match page.link("older") {
            Some(older) => older.split('#').next().unwrap().clone_into(&mut address),
            None => return all,
        }
    }
}

#[tokio::test]
async fn older_pages_of_a_statement_share_no_row_and_leave_none_out_whatever_is_asked_for() {
    let app = app().await;
    let many: Vec<Entry> = (0..131)
        .map(|number| {
            let kind = if number % 3 == 0 { "gift" } else { "bonus" };
            entry("acme", kind, 1, &format!("{kind} {number}"))
        })
        .collect();
    app.post_entries(&many).await.unwrap();
    app.clock.advance(chrono::TimeDelta::days(2));
    app.post_entries(&[entry("acme", "gift", 1, "late")]).await.unwrap();
    let viewer = viewer(&app).await;
    for (question, condition) in [
        ("?currency=UZS", "true"),
        ("?currency=UZS&kind=gift", "kind = 'gift'"),
        ("?currency=UZS&kind=bonus", "kind = 'bonus'"),
        ("?currency=UZS&to=2026-12-01", "reference <> 'late'"),
        ("?currency=UZS&kind=gift&from=2026-12-02", "reference = 'late'"),
        ("?currency=UZS&kind=booking", "false"),
    ] {
        let wanted: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "SELECT seq FROM wallet_transactions WHERE tenant_id = 'acme' AND {condition} ORDER BY seq DESC"
        )))
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
        assert_eq!(walk(&viewer, question).await, wanted, "{question}");
    }
    // And forwards again.
    let first = viewer.get("/console/tenants/acme?currency=UZS&kind=gift&after=0").await;
    let mut all: BTreeSet<i64> = seqs(&first).into_iter().collect();
    assert!(first.link("older").is_none());
    let mut next = first.link("newer");
    while let Some(address) = next {
        let page = viewer.get(&format!("/console/tenants/acme{}", address.split('#').next().unwrap())).await;
        for seq in seqs(&page) {
            assert!(all.insert(seq), "row {seq} twice");
        }
        next = page.link("newer");
    }
    assert_eq!(all.len(), 45);
}

#[tokio::test]
async fn a_statements_csv_and_print_are_of_the_kind_and_the_days_that_the_page_shows() {
    let app = app().await;
    app.clock.advance(chrono::TimeDelta::days(2));
    app.post_entries(&[entry("acme", "gift", 100, "a"), entry("acme", "bonus", 1, "b")]).await.unwrap();
    let viewer = viewer(&app).await;
    let page = viewer.get("/console/tenants/acme?currency=UZS&kind=gift&from=2026-12-02&to=2026-12-03").await;
    let (csv, print) = (page.link("csv").unwrap(), page.link("print").unwrap());
    for link in [&csv, &print] {
        assert!(link.contains("kind=gift") && link.contains("from=2026-12-02") && link.contains("to=2026-12-03"));
    }
    let csv = viewer.get(&csv).await;
    assert_eq!(csv.html.lines().count(), 2, "{}", csv.html);
    assert!(csv.has("\"gift\",\"1.00\""));
    let print = viewer.get(&print).await;
    assert!(
        print.has("1\u{a0}500.00\u{a0}UZS") && print.has("1\u{a0}501.01\u{a0}UZS"),
        "the days' balances: {}",
        print.html
    );
    assert!(!print.has("<bdi>b</bdi>") && print.has("<bdi>a</bdi>"), "{}", print.html);
    // Without days the links say which ones they take.
    let page = viewer.get("/console/tenants/acme?currency=UZS").await;
    assert!(page.link("csv").unwrap().contains("from=2026-11-02&to=2026-12-03"), "{:?}", page.link("csv"));
}

#[tokio::test]
async fn a_kind_that_cant_be_and_days_the_wrong_way_round_are_refused_everywhere() {
    let app = app().await;
    let viewer = viewer(&app).await;
    for path in ["", "/statement", "/statement.csv"] {
        for (question, words) in [
            ("kind=Top-Up", "There can be no such kind"),
            ("from=2026-12-02&to=2026-12-01", "The first day is after the last one"),
            ("from=yesterday", "This is no day"),
        ] {
            let page = viewer.get(&format!("/console/tenants/acme{path}?currency=UZS&{question}")).await;
            assert_eq!(page.status, StatusCode::BAD_REQUEST, "{path} {question}");
            assert!(page.has(words), "{path} {question}: {}", page.html);
        }
    }
    assert!(viewer.get("/console/tenants/acme").await.has("<option value=\"booking\">"));
}

#[tokio::test]
async fn a_payment_that_never_became_money_has_a_page_with_every_call_in_words() {
    let app = app().await;
    let (promised, cancelled) = ("5f00000000000000000000b1", "5f00000000000000000000b2");
    app.payme_created(promised, "acme", 500_000).await;
    app.payme_created(cancelled, "acme", 700_000).await;
    app.payme("CancelTransaction", json!({ "id": cancelled, "reason": 3 })).await;
    app.payme("PerformTransaction", json!({ "id": cancelled })).await;
    let viewer = viewer(&app).await;
    for (external_id, words) in [
        (promised, vec!["promised", "the money isn", "Create the payment. We said yes: promised", "5\u{a0}000.00"]),
        (
            cancelled,
            vec![
                "cancelled",
                "the payer has it",
                "Cancel the payment. We said yes: cancelled",
                "-31008",
                "We refused:",
            ],
        ),
        (PAYME_ID, vec!["performed", "/console/tenants/acme/UZS/1", "Perform the payment. We said yes: performed"]),
    ] {
        let found = viewer.get(&format!("/console?q={external_id}")).await;
        let link = found.html.split("href=\"/console/payments/").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let page = viewer.get(&format!("/console/payments/{link}")).await;
        assert_eq!(page.status, StatusCode::OK);
        for word in words {
            assert!(page.has(word), "{external_id} {word}: {}", page.html);
        }
    }
    for path in ["/console/payments/999", "/console/payments/x", "/console/payments/99999999999999999999"] {
        assert_eq!(viewer.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn the_search_finds_orders_without_payments_and_payments_by_amount_and_day_and_says_what_it_lacks() {
    let app = app().await;
    app.order("order-77", "acme", "1000").await;
    for number in 0..22 {
        app.payme_created(&format!("5f000000000000000000c{number:03}"), "acme", 400_000 + number).await;
    }
    let viewer = viewer(&app).await;
    assert!(viewer.get("/console?q=order-77").await.has("href=\"/console/orders/order-77\""));
    let page = viewer.get("/console?amount=4000&day=2026-12-01").await;
    assert!(page.has("5f000000000000000000c000") && page.has("href=\"/console/payments/"), "{}", page.html);
    assert!(!viewer.get("/console?amount=4000&day=2026-12-02").await.has("5f000000000000000000c000"));
    for (question, words) in [("amount=4000", "give the day, too"), ("day=2026-12-01", "give the amount, too")] {
        assert!(viewer.get(&format!("/console?{question}")).await.has(words), "{question}");
    }
    // The tenant's page shows the newest twenty only, and each leads to its own.
    let page = viewer.get("/console/tenants/acme").await;
    assert!(!page.has("5f000000000000000000c000") && page.has("href=\"/console/payments/"), "{}", page.html);
}

#[tokio::test]
async fn a_very_long_search_word_finds_nothing_and_breaks_nothing() {
    let app = app().await;
    let viewer = viewer(&app).await;
    for length in [200, 999, 1_001, 2_046, 2_047, 6_000] {
        for letter in ["a", "%D0%B9"] {
            let page = viewer.get(&format!("/console?q={}", letter.repeat(length))).await;
            assert_eq!(page.status, StatusCode::OK, "{length} of {letter}");
            assert!(page.has("Nothing was found"));
        }
    }
}

/// A credit into a pocket of its own, which neither fees nor a provider's cancel take from.
fn pocketed(amount: i64, reference: &str) -> Entry {
    let pocket = hamyon::ids::Pocket::parse("promo").unwrap();
    Entry { pocket, ..entry("acme", "bonus", amount, reference) }
}

#[tokio::test]
async fn p3_whether_a_top_up_can_go_back_is_measured_by_the_pocket_it_goes_from() {
    let app = app().await;
    app.post_entries(&[pocketed(900_000, "promo")]).await.unwrap();
    let viewer = viewer(&app).await;
    let page = viewer.get("/console/tenants/acme/UZS/1").await;
    assert!(page.has("would be refused with -31007. Missing: 1\u{a0}500.00\u{a0}UZS"), "{}", page.html);
    let answer = app.payme("CancelTransaction", json!({ "id": PAYME_ID, "reason": 5 })).await;
    assert_eq!(answer["error"]["code"], -31007, "so says the door");
    app.post_entries(&[entry("acme", "bonus", 150_000, "main")]).await.unwrap();
    assert!(viewer.get("/console/tenants/acme/UZS/1").await.has("the cancel would go through"));
    let answer = app.payme("CancelTransaction", json!({ "id": PAYME_ID, "reason": 5 })).await;
    assert_eq!(answer["result"]["state"], -2, "{answer}");
}

#[tokio::test]
async fn f2_f5_why_a_fee_is_unpaid_reckons_with_what_fees_take_and_with_the_older_one() {
    let app = app().await;
    app.plan("big", "50000").await;
    app.plan("small", "1000").await;
    app.subscribe("acme", "big", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    app.post_entries(&[entry("acme", "purchase", -150_000, "spent"), pocketed(9_000_000, "promo")]).await.unwrap();
    app.subscribe("acme", "small", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    let viewer = viewer(&app).await;
    let page = viewer.get("/console/tenants/acme").await;
    assert!(page.has("needs 50\u{a0}000.00\u{a0}UZS, has 0.00\u{a0}UZS"), "the pocket isn't for fees: {}", page.html);
    assert_eq!(app.count("SELECT count(*) FROM dues WHERE charged_at IS NULL").await, 2);
    app.post_entries(&[entry("acme", "bonus", 200_000, "credit")]).await.unwrap();
    assert_eq!(app.count("SELECT count(*) FROM dues WHERE charged_at IS NULL").await, 2, "the older one comes first");
    let page = viewer.get("/console/tenants/acme").await;
    assert!(
        page.has(
            "needs 1\u{a0}000.00\u{a0}UZS, has 2\u{a0}000.00\u{a0}UZS. The older one is paid first: December 2026 (#2)"
        ),
        "{}",
        page.html
    );
}

#[tokio::test]
async fn f5_cause_and_effect_are_linked_by_what_names_what_and_not_by_the_moment() {
    let app = app().await;
    app.plan("one", "100").await;
    app.plan("two", "200").await;
    app.subscribe("acme", "one", "2026-12-01", "full").await;
    app.subscribe("acme", "two", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 2, "one transaction, two fees");
    let viewer = viewer(&app).await;
    for seq in [3, 4] {
        let page = viewer.get(&format!("/console/tenants/acme/UZS/{seq}")).await;
        assert_eq!(page.html.matches("fee.charged").count(), 1, "{}", page.html);
        assert_eq!(page.html.matches("Plan one").count() + page.html.matches("Plan two").count(), 1, "{}", page.html);
    }
    // A batch of three, the last of which lets a due be paid.
    app.plan("big", "5000").await;
    app.subscribe("acme", "big", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    let gifts = [entry("acme", "gift", 100, "a"), entry("acme", "gift", 100, "b"), entry("acme", "gift", 500_000, "c")];
    app.post_entries(&gifts).await.unwrap();
    for (seq, effects) in [(5, false), (6, false), (7, true)] {
        let page = viewer.get(&format!("/console/tenants/acme/UZS/{seq}")).await;
        assert_eq!(page.has("Plan big") && page.has("access.restored"), effects, "row {seq}: {}", page.html);
        assert!(!page.has("fee.charged"), "that is the fee's: {}", page.html);
    }
    let page = viewer.get("/console/tenants/acme/UZS/8").await;
    assert!(page.has("Plan big") && page.has("fee.charged"), "{}", page.html);
    assert!(viewer.get("/console/tenants/acme/UZS/1").await.has("payment.performed"));
}

#[tokio::test]
async fn s1_what_is_left_of_a_row_counts_every_refund_of_it() {
    let app = app().await;
    let refunds: Vec<Entry> = (0..120)
        .map(|number| Entry { original_seq: Some(2), ..entry("acme", "refund", 1_000, &format!("part {number}")) })
        .collect();
    app.post_entries(&refunds).await.unwrap();
    let viewer = viewer(&app).await;
    let page = viewer.get("/console/tenants/acme/UZS/2").await;
    assert!(page.has("300.00 UZS</span>"), "1,500 less 120 times 10: {}", page.html);
    assert!(page.has("1\u{a0}200.00\u{a0}UZS"), "given back in all: {}", page.html);
}

#[tokio::test]
async fn s2_a_preview_says_what_is_used_of_the_limit_and_a_request_what_its_approval_would_do() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await.speaking("en");
    let refund = |amount: &'static str, key: &'static str| {
        [("currency", "UZS"), ("transaction", "2"), ("amount", amount), ("reason", "no service"), ("key", key)]
    };
    assert_eq!(agent.send("/console/tenants/acme/refund", &refund("600", "a")).await.status, StatusCode::SEE_OTHER);
    let page = agent.send("/console/tenants/acme/refund/preview", &refund("500", "b")).await;
    assert!(page.has("above your limit") && page.has("id=\"used\">600.00\u{a0}UZS"), "{}", page.html);
    let waiting = agent.send("/console/tenants/acme/refund", &refund("500", "b")).await.location.unwrap();
    let before = app.everything_written().await;
    let approver = Visitor::logged_in(&app, "approver", Role::Approver).await.speaking("en");
    let before_people = app.count("SELECT count(*) FROM staff").await;
    let page = approver.get(&waiting).await;
    for text in ["id=\"balance\">2\u{a0}100.00", "id=\"left\">900.00", "id=\"after\">2\u{a0}600.00"] {
        assert!(page.has(text), "{text}: {}", page.html);
    }
    assert_eq!(app.sum("acme").await, 210_000, "it was a rehearsal");
    assert_eq!(before.matches("refund").count(), app.everything_written().await.matches("refund").count());
    assert_eq!(before_people, 2);
    // What can't be posted any more says so before anybody approves.
    app.post_entries(&[Entry { original_seq: Some(2), ..entry("acme", "refund", 90_000, "meanwhile") }]).await.unwrap();
    let page = approver.get(&waiting).await;
    assert!(page.has("Approving it now would be refused") && page.has("id=\"left\">0.00"), "{}", page.html);
    assert!(!page.has("id=\"after\""));
}
