//! Payment links: one wrong character and a payer pays for something else. The format has no escape, so what can't
//! be written is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hamyon::money::MinorUnits;
use hamyon::provider::payme::link::{Link, LinkError};
use reqwest::StatusCode;
use serde_json::json;

use super::shop;

const MERCHANT: &str = "587f72c72cac0d162c722ae2";

fn link() -> Link<'static> {
    Link {
        merchant_id: MERCHANT,
        field: "order_id",
        account: "197",
        amount: MinorUnits::new(500),
        locale: None,
        return_url: None,
    }
}

#[test]
fn the_vectors_of_the_documents() {
    let base = "https://checkout.paycom.uz";
    let short = format!("{base}/bT01ODdmNzJjNzJjYWMwZDE2MmM3MjJhZTI7YWMub3JkZXJfaWQ9MTk3O2E9NTAw");
    assert_eq!(link().url(base).unwrap(), short);
    assert_eq!(link().url("https://checkout.paycom.uz/").unwrap(), short);
    assert_eq!(
        Link { locale: Some("uz"), ..link() }.url("https://test.paycom.uz").unwrap(),
        "https://test.paycom.uz/bT01ODdmNzJjNzJjYWMwZDE2MmM3MjJhZTI7YWMub3JkZXJfaWQ9MTk3O2E9NTAwO2w9dXo="
    );
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    for bad in ["1;a=1", ";", "1\u{0}", "1\n"] {
        let links = [
            ("merchant_id", Link { merchant_id: bad, ..link() }),
            ("account field", Link { field: bad, ..link() }),
            ("account", Link { account: bad, ..link() }),
            ("locale", Link { locale: Some(bad), ..link() }),
            ("return_url", Link { return_url: Some(bad), ..link() }),
        ];
        for (name, link) in links {
            assert_eq!(link.url("https://x"), Err(LinkError::Unwritable(name)));
        }
    }
    for amount in [0, -1, i64::MIN] {
        let link = Link { amount: MinorUnits::new(amount), ..link() };
        assert_eq!(link.url("https://x"), Err(LinkError::NotPositive));
    }
}

#[tokio::test]
async fn the_api_writes_the_orders_own_amount_and_the_wallets_asked_one() {
    let app = shop().await;
    app.order("small", "acme", "5.00").await;
    let before = app.everything_written().await;
    for (body, expected) in [
        (
            json!({ "provider": "payme", "order_id": "small", "locale": "uz" }),
            format!("m={MERCHANT};ac.order_id=small;a=500;l=uz"),
        ),
        (
            json!({ "provider": "payme", "tenant_id": "acme", "amount": "15000.01", "locale": "ru",
                    "return_url": "https://shop.example/paid?x=1&y=2" }),
            format!("m={MERCHANT};ac.tenant_id=acme;a=1500001;l=ru;c=https://shop.example/paid?x=1&y=2"),
        ),
    ] {
        let (status, answer) = app.post("/v1/payment-links", &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let encoded = answer["url"].as_str().unwrap().strip_prefix("https://checkout.paycom.uz/").unwrap();
        assert_eq!(String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap(), expected);
    }
    let body = json!({ "provider": "payme", "order_id": "small", "return_url": "https://shop.example/;a=1" });
    let (status, problem) = app.post("/v1/payment-links", &body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["code"], "link_not_possible", "{problem}");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn an_order_that_payme_does_not_take_has_no_link() {
    let app = shop().await;
    let body =
        json!({ "order_id": "stars", "tenant_id": "acme", "currency": "XTR", "amount": "5", "title": "A thing" });
    assert_eq!(app.post("/v1/orders", &body).await.0, StatusCode::CREATED);
    let (status, problem) = app.post("/v1/payment-links", &json!({ "provider": "payme", "order_id": "stars" })).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("link_not_possible")),
        "5 stars are not 5 tiyin: {problem}"
    );
}

#[tokio::test]
async fn a_browser_is_sent_back_to_an_address_and_no_password_stands_in_it() {
    let app = shop().await;
    let ask = async |return_url: &str| {
        let body = json!({ "provider": "payme", "order_id": "197", "return_url": return_url });
        app.post("/v1/payment-links", &body).await
    };
    let long = |chars: usize| format!("https://shop.example/{}", "x".repeat(chars - "https://shop.example/".len()));
    for wrong in [
        "",
        "thanks",
        "/thanks",
        "https://",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://shop.example/",
        "myapp://thanks",
        "https://me:secret@shop.example/",
        "https://me@shop.example/",
        "https://:secret@shop.example/",
        &long(2_001),
    ] {
        let (status, problem) = ask(wrong).await;
        assert_eq!((status, &problem["field"]), (StatusCode::BAD_REQUEST, &json!("return_url")), "{wrong}: {problem}");
    }
    for right in ["http://127.0.0.1:3000/x?y=@#z", "https://do\u{2019}kon.uz/rahmat", &long(2_000)] {
        let (status, answer) = ask(right).await;
        assert_eq!(status, StatusCode::OK, "{right}: {answer}");
    }
}
