//! Who is kept out says so, in the reader's language, and a refusal leads nowhere a person can't get on from. What is
//! refused at the desk is in the audit with whom it is about.

use hamyon::jobs::Job;
use hamyon::staff::Role;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::support::TestApp;
use crate::support::console::{PASSWORD, Visitor, member};

async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 300_000).await;
    app.plan("standard", "1500").await;
    app.subscribe("acme", "standard", "2026-12-01", "full").await;
    assert_eq!(Job::FeeRun.run(&app.app).await.unwrap(), 1);
    app
}

const REFUND: [(&str, &str); 5] =
    [("currency", "UZS"), ("transaction", "2"), ("amount", "1"), ("reason", "no service"), ("key", "one-form")];

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

#[tokio::test]
async fn a_form_is_known_by_what_the_browser_sees_and_else_by_origin_and_host() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let before = app.everything_written().await;
    for (from, taken) in [
        // Behind a proxy that keeps the browser's `Host` to itself: the browser knows better.
        (vec![("sec-fetch-site", "same-origin"), ("origin", "https://wallet.example")], true),
        (vec![("sec-fetch-site", "cross-site"), ("origin", &*app.url(""))], false),
        (vec![("sec-fetch-site", "same-site"), ("origin", &*app.url(""))], false),
        (vec![("origin", "https://wallet.example")], false),
        (vec![("origin", "null")], false),
        (vec![("origin", "https://wallet.example"), ("host", "wallet.example")], true),
        (vec![("origin", &*app.url(""))], true),
        (vec![], true),
    ] {
        let page = agent.send_with("/console/tenants/acme/refund/preview", &REFUND, headers(&from)).await;
        let wanted = if taken { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(page.status, wanted, "{from:?}: {}", page.html);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn s2_a_form_that_isnt_the_sessions_and_a_logout_are_in_the_audit() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    assert_eq!(agent.post("/console/tenants/acme/refund", &REFUND).await.status, StatusCode::FORBIDDEN);
    let from_elsewhere = headers(&[("sec-fetch-site", "cross-site")]);
    assert_eq!(agent.send_with("/console/logout", &[], from_elsewhere).await.status, StatusCode::FORBIDDEN);
    assert_eq!(agent.send("/console/logout", &[]).await.status, StatusCode::SEE_OTHER);
    // Whoever is nobody writes nothing there.
    assert_eq!(Visitor::new(&app).post("/console/logout", &[]).await.status, StatusCode::FORBIDDEN);
    let lines: Vec<(String, bool, String, String)> = sqlx::query_as(
        "SELECT action, allowed, actor, words FROM audit_log WHERE action IN ('form', 'log_out') ORDER BY seq",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap();
    let said: Vec<(&str, bool, &str, &str)> =
        lines.iter().map(|(a, b, c, d)| (a.as_str(), *b, c.as_str(), d.as_str())).collect();
    assert_eq!(
        said,
        [
            (
                "form",
                false,
                "staff:agent",
                "POST /console/tenants/acme/refund: the form doesn't carry the session's token"
            ),
            ("form", false, "staff:agent", "POST /console/logout: the form came from another site"),
            ("log_out", true, "staff:agent", "logged out"),
        ]
    );
}

#[tokio::test]
async fn the_language_switch_of_a_page_that_a_form_leads_to_comes_back_to_a_page() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let row = "/console/tenants/acme/UZS/2";
    for (path, from, back) in [
        ("/console/tenants/acme/refund/preview", Some(row), row),
        ("/console/tenants/acme/refund/preview", None, "/console/tenants/acme"),
        // The preview is such a page itself.
        ("/console/tenants/acme/refund", Some("/console/tenants/acme/refund/preview"), "/console/tenants/acme"),
        ("/console/tenants/acme/refund/preview", Some("//evil.example/x"), "/console"),
    ] {
        let referer = from.map(|from| app.url(from));
        let given = headers(&referer.as_deref().map(|from| ("referer", from)).into_iter().collect::<Vec<_>>());
        let mut fields = REFUND;
        // Too much, so that the deed itself is refused.
        fields[2].1 = if path.ends_with("preview") { "1" } else { "99999" };
        let page = agent.send_with(path, &fields, given).await;
        let switch = page.html.split("href=\"/console/language/ru?back=").nth(1).unwrap().split('"').next().unwrap();
        let location = agent.get(&format!("/console/language/ru?back={switch}")).await.location.unwrap();
        assert_eq!(location, back, "{path} from {from:?}");
        assert_eq!(agent.get(&location).await.status, StatusCode::OK, "{location}");
    }
}

#[tokio::test]
async fn a_refusal_is_a_page_of_the_console_in_the_readers_language_with_the_navigation() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    for (path, status, words) in [
        ("/console/nothing", StatusCode::NOT_FOUND, "Такого нет"),
        ("/console/", StatusCode::NOT_FOUND, "Такого нет"),
        ("/console/tenants/nobody", StatusCode::NOT_FOUND, "Такого нет"),
        ("/console/tenants/acme/refund", StatusCode::METHOD_NOT_ALLOWED, "только кнопка"),
        ("/console/requests?before=x", StatusCode::BAD_REQUEST, "нельзя прочитать"),
        ("/console?amount=x", StatusCode::BAD_REQUEST, "Сумма"),
        ("/console/audit", StatusCode::FORBIDDEN, "утверждающий (approver)"),
    ] {
        let page = agent.speaking("ru").get(path).await;
        assert_eq!(page.status, status, "{path}");
        assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"), "{path}");
        assert!(page.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"), "{path}");
        for text in [words, "<html lang=\"ru\">", "/console/logout", "/console/requests", "агент"] {
            assert!(page.has(text), "{path} {text}: {}", page.html);
        }
    }
    let page = Visitor::new(&app).speaking("ru").get("/console/nothing").await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert!(page.has("Такого нет") && !page.has("/console/logout"), "{}", page.html);
    assert!(page.has("/console/login?next=%2Fconsole%2Fnothing"), "{}", page.html);
    // A refused deed keeps them, too, and a field that isn't there is said in words.
    let page = agent.speaking("ru").send("/console/tenants/acme/refund/preview", &REFUND[..4]).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    assert!(page.has("не хватает поля") && page.has("/console/logout"), "{}", page.html);
    // Paths of programs stay problem documents.
    let (status, problem) = app.get("/v1/nothing").await;
    assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("path_not_found")));
}

/// The last line of the audit with an action.
async fn last(app: &TestApp, action: &str) -> (bool, Option<String>, String) {
    sqlx::query_as("SELECT allowed, tenant_id, words FROM audit_log WHERE action = $1 ORDER BY seq DESC LIMIT 1")
        .bind(action)
        .fetch_one(&mut app.superuser().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn s2_a_refused_decision_says_whom_it_is_about_and_a_long_text_pushes_no_number_off() {
    let app = app().await;
    let approver = Visitor::logged_in(&app, "approver", Role::Approver).await;
    let own = [("currency", "UZS"), ("amount", "6000"), ("reason", "goodwill"), ("note", "sorry"), ("key", "k")];
    let request = approver.send("/console/tenants/acme/adjustment", &own).await.location.unwrap();
    let decision = [("note", "I know"), ("key", "k2")];
    let page = approver.send(&format!("{request}/approve"), &decision).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.html);
    let (allowed, tenant_id, words) = last(&app, "request.approve").await;
    assert_eq!((allowed, tenant_id.as_deref()), (false, Some("acme")), "{words}");
    assert!(
        words.contains("of staff:approver, adjustment of 6000.00 UZS: request") && words.ends_with("note \"I know\""),
        "{words}"
    );
    let reject = approver.send("/console/requests/999/reject", &decision).await;
    assert_eq!(reject.status, StatusCode::CONFLICT);
    assert_eq!(last(&app, "request.reject").await.1, None, "there is no such request");

    // 400 characters that are written as ten each in quotes.
    let long = "\u{202e}".repeat(400);
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let fields = [("currency", "UZS"), ("transaction", "2"), ("amount", "1"), ("reason", &*long), ("key", "long")];
    assert_eq!(agent.send("/console/tenants/acme/refund", &fields).await.status, StatusCode::SEE_OTHER);
    let (_, _, words) = last(&app, "refund").await;
    assert!(words.contains("posted as row 3; balance 1500.00 before, 1501.00 after"), "{words}");
    let fields = [("currency", "UZS"), ("transaction", "2"), ("amount", "9999"), ("reason", &*long), ("key", "more")];
    assert_eq!(agent.send("/console/tenants/acme/refund", &fields).await.status, StatusCode::CONFLICT);
    let (allowed, _, words) = last(&app, "refund").await;
    assert!(!allowed && words.contains("refund of 9999.00 UZS of row 2: ") && words.contains("left"), "{words}");
}

#[tokio::test]
async fn reasons_and_roles_are_said_in_the_readers_language() {
    let app = app().await;
    let agent = Visitor::logged_in(&app, "agent", Role::Agent).await;
    let fields = [("currency", "UZS"), ("amount", "6000"), ("reason", "goodwill"), ("note", "x"), ("key", "k")];
    let request = agent.send("/console/tenants/acme/adjustment", &fields).await.location.unwrap();
    for (language, reason, role) in [("uz", "xayrixohlik", "agent"), ("ru", "жест доброй воли", "агент")]
    {
        for path in [request.as_str(), "/console/requests"] {
            let page = agent.speaking(language).get(path).await;
            assert!(page.has(reason) && page.has(role) && !page.has("goodwill"), "{language} {path}: {}", page.html);
        }
    }
    member(&app, "second", Role::Approver).await;
    let mut second = Visitor::new(&app);
    second.log_in("second", PASSWORD).await;
    let audit = second.speaking("ru").get("/console/audit").await;
    assert!(audit.has("вход") && audit.has("корректировка") | audit.has("Корректировка"), "{}", audit.html);
}
