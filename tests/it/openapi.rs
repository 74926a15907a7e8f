//! What the program says about itself: the document that other programs are generated from, the page for
//! people, which must work without the internet, and the three paths an operator's machines ask.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::TestApp;
use crate::support::api::Call;

async fn document(app: &TestApp) -> Value {
    let answer = Call::new("GET", "/openapi.json").send(app).await;
    assert_eq!(answer.status, 200);
    answer.json()
}

#[tokio::test]
async fn the_document_is_openapi_3_1_and_every_path_in_it_answers() {
    let app = TestApp::start().await;
    let document = document(&app).await;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{}", document["openapi"]);
    assert_eq!(document["info"]["title"], "Hamyon");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            operations += 1;
            let names = [
                "tenant_id",
                "order_id",
                "plan_id",
                "period",
                "subscription_id",
                "endpoint_id",
                "event_id",
                "request_id",
                "booking_id",
                "slot_id",
                "case_id",
                "hold_id",
            ];
            let real = names.iter().fold(path.clone(), |path, name| path.replace(&format!("{{{name}}}"), "1"));
            assert!(!real.contains('{'), "{path}");
            let answer = Call::new(&method.to_uppercase(), &real).send(&app).await;
            answer.refused(401, "unauthorized", &format!("{method} {path} is there and wants a token"));
            assert!(operation["responses"].as_object().is_some_and(|responses| !responses.is_empty()), "{path}");
            assert!(operation["tags"][0].is_string(), "{method} {path}");
        }
    }
    assert!(operations > 10);
}

#[tokio::test]
async fn every_reference_in_the_document_points_at_something() {
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    if name == "$ref" {
                        found.insert(value.as_str().expect("a reference"));
                    }
                    references(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let app = TestApp::start().await;
    let document = document(&app).await;
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 5);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// What a page loads: every `src` and `href`.
fn loaded(html: &str) -> Vec<String> {
    ["src=", "href="]
        .iter()
        .flat_map(|name| html.split(name).skip(1))
        .filter_map(|rest| {
            let quote = rest.chars().next().filter(|quote| *quote == '"' || *quote == '\'')?;
            rest[1..].split(quote).next().map(ToOwned::to_owned)
        })
        .collect()
}

#[tokio::test]
async fn the_page_for_people_loads_nothing_from_elsewhere() {
    let app = TestApp::start().await;
    let page = Call::new("GET", "/docs/").send(&app).await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    let assets = loaded(&page.text());
    assert!(assets.len() >= 3, "{assets:?}");
    for asset in assets {
        assert!(!asset.contains("//") && !asset.contains(':'), "{asset} is from elsewhere");
        let path = if asset.starts_with('/') { asset } else { format!("/docs/{}", asset.trim_start_matches("./")) };
        let answer = Call::new("GET", &path).send(&app).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.bytes.is_empty(), "{path}");
    }
    let settings = Call::new("GET", "/docs/swagger-initializer.js").send(&app).await;
    assert!(settings.text().contains("/openapi.json"), "it shows our document: {}", settings.text());
    assert!(Call::new("GET", "/docs").send(&app).await.status.is_success(), "also without the slash");
}

#[tokio::test]
async fn an_operators_machines_are_answered_without_a_token() {
    let app = TestApp::start().await;
    for (path, says) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = Call::new("GET", path).send(&app).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, says), "{path}");
        assert!(answer.header("x-request-id").is_some());
    }
    // This application records nothing; the program itself does, see the next test.
    assert_eq!(Call::new("GET", "/metrics").send(&app).await.status, 404);
}

#[tokio::test]
async fn the_program_shows_what_it_counts() {
    let app = TestApp::start().await;
    let serving = crate::support::process::Serving::start(&app.database_url(), &["--jobs", "off"]).await;
    let get = async |path: &str| {
        let answer = app.client.get(format!("{}{path}", serving.url)).send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a text"))
    };
    assert_eq!(get("/readyz").await.0, 200);
    assert_eq!(get("/v1/currencies").await.0, 401);
    assert_eq!(get("/v1/tenants/secret-name").await.0, 401);
    let (status, text) = get("/metrics").await;
    assert_eq!(status, 200);
    for name in ["hamyon_http_requests_total", "hamyon_http_request_duration_seconds", "hamyon_database_connections"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(text.contains(r#"route="/v1/tenants/{tenant_id}""#), "by route, not by path: {text}");
    assert!(!text.contains("secret-name"), "names of tenants would make a metric each: {text}");
    serving.kill().await;
}

#[tokio::test]
async fn readiness_ends_with_the_database() {
    let app = TestApp::start().await;
    app.app.db.close().await;
    assert_eq!(Call::new("GET", "/readyz").send(&app).await.status, 503);
    assert_eq!(Call::new("GET", "/healthz").send(&app).await.status, 200, "the process itself is well");
    let answer = Call::new("GET", "/v1/currencies").token(&app.token).send(&app).await;
    answer.refused(503, "unavailable", "no database");
    assert_eq!(answer.header("retry-after"), Some("1"));
}
