//! What operators do with sessions by their hashed names: look at one, end it, put a saved one back.
//!
//! Ending and putting back also work on a store that no server has open; the same code serves both. A session
//! in memory is never replaced, and one that is being woken meanwhile does not come back over a new record:
//! whoever wakes it writes with the version that it saw.

use std::time::Duration;

use bytes::Bytes;

use super::session::SessionInfo;
use super::sessions::Sessions;
use super::wake::Dormant;
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, SavedLog, Store, StoreError};
use crate::record::{End, Kept, SessionRecord, Tombstone, Unreadable};

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
    /// Dropped early it may leave its events without a record, or a tombstone in place of what was to be replaced.
    pub async fn adopt(&self, saved: SavedSession, existing: Existing) -> Result<(), NotAdopted> {
        let inner = &self.0;
        let (key, record) = (saved.key, Kept::decode(&saved.record)?);
        if inner.waking.contains(&key) || inner.live.by_key(&key).is_some() {
            return Err(NotAdopted::Awake);
        }
        let before = adopt(inner.store.as_ref(), saved, existing, inner.clock.now()).await?;
        let earlier = |session: &SessionRecord| Time(session.created) < inner.began;
        if let Some(Kept::Session(before)) = before {
            inner.census.leave(key, &owner(&before), earlier(&before));
        }
        if let Kept::Session(session) = record {
            inner.census.enter(key, &owner(&session), earlier(&session));
        }
        Ok(())
    }
}

/// Puts a saved session into a store that no server has open, or that has it not in memory. Returns what was
/// replaced.
///
/// # Errors
/// As [`Sessions::adopt`].
pub async fn adopt(
    store: &dyn Store,
    saved: SavedSession,
    existing: Existing,
    now: Time,
) -> Result<Option<Kept>, NotAdopted> {
    Kept::decode(&saved.record)?;
    let key = RecordKey::session(saved.key);
    let Some(before) = store.get(key).await? else {
        store.restore(saved.key, saved.log).await?;
        store.put(key, saved.record, Expected::Absent, saved.deadline).await.map_err(exists)?;
        return Ok(None);
    };
    if existing == Existing::Keep {
        return Err(NotAdopted::Exists);
    }
    let kept = Kept::decode(&before.value).ok();
    let owner = match &kept {
        Some(Kept::Session(session)) => session.owner.as_deref(),
        Some(Kept::Tombstone(tombstone)) => tombstone.owner.as_deref(),
        None => None,
    };
    // Ended first: otherwise somebody could wake it and write to its log while that is being replaced.
    let tombstone = Tombstone::new(owner, End::Revoked, now).encode();
    let until = Some(now.after(REPLACING));
    let version = store.put(key, tombstone, Expected::Version(before.version), until).await.map_err(awake)?;
    let replaced = match store.restore(saved.key, saved.log).await {
        Ok(()) => store.put(key, saved.record, Expected::Version(version), saved.deadline).await,
        Err(error) => {
            // The log is as it was; so shall be the record.
            let _ = store.put(key, before.value, Expected::Version(version), before.deadline).await;
            Err(error)
        }
    };
    replaced?;
    Ok(kept)
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
        let dormant = Dormant { key, version: record.version, record: session };
        if entomb(store, &dormant, End::Revoked, now, now.after(tombstone_ttl)).await? {
            store.drop_session(key).await?;
            return Ok(true);
        }
    }
}

/// Leaves a tombstone where the record of a session is that is not in memory. Returns false if the record was
/// changed meanwhile.
pub(super) async fn entomb(
    store: &dyn Store,
    dormant: &Dormant,
    end: End,
    now: Time,
    until: Time,
) -> Result<bool, StoreError> {
    let value = Tombstone::new(dormant.record.owner.as_deref(), end, now).encode();
    let (key, expected) = (RecordKey::session(dormant.key), Expected::Version(dormant.version));
    match store.put(key, value, expected, Some(until)).await {
        Ok(_) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
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
