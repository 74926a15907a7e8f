//! The conformance tool is only worth having if it is right in both directions: a correct merchant must pass without a
//! single complaint, and each mistake a merchant can make must be caught by the check that exists for it. A tool that
//! passes a wrong merchant is worse than none, since money is then moved on its word.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use hamyon::provider::payme::conformance::{self, Account, Options, Outcome, Report, Scenario, Style};
use secrecy::SecretString;
use serde_json::Value;
use tokio::process::Command;

mod defects;

use crate::support::fake_merchant::{Defect, FakeMerchant, KEY, ORDER_TOTAL, ORDERS, WALLET};

/// Everything that can be given is given, so that nothing has a reason to be skipped.
fn options(merchant: &FakeMerchant) -> Options {
    Options {
        url: merchant.url.parse().unwrap(),
        login: "Paycom".to_owned(),
        key: SecretString::from(KEY),
        account: Some(WALLET.parse().unwrap()),
        one_time_accounts: ORDERS.iter().map(|order| order.parse().unwrap()).collect(),
        amount: 150_000,
        one_time_amount: Some(ORDER_TOTAL),
        unknown_account: None,
        busy_code: None,
        spend_command: Some(format!("touch {}/$HAMYON_TRANSACTION", merchant.spent.path().display())),
        expiry_wait: None,
        timeout: Duration::from_secs(10),
        only: Vec::new(),
    }
}

async fn check(options: Options) -> Report {
    conformance::run(options, &mut ()).await.unwrap()
}

fn ids(report: &Report, wanted: impl Fn(&Outcome) -> bool) -> Vec<&str> {
    report.checks.iter().filter(|check| wanted(&check.outcome)).map(|check| check.id.as_str()).collect()
}

fn failed(report: &Report) -> Vec<&str> {
    ids(report, |outcome| matches!(outcome, Outcome::Failed { .. }))
}

fn skipped(report: &Report) -> Vec<&str> {
    ids(report, |outcome| matches!(outcome, Outcome::Skipped { .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correct_merchant_passes_everything() {
    let merchant = FakeMerchant::start(None).await;
    let report = check(Options { expiry_wait: Some(Duration::from_secs(1)), ..options(&merchant) }).await;
    assert_eq!(failed(&report), Vec::<&str>::new(), "{}", report.to_table(Style::default()));
    // Everything was given, and both accounts are numbers: nothing at all may be left out.
    assert_eq!(skipped(&report), Vec::<&str>::new());
    assert_eq!(report.exit_code(), 0);
    assert!(report.summary().passed > 150, "{:?}", report.summary());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_ids_are_unique_and_begin_with_their_scenario() {
    let merchant = FakeMerchant::start(None).await;
    let report = check(options(&merchant)).await;
    let mut seen = std::collections::HashSet::new();
    for check in &report.checks {
        assert!(seen.insert(&check.id), "{} occurs twice", check.id);
        assert!(check.id.starts_with(check.scenario.id()), "{}", check.id);
        assert!(check.spec.starts_with('§'), "{}", check.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_is_counted_from_paymes_time() {
    let merchant = FakeMerchant::start(Some(Defect::LimitFromCreate)).await;
    let expiry_wait = Some(Duration::from_secs(1));
    let report = check(Options { expiry_wait, only: vec![Scenario::Expiry], ..options(&merchant) }).await;
    assert_eq!(failed(&report), ["expiry.expired-perform", "expiry.expired-check"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_given_is_skipped_with_the_flag_that_would_enable_it() {
    let merchant = FakeMerchant::start(None).await;
    let report = check(Options { one_time_accounts: Vec::new(), spend_command: None, ..options(&merchant) }).await;
    assert_eq!(report.exit_code(), 0, "{}", report.to_table(Style::default()));
    for (id, flag) in [
        ("scenario-1.one-time.create", "--one-time-account"),
        ("scenario-2.one-time.paid-check", "--one-time-account"),
        ("concurrency.race.one-wins", "--one-time-account"),
        ("amounts.one-time.one-more.check", "--one-time-account"),
        ("expiry.expired-perform", "--expiry-wait-secs"),
        ("spent.cancel", "--spend-command"),
    ] {
        let check = report.checks.iter().find(|check| check.id == id).unwrap();
        let Outcome::Skipped { hint: Some(hint), .. } = &check.outcome else { panic!("{id}: {:?}", check.outcome) };
        assert!(hint.contains(flag), "{id}: {hint}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_time_orders_alone_are_enough() {
    let merchant = FakeMerchant::start(None).await;
    let report = check(Options { account: None, ..options(&merchant) }).await;
    assert_eq!(failed(&report), Vec::<&str>::new(), "{}", report.to_table(Style::default()));
    assert!(skipped(&report).contains(&"scenario-1.accumulative.create"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_code_that_was_asked_for_is_the_only_one_accepted() {
    let merchant = FakeMerchant::start(None).await;
    let only = vec![Scenario::Scenario1];
    let report = check(Options { busy_code: Some(-31_008), only, ..options(&merchant) }).await;
    assert_eq!(failed(&report), ["scenario-1.one-time.second-id-refused", "scenario-1.one-time.check-perform-busy"]);
}

#[tokio::test]
async fn nothing_can_be_checked_without_a_connection_or_with_a_wrong_key() {
    let merchant = FakeMerchant::start(None).await;
    let wrong = Options { key: SecretString::from("another key"), ..options(&merchant) };
    let error = conformance::run(wrong, &mut ()).await.err().unwrap();
    assert!(error.to_string().contains("refuses the key"), "{error}");

    // Bound and dropped again: a port on which nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = Options { url: format!("http://127.0.0.1:{port}/").parse().unwrap(), ..options(&merchant) };
    let error = conformance::run(nobody, &mut ()).await.err().unwrap();
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[tokio::test]
async fn options_that_contradict_themselves_are_refused() {
    let merchant = FakeMerchant::start(None).await;
    let order: Account = ORDERS[0].parse().unwrap();
    let twice = Options { one_time_accounts: vec![order.clone(), order], ..options(&merchant) };
    let elsewhere = Options { unknown_account: Some("phone=1".parse().unwrap()), ..options(&merchant) };
    let nothing = Options { amount: 0, ..options(&merchant) };
    let with_key = merchant.url.replace("http://", "http://Paycom:key@").parse().unwrap();
    let in_url = Options { url: with_key, ..options(&merchant) };
    for (options, reason) in [
        (twice, "given twice"),
        (elsewhere, "another field"),
        (nothing, "positive"),
        (in_url, "user name or a password"),
    ] {
        let error = conformance::run(options, &mut ()).await.err().unwrap();
        assert!(error.to_string().contains(reason), "{error}");
    }
    // Only the first sign separates; the value is sent exactly as it was given.
    let account: Account = "order_id= a=b".parse().unwrap();
    assert_eq!((account.field.as_str(), account.value.as_str()), ("order_id", " a=b"));
    assert!("order_id".parse::<Account>().is_err());
}

async fn command(merchant: &FakeMerchant, key_file: &Path, extra: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hamyon"))
        .args(["payme", "conformance", "--url", &merchant.url, "--account", WALLET])
        .arg("--key-file")
        .arg(key_file)
        .args(extra)
        .env_remove("HAMYON_PAYME_KEY")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_tells_by_its_exit_code_and_never_prints_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    std::fs::write(&key_file, format!("{KEY}\n")).unwrap();

    let correct = FakeMerchant::start(None).await;
    let (code, table, errors) = command(&correct, &key_file, &["--verbose"]).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{table}");
    assert!(table.contains("auth.wrong-key.PerformTransaction"), "{table}");
    assert!(table.contains(" 0 failed, "), "{table}");
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("Paycom:{KEY}"));
    assert!(!table.contains(KEY) && !table.contains(&encoded));

    let careless = FakeMerchant::start(Some(Defect::EchoesCredentials)).await;
    for format in ["--verbose", "--json"] {
        let (code, report, _) = command(&careless, &key_file, &[format]).await;
        assert_eq!(code, Some(1), "{report}");
        assert!(report.contains("[key]"));
        assert!(!report.contains(KEY) && !report.contains(&encoded));
    }

    let wrong = FakeMerchant::start(Some(Defect::UnauthorizedAs401)).await;
    let (code, json, _) = command(&wrong, &key_file, &["--json", "--only", "auth"]).await;
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&json).unwrap();
    let check = &report["checks"][0];
    assert_eq!(check["id"], "auth.wrong-key.CheckPerformTransaction");
    assert_eq!((&check["outcome"], &check["spec"]), (&Value::from("failed"), &Value::from("§1")));
    assert_eq!(check["expected"], "error -32504");
    assert_eq!(check["exchanges"][0]["status"], 401);
    assert_eq!(report["exit_code"], 1);

    let (code, table, _) = command(&correct, &key_file, &["--only", "spent"]).await;
    assert_eq!(code, Some(2), "only skipped checks are no success: {table}");

    std::fs::write(&key_file, "another key").unwrap();
    let (code, table, errors) = command(&correct, &key_file, &[]).await;
    assert_eq!((code, table.as_str()), (Some(2), ""));
    assert!(errors.contains("refuses the key"), "{errors}");
    let (code, _, errors) = command(&correct, &directory.path().join("absent"), &[]).await;
    assert_eq!(code, Some(2));
    assert!(errors.contains("could not be read"), "{errors}");
}
