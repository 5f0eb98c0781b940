//! The notes of all calls of a process, and the table of the calls that run.
//!
//! In: calls that become streams, their answers, and clients that come back with an event id. Out: notes in the store,
//! and for a client that comes back, the running call or its note.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Error, Method, Reason, Request};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::id::CallId;
use super::record::{CallHead, CallRecord, NotedServer};
use crate::cluster::Roster;
use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::finish::finish;
use crate::id::{NodeId, Principal, Route, SessionKey};
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, RecordKey, Space, Store, StoreDurability, StoreError, Version};
use crate::read_back::{self, remove};
use crate::supervise::{Avoided, Loops};
use crate::sweep::{self, Swept};

/// How long the note of an answered or withdrawn call is kept for a client that comes back. Clients retry twice, a few
/// seconds apart.
const AFTER_END: Duration = Duration::from_secs(60);

/// How long a client can come back for a listen, which has no time limit of its own.
const LISTEN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long a stream waits for its note to be written. If the store takes longer, the call goes on without an event id.
const NOTE_WITHIN: Duration = Duration::from_secs(2);

/// How often expired notes are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// The notes of all calls of a process. `T` is a running call.
pub(crate) struct KeptCalls<T: Send + Sync + 'static> {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    servers: Fingerprints,
    /// The most notes that this process has in the store at once.
    max: usize,
    /// The longest time that a call can take. Its note is kept for as long.
    longest: Duration,
    state: Mutex<CallTables<T>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Notes at which the sweep panicked.
    avoided: Avoided<RecordKey>,
    /// The nodes that share the store; not set if this process is the only one.
    roster: OnceLock<Roster>,
}

struct CallTables<T: Send + Sync + 'static> {
    /// Notes of this process that are, or may be, in the store, and when they expire. In a cluster another node may remove a note
    /// that has expired, and this one does not hear of it.
    noted: HashMap<SessionKey, Time>,
    /// Calls that run.
    live: HashMap<SessionKey, (Weak<T>, Weak<CallNote<T>>)>,
}

/// The note of one attempt at a call.
pub(crate) struct CallNote<T: Send + Sync + 'static> {
    calls: Arc<KeptCalls<T>>,
    pub(crate) id: CallId,
    key: SessionKey,
    /// The request of the attempt, with the params that the server gets.
    pub(crate) request: Request,
    route: Route,
    server: Option<NotedServer>,
    /// Whether a server may have seen the call.
    is_begun: AtomicBool,
    version: Mutex<Version>,
    /// The end of the attempt is decided, and the note contains it or is being written.
    is_settled: AtomicBool,
    /// Cancelled when the note contains the end of the attempt.
    is_noted: CancellationToken,
}

/// A call that was found by its event id.
pub(crate) enum FoundCall<T: Send + Sync + 'static> {
    /// It runs in this process.
    Live(Arc<T>, Arc<CallNote<T>>),
    /// The store has a note of it.
    Noted(Box<Noted>),
    /// There is no call, or its note has expired.
    Nothing,
}

/// The note of a call, as read from the store.
pub(crate) struct Noted {
    /// `None` if the request cannot be read.
    pub(crate) request: Option<Request>,
    /// Whether a server may have seen the call.
    pub(crate) is_begun: bool,
    /// The server that the call was for.
    pub(crate) server: Option<NotedServer>,
    /// The node at which it runs, in a cluster.
    pub(crate) node: Option<NodeId>,
    /// The response. Empty until the call is answered.
    pub(crate) outcome: Bytes,
    pub(crate) version: Version,
}

impl<T: Send + Sync + 'static> KeptCalls<T> {
    /// Starts to keep calls. Must be called within a tokio runtime.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        servers: Fingerprints,
        (max, longest): (usize, Duration),
        loops: &Loops,
    ) -> Arc<Self> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let state = Mutex::new(CallTables { noted: HashMap::new(), live: HashMap::new() });
        let avoided = Avoided::default();
        let roster = OnceLock::new();
        let calls =
            Arc::new(Self { store, clock, servers, max, longest, state, stop, tasks, avoided, roster });
        sweep::start(&calls, &calls.tasks, &calls.stop, loops);
        calls
    }

    /// Makes this process a node of a cluster: its notes name it.
    pub(crate) fn join(&self, roster: Roster) {
        drop(self.roster.set(roster));
    }

    /// Whether the next process, or another node, can read the notes.
    pub(crate) fn outlives_us(&self) -> bool {
        self.roster.get().is_some() || self.store.capabilities().durability != StoreDurability::Process
    }

    /// Stops the background tasks. The notes stay in the store.
    pub(crate) async fn stop(&self, within: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(within, self.tasks.wait()).await.is_err() {
            tracing::warn!(writes = self.tasks.len(), "notes of calls were still being written at shutdown");
        }
    }

    /// The fingerprint of the server behind an endpoint.
    pub(crate) fn fingerprint(&self, route: &Route) -> Option<&Fingerprint> {
        self.servers.at(route)
    }

    /// Notes a call of this owner at this endpoint, with the params that its server gets. `None` if that fails; the
    /// call then goes on without a note. `name` is the server's name, if it is known.
    ///
    /// # Cancel safety
    /// If it is dropped early, the note is removed in the background.
    pub(crate) async fn note(
        self: &Arc<Self>,
        call: &Arc<T>,
        (owner, route): (&Principal, &Route),
        request: Request,
        is_begun: bool,
        name: Option<String>,
    ) -> Option<Arc<CallNote<T>>> {
        let id = CallId::random(&request.id)?;
        let key = id.key(owner, route);
        let deadline = self.deadline(&request);
        {
            let mut state = self.state.lock();
            if state.noted.len() >= self.max {
                let now = self.clock.now();
                state.noted.retain(|_, expires| *expires > now);
            }
            if state.noted.len() >= self.max {
                tracing::debug!(limit = self.max, "a call is not noted: there are too many notes");
                return None;
            }
            state.noted.insert(key, deadline);
        }
        let server = self.fingerprint(route).map(|it| NotedServer { fingerprint: it.clone(), name });
        let head = CallHead::new(&request, route, is_begun, server.clone()).at(self.node());
        let note = Arc::clone(self).write_first(key, CallRecord::open(head).encode(), deadline);
        let version = match tokio::time::timeout(NOTE_WITHIN, finish(&self.tasks, note)).await {
            Ok(Ok(written)) => written.keep(),
            Ok(Err(error)) => {
                tracing::warn!(call = %record_key(key).label(), %error, "a call could not be noted; its client cannot come back for it");
                return None;
            }
            Err(_) => {
                tracing::warn!(call = %record_key(key).label(), "the store did not note a call in time; its client cannot come back for it");
                return None;
            }
        };
        Some(self.enter(call, (id, owner, route), request, (is_begun, server), version))
    }

    /// Enters a call whose note is in the store into the table of running calls, so that a client that comes back finds
    /// it.
    pub(crate) fn enter(
        self: &Arc<Self>,
        call: &Arc<T>,
        (id, owner, route): (CallId, &Principal, &Route),
        request: Request,
        (is_begun, server): (bool, Option<NotedServer>),
        version: Version,
    ) -> Arc<CallNote<T>> {
        let key = id.key(owner, route);
        let deadline = self.deadline(&request);
        let kept = Arc::new(CallNote {
            calls: Arc::clone(self),
            id,
            key,
            request,
            route: route.clone(),
            server,
            is_begun: AtomicBool::new(is_begun),
            version: Mutex::new(version),
            is_settled: AtomicBool::new(false),
            is_noted: CancellationToken::new(),
        });
        let mut state = self.state.lock();
        state.noted.insert(key, deadline);
        state.live.insert(key, (Arc::downgrade(call), Arc::downgrade(&kept)));
        drop(state);
        kept
    }

    /// Finds a call of this owner at this endpoint: running here, or noted in the store.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn find(
        &self,
        id: &CallId,
        owner: &Principal,
        route: &Route,
    ) -> Result<FoundCall<T>, Error> {
        let key = id.key(owner, route);
        // The table first: the note of a running call does not contain its current state.
        let live = self.state.lock().live.get(&key).cloned();
        if let Some((call, kept)) = live
            && let (Some(call), Some(kept)) = (call.upgrade(), kept.upgrade())
        {
            return Ok(FoundCall::Live(call, kept));
        }
        let unavailable = |error: StoreError| {
            Error::new(Reason::StoreUnavailable, "The store of calls is not available").caused_by(error)
        };
        let Some(record) = self.store.get(record_key(key)).await.map_err(unavailable)? else {
            return Ok(FoundCall::Nothing);
        };
        if record.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
            return Ok(FoundCall::Nothing);
        }
        match CallRecord::decode(&record.value) {
            Ok(call) if Route::from(call.head.route.as_deref()) == *route => {
                Ok(FoundCall::Noted(Box::new(Noted {
                    request: call.head.request(),
                    is_begun: call.head.begun,
                    node: call.head.node(),
                    server: call.head.server,
                    outcome: call.outcome,
                    version: record.version,
                })))
            }
            Ok(_) => Ok(FoundCall::Nothing),
            Err(error) if error.is_newer() => {
                let what = "The call was noted by a newer version of the server, which this node cannot read";
                Err(Error::new(Reason::StoreUnavailable, what).caused_by(error))
            }
            Err(error) => {
                tracing::error!(call = %record_key(key).label(), ?error, "the note of a call cannot be read");
                Ok(FoundCall::Nothing)
            }
        }
    }

    async fn write_first(
        self: Arc<Self>,
        key: SessionKey,
        value: Bytes,
        deadline: Time,
    ) -> Result<FirstNote<T>, StoreError> {
        let store = self.store.as_ref();
        let written = read_back::put(store, record_key(key), value, Expected::Absent, Some(deadline)).await;
        match written {
            Ok(version) => Ok(FirstNote { calls: self, key, version: Some(version) }),
            Err(error) => {
                self.state.lock().noted.remove(&key);
                Err(error)
            }
        }
    }

    /// The name of this node, as notes have it.
    fn node(&self) -> Option<String> {
        self.roster.get().map(|roster| roster.node().hex())
    }

    /// When the note of a running request expires: after that no client can come back for it.
    fn deadline(&self, request: &Request) -> Time {
        let longest = if request.method == Method::Listen { LISTEN } else { self.longest };
        self.until(longest + AFTER_END)
    }

    fn until(&self, time: Duration) -> Time {
        self.clock.now().after(time)
    }

    /// Spawns a write that no client waits for. Without a runtime the process is ending, and nothing is written.
    fn spawn(&self, write: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(write, &runtime);
        }
    }
}

/// The first note of a call in the store. If it is dropped without `keep`, its client never gets the event id, and the
/// note is removed.
struct FirstNote<T: Send + Sync + 'static> {
    calls: Arc<KeptCalls<T>>,
    key: SessionKey,
    version: Option<Version>,
}

impl<T: Send + Sync + 'static> FirstNote<T> {
    fn keep(mut self) -> Version {
        self.version.take().expect("it is kept once, with itself")
    }
}

impl<T: Send + Sync + 'static> Drop for FirstNote<T> {
    fn drop(&mut self) {
        let Some(version) = self.version.take() else { return };
        let (calls, key) = (Arc::clone(&self.calls), self.key);
        self.calls.spawn(async move {
            // If the removal fails, the note expires like any other.
            if remove(calls.store.as_ref(), record_key(key), version).await.is_ok() {
                calls.state.lock().noted.remove(&key);
            }
        });
    }
}

impl<T: Send + Sync + 'static> CallNote<T> {
    /// Notes that the call now goes to a server: for a call that was noted before any server saw it, and in a cluster for
    /// one that another node has left. Of two nodes that do so at the same time one fails.
    ///
    /// # Errors
    /// When the store does not write it: then the call must not be started.
    pub(crate) async fn begins(&self) -> Result<(), StoreError> {
        self.is_begun.store(true, Ordering::Release);
        let deadline = self.calls.deadline(&self.request);
        self.write(CallRecord::open(self.head()), deadline).await
    }

    /// Notes the answer. When this returns, a client that comes back finds it, unless the store failed.
    pub(crate) async fn answered(&self, outcome: Bytes) {
        if self.settle() {
            let deadline = self.calls.until(AFTER_END);
            self.end(CallRecord::ended(self.head(), outcome), deadline).await;
        }
    }

    /// The client closed the connection, which withdraws the call. If the connection only broke, the client comes back
    /// soon, so the note stays for a short time.
    pub(crate) fn withdrawn(self: &Arc<Self>) {
        if self.settle() {
            let kept = Arc::clone(self);
            self.calls.spawn(async move {
                let deadline = kept.calls.until(AFTER_END);
                kept.end(CallRecord::open(kept.head()), deadline).await;
            });
        }
    }

    /// Leaves the note unchanged, for the next process.
    pub(crate) fn left(&self) {
        if self.settle() {
            self.leave_table();
        }
    }

    /// Waits until the note contains the end of the attempt.
    pub(crate) async fn noted(&self) {
        drop(tokio::time::timeout(NOTE_WITHIN, self.is_noted.cancelled()).await);
    }

    fn head(&self) -> CallHead {
        let is_begun = self.is_begun.load(Ordering::Acquire);
        CallHead::new(&self.request, &self.route, is_begun, self.server.clone()).at(self.calls.node())
    }

    /// Whether the caller is the first to decide how the attempt ended.
    fn settle(&self) -> bool {
        !self.is_settled.swap(true, Ordering::AcqRel)
    }

    /// Called only after the note was written: before that, a client that comes back would find a note without an
    /// answer.
    fn leave_table(&self) {
        self.calls.state.lock().live.remove(&self.key);
        self.is_noted.cancel();
    }

    async fn end(&self, record: CallRecord, deadline: Time) {
        if let Err(error) = self.write(record, deadline).await {
            tracing::warn!(call = %record_key(self.key).label(), %error, "the end of a call could not be noted");
        }
        self.leave_table();
    }

    async fn write(&self, record: CallRecord, deadline: Time) -> Result<(), StoreError> {
        let expected = Expected::Version(*self.version.lock());
        let (store, key) = (self.calls.store.as_ref(), record_key(self.key));
        let version = read_back::put(store, key, record.encode(), expected, Some(deadline)).await?;
        *self.version.lock() = version;
        if let Some(expires) = self.calls.state.lock().noted.get_mut(&self.key) {
            *expires = deadline;
        }
        Ok(())
    }
}

impl<T: Send + Sync + 'static> Drop for CallNote<T> {
    fn drop(&mut self) {
        self.leave_table();
    }
}

fn record_key(key: SessionKey) -> RecordKey {
    RecordKey { space: Space::Call, key }
}

impl<T: Send + Sync + 'static> Swept for KeptCalls<T> {
    const SPACE: Space = Space::Call;
    const LOOP: &'static str = "sweep of kept calls";

    fn every(&self) -> Duration {
        SWEEP_EVERY
    }

    fn parts(&self) -> (&dyn Store, &dyn Clock, &Avoided<RecordKey>) {
        (self.store.as_ref(), self.clock.as_ref(), &self.avoided)
    }

    async fn handle(self: &Arc<Self>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
        let kept = self.store.get(key).await?;
        // A node that can read it knows what has to be done.
        if kept.is_some_and(|kept| CallRecord::decode(&kept.value).is_err_and(|error| error.is_newer())) {
            return Ok(false);
        }
        // A conflict means that its end was noted just now, with a later deadline.
        match remove(self.store.as_ref(), key, version).await {
            // Another node was faster.
            Ok(_) | Err(StoreError::Conflict { current: None }) => {}
            Err(error) => return Err(error),
        }
        self.state.lock().noted.remove(&key.key);
        Ok(true)
    }
}
