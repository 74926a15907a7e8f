//! Whoever has the key can print money, so nobody else may get past it: not with half a key, not with no key set,
//! not from another address, and not by claiming to come from one.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hamyon::app::AppSettings;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::wallet;
use crate::support::TestApp;
use crate::support::app::{self, PAYME_KEY, PAYME_TEST_KEY};

async fn call(app: &TestApp, authorization: Option<HeaderValue>, forwarded_for: &[&str]) -> Value {
    let body = json!({ "id": "x-1", "method": "CheckPerformTransaction",
                       "params": { "amount": super::AMOUNT, "account": wallet() } });
    let mut request = app.client.post(app.url("/payme")).body(body.to_string());
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    for line in forwarded_for {
        request = request.header("x-forwarded-for", *line);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["id"], "x-1", "the id is echoed to strangers, too");
    answer
}

#[expect(clippy::unnecessary_wraps, reason = "the tables hold headers that are there and that are not")]
fn header(text: &str) -> Option<HeaderValue> {
    Some(HeaderValue::from_bytes(text.as_bytes()).unwrap())
}

fn basic(credentials: impl AsRef<[u8]>) -> Option<HeaderValue> {
    header(&format!("Basic {}", STANDARD.encode(credentials)))
}

fn allowed(answer: &Value) -> bool {
    match answer["error"]["code"].as_i64() {
        None => {
            assert_eq!(answer["result"]["allow"], true, "{answer}");
            true
        }
        Some(code) => {
            assert_eq!(code, -32_504, "{answer}");
            false
        }
    }
}

async fn start(settings: AppSettings) -> TestApp {
    let app = TestApp::start_with(settings).await;
    app.tenant("acme").await;
    app
}

#[tokio::test]
async fn only_the_whole_login_and_key_are_let_in() {
    let app = start(app::settings()).await;
    let whole = format!("Paycom:{PAYME_KEY}");
    let encoded = STANDARD.encode(&whole);
    for accepted in [
        basic(&whole),
        basic(format!("Paycom:{PAYME_TEST_KEY}")),
        header(&format!("basic {encoded}")),
        header(&format!("BASIC {encoded}")),
        header(&format!("bAsIc   {encoded}  ")),
        header(&format!("Basic {}", STANDARD_NO_PAD.encode(&whole))),
    ] {
        assert!(allowed(&call(&app, accepted.clone(), &[]).await), "{accepted:?}");
    }
    let before = app.everything_written().await;
    // The key holds a colon: whoever splits at each of them would take one of these.
    let (half, rest) = PAYME_KEY.split_once(':').unwrap();
    for refused in [
        None,
        header(""),
        header("Basic"),
        header("Basic "),
        header("Basic :"),
        header("Basic %%%"),
        header(&encoded),
        header(&format!("Bearer {encoded}")),
        header(&format!("Basic {encoded}{encoded}")),
        header(&format!("Basic {whole}")),
        basic("Paycom:Uzcard:someRandomString1545343543545"),
        basic("Paycom:"),
        basic("Paycom"),
        basic(""),
        basic(":"),
        basic(format!("Paycom:{half}")),
        basic(format!("Paycom:{rest}")),
        basic(format!("Paycom:{PAYME_KEY}:")),
        basic(format!("Paycom:{PAYME_KEY} ")),
        basic(format!("Paycom: {PAYME_KEY}")),
        basic(format!("Paycom:{}", PAYME_KEY.to_uppercase())),
        basic(format!("Paycom:{}", &PAYME_KEY[..PAYME_KEY.len() - 1])),
        basic(format!("paycom:{PAYME_KEY}")),
        basic(format!(":{PAYME_KEY}")),
        basic(PAYME_KEY),
        basic([b"Paycom:".as_slice(), &[0xFF, 0xFE, 0x00]].concat()),
        basic([0xC3, 0x28]),
        Some(HeaderValue::from_bytes(b"Basic \xFF\xFE").unwrap()),
    ] {
        assert!(!allowed(&call(&app, refused.clone(), &[]).await), "{refused:?}");
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn a_wrong_key_is_told_so_by_every_method_before_anything_else() {
    let app = start(app::settings()).await;
    for method in [
        "CheckPerformTransaction",
        "CreateTransaction",
        "PerformTransaction",
        "CancelTransaction",
        "CheckTransaction",
        "GetStatement",
        "SetFiscalData",
        "ChangePassword",
        "Nonsense",
    ] {
        for params in [json!({}), json!({ "account": {} }), json!(5)] {
            let body = json!({ "id": 31, "method": method, "params": params });
            let request = app.client.post(app.url("/payme")).basic_auth("Paycom", Some("wrong"));
            let answer: Value =
                request.header("Test-Operation", "Paycom").json(&body).send().await.unwrap().json().await.unwrap();
            assert_eq!((&answer["id"], super::code(&answer)), (&json!(31), -32_504), "{method} {params}");
        }
    }
}

#[tokio::test]
async fn a_key_is_trimmed_and_an_empty_or_missing_one_admits_nobody() {
    let mut settings = app::settings();
    settings.payme.keys.live = Some(SecretString::from("  the-key\r\n"));
    settings.payme.keys.test = None;
    let app = start(settings).await;
    assert!(allowed(&call(&app, basic("Paycom:the-key"), &[]).await));
    assert!(!allowed(&call(&app, basic("Paycom:  the-key\r\n"), &[]).await));
    assert!(!allowed(&call(&app, basic("Paycom:"), &[]).await));

    for (live, test) in [(None, None), (Some(""), Some("")), (Some(" \n"), None)] {
        let mut settings = app::settings();
        settings.payme.keys.live = live.map(SecretString::from);
        settings.payme.keys.test = test.map(SecretString::from);
        let app = start(settings).await;
        for given in ["Paycom:", "Paycom", "", ":", "Paycom: \n", "Paycom:None", "Paycom:the-key"] {
            assert!(!allowed(&call(&app, basic(given), &[]).await), "{given:?}");
        }
    }
}

#[tokio::test]
async fn the_login_is_a_setting() {
    let mut settings = app::settings();
    settings.payme.keys.login = "Merchant".to_owned();
    let app = start(settings).await;
    assert!(allowed(&call(&app, basic(format!("Merchant:{PAYME_KEY}")), &[]).await));
    assert!(!allowed(&call(&app, basic(format!("Paycom:{PAYME_KEY}")), &[]).await));
}

fn only_payme(trusted: &[&str]) -> AppSettings {
    AppSettings {
        payme_addresses: vec!["185.234.113.0/28".parse().unwrap()],
        trusted_proxies: trusted.iter().map(|net| net.parse().unwrap()).collect(),
        ..app::settings()
    }
}

#[tokio::test]
async fn an_allow_list_admits_only_its_addresses_and_believes_nobody_about_them() {
    let app = start(only_payme(&[])).await;
    let key = || basic(format!("Paycom:{PAYME_KEY}"));
    assert!(!allowed(&call(&app, key(), &[]).await), "127.0.0.1 is not on the list");
    assert!(!allowed(&call(&app, key(), &["185.234.113.1"]).await), "nobody said whom to believe");

    let mut settings = only_payme(&[]);
    settings.payme_addresses.push("127.0.0.1/32".parse().unwrap());
    let app = start(settings).await;
    assert!(allowed(&call(&app, key(), &[]).await));
    assert!(!allowed(&call(&app, None, &[]).await), "an address is no key");
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_about_whom_it_saw_and_not_about_what_it_was_told() {
    let app = start(only_payme(&["127.0.0.1/32", "10.0.0.0/8"])).await;
    let key = || basic(format!("Paycom:{PAYME_KEY}"));
    for accepted in [
        &["185.234.113.1"][..],
        &["185.234.113.15"],
        &["::ffff:185.234.113.5"],
        &["6.6.6.6, 185.234.113.5"],
        &["185.234.113.5, 10.1.2.3"],
        &["185.234.113.5", "10.1.2.3"],
        &["6.6.6.6", "185.234.113.5"],
    ] {
        assert!(allowed(&call(&app, key(), accepted).await), "{accepted:?}");
    }
    for refused in [
        &[][..],
        &[""],
        &["185.234.113.16"],
        &["6.6.6.6"],
        // The caller wrote the first part himself.
        &["185.234.113.5, 6.6.6.6"],
        &["185.234.113.5, 6.6.6.6, 10.1.2.3"],
        &["185.234.113.5", "6.6.6.6"],
        &["185.234.113.5", ""],
        &["185.234.113.5, nonsense"],
        &["185.234.113.5, nonsense, 10.1.2.3"],
        &["nonsense"],
        &["10.1.2.3"],
    ] {
        assert!(!allowed(&call(&app, key(), refused).await), "{refused:?}");
    }
}
