//! The connections to other nodes.
//!
//! At most [`MOST_CONNECTIONS`] to each node for requests and as many for streams that clients only listen to, opened when they
//! are needed: however many clients listen, there is room for requests. A request takes the one with the fewest
//! streams. A connection ends when the node is gone, so that nothing waits for a node that does not answer any more.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::ServerName;
use tenure_session::id::NodeId;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::peer_key::PeerKey;
use super::pins::{self, ALPN, KnownNodes};

/// The most connections to one node, of each kind.
const MOST_CONNECTIONS: usize = 4;

/// The streams on every connection to a node before another one is opened.
const STREAMS_TO_WIDEN: usize = 64;

/// The most streams on one connection.
pub(super) const MOST_STREAMS: usize = 16_384;

/// How long a connection may take until it can be used.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes of one stream that a peer sends before this side has passed them on.
pub(super) const STREAM_WINDOW: u32 = 32 << 10;

/// The same for a connection: as many as all of its streams may have, because a stream whose client reads nothing must not
/// hold up the others.
pub(super) const CONNECTION_WINDOW: u32 = MOST_STREAMS as u32 * STREAM_WINDOW;

/// How often a peer is asked whether it is there, and how long it may take to answer.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(4);

/// The connections to all other nodes.
pub(super) struct Links {
    key: PeerKey,
    nodes: Arc<dyn KnownNodes>,
    tasks: TaskTracker,
    peers: Mutex<HashMap<NodeId, Arc<PeerLink>>>,
    /// Cancelled when there are to be no connections any more.
    closed: CancellationToken,
}

/// The connections to one node.
struct PeerLink {
    /// The key that it has to prove, and where it is.
    pin: String,
    address: String,
    /// For requests, and for streams that clients listen to.
    requests: ConnectionSet,
    listens: ConnectionSet,
    /// Cancelled when the node is gone.
    gone: CancellationToken,
}

/// The connections of one kind.
struct ConnectionSet {
    open: Mutex<Vec<Connection>>,
    /// Held while a connection is opened.
    opening: Semaphore,
    /// When the last attempt to open one failed, and why.
    failed: Mutex<Option<(Instant, &'static str)>>,
}

#[derive(Clone)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    streams: Arc<AtomicUsize>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum SendFailure {
    /// It was not sent: there is no connection to the node.
    NotSent(&'static str),
    /// The connection broke, and the node may have begun it.
    Broken,
}

impl Links {
    pub(super) fn new(
        key: PeerKey,
        nodes: Arc<dyn KnownNodes>,
        tasks: TaskTracker,
        closed: CancellationToken,
    ) -> Self {
        Self { key, nodes, tasks, peers: Mutex::default(), closed }
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<NodeId, Arc<PeerLink>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to a node, and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request, as a client does that hangs up.
    pub(super) async fn send(
        &self,
        node: NodeId,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<PeerBody>, SendFailure> {
        let link = self.link(node).ok_or(SendFailure::NotSent("its record was not found"))?;
        let mut request = request;
        let set = match *request.method() {
            Method::GET => &link.listens,
            _ => &link.requests,
        };
        // Once more if the connection ended just before.
        for _ in 0..2 {
            let connection = set.connection(&link, self).await.map_err(SendFailure::NotSent)?;
            let stream = StreamCount::of(&connection.streams);
            let Connection { mut sender, .. } = connection;
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| PeerBody { body, _stream: stream })),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => {
                        tracing::debug!(?node, error = %error.error(), "a relayed request broke");
                        return Err(SendFailure::Broken);
                    }
                },
            }
        }
        Err(SendFailure::NotSent("its connections end at once"))
    }

    fn link(&self, node: NodeId) -> Option<Arc<PeerLink>> {
        if let Some(link) = self.peers().get(&node) {
            return Some(Arc::clone(link));
        }
        let (address, pin) = self.nodes.node(node)?;
        let link = PeerLink {
            pin,
            address,
            requests: ConnectionSet::new(),
            listens: ConnectionSet::new(),
            gone: self.closed.child_token(),
        };
        Some(Arc::clone(self.peers().entry(node).or_insert_with(|| Arc::new(link))))
    }

    /// Closes the connections to a node that is gone: what waits for it finds out.
    pub(super) fn close(&self, node: NodeId) {
        if let Some(link) = self.peers().remove(&node) {
            link.gone.cancel();
        }
    }

    /// The nodes to which there are connections, or were.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.peers().keys().copied().collect()
    }

    /// How many connections to a node are open.
    #[cfg(test)]
    pub(super) fn connections(&self, node: NodeId) -> usize {
        self.peers().get(&node).map_or(0, |link| link.requests.open().len() + link.listens.open().len())
    }

    async fn connect(&self, link: &PeerLink) -> Result<Connection, &'static str> {
        let tasks = LinkTasks { tasks: self.tasks.clone(), gone: link.gone.clone() };
        let connecting = async {
            let stream = TcpStream::connect(&link.address).await.map_err(|_| "it refuses connections")?;
            drop(stream.set_nodelay(true));
            let config = pins::connects(&self.key, link.pin.clone()).map_err(|_| "TLS cannot be set up")?;
            // The name is not checked: the key is.
            let name = ServerName::try_from("peer.invalid").map_err(|_| "TLS cannot be set up")?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
            let stream = stream.map_err(|_| "it does not prove its key, or does not know ours yet")?;
            if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
                return Err("it speaks another protocol");
            }
            let handshake = http2::Builder::new(tasks.clone())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .initial_max_send_streams(MOST_STREAMS)
                .max_send_buf_size(STREAM_WINDOW as usize)
                .max_header_list_size(MOST_HEADER_BYTES)
                // Clients hang up as they like: that is no reason to give up the connection.
                .max_concurrent_reset_streams(MOST_STREAMS)
                .max_local_error_reset_streams(None)
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .keep_alive_while_idle(true)
                .handshake(TokioIo::new(stream));
            handshake.await.map_err(|_| "it ended the connection at once")
        };
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let connected = tokio::time::timeout_at(deadline, connecting).await;
        let (mut sender, connection) = connected.map_err(|_| "it does not answer")??;
        tasks.execute(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a peer ended");
            }
        });
        // In TLS 1.3 this side is done before the other one has checked our key. A request that is sent meanwhile and then
        // cut off would count as one that may have been carried out.
        match tokio::time::timeout_at(deadline, sender.send_request(greeting())).await {
            Ok(Ok(_)) => Ok(Connection { sender, streams: Arc::default() }),
            Ok(Err(_)) => Err("it cut off the connection: it may not know our key yet"),
            Err(_) => Err("it does not answer"),
        }
    }
}

/// Runs the tasks of a connection until its node is gone. Dropping hyper's connection alone would leave its socket open as long as
/// it has streams.
#[derive(Clone)]
struct LinkTasks {
    tasks: TaskTracker,
    gone: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for LinkTasks {
    fn execute(&self, task: F) {
        let gone = self.gone.clone();
        self.tasks.spawn(async move {
            gone.run_until_cancelled(task).await;
        });
    }
}

/// A request whose answer shows that the other side serves this node.
fn greeting() -> Request<Full<Bytes>> {
    let mut greeting = Request::new(Full::default());
    *greeting.method_mut() = Method::HEAD;
    *greeting.uri_mut() = Uri::from_static("https://peer.invalid/");
    greeting
}

/// The most header bytes of a request or an answer between nodes.
pub(super) const MOST_HEADER_BYTES: u32 = 256 << 10;

impl ConnectionSet {
    fn new() -> Self {
        Self { open: Mutex::default(), opening: Semaphore::new(1), failed: Mutex::default() }
    }

    /// The connections that are open.
    fn open(&self) -> MutexGuard<'_, Vec<Connection>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| !connection.sender.is_closed());
        open
    }

    /// The connection with the fewest streams, and whether there should be another one.
    fn best(&self) -> (Option<Connection>, bool) {
        let open = self.open();
        let streams = |connection: &&Connection| connection.streams.load(Ordering::Relaxed);
        let best = open.iter().min_by_key(streams);
        let least = best.as_ref().map_or(usize::MAX, streams);
        let widens = least >= STREAMS_TO_WIDEN && open.len() < MOST_CONNECTIONS;
        (best.filter(|_| least < MOST_STREAMS).cloned(), widens)
    }

    async fn connection(&self, link: &PeerLink, links: &Links) -> Result<Connection, &'static str> {
        let (best, widens) = self.best();
        match best {
            Some(best) if !widens => return Ok(best),
            // Another request is opening one.
            Some(best) if self.opening.available_permits() == 0 => return Ok(best),
            None if !widens => return Err("it has as many streams as it may"),
            _ => {}
        }
        let asked = Instant::now();
        // Held by one request at a time; `connect` has a deadline, and those that waited share its failure.
        let _opening = self.opening.acquire().await.map_err(|_| "the node is gone")?;
        let best = match self.best() {
            (Some(best), false) => return Ok(best),
            (None, false) => return Err("it has as many streams as it may"),
            (best, true) => best,
        };
        let failed = *self.failed();
        let opened = match failed {
            Some((when, why)) if when >= asked => Err(why),
            _ => links.connect(link).await,
        };
        match (opened, best) {
            (Ok(connection), _) => {
                self.open().push(connection.clone());
                Ok(connection)
            }
            (Err(why), best) => {
                if failed.is_none_or(|(when, _)| when < asked) {
                    *self.failed() = Some((Instant::now(), why));
                }
                best.ok_or(why)
            }
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<(Instant, &'static str)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a stream of a connection as long as it is open.
#[derive(Debug)]
struct StreamCount(Arc<AtomicUsize>);

impl StreamCount {
    fn of(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a peer's answer. Dropping it tells the peer that its reader is gone.
pub(crate) struct PeerBody {
    body: Incoming,
    _stream: StreamCount,
}

/// A connection that broke before the body was complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenBody;

impl PeerBody {
    /// The next bytes; `None` at the end of a complete body.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        loop {
            return Poll::Ready(match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => Some(Ok(data)),
                    Err(_) => continue,
                },
                Some(Err(_)) => Some(Err(BrokenBody)),
                None => None,
            });
        }
    }

    /// The next bytes; `None` at the end of a complete body.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, BrokenBody>> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }
}

impl fmt::Debug for PeerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerBody").finish_non_exhaustive()
    }
}
