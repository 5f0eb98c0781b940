//! Commands of operators on a session by its hashed id: show it, end it, restore a saved one; and a look at all of them at once.
//!
//! Ending and restoring also work on a store that no server has open, with the same code. A session in memory is never
//! replaced. A session that is being woken cannot overwrite a restored record, because the wake writes with the version
//! that it read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Reason, RequestId, message};

use crate::finish::finish;
use crate::id::{Principal, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::store::{Expected, Record, RecordKey, SavedLog, Store, StoreError, Version};
use crate::read_back;
use crate::record::{EndCause, SessionRecord, StoredSession, Tombstone, UnreadableRecord};
use crate::session::live_session::{Session, SessionInfo};
use crate::session::phase::Phase;
use crate::session::sessions::{SessionRuntime, Sessions};

/// Lifetime of the temporary tombstone while a session is being replaced, if the replacement is interrupted.
const REPLACING: Duration = Duration::from_secs(60 * 60);

/// With fewer requests than this, errors say nothing about a session.
const FEW_REQUESTS: u64 = 10;

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

/// All sessions in memory at a glance.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// How many there are.
    pub awake: usize,
    /// Those that wait for an answer of their clients.
    pub waiting_for_client: usize,
    /// Requests in flight.
    pub calls: usize,
    /// Those of them that wait for an answer of their clients, by the endpoints of their sessions.
    pub calls_waiting: BTreeMap<Option<String>, usize>,
    /// When the oldest request in flight came.
    pub oldest_call: Option<Time>,
    /// Streams on which something may follow.
    pub streams: usize,
    /// Streams with a reader.
    pub readers: usize,
    /// Sessions that an operator should look at, at most as many as were asked for.
    pub suspects: Vec<SessionKey>,
}

impl Sessions {
    /// Looks at all sessions in memory. One is suspect if a request has made no progress since `quiet_since`, if its client has
    /// not finished the handshake since then, or if most of its requests fail. Locks one session after the other, briefly.
    pub fn glance(&self, quiet_since: Time, most_suspects: usize) -> Glance {
        let mut glance = Glance::default();
        for session in self.0.live.all() {
            let state = session.state.lock();
            if state.end.is_some() {
                continue;
            }
            glance.awake += 1;
            glance.waiting_for_client += usize::from(!state.asks.is_empty());
            glance.calls += state.calls.len();
            let mut is_suspect = state.errors * 2 > state.requests && state.requests >= FEW_REQUESTS;
            is_suspect |= state.phase == Phase::Initializing && session.created <= quiet_since;
            for call in state.calls.values() {
                if call.asking > 0 {
                    let endpoint = session.route.name().map(str::to_owned);
                    *glance.calls_waiting.entry(endpoint).or_default() += 1;
                }
                glance.oldest_call =
                    Some(glance.oldest_call.map_or(call.started, |old| old.min(call.started)));
                is_suspect |= call.progressed.unwrap_or(call.started) <= quiet_since;
            }
            for stream in state.streams.values() {
                glance.streams += usize::from(!stream.ended);
                glance.readers += usize::from(stream.reader.is_some());
            }
            if is_suspect && glance.suspects.len() < most_suspects {
                glance.suspects.push(session.key);
            }
        }
        glance
    }

    /// The sessions of a user in memory, under any client.
    pub fn awake_of(&self, owner: &Principal) -> Vec<SessionKey> {
        self.0
            .live
            .all()
            .iter()
            .filter(|session| session.owner == *owner)
            .map(|session| session.key)
            .collect()
    }

    /// How many sessions are in memory.
    pub fn awake(&self) -> usize {
        self.0.live.all().len()
    }

    /// A session as operators see it, if it is in memory.
    pub fn info(&self, key: &SessionKey) -> Option<SessionInfo> {
        let session = self.0.awake_by_key(key)?;
        let alive = session.state.lock().end.is_none();
        alive.then(|| session.info())
    }

    /// Cancels a request in flight, by its client's id for it. Its client gets an error, and its server is told. Returns whether
    /// there was one.
    pub fn cancel_call(&self, key: &SessionKey, id: &RequestId) -> bool {
        self.0.live.by_key(key).is_some_and(|session| session.cancel_call(id))
    }

    /// Closes the connection that reads a stream, after all events so far. The stream goes on, and its client comes back for the
    /// rest. Returns whether there was such a connection.
    pub fn detach_reader(&self, key: &SessionKey, stream: StreamId) -> bool {
        let Some(session) = self.0.live.by_key(key) else { return false };
        let mut state = session.state.lock();
        let is_read = state.streams.get(&stream).is_some_and(|known| known.reader.is_some());
        if is_read {
            session.close_connection_of(&mut state, stream);
        }
        is_read
    }

    /// Makes a session dormant if it is quiet. Returns whether it is now; `None` if it is not in memory.
    ///
    /// # Errors
    /// When the store fails; the session stays awake then.
    ///
    /// # Cancel safety
    /// Once started, it is finished.
    pub async fn put_to_sleep(&self, key: &SessionKey) -> Result<Option<bool>, StoreError> {
        let Some(session) = self.0.live.by_key(key) else { return Ok(None) };
        finish(&self.0.tasks, async move { session.sleep().await.map(Some) }).await
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

impl Session {
    /// As [`Sessions::cancel_call`].
    fn cancel_call(self: &Arc<Self>, id: &RequestId) -> bool {
        let error = Error::new(Reason::Cancelled, "An operator cancelled the request").to_rpc();
        {
            let mut state = self.state.lock();
            if state.end.is_some() || state.is_given_up || state.left {
                return false;
            }
            let Some(call) = state.calls.remove(id) else { return false };
            state.errors += 1;
            if let Some(cancel) = call.cancel {
                cancel.cancel();
            }
            match call.stream {
                Some(stream) => {
                    self.answer_on(&mut state, stream, id, message::write_error(Some(id), &error));
                }
                // Its connection still waits for JSON, and takes the error from here when it is woken.
                None => state.cancelled.push((call.number, error)),
            }
            if let Some(waiter) = call.waiter {
                waiter.wake();
            }
        }
        tracing::info!(session = %self.label, request = ?id, "an operator cancelled a request");
        self.flush();
        self.inner.stir();
        true
    }
}

impl SessionRuntime {
    async fn adopt(self: Arc<Self>, saved: SavedSession, existing: Existing) -> Result<(), NotAdopted> {
        let (key, record) = (saved.key, StoredSession::decode(&saved.record)?);
        if self.waking.contains(&key) || self.awake_by_key(&key).is_some() {
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
    /// It is unchanged, or there is no such session.
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
