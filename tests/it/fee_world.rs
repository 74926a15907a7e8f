//! Rules F1, F2, F4, F5: a small world of tenants, plans and subscriptions, written down as data, and what each
//! moment must bring. Whoever wonders what a fee is in some situation finds the answer in
//! `fixtures/fees/world.json`; a change of the code that changes an answer changes that file.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::TestApp;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    #[serde(rename = "about")]
    _about: String,
    currencies: Vec<Value>,
    plans: Vec<Value>,
    tenants: Vec<Tenant>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant {
    tenant_id: String,
    time_zone: String,
    balance: String,
    currency: Option<String>,
}

#[derive(Deserialize)]
struct Step {
    about: Option<String>,
    at: DateTime<Utc>,
    #[serde(flatten)]
    act: Act,
    #[serde(default)]
    dues: Vec<String>,
    events: Option<Vec<String>>,
}

#[derive(Deserialize, Debug)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Act {
    Subscribe { name: String, tenant: String, plan: String, started_on: String, first_month: String },
    Cancel { subscription: String, ended_on: Option<String> },
    Price { plan: String, price: String, from_month: String },
    Move { tenant: String, time_zone: String },
    Fund { tenant: String, amount: String },
    Run { period: Option<String>, confirmed: Option<bool>, expected: Option<u64>, refused: Option<String> },
}

/// A subscription's number and its tenant, by the name the fixture gives it.
type Named = BTreeMap<String, (i64, String)>;

#[tokio::test]
async fn f1_f2_f4_f5_every_step_of_the_world_brings_what_is_written_down() {
    let world: World = serde_json::from_str(include_str!("../../fixtures/fees/world.json")).unwrap();
    let app = TestApp::start().await;
    app.clock.advance(world.steps[0].at - app.clock.now());
    furnish(&app, &world).await;
    let mut named = Named::new();
    let (mut dues, mut last_event) = (BTreeMap::<String, &'static str>::new(), 0);
    for (number, step) in world.steps.iter().enumerate() {
        let seen = format!("step {number} at {}: {:?} ({})", step.at, step.act, step.about.as_deref().unwrap_or(""));
        app.clock.advance(step.at - app.clock.now());
        act(&app, &step.act, &mut named, &seen).await;

        let now = read_dues(&app, &named).await;
        let came: Vec<String> = now
            .iter()
            .filter(|(due, state)| dues.get(*due) != Some(*state))
            .map(|(due, state)| format!("{due} {state}"))
            .collect();
        assert_eq!(sorted(&came), sorted(&step.dues), "{seen}");
        let (events, last) = (read_events(&app, last_event).await, last_event_id(&app).await);
        let expected = match &step.events {
            Some(events) => events.clone(),
            None => step.dues.iter().map(|due| event_of(due, &named, &world)).collect(),
        };
        assert_eq!(by_tenant(&events), by_tenant(&expected), "{seen}");
        (dues, last_event) = (now, last);
        assert_rows_pay_dues(&app, &seen).await;
        assert_runs_add_up(&app, &seen).await;
    }
    assert!(app.verify().await.is_clean());
}

async fn furnish(app: &TestApp, world: &World) {
    for (path, bodies) in [("/v1/currencies", &world.currencies), ("/v1/plans", &world.plans)] {
        for body in bodies {
            let (status, answer) = app.post(path, body).await;
            assert_eq!(status, 201, "{answer}");
        }
    }
    for tenant in &world.tenants {
        let body = json!({ "tenant_id": tenant.tenant_id, "name": tenant.tenant_id, "time_zone": tenant.time_zone });
        let (status, answer) = app.post("/v1/tenants", &body).await;
        assert_eq!(status, 201, "{answer}");
        fund(app, &tenant.tenant_id, &tenant.balance, tenant.currency.as_deref().unwrap_or("UZS")).await;
    }
}

async fn fund(app: &TestApp, tenant_id: &str, amount: &str, currency: &str) {
    let reference = uuid::Uuid::now_v7().to_string();
    let body = json!({ "transactions": [{ "tenant_id": tenant_id, "currency": currency, "kind": "top_up",
                                          "amount": amount, "reference": reference }] });
    let (status, answer) = app.post_with_key("/v1/transactions/batch", &reference, &body).await;
    assert_eq!(status, 201, "{answer}");
}

async fn act(app: &TestApp, act: &Act, named: &mut Named, seen: &str) {
    match act {
        Act::Subscribe { name, tenant, plan, started_on, first_month } => {
            let subscription_id = app.subscribe(tenant, plan, started_on, first_month).await;
            named.insert(name.clone(), (subscription_id, tenant.clone()));
        }
        Act::Cancel { subscription, ended_on } => {
            let (subscription_id, tenant) = &named[subscription];
            let path = format!("/v1/tenants/{tenant}/subscriptions/{subscription_id}/cancel");
            let (status, answer) = app.post(&path, &json!({ "ended_on": ended_on })).await;
            assert_eq!(status, 200, "{seen}: {answer}");
        }
        Act::Price { plan, price, from_month } => {
            let body = json!({ "price": price, "from_month": from_month });
            let (status, answer) = app.post(&format!("/v1/plans/{plan}/prices"), &body).await;
            assert_eq!(status, 200, "{seen}: {answer}");
        }
        Act::Move { tenant, time_zone } => {
            let request = app.client.patch(app.url(&format!("/v1/tenants/{tenant}"))).bearer_auth(&app.token);
            let response = request.json(&json!({ "time_zone": time_zone })).send().await.unwrap();
            assert_eq!(response.status(), 200, "{seen}");
        }
        Act::Fund { tenant, amount } => fund(app, tenant, amount, "UZS").await,
        Act::Run { period, confirmed, expected, refused } => {
            let before = app.everything_written().await;
            let (status, answer) = app.post("/v1/fee-runs", &json!({ "period": period, "confirmed": confirmed })).await;
            if let Some(code) = refused {
                assert_eq!((status.as_u16(), answer["code"].as_str()), (409, Some(code.as_str())), "{seen}: {answer}");
            } else {
                assert_eq!(status, 200, "{seen}: {answer}");
                assert_eq!(answer["expected"].as_u64(), *expected, "{seen}: {answer}");
                let decided = answer["charged"].as_u64().unwrap() + answer["overdue"].as_u64().unwrap();
                assert_eq!(Some(decided), *expected, "{seen}: {answer}");
                assert_eq!((&answer["open"], &answer["by_others"]), (&json!(0), &json!(0)), "{seen}: {answer}");
            }
            if refused.is_some() || *expected == Some(0) {
                assert_eq!(app.everything_written().await, before, "{seen}");
            }
        }
    }
}

/// Every due as `subscription month amount`, and its state.
async fn read_dues(app: &TestApp, named: &Named) -> BTreeMap<String, &'static str> {
    let rows: Vec<(i64, String, i64, i16, bool, bool)> = sqlx::query_as(
        "SELECT subscription_id, to_char(month, 'YYYY-MM'), amount, exponent, charged_at IS NOT NULL, overdue_at IS NOT NULL
           FROM dues JOIN currencies ON code = currency",
    )
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap();
    rows.into_iter()
        .map(|(subscription_id, month, amount, exponent, charged, overdue)| {
            let name = named.iter().find(|(_, (id, _))| *id == subscription_id).unwrap().0;
            let amount =
                if exponent == 2 { format!("{}.{:02}", amount / 100, amount % 100) } else { amount.to_string() };
            let state = match (charged, overdue) {
                (true, true) => "paid",
                (true, false) => "charged",
                (false, _) => "overdue",
            };
            (format!("{name} {month} {amount}"), state)
        })
        .collect()
}

/// The events after one, as `tenant kind month amount currency`, in the order in which a tenant gets them.
async fn read_events(app: &TestApp, after: i64) -> Vec<String> {
    let bodies: Vec<(String, String)> = sqlx::query_as(
        "SELECT tenant_id, body FROM events WHERE event_id > $1 AND kind NOT LIKE 'payment.%' ORDER BY event_id",
    )
    .bind(after)
    .fetch_all(&mut app.superuser().await)
    .await
    .unwrap();
    bodies
        .into_iter()
        .map(|(tenant, body)| {
            let body: Value = serde_json::from_str(&body).unwrap();
            let data = &body["data"];
            assert_eq!(data["tenant_id"], tenant.as_str(), "{body}");
            let mut words = vec![tenant, body["type"].as_str().unwrap().to_owned()];
            words.extend(
                ["month", "amount", "currency"].iter().filter_map(|name| data[name].as_str()).map(str::to_owned),
            );
            words.join(" ")
        })
        .collect()
}

async fn last_event_id(app: &TestApp) -> i64 {
    app.count("SELECT coalesce(max(event_id), 0) FROM events").await
}

/// The event that comes with a due of a run.
fn event_of(due: &str, named: &Named, world: &World) -> String {
    let words: Vec<&str> = due.split(' ').collect();
    let [name, month, amount, state] = words[..] else { panic!("{due}") };
    let tenant = &named[name].1;
    let currency =
        world.tenants.iter().find(|known| known.tenant_id == *tenant).and_then(|known| known.currency.as_deref());
    format!("{tenant} fee.{state} {month} {amount} {}", currency.unwrap_or("UZS"))
}

fn sorted(lines: &[String]) -> Vec<&String> {
    let mut lines: Vec<&String> = lines.iter().collect();
    lines.sort();
    lines
}

/// Two workers share a run, so the order holds within a tenant only.
fn by_tenant(lines: &[String]) -> Vec<&String> {
    let mut lines: Vec<&String> = lines.iter().collect();
    lines.sort_by_key(|line| line.split(' ').next());
    lines
}

/// Every fee row pays exactly one due, and every paid due that costs something is paid by exactly one row.
async fn assert_rows_pay_dues(app: &TestApp, seen: &str) {
    let unpaired = app
        .count(
            "SELECT count(*) FROM (SELECT * FROM dues WHERE charged_at IS NOT NULL AND amount > 0) d
               FULL JOIN (SELECT * FROM wallet_transactions WHERE kind = 'subscription_fee') x
                 ON x.tenant_id = d.tenant_id AND x.currency = d.currency AND x.seq = d.charged_seq
                AND x.amount = -d.amount AND x.pocket = 'main' AND x.actor = 'job:fees'
                AND x.reference = 'fee:' || d.subscription_id || ':' || to_char(d.month, 'YYYY-MM')
              WHERE x.seq IS NULL OR d.due_id IS NULL",
        )
        .await;
    assert_eq!(unpaired, 0, "{seen}");
}

/// F6.
async fn assert_runs_add_up(app: &TestApp, seen: &str) {
    let (_, runs) = app.get("/v1/fee-runs").await;
    for run in runs["items"].as_array().unwrap() {
        assert_eq!(run["difference"], 0, "{seen}: {run}");
    }
}
