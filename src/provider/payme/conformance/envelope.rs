//! HTTP, JSON and the JSON-RPC envelope, apart from what any method means.
//!
//! The harmless call is `CheckTransaction` of an id that nobody knows: -31003 proves that the request was read as far as the
//! method itself.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Call, Client, Exchange};
use super::expect::{self, Mismatch, Verdict};
use super::payment::new_id;
use super::suite::{Check, Group, Suite, check};

const CHECKS: &[Check] = &[
    check("get", "§1", "GET is answered with -32300"),
    check("put", "§1", "PUT is answered with -32300"),
    check("garbage", "§1", "a body that is not JSON is answered with -32700"),
    check("truncated", "§1", "JSON that is cut off is answered with -32700"),
    check("empty-body", "§1", "an empty body is answered with -32700"),
    check("unreadable-id", "§1", "an id that could not be read is answered as null"),
    check("no-method", "§1", "a request without a method is answered with -32600"),
    check("method-not-a-string", "§1", "a method that is not a string is answered with -32600"),
    check("params-array", "§1", "params as an array are answered with -32600"),
    check("params-string", "§1", "params as a string are answered with -32600"),
    check("batch", "§1", "an array of requests is answered with one -32600"),
    check("scalar-body", "§1", "a body that is only a number is answered with -32600"),
    check("unknown-method", "§2", "an unknown method is answered with -32601"),
    check("unknown-method-data", "§2", "and its name stands in data"),
    check("change-password", "§3", "ChangePassword is gone: -32601"),
    check("no-jsonrpc", "§1", "the member jsonrpc is not required"),
    check("unknown-members", "§1", "unknown members are ignored"),
    check("text-json", "§1", "the content type text/json is accepted"),
    check("no-content-type", "§1", "a request without a content type is accepted"),
    check("content-type-out", "§1", "the answer's content type is application/json"),
    check("id.string", "§1", "a string id is echoed unchanged"),
    check("id.number", "§1", "a number id is echoed unchanged"),
    check("id.negative", "§1", "a negative id is echoed unchanged"),
    check("id.fractional", "§1", "a fractional id is echoed unchanged"),
    check("id.null", "§1", "a null id is echoed unchanged"),
    check("id.large", "§1", "an id beyond 2^53 is echoed unchanged"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let client = Arc::clone(&suite.client);
    let unknown = json!({"id": new_id()});
    let mut group = suite.group("", CHECKS);

    for (step, http_method) in [("get", Method::GET), ("put", Method::PUT)] {
        let call = client.call("CheckTransaction", &unknown);
        // GET has no body, so there is no id to echo; with PUT a merchant may refuse before it reads.
        let refused = client.send(Call { http_method, id: None, ..call }).await;
        group.expect_error(step, &refused, -32_300);
    }

    let mut unreadable = None;
    for (step, body) in [("garbage", "this is not JSON"), ("truncated", r#"{"id":1,"method":"#), ("empty-body", "")] {
        let refused = client.send(Call::raw(body, None)).await;
        group.expect_error(step, &refused, -32_700);
        unreadable.get_or_insert(refused);
    }
    if let Some(refused) = unreadable {
        group.record("unreadable-id", &[&refused], expect::id_echoed(&refused));
    }

    bad_envelopes(&mut group, &client).await;

    let refused = client.rpc("NoSuchMethod", json!({})).await;
    group.expect_error("unknown-method", &refused, -32_601);
    group.record("unknown-method-data", &[&refused], expect::error_data(&refused, "NoSuchMethod"));
    let refused = client.rpc("ChangePassword", json!({"password": "irrelevant"})).await;
    group.expect_error("change-password", &refused, -32_601);

    let id = Value::from(11);
    let body = json!({"id": id, "method": "CheckTransaction", "params": unknown});
    let read = client.send(Call::raw(body.to_string(), Some(id.clone()))).await;
    group.expect_error("no-jsonrpc", &read, -31_003);
    let body = json!({
        "jsonrpc": "2.0", "id": id, "method": "CheckTransaction", "extra": [1],
        "params": {"id": new_id(), "extra": {"deep": null}},
    });
    let read = client.send(Call::raw(body.to_string(), Some(id))).await;
    group.expect_error("unknown-members", &read, -31_003);
    for (step, content_type) in [("text-json", Some("text/json")), ("no-content-type", None)] {
        let read = client.send(Call { content_type, ..client.call("CheckTransaction", &unknown) }).await;
        group.expect_error(step, &read, -31_003);
    }
    let read = client.rpc("CheckTransaction", unknown.clone()).await;
    group.record("content-type-out", &[&read], json_content_type(&read));

    for (step, id) in [
        ("id.string", json!("b4a5-Ўз\"1")),
        ("id.number", json!(1234)),
        ("id.negative", json!(-7)),
        ("id.fractional", json!(1.5)),
        ("id.null", Value::Null),
        ("id.large", json!(9_223_372_036_854_775_807_i64)),
    ] {
        let echoed = send_with_id(&client, &unknown, id).await;
        group.record(step, &[&echoed], expect::id_echoed(&echoed));
    }
    group.close_after_failure();
}

async fn bad_envelopes(group: &mut Group<'_, '_>, client: &Client) {
    let id = new_id();
    let bad_envelopes = [
        ("no-method", json!({"jsonrpc": "2.0", "id": 1, "params": {"id": id}}), Some(1)),
        ("method-not-a-string", json!({"jsonrpc": "2.0", "id": 2, "method": 7, "params": {"id": id}}), Some(2)),
        ("params-array", json!({"jsonrpc": "2.0", "id": 3, "method": "CheckTransaction", "params": [id]}), Some(3)),
        ("params-string", json!({"jsonrpc": "2.0", "id": 4, "method": "CheckTransaction", "params": id}), Some(4)),
        ("batch", json!([{"jsonrpc": "2.0", "id": 5, "method": "CheckTransaction", "params": {"id": id}}]), None),
        ("scalar-body", json!(42), None),
    ];
    for (step, body, id) in bad_envelopes {
        let refused = client.send(Call::raw(body.to_string(), id.map(Value::from))).await;
        group.expect_error(step, &refused, -32_600);
    }
}

async fn send_with_id(client: &Client, params: &Value, id: Value) -> Arc<Exchange> {
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "CheckTransaction", "params": params});
    client.send(Call::raw(body.to_string(), Some(id))).await
}

/// `application/json`, with or without a charset, in any case.
pub fn json_content_type(exchange: &Exchange) -> Verdict {
    let expected = "content type application/json";
    let Ok(reply) = &exchange.reply else {
        return Err(Mismatch::new(expected, expect::describe(exchange)));
    };
    let content_type = reply.content_type.as_deref().unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Mismatch::new(expected, format!("content type {content_type:?}")))
}
