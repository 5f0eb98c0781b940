//! The port of the page and the API: bound, guarded by TLS where it has to be, served until the process stops.
//!
//! Its connections are those of a port at which every caller needs credentials (`tenure-transport`, `strangers`): on loopback
//! too, since any program of the machine reaches it there, and strangers must not keep operators out when they are needed.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tenure_transport::stall::Stall;
use tenure_transport::strangers::{GuardedConnection, GuardedConnections};
use tenure_transport::tls::{self, TlsAcceptor};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::api::AdminApi;
use super::front::Front;
use super::keys::OperatorKeys;
use crate::config::Config;
use crate::failure::Failure;

/// Connections of operators at once, in all and of one address. Operators behind a tunnel have the same address.
const MAX_CONNECTIONS: usize = 128;
const MAX_OF_ADDRESS: usize = 64;

/// How long a connection may last whose caller has not shown good credentials: enough to load the page and log in.
const STRANGER_TIME: Duration = Duration::from_secs(10);

/// Connections that wait in the kernel's queue.
const BACKLOG: u32 = 64;

/// How long a TLS handshake and the head of a request may take, and how long a connection may be idle between two requests.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// The time that running requests have to finish when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often an address is tried that the process before this one has not given up yet.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// How often the file of keys is looked at, and addresses are forgotten whose failures are long ago.
const REFRESH: Duration = Duration::from_secs(1);

/// The port, bound or about to be.
pub(crate) struct AdminListener {
    place: Place,
    tls: Option<TlsAcceptor>,
    keys: OperatorKeys,
    hosts: Vec<String>,
    /// How long an operator may read nothing while there is something to read.
    stall: Duration,
}

/// What a connection is served with.
#[derive(Clone)]
struct Serving {
    front: Front,
    tls: Option<TlsAcceptor>,
    stall: Duration,
    stop: CancellationToken,
}

enum Place {
    Bound(TcpListener, SocketAddr),
    /// The process before this one still has it.
    Later(SocketAddr),
}

/// Whether another process may have the address, and is about to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressBefore {
    Free,
    OfPredecessor,
}

impl AdminListener {
    /// Binds the address of the configuration; `None` without one.
    ///
    /// # Errors
    /// When it cannot be bound, or would let in other machines without TLS or credentials.
    pub(crate) fn bind(
        config: &Config,
        keys: &OperatorKeys,
        before: AddressBefore,
    ) -> Result<Option<Self>, Failure> {
        let Some(address) = config.admin.listen else { return Ok(None) };
        // A configuration that was read has been checked; one that an embedder put together has not.
        if let Some((what, hint)) = config.admin.refusal(config, config.tls.is_some()) {
            return Err(Failure::new(what).hint(hint));
        }
        let tls = match &config.tls {
            Some(files) if !address.ip().is_loopback() => {
                let acceptor = tls::acceptor(&files.cert, &files.key, None);
                let acceptor = acceptor
                    .map_err(|error| Failure::new("cannot set up TLS for operators").caused_by(error))?;
                Some(http1_alone(&acceptor))
            }
            _ => None,
        };
        let place = match listen(address) {
            Ok((listener, bound)) => Place::Bound(listener, bound),
            Err(error) if error.kind() == ErrorKind::AddrInUse && before == AddressBefore::OfPredecessor => {
                Place::Later(address)
            }
            Err(error) => {
                return Err(Failure::new(format!("cannot listen on `{address}` for operators"))
                    .caused_by(error)
                    .hint("stop the other process, or choose another port with `--admin=127.0.0.1:PORT`"));
            }
        };
        let (hosts, stall) = (config.admin.hosts.clone(), config.bounds.stall_timeout);
        Ok(Some(Self { place, tls, keys: keys.clone(), hosts, stall }))
    }

    /// Where it listens, or will.
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.place {
            Place::Bound(_, address) | Place::Later(address) => *address,
        }
    }

    /// Serves until `stop` is cancelled. Running requests then have a moment to finish; the rest is dropped.
    ///
    /// # Cancel safety
    /// Dropping it drops every connection.
    pub(crate) async fn run(self, api: AdminApi, stop: CancellationToken) {
        let Self { place, tls, keys, hosts, stall } = self;
        let bound = match place {
            Place::Bound(listener, address) => Some((listener, address)),
            Place::Later(address) => stop.run_until_cancelled(wait_for(address)).await,
        };
        let Some((listener, address)) = bound else { return };
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "cannot serve operators"),
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", shown(address, &hosts));
        tracing::info!(url, "listening for operators");
        // Set once, before the first request could ask for it.
        drop(api.0.url.set(url));
        let front = Front::new(api, keys.clone(), address, &hosts, tls.is_some());
        let refreshing = async {
            loop {
                tokio::time::sleep(REFRESH).await;
                keys.refresh().await;
                front.forget();
            }
        };
        let serving = Serving { front: front.clone(), tls, stall, stop };
        tokio::select! {
            () = serve(listener, serving) => {}
            () = refreshing => {}
        }
    }
}

async fn serve(listener: tokio::net::TcpListener, serving: Serving) {
    let guarded = GuardedConnections::new(MAX_CONNECTIONS, MAX_OF_ADDRESS, STRANGER_TIME);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = serving.stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection of an operator");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (guard, serving) = (guarded.begin(peer.ip()), serving.clone());
        connections.spawn(async move {
            tokio::select! {
                () = serving.connection(stream, peer, guard.clone()) => {}
                () = guard.is_over() => tracing::debug!(%peer, "a connection at the port for operators showed no credentials"),
            }
        });
        // Forget the connections that have ended.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_WORDS, ended).await.is_err() {
        tracing::info!("closing connections of operators that are still open");
    }
    connections.shutdown().await;
}

impl Serving {
    async fn connection(self, stream: TcpStream, peer: SocketAddr, guard: GuardedConnection) {
        let Some(tls) = &self.tls else {
            let stream = Stall::new(stream, self.stall);
            return self.requests(stream, peer, guard).await;
        };
        match tokio::time::timeout(HEAD_TIME, tls::accept(tls, stream, self.stall)).await {
            Ok(Ok(stream)) => self.requests(stream, peer, guard).await,
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake of an operator failed"),
            Err(_) => tracing::debug!("the TLS handshake of an operator took too long"),
        }
    }

    async fn requests(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        guard: GuardedConnection,
    ) {
        let front = self.front.clone();
        let service = service_fn(move |request| {
            let (front, guard) = (front.clone(), guard.clone());
            async move { Ok::<_, std::convert::Infallible>(front.answer(peer, &guard, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the connection of an operator ended");
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket =
        if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    // The port can then be bound again while connections of the last process are still being closed.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?.into_std()?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Binds an address as soon as the process before this one has given it up.
async fn wait_for(address: SocketAddr) -> (TcpListener, SocketAddr) {
    loop {
        match listen(address) {
            Ok(bound) => return bound,
            Err(error) => tracing::debug!(%error, %address, "the address for operators is not free yet"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// The host and port that an operator types.
fn shown(address: SocketAddr, hosts: &[String]) -> String {
    match hosts.first() {
        Some(host) if address.ip().is_unspecified() => match host.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => host.clone(),
            _ => format!("{host}:{}", address.port()),
        },
        _ => address.to_string(),
    }
}

/// The page needs a handful of connections; one protocol is less to guard.
fn http1_alone(acceptor: &TlsAcceptor) -> TlsAcceptor {
    let mut config = (**acceptor.config()).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

impl std::fmt::Debug for AdminListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminListener").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}
