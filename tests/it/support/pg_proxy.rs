//! A proxy that speaks enough of PostgreSQL's wire protocol to lose a COMMIT, or the answer to one, and to
//! count round trips.
//!
//! It listens on a port of this machine and connects to the server's socket (or host and port). The client
//! comes without TLS: give it `sslmode=disable`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;

/// Where the server is.
#[derive(Debug, Clone)]
pub enum Upstream {
    Socket(PathBuf),
    Tcp(String),
}

/// What to do with the COMMIT of a transaction in which a marked statement ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtCommit {
    /// Nothing special.
    Pass,
    /// It reaches the server; no answer comes back on that connection, ever.
    LoseAnswer,
    /// It never reaches the server, nor does anything after it on that connection.
    LoseCommit,
}

#[derive(Debug)]
struct Rules {
    at_commit: Mutex<(AtCommit, String)>,
    lost: Notify,
    round_trips: AtomicU64,
}

/// The proxy. It ends with the runtime it was started on.
#[derive(Debug)]
pub struct PgProxy {
    pub port: u16,
    rules: Arc<Rules>,
}

impl PgProxy {
    pub async fn start(upstream: Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let rules = Arc::new(Rules {
            at_commit: Mutex::new((AtCommit::Pass, String::new())),
            lost: Notify::new(),
            round_trips: AtomicU64::new(0),
        });
        let given = rules.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, rules) = (upstream.clone(), given.clone());
                tokio::spawn(async move {
                    let _ = client.set_nodelay(true);
                    match upstream {
                        Upstream::Socket(path) => {
                            if let Ok(server) = UnixStream::connect(path).await {
                                let (from_server, to_server) = server.into_split();
                                carry(client, from_server, to_server, rules).await;
                            }
                        }
                        Upstream::Tcp(address) => {
                            if let Ok(server) = TcpStream::connect(address).await {
                                let (from_server, to_server) = server.into_split();
                                carry(client, from_server, to_server, rules).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, rules }
    }

    /// From now on, does this at the COMMIT of a transaction in which a statement ran whose text holds `marker`.
    pub fn at_commit(&self, what: AtCommit, marker: &str) {
        *self.rules.at_commit.lock().unwrap() = (what, marker.to_owned());
    }

    /// Waits until something was lost.
    pub async fn lost(&self) {
        self.rules.lost.notified().await;
    }

    /// How often a client has waited for the server so far: every ReadyForQuery ends one wait.
    pub fn round_trips(&self) -> u64 {
        self.rules.round_trips.load(Ordering::SeqCst)
    }
}

async fn carry(
    client: TcpStream,
    from_server: impl AsyncRead + Send + Unpin + 'static,
    to_server: impl AsyncWrite + Send + Unpin + 'static,
    rules: Arc<Rules>,
) {
    let (from_client, to_client) = client.into_split();
    let mute = Arc::new(AtomicBool::new(false));
    let answers = tokio::spawn(answers(from_server, to_client, mute.clone(), rules.clone()));
    // When the client is gone the server's half is dropped, so the server ends its session.
    let _ = questions(from_client, to_server, &mute, &rules).await;
    answers.abort();
}

async fn questions(
    mut client: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    mute: &AtomicBool,
    rules: &Rules,
) -> std::io::Result<()> {
    // The first message has no type.
    let mut length = [0_u8; 4];
    client.read_exact(&mut length).await?;
    let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
    client.read_exact(&mut body).await?;
    server.write_all(&length).await?;
    server.write_all(&body).await?;

    let mut statements: HashMap<Vec<u8>, bool> = HashMap::new();
    let mut marked = false;
    let mut deaf = false;
    loop {
        let mut head = [0_u8; 5];
        client.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        client.read_exact(&mut body).await?;
        let (what, marker) = rules.at_commit.lock().unwrap().clone();
        let holds_marker = || !marker.is_empty() && body.windows(marker.len()).any(|part| part == marker.as_bytes());
        match head[0] {
            // Parse: name, text. Bind: portal, name.
            b'P' => {
                statements.insert(body.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(), holds_marker());
            }
            b'B' => {
                let name = body.split(|byte| *byte == 0).nth(1).unwrap_or_default();
                marked = marked || statements.get(name).copied().unwrap_or_default();
            }
            b'Q' if body.starts_with(b"BEGIN") => marked = false,
            b'Q' if body.starts_with(b"COMMIT") && marked => match what {
                AtCommit::Pass => {}
                AtCommit::LoseAnswer => {
                    mute.store(true, Ordering::SeqCst);
                    rules.lost.notify_one();
                }
                AtCommit::LoseCommit => {
                    deaf = true;
                    rules.lost.notify_one();
                }
            },
            _ => {}
        }
        if !deaf {
            server.write_all(&head).await?;
            server.write_all(&body).await?;
        }
    }
}

async fn answers(
    mut server: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
    mute: Arc<AtomicBool>,
    rules: Arc<Rules>,
) -> std::io::Result<()> {
    loop {
        let mut head = [0_u8; 5];
        server.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        server.read_exact(&mut body).await?;
        if mute.load(Ordering::SeqCst) {
            continue;
        }
        if head[0] == b'Z' {
            rules.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        let mut message = head.to_vec();
        message.extend_from_slice(&body);
        client.write_all(&message).await?;
    }
}
