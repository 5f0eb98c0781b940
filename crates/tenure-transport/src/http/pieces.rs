//! A large answer over HTTP/1.1, in pieces.
//!
//! The connection holds a few pieces at a time. The rest stays here and is counted, until the client has read the
//! pieces in front of it.

use std::task::Context;

use bytes::Bytes;
use tenure_session::budget::Unread;

use super::event_body::FRAME_BYTES;
use crate::http::http2_pacing::Stalled;

/// How many of the last pieces are copied. The connection may still hold that many when this is dropped, and a slice
/// would keep the whole answer in memory.
const LAST_PIECES: usize = 4;

/// An answer that is handed over piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    rest: Bytes,
    unread: Unread,
}

impl Pieces {
    pub(super) fn new(answer: Bytes, unread: Unread) -> Self {
        Self { rest: answer, unread }
    }

    /// The next piece; an error if the answer was given up.
    pub(super) fn next(&mut self, cx: &Context<'_>) -> Option<Result<Bytes, Stalled>> {
        if self.rest.is_empty() {
            return None;
        }
        // Registers the connection's waker: while the client reads nothing, the connection polls nothing, and has to
        // be woken when it must close.
        if self.unread.poll_given_up(cx).is_ready() {
            self.rest = Bytes::new();
            return Some(Err(Stalled));
        }
        let is_last = self.rest.len() <= LAST_PIECES * FRAME_BYTES;
        let piece = self.rest.split_to(self.rest.len().min(FRAME_BYTES));
        Some(Ok(if is_last { Bytes::copy_from_slice(&piece) } else { piece }))
    }

    /// Bytes still to come.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn unread(&self) -> Unread {
        self.unread.clone()
    }
}
