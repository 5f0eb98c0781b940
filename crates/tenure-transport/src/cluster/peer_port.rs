//! The port at which other nodes are served.
//!
//! In: a bound listener, and the service that answers requests of peers. A connection whose other side does not prove the key
//! of a known node ends in its handshake; one whose node is no longer known is cut off. Bounds: handshakes and connections in all and for each address, streams and
//! bytes for each connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tenure_session::budget::Peer;
use tenure_session::cluster::Roster;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::links::{
    CONNECTION_WINDOW, MOST_HEADER_BYTES, MOST_STREAMS, PING_INTERVAL, PING_TIMEOUT, STREAM_WINDOW,
};
use super::peer_key::{KeyPin, PeerKey};
use super::pins::{self, ALPN, KnownNodes};
use crate::permits::ConnectionPermits;

/// The most handshakes at once, and of one address.
const HANDSHAKES: (usize, usize) = (256, 64);

/// The most connections at once, and of one address: several nodes may be on one machine.
const CONNECTIONS: (usize, usize) = (4096, 256);

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long connections may still write their last bytes when the port is closed.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// How often it is checked whether the node of a connection is still known, and for how long it may be unknown: a late list
/// leaves out nodes that are there.
const LOOKS: Duration = Duration::from_millis(500);
const UNKNOWN_FOR: Duration = Duration::from_secs(3);

/// The peer port.
#[expect(missing_debug_implementations, reason = "a TLS acceptor has no useful Debug")]
pub struct PeerPort {
    listener: TcpListener,
    tls: TlsAcceptor,
    nodes: Arc<dyn KnownNodes>,
}

/// Why the peer port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("TLS between nodes cannot be set up")]
pub struct PeerPortError(#[source] rustls::Error);

impl PeerPort {
    /// The port at this listener, for the nodes of a roster. `key` is the key of this node.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(listener: TcpListener, key: &PeerKey, roster: Roster) -> Result<Self, PeerPortError> {
        Self::for_nodes(listener, key, Arc::new(roster))
    }

    pub(super) fn for_nodes(
        listener: TcpListener,
        key: &PeerKey,
        nodes: Arc<dyn KnownNodes>,
    ) -> Result<Self, PeerPortError> {
        let config = pins::accepts(key, Arc::clone(&nodes)).map_err(PeerPortError)?;
        Ok(Self { listener, tls: TlsAcceptor::from(Arc::new(config)), nodes })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// When the operating system does not know.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves peers until `shut` is cancelled. Then connections take no more requests, and have a moment for their last
    /// bytes.
    ///
    /// # Cancel safety
    /// Dropping it drops every connection.
    pub async fn run<S, B>(self, service: S, shut: CancellationToken)
    where
        S: Service<hyper::Request<Incoming>, Response = hyper::Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let handshakes = ConnectionPermits::new(HANDSHAKES.0, HANDSHAKES.1);
        let permits = ConnectionPermits::new(CONNECTIONS.0, CONNECTIONS.1);
        let connections = TaskTracker::new();
        let kill = CancellationToken::new();
        let _kill_on_drop = kill.clone().drop_guard();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shut.cancelled() => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection of a peer");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let peer = Peer::at(address.ip());
            // Without room it is closed at once; a peer tries again.
            let (Ok(handshake), Ok(permit)) = (handshakes.take(peer), permits.take(peer)) else {
                tracing::debug!(%address, "no room for a connection at the peer port");
                continue;
            };
            let (tls, service, shut, kill) = (self.tls.clone(), service.clone(), shut.clone(), kill.clone());
            let nodes = Arc::clone(&self.nodes);
            connections.spawn(async move {
                let _permit = permit;
                let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, shake_hands(&tls, stream)).await;
                drop(handshake);
                let stream = match shaken {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => {
                        tracing::debug!(%address, %error, "a connection at the peer port was cut off");
                        return;
                    }
                    Err(_) => return,
                };
                let pin = pin_of(&stream);
                tokio::select! {
                    () = serve(stream, service, shut) => {}
                    () = kill.cancelled() => {}
                    () = unknown(nodes.as_ref(), pin) => {
                        tracing::info!(%address, "a connection was cut off: its node is no longer of the cluster");
                    }
                }
            });
        }
        drop(self.listener);
        connections.close();
        if tokio::time::timeout(LAST_BYTES, connections.wait()).await.is_err() {
            kill.cancel();
            connections.wait().await;
        }
    }
}

type PeerStream = tokio_rustls::server::TlsStream<TcpStream>;

async fn shake_hands(tls: &TlsAcceptor, stream: TcpStream) -> io::Result<PeerStream> {
    stream.set_nodelay(true)?;
    let stream = tls.accept(stream).await?;
    match stream.get_ref().1.alpn_protocol() {
        Some(ALPN) => Ok(stream),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer speaks another protocol")),
    }
}

/// The hash of the key that the other side has proved, as node records have it.
fn pin_of(stream: &PeerStream) -> Option<String> {
    let key = stream.get_ref().1.peer_certificates()?.first()?;
    Some(KeyPin::of(key).to_string())
}

/// Waits until no node has had this key for a while.
async fn unknown(nodes: &dyn KnownNodes, pin: Option<String>) {
    let Some(pin) = pin else { return };
    let mut since = None;
    loop {
        tokio::time::sleep(LOOKS).await;
        let now = Instant::now();
        match nodes.has_key(&pin) {
            true => since = None,
            false if now - *since.get_or_insert(now) >= UNKNOWN_FOR => return,
            false => {}
        }
    }
}

async fn serve<S, B>(stream: PeerStream, service: S, shut: CancellationToken)
where
    S: Service<hyper::Request<Incoming>, Response = hyper::Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MOST_STREAMS as u32)
        .max_send_buf_size(STREAM_WINDOW as usize)
        .max_header_list_size(MOST_HEADER_BYTES)
        .max_pending_accept_reset_streams(MOST_STREAMS)
        .max_local_error_reset_streams(None)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shut.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of a peer ended");
    }
}
