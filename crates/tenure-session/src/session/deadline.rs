//! What is due when: one ordered queue, one task that sleeps until the next entry.
//!
//! The queue goes by a clock that cannot be set: what is due in ten minutes comes up in ten minutes, whatever becomes of
//! the time of day. Using a session does not touch the queue. When its entry comes up, the session says whether it has
//! really been idle; if not, it is entered again. So expiry costs nothing per request and never scans.
//! Sessions that are not in memory have their deadlines in the store; see `sweep`.
//! Should a look at a session panic, its entry stays in the queue, behind the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::id::SessionId;
use crate::session::sessions::Inner;

/// When a session is looked at again whose last look panicked. Late, so that one that always does so does not hold up the
/// others.
const AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// Look whether something is to be done about this session.
    Session(SessionId),
}

#[derive(Default)]
pub(super) struct Deadlines {
    queue: Mutex<BTreeSet<(Instant, Due)>>,
    /// Woken when an entry is added that comes before all others.
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

/// An entry that was taken out of the queue and is being looked at.
struct Popped<'a>(&'a Deadlines, Due);

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        // Without it nothing would ever come up for this session again.
        if std::thread::panicking() {
            self.0.add(Instant::now() + AGAIN, self.1);
        }
    }
}

/// Runs until the runtime stops.
pub(super) async fn watch(inner: Arc<Inner>) {
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
