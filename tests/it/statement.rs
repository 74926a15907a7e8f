//! Rule L1 on the statement: the balance after each row is the running sum, whichever page shows it; and a
//! question that isn't understood is refused, since an ignored filter shows somebody everything (C77).

use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::support::TestApp;
use crate::support::api::Call;
use crate::support::app::entry;

const KINDS: [&str; 3] = ["bonus", "adjustment", "top_up"];

/// 150 rows of three kinds, enough for checkpoints in between.
async fn filled() -> TestApp {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    for first in (0..150).step_by(30) {
        let entries: Vec<_> = (first..first + 30)
            .map(|number| {
                let amount = if number % 3 == 0 || number % 3 == 2 { 1_000 + number } else { -500 };
                entry("acme", KINDS[usize::try_from(number % 3).expect("a kind")], amount, &format!("row-{number}"))
            })
            .collect();
        app.post_entries(&entries).await.expect("booked");
    }
    app
}

/// (seq, kind, amount, balance after) by the simplest statement there is.
async fn naive(app: &TestApp) -> Vec<(i64, String, i64, i64)> {
    sqlx::query_as(
        "SELECT seq, kind, amount, sum(amount) OVER (ORDER BY seq)::bigint FROM wallet_transactions
          WHERE tenant_id = 'acme' ORDER BY seq",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .expect("the rows")
}

fn shown(items: &[Value]) -> Vec<(i64, String, i64, i64)> {
    let units = |value: &Value| value.as_str().expect("text").replace('.', "").parse().expect("a number");
    items
        .iter()
        .map(|item| {
            let kind = item["kind"].as_str().expect("a kind").to_owned();
            (item["seq"].as_i64().expect("a seq"), kind, units(&item["amount"]), units(&item["balance_after"]))
        })
        .collect()
}

/// Walks all pages.
async fn walk(app: &TestApp, query: &str, limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut after = String::new();
    loop {
        let (status, page) = app.get(&format!("/v1/tenants/acme/transactions?limit={limit}{query}{after}")).await;
        assert_eq!(status, 200, "{page}");
        let rows = page["items"].as_array().expect("items");
        assert!(rows.len() <= limit);
        items.extend(rows.iter().cloned());
        match page["next"].as_str() {
            Some(next) => {
                assert_eq!(rows.len(), limit, "a page with another behind it is full");
                after = format!("&after={next}");
            }
            None => return items,
        }
    }
}

#[tokio::test]
async fn l1_pages_show_every_row_once_with_the_running_sum() {
    let app = filled().await;
    let expected = naive(&app).await;
    assert_eq!(expected.len(), 150);
    for round in ["checkpoints", "none"] {
        for limit in [1, 7, 75, 149, 150, 151, 500] {
            assert_eq!(shown(&walk(&app, "", limit).await), expected, "{round}, limit {limit}");
        }
        for kind in KINDS {
            let of_kind: Vec<_> = expected.iter().filter(|row| row.1 == kind).cloned().collect();
            for limit in [1, 7, 50, 500] {
                let query = format!("&kind={kind}");
                assert_eq!(shown(&walk(&app, &query, limit).await), of_kind, "{round}, {kind}, limit {limit}");
            }
        }
        app.as_service().await.execute("DELETE FROM wallet_checkpoints").await.expect("dropped");
    }
    let (_, page) = app.get("/v1/tenants/acme/transactions?kind=never_seen").await;
    assert_eq!(page, json!({ "items": [], "next": null }));
    let (_, page) = app.get("/v1/tenants/acme/transactions?after=9223372036854775807").await;
    assert_eq!(page, json!({ "items": [], "next": null }));
    let (_, page) = app.get("/v1/tenants/acme/transactions").await;
    assert_eq!((page["items"].as_array().map(Vec::len), &page["next"]), (Some(100), &json!("100")));
}

#[tokio::test]
async fn a_row_is_shown_with_everything_that_was_said_about_it() {
    let app = TestApp::start().await;
    app.tenant("acme").await;
    let body = json!({ "transactions": [{
        "tenant_id": "acme", "currency": "UZS", "kind": "bonus", "amount": "12.3", "reference": "Ўзбекистон № 1",
        "reason": "o‘yin uchun", "pocket": "promo:dec", "metadata": { "b": [1, null, "ю"], "a": { "z": 1, "y": "\"" } },
    }] });
    let (status, answer) = app.post_with_key("/v1/transactions/batch", "k", &body).await;
    assert_eq!(status, 201, "{answer}");
    let (_, page) = app.get("/v1/tenants/acme/transactions").await;
    assert_eq!(page["items"], answer["transactions"]);
    assert_eq!(
        page["items"][0],
        json!({
            "seq": 1, "tenant_id": "acme", "kind": "bonus", "amount": "12.30", "currency": "UZS", "pocket": "promo:dec",
            "reference": "Ўзбекистон № 1", "original": null, "reason": "o‘yin uchun", "actor": "api:tests",
            "metadata": { "a": { "y": "\"", "z": 1 }, "b": [1, null, "ю"] }, "recorded_at": "2026-12-01T09:00:00Z",
            "balance_after": "12.30",
        })
    );
}

#[tokio::test]
async fn c77_a_question_that_is_not_understood_is_refused() {
    let app = filled().await;
    let statement = "/v1/tenants/acme/transactions";
    let balance = "/v1/tenants/acme/balance";
    for path in [
        format!("{statement}?amount_gtt=5"),
        format!("{statement}?kind=bonus&unknown=1"),
        format!("{statement}?Limit=5"),
        format!("{statement}?limit=5&limit=5"),
        format!("{statement}?kind=bonus&kind=top_up"),
        format!("{statement}?after=1&after=1"),
        format!("{statement}?currency=UZS&currency=USD"),
        format!("{statement}?limit=0"),
        format!("{statement}?limit=501"),
        format!("{statement}?limit=-1"),
        format!("{statement}?limit=65536"),
        format!("{statement}?limit=1e2"),
        format!("{statement}?limit="),
        format!("{statement}?after=-1"),
        format!("{statement}?after=x"),
        format!("{statement}?after="),
        format!("{statement}?after=9223372036854775808"),
        format!("{statement}?kind=Bonus"),
        format!("{statement}?kind="),
        format!("{statement}?kind=a%00b"),
        format!("{statement}?currency=uzs"),
        format!("{statement}?currency="),
        format!("{statement}?currency=UZS%27%3B--"),
        format!("{statement}?at=2026-12-01T00:00:00Z"),
        format!("{balance}?at=2026-12-01T00:00:00Z&at=2026-12-01T00:00:00Z"),
        format!("{balance}?currency=UZS&currency=UZS"),
        format!("{balance}?limit=1"),
        format!("{balance}?Currency=UZS"),
        format!("{balance}?%00"),
        format!("{balance}?currency=%FF"),
    ] {
        Call::new("GET", &path).token(&app.token).send(&app).await.refused(400, "invalid_request", &path);
    }
    for path in ["/v1/currencies?limit=1", "/v1/tenants/acme?x=1"] {
        Call::new("GET", path).token(&app.token).send(&app).await.refused(400, "invalid_request", path);
    }
}
