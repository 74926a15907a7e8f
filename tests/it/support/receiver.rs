//! A receiver of webhooks that remembers every request and answers as it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::process::eventually;

/// How a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Status(u16),
    Redirect(u16, String),
    /// No answer before [`Receiver::release`], then 204.
    Hold,
    /// 200 and a body without an end.
    Endless,
}

/// What came.
#[derive(Debug, Clone)]
pub struct Heard {
    pub path: String,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Heard {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("a header of text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("JSON")
    }

    pub fn tenant(&self) -> String {
        self.json()["data"]["tenant_id"].as_str().expect("a tenant").to_owned()
    }

    pub fn id(&self) -> String {
        self.header("webhook-id").to_owned()
    }
}

type Script = Box<dyn Fn(&Heard) -> Reply + Send>;

struct Inner {
    heard: Mutex<Vec<Heard>>,
    script: Mutex<Script>,
    held: Semaphore,
}

pub struct Receiver {
    pub address: SocketAddr,
    inner: Arc<Inner>,
}

impl Receiver {
    /// A receiver that says 204 to everything until it is told otherwise.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let inner = Arc::new(Inner {
            heard: Mutex::default(),
            script: Mutex::new(Box::new(|_| Reply::Status(204))),
            held: Semaphore::new(0),
        });
        let router = Router::new().fallback(hear).with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, inner }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// From now on it answers like this.
    pub fn answers(&self, script: impl Fn(&Heard) -> Reply + Send + 'static) {
        *self.inner.script.lock().unwrap() = Box::new(script);
    }

    /// Lets so many held requests have their answer.
    pub fn release(&self, requests: usize) {
        self.inner.held.add_permits(requests);
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.inner.heard.lock().unwrap().clone()
    }

    /// What came for a tenant: the member `n` of each, in its order.
    pub fn numbers(&self, tenant_id: &str) -> Vec<i64> {
        let of_tenant = self.heard().into_iter().filter(|heard| heard.tenant() == tenant_id);
        of_tenant.map(|heard| heard.json()["data"]["n"].as_i64().expect("a number")).collect()
    }

    /// Waits until so many requests have come.
    pub async fn has_heard(&self, requests: usize) {
        eventually("the receiver hears", async || self.inner.heard.lock().unwrap().len() >= requests).await;
    }
}

async fn hear(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("a whole request");
    let heard = Heard { path: parts.uri.to_string(), headers: parts.headers, bytes };
    let reply = inner.script.lock().unwrap()(&heard);
    inner.heard.lock().unwrap().push(heard);
    match reply {
        Reply::Status(status) => StatusCode::from_u16(status).expect("a status").into_response(),
        Reply::Redirect(status, to) => {
            (StatusCode::from_u16(status).expect("a status"), [(header::LOCATION, to)]).into_response()
        }
        Reply::Hold => {
            inner.held.acquire().await.expect("never closed").forget();
            StatusCode::NO_CONTENT.into_response()
        }
        Reply::Endless => {
            let chunk = Bytes::from(vec![b'x'; 65_536]);
            let chunks = futures::stream::repeat_with(move || Ok::<_, std::convert::Infallible>(chunk.clone()));
            Body::from_stream(chunks).into_response()
        }
    }
}

/// A server that hangs up in the middle of its answer's first line. Its URL.
pub async fn hangs_up() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut some = [0_u8; 8_192];
            let _ = tokio::time::timeout(Duration::from_secs(5), socket.read(&mut some)).await;
            let _ = socket.write_all(b"HTTP/1.1 2").await;
        }
    });
    format!("http://{address}/hooks")
}

/// A URL at which nobody listens.
pub async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("http://{}/hooks", listener.local_addr().expect("an address"))
}
