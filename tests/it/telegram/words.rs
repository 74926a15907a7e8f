//! A payer who is refused reads why in their own language, within what Telegram shows.

use hamyon::payment::prepaid::No;
use hamyon::provider::telegram::refusal_words;
use hamyon::tenant::Locale;
use serde_json::json;

use super::{ALICE, SECRET, Stage, said, send};

#[tokio::test]
async fn a_refusal_is_in_the_payers_language() {
    let stage = Stage::start().await;
    for (number, code, words) in [
        (1, json!("ru"), "Такого заказа нет. Получите новый счёт в боте."),
        (2, json!("ru-RU"), "Такого заказа нет. Получите новый счёт в боте."),
        (3, json!("uz"), "Bunday buyurtma yo‘q. Botda yangi hisob oling."),
        (4, json!("uz-Latn"), "Bunday buyurtma yo‘q. Botda yangi hisob oling."),
        (5, json!("en-GB"), "There is no such order. Get a new invoice from the bot."),
        (6, json!("de"), "There is no such order. Get a new invoice from the bot."),
        (7, json!(null), "Bunday buyurtma yo‘q. Botda yangi hisob oling."),
        (8, json!(7), "Bunday buyurtma yo‘q. Botda yangi hisob oling."),
    ] {
        let query_id = format!("q{number}");
        let mut query = stage.query(&query_id, ALICE, "nothing");
        query["pre_checkout_query"]["from"]["language_code"] = code.clone();
        let (_, answer) = send(&stage.app, SECRET, &query).await;
        assert_eq!(said(&query_id, &answer).as_deref(), Some(words), "{code}");
    }
}

#[test]
fn every_refusal_has_words_in_every_language_and_no_two_are_the_same() {
    let mut seen = std::collections::BTreeSet::new();
    for no in No::ALL {
        for language in [Locale::Uz, Locale::Ru, Locale::En] {
            let words = refusal_words(no, language);
            assert!((10..=200).contains(&words.chars().count()), "{words}");
            assert!(seen.insert(words), "{words}");
        }
    }
}
