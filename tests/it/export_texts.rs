//! Whoever may choose a tenant's id, a reference or a reason must not be able to write a row of his own into
//! the export, to hide one, to make two tenants look like one, or to run a formula on the accountant's machine.
//! The formats are pure, so they are fed with anything here; the real readers come in `export.rs`.

use std::collections::BTreeMap;

use hamyon::export::{Beancount, Csv, Exported, Format, Hledger, Opening, Row, Selection, Wallet, text};
use hamyon::ids::TenantId;
use hamyon::ledger::Kind;
use hamyon::money::{Currency, CurrencyCode, Exponent, MinorUnits};
use hamyon::tenant::TimeZone;
use proptest::prelude::*;

use crate::support::exports::{dash_decoded, percent_decoded};

/// What a forger would try, and what an honest customer might have in his name.
pub const NASTY: [&str; 38] = [
    "plain:1",
    "two  spaces  and\ttabs",
    " white space around \u{a0}",
    "\u{3000}wide",
    "; a comment",
    "a ; b",
    "a | b",
    "a, actor:forged, seq:99",
    "date:2020-01-01",
    "[2020-13-45]",
    "[2020-01-01=2020-01-02]",
    "\"quoted\"",
    "a \" b",
    "back\\slash\\",
    "\\\"",
    "\\n",
    "%41%",
    "50% off",
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "＝1",
    "'=1",
    "'",
    "line\n2026-12-01 (1) forged\n    liabilities:wallets:acme:main  -1 UZS\n    income:fees  1 UZS\n",
    "line\r\n2026-12-01 * \"forged\"\r\n  Income:Fees  1 UZS\r\n",
    "end\" \n2026-12-01 open Assets:Forged\n2026-12-01 * \"",
    "\u{202e}sdrawkcab\u{2066}\u{200f}\u{61c}",
    "\u{feff}a\u{2028}b\u{2029}c\u{85}d\u{7}e\u{1b}[31m",
    "emoji 😀 Ўзбекистон o‘zbek 中文",
    "* ! (code) status",
    "(virtual)",
    "account:with:colons",
    "",
];

fn wallet(tenant_id: &str, code: &str, exponent: u8) -> Wallet {
    Wallet {
        wallet_id: 7,
        tenant_id: TenantId::parse(tenant_id).unwrap(),
        currency: Currency { code: CurrencyCode::parse(code).unwrap(), exponent: Exponent::parse(exponent).unwrap() },
        time_zone: TimeZone::TASHKENT,
    }
}

fn row(reference: &str, reason: Option<&str>, pocket: &str, actor: &str) -> Row {
    Row {
        seq: 3,
        kind: Kind::parse("purchase").unwrap(),
        amount: MinorUnits::new(-1_050),
        pocket: pocket.to_owned(),
        reference: reference.to_owned(),
        original_seq: None,
        original_kind: None,
        reason: reason.map(ToOwned::to_owned),
        actor: actor.to_owned(),
        recorded_at: "2026-12-01T20:30:00Z".parse().unwrap(),
        balance_after: MinorUnits::new(-1_050),
    }
}

/// The text of one row.
fn written<'a, F: Format + 'a>(new: impl Fn(&'a mut Vec<u8>) -> F, out: &'a mut Vec<u8>, wallet: &Wallet, row: &Row) {
    let mut format = new(out);
    format.row(wallet, row).unwrap();
    format.end(&Exported::default()).unwrap();
}

fn hledger(wallet: &Wallet, row: &Row) -> String {
    let mut out = Vec::new();
    written(Hledger::new, &mut out, wallet, row);
    String::from_utf8(out).unwrap()
}

fn beancount(wallet: &Wallet, row: &Row) -> String {
    let mut out = Vec::new();
    written(Beancount::new, &mut out, wallet, row);
    String::from_utf8(out).unwrap()
}

fn csv(wallet: &Wallet, row: &Row) -> Vec<u8> {
    let mut out = Vec::new();
    written(Csv::new, &mut out, wallet, row);
    out
}

#[test]
fn s1_what_is_given_back_leaves_the_account_that_it_came_to() {
    for (original, in_hledger, in_beancount) in [
        ("subscription_fee", "income:refunds", "Income:Refunds"),
        ("hold_charge", "income:refunds", "Income:Refunds"),
        ("booking", "income:refunds", "Income:Refunds"),
        ("adjustment", "equity:adjustments", "Equity:Adjustments"),
        ("purchase", "equity:other:purchase", "Equity:Other:Purchase"),
    ] {
        let original_kind = Some(Kind::parse(original).unwrap());
        let (kind, amount) = (Kind::parse("refund").unwrap(), MinorUnits::new(500));
        let row = Row { kind, amount, original_seq: Some(2), original_kind, ..row("r", None, "main", "a") };
        let wallet = wallet("acme", "UZS", 2);
        assert!(hledger(&wallet, &row).contains(&format!("    {in_hledger} ")), "{}", hledger(&wallet, &row));
        assert!(beancount(&wallet, &row).contains(&format!("  {in_beancount} ")), "{}", beancount(&wallet, &row));
    }
    let booking = Row { kind: Kind::parse("booking").unwrap(), ..row("r", None, "main", "a") };
    assert!(hledger(&wallet("acme", "UZS", 2), &booking).contains("income:bookings "), "what a slot cost is earned");
}

/// Nothing that ends a line, but for the ends of our own lines, and nothing that turns the text round.
fn nothing_is_hidden(text: &str) {
    for character in text.chars().filter(|character| *character != '\n') {
        let direction = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(character, '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
        assert!(!character.is_control() && !direction, "{character:?} in {text}");
    }
}

/// The facts that a row must have, whatever its texts are.
fn facts(row: &Row) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("wallet".to_owned(), "7".to_owned()),
        ("tenant".to_owned(), "acme".to_owned()),
        ("reference".to_owned(), row.reference.clone()),
        ("actor".to_owned(), row.actor.clone()),
        ("recorded_at".to_owned(), "2026-12-01T20:30:00.000000Z".to_owned()),
    ]);
    facts.extend(row.reason.clone().map(|reason| ("reason".to_owned(), reason)));
    facts
}

/// A posting's line: account, two spaces, amount and unit.
fn posting<'a>(line: &'a str, indent: &str) -> (&'a str, &'a str) {
    let (account, amount) = line.strip_prefix(indent).unwrap().split_once("  ").unwrap();
    (account, amount.trim_start())
}

fn check_hledger(row: &Row) {
    let written = hledger(&wallet("acme", "UZS", 2), row);
    nothing_is_hidden(&written);
    let lines: Vec<&str> = written.lines().filter(|line| !line.is_empty()).collect();
    let [held, contra, head, middle @ .., first, second, end] = &lines[..] else { panic!("{written}") };
    assert_eq!(*contra, "account equity:other:purchase");
    assert!(head.starts_with("2026-12-02 (3) purchase"), "{head}");
    assert!(!head.contains([';', '|']), "{head}");
    let mut read = BTreeMap::new();
    for line in middle {
        let (name, value) = line.strip_prefix("    ; ").unwrap().split_once(':').unwrap();
        assert!(!value.contains(',') && value.trim() == value, "the value goes on to the end of the line: {line:?}");
        read.insert(name.to_owned(), percent_decoded(value));
    }
    assert_eq!(read, facts(row), "{written}");
    assert_eq!(read.len(), middle.len(), "each fact once");
    let (account, amount) = posting(first, "    ");
    assert_eq!((format!("account {account}"), amount), ((*held).to_owned(), "10.50 UZS"));
    let pocket = account.strip_prefix("liabilities:wallets:acme:").unwrap();
    assert!(!pocket.contains(':') && percent_decoded(pocket) == row.pocket, "{account}");
    assert_eq!(posting(second, "    "), ("equity:other:purchase", "-10.50 UZS"));
    assert_eq!(*end, "; The end: 0 wallets, 0 openings, 0 rows.");
}

/// What beancount reads between two quotes.
fn unquoted(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_else(|| panic!("{text}"));
    let mut read = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        assert_ne!(character, '"', "the string ends too early: {text}");
        read.push(if character == '\\' { characters.next().expect("the string ends") } else { character });
    }
    percent_decoded(&read)
}

fn check_beancount(row: &Row) {
    let written = beancount(&wallet("acme", "UZS", 2), row);
    nothing_is_hidden(&written);
    let lines: Vec<&str> = written.lines().filter(|line| !line.is_empty()).collect();
    let [held, contra, head, seq, middle @ .., first, second, end] = &lines[..] else { panic!("{written}") };
    assert_eq!(*contra, "1970-01-01 open Equity:Other:Purchase");
    assert_eq!(unquoted(head.strip_prefix("2026-12-02 * ").unwrap()), format!("purchase {}", row.reference));
    assert_eq!(*seq, "  seq: 3");
    let mut read = BTreeMap::new();
    for line in middle {
        let (name, value) = line.strip_prefix("  ").unwrap().split_once(": ").unwrap();
        read.insert(name.to_owned(), if name == "wallet" { value.to_owned() } else { unquoted(value) });
    }
    assert_eq!(read, facts(row), "{written}");
    assert_eq!(read.len(), middle.len(), "each fact once");
    let (account, amount) = posting(first, "  ");
    assert_eq!((format!("1970-01-01 open {account}"), amount), ((*held).to_owned(), "10.50 UZS"));
    account_of_beancount(account);
    assert_eq!(posting(second, "  "), ("Equity:Other:Purchase", "-10.50 UZS"));
    assert_eq!(*end, "; The end: 0 wallets, 0 openings, 0 rows.");
}

/// Checks the rule of beancount's own manual.
fn account_of_beancount(account: &str) {
    for part in account.split(':') {
        let first = part.bytes().next().unwrap_or_else(|| panic!("an empty part: {account}"));
        assert!(first.is_ascii_uppercase() || first.is_ascii_digit(), "{account}");
        assert!(part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{account}");
    }
}

fn check_csv(row: &Row) {
    let written = csv(&wallet("acme", "UZS", 2), row);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&written[..]);
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let [record] = &records[..] else { panic!("{} lines: {written:?}", records.len()) };
    let plain = |cell: &str| cell.strip_prefix('\'').unwrap_or(cell).to_owned();
    let cells: Vec<&str> = record.iter().collect();
    for (at, cell) in cells.iter().enumerate() {
        let amount = at == 4 || at == 11;
        assert!(amount || !cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']), "a formula: {cell:?}");
    }
    assert_eq!(
        cells.iter().map(|cell| plain(cell)).collect::<Vec<_>>(),
        [
            "acme",
            "UZS",
            "3",
            "purchase",
            "-10.50",
            &row.pocket,
            &row.reference,
            "",
            row.reason.as_deref().unwrap_or_default(),
            &row.actor,
            "2026-12-01T20:30:00.000000Z",
            "-10.50",
            "2026-12-02",
        ]
    );
}

fn check(row: &Row) {
    check_hledger(row);
    check_beancount(row);
    check_csv(row);
}

#[test]
fn c85_no_text_is_read_as_anything_but_text() {
    let long = "x\n; \",".repeat(2_048);
    for nasty in NASTY.into_iter().chain([&long[..]]) {
        check(&row(nasty, Some(nasty), nasty, nasty));
        check(&row(nasty, None, "main", "payme"));
    }
}

/// Any text, and often enough one that is made of what could do harm.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-=+@'\"\\\\;:|,%#*!()\\[\\]{}\t\r\n \u{a0}\u{2028}\u{202e}a-cA-C0-9]{0,40}",
        proptest::sample::select(&NASTY[..]).prop_map(ToOwned::to_owned),
    ]
}

proptest! {
    #[test]
    fn c85_any_texts_come_back_as_they_were(
        reference in any_text(), reason in proptest::option::of(any_text()), pocket in any_text(), actor in any_text(),
    ) {
        check(&row(&reference, reason.as_deref(), &pocket, &actor));
    }

    #[test]
    fn two_names_never_become_one(name in any_text()) {
        // What can be turned back was not shared with another.
        prop_assert_eq!(&percent_decoded(&text::hledger_part(&name)), &name);
        let tenant = text::beancount_part("T-", &name);
        account_of_beancount(&tenant);
        prop_assert_eq!(&dash_decoded(tenant.strip_prefix("T-").unwrap()), &name);
        let pocket = text::beancount_name(&name);
        account_of_beancount(&pocket);
        prop_assert_eq!(&named(&pocket), &name);
    }

    #[test]
    fn every_unit_has_a_name_of_its_own(code in "[A-Z][A-Z0-9_]{0,15}") {
        let unit = text::beancount_unit(&code);
        unit_of_beancount(&unit);
        prop_assert_eq!(unit.strip_suffix(".X").unwrap_or(&unit), &code);
        let quoted = text::hledger_unit(&code);
        prop_assert_eq!(quoted.trim_matches('"'), &code);
        prop_assert_eq!(quoted.starts_with('"'), !code.bytes().all(|byte| byte.is_ascii_alphabetic()));
    }
}

/// The name that a part of an account stands for.
fn named(part: &str) -> String {
    if let Some(other) = part.strip_prefix("X-X") {
        return dash_decoded(other);
    }
    let (first, rest) = part.split_at(1);
    dash_decoded(&format!("{}{rest}", first.to_ascii_lowercase()))
}

/// Checks the rule of beancount's own manual.
fn unit_of_beancount(unit: &str) {
    assert!((2..=24).contains(&unit.len()), "{unit}");
    assert!(unit.bytes().next().is_some_and(|first| first.is_ascii_uppercase()), "{unit}");
    assert!(unit.bytes().last().is_some_and(|last| last.is_ascii_uppercase() || last.is_ascii_digit()), "{unit}");
    assert!(!["TRUE", "FALSE", "NULL"].contains(&unit), "{unit}");
}

#[test]
fn names_are_written_as_the_manual_says() {
    for (name, part) in [
        ("acme", "T-acme"),
        ("acme-1", "T-acme--1"),
        ("joe@x.uz", "T-joe-40x-2euz"),
        ("a:b", "T-a-3ab"),
        ("A_b", "T-A-5fb"),
        ("-", "T---"),
    ] {
        assert_eq!(text::beancount_part("T-", name), part);
    }
    for (name, part) in [
        ("main", "Main"),
        ("promo-grant", "Promo--grant"),
        ("day:2026", "Day-3a2026"),
        ("2x", "2x"),
        ("Main", "X-XMain"),
        ("x-x", "X--x"),
        ("", "X-X"),
    ] {
        assert_eq!(text::beancount_name(name), part);
    }
    for (code, unit) in [("UZS", "UZS"), ("X", "X.X"), ("A_", "A_.X"), ("TRUE", "TRUE.X"), ("A_1", "A_1")] {
        assert_eq!(text::beancount_unit(code), unit);
    }
    for (name, part) in [("acme", "acme"), ("a:b", "a%3Ab"), ("joe@x.uz+1-2_3", "joe@x.uz+1-2_3"), ("", "%")] {
        assert_eq!(text::hledger_part(name), part);
    }
    for (value, written) in [
        ("late, sorry", "late%2C sorry"),
        (" 50% ", "%2050%25%20"),
        ("  ", "%20%20"),
        ("a\nb", "a%0Ab"),
        ("o‘zbek 中文", "o‘zbek 中文"),
    ] {
        assert_eq!(text::hledger_tag_value(value), written);
    }
    for (value, written) in [("=1", "'=1"), ("'", "''"), ("1-2", "1-2"), ("", "")] {
        assert_eq!(text::cell(value), written);
    }
}

#[test]
fn every_amount_is_exact_and_an_account_is_declared_once() {
    let mut out = Vec::new();
    let mut journal = Beancount::new(&mut out);
    let currencies = [("A", 8), ("UZS", 2)].map(|(code, exponent)| wallet("acme", code, exponent).currency);
    journal.begin(&Selection::default(), &currencies).unwrap();
    let opening = Opening {
        pocket: "main".to_owned(),
        amount: MinorUnits::new(i64::MIN),
        day: "2026-12-01".parse().unwrap(),
        at: "2026-11-30T19:00:00Z".parse().unwrap(),
        balance_after: MinorUnits::new(i64::MIN),
    };
    for (tenant, code, exponent) in [("acme", "A", 8), ("acme", "UZS", 2), ("other", "UZS", 2)] {
        let wallet = wallet(tenant, code, exponent);
        journal.opening(&wallet, &opening).unwrap();
        let amount = MinorUnits::new(i64::MAX);
        journal.row(&wallet, &Row { amount, ..row("r", None, "main", "job:test") }).unwrap();
    }
    journal.end(&Exported { wallets: 3, openings: 3, rows: 3 }).unwrap();
    let written = String::from_utf8(out).unwrap();
    let opened: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("1970-01-01 open ")).collect();
    assert_eq!(
        opened,
        [
            "Liabilities:Wallets:T-acme:Main",
            "Equity:Opening-Balances",
            "Equity:Other:Purchase",
            "Liabilities:Wallets:T-other:Main"
        ]
    );
    for line in [
        "1970-01-01 commodity A.X\n  unit: \"A\"\n",
        "  Liabilities:Wallets:T-acme:Main   92233720368.54775808 A.X\n",
        "  Equity:Opening-Balances          -92233720368.54775808 A.X\n",
        "  Liabilities:Wallets:T-acme:Main  -92233720368.54775807 A.X\n",
        "  Liabilities:Wallets:T-other:Main  -92233720368547758.07 UZS\n",
    ] {
        assert!(written.contains(line), "{line} is missing in {written}");
    }
}
