//! A log is read by many and kept for long: whatever it is asked to tell, no key, token or password may be in
//! it, neither of those who got in nor of those who didn't.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::app::{PAYME_KEY, PAYME_TEST_KEY};
use crate::support::book::Book;
use crate::support::process::{API_TOKEN, Serving, creation, credits, hamyon, run, serve};

#[tokio::test]
async fn the_most_talkative_log_holds_no_secret() {
    let book = Book::new().await;
    let mut url: reqwest::Url = book.url.parse().unwrap();
    let password = match url.password() {
        Some(password) => password.to_owned(),
        None => {
            // The throw-away server takes any.
            url.set_password(Some("correct-horse-battery")).unwrap();
            "correct-horse-battery".to_owned()
        }
    };
    let made = run(hamyon()
        .args(["token", "create", "--client", "shop"])
        .env("DATABASE_URL", url.as_str())
        .env("RUST_LOG", "trace"))
    .await;
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let mut logs = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(token.starts_with("hamyon_"), "{logs}");

    let wrong_token = "hamyon_a-token-that-nobody-was-given-0123";
    let wrong_key = "a-key-that-nobody-was-given";
    for (filter, format) in [("debug", "text"), ("trace", "json")] {
        let mut command = serve();
        command.args(["--log-format", format]).env("DATABASE_URL", url.as_str()).env("RUST_LOG", filter);
        let serving = Serving::launch(command).await;
        let tenant = format!("acme-{filter}");
        serving.tenant(&tenant).await;
        let id = format!("5f00000000000000000{filter}");
        serving.payme_created(&id, &tenant, 1_500_000).await;
        serving.payme("PerformTransaction", &json!({ "id": id })).await.unwrap();
        let batch = credits(&tenant, &["one".to_owned()], "1.00");
        let (status, answer) = serving.post("/v1/transactions/batch", Some(filter), &batch).await.unwrap();
        assert_eq!(status, 201, "{answer}");
        let payme = format!("{}/payme", serving.url);
        for key in [PAYME_TEST_KEY, wrong_key] {
            let call = json!({ "id": 1, "method": "CreateTransaction", "params": creation("5f0000000000000000000002", "acme", 1) });
            let answer = serving.client.post(&payme).basic_auth("Paycom", Some(key)).json(&call).send().await.unwrap();
            assert_eq!(answer.status(), 200);
        }
        // The key changes hands in a method of Payme's that nobody serves.
        let change = json!({ "id": 1, "method": "ChangePassword", "params": { "password": "the-next-key-of-payme" } });
        serving.client.post(&payme).basic_auth("Paycom", Some(PAYME_KEY)).json(&change).send().await.unwrap();
        for bearer in [token.as_str(), wrong_token] {
            let balance = format!("{}/v1/tenants/{tenant}/balance", serving.url);
            serving.client.get(balance).bearer_auth(bearer).send().await.unwrap();
        }
        logs.push_str(&serving.stop().await);
    }
    assert!(
        logs.contains("POST /v1/transactions/batch 201") && logs.contains("TRACE"),
        "the log was talkative: {logs}"
    );
    let basic = |key: &str| STANDARD.encode(format!("Paycom:{key}"));
    for secret in [
        PAYME_KEY.to_owned(),
        basic(PAYME_KEY),
        basic(PAYME_TEST_KEY),
        wrong_key.to_owned(),
        basic(wrong_key),
        "the-next-key-of-payme".to_owned(),
        API_TOKEN.to_owned(),
        token,
        wrong_token.to_owned(),
        password,
    ] {
        let at = logs.lines().find(|line| line.contains(&secret));
        assert!(at.is_none(), "{secret:?} is in the log: {at:?}");
    }
    let kept = "SELECT (SELECT count(*) FROM provider_calls WHERE request LIKE '%the-next-key-of-payme%')
                     + (SELECT count(*) FROM provider_calls WHERE provider_calls::text LIKE '%that-nobody-was-given%')";
    assert_eq!(book.number(kept).await, 0, "nor is one in the call log");
}
