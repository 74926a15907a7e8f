//! Broken, hostile and random requests on `/v1`: each gets a problem that says what is wrong, none gets a
//! 5xx, and none writes anything.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};

/// Every path that takes a body, with a body it would accept.
fn doors() -> [(&'static str, Value); 7] {
    [
        ("/v1/currencies", json!({ "code": "MESSAGE", "exponent": 0 })),
        ("/v1/tenants", json!({ "tenant_id": "new", "name": "New", "time_zone": "Asia/Tashkent", "locale": "uz" })),
        (
            "/v1/transactions/batch",
            json!({ "transactions": [{
                "tenant_id": "acme", "currency": "UZS", "kind": "bonus", "amount": "1.5", "reference": "r",
                "reason": "a test", "pocket": "main", "metadata": { "a": [1] },
            }] }),
        ),
        (
            "/v1/orders",
            json!({ "order_id": "new", "tenant_id": "acme", "currency": "UZS", "amount": "1000", "title": "A thing",
                    "expires_at": "2027-01-01T00:00:00Z" }),
        ),
        (
            "/v1/payment-links",
            json!({ "provider": "payme", "tenant_id": "acme", "amount": "1000", "locale": "ru",
                    "return_url": "https://shop.uz/done" }),
        ),
        (
            "/v1/tenants/acme/refunds",
            json!({ "transaction": 2, "amount": "1.5", "currency": "UZS", "reason": "a test" }),
        ),
        (
            "/v1/tenants/acme/adjustments",
            json!({ "currency": "UZS", "amount": "-1.5", "reason": "correction", "note": "a test" }),
        ),
    ]
}

async fn app() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 100_000).await;
    app
}

fn door(app: &TestApp, path: &str) -> Call {
    Call::new("POST", path).token(&app.token).key("K1")
}

#[tokio::test]
async fn bytes_that_are_no_json_are_refused_at_every_door() {
    let app = app().await;
    let before = app.everything_written().await;
    let deep = "[".repeat(200_000);
    let deep_object = "{\"a\":".repeat(200_000);
    let half = "{\"transactions\":[{\"tenant_id\":\"acme\"";
    let bodies: [&[u8]; 16] = [
        b"",
        b" ",
        b"\0",
        b"{",
        b"}",
        b"[1,]",
        b"{}{}",
        b"nul",
        b"'a'",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"{\"tenant_id\":\"\xc3\x28\"}",
        b"{\"name\":\"\\ud800\"}",
        deep.as_bytes(),
        deep_object.as_bytes(),
        half.as_bytes(),
    ];
    for (path, _) in doors() {
        for body in bodies {
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            let call = door(&app, path).content_type("application/json").bytes(body);
            call.send(&app).await.refused(400, "invalid_request", &format!("{path} {shown}"));
        }
        for body in [json!(null), json!(true), json!(1), json!(1.5), json!("x"), json!([]), json!({}), json!([[]])] {
            door(&app, path).json(&body).send(&app).await.refused(400, "invalid_request", &format!("{path} {body}"));
        }
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_body_of_the_wrong_kind_or_size_is_refused_at_every_door() {
    let app = app().await;
    let before = app.everything_written().await;
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(5 * 1024 * 1024));
    for (path, body) in doors() {
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "json", ""]
        {
            let call = door(&app, path).content_type(kind).bytes(body.to_string());
            call.send(&app).await.refused(415, "unsupported_media_type", &format!("{path} {kind}"));
        }
        let call = door(&app, path).bytes(body.to_string());
        call.send(&app).await.refused(415, "unsupported_media_type", path);
        let call = door(&app, path).content_type("application/json").bytes(large.clone());
        call.send(&app).await.refused(413, "body_too_large", path);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn every_field_is_checked_and_no_unknown_one_is_ignored() {
    let app = app().await;
    let before = app.everything_written().await;
    let nul = "a\0b";
    let long = "x".repeat(10_000);
    let broken = [
        json!(1),
        json!(-1),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!(""),
        json!(" "),
        json!(nul),
        json!(long),
        json!("a\nb"),
        json!("\u{7f}"),
        json!("\u{85}"),
        json!("'; DROP TABLE wallets; --"),
        json!("../../etc/passwd"),
        json!("%00"),
        json!("<script>"),
        json!("\u{202e}\u{0}"),
    ];
    // What any text may be; the others have a shape of their own.
    let free = ["name", "title", "reference", "reason", "note"];
    for (path, body) in doors() {
        let mut unknown = body.clone();
        unknown["unknown"] = json!(1);
        door(&app, path).json(&unknown).send(&app).await.refused(400, "invalid_request", &format!("{path} unknown"));
        let at = if path.ends_with("batch") { "/transactions/0" } else { "" };
        let fields: Vec<String> =
            body.pointer(at).and_then(Value::as_object).expect("fields").keys().cloned().collect();
        let mut unknown = body.clone();
        unknown.pointer_mut(at).expect("fields")["Amount"] = json!("1");
        door(&app, path).json(&unknown).send(&app).await.refused(400, "invalid_request", &format!("{path} Amount"));
        // An exponent and metadata have tests of their own, and where the browser returns is not ours to judge.
        for field in fields.iter().filter(|field| !["exponent", "metadata", "return_url"].contains(&field.as_str())) {
            for value in &broken {
                let plain = value.as_str().is_some_and(|text| {
                    !text.trim().is_empty() && !text.chars().any(char::is_control) && text.len() < 200
                });
                if plain && free.contains(&field.as_str()) {
                    continue;
                }
                let mut changed = body.clone();
                changed.pointer_mut(at).expect("fields")[field] = value.clone();
                let shown: String = value.to_string().chars().take(40).collect();
                let about = format!("{path} {field} = {shown}");
                let answer = door(&app, path).json(&changed).send(&app).await;
                assert!(answer.status.is_client_error(), "{about}: {} {}", answer.status, answer.text());
                let problem = answer.problem(&about);
                assert!(answer.status == 400 || answer.status == 422 || answer.status == 404, "{about}: {problem}");
            }
        }
        // A field given twice says two things.
        let text = body.to_string();
        let field = body.as_object().and_then(|fields| fields.keys().next()).expect("a field");
        let twice = format!("{{{}:{},{}", json!(field), body[field], &text[1..]);
        let call = door(&app, path).content_type("application/json").bytes(twice);
        call.send(&app).await.refused(400, "invalid_request", &format!("{path} {field} twice"));
    }
    for exponent in [json!(9), json!(-1), json!(256), json!(2.0), json!("2"), json!(null)] {
        let body = json!({ "code": "MESSAGE", "exponent": exponent });
        door(&app, "/v1/currencies").json(&body).send(&app).await.refused(400, "invalid_request", &body.to_string());
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_batch_has_one_to_five_thousand_items_of_bounded_size() {
    let app = app().await;
    let before = app.everything_written().await;
    let small = |number: usize| json!({ "tenant_id": "acme", "currency": "UZS", "kind": "bonus", "amount": "1", "reference": format!("r{number}") });
    let many: Vec<Value> = (0..5_001).map(small).collect();
    let path = "/v1/transactions/batch";
    for items in [&many[..], &[]] {
        let problem = door(&app, path).json(&batch(items)).send(&app).await.refused(400, "invalid_request", "items");
        assert_eq!(problem["field"], "transactions");
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains(&items.len().to_string())),
            "{problem}"
        );
    }
    let with_metadata = |metadata: Value| {
        let mut item = small(0);
        item["metadata"] = metadata;
        batch(&[item])
    };
    for metadata in [
        json!({ "a": "x".repeat(4_096) }),
        json!([]),
        json!("{}"),
        json!(1),
        json!({ "a": "\0" }),
        json!({ "\0": 1 }),
        json!({ "a": { "b": ["\u{0}"] } }),
    ] {
        let body = with_metadata(metadata);
        door(&app, path).json(&body).send(&app).await.refused(400, "invalid_request", "metadata");
    }
    for (field, value) in [
        ("transaction", json!("1")),
        ("transaction", json!(1.5)),
        ("transaction", json!(9_223_372_036_854_775_808_u64)),
        ("pocket", json!("Main")),
        ("pocket", json!(".main")),
        ("pocket", json!("x".repeat(65))),
        ("kind", json!("Bonus")),
        ("kind", json!("x".repeat(33))),
        ("reference", json!("x".repeat(601))),
        ("reason", json!("x".repeat(501))),
        ("tenant_id", json!("x".repeat(65))),
        ("currency", json!("X".repeat(17))),
    ] {
        let mut item = small(0);
        item[field] = value;
        door(&app, path).json(&batch(&[item])).send(&app).await.refused(400, "invalid_request", field);
    }
    assert_eq!(app.everything_written().await, before);

    // The longest of everything is taken, character for character.
    let longest = json!({
        "tenant_id": "acme", "currency": "UZS", "kind": "k".repeat(32), "amount": "1", "reference": "ў".repeat(600),
        "reason": "қ".repeat(500), "pocket": "p".repeat(64), "metadata": { "a": "x".repeat(4_096 - 8), },
    });
    let answer = door(&app, path).json(&batch(std::slice::from_ref(&longest))).send(&app).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    for field in ["kind", "reference", "reason", "pocket", "metadata"] {
        assert_eq!(answer.json()["transactions"][0][field], longest[field], "{field}");
    }
    // A text that only looks like an escaped NUL is a text like any other.
    let body = with_metadata(json!({ "regex": "\\u0000" }));
    let answer = Call::new("POST", path).token(&app.token).key("K2").json(&body).send(&app).await;
    assert_eq!(answer.status, 201, "a backslash and a u are not NUL: {}", answer.text());
    let all = Call::new("POST", path).token(&app.token).key("K3").json(&batch(&many[1..])).send(&app).await;
    assert_eq!(all.status, 201);
    assert_eq!(all.json()["transactions"].as_array().map(Vec::len), Some(5_000));
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_say_so() {
    let app = app().await;
    let before = app.everything_written().await;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/tenants",
        "/v1/tenants/",
        "/v1/tenants/acme/",
        "/v1/tenants/acme/nothing",
        "/v1//tenants",
        "/v1/tenants/acme/balance/",
        "/V1/tenants",
        "/v1/transactions",
        "/v1/orders/x/close/",
        "/.env",
        "/openapi.yaml",
    ] {
        Call::new("GET", path).token(&app.token).send(&app).await.refused(404, "path_not_found", path);
    }
    for (method, path, allowed) in [
        ("DELETE", "/v1/tenants/acme", "GET,HEAD,PATCH"),
        ("PUT", "/v1/tenants/acme/balance", "GET,HEAD"),
        ("GET", "/v1/tenants", "POST"),
        ("GET", "/v1/transactions/batch", "POST"),
        ("PATCH", "/v1/orders/o", "GET,HEAD"),
        ("GET", "/v1/orders/o/close", "POST"),
        ("DELETE", "/v1/currencies", "GET,HEAD,POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("TRACE", "/v1/tenants", "POST"),
        ("HAMYON", "/v1/tenants", "POST"),
    ] {
        let answer = Call::new(method, path).token(&app.token).send(&app).await;
        answer.refused(405, "method_not_allowed", &format!("{method} {path}"));
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
    let long = "x".repeat(65);
    for name in [
        "nobody",
        "%00",
        "%20",
        "acme%20",
        "..%2f",
        "a%2fb",
        "acme'",
        "acme%22",
        "%F0%9F%92%B0",
        "%D0%B0",
        &long,
        "*",
        "null",
        "acme%0a",
        "%25",
    ] {
        for (path, code) in [
            (format!("/v1/tenants/{name}"), "tenant_not_found"),
            (format!("/v1/tenants/{name}/balance"), "tenant_not_found"),
            (format!("/v1/tenants/{name}/transactions"), "tenant_not_found"),
            (format!("/v1/orders/{name}"), "order_not_found"),
            (format!("/v1/support-requests/{name}"), "request_not_found"),
        ] {
            Call::new("GET", &path).token(&app.token).send(&app).await.refused(404, code, &path);
        }
        let path = format!("/v1/orders/{name}/close");
        Call::new("POST", &path).token(&app.token).send(&app).await.refused(404, "order_not_found", &path);
    }
    for path in ["/v1/tenants/%FF", "/v1/tenants/%ff%fe/balance", "/v1/orders/%C3%28"] {
        Call::new("GET", path).token(&app.token).send(&app).await.refused(400, "invalid_request", path);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn c77_an_unknown_query_parameter_is_refused_at_every_door() {
    let app = app().await;
    app.order("order", "acme", "1000").await;
    let before = app.everything_written().await;
    for (path, body) in doors() {
        let path = format!("{path}?dry_run=true");
        door(&app, &path).json(&body).send(&app).await.refused(400, "invalid_request", &path);
    }
    let path = "/v1/orders/order/close?dry_run=true";
    door(&app, path).send(&app).await.refused(400, "invalid_request", path);
    for path in
        ["/v1/currencies?x=1", "/v1/tenants/acme?x", "/v1/orders/order?x=1", "/v1/support-requests?status=waiting"]
    {
        Call::new("GET", path).token(&app.token).send(&app).await.refused(400, "invalid_request", path);
    }
    assert_eq!(app.everything_written().await, before);
}

/// Any JSON, with the texts and numbers that break things.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop_oneof![
            Just("acme"),
            Just("UZS"),
            Just("refund"),
            Just("1"),
            Just("-1"),
            Just("-0"),
            Just("92233720368547758.07"),
            Just("-92233720368547758.08"),
            Just("9999-12-31T23:59:59Z"),
            Just("-9999-01-01T00:00:00Z"),
            Just("+262142-01-01T00:00:00Z"),
            Just("2016-12-31T23:59:60Z"),
            Just("\0"),
            Just("payme"),
            Just("x;y"),
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{0,12}", inner, 0..6)
                .prop_map(|object| Value::Object(object.into_iter().collect())),
        ]
    })
}

/// Replaces one value somewhere in a body.
fn replace(value: &mut Value, mut place: usize, with: &Value) -> usize {
    if place == 0 {
        *value = with.clone();
        return usize::MAX;
    }
    place -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Object(object) => object.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        place = replace(child, place, with);
        if place == usize::MAX {
            return place;
        }
    }
    place
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_random_body_is_a_fault() {
    let app = app().await;
    let mut runner = TestRunner::default();
    for (path, body) in doors() {
        for round in 0..150_usize {
            let random = any_json().new_tree(&mut runner).expect("a value").current();
            let sent = if round % 5 == 0 {
                random
            } else {
                let mut changed = body.clone();
                if path.ends_with("batch") {
                    // What is booked once would hide the rest of the checks.
                    changed["transactions"][0]["reference"] = json!(format!("r{round}"));
                }
                replace(&mut changed, round % 12, &random);
                changed
            };
            let key = format!("K{round}");
            let answer = Call::new("POST", path).token(&app.token).key(&key).json(&sent).send(&app).await;
            assert!(!answer.status.is_server_error(), "{path} {sent}: {} {}", answer.status, answer.text());
            if !answer.status.is_success() {
                answer.problem(&format!("{path} {sent}"));
            }
        }
    }
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn a_fault_says_a_reference_and_nothing_about_the_inside() {
    let app = app().await;
    app.superuser().await.execute("DROP TABLE wallet_checkpoints").await.expect("a broken database");
    let written = "SELECT count(*) FROM wallet_transactions";
    let before = (app.count(written).await, app.count("SELECT count(*) FROM idempotency_keys").await);
    let body = batch(&[posting("acme", "bonus", "1", "r")]);
    for call in [
        door(&app, "/v1/transactions/batch").json(&body),
        Call::new("GET", "/v1/tenants/acme/balance").token(&app.token),
        Call::new("GET", "/v1/tenants/acme/transactions").token(&app.token),
    ] {
        for given in [None, Some("their-own-id-7")] {
            let call = call.clone();
            let call = if let Some(id) = given { call.header("X-Request-Id", id) } else { call };
            let answer = call.send(&app).await;
            let problem = answer.refused(500, "internal", "a broken database");
            assert_eq!(problem["reference"].as_str(), answer.header("x-request-id"), "{problem}");
            assert!(given.is_none() || answer.header("x-request-id") == given, "{problem}");
            assert!(!problem.to_string().contains("checkpoint"), "{problem}");
        }
    }
    let after = (app.count(written).await, app.count("SELECT count(*) FROM idempotency_keys").await);
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_request_id_that_could_break_a_log_is_replaced() {
    let app = app().await;
    for id in ["", "two words", &"x".repeat(65), "\u{e9}"] {
        let answer = Call::new("GET", "/v1/currencies").token(&app.token).header("X-Request-Id", id).send(&app).await;
        let given = answer.header("x-request-id").expect("an id");
        assert!(given != id && given.len() == 36, "{id:?}: {given}");
    }
}
