//! Requests that have ended and are not counted yet: a list for each thread.
//!
//! All threads count into the same figures. A request goes into the list of its thread, so that the threads do not write to the same
//! memory with each request. The lists are counted together ten times a second, in front of each look at the figures, and when one is
//! full. By itself this made no call measurably cheaper; notes without an allocation (`short_text`) did.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::behind::Server;
use super::calls::EndedCall;

/// How many lists there are. Threads share them if there are more threads.
const LISTS: usize = 32;

/// A list of this length is counted at once, by the thread that filled it.
const FULL: usize = 64;

/// The lists of all threads.
#[derive(Debug)]
pub(super) struct Uncounted([List; LISTS]);

/// Aligned, so that no two lists have a cache line in common.
#[derive(Debug, Default)]
#[repr(align(128))]
struct List(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    current: EndedRequests,
    /// An empty one, to be filled next.
    spare: EndedRequests,
}

/// Requests that have ended, in their order.
#[derive(Debug, Default)]
pub(super) struct EndedRequests {
    /// Requests of clients that are calls of MCP.
    pub(super) calls: Vec<EndedCall>,
    /// Requests at servers behind.
    pub(super) behind: Vec<EndedBehind>,
    /// Requests whose credentials were accepted.
    pub(super) accepted: u64,
}

/// A request that a server behind has answered.
#[derive(Debug)]
pub(super) struct EndedBehind {
    pub(super) server: Arc<Server>,
    pub(super) method: &'static str,
    pub(super) tool: Option<String>,
    pub(super) error_type: Option<&'static str>,
    pub(super) took: Duration,
}

impl EndedRequests {
    fn len(&self) -> usize {
        self.calls.len() + self.behind.len()
    }
}

impl Uncounted {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| List::default()))
    }

    /// Adds to the list of this thread. Returns the list if it is full: then the caller counts it.
    #[must_use]
    pub(super) fn add(&self, add: impl FnOnce(&mut EndedRequests)) -> Option<EndedRequests> {
        let mut lists = self.of_this_thread().lock();
        let Lists { current, spare } = &mut *lists;
        add(current);
        (current.len() >= FULL).then(|| std::mem::replace(current, std::mem::take(spare)))
    }

    /// Takes back a list that was counted, so that its room is used again.
    pub(super) fn give_back(&self, counted: EndedRequests) {
        self.of_this_thread().lock().spare = counted;
    }

    fn of_this_thread(&self) -> &Mutex<Lists> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PLACE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LISTS;
        }
        PLACE.with(|place| &self.0[*place].0)
    }

    /// Empties all lists. Calls are in the order in which they ended.
    pub(super) fn take(&self) -> EndedRequests {
        let mut all = EndedRequests::default();
        for list in &self.0 {
            let mut lists = list.0.lock();
            let EndedRequests { calls, behind, accepted } = &mut lists.current;
            all.calls.append(calls);
            all.behind.append(behind);
            all.accepted += std::mem::take(accepted);
        }
        all.calls.sort_by_key(EndedCall::at);
        all
    }
}
