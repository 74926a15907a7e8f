//! Where everything is measured: one PostgreSQL server, durable as in production, with a database for the
//! wallet and one for what it is compared with.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hamyon::clock::Clock;
use hamyon::db::embedded::{self, Embedded, Options};
use hamyon::db::{Database, PoolSettings, Server};
use hamyon::ids::{Pocket, Reference, TenantId};
use hamyon::ledger::{Entry, Floor, Kind, Metadata};
use hamyon::money::{CurrencyCode, MinorUnits};
use hamyon::tenant::{self, Locale, Tenant, TimeZone};
use scoped_futures::ScopedFutureExt as _;
use secrecy::SecretString;
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub const API_TOKEN: &str = "a-first-token-for-the-benchmarks";
pub const PAYME_KEY: &str = "a-payme-key-for-the-benchmarks";

/// The wallets that load is spread over: `load-1`, `load-2`, …
pub const WALLETS: u32 = 1_000;

/// The other database.
pub const RAW: &str = "raw";

pub struct Stage {
    pub folder: TempDir,
    pub server: Embedded,
    /// The wallet's database, for what is measured without HTTP.
    pub db: Database,
}

impl Stage {
    pub async fn set() -> anyhow::Result<Self> {
        let folder = data_folder()?;
        let server = embedded::start(Options::new(folder.path())).await?;
        let mut session = server.connect_options(embedded::SUPERUSER, embedded::DATABASE).connect().await?;
        session.execute("CREATE DATABASE raw").await?;
        let mut databases = Vec::new();
        for name in [RAW, embedded::DATABASE] {
            let ours = Server::given(&SecretString::from(server.url(embedded::SUPERUSER, name)), None)?;
            ours.migrate().await?;
            let db = ours.connect(PoolSettings { connections_max: 40, ..PoolSettings::default() }).await?;
            for number in 1..=WALLETS {
                create_tenant(&db, &format!("load-{number}")).await?;
            }
            databases.push(db);
        }
        let db = databases.pop().context("a database")?;
        Ok(Self { folder, server, db })
    }

    pub async fn strike(self) -> anyhow::Result<()> {
        self.db.close().await;
        let _ = self.server.stop().await?;
        Ok(())
    }

    pub fn url(&self) -> String {
        self.server.url(embedded::SUPERUSER, embedded::DATABASE)
    }

    pub async fn session(&self, database: &str) -> anyhow::Result<PgConnection> {
        let options = self.server.connect_options(embedded::SUPERUSER, database);
        Ok(options.disable_statement_logging().connect().await?)
    }

    pub async fn serve(&self) -> anyhow::Result<Serving> {
        let mut command = serve();
        command.env("DATABASE_URL", self.url());
        Serving::start(command).await
    }
}

pub fn data_folder() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("hamyon-bench-").permissions(Permissions::from_mode(0o755)).tempdir()?)
}

pub async fn create_tenant(db: &Database, tenant_id: &str) -> anyhow::Result<()> {
    let tenant = &Tenant {
        tenant_id: TenantId::parse(tenant_id)?,
        name: tenant_id.to_owned(),
        time_zone: TimeZone::parse("Asia/Tashkent")?,
        locale: Locale::Uz,
        status: "active".to_owned(),
        created_at: Clock::System.now(),
    };
    let created =
        db.run("bench_tenant", |conn| async move { tenant::create(conn, tenant).await.map(|_| ()) }.scope_boxed());
    created.await.map_err(|error| anyhow::anyhow!("a tenant was not created: {error:?}"))
}

pub fn entry(tenant_id: &str, amount: i64, reference: String) -> anyhow::Result<Entry> {
    Ok(Entry {
        tenant_id: TenantId::parse(tenant_id)?,
        currency: CurrencyCode::uzs(),
        kind: Kind::parse("bench")?,
        amount: MinorUnits::new(amount),
        pocket: Pocket::main(),
        reference: Reference::parse(reference)?,
        original_seq: None,
        reason: None,
        metadata: Metadata::empty(),
        floor: Floor::Zero,
    })
}

/// The program, as built for the benchmarks, which is as built for release.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hamyon"))
}

/// `hamyon serve` on a port of its own choice.
pub fn serve() -> Command {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HAMYON_") || name == "DATABASE_URL" || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("HAMYON_PAYME_KEY", PAYME_KEY)
        .env("HAMYON_API_TOKEN", API_TOKEN)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

pub struct Serving {
    child: Child,
    pub address: String,
    /// From the start of the process until `/readyz` said yes.
    pub ready_after: Duration,
}

impl Serving {
    pub async fn start(mut command: Command) -> anyhow::Result<Self> {
        let began = Instant::now();
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let address = loop {
            let line = lines.next_line().await?.context("the service ended before it listened")?;
            if let Some(address) = line.strip_prefix("Hamyon listens on http://") {
                break address.to_owned();
            }
        };
        let mut connection = crate::http::Connection::open(&address).await?;
        let (status, answer) = connection.get("/readyz").await?;
        if status != 200 {
            bail!("the service isn't ready: {answer}");
        }
        let ready_after = began.elapsed();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, address, ready_after })
    }

    /// Memory of the process itself, in MB.
    pub fn resident_mb(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().context("its id")?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kb: u32 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(f64::from(kb) / 1024.0)
    }

    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id().context("its id")?)?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM)?;
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("the service ended with {status}");
        }
        Ok(())
    }
}
