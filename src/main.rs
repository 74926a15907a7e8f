//! The `hamyon` program: see [`hamyon::cli`].

use std::process::ExitCode;

use clap::Parser as _;
use hamyon::cli;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run(cli::Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hamyon: {error:#}");
            ExitCode::FAILURE
        }
    }
}
