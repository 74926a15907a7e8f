//! Rule L1 outside the house: an accountant's program that reads the export must come to the same balances as
//! `SUM(amount)`, to the last digit, or one of the two books is wrong and nobody knows which.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use hamyon::ids::{Pocket, Reason};
use hamyon::ledger::{Entry, Floor};
use hamyon::money::CurrencyCode;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::export_texts::NASTY;
use crate::support::TestApp;
use crate::support::app::entry;
use crate::support::exports::{
    bean_query, exact, exported, exporting, hledger, percent_decoded, sums, sums_by_beancount, sums_by_hledger, table,
};
use crate::support::intruder::intruder;
use crate::support::process::{run, said};

async fn tenant(app: &TestApp, tenant_id: &str, time_zone: &str) {
    let body = json!({ "tenant_id": tenant_id, "name": tenant_id, "time_zone": time_zone });
    let (status, answer) = app.post("/v1/tenants", &body).await;
    assert_eq!(status, 201, "{answer}");
}

async fn currency(app: &TestApp, code: &str, exponent: u8) {
    let (status, answer) = app.post("/v1/currencies", &json!({ "code": code, "exponent": exponent })).await;
    assert!(status.is_success(), "{answer}");
}

/// An entry in another unit and pocket.
fn in_pocket(tenant_id: &str, currency: &str, pocket: &str, kind: &str, amount: i64, reference: &str) -> Entry {
    Entry {
        currency: CurrencyCode::parse(currency).unwrap(),
        pocket: Pocket::parse(pocket).unwrap(),
        floor: Floor::None,
        ..entry(tenant_id, kind, amount, reference)
    }
}

async fn post(app: &TestApp, entries: Vec<Entry>) {
    app.post_entries(&entries).await.unwrap_or_else(|error| panic!("{error:?}"));
}

fn until(app: &TestApp, at: &str) {
    let at: DateTime<Utc> = at.parse().unwrap();
    app.clock.advance(at - app.clock.now());
}

/// Tenants whose ids are easily taken for one another, in zones far apart; every kind; units of every size, some
/// with names that the programs can't read; texts that try to be something else. Months pass.
async fn world() -> TestApp {
    let app = TestApp::start().await;
    for (tenant_id, zone) in [
        ("acme", "Asia/Tashkent"),
        ("ACME", "Pacific/Kiritimati"),
        ("a:b", "America/New_York"),
        ("a", "Pacific/Pago_Pago"),
        ("a-3ab", "Europe/Berlin"),
        ("+7@x.uz", "Asia/Tashkent"),
        ("-", "Asia/Kathmandu"),
        ("empty", "Asia/Tashkent"),
    ] {
        tenant(&app, tenant_id, zone).await;
    }
    for (code, exponent) in [("BTC", 8), ("X", 3), ("A_", 0), ("TRUE", 1), ("MSG_2", 0)] {
        currency(&app, code, exponent).await;
    }
    app.payme_created("5305e3bab097f420a62ced0b", "acme", 1_500_000).await;
    app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0b" })).await;
    app.payme_created("5305e3bab097f420a62ced0c", "acme", 2_000_000).await;
    app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0c" })).await;
    app.payme("CancelTransaction", json!({ "id": "5305e3bab097f420a62ced0c", "reason": 5 })).await;
    post(
        &app,
        vec![
            entry("acme", "subscription_fee", -500_000, "fee:9:2026-12"),
            entry("acme", "adjustment", -1, "adjusted"),
            in_pocket("acme", "CREDIT", "promo-1", "grant", 1_000, "g"),
            in_pocket("acme", "CREDIT", "main", "use", -3, "g"),
            in_pocket("acme", "XTR", "main", "top_up", 50, "telegram:1"),
            in_pocket("acme", "BTC", "main", "top_up", 1, "click:1"),
            in_pocket("acme", "BTC", "cold.2026:1", "top_up", 123_456_789_012_345_678, "uzum:1"),
            // These would be one account if the parts of its name were only put together.
            in_pocket("a:b", "UZS", "main", "top_up", 11, "r"),
            in_pocket("a", "UZS", "b:main", "top_up", 220, "r"),
            in_pocket("a-3ab", "UZS", "main", "top_up", 3_300, "r"),
            in_pocket("ACME", "UZS", "main", "top_up", 44_000, "payme"),
            in_pocket("+7@x.uz", "X", "main", "top_up", i64::MAX, "large"),
            in_pocket("+7@x.uz", "A_", "main", "spend", -77, "below zero"),
            in_pocket("+7@x.uz", "TRUE", "main", "top_up", 5, "nobody:1"),
            in_pocket("-", "MSG_2", "0", "top_up", 8, "r"),
            in_pocket("-", "UZS", "main", "top_up", 9, "r"),
            in_pocket("-", "UZS", "main", "purchase", -9, "r"),
        ],
    )
    .await;
    let refund = Entry { original_seq: Some(4), ..entry("acme", "refund", 100_001, "back") };
    post(&app, vec![refund]).await;
    // On both sides of midnight, wherever that is.
    for hour in 0..72 {
        until(&app, &(DateTime::<Utc>::UNIX_EPOCH + TimeDelta::hours(499_824 + hour)).to_rfc3339());
        let tenants = ["acme", "ACME", "a:b", "a", "-"];
        post(&app, tenants.map(|tenant| entry(tenant, "tick", 1, &format!("tick-{hour}"))).into()).await;
    }
    // What the rules for references and reasons let in.
    let mut texts = Vec::new();
    for (number, nasty) in NASTY.into_iter().enumerate() {
        let allowed: String = nasty.chars().filter(|character| !character.is_control()).collect();
        if !allowed.trim().is_empty() {
            let entry = entry("a:b", "nasty", 1, &format!("{allowed}{number}"));
            texts.push(Entry { reason: Some(Reason::parse(allowed).unwrap()), ..entry });
        }
    }
    texts.push(entry("a:b", "nasty", 1, &"😀".repeat(200)));
    post(&app, texts).await;
    app
}

/// Rows that break the rules for texts, put there by somebody who could. No head knows of them.
async fn with_broken_texts(app: &TestApp) {
    let mut conn = intruder(app).await;
    let long = "0123456789\n".repeat(1_000);
    for nasty in NASTY.into_iter().chain([&long[..]]) {
        sqlx::query(
            "INSERT INTO wallet_transactions (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference,
                                              reason, actor, metadata, recorded_at, hash)
             SELECT wallet_id, max(seq) + 1, 'a', 'UZS', 'nasty', 7, $1 || 'p', $1 || 'r' || max(seq), $1,
                    $1 || 'a', '{}', max(recorded_at), sha256('')
               FROM wallet_transactions WHERE tenant_id = 'a' AND currency = 'UZS' GROUP BY wallet_id",
        )
        .bind(nasty)
        .execute(&mut conn)
        .await
        .expect("written");
    }
}

/// Exports into a file.
async fn file(app: &TestApp, folder: &Path, format: &str, arguments: &[&str]) -> PathBuf {
    let path = folder.join(format!("book.{format}"));
    let mut all = vec!["--format", format, "--output", path.to_str().unwrap()];
    all.extend(arguments);
    exported(app, &all).await;
    path
}

#[tokio::test]
async fn l1_the_real_programs_find_the_balances_of_the_ledger() {
    let app = world().await;
    let folder = tempfile::tempdir().unwrap();
    let expected = sums(&app).await;
    assert!(expected.len() > 12, "{expected:?}");
    assert_eq!(expected[&("+7@x.uz".to_owned(), "X".to_owned())].to_string(), "9223372036854775.807");
    let journal = file(&app, folder.path(), "hledger", &[]).await;
    assert_eq!(sums_by_hledger(&journal).await, expected);
    let journal = file(&app, folder.path(), "beancount", &[]).await;
    assert_eq!(sums_by_beancount(&journal).await, expected);

    // Whatever happened before a day, the balances after it are the same; so they are with all of it before.
    for from in ["2026-12-01", "2026-12-02", "2027-01-08", "2027-01-09", "2030-01-01"] {
        let journal = file(&app, folder.path(), "hledger", &["--from", from]).await;
        assert_eq!(sums_by_hledger(&journal).await, expected, "from {from}");
        let journal = file(&app, folder.path(), "beancount", &["--from", from]).await;
        assert_eq!(sums_by_beancount(&journal).await, expected, "from {from}");
    }
    for tenant in ["acme", "a", "-", "empty"] {
        let mut own = expected.clone();
        own.retain(|(owner, _), _| owner == tenant);
        let journal = file(&app, folder.path(), "hledger", &["--tenant", tenant]).await;
        assert_eq!(sums_by_hledger(&journal).await, own, "{tenant}");
        // As one argument, since an id may begin with a dash.
        let journal = file(&app, folder.path(), "beancount", &[&format!("--tenant={tenant}")]).await;
        assert_eq!(sums_by_beancount(&journal).await, own, "{tenant}");
    }
}

#[tokio::test]
async fn the_other_side_of_each_movement_is_where_an_accountant_looks_for_it() {
    let app = world().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = file(&app, folder.path(), "hledger", &["--tenant", "acme"]).await;
    let balances = hledger(&journal, &["balance", "--flat", "-N", "-O", "csv", "--layout=bare"]).await;
    let accounts: BTreeMap<(String, String), String> =
        table(&balances).into_iter().map(|line| ((line[0].clone(), line[1].clone()), line[2].clone())).collect();
    for (account, unit, balance) in [
        // 15,000 came and stayed, 20,000 came and went back.
        ("assets:providers:payme", "UZS", "15000.00"),
        ("assets:providers:click", "BTC", "0.00000001"),
        ("assets:providers:uzum", "BTC", "1234567890.12345678"),
        // Nobody by this name takes money for us.
        ("assets:providers:other", "XTR", "50"),
        ("income:fees", "UZS", "-5000.00"),
        ("income:refunds", "UZS", "1000.01"),
        ("equity:adjustments", "UZS", "-0.01"),
        ("equity:other:grant", "CREDIT", "1000"),
        ("equity:other:use", "CREDIT", "-3"),
        ("liabilities:wallets:acme:promo-1", "CREDIT", "-1000"),
        ("liabilities:wallets:acme:main", "CREDIT", "3"),
    ] {
        assert_eq!(
            accounts.get(&(account.to_owned(), unit.to_owned())).map(String::as_str),
            Some(balance),
            "{account}"
        );
    }
    let journal = file(&app, folder.path(), "beancount", &["--tenant", "acme"]).await;
    let all = bean_query(&journal, "SELECT account, currency, str(sum(number)) GROUP BY account, currency").await;
    let mut by_beancount: Vec<Decimal> = all.iter().map(|line| exact(&line[2])).collect();
    by_beancount.sort();
    let mut by_hledger: Vec<Decimal> = accounts.values().map(|amount| amount.parse().unwrap()).collect();
    by_hledger.sort();
    by_beancount.retain(|amount| !amount.is_zero());
    by_hledger.retain(|amount| !amount.is_zero());
    assert_eq!(by_beancount, by_hledger, "the two journals say the same");
}

/// What a wallet's row says in each place where text from outside stands.
type Texts = Vec<(String, String, String)>;

#[tokio::test]
async fn c85_the_real_programs_read_every_text_as_it_was_written() {
    let app = world().await;
    with_broken_texts(&app).await;
    let folder = tempfile::tempdir().unwrap();
    let expected = sums(&app).await;
    let texts: Vec<(String, Option<String>, String)> = sqlx::query_as(
        "SELECT reference, reason, actor FROM wallet_transactions WHERE tenant_id IN ('a', 'a:b') ORDER BY tenant_id, seq",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap();
    let trimmed = |text: &str| text.trim().to_owned();
    let mut written: Texts = texts
        .iter()
        .map(|(reference, reason, actor)| {
            (trimmed(reference), trimmed(reason.as_deref().unwrap_or_default()), trimmed(actor))
        })
        .collect();
    written.sort();

    let journal = file(&app, folder.path(), "hledger", &[]).await;
    assert_eq!(sums_by_hledger(&journal).await, expected);
    let printed: Value =
        serde_json::from_str(&hledger(&journal, &["print", "-O", "json", "^liabilities:wallets:(a|a%3Ab):"]).await)
            .unwrap();
    let mut read: Texts = Vec::new();
    for transaction in printed.as_array().unwrap() {
        let tags: BTreeMap<&str, &str> = transaction["ttags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tag| (tag[0].as_str().unwrap(), tag[1].as_str().unwrap()))
            .collect();
        let tag = |name: &str| trimmed(&percent_decoded(tags.get(name).copied().unwrap_or_default()));
        read.push((tag("reference"), tag("reason"), tag("actor")));
    }
    read.sort();
    assert_eq!(read, written);

    let journal = file(&app, folder.path(), "beancount", &[]).await;
    assert_eq!(sums_by_beancount(&journal).await, expected);
    let query = "SELECT entry_meta('reference'), entry_meta('reason'), entry_meta('actor')
                  WHERE account ~ '^Liabilities:Wallets:T-(a|a-3ab):'";
    let mut read: Texts = Vec::new();
    for line in bean_query(&journal, query).await {
        let [reference, reason, actor] = &line[..] else { panic!("{line:?}") };
        let decoded = |text: &String| trimmed(&percent_decoded(text));
        read.push((decoded(reference), decoded(reason), decoded(actor)));
    }
    read.sort();
    assert_eq!(read, written);
    same_lines(&app, &[], None, None, None).await;
}

type Line = Vec<String>;

async fn csv_of_the_program(app: &TestApp, arguments: &[&str]) -> Vec<Line> {
    let mut all = vec!["--format", "csv"];
    all.extend(arguments);
    let text = exported(app, &all).await;
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let headers: Vec<String> = reader.headers().unwrap().iter().map(ToOwned::to_owned).collect();
    assert_eq!(
        headers.join(" "),
        "tenant_id currency seq kind amount pocket reference original_seq reason actor recorded_at balance_after date"
    );
    let plain = |cell: &str| cell.strip_prefix('\'').unwrap_or(cell).to_owned();
    reader.records().map(|record| record.unwrap().iter().map(plain).collect()).collect()
}

/// The same table, made by the database alone, with its own knowledge of time zones.
async fn csv_by_sql(app: &TestApp, from: Option<&str>, to: Option<&str>, tenant: Option<&str>) -> Vec<Line> {
    let day = |text: Option<&str>| text.map(|text| text.parse::<NaiveDate>().unwrap());
    let rows: Vec<Line> = sqlx::query_scalar(
        "WITH dated AS (
             SELECT w.tenant_id AS owner, w.currency AS unit, x.*, c.exponent,
                    (x.recorded_at AT TIME ZONE t.time_zone)::date AS day,
                    to_char(($1::date::timestamp AT TIME ZONE t.time_zone) AT TIME ZONE 'UTC',
                            'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS begins,
                    sum(x.amount) OVER (PARTITION BY x.wallet_id ORDER BY x.seq) AS balance
               FROM wallet_transactions x
               JOIN wallets w USING (wallet_id)
               JOIN tenants t ON t.tenant_id = w.tenant_id
               JOIN currencies c ON c.code = w.currency
              WHERE $3::text IS NULL OR w.tenant_id = $3
         ), opened AS (
             SELECT owner, unit, pocket, exponent, begins, sum(amount) AS amount
               FROM dated WHERE day < $1 GROUP BY owner, unit, pocket, exponent, begins HAVING sum(amount) <> 0
         ), lines AS (
             SELECT owner, unit, 0 AS seq, pocket, ARRAY[
                    owner, unit, '0', 'opening_balance', (amount / 10::numeric ^ exponent)::numeric(30, 8)::text, pocket,
                    '', '', '', '', begins,
                    (sum(amount) OVER (PARTITION BY owner, unit ORDER BY pocket) / 10::numeric ^ exponent)::numeric(30, 8)::text,
                    $1::text, exponent::text] AS line
               FROM opened
             UNION ALL
             SELECT owner, unit, seq, pocket, ARRAY[
                    owner, unit, seq::text, kind, (amount / 10::numeric ^ exponent)::numeric(30, 8)::text, pocket,
                    reference, coalesce(original_seq::text, ''), coalesce(reason, ''), actor,
                    to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                    (balance / 10::numeric ^ exponent)::numeric(30, 8)::text, day::text, exponent::text]
               FROM dated WHERE day >= coalesce($1, '-infinity') AND day <= coalesce($2, 'infinity')
         )
         SELECT line FROM lines ORDER BY owner, unit, seq, pocket",
    )
    .bind(day(from))
    .bind(day(to))
    .bind(tenant)
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap();
    let cut = |mut line: Line| {
        let exponent: usize = line.pop().unwrap().parse().unwrap();
        for amount in [4, 11] {
            let text = &mut line[amount];
            let digits = if exponent == 0 { 9 } else { 8 - exponent };
            text.truncate(text.len() - digits);
        }
        line
    };
    rows.into_iter().map(cut).collect()
}

/// The program's table and the database's are the same, line by line.
async fn same_lines(app: &TestApp, arguments: &[&str], from: Option<&str>, to: Option<&str>, tenant: Option<&str>) {
    let lines = csv_of_the_program(app, arguments).await;
    let expected = csv_by_sql(app, from, to, tenant).await;
    for (line, expected) in lines.iter().zip(&expected) {
        assert_eq!(line, expected, "{arguments:?}");
    }
    assert_eq!(lines.len(), expected.len(), "{arguments:?}");
}

#[tokio::test]
async fn c69_the_table_is_what_sql_says_and_a_day_is_the_tenants_own() {
    let app = world().await;
    for (from, to) in [
        (None, None),
        (Some("2026-12-01"), None),
        (Some("2027-01-07"), Some("2027-01-07")),
        (Some("2027-01-08"), None),
        (None, Some("2027-01-07")),
        (None, Some("2026-01-01")),
        (Some("2027-01-10"), Some("2030-01-01")),
    ] {
        for tenant in [None, Some("acme"), Some("ACME"), Some("empty")] {
            let mut arguments = Vec::new();
            for (name, value) in [("--from", from), ("--to", to), ("--tenant", tenant)] {
                arguments.extend(value.map(|value| [name, value]).into_iter().flatten());
            }
            same_lines(&app, &arguments, from, to, tenant).await;
        }
    }
    // The same instant is on three days.
    let lines = csv_of_the_program(&app, &[]).await;
    let tick = |tenant: &str| lines.iter().find(|line| line[0] == tenant && line[6] == "tick-10").unwrap();
    for (tenant, day) in [("acme", "2027-01-08"), ("ACME", "2027-01-09"), ("a", "2027-01-07")] {
        assert_eq!(
            (tick(tenant)[10].as_str(), tick(tenant)[12].as_str()),
            ("2027-01-08T10:00:00.000000Z", day),
            "{tenant}"
        );
    }
}

#[tokio::test]
async fn pages_end_where_they_like_and_heads_are_not_believed() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.tenant("large").await;
    let mut conn = intruder(&app).await;
    // More wallets than a page has, of every size around a page of rows, and one with a head that says it is
    // empty, which would be read with many others.
    let filled = "WITH t AS (
                      INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
                      SELECT 'many-' || n, 'n', 'Asia/Tashkent', 'en', now() FROM generate_series(1, 2345) n
                  )
                  INSERT INTO wallets (tenant_id, currency, created_at, head_seq, head_recorded_at)
                  SELECT 'many-' || n, 'UZS', now(), n % 7, CASE WHEN n % 7 > 0 THEN now() END
                    FROM generate_series(1, 2345) n";
    sqlx::query(filled).execute(&mut conn).await.unwrap();
    sqlx::query(
        "INSERT INTO wallet_transactions (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference,
                                          actor, metadata, recorded_at, hash)
         SELECT w.wallet_id, n, w.tenant_id, w.currency, 'tick', n, CASE n % 3 WHEN 0 THEN 'main' ELSE 'odd' END, n,
                'job:test', '{}', timestamptz '2026-12-01' + n * interval '1 minute', sha256('')
           FROM wallets w
          CROSS JOIN LATERAL generate_series(1, CASE w.tenant_id
                WHEN 'large' THEN 7000 WHEN 'many-7' THEN 2000 WHEN 'many-14' THEN 4000 WHEN 'many-70' THEN 2001
                WHEN 'many-700' THEN 1999 ELSE w.head_seq END) n",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    for (from, to) in
        [(None, None), (Some("2026-12-02"), None), (None, Some("2026-12-02")), (Some("2026-12-03"), Some("2026-12-03"))]
    {
        let mut arguments = Vec::new();
        for (name, value) in [("--from", from), ("--to", to)] {
            arguments.extend(value.map(|value| [name, value]).into_iter().flatten());
        }
        same_lines(&app, &arguments, from, to, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_posted_meanwhile_is_in_it_as_a_whole_or_not_at_all() {
    let app = TestApp::start().await;
    // More rows than a page has, so that the wallets are read by statements of their own.
    for tenant in ["first", "second"] {
        app.tenant(tenant).await;
        post(&app, (0..2_100).map(|number| entry(tenant, "tick", 1, &format!("before-{number}"))).collect()).await;
    }
    let done = AtomicBool::new(false);
    let posting = async {
        for round in 0_i64.. {
            if done.load(Ordering::Relaxed) {
                return round;
            }
            // The same amount to both, so that a snapshot has both or none.
            let batch = ["first", "second"].into_iter().flat_map(|tenant| {
                (0..50).map(move |number| entry(tenant, "tick", round + number + 1, &format!("{round}-{number}")))
            });
            post(&app, batch.collect()).await;
        }
        0
    };
    let looking = async {
        let mut seen = Vec::new();
        while seen.len() < 8 {
            let lines = csv_of_the_program(&app, &[]).await;
            let mut balances: BTreeMap<String, (i64, Decimal)> = BTreeMap::new();
            for line in &lines {
                let (seq, balance) = balances.entry(line[0].clone()).or_default();
                *seq += 1;
                assert_eq!(line[2], seq.to_string(), "no row is missing, none comes twice");
                *balance += line[4].parse::<Decimal>().unwrap();
                assert_eq!(line[11], balance.to_string());
            }
            assert_eq!(balances.get("first"), balances.get("second"), "a half batch");
            for (tenant, (seq, balance)) in &balances {
                let sum: i64 = sqlx::query_scalar(
                    "SELECT SUM(amount)::bigint FROM wallet_transactions WHERE tenant_id = $1 AND seq <= $2",
                )
                .bind(tenant)
                .bind(seq)
                .fetch_one(&mut app.superuser().await)
                .await
                .unwrap();
                assert_eq!(Decimal::new(sum, 2), *balance, "{tenant}");
            }
            seen.push(lines.len());
        }
        done.store(true, Ordering::Relaxed);
        seen
    };
    let (rounds, seen) = tokio::join!(posting, looking);
    assert!(rounds > 1 && seen.first() < seen.last(), "nothing happened meanwhile: {rounds} {seen:?}");
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_crash() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    for round in 0..4 {
        post(&app, (0..1_000).map(|number| entry("acme", "tick", 1, &format!("{round}-{number}"))).collect()).await;
    }
    for format in ["csv", "hledger", "beancount"] {
        let mut command = exporting(&app, &["--format", format]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut beginning = [0; 10];
        stdout.read_exact(&mut beginning).await.unwrap();
        drop(stdout);
        let output = tokio::time::timeout(Duration::from_mins(1), child.wait_with_output()).await.unwrap().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("hamyon: the export can't be written: ") && said.lines().count() == 1, "{said}");
    }
    // A device that is full.
    let full = run(&mut exporting(&app, &["--format", "csv", "--output", "/dev/full"])).await;
    assert_eq!(full.status.code(), Some(1), "{}", said(&full));
    assert!(said(&full).contains("No space left"), "{}", said(&full));
    assert!(!std::fs::metadata("/dev/full").unwrap().is_file(), "a device is written to, not replaced");
    let nothing = run(&mut exporting(&app, &["--format", "csv", "--output", "/dev/null"])).await;
    assert_eq!(nothing.status.code(), Some(0), "{}", said(&nothing));
}

#[tokio::test]
async fn a_file_is_complete_or_what_it_was() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 1).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.csv");
    let link = folder.path().join("link.csv");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::write(&path, "what it was").unwrap();
    let there = || {
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for (arguments, about) in [
        (&["--tenant", "nobody"][..], "there is no tenant nobody"),
        (&["--from", "2026-12-02", "--to", "2026-12-01"], "the last day, 2026-12-01, is before the first, 2026-12-02"),
    ] {
        let mut all = vec!["--format", "csv", "--output", link.to_str().unwrap()];
        all.extend(arguments);
        let refused = run(&mut exporting(&app, &all)).await;
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(said(&refused).contains(about), "{}", said(&refused));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "what it was");
        assert_eq!(there(), ["book.csv", "link.csv"], "nothing is left");
    }
    // In the middle of it: a row that nobody can date.
    let mut conn = intruder(&app).await;
    sqlx::query("UPDATE wallet_transactions SET recorded_at = 'infinity'").execute(&mut conn).await.unwrap();
    let all = ["--format", "csv", "--output", link.to_str().unwrap()];
    let broken = run(&mut exporting(&app, &all)).await;
    assert_eq!(broken.status.code(), Some(1), "{}", said(&broken));
    assert!(said(&broken).contains("run `hamyon verify`"), "{}", said(&broken));
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), there().len()), ("what it was", 2));
    sqlx::query("UPDATE wallet_transactions SET recorded_at = now()").execute(&mut conn).await.unwrap();
    let done = run(&mut exporting(&app, &all)).await;
    assert_eq!(said(&done), "1 wallets, 0 openings, 1 rows\n");
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written.lines().count(), 2, "{written}");
    assert!(written.contains("\r\nacme,UZS,1,top_up,0.01,main,fund-") && written.ends_with("\r\n"), "{written}");
    assert_eq!(there(), ["book.csv", "link.csv"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink(), "what the link leads to was written");
    for day in ["2026-1-1", "2026-13-01", "01.12.2026", "2026-12-1x", "+026-12-01", ""] {
        let wrong = run(&mut exporting(&app, &["--format", "csv", "--from", day])).await;
        assert_eq!(wrong.status.code(), Some(2), "{day}: {}", said(&wrong));
    }
}

/// A small book, for the manual.
async fn small_book() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.payme_created("5305e3bab097f420a62ced0b", "acme", 1_500_000).await;
    app.payme("PerformTransaction", json!({ "id": "5305e3bab097f420a62ced0b" })).await;
    app.clock.advance(TimeDelta::seconds(1));
    let fee = Entry { reason: None, ..entry("acme", "subscription_fee", -500_000, "fee:1:2026-12") };
    post(&app, vec![fee]).await;
    app.clock.advance(TimeDelta::days(1));
    let sorry = Reason::parse("half a day down, sorry").unwrap();
    let refund = Entry { original_seq: Some(2), reason: Some(sorry), ..entry("acme", "refund", 100_000, "ticket-7") };
    let bonus = Entry { reason: None, ..in_pocket("acme", "CREDIT", "promo:2026", "bonus", 50, "welcome") };
    post(&app, vec![refund, bonus]).await;
    // 00:30 of the new year in Tashkent.
    until(&app, "2026-12-31T19:30:00Z");
    let formula = Reason::parse("=1+1").unwrap();
    post(&app, vec![Entry { reason: Some(formula), ..entry("acme", "adjustment", -50, "ticket-8") }]).await;
    app
}

#[tokio::test]
async fn the_manual_shows_what_comes_out() {
    let app = small_book().await;
    let manual = include_str!("../../docs/exports.md");
    let mut outputs = String::new();
    for format in ["csv", "hledger", "beancount"] {
        for from in [None, Some("2027-01-01")] {
            let mut arguments = vec!["--format", format];
            arguments.extend(from.map(|day| ["--from", day]).into_iter().flatten());
            writeln!(outputs, "{}", exported(&app, &arguments).await.replace("\r\n", "\n")).unwrap();
        }
    }
    let mut examples = 0;
    for language in ["csv", "ledger", "beancount"] {
        for block in manual.split(&format!("```{language}\n")).skip(1) {
            let example = block.split("```").next().unwrap();
            assert!(outputs.contains(example), "this is in the manual, and doesn't come out:\n{example}\n{outputs}");
            examples += 1;
        }
    }
    assert!(examples >= 5, "{examples} examples");
}
