//! The console shows other people's money and moves it. Nobody gets in without a session, nobody does what their
//! role doesn't allow, no other site's form works, one form is one deed, and hostile text is only text.

use hamyon::http::console::ROUTES;
use hamyon::jobs::Job;
use hamyon::staff::Role;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};
use crate::support::app::entry;
use crate::support::console::{PASSWORD, Visitor, member};

/// A tenant who topped up 3,000 by Payme and paid a fee of 1,500: rows 1 and 2.
async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.payme_created("5f0000000000000000000001", "acme", 300_000).await;
    app.payme("PerformTransaction", json!({ "id": "5f0000000000000000000001" })).await;
    app.plan("standard", "1500").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    app
}

/// A path with names that exist.
fn real(path: &str) -> String {
    path.replace("{tenant_id}", "acme")
        .replace("{currency}", "UZS")
        .replace("{seq}", "1")
        .replace("{request_id}", "1")
        .replace("{hold_id}", "job-1")
        .replace("{order_id}", "nothing")
        .replace("{case_id}", "1")
        .replace("{payment_id}", "1")
        .replace("{endpoint_id}", "1")
        .replace("{event_id}", "1")
        .replace("{code}", "en")
}

/// Fields that would do, whatever the form.
const FIELDS: [(&str, &str); 6] = [
    ("currency", "UZS"),
    ("transaction", "2"),
    ("amount", "1"),
    ("reason", "other"),
    ("note", "a note"),
    ("key", "one-form"),
];

/// What a refused request must leave as it was: everything but the audit.
async fn money_and_requests(app: &TestApp) -> (String, i64) {
    (app.everything_written().await, app.count("SELECT count(*) FROM support_requests").await)
}

#[tokio::test]
async fn s2_nothing_but_the_login_answers_without_a_session() {
    let app = app().await;
    let nobody = Visitor::new(&app);
    let before = money_and_requests(&app).await;
    let public: Vec<&str> = ROUTES.iter().filter(|route| route.needs.is_none()).map(|route| route.path).collect();
    assert_eq!(
        public,
        ["/console/login", "/console/login", "/console/language/{code}", "/console/style.css"],
        "what everybody may see"
    );
    for route in ROUTES.iter().filter(|route| route.needs.is_some()) {
        let path = real(route.path);
        if route.method == "get" {
            let page = nobody.get(&path).await;
            assert_eq!(page.status, StatusCode::SEE_OTHER, "{path}");
            assert!(page.location.unwrap().starts_with("/console/login?next="), "{path}");
            assert!(page.html.is_empty(), "{path}");
        } else {
            assert_eq!(nobody.post(&path, &FIELDS).await.status, StatusCode::FORBIDDEN, "{path}");
        }
    }
    assert_eq!(money_and_requests(&app).await, before);
}

#[tokio::test]
async fn s2_each_role_reaches_what_it_may_and_nothing_more() {
    let app = app().await;
    let people = [
        (Role::Viewer, Visitor::logged_in(&app, "viewer", Role::Viewer).await),
        (Role::Agent, Visitor::logged_in(&app, "agent", Role::Agent).await),
        (Role::Approver, Visitor::logged_in(&app, "approver", Role::Approver).await),
    ];
    for route in ROUTES.iter().filter(|route| route.path != "/console/logout") {
        let Some(needs) = route.needs else { continue };
        for (role, visitor) in &people {
            let path = real(route.path);
            let before = money_and_requests(&app).await;
            if route.method == "get" {
                let page = visitor.get(&path).await;
                let missing = ["{request_id}", "{hold_id}", "{order_id}"].iter().any(|name| route.path.contains(name));
                let wanted = match (*role >= needs, missing) {
                    (false, _) => StatusCode::FORBIDDEN,
                    (true, true) => StatusCode::NOT_FOUND,
                    (true, false) => StatusCode::OK,
                };
                assert_eq!(page.status, wanted, "{role} {path}: {}", page.html);
                assert_eq!(money_and_requests(&app).await, before, "looking changes nothing");
            } else if *role < needs {
                let page = visitor.send(&path, &FIELDS).await;
                assert_eq!(page.status, StatusCode::FORBIDDEN, "{role} {path}");
                assert!(page.has(needs.as_str()), "it says which role is needed");
                assert_eq!(money_and_requests(&app).await, before);
            }
        }
    }
    assert!(app.count("SELECT count(*) FROM audit_log WHERE action = 'console' AND NOT allowed").await > 0);
}

#[tokio::test]
async fn a_form_without_the_sessions_token_does_nothing() {
    let app = app().await;
    let approver = Visitor::logged_in(&app, "approver", Role::Approver).await;
    let other = Visitor::logged_in(&app, "other", Role::Approver).await;
    let others_token = other.get("/console").await.hidden("csrf_token");
    let own_token = approver.get("/console").await.hidden("csrf_token");
    let before = money_and_requests(&app).await;
    for route in ROUTES.iter().filter(|route| route.method == "post" && route.needs.is_some()) {
        let path = real(route.path);
        assert_eq!(approver.post(&path, &FIELDS).await.status, StatusCode::FORBIDDEN, "{path}: no token");
        for wrong in ["", "x", others_token.as_str()] {
            let mut fields = vec![("csrf_token", wrong)];
            fields.extend_from_slice(&FIELDS);
            assert_eq!(approver.post(&path, &fields).await.status, StatusCode::FORBIDDEN, "{path}: {wrong:?}");
        }
        let mut fields = vec![("csrf_token", own_token.as_str())];
        fields.extend_from_slice(&FIELDS);
        let page = approver.post_from(&path, &fields, Some("cross-site")).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{path}: from another site");
    }
    assert_eq!(money_and_requests(&app).await, before);
    assert_eq!(approver.get("/console").await.status, StatusCode::OK, "nobody was logged out either");
}

#[tokio::test]
async fn every_page_forbids_what_could_run_or_frame_it() {
    let app = app().await;
    let viewer = Visitor::logged_in(&app, "viewer", Role::Viewer).await;
    for path in ["/console/login", "/console", "/console/tenants/acme", "/console/tenants/nobody", "/console/audit"] {
        let page = viewer.get(path).await;
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}");
        assert!(!page.has("<script") && !page.has("style=") && !page.has("://"), "{path}: {}", page.html);
        assert_eq!(page.headers["cache-control"], "no-store", "{path}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
    }
    let login = viewer.get("/console/login").await;
    assert!(login.cookies.iter().all(|cookie| cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict")));
}

#[tokio::test]
async fn nobody_is_led_elsewhere_by_the_login() {
    let app = app().await;
    member(&app, "viewer", Role::Viewer).await;
    let visitor = Visitor::new(&app);
    for evil in [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/consolex",
        "/console\r\nX: y",
        "/console/\u{1}",
        "javascript:alert(1)",
    ] {
        let query = serde_urlencoded::to_string([("next", evil)]).unwrap();
        assert_eq!(visitor.get(&format!("/console/login?{query}")).await.hidden("next"), "/console", "{evil:?}");
        let back = serde_urlencoded::to_string([("back", evil)]).unwrap();
        assert_eq!(
            visitor.get(&format!("/console/language/ru?{back}")).await.location.unwrap(),
            "/console",
            "{evil:?}"
        );
    }
    let query = serde_urlencoded::to_string([("next", "/console/requests?all=1")]).unwrap();
    assert_eq!(visitor.get(&format!("/console/login?{query}")).await.hidden("next"), "/console/requests?all=1");
}

#[tokio::test]
async fn the_login_form_of_another_browser_lets_nobody_in() {
    let app = app().await;
    member(&app, "viewer", Role::Viewer).await;
    let visitor = Visitor::new(&app);
    let token = visitor.get("/console/login").await.hidden("login_token");
    let fields = [("login_token", token.as_str()), ("username", "viewer"), ("password", PASSWORD)];
    // Without the cookie that came with the form.
    assert_eq!(visitor.post("/console/login", &fields).await.status, StatusCode::FORBIDDEN);
    assert_eq!(app.count("SELECT count(*) FROM staff_sessions").await, 0);
}

/// The fields of the refund form on a row's page.
async fn refund_form(visitor: &Visitor, amount: &str) -> Vec<(String, String)> {
    let page = visitor.get("/console/tenants/acme/UZS/2").await;
    ["csrf_token", "key", "currency", "transaction"]
        .iter()
        .map(|name| ((*name).to_owned(), page.hidden(name)))
        .chain([("amount".to_owned(), amount.to_owned()), ("reason".to_owned(), "no service".to_owned())])
        .collect()
}

fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn s1_a_form_that_is_clicked_ten_times_is_one_refund() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let form = refund_form(&agent, "500").await;
    let fields = borrowed(&form);
    let preview = agent.post("/console/tenants/acme/refund/preview", &fields).await;
    assert_eq!(preview.status, StatusCode::OK, "{}", preview.html);
    assert!(preview.has("1\u{a0}500.00\u{a0}UZS") && preview.has("2\u{a0}000.00\u{a0}UZS"), "{}", preview.html);
    assert_eq!(app.sum("acme").await, 150_000, "a preview moves nothing");
    assert_eq!(app.count("SELECT count(*) FROM support_requests").await, 0);
    let clicks = futures::future::join_all((0..10).map(|_| agent.post("/console/tenants/acme/refund", &fields))).await;
    let first = clicks[0].location.clone();
    assert!(first.is_some());
    assert!(clicks.iter().all(|page| page.status == StatusCode::SEE_OTHER && page.location == first));
    assert_eq!(app.sum("acme").await, 200_000);
    assert_eq!(app.count("SELECT count(*) FROM wallet_transactions WHERE kind = 'refund'").await, 1);
    // The same key with another amount is another form's.
    let mut other = form.clone();
    other[4].1 = "501".to_owned();
    assert_eq!(agent.post("/console/tenants/acme/refund", &borrowed(&other)).await.status, StatusCode::CONFLICT);
    assert_eq!(app.sum("acme").await, 200_000);
}

#[tokio::test]
async fn s2_what_is_above_the_limit_is_approved_by_somebody_else() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let approver = Visitor::logged_in(&app, "approver", Role::Approver).await;
    let form = refund_form(&agent, "1200").await;
    let page = agent.post("/console/tenants/acme/refund", &borrowed(&form)).await;
    let location = page.location.unwrap();
    assert_eq!(app.sum("acme").await, 150_000, "it waits");
    // An approver's own request is nobody's to approve but another's.
    let own = approver
        .send(
            "/console/tenants/acme/adjustment",
            &[("currency", "UZS"), ("amount", "6000"), ("reason", "goodwill"), ("note", "sorry"), ("key", "k")],
        )
        .await
        .location
        .unwrap();
    let refused = approver.send(&format!("{own}/approve"), &[("note", ""), ("key", "k2")]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.html);
    assert!(!approver.get(&own).await.has("id=\"approve\""), "the page doesn't even offer it");
    let approved = approver.send(&format!("{location}/approve"), &[("note", "fine"), ("key", "k3")]).await;
    assert_eq!(approved.location.as_deref(), Some(location.as_str()), "{}", approved.html);
    assert_eq!(app.sum("acme").await, 270_000);
    let audit = approver.get("/console/audit").await;
    for words in ["request.approve", "staff:approver", "staff:agent", "balance 1500.00 before, 2700.00 after"] {
        assert!(audit.has(words), "{words}: {}", audit.html);
    }
}

#[tokio::test]
async fn stored_text_from_outside_is_only_text() {
    let app = app().await;
    let viewer = Visitor::logged_in(&app, "viewer", Role::Viewer).await;
    let evil = "<script>alert(1)</script>\u{202e}\"'><img src=x onerror=alert(2)>";
    Call::new("PATCH", "/v1/tenants/acme").token(&app.token).json(&json!({ "name": evil })).send(&app).await;
    let mut row = posting("acme", "gift", "1.00", &format!("ref {evil}"));
    row["reason"] = json!(format!("{evil}{}", "x".repeat(400)));
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "evil", &batch(&[row])).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let long = format!("{evil}{}", "y".repeat(10_000));
    app.payme("CheckTransaction", json!({ "id": evil, "note": long })).await;
    app.payme("Evil<script>", json!({ "id": long })).await;
    for path in [
        "/console/tenants/acme",
        "/console/tenants/acme/UZS/3",
        "/console/tenants/acme/statement?currency=UZS",
        "/console/health",
        "/console?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/console?q=alert",
    ] {
        let page = viewer.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(!page.has("<script") && !page.has("<img"), "{path}: {}", page.html);
    }
    let page = viewer.get("/console/tenants/acme").await;
    assert!(page.has("<bdi>&#60;script&#62;alert(1)"), "{}", page.html);
    // A spreadsheet gets no formula.
    app.post_entries(&[entry("acme", "gift", 100, "=HYPERLINK(\"http://evil\")")]).await.unwrap();
    let csv = viewer.get("/console/tenants/acme/statement.csv?currency=UZS").await;
    assert!(csv.has("\"'=HYPERLINK(\"\"http://evil\"\")\""), "{}", csv.html);
}

#[tokio::test]
async fn the_search_finds_what_a_customer_can_name() {
    let app = app().await;
    app.order("order-77", "acme", "1000").await;
    let viewer = Visitor::logged_in(&app, "viewer", Role::Viewer).await;
    let found = "href=\"/console/tenants/acme";
    for question in [
        "q=acme",
        "q=tenant+ACM",
        "q=5f0000000000000000000001",
        "amount=3000&day=2026-12-01",
        "amount=3+000%2C00&day=2026-12-01",
    ] {
        let page = viewer.get(&format!("/console?{question}")).await;
        assert!(page.has(found), "{question}: {}", page.html);
    }
    for question in ["q=nobody", "amount=3001&day=2026-12-01", "amount=3000&day=2026-11-30", "q=%27%26%7C%21"] {
        let page = viewer.get(&format!("/console?{question}")).await;
        assert_eq!(page.status, StatusCode::OK, "{question}: {}", page.html);
        assert!(!page.has(found), "{question}");
    }
    for question in ["amount=x", "day=yesterday"] {
        assert_eq!(viewer.get(&format!("/console?{question}")).await.status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn the_page_says_why_and_the_row_tells_its_story_in_every_language() {
    let app = app().await;
    app.plan("big", "50000").await;
    app.subscribe("acme", "big", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    let viewer = Visitor::logged_in(&app, "viewer", Role::Viewer).await;
    let why = [
        ("en", "fee for December 2026 (#2) unpaid: needs 50\u{a0}000.00\u{a0}UZS, has 1\u{a0}500.00\u{a0}UZS"),
        ("ru", "плата за декабрь 2026 (#2) не списана: нужно 50\u{a0}000.00\u{a0}UZS, есть 1\u{a0}500.00\u{a0}UZS"),
        (
            "uz",
            "2026-yil dekabr uchun toʻlov (#2) toʻlanmagan: 50\u{a0}000.00\u{a0}UZS kerak, 1\u{a0}500.00\u{a0}UZS bor",
        ),
    ];
    for (language, line) in why {
        let speaking = viewer.speaking(language);
        let page = speaking.get("/console/tenants/acme").await;
        assert!(page.has(line), "{language}: {}", page.html);
        assert!(page.has(&format!("<html lang=\"{language}\">")));
        assert!(page.has("<polyline"), "a chart of the balance");
        let story = speaking.get("/console/tenants/acme/UZS/1").await;
        for words in ["P1:", "5f0000000000000000000001", "PerformTransaction", "payment.performed"] {
            assert!(story.has(words), "{language} {words}: {}", story.html);
        }
        let fee = speaking.get("/console/tenants/acme/UZS/2").await;
        assert!(fee.has("F2:") && fee.has("2026-12") && fee.has("fee.charged"), "{}", fee.html);
    }
}

#[tokio::test]
async fn f5_the_story_of_a_credit_names_the_dues_it_paid() {
    let app = app().await;
    app.plan("big", "2000").await;
    app.subscribe("acme", "big", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    app.clock.advance(chrono::TimeDelta::hours(1));
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let page = agent
        .send(
            "/console/tenants/acme/adjustment/preview",
            &[("currency", "UZS"), ("amount", "700"), ("reason", "goodwill"), ("note", "sorry"), ("key", "k")],
        )
        .await;
    // 1,500 + 700 pays the due of 2,000.
    assert!(page.has("200.00\u{a0}UZS"), "{}", page.html);
    let fields = [("currency", "UZS"), ("amount", "700"), ("reason", "goodwill"), ("note", "sorry"), ("key", "k")];
    let request = agent.send("/console/tenants/acme/adjustment", &fields).await.location.unwrap();
    assert_eq!(app.sum("acme").await, 20_000);
    let story = agent.get("/console/tenants/acme/UZS/3").await;
    assert!(story.has(&request));
    assert!(story.has("Plan big") && story.has("access.restored"), "{}", story.html);
}

#[tokio::test]
async fn a_statement_begins_and_ends_with_the_balances_of_its_days() {
    let app = app().await;
    app.clock.advance(chrono::TimeDelta::days(2));
    app.post_entries(&[entry("acme", "gift", 1_000, "late")]).await.unwrap();
    let viewer = Visitor::logged_in(&app, "viewer", Role::Viewer).await;
    let page = viewer.get("/console/tenants/acme/statement?currency=UZS&from=2026-12-02&to=2026-12-03").await;
    assert!(page.has("1\u{a0}500.00\u{a0}UZS") && page.has("1\u{a0}510.00\u{a0}UZS"), "{}", page.html);
    assert!(page.has("<html lang=\"uz\">"), "in the tenant's language");
    let csv = viewer.get("/console/tenants/acme/statement.csv?currency=UZS&from=2026-12-01&to=2026-12-01").await;
    let lines: Vec<&str> = csv.html.lines().collect();
    assert_eq!(lines.len(), 3, "{}", csv.html);
    assert_eq!(lines[2].split(',').nth(3), Some("\"-1500.00\""));
    assert_eq!(viewer.get("/console/tenants/acme/statement?from=x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn s2_words_of_a_person_look_like_nothing_else_in_the_audit() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let approver = Visitor::logged_in(&app, "approver", Role::Approver).await;
    let evil = "ok\" posted as row 99; \u{202e}balance 0.00 before";
    let fields = [("currency", "UZS"), ("transaction", "2"), ("amount", "1"), ("reason", evil), ("key", "k")];
    assert_eq!(agent.send("/console/tenants/acme/refund", &fields).await.status, StatusCode::SEE_OTHER);
    let words: String = sqlx::query_scalar("SELECT words FROM audit_log WHERE action = 'refund'")
        .fetch_one(&mut app.superuser().await)
        .await
        .unwrap();
    assert!(
        words.ends_with(r#"1501.00 after, reason "ok\" posted as row 99; \u{202e}balance 0.00 before""#)
            && words.contains("refund of 1.00 UZS of row 2 posted as row 3; balance 1500.00 before"),
        "{words}"
    );
    assert!(!approver.get("/console/audit").await.has("\u{202e}"));
}

#[tokio::test]
async fn what_is_not_text_and_what_is_no_day_is_refused() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let fields = [("currency", "UZS"), ("transaction", "2"), ("amount", "1"), ("reason", "\u{fffd}"), ("key", "k")];
    assert_eq!(agent.send("/console/tenants/acme/refund", &fields).await.status, StatusCode::FORBIDDEN);
    for path in ["/console/tenants/acme/statement?from=-262143-01-01", "/console?amount=1&day=-262143-01-01"] {
        assert_eq!(agent.get(path).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(app.sum("acme").await, 150_000);
}

#[tokio::test]
async fn a_refusal_is_said_in_the_readers_language_and_in_whole_money() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let fields = [("currency", "UZS"), ("transaction", "2"), ("amount", "9999"), ("reason", "x"), ("key", "k")];
    for (language, words) in [("uz", "qaytarish mumkin"), ("ru", "можно вернуть"), ("en", "left to give back")]
    {
        let page = agent.speaking(language).send("/console/tenants/acme/refund/preview", &fields).await;
        assert_eq!(page.status, StatusCode::CONFLICT);
        assert!(page.has(words) && page.has("1\u{a0}500.00\u{a0}UZS"), "{language}: {}", page.html);
    }
}

#[tokio::test]
async fn a_statement_of_one_kind_begins_with_its_newest_rows() {
    let app = app().await;
    let entries: Vec<_> = (0..60).map(|number| entry("acme", "gift", 1, &format!("gift {number}"))).collect();
    app.post_entries(&entries).await.unwrap();
    let viewer = Visitor::logged_in(&app, "viewer", Role::Viewer).await;
    let page = viewer.get("/console/tenants/acme?kind=gift").await;
    assert!(page.has("gift 59<") && page.has("gift 35<") && !page.has("gift 34<"), "{}", page.html);
}

#[tokio::test]
async fn an_expired_request_waits_for_nobody() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let form = refund_form(&agent, "1200").await;
    let request = agent.post("/console/tenants/acme/refund", &borrowed(&form)).await.location.unwrap();
    assert!(agent.get("/console/requests").await.has(&request));
    app.clock.advance(chrono::TimeDelta::hours(24));
    let mut again = Visitor::new(&app);
    again.log_in("agent", PASSWORD).await;
    assert!(!again.get("/console/requests").await.has(&request));
    assert!(again.get("/console/requests?all=1").await.has(&request));
}
