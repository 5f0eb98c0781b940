//! All sessions of a process: create, find, list.
//!
//! Owns everything that sessions share: the registry, the store, the backend, counters and background loops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::{Error, Reason, Request, Revision, message};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::{Backend, Open, Opening};
use crate::budget::Share;
use crate::call::{Fanout, Hub, NewsListener};
use crate::cluster::{Places, Roster};
use crate::counts::RecordCounter;
use crate::fingerprint::Fingerprints;
use crate::finish::finish;
use crate::id::{NodeId, Principal, Route, SessionId, SessionKey};
use crate::limits::Limits;
use crate::port::clock::{Clock, Time};
use crate::port::observer::{Happened, SessionObserver};
use crate::port::store::{RecordKey, Store, StoreError, Trouble};
use crate::rate::AddressRates;
use crate::session::create::CreateGuard;
use crate::session::deadline::{self, Deadlines, Due};
use crate::session::drain::{Creating, DrainStage, draining};
use crate::session::event_id::EventSecret;
use crate::session::link::not_started;
use crate::session::live_session::{Session, SessionInfo, SessionState};
use crate::session::news::{LastNews, Watchers};
use crate::session::other_server::Servers;
use crate::session::phase::Step;
use crate::session::registry::SessionRegistry;
use crate::session::settings::check_size;
use crate::session::share::SessionCharge;
use crate::session::unreleased::Unreleased;
use crate::session::use_guard::UseGuard;
use crate::session::wake::{self, Waking};
use crate::settings::Settings;
use crate::supervise::{Avoided, Loops};
use crate::sweep;

/// All sessions of a process, as one of its endpoints sees them. Cheap to clone.
#[derive(Clone)]
pub struct Sessions(pub(super) Arc<SessionRuntime>, pub(super) Route);

pub(super) struct SessionRuntime {
    pub(super) live: SessionRegistry,
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    /// The name of this process as an owner of sessions, if it is in no cluster.
    pub(super) node: NodeId,
    pub(super) roster: Option<Roster>,
    pub(super) places: Places,
    /// In a cluster: sessions that are to be given back.
    pub(super) unreleased: Unreleased,
    pub(super) tasks: TaskTracker,
    /// Tasks that close links. Separate from `tasks`, because a server may be slow to exit, and closing the store does
    /// not have to wait for it.
    pub(super) closing: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) loops: Loops,
    /// Records at which the sweep panicked.
    pub(super) avoided: Avoided<RecordKey>,
    /// How far the shutdown is; a [`DrainStage`].
    pub(super) stage: AtomicU8,
    /// The next process is running and has the socket.
    pub(super) is_handed_over: AtomicBool,
    /// Tools that may be called twice, by endpoint and owner, from servers that were asked during a shutdown.
    pub(super) safe_tools: Mutex<HashMap<(Route, Principal), Vec<String>, RandomState>>,
    /// Number of sessions that are being created.
    pub(super) creating: AtomicUsize,
    /// Notified when a request that the shutdown waits for may have ended.
    pub(super) idle: Notify,
    pub(super) counts: Arc<RecordCounter>,
    pub(super) deadlines: Deadlines,
    pub(super) servers: Servers,
    pub(super) hub: Arc<Hub>,
    pub(super) watchers: Watchers,
    pub(super) waking: Waking,
    /// A permit for each wake that may run: after the loss of a node, thousands of sessions are requested at once.
    pub(super) wakes: Semaphore,
    pub(super) news: LastNews,
    /// Tombstones, oldest first, each with its expiry time.
    pub(super) tombstones: Mutex<VecDeque<(Time, SessionKey)>>,
    created: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) woken: AtomicU64,
    /// How often a client address may begin a session; any number of times, if it is not set.
    addresses: OnceLock<AddressRates>,
}

/// The parts of the runtime.
#[expect(missing_debug_implementations, reason = "its parts are ports without one")]
pub struct SessionParts {
    /// Keeps records and event logs.
    pub store: Arc<dyn Store>,
    /// Opens links to servers.
    pub backend: Arc<dyn Backend>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Bounds and timeouts.
    pub limits: Limits,
    /// The nodes that share the store; `None` if this process is the only one.
    pub roster: Option<Roster>,
}

/// A new session, and the response for its client.
#[derive(Debug)]
pub struct Created {
    /// The session; `None` if the server refused. The answer then says why.
    pub session: Option<Arc<Session>>,
    /// The response to `initialize`.
    pub answer: Bytes,
    /// Keeps the session from expiring before its client has the response, or longer if the caller keeps it.
    pub in_use: Option<UseGuard>,
}

/// Numbers of sessions, now and since the start.
#[derive(Clone, Copy, Debug)]
pub struct Tallies {
    /// Sessions now, awake and dormant.
    pub sessions: usize,
    /// Sessions in memory now.
    pub awake: usize,
    /// How often a dormant session was woken since the start.
    pub woken: u64,
    /// Sessions created since the start.
    pub created: u64,
    /// Sessions ended since the start.
    pub ended: u64,
}

#[derive(Deserialize)]
pub(super) struct Versioned {
    #[serde(rename = "protocolVersion")]
    pub(super) protocol_version: String,
}

impl Sessions {
    /// Starts the runtime. Must be called within a tokio runtime.
    pub fn start(parts: SessionParts) -> Self {
        Self::start_with_servers(parts, Fingerprints::default())
    }

    /// As [`Sessions::start`], with the fingerprints of the servers, so that waking a session with a different server
    /// is noticed. Must be called within a tokio runtime.
    pub fn start_with_servers(parts: SessionParts, servers: Fingerprints) -> Self {
        let wakes = parts.limits.max_parallel_wakes.clamp(1, Semaphore::MAX_PERMITS);
        let inner = Arc::new(SessionRuntime {
            live: SessionRegistry::new(),
            store: parts.store,
            backend: parts.backend,
            clock: parts.clock,
            limits: parts.limits,
            node: NodeId::random(),
            roster: parts.roster,
            places: Places::default(),
            unreleased: Unreleased::default(),
            tasks: TaskTracker::new(),
            closing: TaskTracker::new(),
            stop: CancellationToken::new(),
            loops: Loops::default(),
            avoided: Avoided::default(),
            stage: AtomicU8::new(DrainStage::Open as u8),
            is_handed_over: AtomicBool::new(false),
            safe_tools: Mutex::default(),
            creating: AtomicUsize::new(0),
            idle: Notify::new(),
            counts: Arc::default(),
            deadlines: Deadlines::default(),
            servers: Servers::new(servers),
            hub: Arc::default(),
            watchers: Watchers::default(),
            waking: Waking::default(),
            wakes: Semaphore::new(wakes),
            news: LastNews::default(),
            tombstones: Mutex::default(),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            woken: AtomicU64::new(0),
            addresses: OnceLock::new(),
        });
        let listener = Arc::downgrade(&inner);
        inner.hub.add(listener);
        let (stop, watched) = (inner.stop.clone(), Arc::clone(&inner));
        let watch = move || deadline::watch(Arc::clone(&watched));
        inner.tasks.spawn(inner.loops.keep("deadlines of sessions", stop, watch));
        sweep::start(&inner, &inner.tasks, &inner.stop, &inner.loops);
        inner.watch_cluster();
        Self(inner, Route::MAIN)
    }

    /// Limits how often a client address may begin a session. Called once, before the first one begins.
    #[must_use]
    pub fn with_addresses(self, rates: AddressRates) -> Self {
        drop(self.0.addresses.set(rates));
        self
    }

    /// The limits for client addresses, if there are any.
    pub fn addresses(&self) -> Option<&AddressRates> {
        self.0.addresses.get()
    }

    /// The sessions of another endpoint: it creates its own, and finds only those.
    #[must_use]
    pub fn on(&self, route: Route) -> Self {
        Self(Arc::clone(&self.0), route)
    }

    /// Creates a session from an `initialize` request.
    ///
    /// # Errors
    /// When a limit is reached, the params are invalid, or the store fails. A refusal by the server is not an error
    /// here: its answer is passed on.
    ///
    /// # Cancel safety
    /// If the future is dropped early, nothing remains: a starting server is closed at once, and a started write is
    /// finished and undone in the background.
    pub async fn create(&self, request: Request, principal: &Principal) -> Result<Created, Error> {
        self.create_as(SessionId::random(), request, principal, None).await
    }

    /// As [`Sessions::create`], and charges the session to the client's share.
    ///
    /// # Errors
    /// As for `create`, and when the client's share is used up.
    ///
    /// # Cancel safety
    /// As for `create`.
    pub async fn create_within(
        &self,
        share: Share,
        request: Request,
        principal: &Principal,
    ) -> Result<Created, Error> {
        self.create_as(SessionId::random(), request, principal, Some(share)).await
    }

    /// As [`Sessions::create`], under an id that was drawn earlier and is known only to its owner: for connections
    /// that name their session before it exists.
    ///
    /// # Errors
    /// As for `create`.
    ///
    /// # Cancel safety
    /// As for `create`.
    pub async fn create_as(
        &self,
        id: SessionId,
        request: Request,
        principal: &Principal,
        share: Option<Share>,
    ) -> Result<Created, Error> {
        self.create_with(id, request, principal, share, Settings::default()).await
    }

    /// As [`Sessions::create_as`], with metadata and the session's own idle time from the start.
    ///
    /// # Errors
    /// As for `create`, and when the metadata are too large.
    ///
    /// # Cancel safety
    /// As for `create`.
    pub async fn create_with(
        &self,
        id: SessionId,
        request: Request,
        principal: &Principal,
        share: Option<Share>,
        settings: Settings,
    ) -> Result<Created, Error> {
        if let (Some(rates), Some(share)) = (self.addresses(), &share) {
            rates.begin(share.peer())?;
        }
        self.open_new(id, request, principal, share, settings).await
    }

    /// As [`Sessions::create_within`], for a session that ends with its only request. It is not counted among the sessions that an
    /// address begins, because its client does not know that it begins one.
    ///
    /// # Errors
    /// As for `create_within`.
    ///
    /// # Cancel safety
    /// As for `create`.
    pub async fn create_briefly(
        &self,
        share: Share,
        request: Request,
        principal: &Principal,
    ) -> Result<Created, Error> {
        self.open_new(SessionId::random(), request, principal, Some(share), Settings::default()).await
    }

    async fn open_new(
        &self,
        id: SessionId,
        request: Request,
        principal: &Principal,
        share: Option<Share>,
        settings: Settings,
    ) -> Result<Created, Error> {
        let inner = &self.0;
        check_size(&settings.metadata, &inner.limits)?;
        // Increment before reading the stage, so that a shutdown that sets the stage and then reads the count sees it.
        let _creating = Creating::begin(inner);
        if inner.stage() >= DrainStage::Draining {
            return Err(draining());
        }
        // Copied, because the session keeps it: a slice would keep the whole network buffer alive.
        let params = request.params.ok_or_else(|| bad_initialize("params are missing"))?.detached();
        let asked: Versioned =
            params.read().map_err(|error| bad_initialize("protocolVersion is missing").caused_by(error))?;
        let limit = inner.limits.max_initialize_bytes;
        if params.bytes().len() > limit {
            return Err(bad_initialize("the params are too large").with("limit", limit));
        }
        let revision = Revision::negotiate(&asked.protocol_version);
        let count_guard = inner.counts.take(id.key(), principal, &inner.limits)?;
        let charge = share.map(|share| SessionCharge::take(&share, params.bytes().len())).transpose()?;
        inner.confirmed().await?;
        let claim = finish(&inner.tasks, CreateGuard::claim(Arc::clone(inner), id.key()));
        let (mut guard, claimed) = claim.await.map_err(store_failed)?;
        let mut state = SessionState { settings, ..SessionState::new(params.clone(), revision, count_guard) };
        state.charge_to(charge);
        let now = inner.clock.now();
        let belongs = (principal.clone(), self.1.clone());
        let secret = Some(EventSecret::random());
        let session = Session::new(Arc::clone(inner), (id, secret), belongs, claimed, now, state);
        session.wait_for_client();
        guard.attach(&session);
        let open = Open {
            params,
            revision,
            opening: Opening::Fresh,
            route: self.1.clone(),
            outlet: session.next_outlet(),
            fanout: self.fanout(),
        };
        let result = match inner.open_link(&session, open).await {
            Ok((result, revision)) => {
                session.state.lock().revision = revision;
                result
            }
            // Our own limit, not an answer of the server.
            Err(error) if error.is(Reason::TooManyProcesses) => return Err(not_started(error)),
            Err(error) => {
                tracing::warn!(session = %session.label, %error, "the backend refused initialize");
                return Ok(Created {
                    session: None,
                    answer: message::write_error(Some(&request.id), &error),
                    in_use: None,
                });
            }
        };
        let (value, deadline) = {
            // The server's start-up time does not count as idle time of the client.
            session.used_now();
            let mut state = session.state.lock();
            state.initialize_result = result.clone();
            state.heard_at = session.hears_at();
            state.step(Step::InitializeAnswered, inner.limits.gate);
            session.record(&state, &state.settings)
        };
        let write = finish(&inner.tasks, guard.write(value, deadline));
        let (guard, version) = write.await.map_err(store_failed)?;
        // No await follows, so the future cannot be dropped from here on.
        guard.commit();
        // Before the session can be found and expire.
        let in_use = Some(session.in_use());
        inner.live.insert(id, Arc::clone(&session));
        {
            // Schedule again: an entry from the handshake may have come up before the session was in the registry.
            let mut state = session.state.lock();
            state.version = version;
            if let Some(due) = state.due.take() {
                inner.deadlines.remove(due, Due::Session(id));
            }
        }
        session.used_now();
        session.schedule(&mut session.state.lock(), inner.clock.now());
        session.check_term();
        inner.created.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %session.label, revision = %session.revision(), "session created");
        // Only then, because the name has to be parsed.
        if inner.hub.observer.is_set() {
            session.tell_observer(Happened::Created { client: session.client_name() });
        }
        let answer = message::write_result(&request.id, &result);
        Ok(Created { session: Some(session), answer, in_use })
    }

    /// Finds a session of this principal by its id, and wakes it if it is dormant. In a cluster another node may take
    /// it in the same moment: then this fails for now, and [`Sessions::place`] says where it is.
    ///
    /// # Errors
    /// When there is no such session; a session of another principal looks exactly like one that never existed. If it
    /// belonged to this principal and has ended, the error says how. A session that cannot be woken stays as it is.
    ///
    /// # Cancel safety
    /// The wake goes on in its own task.
    pub async fn find(&self, id: &SessionId, principal: &Principal) -> Result<Arc<Session>, Error> {
        self.find_within(|| None, id, principal).await
    }

    /// As [`Sessions::find`], and charges a session that has to be woken to the client's share. `share` is called only
    /// then.
    ///
    /// # Errors
    /// As for `find`, and when the session is dormant and the client's share is used up.
    ///
    /// # Cancel safety
    /// As for `find`.
    pub async fn find_within(
        &self,
        share: impl FnOnce() -> Option<Share>,
        id: &SessionId,
        principal: &Principal,
    ) -> Result<Arc<Session>, Error> {
        match self.0.awake(id) {
            Some(session) if session.is_of(principal, &self.1) => Ok(session),
            Some(_) => Err(Box::pin(wake::not_theirs(&self.0, id.key())).await),
            // Boxed, so that the future of the frequent case stays small.
            None => Box::pin(wake::find(&self.0, *id, principal, &self.1, share())).await,
        }
    }

    /// A session of this principal that is in memory. Any other one has to be [found](Self::find).
    pub fn live(&self, id: &SessionId, principal: &Principal) -> Option<Arc<Session>> {
        self.0.awake(id).filter(|session| session.is_of(principal, &self.1))
    }

    /// Every session in memory, oldest first.
    pub fn list(&self) -> Vec<SessionInfo> {
        let live = self.0.live.all();
        let alive = live.iter().filter(|session| session.state.lock().end.is_none());
        let mut list: Vec<_> = alive.map(|session| session.info()).collect();
        list.sort_by_key(|info| (info.created, info.key));
        list
    }

    /// Numbers of sessions, now and since the start.
    pub fn tallies(&self) -> Tallies {
        Tallies {
            sessions: self.0.counts.total(),
            awake: self.0.live.count(),
            woken: self.0.woken.load(Ordering::Relaxed),
            created: self.0.created.load(Ordering::Relaxed),
            ended: self.0.ended.load(Ordering::Relaxed),
        }
    }

    /// Tells this observer what happens to sessions and exchanges. Called once, before the first request.
    pub fn observed_by(&self, observer: Arc<dyn SessionObserver>) {
        self.0.hub.observer.set(observer);
    }

    /// The endpoint.
    pub fn route(&self) -> &Route {
        &self.1
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Sends notifications to all sessions of this endpoint.
    pub fn fanout(&self) -> Fanout {
        Fanout::within(Arc::clone(&self.0.hub), self.1.clone())
    }

    /// Tells the news of servers in this process to the other nodes of a cluster too. Called once.
    pub fn tell_peers(&self, peers: Arc<dyn NewsListener>) {
        self.0.hub.tell_peers(peers);
    }

    /// The current problem of the store, if there is one.
    pub fn store_trouble(&self) -> Option<Trouble> {
        self.0.store.trouble()
    }

    /// The background loops, including those that other parts of the process have added.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// Whether new sessions are accepted.
    pub fn is_ready(&self) -> bool {
        self.0.stage() < DrainStage::Draining
    }
}

fn bad_initialize(what: &'static str) -> Error {
    Error::new(Reason::InvalidParams, format!("initialize: {what}"))
}

pub(super) fn store_failed(error: StoreError) -> Error {
    Error::new(Reason::StoreUnavailable, "The session store is not available").caused_by(error)
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("tallies", &self.tallies()).finish()
    }
}
