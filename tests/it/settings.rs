//! A wrong setting must stop the start with a sentence that says which one it is, before anything is touched;
//! a service that starts with half its settings loses money quietly. And no secret may be in what it says.

use reqwest::StatusCode;
use serde_json::json;

use crate::private_serve::DataFolder;
use crate::support::book::Book;
use crate::support::process::{API_TOKEN, Serving, client, hamyon, run, said};

/// Secrets that stand in the settings below.
const SECRETS: [&str; 3] = ["hunter2", "the-live-key-0123456789", "too-short-a-token"];

#[tokio::test]
async fn each_wrong_setting_is_named_and_nothing_is_touched() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (address.to_string(), taken)).unwrap();
    let fiscal = |code: &'static str| {
        vec![
            ("HAMYON_PAYME_FISCAL_TITLE", "Wallet"),
            ("HAMYON_PAYME_FISCAL_CODE", code),
            ("HAMYON_PAYME_FISCAL_PACKAGE_CODE", "1"),
        ]
    };
    let telegram = |token: &'static str, secret: &'static str| {
        vec![("HAMYON_TELEGRAM_TOKEN", token), ("HAMYON_TELEGRAM_WEBHOOK_SECRET", secret)]
    };
    // The settings, and what the sentence must hold.
    let cases: Vec<(Vec<(&str, &str)>, &[&str])> = vec![
        (vec![("HAMYON_LISTEN", "the moon")], &["--listen", "the moon"]),
        (vec![("HAMYON_TIME_ZONE", "Mars/Olympus")], &["--time-zone", "Mars/Olympus", "IANA"]),
        (vec![("HAMYON_LISTEN", &taken.0)], &["HAMYON_LISTEN", "in use"]),
        (vec![("HAMYON_TOPUP_MIN", "a lot")], &["HAMYON_TOPUP_MIN", "a lot"]),
        (vec![("HAMYON_TOPUP_MIN", "1000.001")], &["HAMYON_TOPUP_MIN", "1000.001"]),
        (vec![("HAMYON_TOPUP_MIN", "0")], &["HAMYON_TOPUP_MIN", "positive"]),
        (vec![("HAMYON_TOPUP_MAX", "-5")], &["HAMYON_TOPUP_MAX", "positive"]),
        (vec![("HAMYON_TOPUP_MAX", "1e9")], &["HAMYON_TOPUP_MAX", "1e9"]),
        (vec![("HAMYON_TOPUP_MIN", "5000"), ("HAMYON_TOPUP_MAX", "4000")], &["HAMYON_TOPUP_MIN", "HAMYON_TOPUP_MAX"]),
        (vec![("HAMYON_PAYME_KEY", "")], &["HAMYON_PAYME_KEY", "empty"]),
        (vec![("HAMYON_PAYME_KEY", "  \t")], &["HAMYON_PAYME_KEY", "empty"]),
        (vec![("HAMYON_PAYME_TEST_KEY", "")], &["HAMYON_PAYME_TEST_KEY", "empty"]),
        (vec![("HAMYON_PAYME_KEY_FILE", "/nowhere/key")], &["HAMYON_PAYME_KEY_FILE", "/nowhere/key"]),
        (vec![("HAMYON_PAYME_KEY_FILE", "/dev/null")], &["HAMYON_PAYME_KEY", "empty"]),
        (
            vec![("HAMYON_PAYME_KEY", "the-live-key-0123456789"), ("HAMYON_PAYME_KEY_FILE", "/dev/null")],
            &["--payme-key", "--payme-key-file"],
        ),
        (
            vec![("HAMYON_PAYME_KEY", "the-live-key-0123456789"), ("HAMYON_PAYME_TEST_KEY", "the-live-key-0123456789")],
            &["HAMYON_PAYME_KEY", "HAMYON_PAYME_TEST_KEY", "the same"],
        ),
        (vec![("HAMYON_PAYME_LOGIN", "")], &["HAMYON_PAYME_LOGIN", "empty"]),
        (vec![("HAMYON_PAYME_LOGIN", "Pay:com")], &["HAMYON_PAYME_LOGIN", "colon"]),
        (vec![("HAMYON_PAYME_ACCOUNT_FIELD", "")], &["HAMYON_PAYME_ACCOUNT_FIELD", "empty"]),
        (vec![("HAMYON_PAYME_ACCOUNT_FIELD", "order_id")], &["HAMYON_PAYME_ACCOUNT_FIELD", "HAMYON_PAYME_ORDER_FIELD"]),
        (vec![("HAMYON_PAYME_ORDER_FIELD", " ")], &["HAMYON_PAYME_ORDER_FIELD", "empty"]),
        (vec![("HAMYON_PAYME_BUSY_CODE", "-31001")], &["HAMYON_PAYME_BUSY_CODE", "-31001"]),
        (vec![("HAMYON_PAYME_MERCHANT_ID", "")], &["HAMYON_PAYME_MERCHANT_ID", "empty"]),
        (vec![("HAMYON_PAYME_CHECKOUT_URL", "checkout")], &["HAMYON_PAYME_CHECKOUT_URL", "checkout"]),
        (vec![("HAMYON_PAYME_CHECKOUT_URL", "ftp://paycom.uz")], &["HAMYON_PAYME_CHECKOUT_URL", "ftp"]),
        (vec![("HAMYON_PAYME_ADDRESSES", "185.234.113.0/28,payme")], &["--payme-addresses", "payme"]),
        (vec![("HAMYON_TRUSTED_PROXIES", "10.0.0.0/33")], &["--trusted-proxies", "10.0.0.0/33"]),
        (fiscal("123"), &["HAMYON_PAYME_FISCAL_CODE", "17 digits"]),
        (vec![("HAMYON_PAYME_FISCAL_TITLE", "Wallet")], &["--payme-fiscal-code"]),
        (vec![("HAMYON_API_TOKEN", "too-short-a-token")], &["HAMYON_API_TOKEN", "20 characters"]),
        (vec![("HAMYON_API_TOKEN_FILE", "/nowhere/token")], &["HAMYON_API_TOKEN_FILE", "/nowhere/token"]),
        (vec![("HAMYON_JOBS", "maybe")], &["--jobs", "maybe"]),
        (vec![("HAMYON_SUPPORT_LIMIT_AGENT", "500000")], &["HAMYON_SUPPORT_LIMIT_AGENT", "500000", "UZS=500000"]),
        (vec![("HAMYON_SUPPORT_LIMIT_APPROVER", "UZS=-1")], &["HAMYON_SUPPORT_LIMIT_APPROVER", "UZS=-1"]),
        (vec![("HAMYON_SUPPORT_LIMIT_APPROVER", "UZS=1,UZS=2")], &["HAMYON_SUPPORT_LIMIT_APPROVER", "once"]),
        (vec![("HAMYON_SUPPORT_REQUEST_HOURS", "0")], &["--support-request-hours", "0"]),
        (vec![("HAMYON_TELEGRAM_TOKEN", "111:AAAhunter2")], &["HAMYON_TELEGRAM_WEBHOOK_SECRET"]),
        (vec![("HAMYON_TELEGRAM_WEBHOOK_SECRET", "hunter2")], &["HAMYON_TELEGRAM_TOKEN"]),
        (telegram("hunter2", "secret"), &["HAMYON_TELEGRAM_TOKEN"]),
        (telegram("", "secret"), &["HAMYON_TELEGRAM_TOKEN", "empty"]),
        (telegram("111:hunter2,222:hunter2", "secret"), &["HAMYON_TELEGRAM_WEBHOOK_SECRET"]),
        (telegram("111:hunter2,111:other", "one,two"), &["HAMYON_TELEGRAM_TOKEN", "111"]),
        (telegram("111:hunter2,222:hunter2", "same,same"), &["HAMYON_TELEGRAM_WEBHOOK_SECRET"]),
        (telegram("111:AAA", "with a space, hunter2"), &["HAMYON_TELEGRAM_WEBHOOK_SECRET"]),
        (
            [telegram("111:hunter2", "secret"), vec![("HAMYON_TELEGRAM_API_URL", "telegram")]].concat(),
            &["HAMYON_TELEGRAM_API_URL", "telegram"],
        ),
        (vec![("HAMYON_TELEGRAM_ANSWER_BY", "post")], &["--telegram-answer-by", "post"]),
        (vec![("HAMYON_TELEGRAM_TOKEN_FILE", "/nowhere/token")], &["HAMYON_TELEGRAM_TOKEN_FILE", "/nowhere/token"]),
        (vec![("HAMYON_SLOT_HOLD_SECS", "5")], &["--slot-hold-secs", "5"]),
        (vec![("HAMYON_DATABASE_CONNECTIONS", "3")], &["--database-connections", "3"]),
        (vec![("HAMYON_CONNECTIONS_MAX", "0")], &["--connections-max", "0"]),
        (vec![("RUST_LOG", "hamyon=loud=er")], &["RUST_LOG"]),
        (vec![("HAMYON_POSTGRES_BIN", "/nowhere")], &["HAMYON_POSTGRES_BIN", "/nowhere"]),
        (vec![("DATABASE_URL", "")], &["DATABASE_URL", "empty"]),
        (vec![("DATABASE_URL", "postgresql://wallet:hunter2@host:port/name")], &["DATABASE_URL", "can't be read"]),
        (vec![("DATABASE_URL", "wallet:hunter2@host")], &["DATABASE_URL", "can't be read"]),
        (vec![("DATABASE_URL_FILE", "/nowhere/url")], &["DATABASE_URL_FILE", "/nowhere/url"]),
        (
            vec![("DATABASE_URL", "postgresql://localhost/x"), ("HAMYON_DATABASE_OWNER_URL", "host hunter2")],
            &["HAMYON_DATABASE_OWNER_URL", "can't be read"],
        ),
        // Nobody listens there, and the password must not be in what is said about it.
        (vec![("DATABASE_URL", "postgresql://wallet:hunter2@127.0.0.1:1/name")], &["database", "not available"]),
    ];
    let folder = DataFolder::new();
    for (settings, expected) in cases {
        let data_dir = folder.path().join("data");
        let mut command = hamyon();
        command.arg("serve").env("HAMYON_LISTEN", "127.0.0.1:0").env("HAMYON_DATA_DIR", &data_dir);
        for (name, value) in &settings {
            command.env(name, value);
        }
        let (status, said) = match Serving::try_launch(command).await {
            Err(ended) => ended,
            Ok(serving) => panic!("it started with {settings:?}:\n{}", serving.printed()),
        };
        assert!(matches!(status.code(), Some(1 | 2)), "{settings:?} ended with {status}: {said}");
        for words in expected {
            assert!(said.contains(words), "{settings:?} must say {words:?}, and says:\n{said}");
        }
        assert!(!said.contains("panicked"), "{settings:?}: {said}");
        for secret in SECRETS {
            assert!(!said.contains(secret), "{settings:?} gave a secret away:\n{said}");
        }
        assert!(!data_dir.exists(), "{settings:?} touched the data directory");
    }
}

#[tokio::test]
async fn a_token_is_shown_once_allows_what_it_says_and_ends_when_it_is_revoked() {
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    serving.tenant("acme").await;
    let token_command = |arguments: &[&str]| {
        let mut command = hamyon();
        command.arg("token").args(arguments).env("DATABASE_URL", &book.url);
        command
    };
    let made = run(&mut token_command(&["create", "--client", "shop", "--scope", "ledger:read,tenants:read"])).await;
    assert_eq!(made.status.code(), Some(0), "{}", said(&made));
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(token.starts_with("hamyon_"), "only the token stands on standard output: {token}");

    let balance = || async {
        let url = format!("{}/v1/tenants/acme/balance", serving.url);
        client().get(url).bearer_auth(&token).send().await.unwrap().status()
    };
    assert_eq!(balance().await, StatusCode::OK);
    let body = json!({ "tenant_id": "other", "name": "Other" });
    let tenants = format!("{}/v1/tenants", serving.url);
    let answer = client().post(&tenants).bearer_auth(&token).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN, "it may read only");

    let listed = run(&mut token_command(&["list"])).await;
    let list = said(&listed);
    let line = list.lines().find(|line| line.contains("\tshop\t")).unwrap_or_else(|| panic!("{list}"));
    assert!(line.contains("ledger:read") && line.ends_with("\tvalid"), "{line}");
    for secret in [token.as_str(), token.trim_start_matches("hamyon_"), API_TOKEN] {
        assert!(!list.contains(secret), "{list}");
    }

    let number = line.split('\t').next().unwrap();
    let revoked = run(&mut token_command(&["revoke", number])).await;
    assert_eq!(revoked.status.code(), Some(0), "{}", said(&revoked));
    assert_eq!(balance().await, StatusCode::UNAUTHORIZED);
    let again = run(&mut token_command(&["revoke", number])).await;
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    let listed = run(&mut token_command(&["list"])).await;
    assert!(said(&listed).contains("\trevoked "), "{}", said(&listed));

    for wrong in [
        &["create", "--client", "no space", "--scope", "ledger:read"][..],
        &["create", "--client", "x", "--scope", "all"],
    ] {
        let before = book.number("SELECT count(*) FROM api_tokens").await;
        let refused = run(&mut token_command(wrong)).await;
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert_eq!(book.number("SELECT count(*) FROM api_tokens").await, before, "nothing was written");
    }
    serving.stop().await;
}
