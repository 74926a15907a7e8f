//! `hamyon migrate`

use std::process::ExitCode;

use crate::config::{self, DatabaseArgs};

pub async fn run(database: &DatabaseArgs) -> anyhow::Result<ExitCode> {
    let server = database.server_or_new().await?;
    let migrated = server.migrate().await.map_err(Into::into);
    config::leave(server, migrated).await?;
    println!("The schema is up to date.");
    Ok(ExitCode::SUCCESS)
}
