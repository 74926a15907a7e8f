//! Demonstration data for `serve --demo`.
//!
//! Only into an empty database, or into one that a demonstration has filled before; and a database that a
//! demonstration has filled serves nothing else.

mod holds;
mod slots;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::bail;
use chrono::{DateTime, TimeDelta, Utc};
use scoped_futures::ScopedFutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};

use crate::app::App;
use crate::audit::Who;
use crate::booking;
use crate::clock::Clock;
use crate::config::ServeArgs;
use crate::db::Database;
use crate::fault::{Error, Fault, Widen as _};
use crate::fee::{self, FirstMonth, NewSubscription, Plan, RunOptions};
use crate::funding;
use crate::hold;
use crate::ids::{Actor, OrderId, Pocket, Reason, Reference, TenantId};
use crate::ledger::{self, Entry, Floor, Kind, Metadata};
use crate::money::{CurrencyCode, MinorUnits, Month};
use crate::payment::order::{self, Order, OrderStatus};
use crate::pocket;
use crate::staff::{self, Role, Username};
use crate::tenant::{self, Locale, Tenant, TimeZone};
use crate::token;

/// Known to everybody, so a demonstration listens on this machine only.
const DEMO_TOKEN: &str = "hamyon_demo_token_for_this_machine_only";
const DEMO_PAYME_KEY: &str = "demo-payme-key";
const DEMO_PAYME_TEST_KEY: &str = "demo-payme-test-key";
/// Who works at the demonstration's support desk, and with which password.
const DEMO_AGENT: (&str, Role) = ("dilnoza", Role::Agent);
const DEMO_APPROVER: (&str, Role) = ("rustam", Role::Approver);
const DEMO_PASSWORD: &str = "hamyon-demo";
/// The bot of the demonstration, which the example `fake_bot_api` plays.
const DEMO_BOT_TOKEN: &str = "111:demo-bot";
const DEMO_BOT_SECRET: &str = "demo-telegram-secret";
const DEMO_BOT_API_URL: &str = "http://127.0.0.1:8099";
const DEMO_MERCHANT_ID: &str = "587f72c72cac0d162c722ae2";

/// Whom the conformance run pays. A number, as are the orders, since Payme sends accounts as numbers, too.
const REHEARSAL_TENANT: &str = "7001";

/// How many orders a demonstration has ready to be paid, the number before the first, in tiyin what each costs.
const OPEN_ORDERS: usize = 5;
const BEFORE_FIRST_ORDER: u32 = 9000;
const ORDER_AMOUNT: MinorUnits = MinorUnits::new(15_000_000);

/// What a demonstration needs and wasn't given.
pub fn fill_in_settings(args: &mut ServeArgs) -> anyhow::Result<()> {
    let payme = &mut args.payme;
    let well_known = payme.payme_key.is_none() && payme.payme_key_file.is_none();
    if well_known && !args.listen.ip().is_loopback() {
        bail!(
            "--demo uses keys that everybody knows, so it listens on this machine only: leave HAMYON_LISTEN at \
             127.0.0.1 (it is {})",
            args.listen
        );
    }
    if well_known {
        payme.payme_key = Some(SecretString::from(DEMO_PAYME_KEY));
        payme.payme_test_key.get_or_insert_with(|| SecretString::from(DEMO_PAYME_TEST_KEY));
        if args.api_token.is_none() && args.api_token_file.is_none() {
            args.api_token = Some(SecretString::from(DEMO_TOKEN));
        }
    }
    payme.payme_merchant_id.get_or_insert_with(|| DEMO_MERCHANT_ID.to_owned());
    let telegram = &mut args.telegram;
    if well_known && telegram.telegram_token.is_none() && telegram.telegram_token_file.is_none() {
        telegram.telegram_token = Some(SecretString::from(DEMO_BOT_TOKEN));
        telegram.telegram_webhook_secret = Some(SecretString::from(DEMO_BOT_SECRET));
        telegram.telegram_webhook_secret_file = None;
        DEMO_BOT_API_URL.clone_into(&mut telegram.telegram_api_url);
    }
    Ok(())
}

/// Whether the database is what we were told: a demonstration's, or not.
pub async fn check_marked(db: &Database, demo: bool) -> anyhow::Result<()> {
    let (marked, used): (bool, bool) =
        sqlx::query_as("SELECT EXISTS (SELECT FROM installation WHERE name = 'demo'), EXISTS (SELECT FROM tenants)")
            .fetch_one(db.pool())
            .await?;
    match (demo, marked, used) {
        (true, true, _) | (true, false, false) | (false, false, _) => Ok(()),
        (true, false, true) => bail!(
            "--demo writes invented data, and this database holds real data: give --demo an empty one (another \
             HAMYON_DATA_DIR or DATABASE_URL)"
        ),
        (false, true, _) => bail!(
            "this database was filled by --demo: start with --demo again, or give another HAMYON_DATA_DIR or \
             DATABASE_URL for real data"
        ),
    }
}

/// The token that everybody knows stays valid in a demonstration's database, whatever keys came later; so such
/// a database is shown to this machine only.
pub async fn check_reach(db: &Database, listen: SocketAddr, now: DateTime<Utc>) -> anyhow::Result<()> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    let mut conn = db.pool().acquire().await?;
    if token::authenticate(&mut conn, DEMO_TOKEN, now).await?.is_some() {
        bail!(
            "this database lets in the demonstration's token, which everybody knows: leave HAMYON_LISTEN at \
             127.0.0.1 (it is {listen}), or give --demo another HAMYON_DATA_DIR or DATABASE_URL"
        );
    }
    Ok(())
}

/// What was filled in.
pub struct Filled {
    open_orders: Vec<OrderId>,
    slot_orders: Vec<OrderId>,
}

enum Refusal {
    Ledger(ledger::Refusal),
    Tenant(tenant::TenantRefusal),
    Order(order::OrderRefusal),
    Fee(fee::FeeRefusal),
    Staff(staff::StaffRefusal),
    Pocket(pocket::Refusal),
    Price(hold::PriceRefusal),
    Resource(booking::ResourceRefusal),
}

impl From<booking::ResourceRefusal> for Refusal {
    fn from(refusal: booking::ResourceRefusal) -> Self {
        Self::Resource(refusal)
    }
}

impl From<pocket::Refusal> for Refusal {
    fn from(refusal: pocket::Refusal) -> Self {
        Self::Pocket(refusal)
    }
}

impl From<hold::PriceRefusal> for Refusal {
    fn from(refusal: hold::PriceRefusal) -> Self {
        Self::Price(refusal)
    }
}

impl From<staff::StaffRefusal> for Refusal {
    fn from(refusal: staff::StaffRefusal) -> Self {
        Self::Staff(refusal)
    }
}

impl From<fee::FeeRefusal> for Refusal {
    fn from(refusal: fee::FeeRefusal) -> Self {
        Self::Fee(refusal)
    }
}

impl From<ledger::Refusal> for Refusal {
    fn from(refusal: ledger::Refusal) -> Self {
        Self::Ledger(refusal)
    }
}

impl From<tenant::TenantRefusal> for Refusal {
    fn from(refusal: tenant::TenantRefusal) -> Self {
        Self::Tenant(refusal)
    }
}

impl From<order::OrderRefusal> for Refusal {
    fn from(refusal: order::OrderRefusal) -> Self {
        Self::Order(refusal)
    }
}

impl From<Refusal> for anyhow::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Ledger(refusal) => refusal.into(),
            Refusal::Tenant(refusal) => refusal.into(),
            Refusal::Order(refusal) => refusal.into(),
            Refusal::Fee(refusal) => refusal.into(),
            Refusal::Staff(refusal) => refusal.into(),
            Refusal::Pocket(refusal) => refusal.into(),
            Refusal::Price(refusal) => refusal.into(),
            Refusal::Resource(refusal) => refusal.into(),
        }
    }
}

/// Fills in what is missing.
pub async fn fill(app: &Arc<App>) -> anyhow::Result<Filled> {
    let fill = app.db.run("demo_fill", |conn| {
        async move {
            // Two demonstrations that start at once fill one after the other.
            sqlx::query("SELECT pg_advisory_xact_lock(7561)").execute(&mut *conn).await?;
            let marked: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM installation WHERE name = 'demo')")
                .fetch_one(&mut *conn)
                .await?;
            let now = app.clock.now();
            if !marked {
                sqlx::query("INSERT INTO installation (name, value) VALUES ('demo', 'true')")
                    .execute(&mut *conn)
                    .await?;
                let then = month_ago(now);
                for tenant in tenants(then)? {
                    tenant::create(conn, &tenant).await.widen()?;
                }
                funding::post(conn, &history()?, Vec::new(), &Actor::job("demo"), then).await.widen()?;
                subscribe(conn, then).await?;
                for (username, role) in [DEMO_AGENT, DEMO_APPROVER] {
                    let username = Username::parse(username).map_err(invalid)?;
                    let password = SecretString::from(DEMO_PASSWORD);
                    staff::add(conn, &Who::cli(), &username, role, password, now).await.widen()?;
                }
            }
            let lifetime = app.payme.terms().lifetime;
            let filled = Filled {
                open_orders: open_orders(conn, lifetime, now).await?,
                slot_orders: slots::fill(conn, lifetime, now).await?,
            };
            Ok((filled, !marked))
        }
        .scope_boxed()
    });
    let (filled, is_new) = match fill.await {
        Ok(filled) => filled,
        Err(Error::Refused(refusal)) => return Err(refusal.into()),
        Err(Error::Fault(fault)) => return Err(fault.into()),
    };
    if is_new {
        // The fees of the past month fell due then, and this month's do now.
        let options = RunOptions { confirmed: true, ..RunOptions::default() };
        for clock in [Clock::manual(month_ago(app.clock.now())), app.clock.clone()] {
            match fee::run(&app.db, &clock, options.clone(), &|_| {}).await {
                Ok(_) => {}
                Err(Error::Refused(refusal)) => return Err(refusal.into()),
                Err(Error::Fault(fault)) => return Err(fault.into()),
            }
        }
        holds::fill(app).await?;
    }
    Ok(filled)
}

/// When the demonstration's history begins.
fn month_ago(now: DateTime<Utc>) -> DateTime<Utc> {
    before(now, TimeDelta::days(31))
}

/// A plan, a tenant who pays for it, and one who can't.
async fn subscribe(conn: &mut sqlx::PgConnection, then: DateTime<Utc>) -> Result<(), Error<Refusal>> {
    let plan = Plan {
        plan_id: OrderId::parse("standard").map_err(invalid)?,
        name: "Standard".to_owned(),
        currency: CurrencyCode::uzs(),
        price: MinorUnits::new(15_000_000),
    };
    fee::create_plan(conn, &plan, then).await.widen()?;
    for tenant_id in ["fitnes", "studio-berlin"] {
        let new = NewSubscription {
            tenant_id: TenantId::parse(tenant_id).map_err(invalid)?,
            plan_id: plan.plan_id.clone(),
            started_on: Month::of(then.date_naive()).first_day(),
            first_month: FirstMonth::Full,
        };
        fee::subscribe(conn, &new, then).await.widen()?;
    }
    Ok(())
}

fn before(now: DateTime<Utc>, ago: TimeDelta) -> DateTime<Utc> {
    now.checked_sub_signed(ago).unwrap_or(now)
}

fn invalid(error: crate::ids::InvalidName) -> Fault {
    Fault::new("a demonstration's name breaks a rule").because(error)
}

fn tenants(now: DateTime<Utc>) -> Result<Vec<Tenant>, Fault> {
    [
        ("acme", "Acme LLC", "Asia/Tashkent", Locale::En),
        ("choyxona", "Choyxona Navoiy", "Asia/Samarkand", Locale::Uz),
        ("fitnes", "Fitnes Chilonzor", "Asia/Tashkent", Locale::Uz),
        ("studio-berlin", "Студия Берлин", "Europe/Berlin", Locale::Ru),
        (REHEARSAL_TENANT, "Payme rehearsal", "Asia/Tashkent", Locale::Uz),
    ]
    .into_iter()
    .map(|(tenant_id, name, time_zone, locale)| {
        Ok(Tenant {
            tenant_id: TenantId::parse(tenant_id).map_err(invalid)?,
            name: name.to_owned(),
            time_zone: TimeZone::parse(time_zone).map_err(invalid)?,
            locale,
            status: "active".to_owned(),
            created_at: now,
        })
    })
    .collect()
}

/// A few movements, so that there is something to look at.
fn history() -> Result<Vec<Entry>, Fault> {
    let entry = |tenant: &str, currency: &str, kind: &str, amount: i64, reference: &str, reason: Option<&str>| {
        Ok(Entry {
            tenant_id: TenantId::parse(tenant).map_err(invalid)?,
            currency: CurrencyCode::parse(currency).map_err(invalid)?,
            kind: Kind::parse(kind).map_err(invalid)?,
            amount: MinorUnits::new(amount),
            pocket: Pocket::main(),
            reference: Reference::parse(reference).map_err(invalid)?,
            original_seq: None,
            reason: reason.map(|text| Reason::parse(text).map_err(invalid)).transpose()?,
            metadata: Metadata::empty(),
            floor: Floor::Zero,
        })
    };
    [
        entry("choyxona", "UZS", "top_up", 50_000_000, "import:2026-10-28", None),
        entry("choyxona", "UZS", "purchase", -12_000_000, "invoice:1041", None),
        entry("choyxona", "UZS", "adjustment", 500_000, "case:17", Some("Invoice 1041 was charged twice by hand")),
        entry("fitnes", "UZS", "top_up", 50_000_000, "import:2026-10-29", None),
        entry("studio-berlin", "UZS", "top_up", 4_200_000, "import:2026-11-02", None),
        entry("studio-berlin", "CREDIT", "bonus", 2_000, "welcome", None),
    ]
    .into_iter()
    .collect()
}

/// Orders that nobody has paid yet; new ones are made when those of the last run are paid.
async fn open_orders(
    conn: &mut sqlx::PgConnection,
    lifetime: chrono::TimeDelta,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Vec<OrderId>, Error<Refusal>> {
    let mut open = Vec::new();
    let mut number = BEFORE_FIRST_ORDER;
    while open.len() < OPEN_ORDERS {
        number = number.saturating_add(1);
        let order_id = OrderId::parse(number.to_string()).map_err(invalid)?;
        let status = order::find_with_status(conn, &order_id, lifetime, now).await?.map(|(_, status)| status);
        if status.is_none() {
            let order = Order {
                order_id: order_id.clone(),
                tenant_id: TenantId::parse(REHEARSAL_TENANT).map_err(invalid)?,
                currency: CurrencyCode::uzs(),
                amount: ORDER_AMOUNT,
                title: format!("Demonstration order {number}"),
                created_at: now,
                expires_at: None,
                closed_at: None,
                slot_id: None,
                payer: None,
            };
            order::create(conn, &order).await.widen()?;
        }
        if status.unwrap_or(OrderStatus::Open) == OrderStatus::Open {
            open.push(order_id);
        }
    }
    Ok(open)
}

impl Filled {
    /// Where to look, with commands that work as printed.
    pub fn print_where_to_look(&self, address: SocketAddr, args: &ServeArgs, psql_url: Option<&str>) {
        let secret = |secret: &Option<SecretString>| {
            secret.as_ref().map_or_else(|| "…".to_owned(), |secret| secret.expose_secret().to_owned())
        };
        let (token, key) = (secret(&args.api_token), secret(&args.payme.payme_key));
        let slot_orders: Vec<&str> = self.slot_orders.iter().map(OrderId::as_str).collect();
        let (slot_orders, price) = (slot_orders.join(" and "), slots::STARS.get());
        let orders: Vec<String> =
            self.open_orders.iter().take(4).map(|order| format!("--one-time-account order_id={order}")).collect();
        println!(
            "
This is a demonstration: the data is invented, the keys are known to everybody.

  Support desk       http://{address}/console (as dilnoza, an agent, or rustam, an approver; password {DEMO_PASSWORD})
  API documentation  http://{address}/docs
  Metrics            http://{address}/metrics
  Telegram Stars     cargo run --example fake_bot_api -- 8099 http://{address}/telegram/webhook {DEMO_BOT_SECRET}
                     plays Telegram and its payers at http://127.0.0.1:8100: orders {slot_orders} want one slot, for {price} stars

A balance:
  curl -s -H 'Authorization: Bearer {token}' http://{address}/v1/tenants/acme/balance

A tenant whose fee is unpaid, and what the fees' run says of itself:
  curl -s -H 'Authorization: Bearer {token}' http://{address}/v1/tenants/studio-berlin
  curl -s -H 'Authorization: Bearer {token}' http://{address}/v1/fee-runs

A payment, as Payme's servers make it (create, then perform):
  id=$(date +%s%N | cut -c1-18)demo01
  curl -s -u 'Paycom:{key}' http://{address}/payme -d '{{\"id\":1,\"method\":\"CreateTransaction\",\"params\":{{\"id\":\"'$id'\",\"time\":'$(date +%s000)',\"amount\":1500000,\"account\":{{\"tenant_id\":\"acme\"}}}}}}'
  curl -s -u 'Paycom:{key}' http://{address}/payme -d '{{\"id\":2,\"method\":\"PerformTransaction\",\"params\":{{\"id\":\"'$id'\"}}}}'

Every scenario of Payme's sandbox:
  target/release/hamyon payme conformance --url http://{address}/payme --key {key} \\
    --account tenant_id={REHEARSAL_TENANT} --amount 1500000 \\
    {} --one-time-amount {} \\
    --expiry-wait-secs 5 --spend-command '
      api=http://{address}/v1; auth=\"Authorization: Bearer {token}\"
      left=$(curl -sf -H \"$auth\" $api/tenants/$HAMYON_ACCOUNT/balance | sed \"s/.*available.:.\\([0-9.]*\\).*/\\1/\")
      curl -sf -H \"$auth\" -H \"Content-Type: application/json\" -H \"Idempotency-Key: $HAMYON_PAYME_ID\" $api/transactions/batch \\
        -d \"{{\\\"transactions\\\":[{{\\\"tenant_id\\\":\\\"$HAMYON_ACCOUNT\\\",\\\"currency\\\":\\\"UZS\\\",\\\"kind\\\":\\\"purchase\\\",\\\"amount\\\":\\\"-$left\\\",\\\"reference\\\":\\\"spent:$HAMYON_PAYME_ID\\\"}}]}}\"'
",
            orders.join(" "),
            ORDER_AMOUNT.get(),
        );
        if let Some(url) = psql_url {
            println!("The book itself:\n  psql '{url}' -c 'SELECT * FROM wallet_transactions'\n");
        }
        println!("Ctrl-C stops it.");
    }
}
