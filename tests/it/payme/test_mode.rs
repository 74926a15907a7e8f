//! The sandbox's key rehearses payments on the production server. A rehearsal that became money, or that a live
//! call could see or be blocked by, would be worth a fraud.

use serde_json::{Value, json};

use super::{AMOUNT, cancel, check, code, create, create_params, id, order, perform, shop, state, wallet};
use crate::support::TestApp;
use crate::support::app::PAYME_TEST_KEY;

async fn test_call(app: &TestApp, method: &str, params: Value) -> Value {
    app.payme_with_key(PAYME_TEST_KEY, method, params).await
}

async fn test_create(app: &TestApp, id: &str, account: &Value) -> Value {
    test_call(app, "CreateTransaction", create_params(app, id, account)).await
}

#[tokio::test]
async fn p1_a_test_payment_goes_through_every_state_and_never_becomes_a_row() {
    let app = shop().await;
    for (number, account) in [(1, wallet()), (2, order())] {
        let id = id(number);
        assert_eq!(state(&test_create(&app, &id, &account).await), 1);
        let performed = test_call(&app, "PerformTransaction", json!({ "id": id })).await;
        assert_eq!(state(&performed), 2);
        assert_eq!(test_call(&app, "PerformTransaction", json!({ "id": id })).await, performed);
        // No money is there, and none is asked for.
        let cancelled = test_call(&app, "CancelTransaction", json!({ "id": id, "reason": 5 })).await;
        assert_eq!(state(&cancelled), -2);
    }
    assert_eq!(app.count("SELECT count(*) FROM wallet_transactions").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM payments WHERE mode = 'test'").await, 2);
}

#[tokio::test]
async fn live_calls_do_not_see_test_payments_nor_the_other_way_round() {
    let app = shop().await;
    test_create(&app, &id(1), &wallet()).await;
    create(&app, &id(2), &wallet()).await;
    let before = app.everything_written().await;
    let receipt = json!({ "receipt_id": 1 });
    for (key, hidden) in [(super::PAYME_KEY, id(1)), (PAYME_TEST_KEY, id(2))] {
        let fiscal = json!({ "id": hidden, "type": "PERFORM", "fiscal_data": receipt });
        for (method, params, expected) in [
            ("PerformTransaction", json!({ "id": hidden }), -31_003),
            ("CancelTransaction", json!({ "id": hidden, "reason": 1 }), -31_003),
            ("CheckTransaction", json!({ "id": hidden }), -31_003),
            ("SetFiscalData", fiscal, -32_001),
        ] {
            assert_eq!(code(&app.payme_with_key(key, method, params).await), expected, "{method}");
        }
        let range = json!({ "from": 0, "to": app.now_ms() });
        let statement = app.payme_with_key(key, "GetStatement", range).await;
        let lines = statement["result"]["transactions"].as_array().unwrap();
        assert_eq!(lines.len(), 1, "{statement}");
        assert_ne!(lines[0]["id"], hidden);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn p1_the_same_id_in_both_modes_is_two_payments() {
    let app = shop().await;
    let live = create(&app, &id(1), &wallet()).await;
    let test = test_create(&app, &id(1), &wallet()).await;
    assert_ne!(live["result"]["transaction"], test["result"]["transaction"]);
    test_call(&app, "PerformTransaction", json!({ "id": id(1) })).await;
    assert_eq!(check(&app, &id(1)).await["state"], 1);
    assert_eq!(app.sum("acme").await, 0);
    perform(&app, &id(1)).await;
    assert_eq!(app.sum("acme").await, AMOUNT);
    test_call(&app, "CancelTransaction", json!({ "id": id(1), "reason": 5 })).await;
    assert_eq!(check(&app, &id(1)).await["state"], 2);
    assert_eq!(app.sum("acme").await, AMOUNT);
}

#[tokio::test]
async fn an_order_is_busy_and_paid_in_each_mode_on_its_own() {
    let app = shop().await;
    test_create(&app, &id(1), &order()).await;
    assert_eq!(code(&test_create(&app, &id(2), &order()).await), -31_099);
    assert_eq!(state(&create(&app, &id(3), &order()).await), 1);
    test_call(&app, "PerformTransaction", json!({ "id": id(1) })).await;
    assert_eq!(code(&test_create(&app, &id(2), &order()).await), -31_051);
    assert_eq!(state(&cancel(&app, &id(3)).await), -1);

    let (_, shown) = app.get("/v1/orders/197").await;
    assert_eq!(shown["status"], "open", "a rehearsal sells nothing");
    create(&app, &id(4), &order()).await;
    perform(&app, &id(4)).await;
    let (_, shown) = app.get("/v1/orders/197").await;
    assert_eq!(shown["status"], "paid");
    assert_eq!(app.sum("acme").await, AMOUNT);
}
