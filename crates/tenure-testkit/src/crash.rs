//! A store whose process dies in the middle of a write: that write is done or not done, and its caller gets no answer.
//!
//! From then on no call is answered, as if the process were gone. The next process finds what the engine has stored.
//! A test that lets the process die at each of its writes, in both ways, covers every crash that can be observed from
//! outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tenure_session::forward_store;
use tenure_session::port::store::{Record, RecordKey, Store, StoreCapabilities, StoreError, Stored, Trouble};
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
    forward_store!(read: get, expired, list, owner, read, tail, survey);
    forward_store!(write: put, delete, claim, release, append, trim, drop_session, restore);

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        self.inner()?.peek(key)
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
