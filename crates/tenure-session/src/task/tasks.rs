//! All tasks: begun, found, answered, ended.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::json::object;
use tenure_protocol::translate::tasks::Status;
use tenure_protocol::{Error, RawJson, Reason, RpcError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::live::Live;
use super::record::{End, Head, TaskRecord, Unreadable};
use super::watch::Watchers;
use super::{TaskId, TaskLimits, sweep};
use crate::call::TaskWish;
use crate::counts::{Census, Seat};
use crate::finish::finish;
use crate::id::{Principal, Route, SessionKey};
use crate::kept::Server;
use crate::port::clock::Clock;
use crate::port::store::{Expected, RecordKey, Space, Store, StoreError, Version};
use crate::supervise::{Avoided, Loops};
use crate::take_back::{Written, take_back};

/// What a client has to wait for at most until its cancellation is in the store.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// How long the store may take to answer what was asked of it before the end.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How soon an end is written again that the store did not take, and how late at most.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_LAST: Duration = Duration::from_secs(5);

/// All tasks of a store. Cheap to clone.
#[derive(Clone)]
pub struct Tasks(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) me: Weak<Self>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: TaskLimits,
    pub(super) census: Arc<Census>,
    /// Those that are being carried out, until their end is in the store.
    pub(super) live: Mutex<HashMap<SessionKey, Arc<Live>>>,
    pub(super) watchers: Watchers,
    pub(super) stop: CancellationToken,
    tasks: TaskTracker,
    loops: Loops,
    /// Records that the sweep panicked at.
    pub(super) avoided: Avoided<RecordKey>,
    pub(super) carry_on: OnceLock<CarryOn>,
}

/// Carries out the call of a task that another process left.
pub(super) type CarryOn = Box<dyn Fn(Arc<Live>) + Send + Sync>;

/// The call that becomes a task.
#[derive(Debug)]
pub(crate) struct TaskCall {
    pub(crate) tool: String,
    /// Its params, if another process may carry it out.
    pub(crate) params: Option<RawJson>,
    /// The server that carries it out, as far as that is known.
    pub(crate) server: Option<Server>,
}

/// Whose task it is, and at which endpoint. To everybody else it looks like one that never was.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    pub(crate) owner: Principal,
    pub(crate) route: Route,
}

/// What there is of a task.
pub(super) enum Found {
    /// It is being carried out.
    Live(Arc<Live>),
    /// It has ended.
    Kept(Box<TaskRecord>),
}

impl Tasks {
    /// Starts to keep tasks. Must be called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: TaskLimits) -> Self {
        let inner = Arc::new_cyclic(|me| Inner {
            me: Weak::clone(me),
            store,
            clock,
            limits,
            census: Arc::default(),
            live: Mutex::default(),
            watchers: Watchers::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            loops: Loops::default(),
            avoided: Avoided::default(),
            carry_on: OnceLock::new(),
        });
        let (swept, stop) = (Arc::downgrade(&inner), inner.stop.clone());
        let sweep = move || sweep::run(Weak::clone(&swept), stop.clone());
        inner.tasks.spawn(inner.loops.keep("sweep of tasks", inner.stop.clone(), sweep));
        Self(inner)
    }

    /// Stops what runs in the background; the tasks stay where they are. A store that does not answer is left to the end
    /// of the process.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(STOP_WITHIN, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(writes = self.0.tasks.len(), "the store of tasks did not answer before the end");
        }
    }

    /// What runs in the background.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// The bounds in force.
    pub fn limits(&self) -> &TaskLimits {
        &self.0.limits
    }

    /// How many there are, those that have ended and are kept among them.
    pub fn count(&self) -> usize {
        self.0.census.total()
    }

    /// How many are being carried out.
    pub fn live(&self) -> usize {
        self.0.live.lock().len()
    }

    /// Begins a task: when this returns, it is in the store.
    ///
    /// # Errors
    /// When a limit is reached or the store fails.
    ///
    /// # Cancel safety
    /// Dropped early it leaves nothing behind.
    pub(crate) async fn begin(&self, whose: Whose, call: TaskCall, wish: TaskWish) -> Result<Begun, Error> {
        // To its end, because only then it is known whether there is a task. If the caller has left, the task is
        // dropped, and so forgotten.
        finish(&self.0.tasks, Arc::clone(&self.0).begin(whose, call, wish)).await
    }

    /// Says who carries out the call of a task whose process has ended, from its beginning or to its end. Said once.
    pub(crate) fn carried_on_by(&self, carry_on: impl Fn(Arc<Live>) + Send + Sync + 'static) {
        drop(self.0.carry_on.set(Box::new(carry_on)));
    }

    /// Answers `tasks/get`.
    ///
    /// # Errors
    /// When there is no such task of the caller's, or the store fails.
    pub(crate) async fn get(&self, whose: &Whose, id: &str) -> Result<RawJson, Error> {
        self.0.get(whose, TaskId::parse(id).ok_or_else(not_found)?).await
    }

    /// Answers `tasks/update`.
    ///
    /// # Errors
    /// When there is no such task of the caller's, or the store fails.
    pub(crate) async fn update(&self, whose: &Whose, id: &str, responses: &RawJson) -> Result<(), Error> {
        match self.0.find(whose, TaskId::parse(id).ok_or_else(not_found)?).await? {
            Found::Live(live) => live.update(responses),
            // It has ended, and wants to know nothing any more.
            Found::Kept(_) => {}
        }
        Ok(())
    }

    /// Answers `tasks/cancel`: when this returns, the task has ended in one way or another.
    ///
    /// # Errors
    /// When there is no such task of the caller's, or the store fails.
    ///
    /// # Cancel safety
    /// A task that was told to end ends.
    pub(crate) async fn cancel(&self, whose: &Whose, id: &str) -> Result<(), Error> {
        let Found::Live(live) = self.0.find(whose, TaskId::parse(id).ok_or_else(not_found)?).await? else {
            return Ok(());
        };
        live.cancel();
        let saved = tokio::time::timeout(CANCEL_WITHIN, live.saved.cancelled()).await;
        saved.map_err(|_| {
            Error::new(
                Reason::StoreUnavailable,
                "The task is being cancelled, but that could not be kept yet",
            )
        })
    }

    /// Ends a task: when this returns, its end is in the store and its client may know of it. Tries until it works, it
    /// turns out that it never will, or the process stops.
    pub(crate) async fn settle(&self, live: &Arc<Live>, end: End) {
        let limit = self.0.limits.max_outcome_bytes;
        let end = match end {
            End::Completed(result) if result.bytes().len() > limit => End::Failed(too_large(limit)),
            End::Failed(error) if error.raw().bytes().len() > limit => End::Failed(too_large(limit)),
            end => end,
        };
        if live.decide(end) {
            self.0.save(live).await;
        }
    }
}

impl Inner {
    async fn begin(self: Arc<Self>, whose: Whose, call: TaskCall, wish: TaskWish) -> Result<Begun, Error> {
        let limits = &self.limits;
        let id = TaskId::random();
        let key = id.key(&whose.owner, &whose.route);
        let (max, per_principal) = (limits.max, limits.max_per_principal);
        let seat = self.census.try_take(key, &whose.owner, max, per_principal).map_err(|_| {
            Error::new(Reason::TooManyTasks, "There are as many tasks as there may be")
                .with("limit", max.min(per_principal))
        })?;
        let now = self.clock.now();
        // A task of no time could not be found even once.
        let ttl = wish.ttl.unwrap_or(limits.max_ttl).min(limits.max_ttl).max(Duration::from_secs(1));
        let head = Head {
            owner: whose.owner.name().map(str::to_owned),
            route: whose.route.name().map(str::to_owned),
            tool: call.tool,
            created: now.0,
            updated: now.0,
            ttl_ms: millis(ttl),
            poll_ms: millis(wish.poll.unwrap_or(limits.poll)),
            status: Status::Working,
            params: call.params.map(|params| object::text(&params).to_owned()),
            server: call.server,
        };
        let record = TaskRecord::begun(head.clone());
        let (value, deadline) = (record.encode(), Some(head.expires()));
        let version = match self.store.put(record_key(key), value.clone(), Expected::Absent, deadline).await {
            Ok(version) => version,
            // The name is nobody else's, so what is there is ours.
            Err(StoreError::Unknown) => match self.store.get(record_key(key)).await {
                Ok(Some(kept)) => kept.version,
                Ok(None) => return Err(unavailable(StoreError::Unknown)),
                Err(error) => {
                    self.take_back(key, Written::Perhaps(value), seat);
                    return Err(unavailable(error));
                }
            },
            Err(error) => return Err(unavailable(error)),
        };
        seat.keep();
        tracing::debug!(task = %label(key), tool = %head.tool, "task begun");
        let live = Arc::new(Live::new(id, key, head, version, Weak::clone(&self.me)));
        self.live.lock().insert(key, Arc::clone(&live));
        Ok(Begun { tasks: self, live: Some(live) })
    }

    pub(super) async fn get(&self, whose: &Whose, id: TaskId) -> Result<RawJson, Error> {
        Ok(match self.find(whose, id).await? {
            Found::Live(live) => live.view(),
            Found::Kept(record) => record.write(&id),
        })
    }

    /// What there is of a task of that owner at that endpoint.
    pub(super) async fn find(&self, whose: &Whose, id: TaskId) -> Result<Found, Error> {
        let key = id.key(&whose.owner, &whose.route);
        // Before the store is asked: a task stays here until its end is there.
        if let Some(live) = self.live.lock().get(&key).cloned() {
            return Ok(Found::Live(live));
        }
        self.wake(whose, id, key).await
    }

    /// Writes down how a task ended. Tries until it works, it turns out that it never will, or the process stops.
    async fn save(&self, live: &Arc<Live>) {
        let (mut version, mut again) = (live.version, AGAIN_FIRST);
        let mut too_large_before = false;
        while let Some(end) = live.end() {
            match self.try_save(live, &end, &mut version).await {
                Ok(()) => break,
                // An error in place of the outcome is small. If even that is refused, nothing else will be taken.
                Err(Unsaved::TooLarge) if !too_large_before => {
                    too_large_before = true;
                    live.decide_anew(End::Failed(too_large(self.store.capabilities().max_value_bytes)));
                    continue;
                }
                Err(Unsaved::TooLarge) => return self.give_up(live, &StoreError::TooLarge),
                Err(Unsaved::Unreadable(error)) => return self.give_up(live, &error),
                // Said once, not for each time.
                Err(Unsaved::NotYet(error)) if again == AGAIN_FIRST => warn(live.key, &error),
                Err(Unsaved::NotYet(_)) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(again) => {}
                // It will be found interrupted.
                () = self.stop.cancelled() => return,
            }
            again = (again * 2).min(AGAIN_LAST);
        }
        tracing::debug!(task = %label(live.key), tool = %live.head.tool, "task ended");
        self.live.lock().remove(&live.key);
        live.saved.cancel();
        self.tell(live.key);
    }

    /// Writes the end over the version that is there, as far as that is known.
    async fn try_save(&self, live: &Live, end: &End, version: &mut Version) -> Result<(), Unsaved> {
        let record = TaskRecord::ended(live.head.clone(), end, self.clock.now());
        let (key, deadline) = (record_key(live.key), Some(record.head.expires()));
        match self.store.put(key, record.encode(), Expected::Version(*version), deadline).await {
            Ok(_) => return Ok(()),
            Err(StoreError::TooLarge) => return Err(Unsaved::TooLarge),
            // An answer that was lost may have been that it is done.
            Err(StoreError::Conflict { .. } | StoreError::Unknown) => {}
            Err(error) => return Err(Unsaved::NotYet(error)),
        }
        let Some(kept) = self.store.get(key).await.map_err(Unsaved::NotYet)? else {
            tracing::error!(task = %label(live.key), "the record of a task is gone");
            return Ok(());
        };
        match TaskRecord::decode(&kept.value) {
            Ok(record) if record.head.status.is_terminal() => Ok(()),
            Ok(_) => {
                *version = kept.version;
                Err(Unsaved::NotYet(StoreError::Conflict { current: Some(kept.version) }))
            }
            Err(error) => Err(Unsaved::Unreadable(error)),
        }
    }

    /// Lets go of a task whose end the store will never take. To clients it looks like one that was interrupted.
    fn give_up(&self, live: &Live, error: &dyn std::error::Error) {
        tracing::error!(task = %label(live.key), tool = %live.head.tool, %error, "the end of a task cannot be kept");
        self.live.lock().remove(&live.key);
        self.tell(live.key);
    }

    /// The record of a task.
    pub(super) async fn kept(&self, key: SessionKey) -> Result<Option<(Version, TaskRecord)>, Error> {
        let Some(kept) = self.store.get(record_key(key)).await.map_err(unavailable)? else { return Ok(None) };
        match TaskRecord::decode(&kept.value) {
            Ok(record) => Ok(Some((kept.version, record))),
            Err(error) => {
                tracing::error!(task = %label(key), %error, "a task cannot be read");
                Err(Error::new(Reason::StoreUnavailable, "The task cannot be read").caused_by(error))
            }
        }
    }

    /// Tells those who listen that a task changed.
    pub(super) fn tell(&self, key: SessionKey) {
        self.watchers.tell(key);
    }

    /// Forgets a task of which its client never heard.
    fn forget(self: &Arc<Self>, live: &Live) {
        self.live.lock().remove(&live.key);
        let seat = self.census.seat_of(live.key, &live.head.owner());
        self.take_back(live.key, Written::As(live.version), seat);
    }

    fn take_back(self: &Arc<Self>, key: SessionKey, written: Written, seat: Seat) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            take_back(inner.store.as_ref(), record_key(key), written, seat, &inner.stop).await;
        });
    }
}

/// Why the end of a task is not in the store.
enum Unsaved {
    /// The store may take it the next time.
    NotYet(StoreError),
    /// The store takes nothing as large.
    TooLarge,
    /// The record in its place makes no sense.
    Unreadable(Unreadable),
}

/// A task that has begun. Unless it is kept, nobody will hear of it, and it is forgotten.
pub(crate) struct Begun {
    tasks: Arc<Inner>,
    live: Option<Arc<Live>>,
}

impl Begun {
    /// Its client hears of it.
    pub(crate) fn keep(mut self) -> Arc<Live> {
        self.live.take().expect("it is given away once, with itself")
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            self.tasks.forget(&live);
        }
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("count", &self.count()).field("live", &self.live()).finish()
    }
}

pub(super) fn record_key(key: SessionKey) -> RecordKey {
    RecordKey { space: Space::Task, key }
}

/// The name of a task in logs.
pub(super) fn label(key: SessionKey) -> String {
    record_key(key).label()
}

/// The error for a task that is not there, or not the caller's.
pub(super) fn not_found() -> Error {
    Error::new(Reason::TaskNotFound, "There is no such task")
}

pub(super) fn unavailable(error: StoreError) -> Error {
    Error::new(Reason::StoreUnavailable, "The store of tasks is not available").caused_by(error)
}

fn too_large(limit: usize) -> RpcError {
    let message = format!("The outcome of the task is larger than {limit} bytes");
    Error::new(Reason::EventTooLarge, message).with("limit", limit).to_rpc()
}

fn warn(key: SessionKey, error: &StoreError) {
    tracing::warn!(task = %label(key), %error, "the end of a task could not be kept; trying on");
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 2)
}
