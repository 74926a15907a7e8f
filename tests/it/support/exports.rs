//! Exports: the program that makes them, the programs that read them, and the names turned back into what they
//! stand for. The way back is written down here anew, so that a mistake of the way there can't hide.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use rust_decimal::Decimal;
use tokio::process::Command;

use super::TestApp;
use super::process::{hamyon, run, said};

/// What tenants hold in each unit; what is zero is left out.
pub type Sums = BTreeMap<(String, String), Decimal>;

/// `hamyon export` on the application's database.
pub fn exporting(app: &TestApp, arguments: &[&str]) -> Command {
    let mut command = hamyon();
    command.arg("export").args(arguments).env("DATABASE_URL", app.database_url());
    command
}

/// The export, which must come to its end.
pub async fn exported(app: &TestApp, arguments: &[&str]) -> String {
    let output = run(&mut exporting(app, arguments)).await;
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("an export is UTF-8")
}

/// What SQL says that everybody holds.
pub async fn sums(app: &TestApp) -> Sums {
    let rows: Vec<(String, String, i64, i16)> = sqlx::query_as(
        "SELECT tenant_id, currency, SUM(amount)::bigint, exponent
           FROM wallet_transactions JOIN currencies ON code = currency
          GROUP BY tenant_id, currency, exponent HAVING SUM(amount) <> 0",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .expect("the sums");
    rows.into_iter()
        .map(|(tenant, currency, sum, exponent)| {
            ((tenant, currency), Decimal::new(sum, u32::try_from(exponent).expect("an exponent")))
        })
        .collect()
}

/// A program of a package that `.ci/setup` installs for the tests.
async fn reader(program: &str, package: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C.UTF-8").kill_on_drop(true);
    let output = command.output().await.unwrap_or_else(|error| {
        panic!("{program} can't be run ({error}): `make test` installs the package {package} that has it")
    });
    assert!(output.status.success(), "{program} {arguments:?}: {}", said(&output));
    output
}

/// hledger with a journal.
pub async fn hledger(journal: &Path, arguments: &[&str]) -> String {
    let mut all = vec!["-f", journal.to_str().expect("a path")];
    all.extend(arguments);
    String::from_utf8(reader("hledger", "hledger", &all).await.stdout).expect("hledger says UTF-8")
}

/// A query of beancount, its cells without the white space around them. Everything beancount has to complain
/// about is an error.
pub async fn bean_query(journal: &Path, query: &str) -> Vec<Vec<String>> {
    let journal = journal.to_str().expect("a path");
    let checked = reader("bean-check", "beancount", &[journal]).await;
    assert_eq!(said(&checked), "", "bean-check has nothing to say");
    let output = reader("bean-query", "beancount", &["-f", "csv", journal, query]).await;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    table(std::str::from_utf8(&output.stdout).expect("beancount says UTF-8"))
}

/// The lines behind the first.
pub fn table(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let records = reader.records().map(|record| record.unwrap_or_else(|error| panic!("{error}: {text}")));
    records.map(|record| record.iter().map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The balances of the wallets as hledger counts them, with the sign of the wallets.
pub async fn sums_by_hledger(journal: &Path) -> Sums {
    hledger(journal, &["check", "--strict"]).await;
    let balances =
        hledger(journal, &["balance", "--flat", "-N", "-O", "csv", "--layout=bare", "^liabilities:wallets:"]).await;
    let wallets = table(&balances).into_iter().map(|line| {
        let parts: Vec<&str> = line[0].split(':').collect();
        let [_, _, tenant, _] = parts[..] else { panic!("{} is no wallet", line[0]) };
        (percent_decoded(tenant), line[1].clone(), line[2].parse().expect("an amount"))
    });
    added_up(wallets)
}

/// The same by beancount.
pub async fn sums_by_beancount(journal: &Path) -> Sums {
    let query =
        "SELECT account, currency, str(sum(number)) WHERE account ~ '^Liabilities:Wallets:' GROUP BY account, currency";
    let wallets = bean_query(journal, query).await.into_iter().map(|line| {
        let parts: Vec<&str> = line[0].split(':').collect();
        let [_, _, tenant, _] = parts[..] else { panic!("{} is no wallet", line[0]) };
        let tenant = dash_decoded(tenant.strip_prefix("T-").expect("a tenant"));
        (tenant, line[1].strip_suffix(".X").unwrap_or(&line[1]).to_owned(), exact(&line[2]))
    });
    added_up(wallets)
}

/// A number that beancount printed as it has it; a column of plain numbers is rounded for the eye.
pub fn exact(number: &str) -> Decimal {
    let number = number.strip_prefix("Decimal('").and_then(|number| number.strip_suffix("')")).expect("a number");
    number.parse().or_else(|_| Decimal::from_scientific(number)).expect("a number")
}

fn added_up(wallets: impl Iterator<Item = (String, String, Decimal)>) -> Sums {
    let mut sums = Sums::new();
    for (tenant, currency, amount) in wallets {
        let sum = sums.entry((tenant, currency)).or_default();
        *sum = sum.checked_sub(amount).expect("no overflow");
    }
    sums.retain(|_, sum| !sum.is_zero());
    sums
}

/// What `%2C` and the like stand for.
pub fn percent_decoded(text: &str) -> String {
    escapes_decoded(text, b'%', |rest| {
        // For the empty text.
        if rest.is_empty() { (1, Vec::new()) } else { (3, vec![hex(rest)]) }
    })
}

/// What `-2c` and `--` stand for.
pub fn dash_decoded(text: &str) -> String {
    escapes_decoded(text, b'-', |rest| if rest.starts_with('-') { (2, vec![b'-']) } else { (3, vec![hex(rest)]) })
}

fn hex(text: &str) -> u8 {
    u8::from_str_radix(&text[..2], 16).expect("two digits")
}

fn escapes_decoded(text: &str, escape: u8, decode: impl Fn(&str) -> (usize, Vec<u8>)) -> String {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if text.as_bytes()[at] == escape {
            let (length, decoded) = decode(&text[at + 1..]);
            bytes.extend(decoded);
            at += length;
        } else {
            bytes.push(text.as_bytes()[at]);
            at += 1;
        }
    }
    String::from_utf8(bytes).expect("UTF-8 comes back")
}
