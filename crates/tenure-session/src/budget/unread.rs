//! Answers that wait to be read by their clients, oldest first.
//!
//! An answer exists before its size can be checked against the share, so it is always counted. If the peer then holds
//! more than it may, its oldest unread answers are given up until the rest fits: a client that does not read loses its
//! own answers, and no other peer is refused because of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::{Account, Resource, Share, Taken};

/// An answer that waits for its client to read it.
#[derive(Clone, Debug)]
pub struct Unread(Arc<UnreadEntry>);

#[derive(Debug)]
pub(super) struct UnreadEntry {
    taken: Taken,
    given_up: AtomicBool,
    waker: AtomicWaker,
}

/// The unread answers of one peer. Entries of answers that were read stay until the list has no free capacity.
#[derive(Debug, Default)]
pub(super) struct List(VecDeque<Weak<UnreadEntry>>);

impl Share {
    /// Counts an answer of this size, and gives up the peer's oldest answers if the peer now holds too much.
    pub fn unread(&self, bytes: usize) -> Unread {
        let taken = self.take_anyway(Resource::Memory, bytes);
        let entry =
            Arc::new(UnreadEntry { taken, given_up: AtomicBool::new(false), waker: AtomicWaker::new() });
        self.0.unread.lock().push(&entry);
        if self.is_over(Resource::Memory) {
            self.0.give_up_oldest();
        }
        Unread(entry)
    }
}

impl Account {
    fn give_up_oldest(&self) {
        let unread = self.unread.lock();
        // An answer that was given up stays counted until its sender notices and drops it.
        let mut freed: usize =
            unread.living().filter(|entry| entry.is_given_up()).map(|entry| entry.taken.amount()).sum();
        let index = Resource::Memory as usize;
        for entry in unread.living().filter(|entry| !entry.is_given_up()) {
            let total = self.totals.used[index].load(Ordering::Relaxed).saturating_sub(freed);
            let own = self.used[index].load(Ordering::Relaxed).saturating_sub(freed);
            if self.fits(index, total, own).is_ok() {
                break;
            }
            freed += entry.taken.amount();
            entry.given_up.store(true, Ordering::Release);
            entry.waker.wake();
            tracing::debug!(peer = %self.peer, bytes = entry.taken.amount(), "gave up an unread answer");
        }
    }
}

impl List {
    fn push(&mut self, entry: &Arc<UnreadEntry>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|entry| entry.strong_count() > 0);
        }
        self.0.push_back(Arc::downgrade(entry));
    }

    fn living(&self) -> impl Iterator<Item = Arc<UnreadEntry>> {
        self.0.iter().filter_map(Weak::upgrade)
    }
}

impl UnreadEntry {
    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

impl Unread {
    /// Whether it was given up. The sender must then stop sending it.
    pub fn is_given_up(&self) -> bool {
        self.0.is_given_up()
    }

    /// Ready when it is given up. Only the task that polled last is woken.
    pub fn poll_given_up(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        // Read after the waker is registered, so that no wake-up is missed.
        if self.is_given_up() { Poll::Ready(()) } else { Poll::Pending }
    }
}
