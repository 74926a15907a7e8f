//! The console's page of a tenant, of a long wallet and of a short one.

use std::time::Instant;

use hamyon::audit::Who;
use hamyon::clock::Clock;
use hamyon::db::Database;
use hamyon::staff::{self, Credentials, Role, Username};
use scoped_futures::ScopedFutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};

use crate::Effort;
use crate::http::Connection;
use crate::stage::Stage;
use crate::table::{Reach, Table, median};

const PASSWORD: &str = "a password for the benchmarks";

/// The page of `long` against that of `short`, which has enough rows to fill a page, too.
pub async fn page(stage: &Stage, effort: Effort, table: &mut Table, long: &str, short: &str) -> anyhow::Result<()> {
    let token = log_in(&stage.db).await?;
    let serving = stage.serve().await?;
    let mut connection = Connection::open(&serving.address).await?;
    let (mut long_times, mut short_times) = (Vec::new(), Vec::new());
    for turn in 0..effort.turns {
        let mut turns = [(long, &mut long_times), (short, &mut short_times)];
        if !turn.is_multiple_of(2) {
            turns.reverse();
        }
        for (tenant_id, times) in turns {
            let began = Instant::now();
            let (status, html) = connection.page(&format!("/console/tenants/{tenant_id}"), &token).await?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            anyhow::ensure!(status == 200 && html.contains("<polyline"), "the page was {status} {html}");
        }
    }
    serving.stop().await?;
    table.ratio(
        format!("console page, {} rows against 100", effort.big_wallet_rows),
        (median(long_times), "µs"),
        (median(short_times), "µs"),
        Reach::AtMost(1.3),
    );
    Ok(())
}

async fn log_in(db: &Database) -> anyhow::Result<String> {
    let (clock, who, username) = (&Clock::System, &Who::cli(), &Username::parse("bench")?);
    let added = db.run("bench_staff", |conn| {
        async move { staff::add(conn, who, username, Role::Viewer, SecretString::from(PASSWORD), clock.now()).await }
            .scope_boxed()
    });
    added.await.map_err(|error| anyhow::anyhow!("nobody was added: {error:?}"))?;
    let credentials = Credentials {
        username: username.to_string(),
        password: SecretString::from(PASSWORD),
        code: SecretString::from(""),
    };
    let session = staff::log_in(db, clock, credentials, who).await;
    let session = session.map_err(|error| anyhow::anyhow!("nobody was let in: {error:?}"))?;
    Ok(session.token.expose_secret().to_owned())
}
