//! `hamyon token create|list|revoke`

use std::convert::Infallible;
use std::process::ExitCode;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use scoped_futures::ScopedFutureExt as _;
use secrecy::ExposeSecret as _;
use sqlx::PgConnection;

use crate::audit::{self, Line, Who};
use crate::clock::Clock;
use crate::config::{self, DatabaseArgs};
use crate::db::Server;
use crate::fault::{Error, Fault};
use crate::ids::ClientName;
use crate::token::{self, Scope};

/// What to do with tokens.
#[derive(Debug, clap::Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it; it is shown this once
    Create {
        /// The program that will call. Its idempotency keys stay its own when it gets another token
        #[arg(long)]
        client: String,
        /// What the token allows, by comma [default: everything]
        #[arg(long, value_delimiter = ',')]
        scope: Vec<String>,
        /// After how many days the token ends
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        expires_in_days: Option<u16>,
    },
    /// List the tokens, without their secrets
    List,
    /// Revoke a token, at once
    Revoke {
        /// Its number in the list
        token_id: i64,
    },
}

pub async fn run(database: &DatabaseArgs, command: TokenCommand) -> anyhow::Result<ExitCode> {
    let server = database.migrated_server().await?;
    let outcome = run_with(&server, database, command).await;
    config::leave(server, outcome).await
}

async fn run_with(server: &Server, database: &DatabaseArgs, command: TokenCommand) -> anyhow::Result<ExitCode> {
    let db = server.connect(database.patient_pool()).await?;
    let now = Clock::System.now();
    let code = match command {
        TokenCommand::Create { client, scope, expires_in_days } => {
            let client = ClientName::parse(client)?;
            let scopes = if scope.is_empty() {
                Scope::ALL.to_vec()
            } else {
                scope.iter().map(|name| Scope::parse(name.trim())).collect::<Result<_, _>>()?
            };
            let expires_at = expires_in_days
                .map(|days| now.checked_add_signed(TimeDelta::days(i64::from(days))).context("that is too far away"))
                .transpose()?;
            let token = token::generate();
            let (token_ref, client_ref, scopes) = (&token, &client, &scopes);
            let made = db.run("token_create", |conn| {
                async move {
                    let token_id = token::store(conn, token_ref, client_ref, scopes, expires_at, now).await?;
                    let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
                    let ends = expires_at.map_or_else(|| "no end".to_owned(), |at| format!("ends {}", at.to_rfc3339()));
                    let words = format!("token {token_id} for {client_ref}: {ends}, allows {}", names.join(","));
                    note(conn, "token.create", words, now).await?;
                    Ok::<_, Error<Infallible>>(token_id)
                }
                .scope_boxed()
            });
            let token_id = made.await.map_err(never_refused)?;
            eprintln!("Token {token_id} for {client}. It is shown this once:");
            println!("{}", token.expose_secret());
            ExitCode::SUCCESS
        }
        TokenCommand::List => {
            for token in token::list(&mut *db.pool().acquire().await?).await? {
                let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
                println!(
                    "{}\t{}\t{}\t{}\t{}",
                    token.token_id,
                    token.client,
                    scopes.join(","),
                    token.created_at.to_rfc3339(),
                    standing(&token, now),
                );
            }
            ExitCode::SUCCESS
        }
        TokenCommand::Revoke { token_id } => {
            let revoked = db.run("token_revoke", |conn| {
                async move {
                    let revoked = token::revoke(conn, token_id, now).await?;
                    if revoked {
                        note(conn, "token.revoke", format!("token {token_id} is revoked"), now).await?;
                    }
                    Ok::<_, Error<Infallible>>(revoked)
                }
                .scope_boxed()
            });
            if revoked.await.map_err(never_refused)? {
                println!("Token {token_id} is revoked.");
                ExitCode::SUCCESS
            } else {
                eprintln!("There is no valid token {token_id}; `hamyon token list` shows them.");
                ExitCode::FAILURE
            }
        }
    };
    db.close().await;
    Ok(code)
}

/// A line of the audit, in the transaction of its effect.
async fn note(conn: &mut PgConnection, action: &'static str, words: String, now: DateTime<Utc>) -> Result<(), Fault> {
    audit::write(conn, &Who::cli(), &Line { action, allowed: true, tenant_id: None, words }, now).await
}

fn never_refused(error: Error<Infallible>) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        Error::Refused(never) => match never {},
    }
}

fn standing(token: &token::Token, now: DateTime<Utc>) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", at.to_rfc3339()),
        (None, Some(at)) if at <= now => format!("expired {}", at.to_rfc3339()),
        (None, Some(at)) => format!("valid until {}", at.to_rfc3339()),
        (None, None) => "valid".to_owned(),
    }
}
