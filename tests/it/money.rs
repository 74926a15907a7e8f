//! Money between text and whole minor units: a digit lost here is somebody's money, and a digit invented
//! is ours.

use hamyon::money::{AmountError, Currency, CurrencyCode, Exponent, MinorUnits};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Call, batch, posting};

fn unit(exponent: u8) -> Currency {
    Currency {
        code: CurrencyCode::parse("UNIT").expect("a code"),
        exponent: Exponent::parse(exponent).expect("an exponent"),
    }
}

#[test]
fn text_is_read_to_the_tiyin() {
    for (text, exponent, units) in [
        ("15000.5", 2, 1_500_050),
        ("15000.50", 2, 1_500_050),
        ("15000", 2, 1_500_000),
        ("0.01", 2, 1),
        ("-0.01", 2, -1),
        ("-15000.5", 2, -1_500_050),
        ("0", 2, 0),
        ("0.00", 2, 0),
        ("007", 2, 700),
        ("000000000000000000000000000001", 2, 100),
        ("7", 0, 7),
        ("-7", 0, -7),
        ("0.00000001", 8, 1),
        ("1", 8, 100_000_000),
        ("92233720368547758.07", 2, i64::MAX),
        ("-92233720368547758.08", 2, i64::MIN),
        ("9223372036854775807", 0, i64::MAX),
        ("-9223372036854775808", 0, i64::MIN),
        ("92233720368.54775807", 8, i64::MAX),
        ("-92233720368.54775808", 8, i64::MIN),
    ] {
        assert_eq!(MinorUnits::parse(text, &unit(exponent)), Ok(MinorUnits::new(units)), "{text} ({exponent})");
    }
}

#[test]
fn minus_zero_is_zero_and_is_never_written_with_a_sign() {
    for text in ["-0", "-0.0", "-0.00"] {
        let zero = MinorUnits::parse(text, &unit(2)).expect("zero");
        assert!(zero.is_zero() && !zero.is_negative(), "{text}");
        assert_eq!(zero.to_text(unit(2).exponent), "0.00");
    }
}

#[test]
fn what_is_finer_than_the_smallest_unit_is_refused_and_not_rounded() {
    for (text, exponent) in [("1.000", 2), ("1.001", 2), ("1.0", 0), ("0.000", 2), ("0.000000001", 8), ("-1.000", 2)] {
        let given = text.split('.').nth(1).expect("a fraction").len();
        let refused = AmountError::TooFine { currency: "UNIT".to_owned(), exponent, given };
        assert_eq!(MinorUnits::parse(text, &unit(exponent)), Err(refused), "{text} ({exponent})");
    }
}

#[test]
fn what_is_not_plain_digits_is_refused() {
    for text in [
        "",
        " ",
        "-",
        ".",
        "-.",
        "+1",
        "+0",
        "--1",
        "1-",
        "-+1",
        "1.",
        ".5",
        "-.5",
        "1..5",
        "1.5.",
        "1.5.5",
        " 1",
        "1 ",
        "1 000",
        "1,5",
        "1_000",
        "1'000",
        "1e3",
        "1E3",
        "1e-3",
        "1.5e3",
        "0x10",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "١٥",
        "1٫5",
        "１５",
        "½",
        "−1",
        "1\0",
        "\u{feff}1",
        "1\n",
        "so'm",
        "15000 UZS",
        "null",
        "true",
    ] {
        for exponent in [0, 2, 8] {
            assert_eq!(
                MinorUnits::parse(text, &unit(exponent)),
                Err(AmountError::NotANumber),
                "{text:?} with {exponent} digits"
            );
        }
    }
}

#[test]
fn what_an_i64_cannot_hold_is_refused() {
    for (text, exponent) in [
        ("92233720368547758.08", 2),
        ("-92233720368547758.09", 2),
        ("9223372036854775808", 0),
        ("-9223372036854775809", 0),
        ("92233720368547759", 2),
        ("92233720369", 8),
        ("99999999999999999999999999999999999999999999", 0),
    ] {
        assert_eq!(MinorUnits::parse(text, &unit(exponent)), Err(AmountError::TooLarge), "{text} ({exponent})");
    }
    assert_eq!(MinorUnits::new(i64::MAX).checked_add(MinorUnits::new(1)), None);
    assert_eq!(MinorUnits::new(i64::MIN).checked_sub(MinorUnits::new(1)), None);
    assert_eq!(MinorUnits::new(i64::MIN).checked_neg(), None);
    MinorUnits::sum([MinorUnits::new(i64::MAX), MinorUnits::new(1)]).expect_err("beyond an i64");
}

#[test]
fn a_currency_has_zero_to_eight_digits() {
    for digits in 0..=u8::MAX {
        assert_eq!(Exponent::parse(digits).is_ok(), digits <= 8, "{digits}");
        assert_eq!(Exponent::from_column(i16::from(digits)).is_ok(), digits <= 8, "{digits}");
    }
    Exponent::from_column(-1).expect_err("no digits below none");
}

/// The same by other means: whole numbers of 128 bits.
fn naive(text: &str, exponent: u8) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let mut parts = digits.split('.');
    let (whole, fraction) = (parts.next()?, parts.next());
    let fraction = match fraction {
        Some("") => return None,
        other => other.unwrap_or(""),
    };
    let all = format!("{whole}{fraction:0<width$}", width = usize::from(exponent));
    let plain = parts.next().is_none() && !whole.is_empty() && all.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || fraction.len() > usize::from(exponent) {
        return None;
    }
    i64::try_from(sign * all.parse::<i128>().ok()?).ok()
}

proptest! {
    #[test]
    fn units_to_text_and_back_are_the_same_units(units in any::<i64>(), exponent in 0_u8..=8) {
        let unit = unit(exponent);
        let text = MinorUnits::new(units).to_text(unit.exponent);
        prop_assert_eq!(MinorUnits::parse(&text, &unit), Ok(MinorUnits::new(units)), "{}", &text);
        let decimal = MinorUnits::new(units).to_decimal(unit.exponent);
        prop_assert_eq!(MinorUnits::from_decimal(decimal, &unit), Ok(MinorUnits::new(units)));
        let fraction = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        prop_assert_eq!(fraction, usize::from(exponent), "all of the currency's digits: {}", text);
    }

    #[test]
    fn numbers_of_any_length_are_read_as_arithmetic_says(text in "-?[0-9]{1,24}(\\.[0-9]{1,10})?", exponent in 0_u8..=8) {
        prop_assert_eq!(MinorUnits::parse(&text, &unit(exponent)).ok().map(MinorUnits::get), naive(&text, exponent));
    }

    #[test]
    fn no_text_is_a_number_unless_it_is_one(text in prop_oneof!["[-+0-9.,eE_ ]{0,12}", "\\PC{0,12}"], exponent in 0_u8..=8) {
        prop_assert_eq!(
            MinorUnits::parse(&text, &unit(exponent)).ok().map(MinorUnits::get), naive(&text, exponent), "{:?}", text
        );
    }
}

#[tokio::test]
async fn the_api_takes_money_as_text_and_never_as_a_json_number() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let before = app.everything_written().await;
    for amount in
        [json!(15000), json!(15000.5), json!(-1), json!(1e3), json!(null), json!(true), json!(["1"]), json!({})]
    {
        let mut item = posting("acme", "top_up", "1", "r");
        item["amount"] = amount.clone();
        let order = json!({ "order_id": "o", "tenant_id": "acme", "amount": amount, "title": "t" });
        let link = json!({ "provider": "payme", "tenant_id": "acme", "amount": amount });
        for (path, body) in
            [("/v1/transactions/batch", batch(&[item])), ("/v1/orders", order), ("/v1/payment-links", link)]
        {
            let call = Call::new("POST", path).token(&app.token).key("k").json(&body);
            call.send(&app).await.refused(400, "invalid_request", &format!("{path} {amount}"));
        }
    }
    // A number larger than a float holds exactly stays text, too.
    let raw = r#"{"transactions":[{"tenant_id":"acme","currency":"UZS","kind":"top_up","amount":9007199254740993,"reference":"r"}]}"#;
    let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("k");
    call.content_type("application/json").bytes(raw).send(&app).await.refused(400, "invalid_request", "a large number");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn the_api_names_the_field_of_a_bad_amount() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let before = app.everything_written().await;
    for amount in ["1.000", "1.", ".5", "+1", "1e3", "", " 1", "92233720368547758.08"] {
        let body = batch(&[posting("acme", "top_up", "1", "fine"), posting("acme", "top_up", amount, "r")]);
        let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("k").json(&body);
        let problem = call.send(&app).await.refused(400, "invalid_request", amount);
        assert_eq!(problem["field"], "transactions[1].amount");
        assert_eq!(problem["index"], 1);
    }
    for amount in ["0", "-0", "0.00", "-0.00"] {
        let body = batch(&[posting("acme", "bonus", amount, "r")]);
        let call = Call::new("POST", "/v1/transactions/batch").token(&app.token).key("k").json(&body);
        // C55: a row of nothing is no row.
        call.send(&app).await.refused(422, "wrong_sign", amount);
    }
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn c71_parts_of_a_sum_add_up_to_it_and_come_back_in_full() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    app.fund("acme", 60_000).await;
    // 600.00 over 7 items: six of 85.71 and one of 85.74.
    let parts = ["85.71", "85.71", "85.71", "85.71", "85.71", "85.71", "85.74"];
    let debits: Vec<Value> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| posting("acme", "purchase", &format!("-{part}"), &format!("item-{index}")))
        .collect();
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "debits", &batch(&debits)).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(app.sum("acme").await, 0);
    let refunds: Vec<Value> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            let mut refund = posting("acme", "refund", part, &format!("refund-{index}"));
            refund["transaction"] = json!(index + 2);
            refund
        })
        .collect();
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "refunds", &batch(&refunds)).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(app.sum("acme").await, 60_000);
    assert_eq!(app.get("/v1/tenants/acme/balance").await.1["balance"], "600.00");
}
