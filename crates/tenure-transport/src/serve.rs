//! The server we ship: accepts connections, bounds them, and stops when told.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use pin_project_lite::pin_project;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use crate::connection::{self, Admission, Failed, Http};
use crate::http::{Doorkeeper, Router, Seat};
use crate::permits::Seats;
use crate::reserve::Reserve;
use crate::stall::Stall;
use crate::tls;

pub use crate::http::Remote;

/// Connections that are accepted beyond those that there may be: for questions about health, and to wait for a place.
pub const RESERVED: usize = crate::reserve::MOST;

/// What connections get to write their last bytes when everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How connections are bounded.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once. A few more wait a little for a place, and others are closed.
    pub max_connections: usize,
    /// Connections of one peer at once; see [`Bounds::share`].
    pub max_connections_per_peer: Option<usize>,
    /// How long the headers of a request may take, and how long a connection may be idle between two.
    pub header_timeout: Duration,
    /// The most header bytes.
    pub max_header_bytes: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a client may read nothing while there is something for it.
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
    /// Connections that one peer may have: as many as it is said, or else a quarter of all, but not less than 64.
    pub fn share(&self) -> usize {
        self.max_connections_per_peer.unwrap_or_else(|| (self.max_connections / 4).max(LEAST_SHARE))
    }
}

/// The least share of connections that a peer has, unless it is said.
const LEAST_SHARE: usize = 64;

/// How far a server has gone on its way down. Each step follows the one before it.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// It is about to stop, and serves on. Clients are told not to use their connections for another request, so that
    /// none of them sends one just when its connection is closed.
    pub leaving: CancellationToken,
    /// Connections end, each when it has written what it has to.
    pub stop: CancellationToken,
    /// No more connections are accepted. If the socket is shared with another process, that one does.
    pub shut: CancellationToken,
    /// Connections whose first request has not come yet.
    pub(crate) fresh: TaskTracker,
    /// Connections on which a request may begin, or is being received.
    pub(crate) receiving: TaskTracker,
    /// Takes connections that are between two requests.
    successor: Arc<OnceLock<mpsc::Sender<Kept>>>,
}

/// A connection between two requests, which another process can go on with.
#[derive(Debug)]
pub struct Kept {
    /// The connection, over which plain HTTP is spoken.
    pub stream: std::net::TcpStream,
    /// What was read of the next request.
    pub read: Bytes,
}

impl Stages {
    /// Waits until the first request has come on every connection that was accepted, at most this long. A client that
    /// connects sends it at once.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn heard(&self, limit: Duration) {
        self.fresh.close();
        drop(tokio::time::timeout(limit, self.fresh.wait()).await);
    }

    /// Waits until no request is being received any more, at most this long. To be called after `stop`.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn received(&self, limit: Duration) {
        self.receiving.close();
        drop(tokio::time::timeout(limit, self.receiving.wait()).await);
    }

    /// Connections are given to this one when they stop between two requests, and not closed. To be called before `stop`.
    pub fn pass_on(&self, to: mpsc::Sender<Kept>) {
        // There is one successor at most.
        drop(self.successor.set(to));
    }

    pub(crate) fn has_successor(&self) -> bool {
        self.successor.get().is_some()
    }
}

/// A server with its listener bound.
#[expect(missing_debug_implementations, reason = "a TLS acceptor has no useful Debug")]
pub struct Server {
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    bounds: Bounds,
    /// Connections of the process that was here before.
    kept: BoxStream<'static, Kept>,
}

impl Server {
    /// A server on a socket that listens already. Connections wait in its backlog until [`Server::run`].
    pub fn new(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>, bounds: Bounds) -> Self {
        Self { listener, router, tls, bounds, kept: stream::pending().boxed() }
    }

    /// Goes on with these connections too.
    #[must_use]
    pub fn with_kept(self, kept: BoxStream<'static, Kept>) -> Self {
        // It is looked at again and again, so it must not end.
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

    /// Serves, and ends in steps as `drain` gives them. When `drain` is done, connections get a moment to write their
    /// last bytes, and are dropped.
    ///
    /// # Cancel safety
    /// Dropping it drops every connection.
    pub async fn run(self, stages: Stages, drain: impl Future<Output = ()>) {
        let scheme = self.scheme();
        let Self { listener, router, tls, bounds, mut kept } = self;
        let http = Arc::new(http(&bounds));
        let (seats, reserve) = (Seats::new(bounds.max_connections, bounds.share()), Reserve::default());
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
                    // Out of file descriptors, mostly: wait for some to come free.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let share = router.share(address.ip());
            let peer = share.peer();
            let admission = match seats.take(peer) {
                Ok(place) => Admission::Seated(Seat::new(place)),
                Err(why) => {
                    tracing::debug!(remote = %address, ?why, "a connection has to wait for a place");
                    Admission::Spare(reserve.take(peer, &seats))
                }
            };
            let remote = Remote { share: Some(share), ..Remote::new(address, scheme) };
            let caller = (remote, admission.clone());
            let (kill, stages) = (kill.clone().cancelled_owned(), stages.clone());
            // Two kinds of task, because one that may also do TLS would be five times as large.
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
                        connection::serve(&http, &router, stream, &Bytes::new(), caller, &told).await
                    };
                    spawn(&connections, connection, kill, address, stages, admission);
                }
                // Its client speaks plain HTTP, which the process before spoke and this one does not.
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

/// Ends the talks at the doors of a router that the server of an embedder serves, in steps as `drain` gives them.
///
/// # Cancel safety
/// What has ended stays so; talks at the doors go on if it is dropped.
pub async fn drain_mounted(router: &Router, stages: &Stages, drain: impl Future<Output = ()>) {
    let doors = &router.doors;
    drain_with_doors(doors, stages, drain).await;
    if tokio::time::timeout(LAST_WORDS, doors.left()).await.is_err() {
        doors.kill();
        doors.left().await;
    }
}

/// Drains, and asks those who talk at the doors to finish when connections are to end.
async fn drain_with_doors(doors: &Doorkeeper, stages: &Stages, drain: impl Future<Output = ()>) {
    let stopped = async {
        stages.stop.cancelled().await;
        doors.stop();
    };
    tokio::join!(drain, stopped);
}

fn http(bounds: &Bounds) -> Http {
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
    Http { http1, http2: Box::new(http2), opening: bounds.header_timeout }
}

/// Runs a connection as a task of its own.
fn spawn<F>(
    connections: &TaskTracker,
    connection: F,
    kill: WaitForCancellationFutureOwned,
    remote: SocketAddr,
    stages: Stages,
    admission: Admission,
) where
    F: Future<Output = Result<Option<Kept>, Failed>> + Send + 'static,
{
    match admission {
        Admission::Seated(seat) => {
            connections.spawn(Until { connection, kill, remote, stages, _seat: Some(seat) });
        }
        // Few, and mostly short.
        Admission::Spare(spare) => {
            connections.spawn(async move {
                let connection = Until { connection, kill, remote, stages, _seat: None };
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
    /// What was read of it, if another process has accepted it.
    read: Option<Bytes>,
    address: SocketAddr,
}

async fn accept(listener: &TcpListener, kept: &mut BoxStream<'static, Kept>) -> io::Result<Accepted> {
    tokio::select! {
        accepted = listener.accept() => {
            let (stream, address) = accepted?;
            // Small messages back and forth: waiting to fill a packet only adds latency.
            stream.set_nodelay(true)?;
            let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
            socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            Ok(Accepted { stream, read: None, address })
        }
        // Has all of that already.
        Some(Kept { stream, read }) = kept.next() => {
            let address = stream.peer_addr()?;
            stream.set_nonblocking(true)?;
            Ok(Accepted { stream: TcpStream::from_std(stream)?, read: Some(read), address })
        }
    }
}

pin_project! {
    /// Runs a connection until it ends or everything is to end.
    ///
    /// Written out because an async function would keep the connection's state twice, and there may be
    /// very many of them.
    struct Until<F> {
        #[pin]
        connection: F,
        #[pin]
        kill: WaitForCancellationFutureOwned,
        remote: SocketAddr,
        stages: Stages,
        // Given back when the connection is gone, and whoever took it over.
        _seat: Option<Seat>,
    }
}

impl<F: Future<Output = Result<Option<Kept>, Failed>>> Future for Until<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if let Poll::Ready(ended) = this.connection.poll(cx) {
            match ended {
                Err(error) => tracing::debug!(remote = %this.remote, %error, "connection ended"),
                Ok(None) => {}
                // If it cannot be passed on, it is closed.
                Ok(Some(kept)) => drop(this.stages.successor.get().map(|to| to.try_send(kept))),
            }
            return Poll::Ready(());
        }
        this.kill.poll(cx)
    }
}
