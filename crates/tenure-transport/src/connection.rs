//! One HTTP connection, from its first byte to its end, or to the next process.
//!
//! When the server stops, a connection takes no more requests. Where the next process takes connections, one of plain
//! HTTP/1.1 that is between two requests is not closed but passed on, with the bytes of the next request that were
//! read already: its client may be sending one, and notices nothing. A connection is passed on after its response too,
//! unless the client was told that it will be closed.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
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

use crate::http::{Body, Remote, Router, Seat, Stalled};
use crate::idle::{Idle, Streams};
use crate::opening::{Opening, Protocol};
use crate::reserve::Spare;
use crate::serve::{Kept, Stages};
use crate::stall::Stall;

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How connections are served.
pub(crate) struct Http {
    pub(crate) http1: http1::Builder,
    /// Makes one for the streams of one connection.
    pub(crate) http2: Box<dyn Fn(Streams) -> http2::Builder<Streams> + Send + Sync>,
    /// How long a client may take to show its protocol, and how long one of HTTP/2 may have no stream open.
    pub(crate) opening: Duration,
}

/// The bytes of a connection.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether another process could go on with it.
    const CAN_BE_PASSED: bool;

    /// The socket, if that is all there is to it.
    fn into_socket(self) -> Option<TcpStream>;
}

impl Wire for Stall<TcpStream> {
    const CAN_BE_PASSED: bool = true;

    fn into_socket(self) -> Option<TcpStream> {
        Some(self.into_inner())
    }
}

/// The keys of the encryption stay here.
impl Wire for TlsStream<Stall<TcpStream>> {
    const CAN_BE_PASSED: bool = false;

    fn into_socket(self) -> Option<TcpStream> {
        None
    }
}

/// Serves a connection of which these bytes were read already.
pub(crate) fn serve<W: Wire>(
    http: &Arc<Http>,
    router: &Router,
    wire: W,
    read: &Bytes,
    (remote, admission): (Remote, Admission),
    stages: &Stages,
) -> Connection<W> {
    let talk = Arc::new(Talk {
        is_heard: AtomicBool::new(false),
        is_last: AtomicBool::new(false),
        is_read: AtomicBool::new(true),
        is_told: AtomicBool::new(false),
        passes: AtomicBool::new(false),
        fresh: Mutex::new(Some(stages.fresh.token())),
        receiving: Mutex::new(Some(stages.receiving.token())),
        unread: Mutex::new(None),
        has_unread: AtomicBool::new(false),
        stages: stages.clone(),
    });
    let answers = Answers { router: router.clone(), remote, admission, talk: Arc::clone(&talk) };
    let opening = Opening::new(wire, read, http.opening);
    Connection {
        state: State::Opening(opening, Arc::clone(http), answers),
        stop: stages.stop.clone().cancelled_owned(),
        stops: false,
        talk,
    }
}

pin_project! {
    /// A connection. It results in itself, if it is to be passed on.
    pub(crate) struct Connection<W: Wire> {
        state: State<W>,
        #[pin]
        stop: WaitForCancellationFutureOwned,
        stops: bool,
        talk: Arc<Talk>,
    }
}

type Io<W> = TokioIo<Opened<W>>;

#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of that one; a box would be an allocation for each"
)]
enum State<W: Wire> {
    Opening(Opening<W>, Arc<Http>, Answers),
    Http1(http1::UpgradeableConnection<Io<W>, Answers>),
    // Boxed, because few connections are of this kind, and each of the others would need room for it.
    Http2(Box<Http2<W>>),
    Over,
}

struct Http2<W: Wire> {
    connection: Pin<Box<http2::Connection<Io<W>, Answers, Streams>>>,
    idle: Idle,
}

impl<W: Wire> Future for Connection<W> {
    type Output = Result<Option<Kept>, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if !*this.stops && this.stop.poll(cx).is_ready() {
            *this.stops = true;
        }
        // Before anything is read: no request begins after the stop on a connection that can be told of it.
        if *this.stops && !this.talk.is_told() {
            let passes = W::CAN_BE_PASSED && this.talk.stages.has_successor();
            if this.talk.is_heard() {
                this.talk.tell(passes);
                this.state.tell();
            } else if passes {
                // No request has begun, so there is nothing to wait for.
                this.talk.tell(passes);
                return Poll::Ready(Ok(this.state.take().pass_on()?));
            } else {
                // Its first request is served, whenever it comes: the client has just connected, and would find the
                // connection closed under its hands.
                this.talk.received();
            }
        }
        if let State::Opening(opening, ..) = this.state {
            let protocol = ready!(opening.poll_protocol(cx))?;
            *this.state = this.state.take().opened(protocol, this.talk);
        }
        if this.talk.is_given_up() {
            return Poll::Ready(Err(Stalled.into()));
        }
        match this.state {
            State::Http1(connection) => {
                ready!(Pin::new(connection).poll(cx))?;
                let ended = this.state.take();
                Poll::Ready(if this.talk.is_kept() { Ok(ended.pass_on()?) } else { Ok(None) })
            }
            State::Http2(http2) => loop {
                if let Poll::Ready(ended) = http2.connection.as_mut().poll(cx) {
                    return Poll::Ready(Ok(ended.map(|()| None)?));
                }
                ready!(http2.idle.poll(cx));
                // Its client is told not to use it any more, and then it ends.
                http2.connection.as_mut().graceful_shutdown();
            },
            State::Opening(..) | State::Over => Poll::Ready(Ok(None)),
        }
    }
}

impl<W: Wire> State<W> {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Over)
    }

    fn opened(self, protocol: Protocol, talk: &Arc<Talk>) -> Self {
        let Self::Opening(Opening { inner, read, .. }, http, answers) = self else { return self };
        let io = TokioIo::new(Opened { inner, read: read.freeze(), talk: Arc::clone(talk) });
        match protocol {
            Protocol::Http1 => Self::Http1(http.http1.serve_connection(io, answers).with_upgrades()),
            Protocol::Http2 => {
                let streams = Streams::default();
                let idle = Idle::new(streams.clone(), http.opening);
                let connection = Box::pin((http.http2)(streams).serve_connection(io, answers));
                Self::Http2(Box::new(Http2 { connection, idle }))
            }
        }
    }

    /// Tells it to take no more requests.
    fn tell(&mut self) {
        match self {
            Self::Http1(connection) => Pin::new(connection).graceful_shutdown(),
            Self::Http2(http2) => http2.connection.as_mut().graceful_shutdown(),
            Self::Opening(..) | Self::Over => {}
        }
    }

    /// What the next process needs to go on; nothing if the connection is of another protocol by now.
    fn pass_on(self) -> io::Result<Option<Kept>> {
        let (wire, read) = match self {
            Self::Opening(Opening { inner, read, .. }, ..) => (inner, read.freeze()),
            Self::Http1(connection) => {
                let Some(parts) = connection.into_parts() else { return Ok(None) };
                let Opened { inner, read, .. } = parts.io.into_inner();
                (inner, Bytes::from([&parts.read_buf[..], &read[..]].concat()))
            }
            Self::Http2(_) | Self::Over => return Ok(None),
        };
        let Some(socket) = wire.into_socket() else { return Ok(None) };
        Ok(Some(Kept { stream: socket.into_std()?, read }))
    }
}

/// What is known of a connection beside what hyper knows.
struct Talk {
    /// Its first request has come.
    is_heard: AtomicBool,
    /// The client expects that the connection is closed after the response.
    is_last: AtomicBool,
    /// The last request was read to its end. If not, the rest of it would look like another one.
    is_read: AtomicBool,
    /// It was told to take no more requests.
    is_told: AtomicBool,
    /// The next process takes it, if it can be kept.
    passes: AtomicBool,
    fresh: Mutex<Option<TaskTrackerToken>>,
    /// Until no request can begin any more, and none is being received.
    receiving: Mutex<Option<TaskTrackerToken>>,
    /// The large answer that its client is to read.
    unread: Mutex<Option<Unread>>,
    /// Whether there is one, so that no other connection looks for it.
    has_unread: AtomicBool,
    stages: Stages,
}

impl Talk {
    fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Acquire)
    }

    fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    fn tell(&self, passes: bool) {
        self.passes.store(passes, Ordering::Release);
        self.is_told.store(true, Ordering::Release);
        self.admitted();
    }

    /// Whether the client may send another request on it, which the next process can serve.
    fn is_kept(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        is(&self.passes) && is(&self.is_read) && !is(&self.is_last)
    }

    /// A request of HTTP/1.1 begins.
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

    /// To be called when a request may have been given to its session, which is waited for from then on.
    fn admitted(&self) {
        if self.is_told() && self.is_read.load(Ordering::Acquire) {
            self.received();
        }
    }

    /// Notes the answer that is about to be sent.
    fn sends(&self, body: &Body) {
        let unread = body.unread();
        if unread.is_some() || self.has_unread.load(Ordering::Acquire) {
            self.has_unread.store(unread.is_some(), Ordering::Release);
            *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = unread;
        }
    }

    /// Whether its client does not read its answer and holds too much with it.
    fn is_given_up(&self) -> bool {
        self.has_unread.load(Ordering::Acquire)
            && self
                .unread
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .is_some_and(Unread::is_given_up)
    }

    /// The stop need not wait for this connection.
    fn received(&self) {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn says_close(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")))
}

/// What a connection may do.
#[derive(Clone, Debug)]
pub(crate) enum Admission {
    /// It has a place.
    Seated(Seat),
    /// It is one too many: it may ask about health, and wait for a place.
    Spare(Arc<Spare>),
}

/// Answers the requests of a connection.
struct Answers {
    router: Router,
    remote: Remote,
    admission: Admission,
    talk: Arc<Talk>,
}

impl Service<Request<Incoming>> for Answers {
    type Response = Response<Body>;
    type Error = Infallible;
    // Boxed, because hyper keeps room for this future as long as the connection lives, also while it only writes a
    // stream.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (router, talk, remote) = (self.router.clone(), Arc::clone(&self.talk), self.remote.clone());
        talk.heard();
        if request.version() <= Version::HTTP_11 {
            talk.begin(&request);
        }
        match &self.admission {
            Admission::Seated(seat) => answer(router, talk, remote, seat, request),
            Admission::Spare(spare) => {
                let spare = Arc::clone(spare);
                Box::pin(async move {
                    let is_about_health = Router::is_about_health(request.uri().path());
                    let version = request.version();
                    let seat = match is_about_health {
                        true => spare.seat(),
                        false => spare.wait_for_seat().await,
                    };
                    let mut response = match seat {
                        Some(seat) => return answer(router, talk, remote, &seat, request).await,
                        None if is_about_health => router.handle(request, Some(&remote)).await,
                        None => Router::no_place(),
                    };
                    if version <= Version::HTTP_11 {
                        say_close(&mut response);
                        talk.is_last.store(true, Ordering::Release);
                    }
                    Ok(response)
                })
            }
        }
    }
}

/// Answers a request of a connection that has a place.
fn answer(
    router: Router,
    talk: Arc<Talk>,
    remote: Remote,
    seat: &Seat,
    mut request: Request<Incoming>,
) -> <Answers as Service<Request<Incoming>>>::Future {
    if router.doors.may_upgrade(request.uri().path()) {
        request.extensions_mut().insert(seat.clone());
    }
    if request.version() > Version::HTTP_11 {
        return Box::pin(async move { Ok(router.handle(request, Some(&remote)).await) });
    }
    let received = Arc::clone(&talk);
    let request = request.map(|body| Received { body, talk: received });
    Box::pin(async move {
        let mut response = {
            let mut handled = std::pin::pin!(router.handle(request, Some(&remote)));
            std::future::poll_fn(|cx| {
                let response = handled.as_mut().poll(cx);
                // After the poll in which the request was read, and given to its session.
                talk.admitted();
                response
            })
            .await
        };
        talk.sends(response.body());
        if talk.stages.leaving.is_cancelled() {
            say_close(&mut response);
            talk.is_last.store(true, Ordering::Release);
        }
        Ok(response)
    })
}

/// Tells the client that no other request follows on this connection: it opens another one, which the process that
/// listens then takes. In HTTP/2 that is said when the connection ends, and loses no request.
fn say_close<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

pin_project! {
    /// The body of a request, which notices whether all of it was read.
    struct Received {
        #[pin]
        body: Incoming,
        talk: Arc<Talk>,
    }

    impl PinnedDrop for Received {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.body.is_end_stream() {
                this.talk.is_read.store(true, Ordering::Release);
            }
        }
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(cx);
        if let Poll::Ready(None) = frame {
            this.talk.is_read.store(true, Ordering::Release);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose protocol is known, with the bytes that were read to know it.
struct Opened<W> {
    inner: W,
    read: Bytes,
    talk: Arc<Talk>,
}

impl<W: Wire> AsyncRead for Opened<W> {
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

impl<W: Wire> AsyncWrite for Opened<W> {
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
        // hyper is done with it, and the next process goes on.
        if self.talk.is_kept() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
