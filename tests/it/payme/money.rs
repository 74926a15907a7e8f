//! Money that came in, went out again and came back: credited once by any path, given back only while it is there,
//! and a caller who hangs up leaves nothing half done.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use reqwest::StatusCode;
use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use tokio::io::AsyncWriteExt as _;

use super::{AMOUNT, cancel, check, code, create, id, order, paid_shop, perform, shop, state, until_waiting, wallet};
use crate::support::api::{batch, posting};
use crate::support::app::{PAYME_KEY, PAYME_TEST_KEY, entry};
use crate::support::process::Serving;

#[tokio::test]
async fn p1_the_credit_is_one_top_up_row_that_names_the_payment() {
    let app = paid_shop().await;
    let (_, page) = app.get("/v1/tenants/acme/transactions?currency=UZS").await;
    let rows = page["items"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{page}");
    assert_eq!(rows[0]["kind"], "top_up");
    assert_eq!(rows[0]["amount"], "5000.00");
    assert_eq!(rows[0]["reference"], format!("payme:{}", id(1)));
    assert_eq!(rows[0]["actor"], "payme");
    assert_eq!(rows[0]["metadata"]["payment_id"], check(&app, &id(1)).await["transaction"]);
}

#[tokio::test]
async fn p2_repeats_are_answered_the_same_to_the_millisecond_whatever_happened_since() {
    let app = shop().await;
    for account in [wallet(), order()] {
        let id = if account == wallet() { id(1) } else { id(2) };
        let params = super::create_params(&app, &id, &account);
        let created = app.payme("CreateTransaction", params.clone()).await;
        app.clock.advance(TimeDelta::milliseconds(12_345));
        assert_eq!(app.payme("CreateTransaction", params).await, created);
        let performed = perform(&app, &id).await;
        // Days later the promise's lifetime is long over, and the payment is what it is.
        app.clock.advance(TimeDelta::days(40));
        let before = app.everything_written().await;
        assert_eq!(perform(&app, &id).await, performed);
        assert_eq!(app.everything_written().await, before);
        let cancelled = cancel(&app, &id).await;
        app.clock.advance(TimeDelta::days(40));
        let before = app.everything_written().await;
        assert_eq!(cancel(&app, &id).await, cancelled);
        let other_reason = app.payme("CancelTransaction", json!({ "id": id, "reason": 1 })).await;
        assert_eq!(other_reason, cancelled);
        assert_eq!(check(&app, &id).await["reason"], 5);
        assert_eq!(app.everything_written().await, before);
    }
}

#[tokio::test]
async fn p3_a_cancel_after_the_money_was_spent_changes_nothing_and_succeeds_once_it_is_back() {
    let app = paid_shop().await;
    app.post_entries(&[entry("acme", "purchase", -1, "sweets")]).await.unwrap();
    let before = app.everything_written().await;
    for _ in 0..2 {
        assert_eq!(code(&cancel(&app, &id(1)).await), -31_007);
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(check(&app, &id(1)).await["state"], 2);

    app.fund("acme", 1).await;
    assert_eq!(state(&cancel(&app, &id(1)).await), -2);
    assert_eq!(app.sum("acme").await, 0);
    let (_, page) = app.get("/v1/tenants/acme/transactions?currency=UZS&kind=top_up_reversal").await;
    let row = &page["items"][0];
    assert_eq!((&row["original"], &row["amount"]), (&json!(1), &json!("-5000.00")), "{page}");
    assert_eq!(row["reference"], format!("payme:{}", id(1)));
}

#[tokio::test]
async fn p1_l5_a_top_up_that_was_imported_first_is_credited_once_and_can_be_given_back() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    let body = json!({ "transactions": [{
        "tenant_id": "acme", "currency": "UZS", "kind": "top_up", "amount": "5000.00",
        "reference": format!("payme:{}", id(1)), "reason": "imported",
    }] });
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "import-1", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let told = "SELECT count(*) FROM events WHERE kind = 'payment.performed'";
    assert_eq!(app.count(told).await, 0, "nothing is paid yet");
    let performed = perform(&app, &id(1)).await;
    assert_eq!(state(&performed), 2);
    assert_eq!(perform(&app, &id(1)).await, performed);
    assert_eq!(app.count(told).await, 1, "that it is paid is told, whoever booked the row, and once");
    assert_eq!(app.sum("acme").await, AMOUNT);
    assert_eq!(state(&cancel(&app, &id(1)).await), -2);
    assert_eq!(app.sum("acme").await, 0);
    assert!(app.verify().await.is_clean());
}

#[tokio::test]
async fn p1_a_payment_booked_with_another_amount_is_refused_for_good_and_can_be_cancelled() {
    let app = shop().await;
    app.post_entries(&[entry("acme", "top_up", AMOUNT - 1, &format!("payme:{}", id(1)))]).await.unwrap();
    create(&app, &id(1), &wallet()).await;
    let before = app.everything_written().await;
    // Neither credited twice nor called performed; and no fault of ours, after which Payme would ask for ever.
    for _ in 0..2 {
        assert_eq!(code(&perform(&app, &id(1)).await), -31_008);
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(state(&cancel(&app, &id(1)).await), -1);
    assert_eq!(app.sum("acme").await, AMOUNT - 1, "what was booked stays for a person to decide about");
}

#[tokio::test]
async fn p1_a_top_up_under_a_payments_name_must_be_of_the_payments_money() {
    let app = shop().await;
    app.tenant("bravo").await;
    create(&app, &id(1), &wallet()).await;
    let test = super::create_params(&app, &id(2), &wallet());
    app.payme_with_key(PAYME_TEST_KEY, "CreateTransaction", test).await;
    let reference = |number| format!("payme:{}", id(number));
    let before = app.everything_written().await;
    for (top_up, field) in [
        (posting("acme", "top_up", "4999.99", &reference(1)), "amount"),
        (posting("bravo", "top_up", "5000.00", &reference(1)), "tenant_id"),
    ] {
        // Alone, and behind one that is right.
        for (name, postings) in [("alone", vec![top_up.clone()]), ("second", vec![right(&reference(3)), top_up])] {
            let (status, problem) = app.post_with_key("/v1/transactions/batch", name, &batch(&postings)).await;
            assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("payment_differs")), "{problem}");
            assert_eq!((&problem["fields"], &problem["index"]), (&json!([field]), &json!(postings.len() - 1)));
            assert_eq!(app.everything_written().await, before);
        }
    }
    // What was bought lies where its way back takes it from; and of a cancelled payment no money came.
    let mut promoted = posting("acme", "top_up", "5000.00", &reference(1));
    promoted["pocket"] = json!("promo");
    create(&app, &id(4), &wallet()).await;
    assert_eq!(state(&cancel(&app, &id(4)).await), -1);
    let before = app.everything_written().await;
    for (top_up, field) in [(promoted, "pocket"), (posting("acme", "top_up", "5000.00", &reference(4)), "status")] {
        let (status, problem) = app.post_with_key("/v1/transactions/batch", field, &batch(&[top_up])).await;
        assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("payment_differs")), "{problem}");
        assert_eq!(problem["fields"], json!([field]));
        assert_eq!(app.everything_written().await, before);
    }
    // Names of no payment, of one that is not money, of another kind; and the right one.
    for (key, posting) in [
        ("unknown", right(&reference(3))),
        ("test", posting("acme", "top_up", "1.00", &reference(2))),
        ("plain", posting("acme", "top_up", "1.00", "by-hand")),
        ("kind", posting("acme", "bonus", "1.00", &reference(1))),
        ("same", posting("acme", "top_up", "5000.00", &reference(1))),
    ] {
        let (status, answer) = app.post_with_key("/v1/transactions/batch", key, &batch(&[posting])).await;
        assert_eq!(status, StatusCode::CREATED, "{key}: {answer}");
    }
    // A repeat gets its answer, also when a payment has taken the name since.
    let params = json!({ "id": id(3), "time": app.now_ms(), "amount": AMOUNT, "account": wallet() });
    assert_eq!(state(&app.payme("CreateTransaction", params).await), 1);
    let (status, answer) =
        app.post_with_key("/v1/transactions/batch", "unknown", &batch(&[right(&reference(3))])).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
}

fn right(reference: &str) -> serde_json::Value {
    posting("acme", "top_up", "77.00", reference)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l8_a_caller_who_hangs_up_in_the_middle_of_perform_leaves_it_performed_once() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    let mut holder = app.superuser().await;
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM wallets FOR NO KEY UPDATE").await.unwrap();

    let body = json!({ "id": 1, "method": "PerformTransaction", "params": { "id": id(1) } }).to_string();
    let authorization = STANDARD.encode(format!("Paycom:{PAYME_KEY}"));
    let mut stream = tokio::net::TcpStream::connect(app.address).await.unwrap();
    let request = format!(
        "POST /payme HTTP/1.1\r\nHost: here\r\nAuthorization: Basic {authorization}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    until_waiting(&app, 1).await;
    // Not a word more, not even of farewell.
    stream.set_zero_linger().unwrap();
    drop(stream);
    assert_eq!(check(&app, &id(1)).await["state"], 1);

    held.commit().await.unwrap();
    app.app.tasks.close();
    app.app.tasks.wait().await;
    assert_eq!(check(&app, &id(1)).await["state"], 2);
    assert_eq!(app.sum("acme").await, AMOUNT);
    assert_eq!(state(&perform(&app, &id(1)).await), 2);
    assert_eq!(app.sum("acme").await, AMOUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_l8_a_process_killed_in_the_middle_of_perform_leaves_nothing_and_the_repeat_credits_once() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    let serving = Serving::start(&app.database_url(), &["--jobs", "off"]).await;
    let mut holder = app.superuser().await;
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM wallets FOR NO KEY UPDATE").await.unwrap();
    let body = json!({ "id": 1, "method": "PerformTransaction", "params": { "id": id(1) } });
    let url = format!("{}/payme", serving.url);
    let call = app.client.post(url).basic_auth("Paycom", Some(PAYME_KEY)).json(&body).send();
    let kill = async {
        until_waiting(&app, 1).await;
        serving.kill().await;
    };
    let (answer, ()) = tokio::join!(call, kill);
    assert!(answer.is_err(), "{answer:?}");
    held.commit().await.unwrap();

    // The repeat waits for what is left of the first one, which ends with nothing written.
    let performed = perform(&app, &id(1)).await;
    assert_eq!(state(&performed), 2);
    assert_eq!(perform(&app, &id(1)).await, performed);
    assert_eq!(app.sum("acme").await, AMOUNT);
    assert!(app.verify().await.is_clean());
}
