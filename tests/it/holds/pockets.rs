//! At stake: granted money. It ends when it was said to, not a moment later, takes nothing that was bought or held
//! with it, and every unit of it is in some row (H3, H5, H12; C31, C43, C49, C53, C55).

use serde_json::json;

use super::Shop;

#[tokio::test]
async fn c49_a_pocket_is_there_while_now_is_before_its_end_and_not_at_it() {
    let shop = Shop::open().await;
    let end = shop.in_hours(1);
    shop.give("CREDIT", "promo", 10, Some(end)).await;
    shop.wait(3_599);
    assert_eq!(shop.numbers("CREDIT").await, (10, 0, 10));
    shop.wait(1);
    // No sweep has come by: the rows still say 10, and nobody can spend it.
    assert_eq!(shop.numbers("CREDIT").await, (10, 0, 0));
    shop.place("job-1", "1", json!({ "allow_partial": true })).await.refused(
        402,
        "insufficient_funds",
        "at the very end",
    );
    let row = json!({
        "tenant_id": "acme", "currency": "CREDIT", "kind": "purchase", "amount": "-1", "reference": "p", "pocket": "promo",
    });
    let (status, answer) =
        shop.app.post_with_key("/v1/transactions/batch", "k", &json!({ "transactions": [row] })).await;
    assert_eq!((status.as_u16(), &answer["code"]), (402, &json!("insufficient_funds")), "{answer}");
    // Nor can anybody put money where nobody could spend it.
    let late = json!({ "currency": "CREDIT", "pocket": "promo", "amount": "5", "expires_at": end });
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/grants", "late", &late).await;
    assert_eq!((status.as_u16(), &answer["code"]), (409, &json!("pocket_closed")), "{answer}");
    assert_eq!(hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap(), 1);
    assert_eq!(hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap(), 0, "once");
    assert_eq!(shop.rows("CREDIT").await.last().unwrap(), &("expiry".to_owned(), "promo".to_owned(), -10));
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0));
    shop.is_right().await;
}

#[tokio::test]
async fn c43_an_expiry_takes_only_what_is_left_of_the_promotion() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.give("CREDIT", "promo", 50, Some(shop.in_hours(1))).await;
    shop.placed("spent", "20").await;
    shop.settle("spent", "as_held").await;
    shop.wait(3_600);
    hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap();
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "100" }));
    assert_eq!(shop.rows("CREDIT").await.last().unwrap(), &("expiry".to_owned(), "promo".to_owned(), -30));
}

#[tokio::test]
async fn h12_c49_whoever_read_the_clock_before_the_end_brings_nothing_after_it_was_booked() {
    // At stake: money in a pocket whose end is booked is neither spent nor does it expire; nobody looks there again.
    let shop = Shop::open().await;
    let ends = shop.in_hours(1);
    for (pocket, amount) in [("left", 50), ("empty", 10)] {
        shop.give("CREDIT", pocket, amount, Some(ends)).await;
    }
    let spend = json!({ "transactions": [{ "tenant_id": "acme", "currency": "CREDIT", "kind": "purchase", "amount": "-10",
                                           "pocket": "empty", "reference": "all of it" }] });
    assert_eq!(shop.app.post_with_key("/v1/transactions/batch", "spend", &spend).await.0.as_u16(), 201);
    shop.wait(3_600);
    hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap();
    // Another process, or one that waited for the wallet's lock: its clock says that there is a second left.
    shop.wait(-3_601);
    let before = shop.app.everything_written().await;
    for pocket in ["left", "empty"] {
        let credit = json!({ "transactions": [{ "tenant_id": "acme", "currency": "CREDIT", "kind": "bonus", "amount": "5",
                                                "pocket": pocket, "reference": pocket }] });
        let (status, problem) = shop.app.post_with_key("/v1/transactions/batch", pocket, &credit).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("pocket_closed")), "{pocket}: {problem}");
    }
    assert_eq!(shop.app.everything_written().await, before);
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0));
}

#[tokio::test]
async fn h12_held_money_outlives_its_pocket_and_what_comes_back_expires_at_once() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 50, Some(shop.in_hours(1))).await;
    let long = json!({ "ttl_secs": 100_000 });
    shop.place("kept", "20", long.clone()).await;
    shop.place("failed", "10", long).await;
    shop.wait(3_600);
    hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap();
    assert_eq!(
        shop.rows("CREDIT").await.last().unwrap(),
        &("expiry".to_owned(), "promo".to_owned(), -20),
        "held money is left alone"
    );
    assert_eq!(shop.numbers("CREDIT").await, (30, 30, 0));
    // H5: it is charged from where it was held.
    let settled = shop.act("kept", "settle", json!({ "mode": "amount", "amount": "15" })).await.json();
    assert_eq!(settled["transactions"][0]["pocket"], "promo", "{settled}");
    assert_eq!(shop.rows("CREDIT").await.last().unwrap(), &("expiry".to_owned(), "promo".to_owned(), -5));
    shop.act("failed", "release", json!({})).await;
    assert_eq!(shop.rows("CREDIT").await.last().unwrap(), &("expiry".to_owned(), "promo".to_owned(), -10));
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0));
    assert_eq!(shop.rows("CREDIT").await.iter().map(|row| row.2).sum::<i64>(), 0);
    shop.is_right().await;
}

#[tokio::test]
async fn h5_a_hold_whose_time_is_over_takes_nothing_from_one_at_work_when_their_pocket_has_ended() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 100, Some(shop.in_hours(1))).await;
    shop.give("CREDIT", "main", 50, None).await;
    shop.place("dead", "60", json!({ "ttl_secs": 10 })).await;
    shop.wait(11);
    let live = shop.place("live", "60", json!({ "ttl_secs": 100_000 })).await.json();
    assert_eq!(live["allocations"], json!([{ "pocket": "promo", "amount": "60" }]));
    shop.wait(3_600);
    hamyon::pocket::sweep(&shop.app.app.db, &shop.app.clock).await.unwrap();
    // Nobody has ended the dead one yet.
    let settled = shop.settle("live", "as_held").await.json();
    assert_eq!(
        (&settled["transactions"][0]["pocket"], &settled["transactions"][0]["amount"]),
        (&json!("promo"), &json!("-60")),
        "{settled}"
    );
    assert_eq!(shop.reconcile().await.released, 1);
    assert_eq!(shop.rows("CREDIT").await.last().unwrap(), &("expiry".to_owned(), "promo".to_owned(), -40));
    assert_eq!(shop.pockets("CREDIT").await, json!({ "main": "50" }), "bought money pays nothing of it");
    shop.is_right().await;
}

#[tokio::test]
async fn c31_the_rest_of_a_settlement_returns_to_the_pocket_it_came_from() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "may", 60, Some(shop.in_hours(48))).await;
    shop.give("CREDIT", "lasting", 40, None).await;
    shop.placed("job-1", "100").await;
    shop.act("job-1", "settle", json!({ "mode": "amount", "amount": "70" })).await;
    assert_eq!(
        shop.pockets("CREDIT").await,
        json!({ "lasting": "30" }),
        "what ends first is spent first, and 30 return"
    );
}

#[tokio::test]
async fn c53_a_voided_grant_takes_what_is_left_and_what_was_spent_stays_spent() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "promo", 100, None).await;
    shop.placed("job-1", "30").await;
    shop.settle("job-1", "as_held").await;
    let void = json!({ "currency": "CREDIT", "pocket": "promo", "reason": "given by mistake" });
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/pockets/void", "v", &void).await;
    assert_eq!(status.as_u16(), 200, "{answer}");
    assert_eq!(
        (&answer["transactions"][0]["amount"], &answer["transactions"][0]["reason"]),
        (&json!("-70"), &json!("given by mistake"))
    );
    assert_eq!(shop.numbers("CREDIT").await, (0, 0, 0), "0, and not -30");
    let (_, again) = shop.app.post_with_key("/v1/tenants/acme/pockets/void", "v", &void).await;
    assert_eq!(again, answer);
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/pockets/void", "v2", &void).await;
    assert_eq!((status.as_u16(), &answer["code"]), (409, &json!("pocket_closed")), "{answer}");
    let main = json!({ "currency": "CREDIT", "pocket": "main", "reason": "mine" });
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/pockets/void", "v3", &main).await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (404, &json!("pocket_not_found")),
        "bought money is nobody's to void: {answer}"
    );
    shop.is_right().await;
}

#[tokio::test]
async fn c53_the_reason_of_a_void_stands_on_its_own_pocket_only() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "mistake", 100, None).await;
    shop.give("CREDIT", "over", 7, Some(shop.in_hours(1))).await;
    shop.wait(3_600);
    // The other one's time is over, and no sweep has come by.
    let void = json!({ "currency": "CREDIT", "pocket": "mistake", "reason": "given by mistake" });
    let (status, answer) = shop.app.post_with_key("/v1/tenants/acme/pockets/void", "v", &void).await;
    assert_eq!(status.as_u16(), 200, "{answer}");
    let reasons: Vec<(String, i64, Option<String>)> =
        sqlx::query_as("SELECT pocket, amount, reason FROM wallet_transactions WHERE kind = 'expiry' ORDER BY pocket")
            .fetch_all(&mut shop.app.superuser().await)
            .await
            .unwrap();
    assert_eq!(
        reasons,
        [("mistake".to_owned(), -100, Some("given by mistake".to_owned())), ("over".to_owned(), -7, None)]
    );
    shop.is_right().await;
}

#[tokio::test]
async fn a_pocket_keeps_its_rules_and_every_bad_grant_writes_nothing() {
    let shop = Shop::open().await;
    let end = shop.in_hours(5);
    shop.give("CREDIT", "promo", 10, Some(end)).await;
    shop.give("CREDIT", "bought", 10, None).await;
    let before = shop.app.everything_written().await;
    let grant = |more: serde_json::Value| {
        let mut body = json!({ "currency": "CREDIT", "pocket": "promo", "amount": "1", "expires_at": end });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, status, code) in [
        (grant(json!({ "amount": "0" })), 422, "wrong_sign"),
        (grant(json!({ "amount": "-1" })), 422, "wrong_sign"),
        (grant(json!({ "amount": "1.5" })), 400, "invalid_request"),
        (grant(json!({ "expires_at": shop.in_hours(6) })), 409, "pocket_differs"),
        (grant(json!({ "expires_at": null })), 409, "pocket_differs"),
        (grant(json!({ "priority": 7 })), 409, "pocket_differs"),
        (grant(json!({ "priority": 1001 })), 400, "invalid_request"),
        (grant(json!({ "pocket": "main" })), 422, "main_has_no_rules"),
        (grant(json!({ "pocket": "bought" })), 409, "pocket_differs"),
        (grant(json!({ "pocket": "new", "expires_at": shop.app.clock.now() })), 422, "expires_in_past"),
        (grant(json!({ "pocket": "New\n\"{" })), 400, "invalid_request"),
        (grant(json!({ "pocket": "set-aside" })), 400, "invalid_request"),
        (grant(json!({ "pocket": "allowance:daily:1" })), 400, "invalid_request"),
        (grant(json!({ "currency": "EUR" })), 404, "currency_not_found"),
        (grant(json!({ "reference": "" })), 400, "invalid_request"),
        (grant(json!({ "more": 1 })), 400, "invalid_request"),
    ] {
        let (got, answer) = shop.app.post_with_key("/v1/tenants/acme/grants", "k", &body).await;
        assert_eq!((got.as_u16(), answer["code"].as_str()), (status, Some(code)), "{body}: {answer}");
    }
    let (status, answer) = shop.app.post_with_key("/v1/tenants/nobody/grants", "k", &grant(json!({}))).await;
    assert_eq!((status.as_u16(), &answer["code"]), (404, &json!("tenant_not_found")), "{answer}");
    let (status, answer) = shop.app.post("/v1/tenants/acme/grants", &grant(json!({}))).await;
    assert_eq!((status.as_u16(), &answer["code"]), (400, &json!("idempotency_key_missing")), "C11: {answer}");
    assert_eq!(shop.app.everything_written().await, before);
    // The same grant in the same pocket goes in, once.
    let (status, first) = shop.app.post_with_key("/v1/tenants/acme/grants", "k", &grant(json!({}))).await;
    assert_eq!((status.as_u16(), &first["pocket"]), (201, &json!("promo")), "{first}");
    assert_eq!(shop.app.post_with_key("/v1/tenants/acme/grants", "k", &grant(json!({}))).await.1, first);
    assert_eq!(shop.pockets("CREDIT").await, json!({ "bought": "10", "promo": "11" }));
}

#[tokio::test]
async fn a_statement_of_one_pocket_shows_its_rows_only() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    shop.give("CREDIT", "promo", 10, None).await;
    shop.placed("job-1", "15").await;
    assert_eq!(
        shop.balance("CREDIT").await["by_pocket"],
        json!([
            { "pocket": "main", "balance": "100", "held": "5", "available": "95", "priority": null, "expires_at": null },
            { "pocket": "promo", "balance": "10", "held": "10", "available": "0", "priority": 100, "expires_at": null },
        ])
    );
    shop.settle("job-1", "as_held").await;
    let (_, page) = shop.app.get("/v1/tenants/acme/transactions?currency=CREDIT&pocket=promo").await;
    let amounts: Vec<&str> =
        page["items"].as_array().unwrap().iter().map(|row| row["amount"].as_str().unwrap()).collect();
    assert_eq!(amounts, ["10", "-10"]);
    assert_eq!(page["items"][1]["balance_after"], "95", "the balance is the wallet's, whatever is left out");
}

#[tokio::test]
async fn only_the_rooms_themselves_book_expiries_charges_and_what_is_set_aside() {
    let shop = Shop::open().await;
    shop.give("CREDIT", "main", 100, None).await;
    for kind in ["expiry", "hold_charge"] {
        let row = json!({ "tenant_id": "acme", "currency": "CREDIT", "kind": kind, "amount": "-1", "reference": "r" });
        let (status, answer) =
            shop.app.post_with_key("/v1/transactions/batch", kind, &json!({ "transactions": [row] })).await;
        assert_eq!((status.as_u16(), &answer["code"]), (422, &json!("kind_not_postable")), "{answer}");
    }
    for (kind, amount, pocket, reference) in [
        ("purchase", "-1", "set-aside", "r"),
        ("bonus", "1", "set-aside", "r"),
        ("bonus", "1", "allowance:daily:1", "r"),
        ("top_up", "1", "main", "telegram:1:charge"),
    ] {
        let row = json!({
            "tenant_id": "acme", "currency": "CREDIT", "kind": kind, "amount": amount, "reference": reference,
            "pocket": pocket,
        });
        let (status, answer) =
            shop.app.post_with_key("/v1/transactions/batch", "k", &json!({ "transactions": [row] })).await;
        assert!(matches!(status.as_u16(), 400 | 422), "{kind} {pocket}: {answer}");
    }
    assert_eq!(shop.rows("CREDIT").await.len(), 1);
}
