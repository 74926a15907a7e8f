//! `serve --demo` is the first thing anybody tries: what it prints must work as printed, and it must never
//! mix with real money, nor open a door with keys that everybody knows.

use std::process::{Output, Stdio};

use serde_json::json;
use tokio::process::Command;

use crate::private_serve::DataFolder;
use crate::support::book::Book;
use crate::support::process::{Serving, client, hamyon, run, said};

const DEMO_TOKEN: &str = "hamyon_demo_token_for_this_machine_only";
const DEMO_KEY: &str = "demo-payme-key";

#[tokio::test]
async fn the_printed_commands_work_as_printed() {
    let folder = DataFolder::new();
    let serving = Serving::launch(demo(&folder.of(hamyon()))).await;
    serving.has_printed("Ctrl-C stops it.").await;
    let printed = serving.printed();
    let blocks = commands(&printed);
    let [balance, fees, payment, conformance, psql] = &blocks[..] else {
        panic!("other commands than known:\n{printed}")
    };

    let ran = sh(balance).await;
    let answer: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", said(&ran)));
    assert_eq!(answer["balance"], "0.00", "{answer}");

    let ran = sh(fees).await;
    assert!(said(&ran).contains(r#""payment_overdue":true"#), "{}", said(&ran));
    assert!(said(&ran).contains(r#""difference":0"#), "{}", said(&ran));

    let ran = sh(payment).await;
    let answers: Vec<serde_json::Value> =
        serde_json::Deserializer::from_slice(&ran.stdout).into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(answers.len(), 2, "create, then perform: {}", said(&ran));
    assert_eq!((&answers[0]["result"]["state"], &answers[1]["result"]["state"]), (&json!(1), &json!(2)), "{answers:?}");
    let ran = sh(balance).await;
    assert!(said(&ran).contains(r#""balance":"15000.00""#), "the payment is money: {}", said(&ran));

    let ran = sh(conformance).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(said(&ran).contains(" 0 failed, 0 skipped "), "nothing is left out: {}", said(&ran));

    let ran = sh(psql).await;
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(said(&ran).contains("invoice:1041"), "{}", said(&ran));
    serving.stop().await;
    let verified = run(folder.of(hamyon()).arg("verify")).await;
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}

#[tokio::test]
async fn when_all_its_orders_are_paid_the_next_start_offers_new_ones() {
    let book = Book::blank().await;
    let serving = Serving::launch(demo(hamyon().env("DATABASE_URL", &book.url))).await;
    serving.has_printed("Ctrl-C stops it.").await;
    let orders = book.number("SELECT count(*) FROM orders WHERE currency = 'UZS'").await;
    assert!(orders > 0);
    for order in 1..=orders {
        let id = format!("{order:024}");
        let created = json!({ "id": id, "time": now_ms(), "amount": 15_000_000,
                              "account": { "order_id": (9000 + order).to_string() } });
        for (method, params) in [("CreateTransaction", created), ("PerformTransaction", json!({ "id": id }))] {
            let body = json!({ "id": 1, "method": method, "params": params });
            let call = serving.client.post(format!("{}/payme", serving.url)).basic_auth("Paycom", Some(DEMO_KEY));
            let answer: serde_json::Value = call.json(&body).send().await.unwrap().json().await.unwrap();
            assert!(answer["result"]["state"].is_number(), "{answer}");
        }
    }
    let said = serving.stop().await;
    assert!(!said.contains(&format!("order_id={}", 9001 + orders)), "{said}");

    let serving = Serving::launch(demo(hamyon().env("DATABASE_URL", &book.url))).await;
    serving.has_printed("Ctrl-C stops it.").await;
    let printed = serving.printed();
    assert!(printed.contains(&format!("order_id={} ", 9001 + orders)), "{printed}");
    assert!(!printed.contains("order_id=9001 "), "a paid one is not offered again:\n{printed}");
    assert_eq!(
        book.number("SELECT count(*) FROM wallet_transactions WHERE kind = 'adjustment'").await,
        1,
        "filled once"
    );
    assert_eq!(book.number("SELECT count(*) FROM orders WHERE currency = 'UZS'").await, 2 * orders);
    serving.stop().await;
    book.is_clean().await;
}

#[tokio::test]
async fn invented_and_real_data_never_meet() {
    // A demonstration beside real rows.
    let book = Book::new().await;
    let serving = Serving::start(&book.url, &[]).await;
    serving.tenant("real").await;
    serving.stop().await;
    let before = fingerprint(&book).await;
    let (status, said) = refused(demo(hamyon().env("DATABASE_URL", &book.url))).await;
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("--demo") && said.contains("real data"), "{said}");
    assert_eq!(fingerprint(&book).await, before, "nothing was written");

    // Real work on a demonstration's rows.
    let book = Book::blank().await;
    let serving = Serving::launch(demo(hamyon().env("DATABASE_URL", &book.url))).await;
    serving.stop().await;
    let before = fingerprint(&book).await;
    let mut plain = crate::support::process::serve();
    plain.env("DATABASE_URL", &book.url);
    let (status, said) = refused(plain).await;
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("filled by --demo"), "{said}");
    assert_eq!(fingerprint(&book).await, before, "nothing was written");
}

#[tokio::test]
async fn keys_that_everybody_knows_open_nothing_beyond_this_machine() {
    let folder = DataFolder::new();
    let mut command = folder.of(hamyon());
    command.args(["serve", "--demo", "--listen", "0.0.0.0:0"]);
    let (status, said) = refused(command).await;
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("HAMYON_LISTEN") && said.contains("everybody knows"), "{said}");
    assert!(!folder.path().join("postgres").exists(), "nothing was touched");

    // Somebody tried it here first, and then shows it around with keys of his own.
    let book = Book::blank().await;
    Serving::launch(demo(hamyon().env("DATABASE_URL", &book.url))).await.stop().await;
    let mut command = hamyon();
    command
        .args(["serve", "--demo", "--listen", "0.0.0.0:0"])
        .env("DATABASE_URL", &book.url)
        .env("HAMYON_PAYME_KEY", "a-key-of-his-own");
    match Serving::try_launch(command).await {
        Err((status, said)) => {
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("everybody knows"), "{said}");
        }
        Ok(serving) => {
            let url = format!("{}/v1/tenants/acme/balance", serving.url.replace("0.0.0.0", "127.0.0.1"));
            let answer = client().get(url).bearer_auth(DEMO_TOKEN).send().await.unwrap();
            panic!("it started, and the demonstration's token was answered {}", answer.status());
        }
    }
}

fn demo(command: &Command) -> Command {
    // A copy, since a command is built by reference.
    let mut copy = hamyon();
    for (name, value) in command.as_std().get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy.args(["serve", "--demo", "--listen", "127.0.0.1:0"]);
    copy
}

/// The blocks of indented lines after the list of addresses: each is a command, or several.
fn commands(printed: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in printed.lines() {
        match line.strip_prefix("  ") {
            Some(line) => {
                let block = blocks.last_mut().unwrap();
                block.push_str(line);
                block.push('\n');
            }
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty() && !block.contains("API documentation"));
    blocks
}

/// Runs it as somebody who copies it into a shell; only the program is the one under test.
async fn sh(command: &str) -> Output {
    let command = command.replace("target/release/hamyon", env!("CARGO_BIN_EXE_hamyon"));
    let mut shell = Command::new("sh");
    run(shell.arg("-c").arg(command).stdin(Stdio::null()).kill_on_drop(true)).await
}

async fn refused(command: Command) -> (Option<i32>, String) {
    match Serving::try_launch(command).await {
        Ok(serving) => panic!("it started:\n{}", serving.printed()),
        Err((status, said)) => (status.code(), said),
    }
}

/// Everything in it, as one number for each table.
async fn fingerprint(book: &Book) -> String {
    sqlx::query_scalar(
        "SELECT string_agg(relname || ' ' || (xpath('/row/n/text()', query_to_xml(
                    'SELECT coalesce(sum(hashtext(t::text)), 0) AS n FROM ' || relname || ' t', false, true, '')))[1]::text,
                    ', ' ORDER BY relname)
           FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
    )
    .fetch_one(&mut book.session().await)
    .await
    .unwrap()
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}
