//! A large answer over HTTP/1.1, in pieces.
//!
//! The connection holds a few pieces at a time. The rest stays here, where it is counted, until the client has read what
//! was in front of it.

use std::task::Context;

use bytes::Bytes;
use tenure_session::budget::Unread;

use super::body::FRAME_BYTES;
use crate::http::http2_pacing::Stalled;

/// So many of the last pieces are copies: the connection may hold as many when this is dropped, and a slice would keep the
/// whole answer.
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
        // The connection is woken by this when it is to be closed: it asks for nothing while its client reads nothing.
        if self.unread.poll_given_up(cx).is_ready() {
            self.rest = Bytes::new();
            return Some(Err(Stalled));
        }
        let is_last = self.rest.len() <= LAST_PIECES * FRAME_BYTES;
        let piece = self.rest.split_to(self.rest.len().min(FRAME_BYTES));
        Some(Ok(if is_last { Bytes::copy_from_slice(&piece) } else { piece }))
    }

    /// How much is still to come.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn unread(&self) -> Unread {
        self.unread.clone()
    }
}
