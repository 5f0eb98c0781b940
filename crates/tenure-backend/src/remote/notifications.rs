//! The queue of notifications to the server. They are posted one after the other, and before later requests.
//!
//! Bounded: when the queue is full, a notification is dropped. Waiting requests are woken when the link ends.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tenure_protocol::RpcError;
use tokio::sync::{mpsc, watch};

/// Capacity of the queue.
const WAITING: usize = 64;

pub(super) struct NotificationQueue {
    queue: mpsc::Sender<Bytes>,
    /// How many notifications were ever queued.
    queued: AtomicU64,
    progress: watch::Sender<PostProgress>,
}

#[derive(Clone, Copy, Default)]
struct PostProgress {
    /// How many notifications were posted or given up.
    posted: u64,
    /// The link has ended; new notifications are refused.
    is_over: bool,
}

impl NotificationQueue {
    pub(super) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (queue, waiting) = mpsc::channel(WAITING);
        (Self { queue, queued: AtomicU64::new(0), progress: watch::Sender::default() }, waiting)
    }

    /// Queues a notification; `false` if the queue is full, or the link has ended.
    pub(super) fn add(&self, note: Bytes) -> bool {
        if self.is_over() {
            return false;
        }
        let Ok(room) = self.queue.try_reserve() else { return false };
        // Count it before it can be posted, so that no later request misses it.
        self.queued.fetch_add(1, Ordering::AcqRel);
        room.send(note);
        true
    }

    /// A notification was posted, or given up.
    pub(super) fn posted(&self) {
        self.progress.send_modify(|progress| progress.posted += 1);
    }

    /// Waits until all notifications queued so far are posted.
    ///
    /// # Errors
    /// When the link has ended.
    pub(super) async fn all_posted(&self) -> Result<(), RpcError> {
        let queued = self.queued.load(Ordering::Acquire);
        let progress = self.reach(|progress| progress.is_over || progress.posted >= queued).await;
        match progress.is_over {
            true => Err(RpcError::refused("The session's link to the server has ended")),
            false => Ok(()),
        }
    }

    /// The same, but goes on waiting if the link ends.
    pub(super) async fn drained(&self) {
        let queued = self.queued.load(Ordering::Acquire);
        self.reach(|progress| progress.posted >= queued).await;
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

    async fn reach(&self, is_there: impl Fn(&PostProgress) -> bool) -> PostProgress {
        let mut progress = self.progress.subscribe();
        // The channel cannot close: we hold its sender.
        progress
            .wait_for(|progress| is_there(progress))
            .await
            .map_or_else(|_| PostProgress::default(), |at| *at)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_waits_for_what_came_before_it_and_no_more() {
        let (notifications, _waiting) = NotificationQueue::new();
        assert!(notifications.add(Bytes::from_static(b"1")));
        let mut request = Box::pin(notifications.all_posted());
        assert!(request.as_mut().now_or_never().is_none());
        assert!(notifications.add(Bytes::from_static(b"2")));
        notifications.posted();
        request.await.unwrap();
        assert!(notifications.all_posted().now_or_never().is_none());
    }

    #[tokio::test]
    async fn the_end_of_the_link_wakes_who_waits() {
        let (notifications, _waiting) = NotificationQueue::new();
        assert!(notifications.add(Bytes::from_static(b"1")));
        let mut request = Box::pin(notifications.all_posted());
        assert!(request.as_mut().now_or_never().is_none());
        notifications.end();
        let refused = request.await.unwrap_err();
        assert!(refused.to_string().contains("has ended"), "{refused}");
        assert!(notifications.all_posted().await.is_err() && !notifications.add(Bytes::from_static(b"2")));
    }

    #[tokio::test]
    async fn what_finds_no_room_is_not_waited_for() {
        let (notifications, mut waiting) = NotificationQueue::new();
        let added = (0..WAITING + 1).filter(|_| notifications.add(Bytes::from_static(b"note"))).count();
        assert_eq!(added, WAITING);
        while waiting.try_recv().is_ok() {
            notifications.posted();
        }
        notifications.all_posted().await.unwrap();
    }
}
