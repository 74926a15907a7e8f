//! Wrong credentials: answered with -32504 for every method, before params or accounts are looked at.
//!
//! The sandbox probes each method with one fixed wrong key and an empty account, so a merchant that validates first fails
//! there. The other probes are mistakes seen in real code: comparing only the key, splitting at every colon, or falling
//! over on bytes that are not UTF-8.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::{Authorization, Call, Client};
use super::expect;
use super::payment::new_id;
use super::suite::{Check, Suite, check};

/// Every method that Payme calls, with params whose account is empty, as the sandbox sends them.
pub fn probes() -> [(&'static str, Value); 7] {
    let id = new_id();
    [
        ("CheckPerformTransaction", json!({"amount": 100_000, "account": {}})),
        ("CreateTransaction", json!({"id": id, "time": super::now_ms(), "amount": 100_000, "account": {}})),
        ("PerformTransaction", json!({"id": id})),
        ("CancelTransaction", json!({"id": id, "reason": 3})),
        ("CheckTransaction", json!({"id": id})),
        ("GetStatement", json!({"from": 0, "to": 1})),
        ("SetFiscalData", json!({"id": id, "type": "PERFORM", "fiscal_data": {}})),
    ]
}

const CHECKS: &[Check] = &[
    check("wrong-scheme", "§1", "another scheme than Basic is refused"),
    check("not-base64", "§1", "credentials that are not base64 are refused"),
    check("not-utf8", "§1", "credentials that are not UTF-8 are refused, not a crash"),
    check("empty-key", "§1", "an empty key is refused"),
    check("wrong-login", "§1", "the right key under another login is refused"),
    check("longer-key", "§1", "the right key followed by :more is refused"),
    check("shorter-key", "§1", "the right key without its last character is refused"),
    check("test-operation", "§1", "the header Test-Operation: Paycom opens nothing"),
    check("before-params", "§1", "wrong credentials come before wrong params"),
    check("before-json", "§1", "wrong credentials come before a body that is not JSON"),
    check("scheme-case", "§1", "the scheme's name may be written in any case"),
    check("id-echoed", "§1", "the refusal echoes the request's id"),
];

pub async fn run(suite: &mut Suite<'_>) {
    let client = Arc::clone(&suite.client);
    methods(suite, &client).await;
    let unknown = json!({"id": new_id()});
    let mut group = suite.group("", CHECKS);
    for (step, authorization) in wrong_credentials(&client) {
        let refused = client.send(client.call("CheckTransaction", &unknown).with_authorization(authorization)).await;
        group.expect_error(step, &refused, -32_504);
    }

    let call = client.call("CheckTransaction", &unknown).with_authorization(sandbox());
    let refused = client.send(Call { test_operation: true, ..call }).await;
    group.expect_error("test-operation", &refused, -32_504);

    let call = client.call("CreateTransaction", &json!("not an object")).with_authorization(sandbox());
    let refused = client.send(call).await;
    group.expect_error("before-params", &refused, -32_504);

    let refused = client.send(Call::raw("{not json", None).with_authorization(sandbox())).await;
    group.expect_error("before-json", &refused, -32_504);

    let call = client.call("CheckTransaction", &unknown).with_authorization(Authorization::KeyWithScheme("bASIC"));
    let accepted = client.send(call).await;
    group.expect_error("scheme-case", &accepted, -31_003);

    let id = Value::from("refused-1");
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "CheckPerformTransaction", "params": {"account": {}}});
    let refused = client.send(Call::raw(body.to_string(), Some(id)).with_authorization(sandbox())).await;
    let verdict = expect::error(&refused, -32_504).and_then(|()| expect::id_echoed(&refused));
    group.record("id-echoed", &[&refused], verdict);
    group.close_after_failure();
}

fn sandbox() -> Authorization {
    Authorization::Basic {
        name: "the sandbox's wrong key",
        credentials: b"Paycom:Uzcard:someRandomString1545343543545".to_vec(),
    }
}

/// Every method, with the sandbox's wrong key and with no credentials at all.
async fn methods(suite: &mut Suite<'_>, client: &Client) {
    for (method, params) in probes() {
        let refused = client.send(client.call(method, &params).with_authorization(sandbox())).await;
        let title = format!("{method} refuses the sandbox's wrong key");
        suite.record(format!("auth.wrong-key.{method}"), "§1", title, &[&refused], expect::error(&refused, -32_504));
    }
    for (method, params) in probes() {
        let call = client.call(method, &params).with_authorization(Authorization::Missing);
        let refused = client.send(call).await;
        let title = format!("{method} refuses a call without credentials");
        suite.record(format!("auth.no-header.{method}"), "§1", title, &[&refused], expect::error(&refused, -32_504));
    }
}

/// Credentials that are nearly right, each a mistake some merchant's comparison lets through.
fn wrong_credentials(client: &Client) -> [(&'static str, Authorization); 7] {
    let basic = |name, credentials| Authorization::Basic { name, credentials };
    let header = |name, value| Authorization::Header { name, value };
    [
        ("wrong-scheme", header("Bearer", "Bearer UGF5Y29tOlV6Y2FyZA==")),
        ("not-base64", header("Basic %%%", "Basic %%%")),
        ("not-utf8", basic("bytes that are not UTF-8", vec![0xff, 0xfe, b':', 0xc3, 0x28])),
        ("empty-key", basic("an empty key", client.altered_credentials(|login, _| format!("{login}:")))),
        ("wrong-login", basic("another login", client.altered_credentials(|login, key| format!("{login}2:{key}")))),
        ("longer-key", basic("a longer key", client.altered_credentials(|login, key| format!("{login}:{key}:more")))),
        (
            "shorter-key",
            basic(
                "a shorter key",
                client.altered_credentials(|login, key| {
                    let shorter: String = key.chars().take(key.chars().count().saturating_sub(1)).collect();
                    format!("{login}:{shorter}")
                }),
            ),
        ),
    ]
}
