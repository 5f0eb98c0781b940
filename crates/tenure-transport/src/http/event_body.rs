//! A stream of Server-Sent Events as the body of a response, from any source of events.
//!
//! In: an [`EventSource`]. Out: frames. Events that are ready share a frame, and a quiet stream gets keep-alive comments.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tenure_session::Reader;
use tenure_session::exchange::{Flow, FlowItem};
use tenure_session::session::Item;
use tokio::time::{Instant, Sleep};

use super::access::Opener;
use super::sse::{self, Wording};
use crate::observe::RequestNotes;

/// The most bytes that are put into one frame before the client has taken the last one.
pub(super) const FRAME_BYTES: usize = 64 << 10;

/// Writes the events of a stream.
pub(super) trait EventSource: Debug + Send {
    /// Writes the start of the stream.
    fn open(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(sse::OPENING);
    }

    /// Writes the next event; `None` at the end of the stream, also if the last event was written with it.
    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>>;

    /// Whether another task may take events before the client has taken the last ones.
    fn may_run_ahead(&self) -> bool {
        true
    }
}

/// The body.
#[derive(Debug)]
pub(super) struct EventBody<S: ?Sized> {
    is_open: bool,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    /// The request that this answers, if it is observed.
    notes: Option<Arc<RequestNotes>>,
    pub(super) source: S,
}

impl<S> EventBody<S> {
    pub(super) fn new(source: S, keep_alive: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        Self { is_open: false, keep_alive, timer, notes: None, source }
    }
}

impl<S: EventSource + ?Sized> EventBody<S> {
    /// Lets an observed request look at the messages.
    pub(super) fn show_to(&mut self, notes: &Arc<RequestNotes>) {
        self.notes = Some(Arc::clone(notes));
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut out = BytesMut::new();
        if !std::mem::replace(&mut self.is_open, true) {
            self.source.open(&mut out);
        }
        // Events that are ready share a frame, so that a replay needs few writes.
        while out.len() < FRAME_BYTES {
            let begin = out.len();
            match self.source.poll_write(cx, &mut out) {
                Poll::Ready(Some(())) => {
                    if let Some(notes) = &self.notes {
                        sse::messages_of(&out[begin..]).for_each(|message| notes.sends(message));
                    }
                }
                Poll::Ready(None) if out.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if out.is_empty() {
            ready!(self.timer.as_mut().poll(cx));
            out.extend_from_slice(sse::KEEP_ALIVE);
        }
        self.timer.as_mut().reset(Instant::now() + self.keep_alive);
        // Polled once after the reset, even if an event was written, because only a polled timer wakes this task.
        let _ = self.timer.as_mut().poll(cx);
        Poll::Ready(Some(out.freeze()))
    }
}

/// A session's stream.
#[derive(Debug)]
pub(super) struct SessionEvents {
    pub(super) reader: Reader,
    pub(super) wording: Wording,
    /// Ends the stream when the owner's credentials have expired; see [`SessionEvents::while_usable`].
    pub(super) expiry: Expiry,
}

/// When a stream ends because of its owner's credentials.
pub(super) enum Expiry {
    /// Never: the stream belongs to a request that was allowed.
    Never,
    /// It has ended.
    Over,
    /// When this is ready.
    At(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl std::fmt::Debug for Expiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Expiry")
    }
}

impl SessionEvents {
    pub(super) fn new(reader: Reader, wording: Wording) -> Self {
        Self { reader, wording, expiry: Expiry::Never }
    }

    /// Ends the stream when the credentials of the session's owner have expired, or those that opened it were taken back. The
    /// client is told to come back.
    pub(super) fn while_usable(self, opener: Opener) -> Self {
        let session = Arc::clone(self.reader.session());
        let ended = async move { opener.ended(session.usable_until()).await };
        Self { expiry: Expiry::At(Box::pin(ended)), ..self }
    }
}

impl Expiry {
    fn is_reached(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Never => false,
            Self::Over => true,
            Self::At(ended) => ended.as_mut().poll(cx).is_ready(),
        }
    }
}

impl EventSource for SessionEvents {
    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>> {
        if matches!(self.expiry, Expiry::Over) {
            return Poll::Ready(None);
        }
        let retry = self.reader.retry();
        // Checked first, because a slow client always has an event waiting. It can resume with its next credentials.
        if self.expiry.is_reached(cx) {
            self.expiry = Expiry::Over;
            sse::write_close(retry, out);
            return Poll::Ready(Some(()));
        }
        let item = ready!(self.reader.poll_next(cx));
        Poll::Ready(item.map(|item| sse::write_worded(&item, retry, self.wording, out)))
    }
}

/// The same at POST `/sse`: only messages, and then a `done` event.
#[derive(Debug)]
pub(super) struct EventsThenDone {
    reader: Reader,
    /// The `done` event was sent, or must not be sent.
    is_done: bool,
}

impl EventsThenDone {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, is_done: false }
    }
}

impl EventSource for EventsThenDone {
    fn open(&mut self, _: &mut BytesMut) {}

    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>> {
        let retry = self.reader.retry();
        match ready!(self.reader.poll_next(cx)) {
            // These clients take every event for a message.
            Some(Item::Prime(_)) => {}
            Some(item) => {
                // After a close more messages come when the client resumes, so `done` must not be sent.
                self.is_done |= matches!(item, Item::Close(_));
                sse::write(&item, retry, out);
            }
            None => {
                if !std::mem::replace(&mut self.is_done, true) {
                    out.extend_from_slice(sse::DONE);
                }
                return Poll::Ready(None);
            }
        }
        Poll::Ready(Some(()))
    }
}

/// The messages of a listen, which ends with the credentials that opened it: its client opens another one.
#[derive(Debug)]
pub(super) struct ListenEvents {
    flow: Option<Flow>,
    expiry: Expiry,
    retry: Duration,
}

impl ListenEvents {
    pub(super) fn new(flow: Flow, opener: Opener, retry: Duration) -> Self {
        let ended = async move { opener.ended_alone().await };
        Self { flow: Some(flow), expiry: Expiry::At(Box::pin(ended)), retry }
    }
}

impl EventSource for ListenEvents {
    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>> {
        let Some(flow) = &mut self.flow else { return Poll::Ready(None) };
        if self.expiry.is_reached(cx) {
            // Dropping it ends the listen, for whose event id the client can come back a while.
            (self.flow, self.expiry) = (None, Expiry::Over);
            sse::write_close(self.retry, out);
            return Poll::Ready(Some(()));
        }
        flow.poll_write(cx, out)
    }
}

/// The messages of an exchange.
impl EventSource for Flow {
    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>> {
        let item = ready!(self.poll_next(cx));
        Poll::Ready(item.map(|item| match item {
            FlowItem::Resumable { id, retry } => sse::write_prime(&id, retry, out),
            FlowItem::Message(message) => sse::write_message(&message, out),
            FlowItem::ComeBack(retry) => sse::write_close(retry, out),
        }))
    }
}
