//! `hamyon token create|list|revoke`

use std::process::ExitCode;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use secrecy::ExposeSecret as _;

use crate::clock::Clock;
use crate::config::{self, DatabaseArgs};
use crate::db::Server;
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
    let mut conn = db.pool().acquire().await?;
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
            let token_id = token::store(&mut conn, &token, &client, &scopes, expires_at, now).await?;
            eprintln!("Token {token_id} for {client}. It is shown this once:");
            println!("{}", token.expose_secret());
            ExitCode::SUCCESS
        }
        TokenCommand::List => {
            for token in token::list(&mut conn).await? {
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
            if token::revoke(&mut conn, token_id, now).await? {
                println!("Token {token_id} is revoked.");
                ExitCode::SUCCESS
            } else {
                eprintln!("There is no valid token {token_id}; `hamyon token list` shows them.");
                ExitCode::FAILURE
            }
        }
    };
    drop(conn);
    db.close().await;
    Ok(code)
}

fn standing(token: &token::Token, now: DateTime<Utc>) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", at.to_rfc3339()),
        (None, Some(at)) if at <= now => format!("expired {}", at.to_rfc3339()),
        (None, Some(at)) => format!("valid until {}", at.to_rfc3339()),
        (None, None) => "valid".to_owned(),
    }
}
