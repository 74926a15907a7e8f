//! Connections: how many there may be at once, and how long each may take to say what it wants.
//!
//! Whoever opens a connection and says nothing, or half a request, costs us a file and nothing else is asked of him.
//! Without bounds a few hundred of those shut everybody out: the process has no file left to accept with, and no line
//! in the log says so. So there is a bound below what the system gives us, accepting waits at it instead of failing,
//! and a head that doesn't arrive frees its place.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::connect_info::Connected;
use axum_server::{AddrListener, Address, Handle, Server};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the head of a request may take to arrive; the next one's time begins with the answer. So this is also
/// how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// At most one line of the log in this time says that the bound is reached.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(SocketAddr);

impl Address for Peer {
    type Stream = Connection;
    type Listener = Connections;
}

impl Connected<Peer> for SocketAddr {
    fn connect_info(peer: Peer) -> Self {
        peer.0
    }
}

/// Where connections come in, never more at once than the bound.
#[derive(Debug)]
pub struct Connections {
    listener: TcpListener,
    places: Arc<Semaphore>,
    max: usize,
    said: Mutex<Option<Instant>>,
}

impl Connections {
    /// Connections of this listener, at most `max` at once.
    #[must_use]
    pub fn new(listener: TcpListener, max: usize) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(max)), max, said: Mutex::new(None) }
    }

    /// A place for one more connection, when there is one.
    async fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        self.say_full();
        self.places.clone().acquire_owned().await.map_err(io::Error::other)
    }

    fn say_full(&self) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            *said = Some(Instant::now());
            tracing::warn!(
                connections = self.max,
                "all {} connections are in use (HAMYON_CONNECTIONS_MAX); new ones wait until one ends",
                self.max
            );
        }
    }
}

impl AddrListener<Connection, Peer> for Connections {
    async fn bind_to(peer: Peer) -> io::Result<Self> {
        Ok(Self::new(TcpListener::bind(peer.0).await?, Semaphore::MAX_PERMITS))
    }

    async fn accept_stream(&self) -> io::Result<(Connection, Peer)> {
        // First the place: a connection that was accepted and has none would hold a file all the same.
        let place = self.place().await?;
        let (stream, peer) = self.listener.accept().await?;
        Ok((Connection { stream, _place: place }, Peer(peer)))
    }

    fn get_local_addr(&self) -> io::Result<Peer> {
        self.listener.local_addr().map(Peer)
    }
}

/// A connection, which holds its place until it ends.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Serves until `handle` says to stop.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(connections: Connections, router: Router, handle: Handle<Peer>) -> io::Result<()> {
    let mut server = Server::<Peer>::from_listener(connections)
        .http1_only()
        .handle(handle)
        .accept_error_handler(|_, error| tracing::error!("a connection could not be accepted: {error}"));
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // Who has said all he wants to say may close his side and still be answered.
        .half_close(true);
    server.serve(router.into_make_service_with_connect_info::<SocketAddr>()).await
}
