//! The fee run against one raw `INSERT … SELECT` of the same charges, and its memory.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use hamyon::clock::Clock;
use hamyon::db::embedded::DATABASE;
use hamyon::fee::{self, RunOptions};
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use crate::Effort;
use crate::stage::{RAW, Stage, program};
use crate::table::{Reach, Table, median};

/// How many tenants pay in the measured run.
const TENANTS: i64 = 100_000;

/// Fills a database with tenants of the fees' own, each with one top-up and one subscription. The rows are
/// written past the door, with hashes that nobody verifies here.
async fn fill(session: &mut PgConnection, tenants: i64, prefix: &str) -> anyhow::Result<()> {
    let statements = [
        format!(
            "INSERT INTO tenants (tenant_id, name, time_zone, locale, created_at)
             SELECT '{prefix}-' || n, 'Fee', 'Asia/Tashkent', 'uz', now() - interval '40 days'
               FROM generate_series(1, {tenants}) n"
        ),
        format!(
            "INSERT INTO wallets (tenant_id, currency, created_at, head_seq, head_hash, head_recorded_at)
             SELECT tenant_id, 'UZS', created_at, 1, sha256(tenant_id::bytea), created_at
               FROM tenants WHERE tenant_id LIKE '{prefix}-%'"
        ),
        format!(
            "INSERT INTO wallet_transactions (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference,
                                              actor, metadata, recorded_at, hash)
             SELECT wallet_id, 1, tenant_id, 'UZS', 'top_up', 100000000, 'main', 'first', 'bench', '{{}}',
                    head_recorded_at, head_hash
               FROM wallets WHERE tenant_id LIKE '{prefix}-%'"
        ),
        "INSERT INTO plans (plan_id, name, currency, created_at) VALUES ('bench', 'Bench', 'UZS', now())
             ON CONFLICT DO NOTHING"
            .to_owned(),
        "INSERT INTO plan_prices (plan_id, from_month, amount, created_at) VALUES ('bench', '0001-01-01', 15000000, now())
             ON CONFLICT DO NOTHING"
            .to_owned(),
        format!(
            "INSERT INTO subscriptions (tenant_id, plan_id, started_on, first_month, first_owed_month, created_at)
             SELECT tenant_id, 'bench', date_trunc('month', now() AT TIME ZONE 'Asia/Tashkent')::date, 'full',
                    date_trunc('month', now() AT TIME ZONE 'Asia/Tashkent')::date, now()
               FROM tenants WHERE tenant_id LIKE '{prefix}-%'"
        ),
    ];
    for statement in statements {
        session.execute(sqlx::AssertSqlSafe(statement)).await?;
    }
    settle_down(session).await
}

/// What a server does between two months, so that neither side's round pays for the one before.
async fn settle_down(session: &mut PgConnection) -> anyhow::Result<()> {
    session.execute("VACUUM ANALYZE").await?;
    session.execute("CHECKPOINT").await?;
    Ok(())
}

/// What a raw charge of everybody takes: one statement that knows nothing of chains, dues, events or a rerun.
async fn raw_charge(session: &mut PgConnection, round: usize) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let charged = session
        .execute(sqlx::AssertSqlSafe(format!(
            "INSERT INTO wallet_transactions (wallet_id, seq, tenant_id, currency, kind, amount, pocket, reference,
                                              actor, metadata, recorded_at, hash)
             SELECT w.wallet_id, {seq}, w.tenant_id, 'UZS', 'subscription_fee', -15000000, 'main',
                    'fee:' || s.subscription_id || ':{round}', 'bench', '{{}}', now(), w.head_hash
               FROM wallets w
               JOIN subscriptions s ON s.tenant_id = w.tenant_id
              WHERE (SELECT sum(amount) FROM wallet_transactions x WHERE x.wallet_id = w.wallet_id) >= 15000000",
            seq = round.saturating_add(2),
        )))
        .await?;
    anyhow::ensure!(i64::try_from(charged.rows_affected()) == Ok(TENANTS), "the raw charge charged everybody");
    Ok(began.elapsed())
}

/// A run over everybody, several times: each round is the next month of the same tenants, on both sides. (With tenants
/// of its own each round had a larger book than the one before, and passed over everybody who had paid.)
pub async fn run(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let mut ours = stage.session(DATABASE).await?;
    let mut raw = stage.session(RAW).await?;
    fill(&mut raw, TENANTS, "fee").await?;
    fill(&mut ours, TENANTS, "fee").await?;
    let (mut our_times, mut raw_times) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds.min(3) {
        let months = u32::try_from(round).context("a few rounds")?;
        let now = Clock::System.now().checked_add_months(chrono::Months::new(months)).context("a few months")?;
        settle_down(&mut ours).await?;
        let began = Instant::now();
        let report = fee::run(&stage.db, &Clock::manual(now), RunOptions::default(), &|_| {})
            .await
            .map_err(|error| anyhow::anyhow!("the fee run failed: {error:?}"))?;
        our_times.push(began.elapsed().as_secs_f64());
        anyhow::ensure!(i64::try_from(report.charged) == Ok(TENANTS), "the run charged everybody: {report:?}");
        settle_down(&mut raw).await?;
        raw_times.push(raw_charge(&mut raw, round).await?.as_secs_f64());
    }
    table.ratio(
        format!("fee run, {TENANTS} tenants"),
        (median(our_times), "s"),
        (median(raw_times), "s"),
        Reach::AtMost(2.5),
    );
    Ok(())
}

/// The memory of a run over ten times as many tenants against that of a small one, as the kernel saw its peak.
pub async fn memory(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let mut session = stage.session(DATABASE).await?;
    let few = peak_of_run(stage).await?;
    fill(&mut session, effort.fee_memory_tenants, "fee-many").await?;
    let many = peak_of_run(stage).await?;
    table.ratio(
        format!("fee run's peak memory, {} tenants against none", effort.fee_memory_tenants),
        (many, "MB"),
        (few, "MB"),
        Reach::AtMost(3.0),
    );
    Ok(())
}

/// `hamyon fees run` as a process of its own, and the most memory it had, in MB.
async fn peak_of_run(stage: &Stage) -> anyhow::Result<f64> {
    let mut child = tokio::process::Command::new(program())
        .args(["fees", "run", "--yes"])
        .env("DATABASE_URL", stage.url())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let status = format!("/proc/{}/status", child.id().context("a running process")?);
    let mut peak_kb = 0.0_f64;
    loop {
        tokio::select! {
            ended = child.wait() => {
                anyhow::ensure!(ended?.success(), "the fee run failed");
                return Ok(peak_kb / 1024.0);
            }
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kb) = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()) {
            peak_kb = peak_kb.max(kb);
        }
    }
}
