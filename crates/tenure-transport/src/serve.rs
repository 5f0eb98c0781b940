//! The server we ship: accepts connections, bounds them, and stops when told.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::http::{Router, Seat};
use crate::opening::Opening;
use crate::stall::Stall;
use crate::tls;

pub use crate::http::Remote;

/// What connections get to write their last bytes when everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How connections are bounded.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once; more wait in the kernel's queue.
    pub max_connections: usize,
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
            header_timeout: Duration::from_secs(60),
            max_header_bytes: 32 << 10,
            handshake_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

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
    fresh: TaskTracker,
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
}

/// A server with its listener bound.
#[expect(missing_debug_implementations, reason = "a TLS acceptor has no useful Debug")]
pub struct Server {
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    bounds: Bounds,
}

impl Server {
    /// A server on a socket that listens already. Connections wait in its backlog until [`Server::run`].
    pub fn new(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>, bounds: Bounds) -> Self {
        Self { listener, router, tls, bounds }
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
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.header_timeout)
            .max_buf_size(self.bounds.max_header_bytes.max(8192))
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(Duration::from_secs(30)))
            .keep_alive_timeout(Duration::from_secs(20))
            .max_header_list_size(u32::try_from(self.bounds.max_header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(256);
        let open = Arc::new(Semaphore::new(self.bounds.max_connections));
        let connections = TaskTracker::new();
        let kill = CancellationToken::new();
        let _kill_on_drop = kill.clone().drop_guard();
        let doors = self.router.doors.clone();
        let mut drain = std::pin::pin!(async {
            let stopped = async {
                stages.stop.cancelled().await;
                doors.stop();
            };
            tokio::join!(drain, stopped);
        });
        let mut drained = false;
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &open) => accepted,
                () = stages.shut.cancelled() => break,
                () = &mut drain, if !drained => {
                    drained = true;
                    break;
                }
            };
            let (stream, address, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: wait for some to come free.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let remote = Remote { address, scheme };
            let seat = Seat(Arc::new(permit));
            // Two kinds of task, because one that may also do TLS would be five times as large.
            match &self.tls {
                None => {
                    let stream = Stall::new(stream, self.bounds.stall_timeout);
                    let stream = Opening::new(stream, self.bounds.header_timeout);
                    let connection = connect(&http, &self.router, stream, remote, seat.clone(), &stages);
                    connections.spawn(Until {
                        connection,
                        kill: kill.clone().cancelled_owned(),
                        remote: address,
                        _seat: seat,
                    });
                }
                Some(tls) => {
                    let accept = tls::accept(tls, stream, self.bounds.stall_timeout);
                    let accept = tokio::time::timeout(self.bounds.handshake_timeout, accept);
                    let (http, router, stages) = (http.clone(), self.router.clone(), stages.clone());
                    let (header, taken) = (self.bounds.header_timeout, seat.clone());
                    let connection = async move {
                        let stream = accept.await.map_err(|_| "the TLS handshake took too long")??;
                        let stream = Opening::new(stream, header);
                        connect(&http, &router, stream, remote, taken, &stages).await
                    };
                    connections.spawn(Until {
                        connection,
                        kill: kill.clone().cancelled_owned(),
                        remote: address,
                        _seat: seat,
                    });
                }
            }
        }
        drop(self.listener);
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

async fn accept(
    listener: &TcpListener,
    open: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(open).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    // Small messages back and forth: waiting to fill a packet only adds latency.
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok((stream, address, permit))
}

fn connect<S>(
    http: &auto::Builder<TokioExecutor>,
    router: &Router,
    stream: S,
    remote: Remote,
    seat: Seat,
    stages: &Stages,
) -> impl Future<Output = Result<(), Failed>> + use<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (router, leaving) = (router.clone(), stages.leaving.clone());
    let heard = Arc::new(Heard::not_yet(&stages.fresh));
    let is_heard = Arc::clone(&heard);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        heard.now();
        let router = router.clone();
        if router.doors.may_upgrade(request.uri().path()) {
            request.extensions_mut().insert(seat.clone());
        }
        // Boxed, because hyper keeps room for this future as long as the connection lives, also while
        // it only writes a stream.
        let leaving = leaving.clone();
        Box::pin(async move {
            let version = request.version();
            let mut response = router.handle(request, Some(remote)).await;
            if leaving.is_cancelled() && version <= http::Version::HTTP_11 {
                say_close(&mut response);
            }
            Ok::<_, Infallible>(response)
        })
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    Gently {
        connection,
        stop: stages.stop.clone().cancelled_owned(),
        stops: false,
        told: false,
        heard: is_heard,
        tell: |connection| connection.graceful_shutdown(),
    }
}

/// Tells the client that no other request follows on this connection: it opens another one, which the process that listens then
/// takes. In HTTP/2 that is said when the connection ends, and loses no request.
fn say_close<B>(response: &mut http::Response<B>) {
    if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        let close = http::HeaderValue::from_static("close");
        response.headers_mut().insert(http::header::CONNECTION, close);
    }
}

/// Whether the first request of a connection has come.
struct Heard {
    is_so: AtomicBool,
    fresh: Mutex<Option<TaskTrackerToken>>,
}

impl Heard {
    fn not_yet(fresh: &TaskTracker) -> Self {
        Self { is_so: AtomicBool::new(false), fresh: Mutex::new(Some(fresh.token())) }
    }

    fn now(&self) {
        if !self.is_so() {
            self.is_so.store(true, Ordering::Release);
            self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    fn is_so(&self) -> bool {
        self.is_so.load(Ordering::Acquire)
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// A connection that takes no more requests when it is told to stop. One whose first request has not come yet takes
    /// that one: its client has just connected, and would find the connection closed under its hands.
    struct Gently<C> {
        #[pin]
        connection: C,
        #[pin]
        stop: WaitForCancellationFutureOwned,
        stops: bool,
        told: bool,
        heard: Arc<Heard>,
        tell: fn(Pin<&mut C>),
    }
}

impl<C: Future> Future for Gently<C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let mut this = self.project();
        if !*this.stops && this.stop.poll(cx).is_ready() {
            *this.stops = true;
        }
        if *this.stops && !*this.told && this.heard.is_so() {
            *this.told = true;
            (this.tell)(this.connection.as_mut());
        }
        this.connection.poll(cx)
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
        // Given back when the connection is gone, and whoever took it over.
        _seat: Seat,
    }
}

impl<F: Future<Output = Result<(), Failed>>> Future for Until<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if let Poll::Ready(ended) = this.connection.poll(cx) {
            if let Err(error) = ended {
                tracing::debug!(remote = %this.remote, %error, "connection ended");
            }
            return Poll::Ready(());
        }
        this.kill.poll(cx)
    }
}
