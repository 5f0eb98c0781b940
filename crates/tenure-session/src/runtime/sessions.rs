//! All sessions of one backend: create, find, list, end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::census::Census;
use super::context::{Fanout, Outlet, Watchers};
use super::deadline::{self, Deadlines, Due};
use super::live::Live;
use super::session::{Session, SessionInfo, State, ended_error, unknown_error};
use crate::error::{Error, Reason, RpcError};
use crate::id::{NodeId, Principal, SessionId, SessionKey, StreamId};
use crate::limits::Limits;
use crate::message::{self, RawJson, Request};
use crate::phase::Step;
use crate::port::backend::{Backend, Open, Opening};
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, RecordKey, Store, StoreError, Version};
use crate::protocol::Revision;
use crate::record::{End, Kept, Tombstone};

/// All sessions of one backend. Cheap to clone.
#[derive(Clone)]
pub struct Sessions(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) live: Live,
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    pub(super) node: NodeId,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) draining: AtomicBool,
    /// Backend futures of all sessions that exist now.
    pub(super) running: AtomicUsize,
    /// Woken when `running` falls to zero.
    pub(super) idle: Notify,
    pub(super) census: Arc<Census>,
    pub(super) deadlines: Deadlines,
    pub(super) watchers: Watchers,
    /// Ends that are remembered, oldest first, each with the time when it is forgotten.
    pub(super) tombstones: Mutex<VecDeque<(Time, SessionKey)>>,
    created: AtomicU64,
    ended: AtomicU64,
}

/// What the runtime is made of.
#[expect(missing_debug_implementations, reason = "its parts are ports without one")]
pub struct Parts {
    /// Where things are kept.
    pub store: Arc<dyn Store>,
    /// The server behind.
    pub backend: Arc<dyn Backend>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Bounds and timeouts.
    pub limits: Limits,
}

/// A new session and what to tell its client.
#[derive(Debug)]
pub struct Created {
    /// The session; `None` if the server refused, and the answer says why.
    pub session: Option<Arc<Session>>,
    /// The response to `initialize`.
    pub answer: Bytes,
}

/// How many there are, and were.
#[derive(Clone, Copy, Debug)]
pub struct Tallies {
    /// Sessions now.
    pub sessions: usize,
    /// Sessions created since the start.
    pub created: u64,
    /// Sessions ended since the start.
    pub ended: u64,
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(rename = "protocolVersion")]
    protocol_version: String,
}

impl Sessions {
    /// Starts the runtime. Must be called within a tokio runtime.
    pub fn start(parts: Parts) -> Self {
        let inner = Arc::new(Inner {
            live: Live::new(),
            store: parts.store,
            backend: parts.backend,
            clock: parts.clock,
            limits: parts.limits,
            node: NodeId::random(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            draining: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            idle: Notify::new(),
            census: Arc::default(),
            deadlines: Deadlines::default(),
            watchers: Watchers::default(),
            tombstones: Mutex::default(),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        });
        inner.tasks.spawn(deadline::watch(Arc::clone(&inner)));
        Self(inner)
    }

    /// Creates a session from an `initialize` request.
    ///
    /// # Errors
    /// When a limit is reached, the params make no sense, or the store fails. A server that refuses is
    /// not an error here: its answer is passed on.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves nothing behind.
    pub async fn create(&self, request: Request, principal: &Principal) -> Result<Created, Error> {
        let inner = &self.0;
        if inner.is_draining() {
            return Err(Error::new(Reason::Draining, "The server is shutting down; try again later"));
        }
        // Copied, because it is kept as long as the session: a slice would keep the whole network buffer.
        let params = request.params.ok_or_else(|| bad_initialize("params are missing"))?.detached();
        let asked: Versioned =
            params.read().map_err(|error| bad_initialize("protocolVersion is missing").caused_by(error))?;
        let limit = inner.limits.max_initialize_bytes;
        if params.bytes().len() > limit {
            return Err(bad_initialize("the params are too large").with("limit", limit));
        }
        let revision = Revision::negotiate(&asked.protocol_version);
        let seat = inner.census.take(principal, &inner.limits)?;
        let id = SessionId::random();
        let epoch = inner.store.claim(id.key(), inner.node, None).await.map_err(store_failed)?;
        let state = State::new(params.clone(), revision, seat);
        let session = Session::new(Arc::clone(inner), id, principal.clone(), epoch, state);
        let unborn = Unborn(Some(Arc::clone(&session)));
        let open = Open {
            params,
            revision,
            opening: Opening::Fresh,
            outlet: Outlet::of_session(&session),
            fanout: self.fanout(),
        };
        let result = match self.open_link(&session, open).await {
            Ok(result) => result,
            Err(error) => {
                tracing::warn!(session = %session.label, %error, "the backend refused initialize");
                return Ok(Created {
                    session: None,
                    answer: message::write_error(Some(&request.id), &error),
                });
            }
        };
        let value = {
            let mut state = session.state.lock();
            state.initialize_result = result.clone();
            state.step(Step::InitializeAnswered, inner.limits.gate);
            session.record(&state, serde_json::Map::new())
        };
        let key = RecordKey::session(session.key);
        let version = inner.store.put(key, value, Expected::Absent, None).await.map_err(store_failed)?;
        unborn.born();
        inner.live.insert(id, Arc::clone(&session));
        {
            // Anew, because an entry from during the handshake may have come up before the session was live.
            let mut state = session.state.lock();
            state.version = version;
            if let Some(due) = state.due.take() {
                inner.deadlines.remove(due, Due::Session(id));
            }
            session.touch();
            session.schedule(&mut state, inner.clock.now());
        }
        inner.created.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %session.label, revision = %session.revision(), "session created");
        let answer = message::write_result(&request.id, &result);
        Ok(Created { session: Some(session), answer })
    }

    async fn open_link(&self, session: &Arc<Session>, open: Open) -> Result<RawJson, RpcError> {
        let inner = &self.0;
        // A handler that panics in its handshake must not take the connection with it.
        let backend = Arc::clone(&inner.backend);
        let opening = inner.tasks.spawn(async move { backend.open(open).await });
        let abort = tokio_util::task::AbortOnDropHandle::new(opening);
        let opened = match tokio::time::timeout(inner.limits.initialize_timeout, abort).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => {
                return Err(RpcError::of(Reason::Internal, "The server failed while starting the session"));
            }
            Err(_) => {
                return Err(RpcError::of(Reason::TimedOut, "The server did not answer initialize in time"));
            }
        };
        let answered = opened.result.read::<Versioned>().ok();
        let revision = answered.and_then(|answered| Revision::parse(&answered.protocol_version));
        let Some(revision) = revision else {
            return Err(RpcError::of(
                Reason::BackendUnavailable,
                "The server answered initialize with a version we do not know",
            ));
        };
        let mut state = session.state.lock();
        state.revision = revision;
        state.link = Some(Arc::from(opened.link));
        Ok(opened.result)
    }

    /// Finds a session of the caller's by its id.
    ///
    /// # Errors
    /// When there is none; a session of somebody else's looks exactly like one that never was. When it
    /// was the caller's and has ended, the error says how.
    pub async fn find(&self, id: &SessionId, principal: &Principal) -> Result<Arc<Session>, Error> {
        match self.0.live.get(id) {
            Some(session) if session.owner == *principal => Ok(session),
            Some(_) => Err(unknown_error()),
            // Boxed, so that the frequent case carries no room for this one.
            None => Err(Box::pin(self.why_not_live(id, principal)).await),
        }
    }

    async fn why_not_live(&self, id: &SessionId, principal: &Principal) -> Error {
        let record = match self.0.store.get(RecordKey::session(id.key())).await {
            Ok(record) => record,
            Err(error) => return store_failed(error),
        };
        match record.map(|record| Kept::decode(&record.value)) {
            Some(Ok(Kept::Tombstone(tombstone))) if tombstone.owner.as_deref() == principal.name() => {
                ended_error(tombstone.end)
            }
            _ => unknown_error(),
        }
    }

    /// Ends a session.
    ///
    /// # Cancel safety
    /// The session is over when the first poll returns; only the wait for the store can be dropped.
    pub async fn end(&self, session: &Arc<Session>, end: End) {
        if let Some(burial) = self.0.end(session, end) {
            // Only an aborted runtime makes this fail, and then nobody is left to be told.
            drop(burial.await);
        }
    }

    /// Ends the session with this label or key, for operators. Returns whether there was one.
    pub async fn revoke(&self, label: &str) -> bool {
        let found = self.0.live.all().into_iter().find(|session| &*session.label == label);
        let Some(session) = found else { return false };
        self.end(&session, End::Revoked).await;
        true
    }

    /// Every session in memory, oldest first.
    pub fn list(&self) -> Vec<SessionInfo> {
        let mut list: Vec<_> = self.0.live.all().iter().map(|session| session.info()).collect();
        list.sort_by_key(|info| (info.created, info.key));
        list
    }

    /// How many there are, and were.
    pub fn tallies(&self) -> Tallies {
        Tallies {
            sessions: self.0.census.total(),
            created: self.0.created.load(Ordering::Relaxed),
            ended: self.0.ended.load(Ordering::Relaxed),
        }
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Tells all sessions of something.
    pub fn fanout(&self) -> Fanout {
        Fanout(Arc::downgrade(&self.0))
    }

    /// Whether new work is taken.
    pub fn is_ready(&self) -> bool {
        !self.0.is_draining()
    }
}

impl Inner {
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Ends a session now; its tombstone follows in a tracked task.
    pub(super) fn end(self: &Arc<Self>, session: &Arc<Session>, end: End) -> Option<JoinHandle<()>> {
        let (link, version) = {
            let mut state = session.state.lock();
            if state.end.is_some() {
                return None;
            }
            state.end = Some(end);
            state.step(Step::Stopped, self.limits.gate);
            session.settle(&mut state, &ended_error(end).to_rpc());
            for uri in &std::mem::take(&mut state.subscriptions) {
                self.watchers.remove(uri, &session.id);
            }
            if let Some(due) = state.due.take() {
                self.deadlines.remove(due, Due::Session(session.id));
            }
            state.seat = None;
            (state.link.take(), state.version)
        };
        session.flush();
        self.live.remove(&session.id);
        self.ended.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %session.label, how = ?end, "session ended");
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let burial = self.tasks.spawn(async move { inner.bury(&session, end, version).await });
        // Apart from the burial: a server that is slow to leave holds up neither DELETE nor the store.
        if let Some(link) = link {
            self.tasks.spawn(async move { link.close().await });
        }
        Some(burial)
    }

    /// Leaves a tombstone where the record was, and forgets the events.
    async fn bury(&self, session: &Session, end: End, mut version: Version) {
        let now = self.clock.now();
        let key = RecordKey::session(session.key);
        let value = Tombstone::new(session.owner.name(), end, now).encode();
        let until = now.after(self.limits.tombstone_ttl);
        let written = loop {
            match self.store.put(key, value.clone(), Expected::Version(version), Some(until)).await {
                // The session was saved meanwhile; its end comes after whatever that was.
                Err(StoreError::Conflict { current: Some(current) }) => version = current,
                outcome => break outcome,
            }
        };
        match written {
            Ok(_) => self.remember_end(session, until).await,
            Err(error) => {
                tracing::error!(session = %session.label, %error, "could not record the end of a session")
            }
        }
        if let Err(error) = self.store.drop_session(session.key).await {
            tracing::warn!(session = %session.label, %error, "could not drop the events of an ended session");
        }
    }

    /// Keeps a tombstone until its time, or until there are too many: then the oldest is forgotten. Its id
    /// stays dead all the same, it is only no longer known why.
    async fn remember_end(&self, session: &Session, until: Time) {
        self.deadlines.add(until, Due::Tombstone(session.key));
        let forgotten = {
            let mut tombstones = self.tombstones.lock();
            tombstones.push_back((until, session.key));
            if tombstones.len() > self.limits.max_tombstones { tombstones.pop_front() } else { None }
        };
        if let Some((until, key)) = forgotten {
            self.deadlines.remove(until, Due::Tombstone(key));
            let key = RecordKey::session(key);
            if let Ok(Some(record)) = self.store.get(key).await {
                drop(self.store.delete(key, record.version).await);
            }
        }
    }
}

impl Session {
    /// Answers everything that waits with an error and completes all streams. The caller flushes.
    pub(super) fn settle(&self, state: &mut State, error: &RpcError) {
        state.settled = Some(error.clone());
        state.asks.clear();
        state.outbox.make_room();
        for (id, call) in std::mem::take(&mut state.calls) {
            if let Some(cancel) = call.cancel {
                cancel.cancel();
            }
            // Through the outbox like everything else, so that it comes after what is already on its way.
            if let Some(stream) = call.stream {
                self.answer_on(state, stream, message::write_error(Some(&id), error));
            }
            if let Some(waiter) = call.waiter {
                waiter.wake();
            }
        }
        let over = state.end.is_some();
        for (id, stream) in &mut state.streams {
            // What is still on its way completes its stream itself. The standalone stream ends with the
            // session and not before.
            if stream.queued > 0 || (*id == StreamId::STANDALONE && !over) {
                continue;
            }
            stream.ended = true;
            if let Some(waker) = stream.reader.as_mut().and_then(|slot| slot.waker.take()) {
                waker.wake();
            }
        }
    }
}

/// A session that is being created; if that fails its backend is let go.
struct Unborn(Option<Arc<Session>>);

impl Unborn {
    fn born(mut self) {
        self.0 = None;
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        let Some(session) = self.0.take() else { return };
        let link = {
            let mut state = session.state.lock();
            state.end = Some(End::Deleted);
            state.seat = None;
            state.link.take()
        };
        let inner = Arc::clone(&session.inner);
        inner.tasks.clone().spawn(async move {
            if let Some(link) = link {
                link.close().await;
            }
            // Its record may or may not have been written.
            let key = RecordKey::session(session.key);
            let dropped = match inner.store.get(key).await {
                Ok(Some(record)) => inner.store.delete(key, record.version).await,
                _ => Ok(()),
            };
            if let Err(error) = dropped.and(inner.store.drop_session(session.key).await) {
                tracing::debug!(session = %session.label, %error, "could not drop an unfinished session");
            }
        });
    }
}

fn bad_initialize(what: &'static str) -> Error {
    Error::new(Reason::InvalidParams, format!("initialize: {what}"))
}

fn store_failed(error: StoreError) -> Error {
    Error::new(Reason::StoreUnavailable, "The session store is not available").caused_by(error)
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("tallies", &self.tallies()).finish()
    }
}
