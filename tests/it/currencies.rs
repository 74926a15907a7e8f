//! Units of account: a product adds its own, and a unit never changes its size, since that would change
//! every amount already written.

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Answer, Call, batch, posting};

async fn add(app: &TestApp, code: &str, exponent: u8) -> Answer {
    let body = json!({ "code": code, "exponent": exponent });
    Call::new("POST", "/v1/currencies").token(&app.token).json(&body).send(app).await
}

#[tokio::test]
async fn the_ledger_knows_four_and_a_product_adds_its_own() {
    let app = TestApp::start().await;
    let (_, list) = app.get("/v1/currencies").await;
    let built_in = json!([
        { "code": "CREDIT", "exponent": 0 }, { "code": "USD", "exponent": 2 }, { "code": "UZS", "exponent": 2 },
        { "code": "XTR", "exponent": 0 },
    ]);
    assert_eq!(list["items"], built_in);
    for (code, exponent) in [("MESSAGE", 0), ("IMAGE", 0), ("BTC", 8), ("A", 1), ("A234567890123456", 3), ("X_", 0)] {
        let answer = add(&app, code, exponent).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (201, json!({ "code": code, "exponent": exponent })));
        let again = add(&app, code, exponent).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, json!({ "code": code, "exponent": exponent })));
    }
    let (_, list) = app.get("/v1/currencies").await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(10));
}

#[tokio::test]
async fn a_unit_keeps_its_exponent_for_ever() {
    let app = TestApp::start().await;
    assert_eq!(add(&app, "MESSAGE", 0).await.status, 201);
    let before = app.everything_written().await;
    for (code, there) in [("MESSAGE", 0), ("UZS", 2), ("CREDIT", 0)] {
        for exponent in (0..=8).filter(|exponent| *exponent != there) {
            let problem = add(&app, code, exponent).await.refused(409, "currency_differs", code);
            assert_eq!(problem["exponent"], there);
        }
    }
    for code in ["", "uzs", "Uzs", "1A", "_A", "A-B", "A B", "SO'M", "СУМ", "A2345678901234567", "A\0"] {
        add(&app, code, 2).await.refused(400, "invalid_request", code);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn each_wallet_counts_in_its_own_unit() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    for (code, exponent) in [("MESSAGE", 0), ("BTC", 8)] {
        assert_eq!(add(&app, code, exponent).await.status, 201);
    }
    let items: Vec<Value> = [("UZS", "0.01"), ("MESSAGE", "7"), ("BTC", "0.00000001"), ("XTR", "5")]
        .iter()
        .map(|(code, amount)| {
            let mut item = posting("acme", "bonus", amount, "r");
            item["currency"] = json!(code);
            item
        })
        .collect();
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "K1", &batch(&items)).await;
    assert_eq!(status, 201, "{answer}");
    for (code, balance) in [("UZS", "0.01"), ("MESSAGE", "7"), ("BTC", "0.00000001"), ("XTR", "5"), ("USD", "0.00")] {
        let (_, answer) = app.get(&format!("/v1/tenants/acme/balance?currency={code}")).await;
        assert_eq!((&answer["balance"], &answer["currency"]), (&json!(balance), &json!(code)));
    }
    let before = app.everything_written().await;
    let mut half = posting("acme", "bonus", "0.5", "half");
    half["currency"] = json!("MESSAGE");
    let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("K2").json(&batch(&[half]));
    let problem = call.send(&app).await.refused(400, "invalid_request", "half a message");
    assert_eq!(problem["field"], "transactions[0].amount");
    // One unit doesn't pay for another.
    let mut spend = posting("acme", "purchase", "-8", "spend");
    spend["currency"] = json!("MESSAGE");
    let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("K3").json(&batch(&[spend]));
    call.send(&app).await.refused(402, "insufficient_funds", "seven messages");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn added_with_two_sizes_at_once_it_has_one() {
    let app = TestApp::start().await;
    let answers = futures::future::join_all((0..9).map(|exponent| add(&app, "RACE", exponent))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 409).count(), 8);
}
