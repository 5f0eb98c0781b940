//! The stream of a session that another node has, as the body of a response here.
//!
//! In: the bytes of the other node's stream, cut into whole events. Out: the same events. It remembers the id of the last event
//! that it passed on. If the other node is lost, it finds the next one, or this node wakes the session, and the stream
//! goes on after that event, on the same connection of the client: no event is lost, and none comes twice.
//!
//! A GET without an id begins where the other node says. The stream of a POST whose client knows no event id yet cannot be
//! continued that way; its request is sent once more, as one that may have been begun. If that is not possible, each request
//! that has no answer yet gets an error: a client must not wait for ever, and not send it again either.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use tenure_protocol::{Incoming, Message, Reason, RequestId, RpcError, message};
use tenure_session::budget::Taken;
use tenure_session::port::BoxFuture;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::access::{Hop, KeptSender, Sender};
use super::answer::AnswerFormat;
use super::body::Body;
use super::elsewhere::{Carried, Hold, LOST, PeerAnswer, Placed, is_stream};
use super::endpoint::{Asker, Endpoint, session_id};
use super::event_body::{EventSource, SessionEvents};
use super::exchange::ResumedCall;
use super::get::Opened;
use super::headers;
use super::sse;
use crate::cluster::{EventCutter, PeerBody, Relay, RequestTry, is_not_here};

/// How often a stream may break without an event in between before it is given up.
const MOST_BREAKS: u32 = 8;

/// The pause before a stream that broke is looked for, doubled for each break without an event in between.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The events.
pub(super) struct RelayedEvents {
    kept: Arc<KeptRequest>,
    /// The request, until its client has an event id.
    carried: Option<KeptBody>,
    /// The requests of the POST that have no answer yet. Exact until the client has an event id.
    unanswered: Vec<RequestId>,
    source: Source,
    cutter: EventCutter,
    /// The id of the last event that was passed on.
    last: Option<Box<[u8]>>,
    /// An event without an id was passed on, so that the request cannot be asked anew.
    has_begun: bool,
    breaks: u32,
    /// The event `done`, which ends the answer to POST `/sse`, is still to come.
    owes_done: bool,
    /// Ready when the credentials of the client were taken back.
    taken_back: Option<BoxFuture<()>>,
    /// Ready when this node sends its clients to others.
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    is_stopping: bool,
}

/// The request whose answer the stream is.
struct KeptRequest {
    endpoint: Endpoint,
    relay: Relay,
    headers: HeaderMap,
    sender: KeptSender,
    is_post: bool,
    format: AnswerFormat,
}

/// The body of a request that may have to be sent once more, and its memory. While it is kept, its client cannot come back, so a
/// stop waits for it.
struct KeptBody {
    body: Bytes,
    held: Arc<Taken>,
    _pending: TaskTrackerToken,
}

/// Where events come from.
enum Source {
    /// Another node.
    Peer(PeerBody),
    /// This node, which has woken the session.
    Session(Box<SessionEvents>),
    /// This node, which has answered the request.
    Answer(Box<Body>),
    /// No node at present.
    Seeking(BoxFuture<Source>),
    /// The stream cannot go on.
    GivenUp,
    /// The last event of the stream.
    Closing(Bytes),
    /// Nothing comes any more.
    Over,
}

impl RelayedEvents {
    /// The events of a POST.
    pub(super) fn of_post(
        endpoint: &Endpoint,
        parts: &Parts,
        asker: &Asker<'_>,
        format: AnswerFormat,
        requests: &[RequestId],
    ) -> Option<Self> {
        let _pending = endpoint.0.relay.as_ref()?.pending();
        let carried = KeptBody { body: asker.body.clone(), held: Arc::clone(&asker.held), _pending };
        let events = Self::new(endpoint, parts, asker.sender, Some(carried), format)?;
        Some(Self { unanswered: requests.to_vec(), ..events })
    }

    /// The events of a GET.
    pub(super) fn of_get(endpoint: &Endpoint, parts: &Parts, sender: &Sender<'_>) -> Option<Self> {
        Self::new(endpoint, parts, sender, None, AnswerFormat::Streamable)
    }

    fn new(
        endpoint: &Endpoint,
        parts: &Parts,
        sender: &Sender<'_>,
        carried: Option<KeptBody>,
        format: AnswerFormat,
    ) -> Option<Self> {
        let relay = endpoint.0.relay.clone()?;
        let stop = Box::pin(relay.stop().clone().cancelled_owned());
        let taken_back = endpoint.opener(sender).filter(|_| carried.is_none()).map(|opener| {
            let taken_back: BoxFuture<()> = Box::pin(async move { opener.taken_back().await });
            taken_back
        });
        // A message of many lines is longer as an event than it was.
        let longest = endpoint.0.sessions.limits().max_event_bytes.saturating_mul(8).saturating_add(64 << 10);
        let mut kept_headers = crate::cluster::request_headers(&parts.headers);
        // A request that is posted has a stream of its own, which no id that its client knows can name.
        let last = match carried {
            Some(_) => {
                kept_headers.remove(headers::LAST_EVENT_ID);
                None
            }
            None => parts.headers.get(headers::LAST_EVENT_ID).map(|id| id.as_bytes().into()),
        };
        let kept = KeptRequest {
            endpoint: endpoint.clone(),
            relay,
            headers: kept_headers,
            sender: KeptSender::of(sender),
            is_post: carried.is_some(),
            format,
        };
        Some(Self {
            kept: Arc::new(kept),
            carried,
            unanswered: Vec::new(),
            source: Source::Over,
            cutter: EventCutter::new(longest),
            last,
            has_begun: false,
            breaks: 0,
            owes_done: format == AnswerFormat::Done,
            taken_back,
            stop,
            is_stopping: false,
        })
    }

    /// Begins with the stream of another node. `after` is the id after which that stream begins, if the node has said so.
    pub(super) fn reading(self, body: PeerBody, after: Option<&[u8]>) -> Self {
        let last = match after {
            // It says more than the id of the client, which may be of another server.
            Some(after) if !self.kept.is_post => Some(after.into()),
            _ => self.last,
        };
        Self { source: Source::Peer(body), last, ..self }
    }

    /// How long a client waits before it comes back, when it is sent to another node.
    fn pause(&self) -> Duration {
        self.kept.endpoint.0.sessions.limits().stop_retry
    }

    /// Whether the client can come back for the rest of the stream.
    fn can_come_back(&self) -> bool {
        self.last.is_some() || !self.kept.is_post
    }

    /// The other node was lost: looks for the next one.
    fn seek(&mut self) {
        self.cutter.forget();
        self.breaks += 1;
        let is_lost = self.breaks > MOST_BREAKS;
        // Without an id it is unknown where the stream goes on, and an event must not come twice.
        let is_stuck = self.kept.is_post && self.last.is_none() && self.has_begun;
        if is_lost || is_stuck || self.is_stopping {
            self.source = Source::GivenUp;
            return;
        }
        let (kept, last) = (Arc::clone(&self.kept), self.last.clone());
        let carried = match &last {
            Some(_) => None,
            None => self.carried.as_ref().map(|carried| (carried.body.clone(), Arc::clone(&carried.held))),
        };
        let pause = FIRST_PAUSE * 2u32.saturating_pow(self.breaks - 1);
        self.source = Source::Seeking(Box::pin(async move {
            tokio::time::sleep(pause).await;
            kept.sought(last, carried).await
        }));
    }

    /// The last events of a stream that does not go on: its client comes back for the rest, or learns which of its requests have
    /// no answer.
    fn last_events(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        if self.can_come_back() {
            self.owes_done = false;
            sse::write_close(self.pause(), &mut out);
            return out.freeze();
        }
        let error = RpcError::of(Reason::Interrupted, LOST);
        for id in &self.unanswered {
            sse::write_message(&message::write_error(Some(id), &error), &mut out);
        }
        out.freeze()
    }

    /// Notes which requests an event without an id answers.
    fn answers(&mut self, event: &[u8]) {
        for message in sse::messages_of(event) {
            if let Ok(Message::Response(response)) = Message::parse(&Bytes::copy_from_slice(message)) {
                self.unanswered.retain(|id| *id != response.id);
            }
        }
    }

    /// Whether the client of POST `/sse` gets this event: it takes every event for a message, and has to be told when there are no
    /// more. False for one that only has an id.
    fn suits(&mut self, event: &[u8]) -> bool {
        if self.kept.format != AnswerFormat::Done {
            return true;
        }
        self.owes_done &= !(event == sse::DONE || sse::is_close(event));
        !sse::is_prime(event)
    }

    /// Notes an event that is passed on.
    fn passes(&mut self, id: Option<&[u8]>, is_event: bool) {
        // A resumed stream begins with an event that repeats the last id. That is not progress: a request that kills
        // each node that takes it would be sent on for ever.
        let is_new = id.is_none() || id != self.last.as_deref();
        if let Some(id) = id {
            self.last = Some(id.into());
            self.carried = None;
        }
        if is_event {
            self.has_begun = true;
            if is_new {
                self.breaks = 0;
            }
        }
    }
}

impl KeptRequest {
    fn parts(&self, method: Method, last: Option<&[u8]>) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.headers = self.headers.clone();
        parts.version = Version::HTTP_11;
        if method == Method::GET {
            parts.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            parts.headers.remove(CONTENT_TYPE);
            parts.headers.remove(CONTENT_LENGTH);
        }
        if let Some(last) = last.and_then(|last| HeaderValue::from_bytes(last).ok()) {
            parts.headers.insert(headers::LAST_EVENT_ID, last);
        }
        parts.method = method;
        parts
    }

    /// Finds out where the stream goes on.
    async fn sought(&self, last: Option<Box<[u8]>>, carried: Option<(Bytes, Arc<Taken>)>) -> Source {
        let is_of_session = self.headers.contains_key(headers::SESSION_ID);
        match carried {
            Some((body, held)) if last.is_none() && is_of_session => self.asked_again(body, held).await,
            Some((body, held)) if last.is_none() => self.called_again(body, held).await,
            _ => self.listened(last.as_deref()).await,
        }
    }

    /// Opens the stream again after the last event.
    async fn listened(&self, last: Option<&[u8]>) -> Source {
        let parts = self.parts(Method::GET, last);
        let sender = self.sender.sender(Hop::Client);
        match Box::pin(self.endpoint.resumed(&parts, &sender)).await {
            None => {}
            Some(Ok(ResumedCall::Here(flow))) => {
                return Source::Answer(Box::new(self.endpoint.rest_of_call(*flow, &sender)));
            }
            Some(Ok(ResumedCall::Elsewhere(PeerAnswer::Events(answer)))) => {
                return Source::Peer(answer.into_body());
            }
            Some(_) => return Source::GivenUp,
        }
        match self.endpoint.opened(&parts, &sender).await {
            Ok(Opened::Here(Ok(events))) => Source::Session(events),
            Ok(Opened::Elsewhere(PeerAnswer::Events(answer))) => Source::Peer(answer.into_body()),
            // The session or the stream has ended meanwhile; a client that comes back is told so.
            Ok(Opened::Here(Err(_)) | Opened::Elsewhere(PeerAnswer::Whole(_))) => Source::GivenUp,
            Ok(Opened::Elsewhere(PeerAnswer::NotHere)) | Err(_) => Source::GivenUp,
        }
    }

    /// Sends the request once more, as one that may have been begun.
    async fn asked_again(&self, body: Bytes, held: Arc<Taken>) -> Source {
        let parts = self.parts(Method::POST, None);
        let sender = self.sender.sender(Hop::Peer(RequestTry::Again));
        let Ok(id) = session_id(&parts) else { return Source::GivenUp };
        let mut hold = Hold::of(&sender);
        let carried = Carried::of(&body, self.format);
        // A request of a client is sent to other nodes; `hold` has the mark that one of them may have begun it.
        let client = self.sender.sender(Hop::Client);
        match self.endpoint.placed(&self.relay, &id, &parts, &client, carried, &mut hold).await {
            Ok(Placed::Elsewhere(PeerAnswer::Events(answer))) => Source::Peer(answer.into_body()),
            Ok(Placed::Elsewhere(PeerAnswer::Whole(answer))) => as_event(answer.body()),
            Ok(Placed::Here) => {
                drop(held);
                self.answered_here(&parts, &body, &sender).await
            }
            Ok(Placed::Elsewhere(PeerAnswer::NotHere)) | Err(_) => Source::GivenUp,
        }
    }

    /// Sends a request without a session once more, if its state says what has become of it, or it may run twice.
    async fn called_again(&self, body: Bytes, held: Arc<Taken>) -> Source {
        let parts = self.parts(Method::POST, None);
        let client = self.sender.sender(Hop::Client);
        let asker = Asker { sender: &client, body: &body, held };
        let answered = Box::pin(self.endpoint.exchanged_again(&parts, &asker)).await;
        drop(asker);
        match answered {
            Ok(Some(PeerAnswer::Events(answer))) => Source::Peer(answer.into_body()),
            Ok(Some(PeerAnswer::Whole(answer))) => as_event(answer.body()),
            Ok(None) => {
                let sender = self.sender.sender(Hop::Peer(RequestTry::Again));
                self.answered_here(&parts, &body, &sender).await
            }
            Ok(Some(PeerAnswer::NotHere)) | Err(_) => Source::GivenUp,
        }
    }

    /// The answer of this node.
    async fn answered_here(&self, parts: &Parts, body: &Bytes, sender: &Sender<'_>) -> Source {
        let body = http_body_util::Full::new(body.clone());
        let response = self.endpoint.post(parts, body, sender, self.format).await;
        if is_not_here(&response) {
            return Source::GivenUp;
        }
        match is_stream(response.headers()) {
            true => Source::Answer(Box::new(response.into_body())),
            false => as_event_of(response).await,
        }
    }
}

/// A whole answer as the only event of the stream. A refusal that names no request answers none.
fn as_event(answer: &Bytes) -> Source {
    match Incoming::parse(answer) {
        Ok(Incoming::One(Message::Response(_)) | Incoming::Batch(_)) => {
            let mut out = BytesMut::new();
            sse::write_message(answer, &mut out);
            Source::Closing(out.freeze())
        }
        _ => Source::GivenUp,
    }
}

/// The same for an answer of this node.
async fn as_event_of(response: Response<Body>) -> Source {
    match response.into_body().collect().await {
        Ok(whole) => as_event(&whole.to_bytes()),
        // Only a client that reads too slowly is cut off.
        Err(_) => Source::Over,
    }
}

impl EventSource for RelayedEvents {
    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>> {
        if let Some(taken_back) = &mut self.taken_back
            && !matches!(self.source, Source::Over)
            && taken_back.as_mut().poll(cx).is_ready()
        {
            (self.source, self.taken_back, self.owes_done) = (Source::Over, None, false);
            sse::write_close(self.pause(), out);
            return Poll::Ready(Some(()));
        }
        if !self.is_stopping && self.stop.as_mut().poll(cx).is_ready() {
            self.is_stopping = true;
            // Events of a session of this node end with the session. Without an id the stream is its client's only way to
            // the answer, so it goes on as long as this process lives.
            if self.can_come_back() && matches!(self.source, Source::Peer(_) | Source::Seeking(_)) {
                (self.source, self.owes_done) = (Source::Over, false);
                sse::write_close(self.pause(), out);
                return Poll::Ready(Some(()));
            }
        }
        loop {
            match &mut self.source {
                Source::Peer(body) => {
                    if let Some(event) = self.cutter.next() {
                        // This node writes its own.
                        if matches!(event.bytes(), sse::OPENING | sse::KEEP_ALIVE) {
                            continue;
                        }
                        let is_event = !event.bytes().starts_with(b":");
                        self.passes(event.id(), is_event);
                        if is_event && self.carried.is_some() {
                            self.answers(event.bytes());
                        }
                        if self.suits(event.bytes()) {
                            out.extend_from_slice(event.bytes());
                            return Poll::Ready(Some(()));
                        }
                        continue;
                    }
                    let is_broken = match ready!(body.poll_data(cx)) {
                        Some(Ok(data)) => self.cutter.feed(data).is_err(),
                        Some(Err(_)) => true,
                        None => {
                            self.source = Source::Over;
                            continue;
                        }
                    };
                    if is_broken {
                        self.seek();
                    }
                }
                Source::Session(events) => {
                    let begin = out.len();
                    if ready!(events.poll_write(cx, out)).is_none() {
                        self.source = Source::Over;
                    } else if self.suits(&out[begin..]) {
                        return Poll::Ready(Some(()));
                    } else {
                        out.truncate(begin);
                    }
                }
                Source::Answer(body) => match ready!(Pin::new(body.as_mut()).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        let Ok(data) = frame.into_data() else { continue };
                        out.extend_from_slice(&data);
                        return Poll::Ready(Some(()));
                    }
                    Some(Err(_)) | None => self.source = Source::Over,
                },
                Source::Seeking(seeking) => {
                    self.source = ready!(seeking.as_mut().poll(cx));
                    // A whole answer to POST `/sse` has its own end.
                    self.owes_done &= !matches!(self.source, Source::Answer(_));
                }
                Source::GivenUp => self.source = Source::Closing(self.last_events()),
                Source::Closing(last) => {
                    out.extend_from_slice(last);
                    let is_empty = last.is_empty();
                    self.source = Source::Over;
                    if !is_empty {
                        return Poll::Ready(Some(()));
                    }
                }
                Source::Over if std::mem::take(&mut self.owes_done) => {
                    out.extend_from_slice(sse::DONE);
                    return Poll::Ready(Some(()));
                }
                Source::Over => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for RelayedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayedEvents").field("breaks", &self.breaks).finish_non_exhaustive()
    }
}
