//! A store that can be closed while others still hold it.
//!
//! Owns the only lasting reference to an engine. Closing drops that reference, so the engine finishes its writes and
//! closes its files, and another process can open the store. Later calls get `StoreError::Unavailable`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog, Space, Store,
    StoreCapabilities, StoreError, Stored, StreamEvents, Survey, Trouble, Version,
};

/// How long closing waits for operations under way.
const LAST_OPERATIONS: Duration = Duration::from_secs(5);

/// Wraps a store and drops it on `close`.
pub struct Closable {
    engine: RwLock<Option<Arc<dyn Store>>>,
    capabilities: StoreCapabilities,
    /// Other owners may hold the engine and keep using it after it is closed here.
    is_lent: bool,
}

impl Closable {
    /// Wraps an open engine that has no other owner.
    pub fn new(engine: Arc<dyn Store>) -> Self {
        let capabilities = engine.capabilities();
        Self { engine: RwLock::new(Some(engine)), capabilities, is_lent: false }
    }

    /// Wraps an engine that has other owners too.
    pub fn lent(engine: Arc<dyn Store>) -> Self {
        Self { is_lent: true, ..Self::new(engine) }
    }

    /// Closes the store and waits until its files are closed, at most five seconds. It does not wait for the files of a
    /// lent engine.
    ///
    /// # Cancel safety
    /// The store is closed when the first poll returns; only the wait can be dropped.
    pub async fn close(&self) {
        let Some(engine) = self.engine.write().take() else { return };
        let others = Arc::downgrade(&engine);
        // Dropping the engine blocks until its last writes are done.
        let closing = tokio::task::spawn_blocking(move || drop(engine));
        let closed = async {
            if closing.await.is_err() {
                tracing::error!("the store panicked when it was closed");
            }
            while !self.is_lent && others.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(LAST_OPERATIONS, closed).await.is_err() {
            tracing::warn!("operations were still running when the store was closed");
        }
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Stored<T>) -> Stored<T> {
        match &*self.engine.read() {
            Some(engine) => operation(engine.as_ref()),
            None => Box::pin(std::future::ready(Err(closed()))),
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}

impl Store for Closable {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        self.run(|store| store.put(key, value, expected, deadline))
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        self.run(|store| store.get(key))
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        match &*self.engine.read() {
            Some(engine) => engine.peek(key),
            None => Some(Err(closed())),
        }
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        self.run(|store| store.delete(key, expected))
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        self.run(|store| store.expired(space, now, limit))
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        self.run(|store| store.list(space, after, limit))
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        self.run(|store| store.claim(session, node, expected))
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        self.run(|store| store.owner(session))
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        self.run(|store| store.release(session, epoch))
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        self.run(|store| store.append(session, epoch, batch))
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        self.run(|store| store.read(session, stream, after, limit))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        self.run(|store| store.trim(session, keep))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        self.run(|store| store.drop_session(session))
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        self.run(|store| store.tail(session))
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        self.run(|store| store.survey(session))
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        self.run(|store| store.restore(session, log))
    }

    fn capabilities(&self) -> StoreCapabilities {
        self.capabilities
    }

    fn trouble(&self) -> Option<Trouble> {
        self.engine.read().as_ref()?.trouble()
    }
}

impl std::fmt::Debug for Closable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Closable").field("is_open", &self.engine.read().is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tenure_session::id::SessionKey;
    use tenure_session::port::store::{RecordKey, Store, StoreError};
    use tokio::time::Instant;

    use crate::memory::Memory;
    use crate::open::{OpenedStore, StoreOptions, open};

    #[tokio::test]
    async fn a_closed_store_can_be_opened_by_another_while_it_is_still_held() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("disk:{}", folder.path().display());
        let first = open(&url, StoreOptions::default()).await.unwrap();
        assert!(open(&url, StoreOptions::default()).await.is_err(), "one process at a time");
        first.close().await;
        let second = open(&url, StoreOptions::default()).await.unwrap();
        let key = RecordKey::session(SessionKey::from_bytes([1; 16]));
        assert_eq!(second.store.get(key).await.unwrap(), None);
        assert!(matches!(first.store.get(key).await, Err(StoreError::Unavailable(_))));
        assert!(matches!(first.store.peek(key), Some(Err(StoreError::Unavailable(_)))));
        assert!(first.disk.unwrap().upgrade().is_none());
        // A second close does nothing.
        second.close().await;
        second.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_lent_is_taken_from_us_alone_and_at_once() {
        let (engine, began) = (Arc::new(Memory::new()), Instant::now());
        let lent = OpenedStore::lent(Arc::clone(&engine) as Arc<dyn Store>);
        let key = RecordKey::session(SessionKey::from_bytes([1; 16]));
        assert_eq!(lent.store.get(key).await.unwrap(), None);
        lent.close().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the close waited for no other holder");
        assert!(matches!(lent.store.get(key).await, Err(StoreError::Unavailable(_))));
        assert_eq!(engine.get(key).await.unwrap(), None);
    }
}
