//! What operators do with sessions by their hashed names: look at one, end it, put a saved one back.
//!
//! Ending and putting back also work on a store that no server has open; the same code serves both. A session
//! in memory is never replaced, and one that is being woken meanwhile does not come back over a new record:
//! whoever wakes it writes with the version that it saw.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::finish::finish;
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::{Expected, Record, RecordKey, SavedLog, Store, StoreError, Version};
use crate::record::{End, Kept, SessionRecord, Tombstone, Unreadable};
use crate::session::session::SessionInfo;
use crate::session::sessions::{Inner, Sessions};

/// How long the place of a session is held while it is being replaced, should that be cut short.
const REPLACING: Duration = Duration::from_secs(60 * 60);

/// A session as it was saved elsewhere.
#[derive(Clone, Debug)]
pub struct SavedSession {
    /// Its hashed id.
    pub key: SessionKey,
    /// Its record, as stores keep it.
    pub record: Bytes,
    /// When it is due to be looked at.
    pub deadline: Option<Time>,
    /// Its streams.
    pub log: SavedLog,
}

/// What to do when there is a record of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Leave it as it is, and say so.
    Keep,
    /// Put the saved one in its place.
    Replace,
}

/// Why a saved session was not put back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAdopted {
    /// There is one of that name.
    #[error("there is a session of that name already")]
    Exists,
    /// It is in memory, and may be in use right now.
    #[error("the session of that name is awake")]
    Awake,
    /// The saved record makes no sense.
    #[error("the saved record cannot be read")]
    Unreadable(#[from] Unreadable),
    /// The store failed. What was there before is there still, unless only the last write failed: then what was
    /// to be replaced has ended, and can be put in place again.
    #[error("the store did not take it")]
    Store(#[from] StoreError),
}

impl Sessions {
    /// What operators see of a session, if it is in memory.
    pub fn info(&self, key: &SessionKey) -> Option<SessionInfo> {
        let session = self.0.live.by_key(key)?;
        let alive = session.state.lock().end.is_none();
        alive.then(|| session.info())
    }

    /// Puts a saved session into the store. The next request of its client wakes it.
    ///
    /// # Errors
    /// When there is one of that name that is not to be replaced or is in memory, when the record cannot be
    /// read, or when the store fails.
    ///
    /// # Cancel safety
    /// It is finished once it has begun.
    pub async fn adopt(&self, saved: SavedSession, existing: Existing) -> Result<(), NotAdopted> {
        let inner = Arc::clone(&self.0);
        finish(&self.0.tasks, async move { inner.adopt(saved, existing).await }).await
    }
}

impl Inner {
    async fn adopt(self: Arc<Self>, saved: SavedSession, existing: Existing) -> Result<(), NotAdopted> {
        let (key, record) = (saved.key, Kept::decode(&saved.record)?);
        if self.waking.contains(&key) || self.live.by_key(&key).is_some() {
            return Err(NotAdopted::Awake);
        }
        let before = before(self.store.as_ref(), key, existing).await?;
        // Both are announced before anything is written, and the one that is there before the one that comes: they
        // have the same key.
        let session = before.as_ref().and_then(Before::session);
        let leaving = session.map(|session| self.census.leaving(key, owner(session)));
        let entering = match &record {
            Kept::Session(session) => Some(self.census.enter(key, &owner(session))),
            Kept::Tombstone(_) => None,
        };
        let (place, put) = put_back(self.store.as_ref(), saved, before.as_ref(), self.clock.now()).await;
        if let (Some(leaving), Place::Emptied) = (leaving, place) {
            leaving.left();
        }
        put?;
        if let Some(seat) = entering {
            seat.keep();
        }
        Ok(())
    }
}

/// Puts a saved session into a store that no server has open, or that has it not in memory. Returns what was
/// replaced.
///
/// # Errors
/// As [`Sessions::adopt`].
///
/// # Cancel safety
/// Dropped early it may leave its events without a record, or a tombstone in place of what was to be replaced.
pub async fn adopt(
    store: &dyn Store,
    saved: SavedSession,
    existing: Existing,
    now: Time,
) -> Result<Option<Kept>, NotAdopted> {
    Kept::decode(&saved.record)?;
    let before = before(store, saved.key, existing).await?;
    put_back(store, saved, before.as_ref(), now).await.1?;
    Ok(before.and_then(|before| before.kept))
}

/// The record that has the name of a saved session, and may be replaced.
struct Before {
    record: Record,
    /// Nothing if it cannot be read.
    kept: Option<Kept>,
}

impl Before {
    fn session(&self) -> Option<&SessionRecord> {
        match &self.kept {
            Some(Kept::Session(session)) => Some(session),
            _ => None,
        }
    }

    fn owner(&self) -> Option<&str> {
        match self.kept.as_ref()? {
            Kept::Session(session) => session.owner.as_deref(),
            Kept::Tombstone(tombstone) => tombstone.owner.as_deref(),
        }
    }
}

async fn before(
    store: &dyn Store,
    key: SessionKey,
    existing: Existing,
) -> Result<Option<Before>, NotAdopted> {
    let Some(record) = store.get(RecordKey::session(key)).await? else { return Ok(None) };
    if existing == Existing::Keep {
        return Err(NotAdopted::Exists);
    }
    let kept = Kept::decode(&record.value).ok();
    Ok(Some(Before { record, kept }))
}

/// The fate of the record in whose place a saved one is put.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is there.
    AsBefore,
    /// It is gone, whether or not the saved one is there.
    Emptied,
}

async fn put_back(
    store: &dyn Store,
    saved: SavedSession,
    before: Option<&Before>,
    now: Time,
) -> (Place, Result<(), NotAdopted>) {
    let key = RecordKey::session(saved.key);
    let Some(before) = before else {
        let put = async {
            store.restore(saved.key, saved.log).await?;
            store.put(key, saved.record, Expected::Absent, saved.deadline).await.map_err(exists)
        };
        return (Place::AsBefore, put.await.map(drop));
    };
    // Ended first: otherwise somebody could wake it and write to its log while that is being replaced.
    let tombstone = Tombstone::new(before.owner(), End::Revoked, now).encode();
    let until = Some(now.after(REPLACING));
    let Record { version, value, deadline } = before.record.clone();
    let version = match store.put(key, tombstone, Expected::Version(version), until).await {
        Ok(version) => version,
        Err(error) => return (Place::AsBefore, Err(awake(error))),
    };
    if let Err(error) = store.restore(saved.key, saved.log).await {
        // The log is as it was; so shall be the record.
        let undone = store.put(key, value, Expected::Version(version), deadline).await;
        let place = if undone.is_ok() { Place::AsBefore } else { Place::Emptied };
        return (place, Err(error.into()));
    }
    let put = store.put(key, saved.record, Expected::Version(version), saved.deadline).await;
    (Place::Emptied, put.map(drop).map_err(NotAdopted::Store))
}

/// Ends a session in a store that no server has open. Returns whether there was one.
///
/// # Errors
/// When the store fails; the session then goes on, unless only its events could not be forgotten.
pub async fn revoke(
    store: &dyn Store,
    key: SessionKey,
    now: Time,
    tombstone_ttl: Duration,
) -> Result<bool, StoreError> {
    loop {
        let Some(record) = store.get(RecordKey::session(key)).await? else { return Ok(false) };
        let Ok(Kept::Session(session)) = Kept::decode(&record.value) else { return Ok(false) };
        let tombstone = Tombstone::new(session.owner.as_deref(), End::Revoked, now);
        if entomb(store, key, record.version, &tombstone, now.after(tombstone_ttl)).await? {
            store.drop_session(key).await?;
            return Ok(true);
        }
    }
}

/// Leaves a tombstone where the record of a session is that is not in memory. Returns false if the record was
/// changed meanwhile.
pub(super) async fn entomb(
    store: &dyn Store,
    key: SessionKey,
    version: Version,
    tombstone: &Tombstone,
    until: Time,
) -> Result<bool, StoreError> {
    let (key, value) = (RecordKey::session(key), tombstone.encode());
    match store.put(key, value.clone(), Expected::Version(version), Some(until)).await {
        Ok(_) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        // The answer was lost. The session has ended if the tombstone is there.
        Err(StoreError::Unknown) => match store.get(key).await? {
            Some(record) if record.value == value => Ok(true),
            Some(record) if record.version == version => Err(StoreError::Unknown),
            _ => Ok(false),
        },
        Err(error) => Err(error),
    }
}

fn owner(session: &SessionRecord) -> Principal {
    session.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named)
}

/// A record that came up since it was looked for.
fn exists(error: StoreError) -> NotAdopted {
    match error {
        StoreError::Conflict { .. } => NotAdopted::Exists,
        error => NotAdopted::Store(error),
    }
}

/// A record that somebody wrote since it was read: only a session that wakes does.
fn awake(error: StoreError) -> NotAdopted {
    match error {
        StoreError::Conflict { .. } => NotAdopted::Awake,
        error => NotAdopted::Store(error),
    }
}
