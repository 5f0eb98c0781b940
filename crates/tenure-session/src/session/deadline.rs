//! Deadlines of the sessions in memory: one ordered queue, and one task that sleeps until the next entry.
//!
//! The queue uses the monotonic clock: an entry due in ten minutes comes up in ten minutes, even if the wall clock is
//! set. Using a session does not touch the queue. When its entry comes up, the session checks whether it has really
//! been idle; if not, it is entered again. So expiry costs nothing per request and never scans all sessions.
//! Dormant sessions have their deadlines in the store; see `sweep`.
//! If the check of a session panics, its entry goes back into the queue with a delay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::id::SessionId;
use crate::session::sessions::SessionRuntime;

/// Delay of the next check after a panic. Long, so that a session that panics each time does not delay the others.
const AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// Check the deadlines of this session.
    Session(SessionId),
}

#[derive(Default)]
pub(super) struct Deadlines {
    queue: Mutex<BTreeSet<(Instant, Due)>>,
    /// Notified when a new entry comes before all others.
    earlier: Notify,
}

impl Deadlines {
    pub(super) fn add(&self, at: Instant, due: Due) {
        let mut queue = self.queue.lock();
        let first = queue.first().is_none_or(|(first, _)| at < *first);
        queue.insert((at, due));
        drop(queue);
        if first {
            self.earlier.notify_one();
        }
    }

    pub(super) fn remove(&self, at: Instant, due: Due) {
        self.queue.lock().remove(&(at, due));
    }

    fn next(&self) -> Option<Instant> {
        self.queue.lock().first().map(|(at, _)| *at)
    }

    fn pop(&self, now: Instant) -> Option<Due> {
        let mut queue = self.queue.lock();
        let (at, _) = queue.first()?;
        if *at > now {
            return None;
        }
        queue.pop_first().map(|(_, due)| due)
    }
}

/// An entry that was taken out of the queue and is being handled.
struct Popped<'a>(&'a Deadlines, Due);

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        // Without an entry this session would never be checked again.
        if std::thread::panicking() {
            self.0.add(Instant::now() + AGAIN, self.1);
        }
    }
}

/// Runs until the runtime stops.
pub(super) async fn watch(inner: Arc<SessionRuntime>) {
    loop {
        while let Some(due) = inner.deadlines.pop(Instant::now()) {
            let _popped = Popped(&inner.deadlines, due);
            match due {
                Due::Session(id) => {
                    if let Some(session) = inner.live.get(&id) {
                        session.look_at_deadline();
                    }
                }
            }
        }
        let next = inner.deadlines.next();
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = inner.deadlines.earlier.notified() => {}
            () = inner.stop.cancelled() => return,
        }
    }
}
