//! Commands of operators on a session by its hashed id: show it, end it, restore a saved one.
//!
//! Ending and restoring also work on a store that no server has open, with the same code. A session in memory is never
//! replaced. A session that is being woken cannot overwrite a restored record, because the wake writes with the version
//! that it read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::finish::finish;
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::{Expected, Record, RecordKey, SavedLog, Store, StoreError, Version};
use crate::read_back;
use crate::record::{EndCause, SessionRecord, StoredSession, Tombstone, UnreadableRecord};
use crate::session::live_session::SessionInfo;
use crate::session::sessions::{SessionRuntime, Sessions};

/// Lifetime of the temporary tombstone while a session is being replaced, if the replacement is interrupted.
const REPLACING: Duration = Duration::from_secs(60 * 60);

/// A session that was saved from a store.
#[derive(Clone, Debug)]
pub struct SavedSession {
    /// Its hashed id.
    pub key: SessionKey,
    /// Its record, in the encoding of the store.
    pub record: Bytes,
    /// When the sweep has to check it.
    pub deadline: Option<Time>,
    /// Its streams.
    pub log: SavedLog,
}

/// What to do when there is a record with the same hashed id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Keep it, and return an error.
    Keep,
    /// Replace it by the saved one.
    Replace,
}

/// Why a saved session was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAdopted {
    /// There is one with the same hashed id.
    #[error("there is a session of that name already")]
    Exists,
    /// It is in memory, and may be in use.
    #[error("the session of that name is awake")]
    Awake,
    /// The saved record cannot be decoded.
    #[error("the saved record cannot be read")]
    Unreadable(#[from] UnreadableRecord),
    /// The store failed. The earlier record is unchanged, unless only the last write failed: then the session to be
    /// replaced has ended, and the command can be repeated.
    #[error("the store did not take it")]
    Store(#[from] StoreError),
}

impl Sessions {
    /// The sessions of a user in memory, whatever client acts for it.
    pub fn awake_of(&self, owner: &Principal) -> Vec<SessionKey> {
        self.0
            .live
            .all()
            .iter()
            .filter(|session| session.owner == *owner)
            .map(|session| session.key)
            .collect()
    }

    /// A session as operators see it, if it is in memory.
    pub fn info(&self, key: &SessionKey) -> Option<SessionInfo> {
        let session = self.0.live.by_key(key)?;
        let alive = session.state.lock().end.is_none();
        alive.then(|| session.info())
    }

    /// Puts a saved session into the store. The next request of its client wakes it.
    ///
    /// # Errors
    /// When there is a session with the same hashed id that must not be replaced or is in memory, when the record
    /// cannot be read, or when the store fails.
    ///
    /// # Cancel safety
    /// Once started, it is finished.
    pub async fn adopt(&self, saved: SavedSession, existing: Existing) -> Result<(), NotAdopted> {
        let inner = Arc::clone(&self.0);
        finish(&self.0.tasks, async move { inner.adopt(saved, existing).await }).await
    }
}

impl SessionRuntime {
    async fn adopt(self: Arc<Self>, saved: SavedSession, existing: Existing) -> Result<(), NotAdopted> {
        let (key, record) = (saved.key, StoredSession::decode(&saved.record)?);
        if self.waking.contains(&key) || self.live.by_key(&key).is_some() {
            return Err(NotAdopted::Awake);
        }
        let before = before(self.store.as_ref(), key, existing).await?;
        // Announce both to the count before the first write, and the old session before the new one: they have the
        // same key.
        let session = before.as_ref().and_then(RecordBefore::session);
        let leaving = session.map(|session| self.counts.leaving(key, session.owner()));
        let entering = match &record {
            StoredSession::Session(session) => Some(self.counts.enter(key, &session.owner())),
            StoredSession::Tombstone(_) => None,
        };
        let (place, put) = put_back(self.store.as_ref(), saved, before.as_ref(), self.clock.now()).await;
        if let (Some(leaving), ReplacedRecord::Gone) = (leaving, place) {
            leaving.left();
        }
        put?;
        if let Some(count_guard) = entering {
            count_guard.keep();
        }
        Ok(())
    }
}

/// Puts a saved session into a store that no server has open, or whose server does not have it in memory. Returns the
/// replaced record.
///
/// # Errors
/// As [`Sessions::adopt`].
///
/// # Cancel safety
/// If the future is dropped early, the events may stay without a record, or a tombstone may stay in place of the
/// replaced record.
pub async fn adopt(
    store: &dyn Store,
    saved: SavedSession,
    existing: Existing,
    now: Time,
) -> Result<Option<StoredSession>, NotAdopted> {
    StoredSession::decode(&saved.record)?;
    let before = before(store, saved.key, existing).await?;
    put_back(store, saved, before.as_ref(), now).await.1?;
    Ok(before.and_then(|before| before.kept))
}

/// The record with the hashed id of a saved session, which may be replaced.
struct RecordBefore {
    record: Record,
    /// `None` if it cannot be decoded.
    kept: Option<StoredSession>,
}

impl RecordBefore {
    fn session(&self) -> Option<&SessionRecord> {
        match &self.kept {
            Some(StoredSession::Session(session)) => Some(session),
            _ => None,
        }
    }

    fn owner(&self) -> Principal {
        match &self.kept {
            Some(StoredSession::Session(session)) => session.owner(),
            Some(StoredSession::Tombstone(tombstone)) => tombstone.owner(),
            None => Principal::ANONYMOUS,
        }
    }
}

async fn before(
    store: &dyn Store,
    key: SessionKey,
    existing: Existing,
) -> Result<Option<RecordBefore>, NotAdopted> {
    let Some(record) = store.get(RecordKey::session(key)).await? else { return Ok(None) };
    if existing == Existing::Keep {
        return Err(NotAdopted::Exists);
    }
    let kept = StoredSession::decode(&record.value).ok();
    Ok(Some(RecordBefore { record, kept }))
}

/// What happened to the record that a saved one replaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplacedRecord {
    /// It is unchanged, or there was none.
    AsBefore,
    /// It is gone, whether or not the saved one was written.
    Gone,
}

async fn put_back(
    store: &dyn Store,
    saved: SavedSession,
    before: Option<&RecordBefore>,
    now: Time,
) -> (ReplacedRecord, Result<(), NotAdopted>) {
    let key = RecordKey::session(saved.key);
    let Some(before) = before else {
        let put = async {
            store.restore(saved.key, saved.log).await?;
            store.put(key, saved.record, Expected::Absent, saved.deadline).await.map_err(exists)
        };
        return (ReplacedRecord::AsBefore, put.await.map(drop));
    };
    // End the old session first: otherwise a request could wake it and write to its log during the replacement.
    let tombstone = Tombstone::new(&before.owner(), EndCause::Revoked, now).encode();
    let until = Some(now.after(REPLACING));
    let Record { version, value, deadline } = before.record.clone();
    let version = match store.put(key, tombstone, Expected::Version(version), until).await {
        Ok(version) => version,
        Err(error) => return (ReplacedRecord::AsBefore, Err(awake(error))),
    };
    if let Err(error) = store.restore(saved.key, saved.log).await {
        // The log is unchanged, so put the old record back.
        let undone = store.put(key, value, Expected::Version(version), deadline).await;
        let place = if undone.is_ok() { ReplacedRecord::AsBefore } else { ReplacedRecord::Gone };
        return (place, Err(error.into()));
    }
    let put = store.put(key, saved.record, Expected::Version(version), saved.deadline).await;
    (ReplacedRecord::Gone, put.map(drop).map_err(NotAdopted::Store))
}

/// Ends a session in a store that no server has open. Returns whether there was one.
///
/// # Errors
/// When the store fails; the session then goes on, unless only dropping its events failed.
pub async fn revoke(
    store: &dyn Store,
    key: SessionKey,
    now: Time,
    tombstone_ttl: Duration,
) -> Result<bool, StoreError> {
    loop {
        let Some(record) = store.get(RecordKey::session(key)).await? else { return Ok(false) };
        let Ok(StoredSession::Session(session)) = StoredSession::decode(&record.value) else {
            return Ok(false);
        };
        let tombstone = Tombstone::new(&session.owner(), EndCause::Revoked, now);
        if put_tombstone(store, key, record.version, &tombstone, now.after(tombstone_ttl)).await? {
            store.drop_session(key).await?;
            return Ok(true);
        }
    }
}

/// Replaces the record of a dormant session by a tombstone. Returns false if the record changed meanwhile.
pub(super) async fn put_tombstone(
    store: &dyn Store,
    key: SessionKey,
    version: Version,
    tombstone: &Tombstone,
    until: Time,
) -> Result<bool, StoreError> {
    let (key, value) = (RecordKey::session(key), tombstone.encode());
    match read_back::put(store, key, value, Expected::Version(version), Some(until)).await {
        Ok(_) => Ok(true),
        // The write did not happen, although no other writer came first.
        Err(StoreError::Conflict { current: Some(same) }) if same == version => Err(StoreError::Unknown),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A conflict here means that a record was written since `before` read the store.
fn exists(error: StoreError) -> NotAdopted {
    match error {
        StoreError::Conflict { .. } => NotAdopted::Exists,
        error => NotAdopted::Store(error),
    }
}

/// A conflict here means that the record was written since it was read; only a wake does that.
fn awake(error: StoreError) -> NotAdopted {
    match error {
        StoreError::Conflict { .. } => NotAdopted::Awake,
        error => NotAdopted::Store(error),
    }
}
