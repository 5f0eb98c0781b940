//! A store whose process dies in the middle of a write: that write is done or not done, and its caller gets no answer.
//!
//! From then on no call is answered, as if the process were gone. The next process finds what the engine has stored.
//! A test that lets the process die at each of its writes, in both ways, covers every crash that can be observed from
//! outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog, Space, Store,
    StoreCapabilities, StoreError, Stored, StreamEvents, Survey, Trouble, Version,
};
use tokio::sync::watch;

/// Whether the write during which the process dies takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// It is done, but not answered.
    Done,
    /// It is not done.
    Undone,
}

/// A store around a store, for a process that dies.
pub struct Crashing {
    /// `None` when the process is dead: then the engine is closed, although callers may still wait.
    inner: Arc<Mutex<Option<Arc<dyn Store>>>>,
    capabilities: StoreCapabilities,
    /// How many writes still succeed.
    left: AtomicU64,
    last: Last,
    dead: watch::Sender<bool>,
}

impl Crashing {
    /// A store whose process dies in the next write after `writes` writes.
    pub fn after(inner: Arc<dyn Store>, writes: u64, last: Last) -> Self {
        let (capabilities, left) = (inner.capabilities(), AtomicU64::new(writes));
        let (inner, dead) = (Arc::new(Mutex::new(Some(inner))), watch::Sender::new(false));
        Self { inner, capabilities, left, last, dead }
    }

    fn inner(&self) -> Option<Arc<dyn Store>> {
        self.inner.lock().clone()
    }

    /// Resolves when the process is dead.
    pub async fn died(&self) {
        // `self` holds the sender, so the wait cannot fail.
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        *self.dead.borrow()
    }

    fn read<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Stored<T>) -> Stored<T> {
        let Some(inner) = self.inner() else { return Box::pin(std::future::pending()) };
        let (read, mut dead) = (operation(inner.as_ref()), self.dead.subscribe());
        Box::pin(async move {
            let died = async move { dead.wait_for(|dead| *dead).await.is_ok() };
            tokio::select! {
                biased;
                _ = died => {}
                answer = read => return answer,
            }
            std::future::pending().await
        })
    }

    fn write<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Stored<T>) -> Stored<T> {
        let Some(inner) = self.inner() else { return Box::pin(std::future::pending()) };
        let take = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return self.read(operation);
        }
        let (open, dead) = (Arc::clone(&self.inner), self.dead.clone());
        let write = (self.last == Last::Done).then(|| operation(inner.as_ref()));
        drop(inner);
        Box::pin(async move {
            if let Some(write) = write {
                // The caller is dead, so the engine's answer is dropped.
                drop(write.await);
            }
            drop(open.lock().take());
            dead.send_replace(true);
            std::future::pending().await
        })
    }
}

impl Store for Crashing {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        self.write(|store| store.put(key, value, expected, deadline))
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        self.read(|store| store.get(key))
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        self.inner()?.peek(key)
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        self.write(|store| store.delete(key, expected))
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        self.read(|store| store.expired(space, now, limit))
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        self.read(|store| store.list(space, after, limit))
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        self.write(|store| store.claim(session, node, expected))
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        self.read(|store| store.owner(session))
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        self.write(|store| store.release(session, epoch))
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        self.write(|store| store.append(session, epoch, batch))
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        self.read(|store| store.read(session, stream, after, limit))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        self.write(|store| store.trim(session, keep))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        self.write(|store| store.drop_session(session))
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        self.read(|store| store.tail(session))
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        self.read(|store| store.survey(session))
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        self.write(|store| store.restore(session, log))
    }

    fn capabilities(&self) -> StoreCapabilities {
        self.capabilities
    }

    fn trouble(&self) -> Option<Trouble> {
        self.inner()?.trouble()
    }
}

impl std::fmt::Debug for Crashing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Crashing")
    }
}
