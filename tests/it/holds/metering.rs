//! At stake: what a call costs, to the unit, as the worked examples of the fixture say (H8).

use hamyon::hold::{ModelPrice, cost_micro, credits_for, micro_per_unit};
use hamyon::money::CurrencyCode;
use rust_decimal::Decimal;
use serde_json::Value;

#[test]
fn h8_every_worked_example_of_the_fixture() {
    let fixture: Value = serde_json::from_str(include_str!("../../../fixtures/holds/metering.json")).expect("JSON");
    let cases = fixture["cases"].as_array().expect("cases");
    assert!(cases.len() >= 7);
    for case in cases {
        let mut used = 0;
        for call in case["calls"].as_array().expect("calls") {
            let model = call["model"].as_str().expect("a model");
            let price = |class: &str| -> Decimal {
                fixture["prices"][model][class].as_str().expect("a price").parse().expect("a decimal")
            };
            let price = ModelPrice {
                model: model.to_owned(),
                input: price("input"),
                output: price("output"),
                cached: price("cached"),
            };
            let tokens = |class: &str| call[class].as_i64().expect("tokens");
            let cost = cost_micro(&price, tokens("input"), tokens("output"), tokens("cached")).expect("a cost");
            assert_eq!(cost, call["cost_micro"].as_i64().unwrap(), "{case}");
            used += cost;
        }
        assert_eq!(used, case["used_micro"].as_i64().unwrap(), "{case}");
        let currency = CurrencyCode::parse(case["currency"].as_str().unwrap()).unwrap();
        let charged = credits_for(used, micro_per_unit(&currency).expect("a price in dollars"));
        assert_eq!(charged.get(), case["charged"].as_i64().unwrap(), "{case}");
    }
    let most = ModelPrice { model: String::new(), input: Decimal::MAX, output: Decimal::ONE, cached: Decimal::ONE };
    assert_eq!(cost_micro(&most, i64::MAX, 0, 0), None, "beyond what can be reckoned with");
    assert_eq!(micro_per_unit(&CurrencyCode::uzs()), None);
}
