//! A store whose writes take effect when the test lets them, and a caller that leaves at a given point.
//!
//! Held writes take effect in order, even if their futures were dropped meanwhile, as in an engine that has the write
//! in its queue. Reads are answered at once, from the writes that have taken effect. A test that lets its caller
//! leave after each possible number of steps covers every moment at which a client can hang up.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tenure_session::forward_store;
use tenure_session::id::SessionKey;
use tenure_session::port::BoxFuture;
use tenure_session::port::store::{Record, Space, Store, StoreError, Stored};
use tokio::sync::{oneshot, watch};

/// How often the task yields to other tasks between two steps.
const TURNS: usize = 40;

/// A store around a store, whose writes can be held back.
pub struct Late {
    inner: Arc<dyn Store>,
    held: AtomicBool,
    waiting: Mutex<VecDeque<HeldWrite>>,
    lists_held: watch::Sender<bool>,
    lists: AtomicUsize,
}

/// A write that was requested and has not taken effect.
type HeldWrite = Box<dyn FnOnce(&dyn Store) -> BoxFuture<()> + Send>;

impl Late {
    /// A store that works at once until [`Late::hold`].
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            held: AtomicBool::new(false),
            waiting: Mutex::default(),
            lists_held: watch::Sender::new(false),
            lists: AtomicUsize::new(0),
        }
    }

    /// Holds back every write from now on.
    pub fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// How many writes are held back.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Lets the oldest held write take effect. Returns false if no write is held.
    pub async fn land_one(&self) -> bool {
        let Some(write) = self.waiting.lock().pop_front() else { return false };
        write(self.inner.as_ref()).await;
        true
    }

    /// Lets all held writes take effect, and holds no further write.
    pub async fn let_go(&self) {
        self.held.store(false, Ordering::SeqCst);
        while self.land_one().await {}
    }

    /// Lists are read at once, but answered only after [`Late::answer_lists`].
    pub fn hold_answers_of_lists(&self) {
        self.lists_held.send_replace(true);
    }

    /// Lets lists answer.
    pub fn answer_lists(&self) {
        self.lists_held.send_replace(false);
    }

    /// How often `list` was called.
    pub fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }

    fn engine<T>(&self, operation: impl FnOnce(&dyn Store) -> T) -> T {
        operation(self.inner.as_ref())
    }

    fn write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&dyn Store) -> Stored<T> + Send + 'static,
    ) -> Stored<T> {
        if !self.held.load(Ordering::SeqCst) {
            return operation(self.inner.as_ref());
        }
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().push_back(Box::new(move |store| {
            let write = operation(store);
            // Fails if the caller is gone.
            Box::pin(async move { drop(answer.send(write.await)) })
        }));
        Box::pin(async move { answered.await.unwrap_or(Err(StoreError::Unknown)) })
    }
}

/// Drops a call after this many steps, and returns its answer if that came before. The steps alternate: one polls the
/// call, the next lets one write take effect. Other tasks run between the steps and after the last one, so that they
/// have begun the work that the caller left to them.
pub async fn leave_after<T>(steps: usize, store: &Late, call: impl Future<Output = T>) -> Option<T> {
    let answer = {
        let mut call = pin!(call);
        let mut answer = None;
        for step in 0..steps {
            if step % 2 == 1 {
                store.land_one().await;
            } else if let Poll::Ready(ready) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                answer = Some(ready);
                break;
            }
            let_others_run().await;
        }
        answer
    };
    let_others_run().await;
    answer
}

/// Lets the other tasks of a single-threaded runtime do all the work that they can do now.
pub async fn let_others_run() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

impl Store for Late {
    forward_store!(engine: get, peek, expired, owner, read, tail, survey, capabilities, trouble);
    forward_store!(write: put, delete, claim, release, append, trim, drop_session, restore);

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        let (list, mut held) = (self.inner.list(space, after, limit), self.lists_held.subscribe());
        Box::pin(async move {
            let listed = list.await;
            held.wait_for(|held| !held).await.map_err(|_| StoreError::Unknown)?;
            listed
        })
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Late")
    }
}
