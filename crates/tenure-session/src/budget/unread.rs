//! Answers that their clients have not read yet, oldest first.
//!
//! An answer is there before anybody can say whether it fits, so it is counted whether or not it does. If a peer then
//! holds more than it may, its oldest answers are given up until the rest fits: a client that does not read loses what it
//! does not read, and no other peer is refused for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::{Account, Resource, Share, Taken};

/// An answer that waits for its client to read it.
#[derive(Clone, Debug)]
pub struct Unread(Arc<Entry>);

#[derive(Debug)]
pub(super) struct Entry {
    taken: Taken,
    given_up: AtomicBool,
    waker: AtomicWaker,
}

/// The answers of one peer that are not read yet. Entries of those that were read stay until there are as many as room
/// was made for.
#[derive(Debug, Default)]
pub(super) struct List(VecDeque<Weak<Entry>>);

impl Share {
    /// Counts an answer of so many bytes, and gives up the oldest ones if the peer holds too much with it.
    pub fn unread(&self, bytes: usize) -> Unread {
        let taken = self.take_anyway(Resource::Memory, bytes);
        let entry = Arc::new(Entry { taken, given_up: AtomicBool::new(false), waker: AtomicWaker::new() });
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
        // What was given up is still counted until those that send it notice.
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
            tracing::debug!(peer = %self.peer, bytes = entry.taken.amount(), "gave up an answer that is not read");
        }
    }
}

impl List {
    fn push(&mut self, entry: &Arc<Entry>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|entry| entry.strong_count() > 0);
        }
        self.0.push_back(Arc::downgrade(entry));
    }

    fn living(&self) -> impl Iterator<Item = Arc<Entry>> {
        self.0.iter().filter_map(Weak::upgrade)
    }
}

impl Entry {
    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

impl Unread {
    /// Whether it was given up, so that it must not be sent any further.
    pub fn is_given_up(&self) -> bool {
        self.0.is_given_up()
    }

    /// Ready when it is given up. The last task that asked is woken.
    pub fn poll_given_up(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        // Looked at after the waker is there, so that no end is missed.
        if self.is_given_up() { Poll::Ready(()) } else { Poll::Pending }
    }
}
