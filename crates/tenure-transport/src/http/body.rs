//! The bodies of responses: nothing, one buffer, or a stream of events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tenure_protocol::Reason;
use tenure_session::budget::{Share, Unread};
use tokio_util::task::TaskTracker;

use super::event_body::{EventBody, EventSource, FRAME_BYTES};
use super::pieces::Pieces;
use super::sse;
use crate::http::http2_pacing::{PIECE_BYTES, Paced, Stalled};
use crate::observe::{OpenRequest, RequestNotes};

/// A response body.
#[derive(Debug)]
pub struct Body {
    kind: BodyKind,
    /// Why the request was refused, if it was.
    refusal: Option<Reason>,
    /// The request that this answers, if it is observed. It ends with the body.
    request: Option<OpenRequest>,
}

#[derive(Debug)]
enum BodyKind {
    Empty,
    Full(Bytes),
    Pieces(Box<Pieces>),
    Comment(&'static [u8]),
    Events(Box<EventBody<dyn EventSource>>),
    Paced(Paced),
}

impl Body {
    /// No body.
    pub const EMPTY: Self = Self::of(BodyKind::Empty);

    const fn of(kind: BodyKind) -> Self {
        Self { kind, refusal: None, request: None }
    }

    pub(super) fn full(bytes: Bytes) -> Self {
        Self::of(BodyKind::Full(bytes))
    }

    /// A stream that contains only a comment.
    pub(super) fn comment(text: &'static [u8]) -> Self {
        Self::of(BodyKind::Comment(text))
    }

    /// A stream of events, with keep-alive comments in quiet times.
    pub(super) fn events(source: impl EventSource + 'static, keep_alive: Duration) -> Self {
        Self::of(BodyKind::Events(Box::new(EventBody::new(source, keep_alive))))
    }

    /// Notes why the request was refused.
    pub(super) fn because(self, reason: Reason) -> Self {
        Self { refusal: Some(reason), ..self }
    }

    pub(super) fn refusal(&self) -> Option<Reason> {
        self.refusal
    }

    /// Lets an observed request look at the messages of its answer.
    pub(super) fn show_to(&mut self, notes: &Arc<RequestNotes>) {
        match &mut self.kind {
            BodyKind::Full(bytes) => sse::messages_of(bytes).for_each(|message| notes.sends(message)),
            BodyKind::Events(events) => events.show_to(notes),
            BodyKind::Empty | BodyKind::Pieces(_) | BodyKind::Comment(_) | BodyKind::Paced(_) => {}
        }
    }

    /// Ends an observed request when all of the body was sent, or when it is dropped.
    pub(super) fn ends(&mut self, request: OpenRequest) {
        if http_body::Body::is_end_stream(self) {
            request.notes().complete();
        }
        self.request = Some(request);
    }

    /// Counts a large answer against the client's share until the client has read it.
    pub(super) fn counted(self, share: &Share) -> Self {
        let kind = match self.kind {
            BodyKind::Full(bytes) if bytes.len() > FRAME_BYTES => {
                let unread = share.unread(bytes.len());
                BodyKind::Pieces(Box::new(Pieces::new(bytes, unread)))
            }
            other => other,
        };
        Self { kind, ..self }
    }

    /// The count of a large answer, if this is one.
    pub(crate) fn unread(&self) -> Option<Unread> {
        match &self.kind {
            BodyKind::Pieces(pieces) => Some(pieces.unread()),
            _ => None,
        }
    }

    /// Paces the body for an HTTP/2 stream, if it can be larger than what a connection should hold for each stream. A
    /// door stream stays as it is: it has to know which messages were written, and only a few messages wait in its
    /// queue.
    pub(super) fn at_pace(self, tasks: &TaskTracker, stall: Duration, share: &Share) -> Self {
        let paced = match self.kind {
            BodyKind::Full(bytes) if bytes.len() > PIECE_BYTES => {
                let unread = share.unread(bytes.len());
                Paced::whole(bytes, tasks, stall, unread)
            }
            BodyKind::Events(mut events) if events.source.may_run_ahead() => {
                Paced::new(move |cx| events.poll(cx), tasks, stall, None)
            }
            BodyKind::Paced(paced) => paced,
            other @ (BodyKind::Empty
            | BodyKind::Full(_)
            | BodyKind::Pieces(_)
            | BodyKind::Comment(_)
            | BodyKind::Events(_)) => {
                return Self { kind: other, ..self };
            }
        };
        Self { kind: BodyKind::Paced(paced), ..self }
    }
}

impl Body {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Stalled>>> {
        let bytes = match &mut self.kind {
            BodyKind::Empty => None,
            BodyKind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.kind = BodyKind::Empty;
                Some(bytes)
            }
            BodyKind::Pieces(pieces) => return Poll::Ready(pieces.next(cx)),
            BodyKind::Comment(text) => {
                let bytes = Bytes::from_static(text);
                self.kind = BodyKind::Empty;
                Some(bytes)
            }
            BodyKind::Events(events) => std::task::ready!(events.poll(cx)),
            BodyKind::Paced(paced) => return paced.poll(cx),
        };
        Poll::Ready(bytes.map(Ok))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Stalled;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Stalled>>> {
        let bytes = std::task::ready!(self.poll_bytes(cx));
        if let Some(request) = &self.request {
            let notes = request.notes();
            if let Some(Ok(bytes)) = &bytes {
                notes.sent(bytes.len());
            }
            if bytes.is_none() || self.is_end_stream() {
                notes.complete();
            }
        }
        Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Empty => true,
            BodyKind::Pieces(pieces) => pieces.left() == 0,
            // The last piece already carries the end of the stream, so the client need not wait for a further frame.
            BodyKind::Paced(paced) => paced.left() == Some(0),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Empty => SizeHint::with_exact(0),
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Pieces(pieces) => SizeHint::with_exact(pieces.left() as u64),
            BodyKind::Comment(text) => SizeHint::with_exact(text.len() as u64),
            BodyKind::Paced(paced) => paced.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            BodyKind::Events(_) => SizeHint::default(),
        }
    }
}
