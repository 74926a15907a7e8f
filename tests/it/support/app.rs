//! The whole application in process: a real server on a port of its own, on a database of its own, with a
//! clock that the test moves.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use chrono::{DateTime, Utc};
use hamyon::app::{App, AppSettings, PaymeLinks};
use hamyon::clock::Clock;
use hamyon::db::{PoolSettings, Server};
use hamyon::fee::{ReminderPolicy, RunLimits};
use hamyon::http;
use hamyon::http::connections::{self, Connections};
use hamyon::ids::{ClientName, Pocket, Reason, Reference, TenantId};
use hamyon::ledger::{Entry, Floor, Kind, Metadata};
use hamyon::money::{CurrencyCode, MinorUnits};
use hamyon::outbox::DelivererSettings;
use hamyon::provider::payme::PaymeSettings;
use hamyon::provider::payme::auth::Keys;
use hamyon::provider::telegram::TelegramSettings;
use hamyon::support::{Limit, Limits};
use hamyon::token::{self, Scope};
use reqwest::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::OnceCell;

use super::cluster::{Cluster, cluster};

pub const PAYME_KEY: &str = "live-key-with-:-and-%&@#?(=";
pub const PAYME_TEST_KEY: &str = "test-key";

/// A database with the schema and nothing in it, from which every test gets its copy.
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

/// A fresh database with the schema, on the cluster of this run. Its name.
pub async fn fresh_database() -> String {
    let cluster = cluster().await;
    let template = TEMPLATE
        .get_or_init(|| async {
            let name = cluster.create_database_from(None).await;
            server(cluster, &name).migrate().await.expect("the template migrates");
            name
        })
        .await;
    cluster.create_database_from(Some(template)).await
}

/// The server as the service sees it: a URL of a superuser, stepped down to the service's role.
pub fn server(cluster: &Cluster, database: &str) -> Server {
    let url = SecretString::from(cluster.url("postgres", database));
    Server::given(&url, None).expect("the cluster's URL can be read")
}

pub struct TestApp {
    pub app: Arc<App>,
    pub address: SocketAddr,
    pub database: String,
    pub clock: Clock,
    pub client: reqwest::Client,
    /// A token with every scope.
    pub token: String,
    cluster: &'static Cluster,
    _serving: tokio::task::JoinHandle<()>,
}

pub fn settings() -> AppSettings {
    AppSettings {
        payme: PaymeSettings {
            keys: Keys {
                login: "Paycom".to_owned(),
                live: Some(SecretString::from(PAYME_KEY)),
                test: Some(SecretString::from(PAYME_TEST_KEY)),
            },
            tenant_field: "tenant_id".to_owned(),
            order_field: "order_id".to_owned(),
            busy_code: -31_099,
            top_up_min: MinorUnits::new(100_000),
            top_up_max: MinorUnits::new(10_000_000_000),
            fiscal_item: None,
        },
        payme_links: Some(PaymeLinks {
            merchant_id: "587f72c72cac0d162c722ae2".to_owned(),
            base_url: "https://checkout.paycom.uz".to_owned(),
        }),
        payme_addresses: Vec::new(),
        telegram: TelegramSettings::default(),
        trusted_proxies: Vec::new(),
        time_zone: hamyon::tenant::TimeZone::TASHKENT,
        fee_limits: RunLimits::default(),
        reminders: ReminderPolicy::default(),
        console_https: false,
        support_limits: Arc::new(Limits {
            agent: Limit::parse("UZS=1000").expect("a limit"),
            approver: Limit::parse("UZS=5000").expect("a limit"),
            request_hours: 24,
        }),
        holds: hamyon::hold::Terms::default(),
        // The receivers of the tests are on this machine.
        webhooks: DelivererSettings { allow_private: true, ..DelivererSettings::default() },
    }
}

impl TestApp {
    /// An application whose clock stands at the start of December 2026.
    pub async fn start() -> Self {
        Self::start_with(settings()).await
    }

    pub async fn start_with(settings: AppSettings) -> Self {
        // A test asserts no time, and the machine may be busy with others.
        let patient = PoolSettings { acquire_timeout: Duration::from_mins(1), ..PoolSettings::default() };
        Self::start_on(fresh_database().await, settings, patient).await
    }

    /// An application on a database that is there already.
    pub async fn start_on(database: String, settings: AppSettings, pool: PoolSettings) -> Self {
        // Needed once a process; whoever comes second finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = cluster().await;
        let now: DateTime<Utc> = "2026-12-01T09:00:00Z".parse().expect("a time");
        let clock = Clock::manual(now);
        let db = server(cluster, &database).connect(pool).await.expect("the service connects");
        let token = token::generate();
        {
            let mut conn = db.pool().acquire().await.expect("a connection");
            let client = ClientName::parse("tests").expect("a client's name");
            token::store(&mut conn, &token, &client, &Scope::ALL, None, now).await.expect("a token");
        }
        let app = Arc::new(App::build(db, clock.clone(), settings, None).expect("the application"));
        app.telegram.begin().await.expect("the bots' books begin");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = connections::serve(Connections::new(listener, 4096), http::router(app.clone()), Handle::new());
        let serving = tokio::spawn(async move { serving.await.expect("the server serves") });
        Self {
            app,
            address,
            database,
            clock,
            client: crate::support::process::client(),
            token: token.expose_secret().to_owned(),
            cluster,
            _serving: serving,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A URL of this database for another process, as a superuser.
    pub fn database_url(&self) -> String {
        self.cluster.url("postgres", &self.database)
    }

    /// A session that may do anything: what an intruder with the database's master key could do.
    pub async fn superuser(&self) -> PgConnection {
        self.cluster.superuser_options(&self.database).disable_statement_logging().connect().await.expect("a superuser")
    }

    /// A session that is the service and can't be anything else.
    pub async fn as_service(&self) -> PgConnection {
        let mut conn = self.superuser().await;
        sqlx::query("SET SESSION AUTHORIZATION hamyon_service").execute(&mut conn).await.expect("the service's role");
        conn
    }

    /// A tenant with its so'm wallet.
    pub async fn tenant(&self, tenant_id: &str) {
        let body = json!({ "tenant_id": tenant_id, "name": format!("Tenant {tenant_id}") });
        let (status, answer) = self.post("/v1/tenants", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }

    /// A plan with a price in so'm.
    pub async fn plan(&self, plan_id: &str, price: &str) {
        let body = json!({ "plan_id": plan_id, "name": format!("Plan {plan_id}"), "price": price });
        let (status, answer) = self.post("/v1/plans", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }

    /// A subscription; its number.
    pub async fn subscribe(&self, tenant_id: &str, plan_id: &str, started_on: &str, first_month: &str) -> i64 {
        let body = json!({ "plan_id": plan_id, "started_on": started_on, "first_month": first_month });
        let (status, answer) = self.post(&format!("/v1/tenants/{tenant_id}/subscriptions"), &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        answer["subscription_id"].as_i64().expect("a number")
    }

    /// A one-time order of an amount in so'm.
    pub async fn order(&self, order_id: &str, tenant_id: &str, amount: &str) {
        let body = json!({ "order_id": order_id, "tenant_id": tenant_id, "amount": amount, "title": "A thing" });
        let (status, answer) = self.post("/v1/orders", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }

    /// Money, as if imported, in minor units of so'm.
    pub async fn fund(&self, tenant_id: &str, amount: i64) {
        let reference = format!("fund-{}", uuid::Uuid::now_v7());
        self.post_entries(&[entry(tenant_id, "top_up", amount, &reference)]).await.expect("funded");
    }

    /// Books entries through the door, as the API does.
    pub async fn post_entries(
        &self,
        entries: &[Entry],
    ) -> Result<Vec<hamyon::ledger::PostedRow>, hamyon::fault::Error<hamyon::ledger::Refusal>> {
        use scoped_futures::ScopedFutureExt as _;
        let actor = &hamyon::ids::Actor::job("test");
        let now = self.clock.now();
        self.app
            .db
            .run("test_post", |conn| {
                async move { hamyon::funding::post(conn, entries, Vec::new(), actor, now).await }.scope_boxed()
            })
            .await
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        let request = self.client.get(self.url(path)).bearer_auth(&self.token);
        answer(request).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let request = self.client.post(self.url(path)).bearer_auth(&self.token).json(body);
        answer(request).await
    }

    pub async fn post_with_key(&self, path: &str, key: &str, body: &Value) -> (StatusCode, Value) {
        let request =
            self.client.post(self.url(path)).bearer_auth(&self.token).header("Idempotency-Key", key).json(body);
        answer(request).await
    }

    /// A call of Payme with the live key; the whole answer.
    pub async fn payme(&self, method: &str, params: Value) -> Value {
        self.payme_with_key(PAYME_KEY, method, params).await
    }

    pub async fn payme_with_key(&self, key: &str, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let response = self
            .client
            .post(self.url("/payme"))
            .basic_auth("Paycom", Some(key))
            .json(&body)
            .send()
            .await
            .expect("Payme gets an answer");
        assert_eq!(response.status(), StatusCode::OK, "Payme always gets 200");
        response.json().await.expect("Payme gets JSON")
    }

    /// Now, in Payme's milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.now().timestamp_millis()
    }

    /// A created Payme transaction on a tenant's wallet.
    pub async fn payme_created(&self, id: &str, tenant_id: &str, amount: i64) -> Value {
        let params = json!({
            "id": id, "time": self.now_ms(), "amount": amount, "account": { "tenant_id": tenant_id },
        });
        let answer = self.payme("CreateTransaction", params).await;
        assert_eq!(answer["result"]["state"], 1, "{answer}");
        answer
    }

    /// SUM(amount), the way anybody would ask in psql.
    pub async fn sum(&self, tenant_id: &str) -> i64 {
        sqlx::query_scalar(
            "SELECT coalesce(SUM(amount), 0)::bigint FROM wallet_transactions WHERE tenant_id = $1 AND currency = 'UZS'",
        )
        .bind(tenant_id)
        .fetch_one(&mut self.superuser().await)
        .await
        .expect("a sum")
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.superuser().await).await.expect("a count")
    }

    /// Everything that is written, as one text, but for the call log, the tokens, and what remembers attempts
    /// (the audit, logins): two of them compare equal when nothing was written in between.
    pub async fn everything_written(&self) -> String {
        let mut conn = self.superuser().await;
        let mut text = String::new();
        for table in [
            "tenants",
            "wallets",
            "wallet_transactions",
            "wallet_checkpoints",
            "payments",
            "payment_account_values",
            "orders",
            "payment_fiscal_receipts",
            "idempotency_keys",
            "currencies",
            "plans",
            "plan_prices",
            "subscriptions",
            "dues",
            "due_reminders",
            "fee_runs",
            "fee_run_confirmations",
            "events",
            "webhook_endpoints",
            "webhook_deliveries",
            "webhook_attempts",
            "staff",
            "support_requests",
            "pockets",
            "price_books",
            "price_book_models",
            "hold_tiers",
            "holds",
            "hold_usage",
            "allowances",
            "allowance_tiers",
            "allowance_assignments",
            "allowance_cycles",
            "resources",
            "slots",
            "slot_prices",
            "slot_holds",
            "bookings",
            "checkouts",
            "receipts",
            "refund_tasks",
            "payment_cases",
            "telegram_updates",
            "telegram_unread_updates",
            "telegram_statements",
        ] {
            let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM {table} t"
            )))
            .fetch_one(&mut conn)
            .await
            .expect("the rows of a table");
            writeln!(text, "{table}:\n{rows}").expect("a string takes everything");
        }
        conn.close().await.expect("closed");
        text
    }

    /// `hamyon verify` in process: the findings.
    pub async fn verify(&self) -> hamyon::ledger::verify::Report {
        let mut conn = self.superuser().await;
        let mut report = hamyon::ledger::verify::verify(&mut conn, &[], |_| {}).await.expect("verification reads");
        for amiss in hamyon::hold::verify(&mut conn).await.expect("verification reads") {
            report.add(format!("hold {}", amiss.hold_id), amiss.what);
        }
        report
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a body");
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, value)
}

/// An entry in so'm, in the main pocket.
pub fn entry(tenant_id: &str, kind: &str, amount: i64, reference: &str) -> Entry {
    Entry {
        tenant_id: TenantId::parse(tenant_id).expect("a tenant's id"),
        currency: CurrencyCode::uzs(),
        kind: Kind::parse(kind).expect("a kind"),
        amount: MinorUnits::new(amount),
        pocket: Pocket::main(),
        reference: Reference::parse(reference).expect("a reference"),
        original_seq: None,
        reason: Some(Reason::parse("a test").expect("a reason")),
        metadata: Metadata::empty(),
        floor: Floor::Zero,
    }
}
