//! Answers over HTTP/2, at the pace of their clients.
//!
//! An HTTP/2 stream can be stuck while its connection works, and hyper does not poll the body of a stuck stream. So a
//! task holds the answer, hands it over piece by piece, and drops it when the client makes no room for too long. Then
//! only the piece that the connection holds is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tenure_session::budget::Unread;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// The most bytes of a stream that a connection gets before the client has made room for them.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// A body that its own task produces, and may give up.
#[derive(Debug)]
pub(super) struct Paced {
    pieces: mpsc::Receiver<Bytes>,
    /// Whether the whole body was handed over.
    is_whole: Arc<AtomicBool>,
    /// Bytes still to come, if known.
    left: Option<u64>,
}

/// The client made no room for its answer for too long, so it does not get the rest.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client stopped reading")]
pub struct Stalled;

impl Paced {
    /// Spawns a task that hands over the frames of `next`, until `next` ends.
    pub(super) fn new(
        next: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send + 'static,
        tasks: &TaskTracker,
        stall: Duration,
        unread: Option<Unread>,
    ) -> Self {
        let (sender, pieces) = mpsc::channel(1);
        let is_whole = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_whole);
        tasks.spawn(async move {
            let handed_over = hand_over(next, &sender, stall);
            let is_whole = match &unread {
                None => handed_over.await,
                // Drops the rest at once when the client makes the server hold too much.
                Some(unread) => tokio::select! {
                    is_whole = handed_over => is_whole,
                    () = std::future::poll_fn(|cx| unread.poll_given_up(cx)) => false,
                },
            };
            done.store(is_whole, Ordering::SeqCst);
            drop(sender);
        });
        Self { pieces, is_whole, left: None }
    }

    /// Hands over one buffer.
    pub(super) fn whole(body: Bytes, tasks: &TaskTracker, stall: Duration, unread: Unread) -> Self {
        let (left, mut body) = (Some(body.len() as u64), Some(body));
        Self { left, ..Self::new(move |_| Poll::Ready(body.take()), tasks, stall, Some(unread)) }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Stalled>>> {
        Poll::Ready(match ready!(self.pieces.poll_recv(cx)) {
            Some(piece) => {
                self.left = self.left.map(|left| left - piece.len() as u64);
                Some(Ok(piece))
            }
            None if self.is_whole.swap(true, Ordering::SeqCst) => None,
            None => Some(Err(Stalled)),
        })
    }

    /// Bytes still to come, if known.
    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }
}

/// Hands over all frames; returns whether the client took all of them.
async fn hand_over(
    mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>>,
    pieces: &mpsc::Sender<Bytes>,
    stall: Duration,
) -> bool {
    loop {
        // A message taken from a session counts as delivered, so wait for room before taking one.
        let Some(room) = room(pieces, stall).await else { return false };
        let frame = tokio::select! {
            biased;
            () = pieces.closed() => return false,
            frame = std::future::poll_fn(&mut next) => frame,
        };
        let Some(frame) = frame else { return true };
        let mut room = Some(room);
        for piece in frame.chunks(PIECE_BYTES) {
            // Copied, because a slice would keep the whole buffer. A frame of at most one piece is passed on uncopied.
            let piece =
                if piece.len() == frame.len() { frame.clone() } else { Bytes::copy_from_slice(piece) };
            let room = match room.take() {
                Some(room) => room,
                None => match crate::http::http2_pacing::room(pieces, stall).await {
                    Some(room) => room,
                    None => return false,
                },
            };
            room.send(piece);
        }
    }
}

/// Waits for room for a piece; `None` if the body was dropped, or the client makes no room for too long.
async fn room(pieces: &mpsc::Sender<Bytes>, stall: Duration) -> Option<mpsc::Permit<'_, Bytes>> {
    match tokio::time::timeout(stall, pieces.reserve()).await {
        Ok(room) => room.ok(),
        Err(_) => {
            tracing::debug!("the client stopped reading a stream");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_session::budget::{Budget, Peer};

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    fn counted(body: &Bytes) -> Unread {
        Budget::default().share(Peer::UNKNOWN).unread(body.len())
    }

    async fn next(paced: &mut Paced) -> Option<Result<Bytes, Stalled>> {
        std::future::poll_fn(|cx| paced.poll(cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_comes_whole_to_a_client_that_reads_however_slowly() {
        let body = Bytes::from("x".repeat(10 * PIECE_BYTES + 1));
        let mut paced = Paced::whole(body.clone(), &TaskTracker::new(), STALL, counted(&body));
        let mut read = Vec::new();
        assert_eq!(paced.left(), Some(body.len() as u64));
        while let Some(piece) = next(&mut paced).await {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            read.extend_from_slice(&piece);
            assert_eq!(paced.left(), Some((body.len() - read.len()) as u64));
            tokio::time::sleep(STALL - Duration::from_secs(1)).await;
        }
        assert!(read == body);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_is_let_go_and_its_client_is_told() {
        let tasks = TaskTracker::new();
        let body = Bytes::from("x".repeat(10 * PIECE_BYTES));
        let mut paced = Paced::whole(body.clone(), &tasks, STALL, counted(&body));
        next(&mut paced).await.unwrap().unwrap();
        tasks.close();
        tasks.wait().await;
        assert!(body.is_unique(), "nothing holds the rest");
        next(&mut paced).await.unwrap().unwrap();
        assert!(next(&mut paced).await.unwrap().is_err(), "cut off, and not complete");
        assert!(next(&mut paced).await.is_none());
    }

    #[tokio::test]
    async fn a_client_that_is_gone_ends_it_too() {
        let tasks = TaskTracker::new();
        let body = Bytes::from("x".repeat(10 * PIECE_BYTES));
        drop(Paced::new(|_| Poll::Pending, &tasks, STALL, None));
        drop(Paced::whole(body.clone(), &tasks, STALL, counted(&body)));
        tasks.close();
        tasks.wait().await;
    }
}
