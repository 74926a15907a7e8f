//! The real program as a process of its own, to be killed.

use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::app::{PAYME_KEY, PAYME_TEST_KEY};

/// The first API token of every serving process.
pub const API_TOKEN: &str = "a-first-token-for-the-process-tests";

/// How long a process may take for anything before the test gives up on it.
pub const WAIT_MAX: Duration = Duration::from_mins(1);

const POLL_STEP: Duration = Duration::from_millis(10);

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

/// `hamyon serve` with the tests' keys, on a port of its own choice; the caller says on which database.
pub fn serve() -> Command {
    let mut command = hamyon();
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("HAMYON_PAYME_KEY", PAYME_KEY)
        .env("HAMYON_PAYME_TEST_KEY", PAYME_TEST_KEY)
        .env("HAMYON_API_TOKEN", API_TOKEN);
    command
}

/// A client with connections of its own.
pub fn client() -> reqwest::Client {
    // Needed once a process; whoever comes second finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A connection that the service may be about to close isn't used again: on a busy machine the request would be
    // lost in that very moment.
    reqwest::Client::builder().pool_idle_timeout(Duration::from_secs(3)).build().expect("a client")
}

/// Runs a sub-command to its end.
pub async fn run(command: &mut Command) -> Output {
    tokio::time::timeout(WAIT_MAX, command.output()).await.expect("the program ends").expect("the program starts")
}

/// Everything a program said, for an assertion's text and for looking for secrets.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits until the world is as it should be.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    tokio::time::timeout(WAIT_MAX, async {
        while !is_so().await {
            tokio::time::sleep(POLL_STEP).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// What a process writes into one of its pipes, as it comes.
#[derive(Default)]
struct Heard {
    text: Mutex<String>,
    more: Notify,
}

impl Heard {
    fn listen(pipe: impl AsyncRead + Send + Unpin + 'static) -> (Arc<Self>, JoinHandle<()>) {
        let heard = Arc::new(Self::default());
        let writer = heard.clone();
        let listening = tokio::spawn(async move {
            let mut lines = BufReader::new(pipe).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut text = writer.text.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
                drop(text);
                writer.more.notify_one();
            }
        });
        (heard, listening)
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Waits for a line that begins like this and returns its rest.
    async fn line(&self, beginning: &str, listening: &JoinHandle<()>) -> Option<String> {
        loop {
            let ended = listening.is_finished();
            let found = self.text().lines().find_map(|line| line.strip_prefix(beginning).map(ToOwned::to_owned));
            if found.is_some() || ended {
                return found;
            }
            let _ = tokio::time::timeout(POLL_STEP, self.more.notified()).await;
        }
    }
}

/// A serving process and where it listens.
pub struct Serving {
    pub child: Child,
    pub url: String,
    pub client: reqwest::Client,
    printed: (Arc<Heard>, JoinHandle<()>),
    logged: (Arc<Heard>, JoinHandle<()>),
}

impl Serving {
    /// Starts `hamyon serve` on a database and waits until it listens.
    pub async fn start(database_url: &str, arguments: &[&str]) -> Self {
        let mut command = serve();
        command.args(arguments).env("DATABASE_URL", database_url);
        Self::launch(command).await
    }

    /// Runs a command that serves, and waits until it listens.
    pub async fn launch(command: Command) -> Self {
        Self::try_launch(command).await.unwrap_or_else(|(status, said)| panic!("ended with {status}:\n{said}"))
    }

    /// The same, for a command that may refuse to start: its exit and all it said.
    pub async fn try_launch(mut command: Command) -> Result<Self, (ExitStatus, String)> {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program can be started");
        let printed = Heard::listen(child.stdout.take().expect("its output"));
        let logged = Heard::listen(child.stderr.take().expect("its log"));
        let url = tokio::time::timeout(WAIT_MAX, printed.0.line("Hamyon listens on ", &printed.1)).await;
        let Some(url) = url.expect("the program listens or ends") else {
            let status = child.wait().await.expect("its exit");
            let (printed, logged) = (finished(printed).await, finished(logged).await);
            return Err((status, format!("{printed}{logged}")));
        };
        // Each with connections of its own: a test that counts them is not confused by another.
        Ok(Self { child, url, client: client(), printed, logged })
    }

    /// What it has printed so far.
    pub fn printed(&self) -> String {
        self.printed.0.text()
    }

    /// Waits until it has printed a line that begins like this.
    pub async fn has_printed(&self, beginning: &str) {
        let line = tokio::time::timeout(WAIT_MAX, self.printed.0.line(beginning, &self.printed.1)).await;
        line.expect("it prints or ends").unwrap_or_else(|| panic!("it never printed {beginning:?}"));
    }

    /// Waits until its log holds a text.
    pub async fn has_logged(&self, text: &str) {
        eventually(&format!("the log says {text:?}"), async || self.logged.0.text().contains(text)).await;
    }

    pub fn pid(&self) -> i32 {
        self.child.id().expect("a running process").try_into().expect("a process id")
    }

    /// kill -9.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the signal is sent");
    }

    /// Waits for its end: the exit and all it said.
    pub async fn ended(mut self) -> (ExitStatus, String) {
        let status = tokio::time::timeout(WAIT_MAX, self.child.wait()).await.expect("it ends").expect("its exit");
        let (printed, logged) = (finished(self.printed).await, finished(self.logged).await);
        (status, format!("{printed}{logged}"))
    }

    /// SIGTERM, and the exit must be a good one.
    pub async fn stop(self) -> String {
        self.signal(Signal::SIGTERM);
        let (status, said) = self.ended().await;
        assert_eq!(status.code(), Some(0), "{said}");
        said
    }

    /// A call of Payme with the live key; `Err` when there is no answer.
    pub async fn payme(&self, method: &str, params: &Value) -> Result<Value, reqwest::Error> {
        payme_call(&self.client, &self.url, method, params).await
    }

    pub async fn post(
        &self,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Result<(StatusCode, Value), reqwest::Error> {
        post_call(&self.client, &self.url, path, key, body).await
    }

    pub async fn get(&self, path: &str) -> Result<(StatusCode, Value), reqwest::Error> {
        answer(self.client.get(format!("{}{path}", self.url)).bearer_auth(API_TOKEN)).await
    }

    /// A tenant with its so'm wallet.
    pub async fn tenant(&self, tenant_id: &str) {
        let body = json!({ "tenant_id": tenant_id, "name": format!("Tenant {tenant_id}") });
        let (status, answer) = self.post("/v1/tenants", None, &body).await.expect("an answer");
        assert!(status.is_success(), "{status} {answer}");
    }

    /// A created Payme transaction.
    pub async fn payme_created(&self, id: &str, tenant_id: &str, amount: i64) -> Value {
        let answer = self.payme("CreateTransaction", &creation(id, tenant_id, amount)).await.expect("an answer");
        assert_eq!(answer["result"]["state"], 1, "{answer}");
        answer
    }
}

async fn finished((heard, listening): (Arc<Heard>, JoinHandle<()>)) -> String {
    // Another process may hold the pipe open; what matters was said by then.
    let _ = tokio::time::timeout(Duration::from_secs(5), listening).await;
    heard.text()
}

/// The parameters of a creation, dated now.
pub fn creation(id: &str, tenant_id: &str, amount: i64) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let now = i64::try_from(now.as_millis()).expect("milliseconds");
    json!({ "id": id, "time": now, "amount": amount, "account": { "tenant_id": tenant_id } })
}

/// A batch of one credit for each reference.
pub fn credits(tenant_id: &str, references: &[String], amount: &str) -> Value {
    let transactions: Vec<Value> = references
        .iter()
        .map(|reference| {
            json!({ "tenant_id": tenant_id, "currency": "UZS", "kind": "bonus", "amount": amount,
                    "reference": reference })
        })
        .collect();
    json!({ "transactions": transactions })
}

pub async fn payme_call(
    client: &reqwest::Client,
    url: &str,
    method: &str,
    params: &Value,
) -> Result<Value, reqwest::Error> {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let response = client.post(format!("{url}/payme")).basic_auth("Paycom", Some(PAYME_KEY)).json(&body).send().await?;
    assert_eq!(response.status(), StatusCode::OK, "Payme always gets 200");
    response.json().await
}

pub async fn post_call(
    client: &reqwest::Client,
    url: &str,
    path: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<(StatusCode, Value), reqwest::Error> {
    let mut request = client.post(format!("{url}{path}")).bearer_auth(API_TOKEN).json(body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    answer(request).await
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(StatusCode, Value), reqwest::Error> {
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}
