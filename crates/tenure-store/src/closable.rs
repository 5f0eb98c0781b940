//! A store that can be closed while others still hold it.
//!
//! Owns the only lasting reference to an engine. Closing drops that reference, so the engine finishes its writes and
//! closes its files, and another process can open the store. Later calls get `StoreError::Unavailable`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tenure_session::forward_store;
use tenure_session::port::store::{Record, RecordKey, Store, StoreCapabilities, StoreError, Stored, Trouble};

/// How long closing waits for operations under way.
const LAST_OPERATIONS: Duration = Duration::from_secs(5);

/// Wraps a store and drops it on `close`.
pub struct Closable {
    engine: RwLock<Option<Arc<dyn Store>>>,
    capabilities: StoreCapabilities,
    /// Other owners may hold the engine and keep using it after it is closed here.
    is_lent: AtomicBool,
}

impl Closable {
    /// Wraps an open engine that has no other owner.
    pub fn new(engine: Arc<dyn Store>) -> Self {
        let capabilities = engine.capabilities();
        Self { engine: RwLock::new(Some(engine)), capabilities, is_lent: AtomicBool::new(false) }
    }

    /// Wraps an engine that has other owners too.
    pub fn lent(engine: Arc<dyn Store>) -> Self {
        Self { is_lent: AtomicBool::new(true), ..Self::new(engine) }
    }

    /// The engine has other owners from now on.
    pub(crate) fn lend(&self) {
        self.is_lent.store(true, Ordering::Relaxed);
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
            while !self.is_lent.load(Ordering::Relaxed) && others.strong_count() > 0 {
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
    forward_store!(run: put, get, delete, expired, list, claim, owner, release, append, read, trim);
    forward_store!(run: drop_session, tail, survey, restore);

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        match &*self.engine.read() {
            Some(engine) => engine.peek(key),
            None => Some(Err(closed())),
        }
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

    use bytes::Bytes;
    use tenure_session::id::{NodeId, SessionKey};
    use tenure_session::port::members::{Member, Members, Renewal};
    use tenure_session::port::store::{RecordKey, Store, StoreError, Stored};
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

    struct NoNodes {
        _engine: Arc<dyn Store>,
    }

    impl Members for NoNodes {
        fn renew(&self, _: NodeId, _: Bytes, _: Option<Renewal>) -> Stored<Renewal> {
            Box::pin(std::future::ready(Err(StoreError::Busy)))
        }

        fn remove(&self, _: NodeId, _: Renewal) -> Stored<()> {
            Box::pin(std::future::ready(Err(StoreError::Busy)))
        }

        fn members(&self) -> Stored<Vec<Member>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_close_of_a_store_of_a_cluster_does_not_wait_for_the_records_of_nodes() {
        let (engine, began) = (Arc::new(Memory::new()) as Arc<dyn Store>, Instant::now());
        let nodes = Arc::new(NoNodes { _engine: Arc::clone(&engine) });
        let shared = OpenedStore::on(engine, None).await.unwrap().shared_by(nodes);
        shared.close().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
