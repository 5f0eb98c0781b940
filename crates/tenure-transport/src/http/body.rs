//! The bodies we send: nothing, one buffer, or a stream of events.

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

use super::doors::Talk;
use super::pieces::Pieces;
use super::sse::{self, Wording};
use crate::http::exchange_body::Flowing;
use crate::http::http2_pacing::{PIECE_BYTES, Paced, Stalled};

/// The most that is put into one frame before the client has taken the last one.
pub(super) const FRAME_BYTES: usize = 64 << 10;

/// A response body.
#[derive(Debug)]
pub struct Body(Inner);

#[derive(Debug)]
enum Inner {
    Empty,
    Full(Bytes),
    Pieces(Box<Pieces>),
    Comment(&'static [u8]),
    Events(Box<Events>),
    Talk(Box<Talk>),
    Flow(Box<Flowing>),
    Paced(Paced),
}

#[derive(Debug)]
struct Events {
    reader: Reader,
    opened: bool,
    shape: Shape,
    wording: Wording,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
}

/// What a stream looks like around its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// As Streamable HTTP has it.
    Streamable,
    /// Nothing but messages, and then the word that this was all.
    ThenDone,
    /// That word was said.
    Done,
}

impl Body {
    /// No body.
    pub const EMPTY: Self = Self(Inner::Empty);

    pub(super) fn full(bytes: Bytes) -> Self {
        Self(Inner::Full(bytes))
    }

    /// A stream that says nothing but a comment.
    pub(super) fn comment(text: &'static [u8]) -> Self {
        Self(Inner::Comment(text))
    }

    pub(super) fn events(reader: Reader, keep_alive: Duration, wording: Wording) -> Self {
        let events = Events::new(reader, keep_alive, Shape::Streamable);
        Self(Inner::Events(Box::new(Events { wording, ..events })))
    }

    pub(super) fn events_then_done(reader: Reader, keep_alive: Duration) -> Self {
        Self(Inner::Events(Box::new(Events::new(reader, keep_alive, Shape::ThenDone))))
    }

    pub(super) fn flow(flow: Flowing) -> Self {
        Self(Inner::Flow(Box::new(flow)))
    }

    /// The same, with an answer that is large counted until the client has read it.
    pub(super) fn counted(self, share: &Share) -> Self {
        match self.0 {
            Inner::Full(bytes) if bytes.len() > FRAME_BYTES => {
                let unread = share.unread(bytes.len());
                Self(Inner::Pieces(Box::new(Pieces::new(bytes, unread))))
            }
            other => Self(other),
        }
    }

    /// The answer that is counted, if it is.
    pub(crate) fn unread(&self) -> Option<Unread> {
        match &self.0 {
            Inner::Pieces(pieces) => Some(pieces.unread()),
            _ => None,
        }
    }

    /// The same for a stream of HTTP/2, if it can be more than a connection should hold for each of them. A talk is
    /// left as it is: it has to know what was written, and has no more than a few messages waiting.
    pub(super) fn at_pace(self, tasks: &TaskTracker, stall: Duration, share: &Share) -> Self {
        Self(Inner::Paced(match self.0 {
            Inner::Full(bytes) if bytes.len() > PIECE_BYTES => {
                let unread = share.unread(bytes.len());
                Paced::whole(bytes, tasks, stall, unread)
            }
            Inner::Events(mut events) => Paced::new(move |cx| events.poll(cx), tasks, stall, None),
            Inner::Flow(mut flow) => Paced::new(move |cx| flow.poll(cx), tasks, stall, None),
            Inner::Paced(paced) => paced,
            other @ (Inner::Empty
            | Inner::Full(_)
            | Inner::Pieces(_)
            | Inner::Comment(_)
            | Inner::Talk(_)) => {
                return Self(other);
            }
        }))
    }

    pub(super) fn talk(talk: Talk) -> Self {
        Self(Inner::Talk(Box::new(talk)))
    }
}

impl Events {
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
        // Several events share a frame if they are at hand, so that a replay is few writes.
        while out.len() < FRAME_BYTES {
            match self.reader.poll_next(cx) {
                // Clients of this shape take every event for a message.
                Poll::Ready(Some(Item::Prime(_))) if self.shape != Shape::Streamable => {}
                Poll::Ready(Some(item)) => {
                    if matches!(item, Item::Close(_)) && self.shape == Shape::ThenDone {
                        // The stream goes on elsewhere, so this was not all.
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
        // The timer has to be polled once to wake us, also when the reader had something to say.
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
            Inner::Empty => None,
            Inner::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Inner::Empty;
                Some(bytes)
            }
            Inner::Pieces(pieces) => {
                return Poll::Ready(pieces.next(cx).map(|piece| piece.map(Frame::data)));
            }
            Inner::Comment(text) => {
                let bytes = Bytes::from_static(text);
                self.0 = Inner::Empty;
                Some(bytes)
            }
            Inner::Events(events) => std::task::ready!(events.poll(cx)),
            Inner::Talk(talk) => std::task::ready!(talk.poll(cx)),
            Inner::Flow(flow) => std::task::ready!(flow.poll(cx)),
            Inner::Paced(paced) => {
                return paced.poll(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)));
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            Inner::Pieces(pieces) => pieces.left() == 0,
            // The last piece says that it is the last, and nobody has to wait for that word.
            Inner::Paced(paced) => paced.left() == Some(0),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Pieces(pieces) => SizeHint::with_exact(pieces.left() as u64),
            Inner::Comment(text) => SizeHint::with_exact(text.len() as u64),
            Inner::Paced(paced) => paced.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Inner::Events(_) | Inner::Talk(_) | Inner::Flow(_) => SizeHint::default(),
        }
    }
}
