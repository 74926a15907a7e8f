//! Tenants: the owner of a wallet is made once, keeps what was said about it, and is never mixed up with
//! another.

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::Call;

async fn make(app: &TestApp, body: &Value) -> crate::support::api::Answer {
    Call::new("POST", "/v1/tenants").token(&app.token).json(body).send(app).await
}

#[tokio::test]
async fn a_tenant_comes_with_its_som_wallet_and_its_defaults() {
    let app = TestApp::start().await;
    let answer = make(&app, &json!({ "tenant_id": "acme", "name": "Acme" })).await;
    assert_eq!(answer.status, 201);
    let expected = json!({
        "tenant_id": "acme", "name": "Acme", "time_zone": "Asia/Tashkent", "locale": "uz", "status": "active",
        "payment_overdue": false, "dues": [], "overdue_since": null,
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(app.get("/v1/tenants/acme").await.1, expected);
    assert_eq!(app.count("SELECT count(*) FROM wallets WHERE tenant_id = 'acme' AND currency = 'UZS'").await, 1);
    let (_, balance) = app.get("/v1/tenants/acme/balance").await;
    assert_eq!(
        (&balance["balance"], &balance["currency"], &balance["seq"]),
        (&json!("0.00"), &json!("UZS"), &json!(0))
    );
}

#[tokio::test]
async fn the_same_again_is_answered_the_same_and_other_values_are_a_conflict() {
    let app = TestApp::start().await;
    let body = json!({ "tenant_id": "acme", "name": "Acme", "time_zone": "Europe/Berlin", "locale": "ru" });
    let first = make(&app, &body).await;
    assert_eq!(first.status, 201);
    let before = app.everything_written().await;
    let again = make(&app, &body).await;
    assert_eq!((again.status.as_u16(), &again.bytes), (200, &first.bytes));
    for (changes, fields) in [
        (json!({ "name": "Other" }), json!(["name"])),
        (json!({ "time_zone": "Asia/Tashkent" }), json!(["time_zone"])),
        (json!({ "locale": "en" }), json!(["locale"])),
        (json!({ "name": "acme", "locale": "en", "time_zone": "UTC" }), json!(["name", "time_zone", "locale"])),
        // Left out means the default, which isn't what is there.
        (json!({ "time_zone": null, "locale": null }), json!(["time_zone", "locale"])),
    ] {
        let mut other = body.clone();
        for (field, value) in changes.as_object().expect("changes") {
            other[field] = value.clone();
        }
        let problem = make(&app, &other).await.refused(409, "tenant_differs", &other.to_string());
        assert_eq!(problem["fields"], fields, "{problem}");
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_many_times_at_once_it_is_one_tenant_with_one_wallet() {
    let app = TestApp::start().await;
    let body = json!({ "tenant_id": "acme", "name": "Acme" });
    let answers = futures::future::join_all((0..10).map(|_| make(&app, &body))).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let found = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((made, found), (1, 9));
    assert_eq!(app.count("SELECT count(*) FROM tenants").await, 1);
    assert_eq!(app.count("SELECT count(*) FROM wallets").await, 1);
}

#[tokio::test]
async fn zones_and_languages_must_exist() {
    let app = TestApp::start().await;
    let before = app.everything_written().await;
    for (field, values) in [
        (
            "time_zone",
            &["", "Tashkent", "asia/tashkent", "Asia/Nowhere", "+05:00", "UTC+5", "Asia/Tashkent ", "../etc"][..],
        ),
        ("locale", &["", "UZ", "uz-Latn", "de", "uz ", "ўз"][..]),
        ("tenant_id", &["", " ", "a b", "a/b", "a\\b", "ё", "a\0", "a'b", "a\"b", "a;b", "{}", "%41"][..]),
        ("name", &["", "  ", "a\nb", "a\0b", "\u{1b}[31m", "\t"][..]),
    ] {
        for value in values {
            let mut body = json!({ "tenant_id": "acme", "name": "Acme" });
            body[field] = json!(value);
            let problem = make(&app, &body).await.refused(400, "invalid_request", &body.to_string());
            assert_eq!(problem["field"], field);
        }
    }
    assert_eq!(app.everything_written().await, before);
    for (number, zone) in ["UTC", "America/New_York", "Asia/Samarkand", "Etc/GMT-5"].iter().enumerate() {
        let body = json!({ "tenant_id": format!("t{number}"), "name": "T", "time_zone": zone });
        assert_eq!(make(&app, &body).await.json()["time_zone"], json!(zone));
        assert_eq!(app.get(&format!("/v1/tenants/t{number}")).await.1["time_zone"], json!(zone));
    }
}

#[tokio::test]
async fn c85_names_with_quotes_braces_and_markup_are_kept_as_they_are() {
    let app = TestApp::start().await;
    for (number, name) in [
        "\"; DROP TABLE tenants; --",
        "{{7*7}} ${7*7} {%x%}",
        "<script>alert(1)</script>",
        "O‘zbekiston MChJ «Oʻrik»",
        "Ўзбекистон",
        "钱包",
        "💰💰",
        "e\u{301}",
        "é",
        "a,b;c|d",
        "\\u0000",
        "null",
        "x",
        "  spaces around  ",
    ]
    .iter()
    .enumerate()
    {
        let id = format!("t{number}");
        let body = json!({ "tenant_id": id, "name": name });
        let answer = make(&app, &body).await;
        assert_eq!((answer.status.as_u16(), answer.json()["name"].clone()), (201, json!(name)));
        assert_eq!(app.get(&format!("/v1/tenants/{id}")).await.1["name"], json!(name));
        // An accent written in another way is another text, and the same text is the same tenant.
        assert_eq!(make(&app, &body).await.status, 200);
    }
    let longest = json!({ "tenant_id": "longest", "name": "ў".repeat(200) });
    assert_eq!(make(&app, &longest).await.status, 201);
    let longer = json!({ "tenant_id": "longer", "name": "ў".repeat(201) });
    make(&app, &longer).await.refused(400, "invalid_request", "201 characters");
}

#[tokio::test]
async fn ids_that_look_alike_are_different_tenants() {
    let app = TestApp::start().await;
    let ids = ["acme", "Acme", "ACME", "acme.", "acme:", "acme@uz", "acme+1", "-acme", "_acme", "0", "00", ".", ".."];
    for id in ids {
        let answer = make(&app, &json!({ "tenant_id": id, "name": id })).await;
        assert_eq!(answer.status, 201, "{id}: {}", answer.text());
    }
    assert_eq!(app.count("SELECT count(*) FROM wallets").await, i64::try_from(ids.len()).expect("few"));
    assert_eq!(app.get("/v1/tenants/ACME").await.1["name"], "ACME");
    assert_eq!(app.get("/v1/tenants/acme%2B1").await.1["name"], "acme+1");
    assert_eq!(app.get("/v1/tenants/acme+1").await.1["name"], "acme+1", "a plus in a path is a plus");
}
