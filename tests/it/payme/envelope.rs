//! Anything may arrive at a public address. Whatever does, the answer is HTTP 200 with the right code and the caller's
//! own id, nothing is written, and nothing falls over.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{AMOUNT, create, id, perform, raw, shop, state, wallet};
use crate::support::TestApp;
use crate::support::app::PAYME_KEY;

/// The code of an answer given as text, which must be a whole JSON-RPC answer.
fn code_of(text: &str) -> Option<i64> {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let members: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(answer["jsonrpc"], "2.0", "{text}");
    match answer["error"]["code"].as_i64() {
        Some(code) => {
            assert_eq!(members, ["error", "id", "jsonrpc"], "{text}");
            let message = &answer["error"]["message"];
            assert!(["ru", "uz", "en"].iter().all(|language| message[language].is_string()), "{text}");
            Some(code)
        }
        None => {
            assert_eq!(members, ["id", "jsonrpc", "result"], "{text}");
            None
        }
    }
}

async fn assert_codes(app: &TestApp, bodies: Vec<(Vec<u8>, i64)>) {
    let before = app.everything_written().await;
    for (body, expected) in bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let text = raw(app, body).await;
        assert_eq!(code_of(&text), Some(expected), "{shown}\n{text}");
    }
    assert_eq!(app.everything_written().await, before, "a refused body wrote something");
    assert_eq!(state(&create(app, &id(1), &wallet()).await), 1, "the door still works");
}

#[tokio::test]
async fn what_is_no_json_is_told_so() {
    let app = shop().await;
    let deep = |open: &str, close: &str| (open.repeat(100_000) + &close.repeat(100_000)).into_bytes();
    assert_codes(
        &app,
        vec![
            (b"".to_vec(), -32_700),
            (b"   ".to_vec(), -32_700),
            (b"{".to_vec(), -32_700),
            (b"{}{}".to_vec(), -32_700),
            (b"{\"id\":1,}".to_vec(), -32_700),
            (b"{'id':1}".to_vec(), -32_700),
            (b"NaN".to_vec(), -32_700),
            (b"\xEF\xBB\xBF{}".to_vec(), -32_700),
            (b"\x00\x01\x02\xFF".to_vec(), -32_700),
            (b"{\"method\":\"\xFF\xFE\",\"params\":{}}".to_vec(), -32_700),
            (b"{\"method\":\"a\x00b\",\"params\":{}}".to_vec(), -32_700),
            (b"method=CheckTransaction&id=1".to_vec(), -32_700),
            (b"<?xml version=\"1.0\"?>".to_vec(), -32_700),
            ("[".repeat(200_000).into_bytes(), -32_700),
            ("{\"a\":".repeat(50_000).into_bytes(), -32_700),
            (deep("[", "]"), -32_600),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_wrong_envelope_is_told_so() {
    let app = shop().await;
    let cases = [
        ("[]", -32_600),
        (r#"[{"id":1,"method":"CheckTransaction","params":{}}]"#, -32_600),
        ("null", -32_600),
        ("5", -32_600),
        (r#""CheckTransaction""#, -32_600),
        ("{}", -32_600),
        (r#"{"id":1}"#, -32_600),
        (r#"{"method":null,"params":{}}"#, -32_600),
        (r#"{"method":5,"params":{}}"#, -32_600),
        (r#"{"method":["CheckTransaction"],"params":{}}"#, -32_600),
        (r#"{"method":"\ud800","params":{}}"#, -32_600),
        (r#"{"method":"CheckTransaction"}"#, -32_600),
        (r#"{"method":"CheckTransaction","params":null}"#, -32_600),
        (r#"{"method":"CheckTransaction","params":[]}"#, -32_600),
        (r#"{"method":"CheckTransaction","params":["x"]}"#, -32_600),
        (r#"{"method":"CheckTransaction","params":"x"}"#, -32_600),
        (r#"{"method":"CheckTransaction","params":5}"#, -32_600),
        (r#"{"id":{},"method":"CheckTransaction","params":{"id":"x"}}"#, -32_600),
        (r#"{"id":[],"method":"CheckTransaction","params":{"id":"x"}}"#, -32_600),
        (r#"{"method":"","params":{}}"#, -32_601),
        (r#"{"method":"checktransaction","params":{}}"#, -32_601),
        (r#"{"method":"CheckTransaction ","params":{}}"#, -32_601),
        (r#"{"method":"CheckTransaction\u0000","params":{}}"#, -32_601),
        (r#"{"method":"rpc.discover","params":{}}"#, -32_601),
        // The last of two equal keys counts.
        (r#"{"method":"Nonsense","method":"CheckTransaction","params":{"id":"x"}}"#, -31_003),
        (r#"{"method":"CheckTransaction","method":"Nonsense","params":{"id":"x"}}"#, -32_601),
        (r#"{"method":"CheckTransaction","params":[],"params":{"id":"x"}}"#, -31_003),
        (r#"{"method":"CheckTransaction","params":{"id":5,"id":"x"}}"#, -31_003),
        // Nothing else is looked at.
        (r#"{"jsonrpc":"1.0","method":"CheckTransaction","params":{"id":"x","y":[{}]},"more":{"a":[1e999]}}"#, -31_003),
        (r#"{"jsonrpc":7,"method":"CheckTransaction","params":{"id":"x"}}"#, -31_003),
    ];
    assert_codes(&app, cases.map(|(body, code)| (body.as_bytes().to_vec(), code)).into()).await;
}

#[tokio::test]
async fn params_may_be_deep_or_long() {
    let app = shop().await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let call = |params: String| format!(r#"{{"id":1,"method":"CheckTransaction","params":{params}}}"#).into_bytes();
    let fiscal = |data: String| {
        let id = id(1);
        format!(r#"{{"id":1,"method":"SetFiscalData","params":{{"id":"{id}","type":"PERFORM","fiscal_data":{data}}}}}"#)
            .into_bytes()
    };
    assert_codes(
        &app,
        vec![
            (call(format!(r#"{{"id":"x","y":{}}}"#, nested(100_000))), -31_003),
            (call(format!(r#"{{"id":{}}}"#, nested(100_000))), -32_600),
            (call(format!(r#"{{"id":"{}"}}"#, "x".repeat(200_000))), -31_003),
            (call(format!(r#"{{"id":"x","{}":1}}"#, "k".repeat(200_000))), -31_003),
            (fiscal(format!(r#"{{"receipt_id":1,"x":{}}}"#, nested(8_000))), -32_001),
            (fiscal(format!(r#"{{"receipt_id":1,"x":"{}"}}"#, "x".repeat(16 * 1024))), -32_602),
            (vec![b' '; 1024 * 1024], -32_600),
            (call(format!(r#"{{"id":"{}"}}"#, "x".repeat(1024 * 1024))), -32_600),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_field_of_the_wrong_type_is_told_so_and_never_guessed_at() {
    let app = shop().await;
    let time = app.now_ms().to_string();
    let amount = AMOUNT.to_string();
    let account = r#"{"tenant_id":"acme"}"#;
    let created = format!("\"{}\"", id(77));
    let fiscal = r#"{"receipt_id":1}"#;
    // Method, its right parameters, the field to break, the code, and the values that break it. An empty value
    // leaves the field out.
    type Case<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a str, i64, &'a [&'a str]);
    let check_perform = vec![("amount", amount.as_str()), ("account", account)];
    let create = vec![("id", "\"new\""), ("time", &time), ("amount", &amount), ("account", account)];
    let by_id = vec![("id", created.as_str())];
    let cancel = vec![("id", created.as_str()), ("reason", "3")];
    let statement = vec![("from", "0"), ("to", "1")];
    let receipt = vec![("id", created.as_str()), ("type", "\"PERFORM\""), ("fiscal_data", fiscal)];
    let not_integers: &[&str] =
        &["", "null", "true", "\"1\"", "\"\"", "[]", "[1]", "{}", "1.5", "500000.0", "5e5", "1e3", "1e400", "-0.0"];
    let no_times: &[&str] = &["-1", "253402300800000", "9223372036854775808", "1000000000000000000000000000000"];
    let wrong_amounts: &[&str] = &[
        "0",
        "-0",
        "-1",
        "1",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "500000000000000000000000000000000000000000",
    ];
    let not_strings: &[&str] = &["", "null", "true", "5", "1.5", "[]", "{}", "[\"x\"]", "\"\\ud800\""];
    let no_ids: &[&str] = &[
        "\"\"",
        "\" \"",
        "\"a b\"",
        "\"\\u0000\"",
        "\"a\\u0000\"",
        "\"й\"",
        "\"\\n\"",
        "\"0123456789012345678901234567890123456789012345678901234567890123x\"",
    ];
    let no_objects: &[&str] = &["true", "5", "\"acme\"", "[]", "[{\"tenant_id\":\"acme\"}]"];
    let not_flat: &[&str] = &[
        "{\"tenant_id\":[\"acme\"]}",
        "{\"tenant_id\":{\"acme\":1}}",
        "{\"tenant_id\":\"acme\",\"x\":[]}",
        "{\"x\": {} ,\"tenant_id\":\"acme\"}",
        "{\"x\":[[]],\"x\":1,\"tenant_id\":\"acme\"}",
        "{\"y\":\"\\\\\",\"x\":[],\"tenant_id\":\"acme\"}",
    ];
    let no_accounts: &[&str] = &[
        "",
        "null",
        "{}",
        "{\"tenant_id\":null}",
        "{\"tenant_id\":true}",
        "{\"tenant_id\":1.5}",
        "{\"tenant_id\":-1}",
        "{\"tenant_id\":1e3}",
        "{\"tenant_id\":\"\"}",
        "{\"tenant_id\":\"acme\\u0000\"}",
        "{\"tenant_id\":\"\\ud800\"}",
        "{\"tenant_id\":\"ac me\"}",
        "{\"tenant_id\":123456789012345678901234567890123456789012345678901234567890123456789}",
        "{\"Tenant_id\":\"acme\"}",
        "{\"tenant_id\":\"acme\",\"tenant_id\":\"x\"}",
        "{\"order_id\":null,\"tenant_id\":\"acme\"}",
        "{\"tenant_id\":\"acme'; DROP TABLE payments; --\"}",
    ];
    let cases: Vec<Case> = vec![
        ("CheckPerformTransaction", check_perform.clone(), "amount", -32_600, not_integers),
        ("CheckPerformTransaction", check_perform.clone(), "amount", -31_001, wrong_amounts),
        ("CheckPerformTransaction", check_perform.clone(), "account", -32_600, no_objects),
        ("CheckPerformTransaction", check_perform.clone(), "account", -32_600, not_flat),
        ("CheckPerformTransaction", check_perform, "account", -31_050, no_accounts),
        ("CreateTransaction", create.clone(), "id", -32_600, not_strings),
        ("CreateTransaction", create.clone(), "id", -32_600, no_ids),
        ("CreateTransaction", create.clone(), "time", -32_600, not_integers),
        ("CreateTransaction", create.clone(), "time", -32_600, no_times),
        ("CreateTransaction", create.clone(), "time", -31_008, &["0", "1"]),
        ("CreateTransaction", create.clone(), "amount", -32_600, not_integers),
        ("CreateTransaction", create.clone(), "amount", -31_001, wrong_amounts),
        ("CreateTransaction", create.clone(), "account", -32_600, no_objects),
        ("CreateTransaction", create.clone(), "account", -32_600, not_flat),
        ("CreateTransaction", create, "account", -31_050, no_accounts),
        ("PerformTransaction", by_id.clone(), "id", -32_600, not_strings),
        ("PerformTransaction", by_id.clone(), "id", -31_003, no_ids),
        ("CheckTransaction", by_id.clone(), "id", -32_600, not_strings),
        ("CheckTransaction", by_id, "id", -31_003, no_ids),
        ("CancelTransaction", cancel.clone(), "id", -32_600, not_strings),
        ("CancelTransaction", cancel.clone(), "id", -31_003, no_ids),
        ("CancelTransaction", cancel.clone(), "reason", -32_600, not_integers),
        ("CancelTransaction", cancel, "reason", -32_600, &["9223372036854775808", "-9223372036854775809"]),
        ("GetStatement", statement.clone(), "from", -32_600, not_integers),
        ("GetStatement", statement.clone(), "from", -32_600, no_times),
        ("GetStatement", statement.clone(), "to", -32_600, not_integers),
        ("GetStatement", statement, "to", -32_600, no_times),
        ("SetFiscalData", receipt.clone(), "id", -32_602, not_strings),
        ("SetFiscalData", receipt.clone(), "id", -32_001, no_ids),
        ("SetFiscalData", receipt.clone(), "type", -32_602, not_strings),
        ("SetFiscalData", receipt.clone(), "type", -32_602, &["\"\"", "\"perform\"", "\"PERFORM\\u0000\""]),
        (
            "SetFiscalData",
            receipt.clone(),
            "fiscal_data",
            -32_602,
            &["", "null", "true", "5", "\"x\"", "[]", "[1]", "{}"],
        ),
        (
            "SetFiscalData",
            receipt,
            "fiscal_data",
            -32_602,
            &["{\"receipt_id\":null}", "{\"receipt_id\":[]}", "{\"receipt_id\":{}}", "{\"receipt_id\":true}"],
        ),
    ];
    // A payment that the calls by id would find, were they not refused.
    super::create(&app, &id(77), &wallet()).await;
    let mut bodies = Vec::new();
    for (method, params, broken, code, values) in cases {
        for value in values {
            let members: Vec<String> = params
                .iter()
                .map(|(name, right)| (name, if *name == broken { value } else { right }))
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            let body = format!(r#"{{"id":1,"method":"{method}","params":{{{}}}}}"#, members.join(","));
            bodies.push((body.into_bytes(), code));
        }
    }
    assert_codes(&app, bodies).await;
}

#[tokio::test]
async fn any_integer_is_a_reason_and_comes_back() {
    let app = shop().await;
    for (number, reason) in (1_u32..).zip([0, -1, 10, 99, i64::MAX, i64::MIN]) {
        create(&app, &id(number), &wallet()).await;
        let cancelled = app.payme("CancelTransaction", json!({ "id": id(number), "reason": reason })).await;
        assert_eq!(state(&cancelled), -1);
        assert_eq!(super::check(&app, &id(number)).await["reason"], reason);
    }
}

#[tokio::test]
async fn the_id_comes_back_as_the_very_characters_that_came() {
    let app = shop().await;
    let long = format!("\"{}\"", "x".repeat(10_000));
    for id in [
        "1",
        "0",
        "-5",
        "1e2",
        "1E+2",
        "3.50",
        "-0.0",
        "123456789012345678901234567890",
        "1e999",
        "\"x\"",
        "\"\"",
        "\"\\u0041\\/\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"й\"",
        "null",
        "true",
        "false",
        &long,
    ] {
        for (method, params, authorized) in [
            ("GetStatement", r#"{"from":1,"to":0}"#, true),
            ("CheckTransaction", r#"{"id":"x"}"#, true),
            ("Nonsense", "{}", true),
            ("CheckTransaction", "[]", true),
            ("CheckTransaction", "{}", false),
        ] {
            let body = format!(r#"{{"method":"{method}","params":{params}, "id" : {id} }}"#);
            let key = if authorized { PAYME_KEY } else { "wrong" };
            let request = app.client.post(app.url("/payme")).basic_auth("Paycom", Some(key)).body(body);
            let text = request.send().await.unwrap().text().await.unwrap();
            let begin = format!(r#"{{"jsonrpc":"2.0","id":{id},""#);
            assert!(text.starts_with(&begin), "{method}: {id} {text}");
        }
    }
    for (body, expected) in [
        (r#"{"id":1,"id":2,"method":"GetStatement","params":{"from":1,"to":0}}"#, "2"),
        (r#"{"method":"GetStatement","params":{"from":1,"to":0}}"#, "null"),
        (r#"{"id":{"a":1},"method":"GetStatement","params":{"from":1,"to":0}}"#, "null"),
        (r#"{"id":1,"method""#, "null"),
        (r#"[{"id":1}]"#, "null"),
    ] {
        let text = raw(&app, body).await;
        assert!(text.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{expected},""#)), "{body} {text}");
    }
}

#[tokio::test]
async fn every_http_method_and_content_type_is_answered_200() {
    let app = shop().await;
    let body = json!({ "id": 1, "method": "GetStatement", "params": { "from": 1, "to": 0 } }).to_string();
    for method in ["GET", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for key in [PAYME_KEY, "wrong"] {
            let request = app.client.request(method.clone(), app.url("/payme")).basic_auth("Paycom", Some(key));
            let response = request.body(body.clone()).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{method}");
            assert_eq!(response.headers()["content-type"], "application/json; charset=UTF-8");
            if method != Method::HEAD {
                assert_eq!(code_of(&response.text().await.unwrap()), Some(-32_300), "{method}");
            }
        }
    }
    for content_type in [
        "text/json",
        "application/json; charset=UTF-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "nonsense",
        "",
    ] {
        let request = app.client.post(app.url("/payme")).basic_auth("Paycom", Some(PAYME_KEY));
        let response = request.header("content-type", content_type).body(body.clone()).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json; charset=UTF-8");
        assert_eq!(code_of(&response.text().await.unwrap()), None, "{content_type}");
    }
}

#[tokio::test]
async fn fiscal_receipts_of_the_sale_and_of_the_return_are_kept_as_they_came_and_never_overwritten() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    perform(&app, &id(1)).await;
    let receipts = [
        ("PERFORM", r#"{"receipt_id":"12","message":"\u0000 \ud800","date":"20261201140000","x":1.50}"#),
        ("CANCEL", r#"{"receipt_id":123456789012345678901234567890}"#),
    ];
    for (kind, receipt) in receipts.iter().chain(&[("PERFORM", r#"{"receipt_id":"another"}"#)]) {
        let id = id(1);
        let body = format!(
            r#"{{"id":1,"method":"SetFiscalData","params":{{"id":"{id}","type":"{kind}","fiscal_data":{receipt}}}}}"#
        );
        assert_eq!(raw(&app, body).await, r#"{"jsonrpc":"2.0","id":1,"result":{"success":true}}"#);
    }
    let kept: Vec<(String, String)> =
        sqlx::query_as("SELECT upper(kind), receipt::text FROM payment_fiscal_receipts ORDER BY kind DESC")
            .fetch_all(&mut app.superuser().await)
            .await
            .unwrap();
    assert_eq!(kept, receipts.map(|(kind, receipt)| (kind.to_owned(), receipt.to_owned())));
}

/// A server, and a runtime to call it from code that isn't async.
fn served() -> (tokio::runtime::Runtime, TestApp) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let app = runtime.block_on(shop());
    (runtime, app)
}

#[test]
fn random_bytes_are_answered_and_write_nothing() {
    let (runtime, app) = served();
    let before = runtime.block_on(app.everything_written());
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        // Near misses: a right body with something in it changed.
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| {
            let mut body = br#"{"jsonrpc":"2.0","id":1,"method":"PerformTransaction","params":{"id":"abc"}}"#.to_vec();
            let at = at.index(body.len());
            body[at] = byte;
            body
        }),
    ];
    TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(200) })
        .run(&bytes, |body| {
            let code = code_of(&runtime.block_on(raw(&app, body)));
            prop_assert!(matches!(code, Some(-32_700 | -32_600 | -32_601 | -31_003)), "{:?}", code);
            Ok(())
        })
        .unwrap();
    assert_eq!(runtime.block_on(app.everything_written()), before);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec!["acme", "197", "known", "PERFORM", "CANCEL"]).prop_map(Value::from),
        prop::sample::select(vec![AMOUNT, 1_796_000_000_000, 1]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let names = prop::sample::select(vec![
            "id",
            "time",
            "amount",
            "account",
            "tenant_id",
            "order_id",
            "reason",
            "from",
            "to",
            "type",
            "fiscal_data",
            "receipt_id",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..8)
                .prop_map(|members| members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<Map<_, _>>())
                .prop_map(Value::Object),
        ]
    })
}

#[test]
fn p1_random_calls_are_answered_and_money_moves_only_with_a_payment() {
    let (runtime, app) = served();
    runtime.block_on(create(&app, "known", &wallet()));
    let methods = prop::sample::select(vec![
        "CheckPerformTransaction",
        "CreateTransaction",
        "PerformTransaction",
        "CancelTransaction",
        "CheckTransaction",
        "GetStatement",
        "SetFiscalData",
        "Other",
    ]);
    let calls =
        (methods, json_value(), json_value(), any::<Option<String>>()).prop_map(|(method, params, id, more)| {
            let mut body = json!({ "method": method, "params": params, "id": id });
            if let Some(more) = more {
                body[more.as_str()] = json!([]);
            }
            body
        });
    TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(300) })
        .run(&calls, |body| {
            let text = runtime.block_on(raw(&app, body.to_string()));
            let code = code_of(&text);
            prop_assert!(code != Some(-32_400) && code != Some(-32_504) && code != Some(-32_700), "{}", text);
            Ok(())
        })
        .unwrap();
    let rows = "SELECT count(*) FROM wallet_transactions";
    let steps =
        "SELECT count(performed_at) + count(cancelled_at) FILTER (WHERE performed_at IS NOT NULL) FROM payments";
    assert_eq!(runtime.block_on(app.count(rows)), runtime.block_on(app.count(steps)));
    assert!(runtime.block_on(app.verify()).is_clean());
}
