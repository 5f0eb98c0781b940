//! The bodies of responses: nothing, one buffer, or a stream of events.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tenure_session::Reader;
use tenure_session::budget::{Share, Unread};
use tenure_session::session::Item;
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;

use super::doors::DoorStream;
use super::pieces::Pieces;
use super::sse::{self, Wording};
use crate::http::exchange_body::ExchangeBody;
use crate::http::http2_pacing::{PIECE_BYTES, Paced, Stalled};

/// The most bytes that are put into one frame before the client has taken the last one.
pub(super) const FRAME_BYTES: usize = 64 << 10;

/// A response body.
#[derive(Debug)]
pub struct Body(BodyKind);

#[derive(Debug)]
enum BodyKind {
    Empty,
    Full(Bytes),
    Pieces(Box<Pieces>),
    Comment(&'static [u8]),
    Events(Box<EventsBody>),
    Door(Box<DoorStream>),
    Flow(Box<ExchangeBody>),
    Paced(Paced),
}

#[derive(Debug)]
struct EventsBody {
    reader: Reader,
    opened: bool,
    shape: Shape,
    wording: Wording,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
}

/// What a stream sends around its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// As Streamable HTTP defines it.
    Streamable,
    /// Only messages, and then a `done` event.
    ThenDone,
    /// The `done` event was sent, or must not be sent.
    Done,
}

impl Body {
    /// No body.
    pub const EMPTY: Self = Self(BodyKind::Empty);

    pub(super) fn full(bytes: Bytes) -> Self {
        Self(BodyKind::Full(bytes))
    }

    /// A stream that contains only a comment.
    pub(super) fn comment(text: &'static [u8]) -> Self {
        Self(BodyKind::Comment(text))
    }

    pub(super) fn events(reader: Reader, keep_alive: Duration, wording: Wording) -> Self {
        let events = EventsBody::new(reader, keep_alive, Shape::Streamable);
        Self(BodyKind::Events(Box::new(EventsBody { wording, ..events })))
    }

    pub(super) fn events_then_done(reader: Reader, keep_alive: Duration) -> Self {
        Self(BodyKind::Events(Box::new(EventsBody::new(reader, keep_alive, Shape::ThenDone))))
    }

    pub(super) fn flow(flow: ExchangeBody) -> Self {
        Self(BodyKind::Flow(Box::new(flow)))
    }

    /// Counts a large answer against the client's share until the client has read it.
    pub(super) fn counted(self, share: &Share) -> Self {
        match self.0 {
            BodyKind::Full(bytes) if bytes.len() > FRAME_BYTES => {
                let unread = share.unread(bytes.len());
                Self(BodyKind::Pieces(Box::new(Pieces::new(bytes, unread))))
            }
            other => Self(other),
        }
    }

    /// The count of a large answer, if this is one.
    pub(crate) fn unread(&self) -> Option<Unread> {
        match &self.0 {
            BodyKind::Pieces(pieces) => Some(pieces.unread()),
            _ => None,
        }
    }

    /// Paces the body for an HTTP/2 stream, if it can be larger than what a connection should hold for each stream. A
    /// door stream stays as it is: it has to know which messages were written, and only a few messages wait in its
    /// queue.
    pub(super) fn at_pace(self, tasks: &TaskTracker, stall: Duration, share: &Share) -> Self {
        Self(BodyKind::Paced(match self.0 {
            BodyKind::Full(bytes) if bytes.len() > PIECE_BYTES => {
                let unread = share.unread(bytes.len());
                Paced::whole(bytes, tasks, stall, unread)
            }
            BodyKind::Events(mut events) => Paced::new(move |cx| events.poll(cx), tasks, stall, None),
            BodyKind::Flow(mut flow) => Paced::new(move |cx| flow.poll(cx), tasks, stall, None),
            BodyKind::Paced(paced) => paced,
            other @ (BodyKind::Empty
            | BodyKind::Full(_)
            | BodyKind::Pieces(_)
            | BodyKind::Comment(_)
            | BodyKind::Door(_)) => {
                return Self(other);
            }
        }))
    }

    pub(super) fn door(stream: DoorStream) -> Self {
        Self(BodyKind::Door(Box::new(stream)))
    }
}

impl EventsBody {
    fn new(reader: Reader, keep_alive: Duration, shape: Shape) -> Self {
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        let opened = shape != Shape::Streamable;
        Self { reader, opened, shape, wording: Wording::default(), keep_alive, timer }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut out = BytesMut::new();
        if !self.opened {
            self.opened = true;
            out.extend_from_slice(sse::OPENING);
        }
        let retry = self.reader.retry();
        // Events that are ready share a frame, so that a replay needs few writes.
        while out.len() < FRAME_BYTES {
            match self.reader.poll_next(cx) {
                // Clients at POST `/sse` take every event for a message.
                Poll::Ready(Some(Item::Prime(_))) if self.shape != Shape::Streamable => {}
                Poll::Ready(Some(item)) => {
                    if matches!(item, Item::Close(_)) && self.shape == Shape::ThenDone {
                        // More messages come when the client resumes, so `done` must not be sent.
                        self.shape = Shape::Done;
                    }
                    sse::write_worded(&item, retry, self.wording, &mut out);
                }
                Poll::Ready(None) if self.shape == Shape::ThenDone => {
                    self.shape = Shape::Done;
                    out.extend_from_slice(sse::DONE);
                    break;
                }
                Poll::Ready(None) if out.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if out.is_empty() {
            std::task::ready!(self.timer.as_mut().poll(cx));
            out.extend_from_slice(sse::KEEP_ALIVE);
        }
        self.timer.as_mut().reset(Instant::now() + self.keep_alive);
        // Polled once after the reset, even if an event was written, because only a polled timer wakes this task.
        let _ = self.timer.as_mut().poll(cx);
        Poll::Ready(Some(out.freeze()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Stalled;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Stalled>>> {
        let bytes = match &mut self.0 {
            BodyKind::Empty => None,
            BodyKind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = BodyKind::Empty;
                Some(bytes)
            }
            BodyKind::Pieces(pieces) => {
                return Poll::Ready(pieces.next(cx).map(|piece| piece.map(Frame::data)));
            }
            BodyKind::Comment(text) => {
                let bytes = Bytes::from_static(text);
                self.0 = BodyKind::Empty;
                Some(bytes)
            }
            BodyKind::Events(events) => std::task::ready!(events.poll(cx)),
            BodyKind::Door(stream) => std::task::ready!(stream.poll(cx)),
            BodyKind::Flow(flow) => std::task::ready!(flow.poll(cx)),
            BodyKind::Paced(paced) => {
                return paced.poll(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)));
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Empty => true,
            BodyKind::Pieces(pieces) => pieces.left() == 0,
            // The last piece already carries the end of the stream, so the client need not wait for a further frame.
            BodyKind::Paced(paced) => paced.left() == Some(0),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Empty => SizeHint::with_exact(0),
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Pieces(pieces) => SizeHint::with_exact(pieces.left() as u64),
            BodyKind::Comment(text) => SizeHint::with_exact(text.len() as u64),
            BodyKind::Paced(paced) => paced.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            BodyKind::Events(_) | BodyKind::Door(_) | BodyKind::Flow(_) => SizeHint::default(),
        }
    }
}
