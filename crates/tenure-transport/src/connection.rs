//! One HTTP connection, from its first byte to its end, or to the next process.
//!
//! In: the bytes of a client. Out: the answers of the router, over HTTP/1.1 or HTTP/2.
//!
//! When the server stops, a connection takes no more requests. If a next process takes over, a plain HTTP/1.1
//! connection between two requests is passed on to it instead of closed, with the bytes of the next request that were
//! already read: a client that is just sending a request notices nothing. A connection is also passed on after a
//! response, unless the client was told that the connection will be closed.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tenure_session::budget::Unread;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::http::{Body, Remote, Router, SharedPermit, Stalled};
use crate::idle::{Http2Streams, Idle};
use crate::opening::{Protocol, ProtocolProbe};
use crate::reserve::Spare;
use crate::stages::{KeptConnection, Stages};
use crate::stall::Stall;

/// How much of a request that was answered without its body is still read, and for how long.
const REST_BYTES: usize = 64 << 10;
const REST_WAIT: Duration = Duration::from_secs(1);

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// hyper's builders for both protocols, with the limits of the server.
pub(crate) struct HttpBuilders {
    pub(crate) http1: http1::Builder,
    /// Makes a builder for the streams of one connection.
    pub(crate) http2: Box<dyn Fn(Http2Streams) -> http2::Builder<Http2Streams> + Send + Sync>,
    /// How long a client may take to show its protocol, and how long an HTTP/2 client may have no stream open.
    pub(crate) opening: Duration,
}

/// The byte stream under a connection: a socket, or TLS over a socket.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether another process could continue with it.
    const CAN_BE_PASSED: bool;

    /// The bare socket, if there is no TLS state beside it.
    fn into_socket(self) -> Option<TcpStream>;
}

impl Wire for Stall<TcpStream> {
    const CAN_BE_PASSED: bool = true;

    fn into_socket(self) -> Option<TcpStream> {
        Some(self.into_inner())
    }
}

/// The TLS keys cannot leave this process.
impl Wire for TlsStream<Stall<TcpStream>> {
    const CAN_BE_PASSED: bool = false;

    fn into_socket(self) -> Option<TcpStream> {
        None
    }
}

/// Serves a connection from which these bytes were already read.
pub(crate) fn serve<W: Wire>(
    http: &Arc<HttpBuilders>,
    router: &Router,
    wire: W,
    read: &Bytes,
    (remote, admission): (Remote, ConnectionAdmission),
    stages: &Stages,
) -> HttpConnection<W> {
    let flags = Arc::new(ConnectionFlags {
        is_heard: AtomicBool::new(false),
        is_last: AtomicBool::new(false),
        is_read: AtomicBool::new(true),
        is_told: AtomicBool::new(false),
        passes: AtomicBool::new(false),
        fresh: Mutex::new(Some(stages.fresh.token())),
        receiving: Mutex::new(Some(stages.receiving.token())),
        unread: Mutex::new(None),
        has_unread: AtomicBool::new(false),
        left: Mutex::new(None),
        has_left: AtomicBool::new(false),
        stages: stages.clone(),
    });
    let service = RequestService { router: router.clone(), remote, admission, flags: Arc::clone(&flags) };
    let probe = ProtocolProbe::new(wire, read, http.opening);
    HttpConnection {
        state: ConnectionState::Probing(probe, Arc::clone(http), service),
        stop: stages.stop.clone().cancelled_owned(),
        stops: false,
        flags,
    }
}

pin_project! {
    /// A connection as a future. Its output is the connection itself, if that is to be passed on.
    pub(crate) struct HttpConnection<W: Wire> {
        state: ConnectionState<W>,
        #[pin]
        stop: WaitForCancellationFutureOwned,
        stops: bool,
        flags: Arc<ConnectionFlags>,
    }
}

type Io<W> = TokioIo<ProbedWire<W>>;

#[expect(
    clippy::large_enum_variant,
    reason = "nearly all connections are in the large variant; a box would cost an allocation for each"
)]
enum ConnectionState<W: Wire> {
    Probing(ProtocolProbe<W>, Arc<HttpBuilders>, RequestService),
    Http1(http1::UpgradeableConnection<Io<W>, RequestService>),
    // Boxed, because few connections speak HTTP/2, and every other connection would need the same room.
    Http2(Box<Http2<W>>),
    Over,
}

struct Http2<W: Wire> {
    connection: Pin<Box<http2::Connection<Io<W>, RequestService, Http2Streams>>>,
    idle: Idle,
}

impl<W: Wire> Future for HttpConnection<W> {
    type Output = Result<Option<KeptConnection>, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if !*this.stops && this.stop.poll(cx).is_ready() {
            *this.stops = true;
        }
        // Before any read: after the stop, no request begins on a connection that can be told to stop.
        if *this.stops && !this.flags.is_stopping() {
            let passes = W::CAN_BE_PASSED && this.flags.stages.has_successor();
            if this.flags.is_heard() {
                this.flags.tell(passes);
                this.state.tell();
            } else if passes {
                // No request has begun, so the connection need not wait for one.
                this.flags.tell(passes);
                return Poll::Ready(Ok(this.state.take().pass_on()?));
            } else {
                // The client has just connected and is about to send its first request, which would meet a closed
                // connection. So that request is still served, whenever it comes.
                this.flags.release_stop();
            }
        }
        if let ConnectionState::Probing(probe, ..) = this.state {
            let protocol = ready!(probe.poll_protocol(cx))?;
            *this.state = this.state.take().opened(protocol, this.flags);
        }
        if this.flags.is_given_up() {
            return Poll::Ready(Err(Stalled.into()));
        }
        match this.state {
            ConnectionState::Http1(connection) => {
                ready!(Pin::new(connection).poll(cx))?;
                let ended = this.state.take();
                Poll::Ready(if this.flags.is_kept() { Ok(ended.pass_on()?) } else { Ok(None) })
            }
            ConnectionState::Http2(http2) => loop {
                if let Poll::Ready(ended) = http2.connection.as_mut().poll(cx) {
                    return Poll::Ready(Ok(ended.map(|()| None)?));
                }
                ready!(http2.idle.poll(cx));
                // Idle for too long: tell the client to send no more requests, then end.
                http2.connection.as_mut().graceful_shutdown();
            },
            ConnectionState::Probing(..) | ConnectionState::Over => Poll::Ready(Ok(None)),
        }
    }
}

impl<W: Wire> ConnectionState<W> {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Over)
    }

    fn opened(self, protocol: Protocol, flags: &Arc<ConnectionFlags>) -> Self {
        let Self::Probing(ProtocolProbe { inner, read, .. }, http, service) = self else { return self };
        let io = TokioIo::new(ProbedWire { inner, read: read.freeze(), flags: Arc::clone(flags) });
        match protocol {
            Protocol::Http1 => Self::Http1(http.http1.serve_connection(io, service).with_upgrades()),
            Protocol::Http2 => {
                let streams = Http2Streams::default();
                let idle = Idle::new(streams.clone(), http.opening);
                let connection = Box::pin((http.http2)(streams).serve_connection(io, service));
                Self::Http2(Box::new(Http2 { connection, idle }))
            }
        }
    }

    /// Tells the connection to take no more requests.
    fn tell(&mut self) {
        match self {
            Self::Http1(connection) => Pin::new(connection).graceful_shutdown(),
            Self::Http2(http2) => http2.connection.as_mut().graceful_shutdown(),
            Self::Probing(..) | Self::Over => {}
        }
    }

    /// The socket and the bytes that were read from it, for the next process. `None` for HTTP/2, and for a connection
    /// that was upgraded.
    fn pass_on(self) -> io::Result<Option<KeptConnection>> {
        let (wire, read) = match self {
            Self::Probing(ProtocolProbe { inner, read, .. }, ..) => (inner, read.freeze()),
            Self::Http1(connection) => {
                let Some(parts) = connection.into_parts() else { return Ok(None) };
                let ProbedWire { inner, read, .. } = parts.io.into_inner();
                (inner, Bytes::from([&parts.read_buf[..], &read[..]].concat()))
            }
            Self::Http2(_) | Self::Over => return Ok(None),
        };
        let Some(socket) = wire.into_socket() else { return Ok(None) };
        Ok(Some(KeptConnection { stream: socket.into_std()?, read }))
    }
}

/// The state of a connection that hyper does not keep. The connection, its service and its bodies share it.
struct ConnectionFlags {
    /// The first request has come.
    is_heard: AtomicBool,
    /// The client expects that the connection is closed after the response.
    is_last: AtomicBool,
    /// The last request was read to its end. If not, the next process would take the rest of it for another request.
    is_read: AtomicBool,
    /// The connection was told to take no more requests.
    is_told: AtomicBool,
    /// The next process takes the connection, if it can be kept.
    passes: AtomicBool,
    fresh: Mutex<Option<TaskTrackerToken>>,
    /// Held until no request can begin any more, and no request is being received.
    receiving: Mutex<Option<TaskTrackerToken>>,
    /// The large answer that the client has not read to its end.
    unread: Mutex<Option<Unread>>,
    /// Whether `unread` is set, so that a connection without a large answer need not lock.
    has_unread: AtomicBool,
    /// The rest of a request that was answered before all of it was read.
    left: Mutex<Option<Incoming>>,
    /// Whether `left` is set, so that a connection whose requests are read need not lock.
    has_left: AtomicBool,
    stages: Stages,
}

impl ConnectionFlags {
    fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Acquire)
    }

    fn is_stopping(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    fn tell(&self, passes: bool) {
        self.passes.store(passes, Ordering::Release);
        self.is_told.store(true, Ordering::Release);
        self.release_if_read();
    }

    /// Whether the client may send another request on this connection, which the next process can serve.
    fn is_kept(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        is(&self.passes) && is(&self.is_read) && !is(&self.is_last)
    }

    /// An HTTP/1.1 request begins.
    fn begin(&self, request: &Request<Incoming>) {
        let is_last = request.version() < Version::HTTP_11 || says_close(request.headers());
        self.is_last.store(is_last, Ordering::Release);
        self.is_read.store(false, Ordering::Release);
    }

    fn heard(&self) {
        if !self.is_heard() {
            self.is_heard.store(true, Ordering::Release);
            self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// To be called after each poll of the handler. Once the request is read, the stop waits for its session and not for
    /// this connection.
    fn release_if_read(&self) {
        if self.is_stopping() && self.is_read.load(Ordering::Acquire) {
            self.release_stop();
        }
    }

    /// Notes the large answer that is about to be sent, and forgets the one before.
    fn sends(&self, body: &Body) {
        let unread = body.unread();
        if unread.is_some() || self.has_unread.load(Ordering::Acquire) {
            self.has_unread.store(unread.is_some(), Ordering::Release);
            *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = unread;
        }
    }

    /// Whether the unread answer was given up, because its client makes the server hold too much memory.
    fn is_given_up(&self) -> bool {
        self.has_unread.load(Ordering::Acquire)
            && self
                .unread
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .is_some_and(Unread::is_given_up)
    }

    /// Keeps the rest of a request that is answered without it.
    fn leave(&self, body: Incoming) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        self.has_left.store(true, Ordering::Release);
    }

    fn take_left(&self) -> Option<Incoming> {
        if !self.has_left.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets the stop go on without this connection.
    fn release_stop(&self) {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn says_close(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")))
}

/// Whether a connection counts as one of those that there may be.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionAdmission {
    /// It holds a permit.
    Permitted(SharedPermit),
    /// It is one too many: it may ask about health, and wait for a permit.
    Spare(Arc<Spare>),
}

/// Answers the requests of a connection.
struct RequestService {
    router: Router,
    remote: Remote,
    admission: ConnectionAdmission,
    flags: Arc<ConnectionFlags>,
}

impl Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    // Boxed, because hyper keeps room for this future as long as the connection lives, even while it only writes a
    // stream.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (router, flags, remote) = (self.router.clone(), Arc::clone(&self.flags), self.remote.clone());
        flags.heard();
        if request.version() <= Version::HTTP_11 {
            flags.begin(&request);
        }
        match &self.admission {
            ConnectionAdmission::Permitted(permit) => answer(router, flags, remote, permit, request),
            ConnectionAdmission::Spare(spare) => {
                let spare = Arc::clone(spare);
                Box::pin(async move {
                    let is_about_health = Router::is_about_health(request.uri().path());
                    let version = request.version();
                    let permit = match is_about_health {
                        true => spare.permit(),
                        false => spare.wait_for_permit().await,
                    };
                    let mut response = match permit {
                        Some(permit) => return answer(router, flags, remote, &permit, request).await,
                        None if is_about_health => router.handle(request, Some(&remote)).await,
                        None => router.without_permit(request, &remote),
                    };
                    if version <= Version::HTTP_11 {
                        say_close(&mut response);
                        flags.is_last.store(true, Ordering::Release);
                    }
                    Ok(response)
                })
            }
        }
    }
}

/// Answers a request of a connection that holds a permit.
fn answer(
    router: Router,
    flags: Arc<ConnectionFlags>,
    remote: Remote,
    permit: &SharedPermit,
    mut request: Request<Incoming>,
) -> <RequestService as Service<Request<Incoming>>>::Future {
    if router.doors.may_upgrade(request.uri().path()) {
        request.extensions_mut().insert(permit.clone());
    }
    if request.version() > Version::HTTP_11 {
        return Box::pin(async move { Ok(router.handle(request, Some(&remote)).await) });
    }
    let received = Arc::clone(&flags);
    let waits_to_send = request.headers().contains_key(EXPECT);
    let request = request.map(|body| Received { body: Some(body), flags: received });
    Box::pin(async move {
        let mut response = {
            let mut handled = std::pin::pin!(router.handle(request, Some(&remote)));
            std::future::poll_fn(|cx| {
                let response = handled.as_mut().poll(cx);
                // After the poll, because it may have read the request and given it to its session.
                flags.release_if_read();
                response
            })
            .await
        };
        flags.sends(response.body());
        let is_read = match flags.take_left() {
            None => true,
            // The client has not sent the body yet, and need not; or it took too long already.
            Some(_) if waits_to_send || response.status() == StatusCode::REQUEST_TIMEOUT => false,
            Some(rest) if rest.size_hint().lower() > REST_BYTES as u64 => false,
            Some(rest) => Box::pin(read_rest(rest)).await,
        };
        if is_read {
            flags.is_read.store(true, Ordering::Release);
        }
        if !is_read || flags.stages.leaving.is_cancelled() {
            say_close(&mut response);
            flags.is_last.store(true, Ordering::Release);
        }
        Ok(response)
    })
}

/// Tells the client to send no other request on this connection. The client opens another connection, and the process
/// that listens then accepts it. HTTP/2 says this when the connection ends, and loses no request.
fn say_close<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// The body of a request. It notes whether all of it was read, and leaves the rest to the connection.
struct Received {
    /// Taken when it is dropped.
    body: Option<Incoming>,
    flags: Arc<ConnectionFlags>,
}

impl Drop for Received {
    fn drop(&mut self) {
        match self.body.take() {
            Some(body) if !body.is_end_stream() => self.flags.leave(body),
            _ => self.flags.is_read.store(true, Ordering::Release),
        }
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(None) = frame {
            self.body = None;
            self.flags.is_read.store(true, Ordering::Release);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

/// Reads the rest of a request that was answered without it, so that the connection can be kept. Without this, hyper would
/// close the connection under a client that is still writing, or is about to send its next request. Returns whether the request
/// was read to its end.
async fn read_rest(mut body: Incoming) -> bool {
    let rest = async {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            length += frame.data_ref().map_or(0, Bytes::len);
            if length > REST_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(REST_WAIT, rest).await.unwrap_or(false)
}

/// A connection whose protocol is known, with the bytes that were read to find it out; hyper reads them first.
struct ProbedWire<W> {
    inner: W,
    read: Bytes,
    flags: Arc<ConnectionFlags>,
}

impl<W: Wire> AsyncRead for ProbedWire<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let first = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read.split_to(first));
        Poll::Ready(Ok(()))
    }
}

impl<W: Wire> AsyncWrite for ProbedWire<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper is done with the connection, but the next process continues with the socket: leave it open.
        if self.flags.is_kept() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
