//! Notifications to the server: posted one after the other, and before the requests that came after them.
//!
//! Bounded: what finds no room is dropped. Whoever waits is woken when the link ends.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tenure_protocol::RpcError;
use tokio::sync::{mpsc, watch};

/// Notifications that may wait to be posted.
const WAITING: usize = 64;

pub(super) struct Notes {
    queue: mpsc::Sender<Bytes>,
    /// How many were ever queued.
    queued: AtomicU64,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    /// How many were posted or given up.
    said: u64,
    /// The link has ended; nothing more is taken.
    is_over: bool,
}

impl Notes {
    pub(super) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (queue, waiting) = mpsc::channel(WAITING);
        (Self { queue, queued: AtomicU64::new(0), progress: watch::Sender::default() }, waiting)
    }

    /// Queues a notification; `false` if there is no room, or the link has ended.
    pub(super) fn add(&self, note: Bytes) -> bool {
        if self.is_over() {
            return false;
        }
        let Ok(room) = self.queue.try_reserve() else { return false };
        // Before it can be posted, so that no request takes it for one that came later.
        self.queued.fetch_add(1, Ordering::AcqRel);
        room.send(note);
        true
    }

    /// One was posted, or given up.
    pub(super) fn said(&self) {
        self.progress.send_modify(|progress| progress.said += 1);
    }

    /// Waits for everything that was queued before.
    ///
    /// # Errors
    /// When the link has ended.
    pub(super) async fn all_said(&self) -> Result<(), RpcError> {
        let queued = self.queued.load(Ordering::Acquire);
        let progress = self.reach(|progress| progress.is_over || progress.said >= queued).await;
        match progress.is_over {
            true => Err(RpcError::refused("The session's link to the server has ended")),
            false => Ok(()),
        }
    }

    /// Waits for everything that was queued before, also if the link has ended meanwhile.
    pub(super) async fn drained(&self) {
        let queued = self.queued.load(Ordering::Acquire);
        self.reach(|progress| progress.said >= queued).await;
    }

    /// The link ends.
    pub(super) fn end(&self) {
        self.progress.send_modify(|progress| progress.is_over = true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.progress.borrow().is_over
    }

    /// Resolves when the link ends.
    pub(super) async fn ended(&self) {
        self.reach(|progress| progress.is_over).await;
    }

    async fn reach(&self, is_there: impl Fn(&Progress) -> bool) -> Progress {
        let mut progress = self.progress.subscribe();
        // It cannot close: we hold its sender.
        progress.wait_for(|progress| is_there(progress)).await.map_or_else(|_| Progress::default(), |at| *at)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_waits_for_what_came_before_it_and_no_more() {
        let (notes, _waiting) = Notes::new();
        assert!(notes.add(Bytes::from_static(b"1")));
        let mut request = Box::pin(notes.all_said());
        assert!(request.as_mut().now_or_never().is_none());
        assert!(notes.add(Bytes::from_static(b"2")));
        notes.said();
        request.await.unwrap();
        assert!(notes.all_said().now_or_never().is_none());
    }

    #[tokio::test]
    async fn the_end_of_the_link_wakes_who_waits() {
        let (notes, _waiting) = Notes::new();
        assert!(notes.add(Bytes::from_static(b"1")));
        let mut request = Box::pin(notes.all_said());
        assert!(request.as_mut().now_or_never().is_none());
        notes.end();
        let refused = request.await.unwrap_err();
        assert!(refused.to_string().contains("has ended"), "{refused}");
        assert!(notes.all_said().await.is_err() && !notes.add(Bytes::from_static(b"2")));
    }

    #[tokio::test]
    async fn what_finds_no_room_is_not_waited_for() {
        let (notes, mut waiting) = Notes::new();
        let added = (0..WAITING + 1).filter(|_| notes.add(Bytes::from_static(b"note"))).count();
        assert_eq!(added, WAITING);
        while waiting.try_recv().is_ok() {
            notes.said();
        }
        notes.all_said().await.unwrap();
    }
}
