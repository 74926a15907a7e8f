//! The real program as a process of its own, to be killed.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::app::{PAYME_KEY, PAYME_TEST_KEY};

/// The program, built for these tests.
pub fn hamyon() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hamyon"));
    command.kill_on_drop(true).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        // Nothing of the developer's own settings leads the program elsewhere.
        if name.to_string_lossy().starts_with("HAMYON_") || name == "DATABASE_URL" || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// A serving process and where it listens.
pub struct Serving {
    pub child: Child,
    pub url: String,
}

impl Serving {
    /// Starts `hamyon serve` on a database and waits until it listens.
    pub async fn start(database_url: &str, arguments: &[&str]) -> Self {
        let mut command = hamyon();
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("DATABASE_URL", database_url)
            .env("HAMYON_PAYME_KEY", PAYME_KEY)
            .env("HAMYON_PAYME_TEST_KEY", PAYME_TEST_KEY)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("its output");
        let mut lines = BufReader::new(stdout).lines();
        let url = tokio::time::timeout(Duration::from_secs(30), async {
            while let Some(line) = lines.next_line().await.expect("a line") {
                if let Some(url) = line.strip_prefix("Hamyon listens on ") {
                    return url.to_owned();
                }
            }
            panic!("the program ended before it listened");
        })
        .await
        .expect("the program listens within 30 s");
        // Whatever it prints later goes nowhere, but the pipe stays open.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, url }
    }

    /// kill -9.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }
}
