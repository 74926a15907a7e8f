//! What may be paid, by how much: a wallet within its bounds, an order once and exactly. And an id that is known is
//! looked at before any of it.

use chrono::TimeDelta;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{AMOUNT, cancel, check, code, create, create_params, id, order, perform, shop, state, wallet};
use crate::support::TestApp;
use crate::support::app::{self};

async fn check_perform(app: &TestApp, amount: Value, account: &Value) -> Value {
    app.payme("CheckPerformTransaction", json!({ "amount": amount, "account": account })).await
}

/// CheckPerformTransaction and CreateTransaction with a new id must say the same, and write nothing.
async fn assert_refused(app: &TestApp, amount: i64, account: &Value, expected: i64, field: &Value) {
    let before = app.everything_written().await;
    let checked = check_perform(app, json!(amount), account).await;
    let params = json!({ "id": id(999), "time": app.now_ms(), "amount": amount, "account": account });
    let created = app.payme("CreateTransaction", params).await;
    for answer in [&checked, &created] {
        assert_eq!(code(answer), expected, "{account} {amount}");
        assert_eq!(answer["error"]["data"], *field, "{answer}");
    }
    assert_eq!(app.everything_written().await, before);
}

async fn close(app: &TestApp, order_id: &str) -> (StatusCode, Value) {
    app.post(&format!("/v1/orders/{order_id}/close"), &json!({})).await
}

#[tokio::test]
async fn an_order_is_sold_once_and_not_again_after_a_refund() {
    let app = shop().await;
    let field = json!("order_id");
    create(&app, &id(1), &order()).await;
    assert_refused(&app, AMOUNT, &order(), -31_099, &field).await;
    perform(&app, &id(1)).await;
    assert_refused(&app, AMOUNT, &order(), -31_051, &field).await;
    assert_eq!(state(&cancel(&app, &id(1)).await), -2);
    assert_refused(&app, AMOUNT, &order(), -31_051, &field).await;
    let (_, shown) = app.get("/v1/orders/197").await;
    assert_eq!(shown["status"], "refunded");
}

#[tokio::test]
async fn a_cancelled_attempt_frees_the_order() {
    let app = shop().await;
    create(&app, &id(1), &order()).await;
    assert_eq!(state(&cancel(&app, &id(1)).await), -1);
    assert_eq!(state(&create(&app, &id(2), &order()).await), 1);
    assert_eq!(state(&perform(&app, &id(2)).await), 2);
    assert_eq!(app.sum("acme").await, AMOUNT);
}

#[tokio::test]
async fn the_code_of_a_busy_order_is_a_setting() {
    let mut settings = app::settings();
    settings.payme.busy_code = -31_008;
    let app = TestApp::start_with(settings).await;
    app.tenant("acme").await;
    app.order("197", "acme", "5000.00").await;
    create(&app, &id(1), &order()).await;
    assert_refused(&app, AMOUNT, &order(), -31_008, &json!("order_id")).await;
}

#[tokio::test]
async fn an_order_takes_its_amount_and_not_a_tiyin_more_or_less() {
    let app = shop().await;
    for amount in [AMOUNT - 1, AMOUNT + 1, 0, -AMOUNT, AMOUNT / 100, AMOUNT * 100, i64::MIN, i64::MAX] {
        assert_refused(&app, amount, &order(), -31_001, &Value::Null).await;
    }
    assert_eq!(check_perform(&app, json!(AMOUNT), &order()).await["result"], json!({ "allow": true }));
}

#[tokio::test]
async fn an_amount_beyond_64_bits_is_not_an_order_of_the_largest_amount() {
    let app = shop().await;
    app.order("most", "acme", "92233720368547758.07").await;
    for (amount, expected) in [("9223372036854775808", Some(-31_001)), ("9223372036854775807", None)] {
        let body = format!(
            r#"{{"id":1,"method":"CheckPerformTransaction","params":{{"amount":{amount},"account":{{"order_id":"most"}}}}}}"#
        );
        let answer: Value = serde_json::from_str(&super::raw(&app, body).await).unwrap();
        assert_eq!(answer["error"]["code"].as_i64(), expected, "{amount}: {answer}");
    }
}

#[tokio::test]
async fn a_wallet_takes_amounts_from_its_least_to_its_most() {
    let app = shop().await;
    let settings = app::settings().payme;
    let (least, most) = (settings.top_up_min.get(), settings.top_up_max.get());
    for amount in [least - 1, most + 1, 0, -1, i64::MIN, i64::MAX] {
        assert_refused(&app, amount, &wallet(), -31_001, &Value::Null).await;
    }
    for (number, amount) in [(1, least), (2, most)] {
        let params = json!({ "id": id(number), "time": app.now_ms(), "amount": amount, "account": wallet() });
        assert_eq!(state(&app.payme("CreateTransaction", params).await), 1);
        assert_eq!(state(&perform(&app, &id(number)).await), 2);
    }
    assert_eq!(app.sum("acme").await, least + most);
}

#[tokio::test]
async fn a_wallet_takes_several_open_payments_at_once() {
    let app = shop().await;
    for number in 1..=3 {
        assert_eq!(state(&create(&app, &id(number), &wallet()).await), 1);
    }
    for number in 1..=3 {
        assert_eq!(state(&perform(&app, &id(number)).await), 2);
    }
    assert_eq!(app.sum("acme").await, 3 * AMOUNT);
}

#[tokio::test]
async fn the_account_is_looked_at_before_the_amount() {
    let app = shop().await;
    assert_refused(&app, 1, &json!({ "tenant_id": "nobody" }), -31_050, &json!("tenant_id")).await;
    assert_refused(&app, 1, &json!({ "order_id": "198" }), -31_050, &json!("order_id")).await;
    create(&app, &id(1), &order()).await;
    assert_refused(&app, 1, &order(), -31_099, &json!("order_id")).await;
    perform(&app, &id(1)).await;
    assert_refused(&app, 1, &order(), -31_051, &json!("order_id")).await;
}

#[tokio::test]
async fn a_closed_or_expired_order_and_a_closed_tenant_are_not_payable() {
    let app = shop().await;
    assert_eq!(close(&app, "197").await.0, StatusCode::OK);
    assert_refused(&app, AMOUNT, &order(), -31_051, &json!("order_id")).await;

    let expires_at = app.clock.now() + TimeDelta::hours(1);
    let body = json!({ "order_id": "198", "tenant_id": "acme", "amount": "5000.00", "title": "A thing",
                       "expires_at": expires_at });
    assert_eq!(app.post("/v1/orders", &body).await.0, StatusCode::CREATED);
    let late = json!({ "order_id": "198" });
    app.clock.advance(TimeDelta::milliseconds(3_600_000 - 1));
    assert_eq!(check_perform(&app, json!(AMOUNT), &late).await["result"]["allow"], true);
    app.clock.advance(TimeDelta::milliseconds(1));
    assert_refused(&app, AMOUNT, &late, -31_051, &json!("order_id")).await;

    sqlx::query(
        "INSERT INTO tenants (tenant_id, name, time_zone, locale, status, created_at)
                 VALUES ('gone', 'Gone', 'Asia/Tashkent', 'uz', 'closed', now())",
    )
    .execute(&mut app.superuser().await)
    .await
    .unwrap();
    assert_refused(&app, AMOUNT, &json!({ "tenant_id": "gone" }), -31_051, &json!("tenant_id")).await;
    sqlx::query(
        "INSERT INTO orders (order_id, tenant_id, currency, amount, title, created_at)
         VALUES ('199', 'gone', 'UZS', $1, 'A thing', now())",
    )
    .bind(AMOUNT)
    .execute(&mut app.superuser().await)
    .await
    .unwrap();
    assert_refused(&app, AMOUNT, &json!({ "order_id": "199" }), -31_051, &json!("order_id")).await;
}

#[tokio::test]
async fn an_order_that_one_payer_alone_may_pay_is_none_for_a_provider_that_names_no_payer() {
    let app = shop().await;
    let before = app.everything_written().await;
    let body = json!({ "order_id": "200", "tenant_id": "acme", "amount": "5000.00", "title": "A thing",
                       "payer": "700123456" });
    let (status, problem) = app.post("/v1/orders", &body).await;
    assert_eq!((status, &problem["field"]), (StatusCode::BAD_REQUEST, &json!("payer")), "{problem}");
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test]
async fn p2_a_promise_whose_time_is_over_is_over_whatever_it_is_asked_with() {
    let app = shop().await;
    create(&app, &id(1), &wallet()).await;
    app.clock.advance(TimeDelta::hours(12) + TimeDelta::milliseconds(1));
    let params = json!({ "id": id(1), "time": app.now_ms(), "amount": AMOUNT + 1, "account": order() });
    let answer = app.payme("CreateTransaction", params).await;
    assert_eq!(answer["error"]["code"], -31_008, "{answer}");
    let checked = app.payme("CheckTransaction", json!({ "id": id(1) })).await;
    assert_eq!((state(&checked), &checked["result"]["reason"]), (-1, &json!(4)), "{checked}");
}

#[tokio::test]
async fn p1_a_promise_made_before_the_order_expired_can_still_be_kept() {
    let app = shop().await;
    let expires_at = app.clock.now() + TimeDelta::hours(1);
    let body = json!({ "order_id": "198", "tenant_id": "acme", "amount": "5000.00", "title": "A thing",
                       "expires_at": expires_at });
    app.post("/v1/orders", &body).await;
    create(&app, &id(1), &json!({ "order_id": "198" })).await;
    app.clock.advance(TimeDelta::hours(2));
    assert_eq!(state(&perform(&app, &id(1)).await), 2);
    assert_eq!(app.sum("acme").await, AMOUNT);
}

#[tokio::test]
async fn an_order_can_be_withdrawn_only_while_nobody_pays_or_has_paid() {
    let app = shop().await;
    assert_eq!(close(&app, "nothing").await.0, StatusCode::NOT_FOUND);
    create(&app, &id(1), &order()).await;
    for expected in ["busy", "paid", "refunded"] {
        let before = app.everything_written().await;
        let (status, problem) = close(&app, "197").await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        assert_eq!((&problem["code"], &problem["order_status"]), (&json!("order_not_closable"), &json!(expected)));
        assert_eq!(app.everything_written().await, before);
        if expected == "busy" {
            perform(&app, &id(1)).await;
        } else {
            cancel(&app, &id(1)).await;
        }
    }
    app.order("198", "acme", "5000.00").await;
    let (status, first) = close(&app, "198").await;
    assert_eq!((status, &first["status"]), (StatusCode::OK, &json!("closed")));
    let before = app.everything_written().await;
    app.clock.advance(TimeDelta::seconds(5));
    assert_eq!(close(&app, "198").await, (StatusCode::OK, first));
    assert_eq!(app.everything_written().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_and_creating_at_once_never_both_succeed() {
    let app = shop().await;
    for round in 0..20 {
        let order_id = format!("order-{round}");
        app.order(&order_id, "acme", "5000.00").await;
        let (first, account) = (id(round), json!({ "order_id": order_id }));
        let (created, (status, _)) = tokio::join!(create(&app, &first, &account), close(&app, &order_id));
        match status {
            StatusCode::OK => assert_eq!(code(&created), -31_051),
            StatusCode::CONFLICT => assert_eq!(state(&created), 1),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn p2_a_known_id_with_another_amount_or_account_is_refused_and_nothing_is_overwritten() {
    let app = shop().await;
    app.tenant("bravo").await;
    create(&app, &id(1), &wallet()).await;
    let before = app.everything_written().await;
    for (amount, account) in [
        (AMOUNT + 1, wallet()),
        // Not even an amount that no wallet takes, or an account that doesn't exist, comes before the id.
        (1, wallet()),
        (-1, wallet()),
        (AMOUNT, json!({ "tenant_id": "bravo" })),
        (AMOUNT, json!({ "tenant_id": "nobody" })),
        (AMOUNT, json!({})),
        (AMOUNT, Value::Null),
        (AMOUNT, order()),
    ] {
        let params = json!({ "id": id(1), "time": app.now_ms(), "amount": amount, "account": account });
        assert_eq!(code(&app.payme("CreateTransaction", params).await), -31_008, "{amount} {account}");
    }
    assert_eq!(app.everything_written().await, before);
    assert_eq!(state(&perform(&app, &id(1)).await), 2);
    assert_eq!(app.sum("acme").await, AMOUNT);
    assert_eq!(app.sum("bravo").await, 0);
}

#[tokio::test]
async fn p2_a_known_id_is_answered_although_its_order_is_closed_or_its_time_is_repeated_late() {
    let app = shop().await;
    let params = create_params(&app, &id(1), &order());
    let created = app.payme("CreateTransaction", params.clone()).await;
    app.clock.advance(TimeDelta::hours(11));
    assert_eq!(app.payme("CreateTransaction", params).await, created);
}

#[tokio::test]
async fn an_account_is_text_whether_it_comes_as_a_number_or_a_string() {
    let app = shop().await;
    app.tenant("7").await;
    app.order("42", "7", "5000.00").await;
    let mut number = 0;
    for account in [json!({ "tenant_id": 7 }), json!({ "tenant_id": "7" }), json!({ "tenant_id": " 7 " })] {
        number += 1;
        let created = create(&app, &id(number), &account).await;
        assert_eq!(state(&created), 1);
        // The same id with the other spelling is the same account.
        for same in [json!({ "tenant_id": 7 }), json!({ "tenant_id": "7" })] {
            assert_eq!(create(&app, &id(number), &same).await, created);
        }
    }
    let created = create(&app, &id(10), &json!({ "order_id": 42 })).await;
    assert_eq!(create(&app, &id(10), &json!({ "order_id": "42" })).await, created);
    assert_eq!(check(&app, &id(10)).await["state"], 1);
    for wrong in [json!(7.0), json!(-7), json!("07"), json!("7.0"), json!(true), json!(null)] {
        assert_refused(&app, AMOUNT, &json!({ "tenant_id": wrong }), -31_050, &json!("tenant_id")).await;
    }
}

#[tokio::test]
async fn the_accounts_fields_have_the_names_that_are_set() {
    let mut settings = app::settings();
    settings.payme.tenant_field = "login".to_owned();
    settings.payme.order_field = "bill".to_owned();
    let app = TestApp::start_with(settings).await;
    app.tenant("acme").await;
    app.order("197", "acme", "5000.00").await;
    assert_eq!(state(&create(&app, &id(1), &json!({ "login": "acme" })).await), 1);
    assert_eq!(state(&create(&app, &id(2), &json!({ "bill": "197" })).await), 1);
    assert_refused(&app, AMOUNT, &json!({ "tenant_id": "acme" }), -31_050, &json!("login")).await;
    assert_refused(&app, AMOUNT, &json!({ "bill": "198" }), -31_050, &json!("bill")).await;
}

#[tokio::test]
async fn p2_an_account_comes_back_in_the_very_shape_it_came_and_never_stands_in_the_way_of_its_payment() {
    let app = shop().await;
    let longest = account_of(4_096);
    let accounts = [
        r#"{"tenant_id":"acme"}"#,
        r#"{ "tenant_id" : "acme", "phone": 998901234567 }"#,
        r#"{"z":1,"tenant_id":"acme","a":1.50,"b":1e2,"c":123456789012345678901234567890,"d":1e-30000}"#,
        r#"{"tenant_id":"acme","x":"\u0000"}"#,
        r#"{"tenant_id":"acme","x":"\\u0000"}"#,
        r#"{"tenant_id":"acme","x":"\ud800"}"#,
        r#"{"tenant_id":"acme","x":"Ўзбекистон 😀"}"#,
        r#"{"tenant_id":"acme","tenant_id":"acme"}"#,
        r#"{"tenant_id":"acme","x":"[{\"}]\\","y":true}"#,
        longest.as_str(),
    ];
    for (number, account) in (1_u32..).zip(accounts) {
        let call = |method: &str, rest: &str| {
            let id = id(number);
            format!(r#"{{"id":1,"method":"{method}","params":{{"id":"{id}"{rest}}}}}"#)
        };
        let time = app.now_ms() + i64::from(number);
        let create = call("CreateTransaction", &format!(r#","time":{time},"amount":{AMOUNT},"account":{account}"#));
        let text = super::raw(&app, create.clone()).await;
        assert_eq!(state(&serde_json::from_str(&text).unwrap()), 1, "{number}");
        assert_eq!(super::raw(&app, create).await, text, "{number}");
        let range = format!(r#"{{"id":1,"method":"GetStatement","params":{{"from":{time},"to":{time}}}}}"#);
        let statement = super::raw(&app, range).await;
        assert!(statement.contains(&format!(r#""account":{account},"#)), "{number}");
        let performed: Value = serde_json::from_str(&super::raw(&app, call("PerformTransaction", "")).await).unwrap();
        assert_eq!(state(&performed), 2, "{number}");
    }
    assert_eq!(app.sum("acme").await, AMOUNT * i64::try_from(accounts.len()).unwrap());
}

#[tokio::test]
async fn l8_a_database_that_is_gone_is_our_fault_and_never_a_word_about_the_account() {
    let app = shop().await;
    app.app.db.pool().close().await;
    for account in [wallet(), order(), json!({ "tenant_id": "!" }), json!({})] {
        let answer = create(&app, &id(1), &account).await;
        assert_eq!(code(&answer), -32_400, "{account}");
    }
    assert_eq!(code(&check_perform(&app, json!(AMOUNT), &wallet()).await), -32_400);
    for method in ["PerformTransaction", "CheckTransaction"] {
        assert_eq!(code(&app.payme(method, json!({ "id": id(1) })).await), -32_400);
    }
}

/// An account of exactly this many bytes.
fn account_of(bytes: usize) -> String {
    let (begin, end) = (r#"{"tenant_id":"acme","note":""#, r#""}"#);
    format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len()))
}

#[tokio::test]
async fn an_account_is_kept_for_ever_so_it_is_short_and_flat() {
    let app = shop().await;
    let deep = format!(r#"{{"tenant_id":"acme","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let spaced = format!(r#"{{"tenant_id":"acme"{}}}"#, " ".repeat(4_096));
    let before = app.everything_written().await;
    for account in [&account_of(4_097), &account_of(200_000), &deep, &spaced] {
        for method in ["CheckPerformTransaction", "CreateTransaction"] {
            let body = format!(
                r#"{{"id":1,"method":"{method}","params":{{"id":"{}","time":{},"amount":{AMOUNT},"account":{account}}}}}"#,
                id(1),
                app.now_ms()
            );
            let answer: Value = serde_json::from_str(&super::raw(&app, body).await).unwrap();
            assert_eq!(code(&answer), -32_600, "{method} {} bytes: {answer}", account.len());
        }
    }
    assert_eq!(app.everything_written().await, before);

    let longest: Value = serde_json::from_str(&account_of(4_096)).unwrap();
    assert_eq!(state(&create(&app, &id(1), &longest).await), 1);
    let statement = app.payme("GetStatement", json!({ "from": 0, "to": app.now_ms() })).await;
    assert_eq!(statement["result"]["transactions"][0]["account"], longest);
    let refused = sqlx::query(
        "INSERT INTO payments (provider, mode, external_id, tenant_id, currency, amount, account,
                               external_created_at, created_at)
         SELECT provider, mode, 'other', tenant_id, currency, amount, account || ' ', external_created_at, created_at
           FROM payments",
    )
    .execute(&mut app.superuser().await)
    .await
    .unwrap_err();
    assert_eq!(refused.as_database_error().and_then(|error| error.constraint()), Some("payments_account_length"));
}

#[tokio::test]
async fn what_else_an_account_says_is_kept_in_the_form_it_is_looked_for() {
    let app = shop().await;
    let kept = async |app: &TestApp| -> Vec<(String, String)> {
        sqlx::query_as(
            "SELECT p.external_id, v.value FROM payment_account_values v JOIN payments p USING (payment_id) ORDER BY 1, 2",
        )
        .fetch_all(&mut app.superuser().await)
        .await
        .unwrap()
    };
    create(&app, &id(1), &wallet()).await;
    create(&app, &id(2), &order()).await;
    assert_eq!(kept(&app).await, [], "a name alone says nothing else");

    let said = json!({
        "tenant_id": "acme", "phone": " +998 (90) 123-45-67 ", "same": 998_901_234_567_i64, "name": "Olim  aka ",
        "empty": " ", "nul": "a\u{0}b", "yes": true, "none": null, "order": 1.5,
    });
    let mut expected = vec![];
    for number in [3, 3] {
        create(&app, &id(number), &said).await;
        expected = vec![(id(3), "1.5".to_owned()), (id(3), "998901234567".to_owned()), (id(3), "Olim  aka".to_owned())];
        assert_eq!(kept(&app).await, expected, "once, however often it is said");
    }

    let many: serde_json::Map<String, Value> = (0..20)
        .map(|n| (format!("f{n:02}"), json!(format!("v{n:02}"))))
        .chain([("tenant_id".to_owned(), json!("acme"))])
        .collect();
    create(&app, &id(4), &Value::Object(many)).await;
    expected.extend((0..8).map(|n| (id(4), format!("v{n:02}"))));
    assert_eq!(kept(&app).await, expected);
}

#[test]
fn a_number_that_people_write_in_many_ways_is_one_number() {
    let long = "я".repeat(201);
    let cases = [
        ("+998 90 123-45-67", "998901234567"),
        ("(90) 123 45 67", "901234567"),
        ("123-45-67", "1234567"),
        ("12-34-56", "12-34-56"),
        ("90 123 45 67 ext. 5", "90 123 45 67 ext. 5"),
        ("  acme\t", "acme"),
        ("", ""),
        (" \n", ""),
        ("+", "+"),
        ("１２３４５６７", "１２３４５６７"),
        (&long, &long[..400]),
    ];
    for (text, normal) in cases {
        assert_eq!(hamyon::payment::normal_account_value(text), normal, "{text:?}");
        assert_eq!(hamyon::payment::normal_account_value(normal), normal, "a normal form is its own");
    }
}

#[tokio::test]
async fn a_promise_from_far_in_the_future_would_never_end_and_is_refused() {
    let app = shop().await;
    const DAY_MS: i64 = 86_400_000;
    let ahead =
        |number, ms| json!({ "id": id(number), "time": app.now_ms() + ms, "amount": AMOUNT, "account": order() });
    let before = app.everything_written().await;
    assert_eq!(code(&app.payme("CreateTransaction", ahead(1, DAY_MS + 1)).await), -31_008);
    assert_eq!(app.everything_written().await, before);
    assert_eq!(state(&app.payme("CreateTransaction", ahead(1, DAY_MS)).await), 1, "clocks differ a little");
}

#[tokio::test]
async fn an_order_is_equal_to_itself_whatever_second_it_ends_in() {
    let app = shop().await;
    for (number, (expires_at, shown)) in [
        ("2026-12-31T23:59:60Z", "2027-01-01T00:00:00Z"),
        ("2026-12-31T23:59:60.5Z", "2027-01-01T00:00:00.500Z"),
        ("2027-01-01T04:59:60.123456789+05:00", "2027-01-01T00:00:00.123456Z"),
        ("2027-01-01T00:00:00.000000999Z", "2027-01-01T00:00:00Z"),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({ "order_id": format!("leap-{number}"), "tenant_id": "acme", "amount": "5000.00",
                           "title": "A thing", "expires_at": expires_at });
        let (status, made) = app.post("/v1/orders", &body).await;
        assert_eq!((status, &made["expires_at"]), (StatusCode::CREATED, &json!(shown)), "{expires_at}: {made}");
        assert_eq!(app.post("/v1/orders", &body).await, (StatusCode::OK, made), "{expires_at}");
    }
}
