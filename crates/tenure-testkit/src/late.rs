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

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog, Space, Store,
    StoreCapabilities, StoreError, Stored, StreamEvents, Survey, Trouble, Version,
};
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

    /// Lets the oldest held write take effect. Returns false if there is none.
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
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        self.write(move |store| store.put(key, value, expected, deadline))
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        self.inner.get(key)
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        self.inner.peek(key)
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        self.write(move |store| store.delete(key, expected))
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        self.inner.expired(space, now, limit)
    }

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

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        self.write(move |store| store.claim(session, node, expected))
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        self.inner.owner(session)
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        self.write(move |store| store.release(session, epoch))
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        self.write(move |store| store.append(session, epoch, batch))
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        self.inner.read(session, stream, after, limit)
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        self.write(move |store| store.trim(session, keep))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        self.write(move |store| store.drop_session(session))
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        self.inner.tail(session)
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        self.inner.survey(session)
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        self.write(move |store| store.restore(session, log))
    }

    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.inner.trouble()
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Late")
    }
}
