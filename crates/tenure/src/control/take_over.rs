//! How a running server passes its listening socket on to the next process.
//!
//! The next process asks on the control socket, by an upgrade. Then each side says a line in turn: it asks for the
//! listener, gets it, and says that it is ready to go on. From then on the old process stops as it does when it is told
//! to, but goes on accepting until it closes the store; both have the same socket, so that a connection waits in its
//! backlog, and is never refused. When the store is closed the old process says so. The next process may be gone any
//! time before it says that it is ready: then nothing has happened.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::routes::{Answer, json, refused};
use crate::cli::Failure;

/// The path after the base, and the protocol that the connection is upgraded to.
pub(super) const PATH: &str = "/take-over";
const PROTOCOL: &str = "tenure-take-over";

/// The lines that are said.
const ASK: &[u8] = b"listener?\n";
const LISTENER: &[u8] = b"listener\n";
const GO: &[u8] = b"go\n";
const RELEASED: &[u8] = b"released\n";

/// How long the other side may take for a line that it says at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How long it may take to get ready, with all that can fail before the other process ends.
const READY: Duration = Duration::from_secs(60);

/// The end of the process that is taken over. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HandOver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Until it is known that no process takes it over.
    listener: Mutex<Option<TcpListener>>,
    /// Another process talks to us about it.
    is_busy: AtomicBool,
    asked: CancellationToken,
    released: CancellationToken,
    tasks: TaskTracker,
}

impl HandOver {
    /// Offers a socket that listens.
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self(Arc::new(Inner {
            listener: Mutex::new(Some(listener)),
            is_busy: AtomicBool::new(false),
            asked: CancellationToken::new(),
            released: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Lets go of the socket: no process can take over any more.
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

    /// The store is closed: the next process may open it. Waits until it was told.
    pub(crate) async fn release(&self) {
        self.0.released.cancel();
        self.0.tasks.close();
        drop(tokio::time::timeout(AT_ONCE, self.0.tasks.wait()).await);
    }

    /// Answers the request for it.
    pub(super) fn answer(&self, request: Request<Incoming>) -> Answer {
        let wanted = request.headers().get(UPGRADE).is_some_and(|protocol| protocol == PROTOCOL);
        if !wanted {
            return refused(StatusCode::METHOD_NOT_ALLOWED);
        }
        if self.0.is_busy.swap(true, Ordering::SeqCst) {
            let failure = Failure::new("another process takes this server over already")
                .hint("wait until it has, and try again");
            return json(StatusCode::UNPROCESSABLE_ENTITY, &failure);
        }
        let (hand_over, upgrade) = (self.clone(), hyper::upgrade::on(request));
        self.0.tasks.spawn(async move {
            let passed = async {
                let upgraded = upgrade.await.map_err(io::Error::other)?;
                let parts = upgraded
                    .downcast::<TokioIo<UnixStream>>()
                    .map_err(|_| io::Error::other("the connection is of another kind"))?;
                hand_over.pass(parts.io.into_inner()).await
            };
            if let Err(error) = passed.await {
                tracing::warn!(%error, "another process wanted to take over, and did not");
            }
            hand_over.0.is_busy.store(false, Ordering::SeqCst);
        });
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        response
    }

    async fn pass(&self, mut stream: UnixStream) -> io::Result<()> {
        // Not before it asks: what it reads as a part of HTTP would lose the socket.
        expect(&mut stream, ASK, AT_ONCE).await?;
        let listener = self.0.listener.lock().as_ref().map(TcpListener::try_clone).transpose()?;
        let listener = listener.ok_or_else(|| io::Error::other("this process ends already"))?;
        send(&stream, &listener).await?;
        expect(&mut stream, GO, READY).await?;
        self.0.asked.cancel();
        self.0.released.cancelled().await;
        stream.write_all(RELEASED).await
    }
}

/// The process that is taken over, as the next one sees it.
#[derive(Debug)]
pub(crate) struct Predecessor {
    stream: UnixStream,
    listener: TcpListener,
}

impl Predecessor {
    /// The request that asks for it.
    pub(super) fn request(request: hyper::http::request::Builder) -> hyper::http::request::Builder {
        request.header(CONNECTION, "upgrade").header(UPGRADE, PROTOCOL)
    }

    /// Gets the socket on a connection that was upgraded.
    pub(super) async fn meet(response: Response<Incoming>) -> io::Result<Self> {
        let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
        let parts = upgraded
            .downcast::<TokioIo<UnixStream>>()
            .map_err(|_| io::Error::other("the connection is of another kind"))?;
        let mut stream = parts.io.into_inner();
        stream.write_all(ASK).await?;
        let received = tokio::time::timeout(AT_ONCE, receive(&stream));
        let listener = received.await.map_err(|_| silent())??;
        Ok(Self { stream, listener })
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The socket, which both processes have.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Tells it to stop, and waits until it has closed the store.
    pub(crate) async fn release(mut self) -> io::Result<()> {
        self.stream.write_all(GO).await?;
        // However long it takes: it serves until then. If it is gone, so is its hold on the store.
        let mut said = Vec::new();
        self.stream.read_to_end(&mut said).await?;
        Ok(())
    }
}

/// Reads a line that the other side has to say.
async fn expect(stream: &mut UnixStream, line: &[u8], limit: Duration) -> io::Result<()> {
    let mut said = vec![0; line.len()];
    tokio::time::timeout(limit, stream.read_exact(&mut said)).await.map_err(|_| silent())??;
    if said == line { Ok(()) } else { Err(io::Error::other("it said something else than was expected")) }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it said nothing in time")
}

async fn send(stream: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [listener.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&fds));
            let sent =
                rustix::net::sendmsg(stream, &[IoSlice::new(LISTENER)], &mut control, SendFlags::empty())?;
            Ok(sent)
        })
        .await?;
    if sent == LISTENER.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

async fn receive(stream: &UnixStream) -> io::Result<TcpListener> {
    let received = stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut line = [0; LISTENER.len()];
            // Our children must not inherit it.
            let flags = RecvFlags::CMSG_CLOEXEC;
            let read = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut line)], &mut control, flags)?;
            let fds = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            let fd = fds.flatten().next();
            Ok((line[..read.bytes] == *LISTENER).then_some(fd).flatten())
        })
        .await?;
    received.map(TcpListener::from).ok_or_else(|| io::Error::other("it did not pass its socket on"))
}
