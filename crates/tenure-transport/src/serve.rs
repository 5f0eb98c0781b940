//! The server we ship: accepts connections, bounds them, and stops when told.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
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

    /// Serves until `stop`; then closes idle connections, lets busy ones finish until `drain` is done
    /// and they had a moment to write their last bytes, and drops the rest.
    ///
    /// # Cancel safety
    /// Dropping it drops every connection.
    pub async fn run(self, stop: CancellationToken, drain: impl Future<Output = ()>) {
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
        let open = std::sync::Arc::new(Semaphore::new(self.bounds.max_connections));
        let connections = TaskTracker::new();
        let kill = CancellationToken::new();
        let _kill_on_drop = kill.clone().drop_guard();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &open) => accepted,
                () = stop.cancelled() => break,
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
            let seat = Seat(std::sync::Arc::new(permit));
            // Two kinds of task, because one that may also do TLS would be five times as large.
            match &self.tls {
                None => {
                    let stream = Stall::new(stream, self.bounds.stall_timeout);
                    let stream = Opening::new(stream, self.bounds.header_timeout);
                    let connection = connect(&http, &self.router, stream, remote, seat.clone(), &stop);
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
                    let (http, router, stop) = (http.clone(), self.router.clone(), stop.clone());
                    let (header, taken) = (self.bounds.header_timeout, seat.clone());
                    let connection = async move {
                        let stream = accept.await.map_err(|_| "the TLS handshake took too long")??;
                        let stream = Opening::new(stream, header);
                        connect(&http, &router, stream, remote, taken, &stop).await
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
        let doors = self.router.doors.clone();
        doors.stop();
        let mut drain = std::pin::pin!(drain);
        let mut finished = std::pin::pin!(async {
            connections.wait().await;
            doors.left().await;
        });
        tokio::select! {
            () = &mut finished => drain.await,
            () = &mut drain => {
                if tokio::time::timeout(LAST_WORDS, &mut finished).await.is_err() {
                    tracing::info!(connections = connections.len(), "closing connections that are still open");
                    kill.cancel();
                    doors.kill();
                    connections.wait().await;
                    doors.left().await;
                }
            }
        }
    }
}

async fn accept(
    listener: &TcpListener,
    open: &std::sync::Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = std::sync::Arc::clone(open).acquire_owned().await.map_err(io::Error::other)?;
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
    stop: &CancellationToken,
) -> impl Future<Output = Result<(), Failed>> + use<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = router.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let router = router.clone();
        if router.doors.may_upgrade(request.uri().path()) {
            request.extensions_mut().insert(seat.clone());
        }
        // Boxed, because hyper keeps room for this future as long as the connection lives, also while
        // it only writes a stream.
        Box::pin(async move { Ok::<_, Infallible>(router.handle(request, Some(remote)).await) })
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    Gently {
        connection,
        stop: stop.clone().cancelled_owned(),
        told: false,
        tell: |connection| connection.graceful_shutdown(),
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// A connection that takes no more requests when it is told to stop.
    struct Gently<C> {
        #[pin]
        connection: C,
        #[pin]
        stop: WaitForCancellationFutureOwned,
        told: bool,
        tell: fn(Pin<&mut C>),
    }
}

impl<C: Future> Future for Gently<C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let mut this = self.project();
        if !*this.told && this.stop.poll(cx).is_ready() {
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
