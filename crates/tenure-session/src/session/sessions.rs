//! All sessions of a process: create, find, list, end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::{Error, Reason, Request, Revision, message};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::{Backend, Open, Opening};
use crate::budget::Share;
use crate::call::{Fanout, Hub};
use crate::counts::Census;
use crate::fingerprint::Fingerprints;
use crate::finish::finish;
use crate::id::{NodeId, Principal, Route, SessionId, SessionKey};
use crate::limits::Limits;
use crate::port::clock::{Clock, Time};
use crate::port::store::{RecordKey, Store, StoreError, Trouble};
use crate::session::create::Unborn;
use crate::session::deadline::{self, Deadlines, Due};
use crate::session::drain::{Creating, Stage, draining};
use crate::session::event_id::EventSecret;
use crate::session::link::not_started;
use crate::session::news::{LastNews, Watchers};
use crate::session::other_server::Servers;
use crate::session::phase::Step;
use crate::session::registry::Live;
use crate::session::session::{Session, SessionInfo, State, unknown_error};
use crate::session::settings::{Settings, check_size};
use crate::session::share::Held;
use crate::session::sweep;
use crate::session::wake::{self, Waking};
use crate::supervise::{Avoided, Loops};

/// All sessions of a process, as one of its endpoints sees them. Cheap to clone.
#[derive(Clone)]
pub struct Sessions(pub(super) Arc<Inner>, pub(super) Route);

pub(super) struct Inner {
    pub(super) live: Live,
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    pub(super) node: NodeId,
    pub(super) tasks: TaskTracker,
    /// Links that are being closed. Apart from `tasks`, because a server may take its time to leave, and the store need
    /// not wait for it.
    pub(super) closing: TaskTracker,
    pub(super) stop: CancellationToken,
    loops: Loops,
    /// Records that the sweep panicked at.
    pub(super) avoided: Avoided<RecordKey>,
    /// How far the way down has been gone; a [`Stage`].
    pub(super) stage: AtomicU8,
    /// The next process is there already, and has the socket.
    pub(super) is_handed_over: AtomicBool,
    /// Tools that may be called twice, as far as servers were asked because of a stop, by endpoint and caller.
    pub(super) safe_tools: Mutex<HashMap<(Route, Principal), Vec<String>, RandomState>>,
    /// Sessions that are being created.
    pub(super) creating: AtomicUsize,
    /// Woken when something may have ended that a stop waits for.
    pub(super) idle: Notify,
    pub(super) census: Arc<Census>,
    pub(super) deadlines: Deadlines,
    pub(super) servers: Servers,
    pub(super) hub: Arc<Hub>,
    pub(super) watchers: Watchers,
    pub(super) waking: Waking,
    pub(super) news: LastNews,
    /// Ends that are remembered, oldest first, each with the time when it is forgotten.
    pub(super) tombstones: Mutex<VecDeque<(Time, SessionKey)>>,
    created: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) woken: AtomicU64,
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
    pub fn start(parts: Parts) -> Self {
        Self::start_with_servers(parts, Fingerprints::default())
    }

    /// As [`Sessions::start`], with the fingerprints of the servers behind, so that no session is woken at another
    /// server than its own unnoticed. Must be called within a tokio runtime.
    pub fn start_with_servers(parts: Parts, servers: Fingerprints) -> Self {
        let inner = Arc::new(Inner {
            live: Live::new(),
            store: parts.store,
            backend: parts.backend,
            clock: parts.clock,
            limits: parts.limits,
            node: NodeId::random(),
            tasks: TaskTracker::new(),
            closing: TaskTracker::new(),
            stop: CancellationToken::new(),
            loops: Loops::default(),
            avoided: Avoided::default(),
            stage: AtomicU8::new(Stage::Open as u8),
            is_handed_over: AtomicBool::new(false),
            safe_tools: Mutex::default(),
            creating: AtomicUsize::new(0),
            idle: Notify::new(),
            census: Arc::default(),
            deadlines: Deadlines::default(),
            servers: Servers::new(servers),
            hub: Arc::default(),
            watchers: Watchers::default(),
            waking: Waking::default(),
            news: LastNews::default(),
            tombstones: Mutex::default(),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            woken: AtomicU64::new(0),
        });
        let listener = Arc::downgrade(&inner);
        inner.hub.add(listener);
        let (stop, watched, swept) = (inner.stop.clone(), Arc::clone(&inner), Arc::clone(&inner));
        let watch = move || deadline::watch(Arc::clone(&watched));
        inner.tasks.spawn(inner.loops.keep("deadlines of sessions", stop.clone(), watch));
        let sweep = move || sweep::run(Arc::clone(&swept));
        inner.tasks.spawn(inner.loops.keep("sweep of sessions", stop, sweep));
        Self(inner, Route::MAIN)
    }

    /// The same sessions as another endpoint sees them: it begins sessions of its own, and finds no others.
    #[must_use]
    pub fn on(&self, route: Route) -> Self {
        Self(Arc::clone(&self.0), route)
    }

    /// Creates a session from an `initialize` request.
    ///
    /// # Errors
    /// When a limit is reached, the params make no sense, or the store fails. A server that refuses is
    /// not an error here: its answer is passed on.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves nothing behind: a server that is being started is let go at once, a write
    /// that was begun is finished and taken back in the background.
    pub async fn create(&self, request: Request, principal: &Principal) -> Result<Created, Error> {
        self.create_as(SessionId::random(), request, principal, None).await
    }

    /// As [`Sessions::create`], for a client whose share of what the server holds is counted.
    ///
    /// # Errors
    /// As for `create`, and when the client holds as much as it may.
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

    /// As [`Sessions::create`], under an id that was drawn before and told to nobody but its owner: for connections
    /// that name their session before it is there.
    ///
    /// # Errors
    /// As for `create`.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves nothing behind: a server that is being started is let go at once, a write
    /// that was begun is finished and taken back in the background.
    pub async fn create_as(
        &self,
        id: SessionId,
        request: Request,
        principal: &Principal,
        share: Option<Share>,
    ) -> Result<Created, Error> {
        self.create_with(id, request, principal, share, Settings::default()).await
    }

    /// As [`Sessions::create_as`], with metadata and an idle time of its own from the beginning.
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
        let inner = &self.0;
        check_size(&settings.metadata, &inner.limits)?;
        // Counted before the stage is read, so that a stop that sets the stage and then counts misses none.
        let _creating = Creating::begin(inner);
        if inner.stage() >= Stage::Draining {
            return Err(draining());
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
        let seat = inner.census.take(id.key(), principal, &inner.limits)?;
        let held = share.map(|share| Held::take(&share, params.bytes().len())).transpose()?;
        let claim = finish(&inner.tasks, Unborn::claim(Arc::clone(inner), id.key()));
        let (mut unborn, epoch) = claim.await.map_err(store_failed)?;
        let mut state = State { settings, ..State::new(params.clone(), revision, seat) };
        state.is_held_by(held);
        let now = inner.clock.now();
        let belongs = (principal.clone(), self.1.clone());
        let secret = Some(EventSecret::random());
        let session = Session::new(Arc::clone(inner), (id, secret), belongs, epoch, now, state);
        session.wait_for_client();
        unborn.becomes(&session);
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
            // A limit of ours, not an answer of the server's.
            Err(error) if error.is(Reason::TooManyProcesses) => return Err(not_started(error)),
            Err(error) => {
                tracing::warn!(session = %session.label, %error, "the backend refused initialize");
                return Ok(Created {
                    session: None,
                    answer: message::write_error(Some(&request.id), &error),
                });
            }
        };
        let (value, deadline) = {
            // The time that the server took is not the client's.
            session.used_now();
            let mut state = session.state.lock();
            state.initialize_result = result.clone();
            state.step(Step::InitializeAnswered, inner.limits.gate);
            session.record(&state, &state.settings)
        };
        let write = finish(&inner.tasks, unborn.write(value, deadline));
        let (unborn, version) = write.await.map_err(store_failed)?;
        // Nothing is waited for from here on, so the caller can leave no more.
        unborn.born();
        inner.live.insert(id, Arc::clone(&session));
        {
            // Anew, because an entry from during the handshake may have come up before the session was live.
            let mut state = session.state.lock();
            state.version = version;
            if let Some(due) = state.due.take() {
                inner.deadlines.remove(due, Due::Session(id));
            }
        }
        session.used_now();
        session.schedule(&mut session.state.lock(), inner.clock.now());
        inner.created.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %session.label, revision = %session.revision(), "session created");
        let answer = message::write_result(&request.id, &result);
        Ok(Created { session: Some(session), answer })
    }

    /// Finds a session of the caller's by its id, and wakes it if it is dormant.
    ///
    /// # Errors
    /// When there is none; a session of somebody else's looks exactly like one that never was. When it
    /// was the caller's and has ended, the error says how. When it could not be woken it stays as it is.
    ///
    /// # Cancel safety
    /// A session that is being woken goes on being woken.
    pub async fn find(&self, id: &SessionId, principal: &Principal) -> Result<Arc<Session>, Error> {
        self.find_within(|| None, id, principal).await
    }

    /// As [`Sessions::find`], for a client whose share of what the server holds is counted: a session that it wakes is
    /// charged to it. The share is asked for only then.
    ///
    /// # Errors
    /// As for `find`, and when the session is dormant and the client holds as much as it may.
    ///
    /// # Cancel safety
    /// As for `find`.
    pub async fn find_within(
        &self,
        share: impl FnOnce() -> Option<Share>,
        id: &SessionId,
        principal: &Principal,
    ) -> Result<Arc<Session>, Error> {
        match self.0.live.get(id) {
            Some(session) if session.is_of(principal, &self.1) => Ok(session),
            Some(_) => Err(unknown_error()),
            // Boxed, so that the frequent case carries no room for this one.
            None => Box::pin(wake::find(&self.0, *id, principal, &self.1, share())).await,
        }
    }

    /// Every session in memory, oldest first.
    pub fn list(&self) -> Vec<SessionInfo> {
        let live = self.0.live.all();
        let alive = live.iter().filter(|session| session.state.lock().end.is_none());
        let mut list: Vec<_> = alive.map(|session| session.info()).collect();
        list.sort_by_key(|info| (info.created, info.key));
        list
    }

    /// How many there are, and were.
    pub fn tallies(&self) -> Tallies {
        Tallies {
            sessions: self.0.census.total(),
            awake: self.0.live.count(),
            woken: self.0.woken.load(Ordering::Relaxed),
            created: self.0.created.load(Ordering::Relaxed),
            ended: self.0.ended.load(Ordering::Relaxed),
        }
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Tells all sessions of this endpoint something.
    pub fn fanout(&self) -> Fanout {
        Fanout::within(Arc::clone(&self.0.hub), self.1.clone())
    }

    /// What is wrong with the store right now.
    pub fn store_trouble(&self) -> Option<Trouble> {
        self.0.store.trouble()
    }

    /// The loops of this process, with those of the parts that were included.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// Whether new work is taken.
    pub fn is_ready(&self) -> bool {
        self.0.stage() < Stage::Draining
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
