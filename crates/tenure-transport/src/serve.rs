//! The server we ship: accepts connections, bounds their number, and stops when told.
//!
//! In: a bound listener, and connections that the process before passed on. Out: one task for each connection, which
//! runs `connection`. Stops in the steps of [`Stages`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use pin_project_lite::pin_project;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use crate::connection::{self, ConnectionAdmission, Failed, HttpBuilders};
use crate::http::{Doorkeeper, Router, SharedPermit};
use crate::permits::ConnectionPermits;
use crate::reserve::Reserve;
use crate::stall::Stall;
use crate::tls;

pub use crate::http::Remote;
pub use crate::stages::{KeptConnection, Stages};

/// Connections accepted beyond `max_connections`: for health checks, and to wait for a permit.
pub const RESERVED: usize = crate::reserve::MOST;

/// How long connections may still write their last bytes when everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How connections are bounded.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once. A few more wait a short time for a permit, and the others are closed.
    pub max_connections: usize,
    /// Connections of one peer at once; see [`Bounds::share`].
    pub max_connections_per_peer: Option<usize>,
    /// How long the headers of a request may take, and how long a connection may be idle between two.
    pub header_timeout: Duration,
    /// The most header bytes that a request may have.
    pub max_header_bytes: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a client may read nothing while bytes wait for it.
    pub stall_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            max_connections_per_peer: None,
            header_timeout: Duration::from_secs(60),
            max_header_bytes: 32 << 10,
            handshake_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

impl Bounds {
    /// Connections that one peer may have: the configured number, or else a quarter of all, but at least 64.
    pub fn share(&self) -> usize {
        self.max_connections_per_peer.unwrap_or_else(|| (self.max_connections / 4).max(LEAST_SHARE))
    }
}

/// The least share of a peer, unless a number is configured.
const LEAST_SHARE: usize = 64;

/// A server with its listener bound.
#[expect(missing_debug_implementations, reason = "a TLS acceptor has no useful Debug")]
pub struct HttpServer {
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    bounds: Bounds,
    /// Connections that the process before passed on.
    kept: BoxStream<'static, KeptConnection>,
}

impl HttpServer {
    /// A server on a socket that listens already. Connections wait in its backlog until [`HttpServer::run`].
    pub fn new(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>, bounds: Bounds) -> Self {
        Self { listener, router, tls, bounds, kept: stream::pending().boxed() }
    }

    /// Continues to serve these connections too.
    #[must_use]
    pub fn with_kept(self, kept: BoxStream<'static, KeptConnection>) -> Self {
        // The accept loop polls it for as long as it runs, so the stream must not end.
        Self { kept: kept.chain(stream::pending()).boxed(), ..self }
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// When the operating system does not know.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves, and stops in the steps that `drain` takes. When `drain` is done, connections get a moment to write their
    /// last bytes and are then dropped.
    ///
    /// # Cancel safety
    /// Dropping it drops every connection.
    pub async fn run(self, stages: Stages, drain: impl Future<Output = ()>) {
        let scheme = self.scheme();
        let Self { listener, router, tls, bounds, mut kept } = self;
        let http = Arc::new(http(&bounds));
        let permits = ConnectionPermits::new(bounds.max_connections, bounds.share());
        let reserve = Reserve::default();
        let connections = TaskTracker::new();
        let kill = CancellationToken::new();
        let _kill_on_drop = kill.clone().drop_guard();
        let doors = router.doors.clone();
        let mut drain = std::pin::pin!(drain_with_doors(&doors, &stages, drain));
        let mut drained = false;
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &mut kept) => accepted,
                () = stages.shut.cancelled() => break,
                () = &mut drain, if !drained => {
                    drained = true;
                    break;
                }
            };
            let Accepted { stream, read, address } = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Mostly out of file descriptors: wait until some are free again.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let share = router.share(address.ip());
            let peer = share.peer();
            let admission = match permits.take(peer) {
                Ok(permit) => ConnectionAdmission::Permitted(SharedPermit::new(permit)),
                Err(why) => {
                    tracing::debug!(remote = %address, ?why, "a connection has to wait for a permit");
                    ConnectionAdmission::Spare(reserve.take(peer, &permits))
                }
            };
            let last_shown = router.last_shown();
            let remote = Remote { share: Some(share), last_shown, ..Remote::new(address, scheme) };
            let caller = (remote, admission.clone());
            let (kill, stages) = (kill.clone().cancelled_owned(), stages.clone());
            // Two kinds of task, because a task that can also do TLS would be five times as large.
            match (&tls, read) {
                (None, read) => {
                    let stream = Stall::new(stream, bounds.stall_timeout);
                    let read = read.unwrap_or_default();
                    let connection = connection::serve(&http, &router, stream, &read, caller, &stages);
                    spawn(&connections, connection, kill, address, stages, admission);
                }
                (Some(tls), None) => {
                    let accept = tls::accept(tls, stream, bounds.stall_timeout);
                    let accept = tokio::time::timeout(bounds.handshake_timeout, accept);
                    let (http, router, told) = (Arc::clone(&http), router.clone(), stages.clone());
                    let connection = async move {
                        let stream = accept.await.map_err(|_| "the TLS handshake took too long")??;
                        let (remote, admission) = caller;
                        let certificate = tls::client_certificate(&stream);
                        let caller = (Remote { certificate, ..remote }, admission);
                        connection::serve(&http, &router, stream, &Bytes::new(), caller, &told).await
                    };
                    spawn(&connections, connection, kill, address, stages, admission);
                }
                // The client speaks plain HTTP, as the process before did, but this process serves only TLS: close it.
                (Some(_), Some(_)) => {}
            }
        }
        drop((listener, kept));
        connections.close();
        if !drained {
            drain.await;
        }
        let mut finished = std::pin::pin!(async {
            connections.wait().await;
            doors.left().await;
        });
        if tokio::time::timeout(LAST_WORDS, &mut finished).await.is_err() {
            tracing::info!(connections = connections.len(), "closing connections that are still open");
            kill.cancel();
            doors.kill();
            connections.wait().await;
            doors.left().await;
        }
    }
}

/// Ends the door connections of a router that an embedder's server serves, in the steps that `drain` takes.
///
/// # Cancel safety
/// Connections that have ended stay ended; the other door connections go on if this future is dropped.
pub async fn drain_mounted(router: &Router, stages: &Stages, drain: impl Future<Output = ()>) {
    let doors = &router.doors;
    drain_with_doors(doors, stages, drain).await;
    if tokio::time::timeout(LAST_WORDS, doors.left()).await.is_err() {
        doors.kill();
        doors.left().await;
    }
}

/// Drains, and asks the door connections to finish when `stop` is cancelled.
async fn drain_with_doors(doors: &Doorkeeper, stages: &Stages, drain: impl Future<Output = ()>) {
    let stopped = async {
        stages.stop.cancelled().await;
        doors.stop();
    };
    tokio::join!(drain, stopped);
}

fn http(bounds: &Bounds) -> HttpBuilders {
    let mut http1 = http1::Builder::new();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(bounds.max_header_bytes.max(8192));
    let max_header_bytes = u32::try_from(bounds.max_header_bytes).unwrap_or(u32::MAX);
    let http2 = move |streams| {
        let mut http2 = http2::Builder::new(streams);
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(Duration::from_secs(30)))
            .keep_alive_timeout(Duration::from_secs(20))
            .max_header_list_size(max_header_bytes)
            .max_concurrent_streams(256);
        http2
    };
    HttpBuilders { http1, http2: Box::new(http2), opening: bounds.header_timeout }
}

/// Runs a connection as its own task.
fn spawn<F>(
    connections: &TaskTracker,
    connection: F,
    kill: WaitForCancellationFutureOwned,
    remote: SocketAddr,
    stages: Stages,
    admission: ConnectionAdmission,
) where
    F: Future<Output = Result<Option<KeptConnection>, Failed>> + Send + 'static,
{
    match admission {
        ConnectionAdmission::Permitted(permit) => {
            connections.spawn(ConnectionTask { connection, kill, remote, stages, _permit: Some(permit) });
        }
        // These are few and mostly short, so a larger task does no harm.
        ConnectionAdmission::Spare(spare) => {
            connections.spawn(async move {
                let connection = ConnectionTask { connection, kill, remote, stages, _permit: None };
                tokio::select! {
                    () = connection => {}
                    () = spare.is_over() => {}
                }
            });
        }
    }
}

struct Accepted {
    stream: TcpStream,
    /// The bytes that were already read from it, if the process before accepted it.
    read: Option<Bytes>,
    address: SocketAddr,
}

async fn accept(
    listener: &TcpListener,
    kept: &mut BoxStream<'static, KeptConnection>,
) -> io::Result<Accepted> {
    tokio::select! {
        accepted = listener.accept() => {
            let (stream, address) = accepted?;
            // Small messages back and forth: waiting to fill a packet only adds latency.
            stream.set_nodelay(true)?;
            let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
            socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            Ok(Accepted { stream, read: None, address })
        }
        // The process before has set these options already.
        Some(KeptConnection { stream, read }) = kept.next() => {
            let address = stream.peer_addr()?;
            stream.set_nonblocking(true)?;
            Ok(Accepted { stream: TcpStream::from_std(stream)?, read: Some(read), address })
        }
    }
}

pin_project! {
    /// Runs a connection until it ends or `kill` is cancelled.
    ///
    /// Written by hand, because an async function would store the connection's state twice, and there may be
    /// very many connections.
    struct ConnectionTask<F> {
        #[pin]
        connection: F,
        #[pin]
        kill: WaitForCancellationFutureOwned,
        remote: SocketAddr,
        stages: Stages,
        // Given back when both the connection and the WebSocket that it may have become are gone.
        _permit: Option<SharedPermit>,
    }
}

impl<F: Future<Output = Result<Option<KeptConnection>, Failed>>> Future for ConnectionTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if let Poll::Ready(ended) = this.connection.poll(cx) {
            match ended {
                Err(error) => tracing::debug!(remote = %this.remote, %error, "connection ended"),
                Ok(None) => {}
                Ok(Some(kept)) => this.stages.hand_over(kept),
            }
            return Poll::Ready(());
        }
        this.kill.poll(cx)
    }
}
