//! A receiver's URL comes from outside. One that points to our own insides, at once or after it was registered,
//! must not be called: behind it may be a cloud's keys.

use hamyon::app::AppSettings;
use hamyon::outbox::{AddressRefusal, DelivererSettings, check_url};
use serde_json::json;

use crate::support::TestApp;
use crate::support::app::settings;
use crate::support::hooks::{attempts, deliver, happen, register};
use crate::support::receiver::Receiver;

/// Addresses that aren't the public internet's.
const SPECIAL: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:7f00:1]",
    "[::10.0.0.1]",
    "[64:ff9b::a00:1]",
    "[100::1]",
    "[2001::1]",
    "[2001:db8::1]",
    "[2002:a00:1::]",
    "[3fff::1]",
    "[3fff:fff::1]",
    "[fc00::1]",
    "[fd00::1]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
];

/// Addresses next to them that are.
const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.1",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "[::ffff:1.1.1.1]",
    "[2001:200::1]",
    "[2001:4860:4860::8888]",
    "[2606:4700::1111]",
    "[2a00::1]",
    "[3fff:1000::1]",
];

#[test]
fn special_addresses_are_refused_and_their_public_neighbours_are_not() {
    for host in SPECIAL {
        for url in [format!("http://{host}/"), format!("https://{host}:8443/hooks?x=1")] {
            let refused = check_url(&url, false).expect_err(&url);
            assert!(matches!(refused, AddressRefusal::NotPublic(_)), "{url}: {refused}");
            check_url(&url, true).expect(&url);
        }
    }
    for host in PUBLIC {
        check_url(&format!("https://{host}/hooks"), false).unwrap_or_else(|refusal| panic!("{host}: {refusal}"));
    }
    check_url("https://example.uz/hooks", false).expect("a name is looked at when it is called");
}

#[test]
fn what_is_no_url_to_call_is_refused_whatever_is_allowed() {
    let long = format!("https://example.uz/{}", "a".repeat(2048));
    for url in [
        "",
        "hooks",
        "/hooks",
        "//example.uz/hooks",
        "ftp://example.uz/",
        "file:///etc/passwd",
        "gopher://example.uz/",
        "unix:/run/x.sock",
        "data:text/plain,x",
        "javascript:alert(1)",
        "https://",
        "http:///hooks-of-nobody:x",
        "https://user:password@example.uz/",
        "https://user@example.uz/",
        "https://:password@example.uz/",
        "http://[::1",
        "http://1.2.3.4.5.6:99999/",
        &long,
    ] {
        for allow_private in [false, true] {
            assert_eq!(check_url(url, allow_private).expect_err(url), AddressRefusal::NotCallable, "{url}");
        }
    }
}

#[tokio::test]
async fn the_api_refuses_private_addresses_unless_a_setting_allows_them() {
    let strict = AppSettings { webhooks: DelivererSettings::default(), ..settings() };
    let app = TestApp::start_with(strict).await;
    let before = app.everything_written().await;
    for url in [
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "http://10.1.2.3/",
        "http://192.168.1.1/",
        "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[fd00::1]/",
        "http://[::ffff:10.0.0.1]/",
        "https://user:password@example.uz/",
        "ftp://example.uz/",
        "https://",
        "",
    ] {
        let (status, problem) = app.post("/v1/webhook-endpoints", &json!({ "url": url })).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("url")), "{url}: {problem}");
    }
    assert_eq!(app.everything_written().await, before);
    let kind = TestApp::start().await;
    register(&kind, "http://10.1.2.3/hooks").await;
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_when_it_is_called() {
    let strict = AppSettings { webhooks: DelivererSettings::default(), ..settings() };
    let app = TestApp::start_with(strict).await;
    app.tenant("acme").await;
    let receiver = Receiver::start().await;
    register(&app, &format!("http://localhost:{}/hooks", receiver.address.port())).await;
    happen(&app, "acme", [1]).await;
    assert_eq!(deliver(&app).await, 1);
    let log = attempts(&app).await;
    let problem = log[0].1.as_deref().expect("a problem");
    assert!(log[0].0.is_none() && problem.contains("is not a public address"), "{log:?}");
    assert_eq!(receiver.heard().len(), 0);
}

#[tokio::test]
async fn an_address_that_was_allowed_once_is_refused_when_the_setting_is_gone() {
    let kind = TestApp::start().await;
    kind.tenant("acme").await;
    let receiver = Receiver::start().await;
    register(&kind, &receiver.url()).await;
    happen(&kind, "acme", [1]).await;
    let strict = AppSettings { webhooks: DelivererSettings::default(), ..settings() };
    let app = TestApp::start_on(kind.database.clone(), strict, hamyon::db::PoolSettings::default()).await;
    assert_eq!(deliver(&app).await, 1);
    let log = attempts(&app).await;
    assert!(log[0].1.as_deref().is_some_and(|problem| problem.contains("127.0.0.1")), "{log:?}");
    assert_eq!(receiver.heard().len(), 0);
}
