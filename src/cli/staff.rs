//! `hamyon staff add|list|role|disable|password|code`

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use scoped_futures::ScopedFutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};

use crate::audit::Who;
use crate::clock::Clock;
use crate::config::{self, DatabaseArgs};
use crate::db::{Database, Server};
use crate::fault::Error;
use crate::staff::{self, Role, StaffRefusal, Username};

/// What to do with the people at the support desk.
#[derive(Debug, clap::Subcommand)]
pub enum StaffCommand {
    /// Let somebody log in at /console. The password is asked for, or read from the standard input
    Add {
        /// The name to log in with
        username: String,
        /// viewer, agent, approver or admin
        #[arg(long, default_value = "viewer")]
        role: String,
        /// A file that holds the password
        #[arg(long)]
        password_file: Option<PathBuf>,
    },
    /// List everybody
    List,
    /// Give somebody another role, at once
    Role {
        /// Who
        username: String,
        /// viewer, agent, approver or admin
        role: String,
    },
    /// Shut somebody out, at once
    Disable {
        /// Who
        username: String,
    },
    /// Give somebody another password and log them out everywhere
    Password {
        /// Who
        username: String,
        /// A file that holds the password
        #[arg(long)]
        password_file: Option<PathBuf>,
    },
    /// Ask somebody for an authenticator's code (TOTP) from now on; prints what the authenticator reads, this once
    Code {
        /// Who
        username: String,
        /// Stop asking
        #[arg(long)]
        off: bool,
    },
}

pub async fn run(database: &DatabaseArgs, command: StaffCommand) -> anyhow::Result<ExitCode> {
    let server = database.migrated_server().await?;
    let outcome = run_with(&server, database, command).await;
    config::leave(server, outcome).await
}

async fn run_with(server: &Server, database: &DatabaseArgs, command: StaffCommand) -> anyhow::Result<ExitCode> {
    let db = server.connect(database.patient_pool()).await?;
    let outcome = obey(&db, command).await;
    db.close().await;
    outcome
}

async fn obey(db: &Database, command: StaffCommand) -> anyhow::Result<ExitCode> {
    let who = &Who::cli();
    let now = Clock::System.now();
    match command {
        StaffCommand::Add { username, role, password_file } => {
            let (username, role) = (&Username::parse(&username)?, Role::parse(&role)?);
            let password = &read_password(password_file)?;
            let added = db.run("staff_add", |conn| {
                async move { staff::add(conn, who, username, role, password.clone(), now).await }.scope_boxed()
            });
            done(added.await)?;
            println!("{username} can log in at /console, as {role}.");
        }
        StaffCommand::List => {
            let mut conn = db.pool().acquire().await?;
            for member in staff::list(&mut conn).await? {
                println!(
                    "{}\t{}\t{}\t{}\t{}",
                    member.username,
                    member.role,
                    if member.has_second_factor { "password and code" } else { "password" },
                    member.created_at.to_rfc3339(),
                    member
                        .disabled_at
                        .map_or_else(|| "active".to_owned(), |at| format!("disabled {}", at.to_rfc3339())),
                );
            }
        }
        StaffCommand::Role { username, role } => {
            let (username, role) = (&Username::parse(&username)?, Role::parse(&role)?);
            let changed = db.run("staff_role", |conn| {
                async move { staff::set_role(conn, who, username, role, now).await }.scope_boxed()
            });
            done(changed.await)?;
            println!("{username} is {role}.");
        }
        StaffCommand::Disable { username } => {
            let username = &Username::parse(&username)?;
            let disabled = db.run("staff_disable", |conn| {
                async move { staff::disable(conn, who, username, now).await }.scope_boxed()
            });
            done(disabled.await)?;
            println!("{username} can't log in any more.");
        }
        StaffCommand::Password { username, password_file } => {
            let username = &Username::parse(&username)?;
            let password = &read_password(password_file)?;
            let changed = db.run("staff_password", |conn| {
                async move { staff::set_password(conn, who, username, password.clone(), now).await }.scope_boxed()
            });
            done(changed.await)?;
            println!("{username} has another password and is logged out everywhere.");
        }
        StaffCommand::Code { username, off } => {
            let username = &Username::parse(&username)?;
            let set = db.run("staff_second_factor", |conn| {
                async move { staff::set_second_factor(conn, who, username, !off, now).await }.scope_boxed()
            });
            match done(set.await)? {
                Some(url) => {
                    eprintln!("Type this into {username}'s authenticator. It is shown this once:");
                    println!("{}", url.expose_secret());
                }
                None => println!("No code is asked of {username} any more."),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done<T>(outcome: Result<T, Error<StaffRefusal>>) -> anyhow::Result<T> {
    outcome.map_err(|error| match error {
        Error::Refused(refusal) => refusal.into(),
        Error::Fault(fault) => fault.into(),
    })
}

/// From the file, or asked twice at a terminal, or the first line of the standard input.
fn read_password(file: Option<PathBuf>) -> anyhow::Result<SecretString> {
    if let Some(file) = file {
        let text = std::fs::read_to_string(&file).with_context(|| format!("{} can't be read", file.display()))?;
        return Ok(SecretString::from(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    if std::io::stdin().is_terminal() {
        let password = rpassword::prompt_password("Password: ").context("the password can't be read")?;
        if rpassword::prompt_password("Again: ").context("the password can't be read")? != password {
            bail!("the two passwords differ; nothing was changed");
        }
        return Ok(SecretString::from(password));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("the password can't be read from the standard input")?;
    Ok(SecretString::from(text.lines().next().unwrap_or_default().to_owned()))
}
