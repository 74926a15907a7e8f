//! "I paid and it isn't there" is answered from the log of calls, so every call is in it with its answer, exactly when
//! its effect is. And it is read by many, so no key is in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sqlx::Executor as _;

use super::{cancel, check, code, create, id, perform, raw, shop, state, wallet};
use crate::support::TestApp;
use crate::support::app::{PAYME_KEY, PAYME_TEST_KEY};

#[derive(Debug, sqlx::FromRow)]
struct Logged {
    mode: Option<String>,
    method: Option<String>,
    external_id: Option<String>,
    remote_address: Option<String>,
    request: String,
    request_bytes: i32,
    answer: String,
    error_code: Option<i32>,
}

async fn log(app: &TestApp) -> Vec<Logged> {
    sqlx::query_as(
        "SELECT mode, method, external_id, remote_address, request, request_bytes, answer, error_code
           FROM provider_calls ORDER BY call_id",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap()
}

/// The part of an answer that the log keeps.
fn kept(answer: &Value) -> &Value {
    answer.get("result").or_else(|| answer.get("error")).unwrap()
}

#[tokio::test]
async fn every_call_is_there_with_its_answer() {
    let app = shop().await;
    let receipt = json!({ "id": id(1), "type": "PERFORM", "fiscal_data": { "receipt_id": 1 } });
    let check_perform = json!({ "amount": 1, "account": wallet() });
    let mut answers = vec![
        ("CreateTransaction", create(&app, &id(1), &wallet()).await),
        ("CreateTransaction", create(&app, &id(1), &wallet()).await),
        ("PerformTransaction", perform(&app, &id(1)).await),
        ("PerformTransaction", perform(&app, &id(2)).await),
        ("CheckTransaction", app.payme("CheckTransaction", json!({ "id": id(1) })).await),
        ("SetFiscalData", app.payme("SetFiscalData", receipt).await),
        ("CancelTransaction", cancel(&app, &id(1)).await),
        ("GetStatement", app.payme("GetStatement", json!({ "from": 0, "to": 1 })).await),
        ("CheckPerformTransaction", app.payme("CheckPerformTransaction", check_perform).await),
        ("CancelTransaction", app.payme("CancelTransaction", json!({ "id": id(1) })).await),
    ];
    answers.push(("Nonsense", app.payme("Nonsense", json!({ "id": id(1) })).await));
    let logged = log(&app).await;
    assert_eq!(logged.len(), answers.len());
    for (row, (method, answer)) in logged.iter().zip(&answers) {
        assert_eq!(row.method.as_deref(), Some(*method));
        assert_eq!(row.mode.as_deref(), Some("live"));
        assert_eq!(row.remote_address.as_deref(), Some("127.0.0.1"));
        assert_eq!(serde_json::from_str::<Value>(&row.answer).unwrap(), *kept(answer));
        assert_eq!(row.error_code.map(i64::from), answer["error"]["code"].as_i64());
        if *method != "Nonsense" {
            assert_eq!(usize::try_from(row.request_bytes).unwrap(), row.request.len());
            assert_eq!(serde_json::from_str::<Value>(&row.request).unwrap()["method"], *method);
        }
        if !matches!(*method, "Nonsense" | "GetStatement" | "CheckPerformTransaction") {
            assert!(row.external_id.as_deref().is_some_and(|logged| logged == id(1) || logged == id(2)), "{row:?}");
        }
    }
}

#[tokio::test]
async fn no_key_and_no_strangers_body_and_no_password_is_kept() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    app.payme_with_key(PAYME_TEST_KEY, "CheckTransaction", json!({ "id": id(1) })).await;
    app.payme_with_key("guessed-key", "CreateTransaction", json!({ "secret": "of-a-stranger" })).await;
    for secret in [
        r#"{"id":1,"method":"ChangePassword","params":{"password":"of-the-cashbox"}}"#,
        r#"{"id":1,"method":"ChangePassword","params":["of-the-cashbox"]}"#,
        r#"{"id":[1],"method":"ChangePassword","params":{"password":"of-the-cashbox"}}"#,
        r#"[{"id":1,"method":"ChangePassword","params":{"password":"of-the-cashbox"}}]"#,
        r#"{"id":1,"method":"ChangePassword","params":{"password":"of-the-cashbox""#,
        r#"{"id":1,"Method":"ChangePassword","params":{"password":"of-the-cashbox"}}"#,
    ] {
        raw(&app, secret).await;
    }
    let rows: Vec<String> = sqlx::query_scalar("SELECT c::text FROM provider_calls c ORDER BY call_id")
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap();
    assert_eq!(rows.len(), 9);
    let mut secrets: Vec<String> = ["of-a-stranger", "of-the-cashbox", "guessed-key"].map(str::to_owned).into();
    for key in [PAYME_KEY, PAYME_TEST_KEY] {
        secrets.push(key.to_owned());
        secrets.push(STANDARD.encode(format!("Paycom:{key}")));
    }
    for row in &rows {
        for secret in &secrets {
            assert!(!row.contains(secret.as_str()), "{secret} is in {row}");
        }
    }
    let logged = log(&app).await;
    assert_eq!((logged[1].mode.as_deref(), logged[1].error_code), (Some("test"), Some(-31_003)));
    let stranger = &logged[2];
    assert_eq!((stranger.mode.as_deref(), stranger.error_code), (None, Some(-32_504)));
    assert_eq!((stranger.external_id.as_deref(), stranger.request.as_str()), (None, ""));
    assert!(logged[3..].iter().all(|row| row.request.is_empty() && row.request_bytes > 0), "{logged:?}");
}

#[tokio::test]
async fn a_malformed_call_of_a_known_method_is_kept_for_whoever_looks_into_it() {
    let app = shop().await;
    let body = r#"{"id":1,"method":"PerformTransaction","params":[]}"#;
    raw(&app, body).await;
    let logged = log(&app).await;
    assert_eq!((logged[0].request.as_str(), logged[0].error_code), (body, Some(-32_600)));
}

#[tokio::test]
async fn a_long_or_unreadable_body_is_logged_with_its_answer_and_cut() {
    let app = shop().await;
    let long = json!({ "id": 1, "method": "CheckTransaction", "params": { "id": "й".repeat(20_000) } }).to_string();
    raw(&app, long.clone()).await;
    raw(&app, vec![b' '; 1024 * 1024]).await;
    raw(&app, vec![0xFF, 0x00]).await;
    let logged = log(&app).await;
    assert_eq!(logged.len(), 3);
    assert_eq!(usize::try_from(logged[0].request_bytes).unwrap(), long.len());
    assert!(logged[0].request.len() <= 16 * 1024 && long.starts_with(&logged[0].request));
    assert_eq!((logged[1].error_code, logged[2].error_code), (Some(-32_600), Some(-32_700)));
}

#[tokio::test]
async fn p1_a_performed_calls_line_is_of_the_same_transaction_as_its_money() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    // A log that can't be written leaves nothing behind, however far the call had come.
    let mut superuser = app.superuser().await;
    superuser
        .execute(
            "CREATE FUNCTION refuse_log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'full'; END $$;
             CREATE TRIGGER refuse_log BEFORE INSERT ON provider_calls FOR EACH ROW
             WHEN (NEW.error_code IS NULL) EXECUTE FUNCTION refuse_log()",
        )
        .await
        .unwrap();
    let before = app.everything_written().await;
    for method in ["PerformTransaction", "CheckTransaction"] {
        assert_eq!(code(&app.payme(method, json!({ "id": id(1) })).await), -32_400);
    }
    assert_eq!(code(&cancel(&app, &id(1)).await), -32_400);
    assert_eq!(app.everything_written().await, before);
    superuser.execute("DROP TRIGGER refuse_log ON provider_calls").await.unwrap();

    assert_eq!(state(&perform(&app, &id(1)).await), 2);
    assert_eq!(check(&app, &id(1)).await["state"], 2);
    let together = app
        .count(
            "SELECT count(*) FROM provider_calls c, wallet_transactions t, payments p
              WHERE c.method = 'PerformTransaction' AND c.error_code IS NULL AND c.xmin = t.xmin AND t.xmin = p.xmin",
        )
        .await;
    assert_eq!(together, 1);
}
