//! As little HTTP as it takes, so that the client costs about as much as pgbench does.

use anyhow::Context as _;
use base64::Engine as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{API_TOKEN, PAYME_KEY};

pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    basic: String,
}

impl Connection {
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("Paycom:{PAYME_KEY}"));
        Ok(Self { stream, read: Vec::new(), basic })
    }

    pub async fn get(&mut self, path: &str) -> anyhow::Result<(u16, String)> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {API_TOKEN}\r\n\r\n");
        self.exchange(&head, "").await
    }

    /// A page of the console, for whoever has this session.
    pub async fn page(&mut self, path: &str, session: &str) -> anyhow::Result<(u16, String)> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nCookie: hamyon_session={session}\r\n\r\n");
        self.exchange(&head, "").await
    }

    pub async fn post(&mut self, path: &str, key: &str, body: &str) -> anyhow::Result<(u16, String)> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {API_TOKEN}\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(&head, body).await
    }

    pub async fn post_without_key(&mut self, path: &str, body: &str) -> anyhow::Result<(u16, String)> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {API_TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(&head, body).await
    }

    /// A call of Payme that must have a result.
    pub async fn payme(&mut self, body: &str) -> anyhow::Result<()> {
        let head = format!(
            "POST /payme HTTP/1.1\r\nHost: bench\r\nAuthorization: Basic {}\r\nContent-Length: {}\r\n\r\n",
            self.basic,
            body.len()
        );
        let (status, answer) = self.exchange(&head, body).await?;
        anyhow::ensure!(status == 200 && answer.contains("\"state\""), "Payme was answered {status} {answer}");
        Ok(())
    }

    async fn exchange(&mut self, head: &str, body: &str) -> anyhow::Result<(u16, String)> {
        let mut request = Vec::with_capacity(head.len().saturating_add(body.len()));
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(body.as_bytes());
        self.stream.write_all(&request).await?;
        self.read.clear();
        let head_length = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at.saturating_add(4);
            }
            anyhow::ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection ended");
        };
        let head = String::from_utf8_lossy(&self.read[..head_length]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("a status")?.parse()?;
        let length: usize =
            head.lines().find_map(|line| line.strip_prefix("content-length:")).context("a length")?.trim().parse()?;
        while self.read.len() < head_length.saturating_add(length) {
            anyhow::ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection ended");
        }
        Ok((status, String::from_utf8_lossy(&self.read[head_length..]).into_owned()))
    }
}
