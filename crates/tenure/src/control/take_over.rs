//! How a running server passes its listening socket to the next process.
//!
//! The next process asks on the control socket, with an HTTP upgrade. Then both send lines: the next process asks for
//! the listener, receives it, and sends `go` when it is ready. From then on the old process shuts down as usual, but
//! goes on accepting until it closes the store. Both have the same socket, so that a connection waits in its backlog
//! and is never refused. When the store is closed, the old process sends `released`. If the next process ends before it
//! has sent `go`, nothing has happened.
//!
//! Between `go` and its end the old process also passes on its idle connections; see
//! `docs/design/0015-kept-connections-over-a-deploy.md`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tenure_transport::serve::KeptConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pass_sockets::{Arrivals, Arrived, receive_one, send_fd, send_kept};
use super::routes::{ControlAnswer, json, refused};
use crate::failure::Failure;

/// The path after the base, and the protocol that the connection is upgraded to.
pub(super) const PATH: &str = "/take-over";
const PROTOCOL: &str = "tenure-take-over";

/// The lines of the protocol.
const ASK: &[u8] = b"listener?\n";
const LISTENER: &[u8] = b"listener\n";
const GO: &[u8] = b"go\n";
pub(super) const RELEASED: &[u8] = b"released\n";

/// The next process sends this header if it also takes connections. Earlier versions do not send it.
const TAKES: HeaderName = HeaderName::from_static("tenure-takes");
const CONNECTIONS: HeaderValue = HeaderValue::from_static("connections");

/// The most connections in the queue to the next process; further ones are closed.
const MOST_KEPT: usize = 1 << 16;

/// How long the other side may take for a line that needs no work.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How long the next process may take to get ready. Everything that can fail happens in this time.
const READY: Duration = Duration::from_secs(60);

/// The side of the process that is taken over. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HandOver(Arc<HandOverState>);

#[derive(Debug)]
struct HandOverState {
    /// `None` after [`withdraw`](HandOver::withdraw): no process can take over any more.
    listener: Mutex<Option<TcpListener>>,
    /// Another process has begun to take over. Only one may at a time.
    is_busy: AtomicBool,
    asked: CancellationToken,
    /// The queue of connections to the next process, if it takes them.
    successor: OnceLock<mpsc::Sender<KeptConnection>>,
    released: CancellationToken,
    /// The next process was told that the store is closed.
    told: CancellationToken,
    /// No connection is left.
    over: CancellationToken,
    tasks: TaskTracker,
}

impl HandOver {
    /// Offers a socket that listens.
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self(Arc::new(HandOverState {
            listener: Mutex::new(Some(listener)),
            is_busy: AtomicBool::new(false),
            asked: CancellationToken::new(),
            successor: OnceLock::new(),
            released: CancellationToken::new(),
            told: CancellationToken::new(),
            over: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Drops the socket: no process can take over any more.
    pub(crate) fn withdraw(&self) {
        self.0.listener.lock().take();
    }

    /// Whether another process takes over.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.asked.is_cancelled()
    }

    /// Waits until another process takes over.
    pub(crate) async fn asked(&self) {
        self.0.asked.cancelled().await;
    }

    /// The queue of connections to the next process, if that process takes them.
    pub(crate) fn successor(&self) -> Option<mpsc::Sender<KeptConnection>> {
        self.0.successor.get().cloned()
    }

    /// To be called when the store is closed. Waits until the next process was told that it may open it.
    pub(crate) async fn release(&self) {
        self.0.released.cancel();
        self.0.tasks.close();
        let told = async {
            tokio::select! {
                () = self.0.told.cancelled() => {}
                // There is no next process, or it is gone.
                () = self.0.tasks.wait() => {}
            }
        };
        drop(tokio::time::timeout(AT_ONCE, told).await);
    }

    /// To be called when no connection is left here. Waits until the queued ones are passed on.
    pub(crate) async fn end(&self) {
        self.0.over.cancel();
        self.0.tasks.close();
        drop(tokio::time::timeout(AT_ONCE, self.0.tasks.wait()).await);
    }

    /// Answers the request to take over.
    pub(super) fn answer(&self, request: Request<Incoming>) -> ControlAnswer {
        let wanted = request.headers().get(UPGRADE).is_some_and(|protocol| protocol == PROTOCOL);
        if !wanted {
            return refused(StatusCode::METHOD_NOT_ALLOWED);
        }
        if self.0.is_busy.swap(true, Ordering::SeqCst) {
            let failure = Failure::new("another process takes this server over already")
                .hint("wait until it has, and try again");
            return json(StatusCode::UNPROCESSABLE_ENTITY, &failure);
        }
        let takes = request.headers().get(TAKES).is_some_and(|what| what == CONNECTIONS);
        let (hand_over, upgrade) = (self.clone(), hyper::upgrade::on(request));
        self.0.tasks.spawn(async move {
            let passed = async {
                let upgraded = upgrade.await.map_err(io::Error::other)?;
                let parts = upgraded
                    .downcast::<TokioIo<UnixStream>>()
                    .map_err(|_| io::Error::other("the connection is of another kind"))?;
                hand_over.pass(parts.io.into_inner(), takes).await
            };
            if let Err(error) = passed.await {
                tracing::warn!(%error, "another process began to take over and failed");
            }
            hand_over.0.is_busy.store(false, Ordering::SeqCst);
        });
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        response
    }

    async fn pass(&self, mut stream: UnixStream, takes_connections: bool) -> io::Result<()> {
        // Send nothing before it asks: if it read the line as part of the HTTP response, the descriptor would be lost.
        expect(&mut stream, ASK, AT_ONCE).await?;
        let listener = self.0.listener.lock().as_ref().map(TcpListener::try_clone).transpose()?;
        let listener = listener.ok_or_else(|| io::Error::other("this process ends already"))?;
        send_fd(&stream, LISTENER, &listener).await?;
        expect(&mut stream, GO, READY).await?;
        let (successor, kept) = mpsc::channel(MOST_KEPT);
        if takes_connections {
            drop(self.0.successor.set(successor));
        }
        self.0.asked.cancel();
        self.pass_connections(stream, kept).await
    }

    /// Passes connections on until none is left, and tells the next process when the store is closed.
    async fn pass_connections(
        &self,
        mut stream: UnixStream,
        mut kept: mpsc::Receiver<KeptConnection>,
    ) -> io::Result<()> {
        let mut passed = 0;
        loop {
            let next = tokio::select! {
                // In this order, so that no connection waits for the store, and none stays in the queue at the end.
                biased;
                Some(next) = kept.recv() => Some(next),
                () = self.0.released.cancelled(), if !self.0.told.is_cancelled() => None,
                () = self.0.over.cancelled() => break,
            };
            let said = async {
                match next {
                    Some(next) => send_kept(&mut stream, &next).await.inspect(|()| passed += 1),
                    None => stream.write_all(RELEASED).await.inspect(|()| self.0.told.cancel()),
                }
            };
            tokio::time::timeout(AT_ONCE, said).await.map_err(|_| silent())??;
        }
        tracing::info!(connections = passed, "passed on to the next process");
        Ok(())
    }
}

/// The side of the next process: the process that it takes over.
#[derive(Debug)]
pub(crate) struct Predecessor {
    stream: UnixStream,
    listener: TcpListener,
}

/// The connections of a process that was taken over.
pub(crate) type KeptConnections = BoxStream<'static, KeptConnection>;

impl Predecessor {
    /// Adds the headers of the request to take over.
    pub(super) fn request(request: hyper::http::request::Builder) -> hyper::http::request::Builder {
        request.header(CONNECTION, "upgrade").header(UPGRADE, PROTOCOL).header(TAKES, CONNECTIONS)
    }

    /// Receives the socket on the upgraded connection.
    pub(super) async fn meet(response: Response<Incoming>) -> io::Result<Self> {
        let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
        let parts = upgraded
            .downcast::<TokioIo<UnixStream>>()
            .map_err(|_| io::Error::other("the connection is of another kind"))?;
        let mut stream = parts.io.into_inner();
        stream.write_all(ASK).await?;
        let received = tokio::time::timeout(AT_ONCE, receive_one(&stream, LISTENER));
        let listener = TcpListener::from(received.await.map_err(|_| silent())??);
        Ok(Self { stream, listener })
    }

    /// The address of the socket.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The socket, which both processes have open.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Tells the old process to stop, and waits until it has closed the store. Its connections arrive before and after.
    pub(crate) async fn release(mut self) -> io::Result<KeptConnections> {
        self.stream.write_all(GO).await?;
        let (mut arrivals, mut early) = (Arrivals::on(self.stream), Vec::new());
        // Without a deadline: it goes on serving until then. If it is gone, its lock on the store is gone too.
        loop {
            match arrivals.next().await {
                Ok(Arrived::Kept(kept)) => early.push(kept),
                Ok(Arrived::Released | Arrived::End) => break,
                Err(error) => {
                    tracing::warn!(%error, "lost the process that is taken over");
                    break;
                }
            }
        }
        let late = stream::unfold(arrivals, |mut arrivals| async {
            loop {
                match arrivals.next().await {
                    Ok(Arrived::Kept(kept)) => return Some((kept, arrivals)),
                    Ok(Arrived::Released) => {}
                    Ok(Arrived::End) => return None,
                    Err(error) => {
                        tracing::debug!(%error, "lost the process that was taken over");
                        return None;
                    }
                }
            }
        });
        Ok(stream::iter(early).chain(late).boxed())
    }
}

/// Reads the line that the other side has to send.
async fn expect(stream: &mut UnixStream, line: &[u8], limit: Duration) -> io::Result<()> {
    let mut said = vec![0; line.len()];
    tokio::time::timeout(limit, stream.read_exact(&mut said)).await.map_err(|_| silent())??;
    if said == line { Ok(()) } else { Err(io::Error::other("it said something else than was expected")) }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it said nothing in time")
}
