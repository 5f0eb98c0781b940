//! Owns all tasks of a store: begins, finds, updates, cancels and ends them.
//!
//! In: calls that become tasks, their ends, and `tasks/*` requests. Out: records in the store, and answers to clients.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::json::object;
use tenure_protocol::translate::tasks::Status;
use tenure_protocol::{Error, RawJson, Reason, RpcError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::live::LiveTask;
use super::record::{TaskEnd, TaskHead, TaskRecord};
use super::watch::Watchers;
use super::{TaskId, TaskLimits};
use crate::backoff::Backoff;
use crate::call::{Granted, NewsListener, TaskWish};
use crate::cluster::{Place, Roster};
use crate::counts::{CountGuard, RecordCounter};
use crate::finish::finish;
use crate::framed::UnreadableFrame;
use crate::id::{NodeId, Principal, Route, SessionKey};
use crate::kept::NotedServer;
use crate::port::clock::Clock;
use crate::port::observer::{Happened, ObserverPlace, SessionObserver};
use crate::port::store::{Expected, RecordKey, Space, Store, StoreError, Version};
use crate::read_back;
use crate::supervise::{Avoided, Loops};
use crate::sweep;
use crate::take_back::{WriteOutcome, take_back};

/// How long a client waits at most until its cancellation is in the store.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// How long `stop` waits for writes that are under way.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The first and the longest pause before the write of an end is retried.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_LAST: Duration = Duration::from_secs(5);

/// All tasks of a store. Cheap to clone.
#[derive(Clone)]
pub struct Tasks(pub(super) Arc<TasksInner>);

pub(super) struct TasksInner {
    pub(super) me: Weak<Self>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: TaskLimits,
    pub(super) counts: Arc<RecordCounter>,
    /// Running tasks, until their end is in the store.
    pub(super) live: Mutex<HashMap<SessionKey, Arc<LiveTask>>>,
    pub(super) watchers: Watchers,
    pub(super) stop: CancellationToken,
    tasks: TaskTracker,
    loops: Loops,
    /// Records at which the sweep panicked.
    pub(super) avoided: Avoided<RecordKey>,
    pub(super) carry_on: OnceLock<CarryOn>,
    /// The nodes that share the store; not set if this process is the only one.
    pub(super) roster: OnceLock<Roster>,
    /// Tells the other nodes.
    peers: OnceLock<Arc<dyn NewsListener>>,
    observer: ObserverPlace,
}

/// Starts the call of a task again that another process left.
pub(super) type CarryOn = Box<dyn Fn(Arc<LiveTask>) + Send + Sync>;

/// The call that becomes a task.
#[derive(Debug)]
pub(crate) struct TaskCall {
    pub(crate) tool: String,
    /// Its params, if another process may start the call again.
    pub(crate) params: Option<RawJson>,
    /// The rights with which it was sent.
    pub(crate) scopes: Granted,
    /// The server that handles the call, as far as it is known.
    pub(crate) server: Option<NotedServer>,
}

/// The owner and the endpoint of a task. For any other owner or endpoint the task does not exist.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    pub(crate) owner: Principal,
    pub(crate) route: Route,
}

/// A task that was found.
pub(super) enum FoundTask {
    /// It runs.
    Live(Arc<LiveTask>),
    /// It has ended.
    Kept(Box<TaskRecord>),
    /// It runs at another node. This is its record, which does not show its questions.
    Elsewhere(NodeId, Box<TaskRecord>),
}

impl Tasks {
    /// Starts to keep tasks. Must be called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, limits: TaskLimits) -> Self {
        let inner = Arc::new_cyclic(|me| TasksInner {
            me: Weak::clone(me),
            store,
            clock,
            limits,
            counts: Arc::default(),
            live: Mutex::default(),
            watchers: Watchers::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            loops: Loops::default(),
            avoided: Avoided::default(),
            carry_on: OnceLock::new(),
            roster: OnceLock::new(),
            peers: OnceLock::new(),
            observer: ObserverPlace::default(),
        });
        sweep::start(&inner, &inner.tasks, &inner.stop, &inner.loops);
        Self(inner)
    }

    /// Makes this process a node of a cluster: it leaves the tasks of living nodes to them. Called once, before the first
    /// request.
    pub fn join(&self, roster: Roster) {
        drop(self.0.roster.set(roster));
    }

    /// Tells the ends of tasks to the other nodes of a cluster, whose clients may watch them. Called once.
    pub fn tell_peers(&self, peers: Arc<dyn NewsListener>) {
        drop(self.0.peers.set(peers));
    }

    /// Reports to those who watch a task in this process that it has ended, as another node says. The task has the key with these
    /// digits.
    pub(crate) fn ended_elsewhere(&self, key: &str) {
        if let Some(key) = SessionKey::parse(key) {
            self.0.tell(key);
        }
    }

    /// Stops the background tasks; the records stay in the store. It does not wait for a store that does not answer in
    /// time.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(STOP_WITHIN, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(writes = self.0.tasks.len(), "writes of tasks did not finish before the stop");
        }
    }

    /// Tells this observer what happens to tasks. Called once, before the first request.
    pub fn observed_by(&self, observer: Arc<dyn SessionObserver>) {
        self.0.observer.set(observer);
    }

    /// The background loops.
    pub(crate) fn loops(&self) -> &Loops {
        &self.0.loops
    }

    /// The bounds in force.
    pub(crate) fn limits(&self) -> &TaskLimits {
        &self.0.limits
    }

    /// The number of tasks, including ended ones that are still kept.
    pub fn count(&self) -> usize {
        self.0.counts.total()
    }

    /// The number of running tasks.
    pub fn live(&self) -> usize {
        self.0.live.lock().len()
    }

    /// Begins a task: when this returns, it is in the store.
    ///
    /// # Errors
    /// When a limit is reached or the store fails.
    ///
    /// # Cancel safety
    /// If it is dropped early, the task is removed.
    pub(crate) async fn begin(
        &self,
        whose: Whose,
        call: TaskCall,
        wish: TaskWish,
    ) -> Result<BegunTask, Error> {
        // Run to its end, because only then is it known whether the task is in the store. If the caller is gone, the
        // `BegunTask` is dropped, which removes the task.
        finish(&self.0.tasks, Arc::clone(&self.0).begin(whose, call, wish)).await
    }

    /// Sets the function that starts the call of a task again after its process has ended. Called once.
    pub(crate) fn carried_on_by(&self, carry_on: impl Fn(Arc<LiveTask>) + Send + Sync + 'static) {
        drop(self.0.carry_on.set(Box::new(carry_on)));
    }

    /// Where a task is asked for: at the node at which it runs, or here.
    ///
    /// # Errors
    /// When the caller has no such task, or the store fails.
    pub async fn place(&self, owner: &Principal, route: &Route, id: &str) -> Result<Place, Error> {
        if self.0.roster.get().is_none() {
            return Ok(Place::Here);
        }
        let whose = Whose { owner: owner.clone(), route: route.clone() };
        Ok(match self.0.find(&whose, TaskId::parse(id).ok_or_else(not_found)?).await? {
            FoundTask::Live(_) | FoundTask::Kept(_) => Place::Here,
            FoundTask::Elsewhere(node, _) => Place::There(node),
        })
    }

    /// Answers `tasks/get`.
    ///
    /// # Errors
    /// When the caller has no such task, or the store fails.
    pub(crate) async fn get(&self, whose: &Whose, id: &str) -> Result<RawJson, Error> {
        self.0.get(whose, TaskId::parse(id).ok_or_else(not_found)?).await
    }

    /// Answers `tasks/update`.
    ///
    /// # Errors
    /// When the caller has no such task, or the store fails.
    pub(crate) async fn update(&self, whose: &Whose, id: &str, responses: &RawJson) -> Result<(), Error> {
        match self.0.find(whose, TaskId::parse(id).ok_or_else(not_found)?).await? {
            FoundTask::Live(live) => live.update(responses),
            // An ended task has no open questions.
            FoundTask::Kept(_) => {}
            FoundTask::Elsewhere(node, _) => return Err(elsewhere(node)),
        }
        Ok(())
    }

    /// Answers `tasks/cancel`: when this returns, the task has ended, cancelled or otherwise.
    ///
    /// # Errors
    /// When the caller has no such task, or the store fails.
    ///
    /// # Cancel safety
    /// The task is cancelled even if this is dropped early.
    pub(crate) async fn cancel(&self, whose: &Whose, id: &str) -> Result<(), Error> {
        let live = match self.0.find(whose, TaskId::parse(id).ok_or_else(not_found)?).await? {
            FoundTask::Live(live) => live,
            FoundTask::Kept(_) => return Ok(()),
            FoundTask::Elsewhere(node, _) => return Err(elsewhere(node)),
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

    /// Ends a task: when this returns, its end is in the store and its client may learn of it. Retries until the write
    /// succeeds, can never succeed, or the process stops.
    pub(crate) async fn settle(&self, live: &Arc<LiveTask>, end: TaskEnd) {
        let limit = self.0.limits.max_outcome_bytes;
        let end = match end {
            TaskEnd::Completed(result) if result.bytes().len() > limit => TaskEnd::Failed(too_large(limit)),
            TaskEnd::Failed(error) if error.raw().bytes().len() > limit => TaskEnd::Failed(too_large(limit)),
            end => end,
        };
        let how = match &end {
            TaskEnd::Completed(_) => "completed",
            TaskEnd::Failed(_) => "failed",
            TaskEnd::Cancelled => "cancelled",
        };
        if live.decide(end) {
            self.0.observe(live, |tool| Happened::TaskEnded { tool, how });
            self.0.save(live).await;
        }
    }
}

impl TasksInner {
    async fn begin(
        self: Arc<Self>,
        whose: Whose,
        call: TaskCall,
        wish: TaskWish,
    ) -> Result<BegunTask, Error> {
        let limits = &self.limits;
        let id = TaskId::random();
        let key = id.key(&whose.owner, &whose.route);
        let (max, per_principal) = (limits.max, limits.max_per_principal);
        let count_guard = self.counts.try_take(key, &whose.owner, max, per_principal).map_err(|_| {
            Error::new(Reason::TooManyTasks, "There are as many tasks as there may be")
                .with("limit", max.min(per_principal))
        })?;
        let now = self.clock.now();
        // With a time of zero no client could ever find the task.
        let ttl = wish.ttl.unwrap_or(limits.max_ttl).min(limits.max_ttl).max(Duration::from_secs(1));
        let head = TaskHead {
            owner: whose.owner.name().map(str::to_owned),
            route: whose.route.name().map(str::to_owned),
            tool: call.tool,
            created: now.0,
            updated: now.0,
            ttl_ms: millis(ttl),
            poll_ms: millis(wish.poll.unwrap_or(limits.poll)),
            status: Status::Working,
            // Without params it is not started again, and needs no scopes.
            scopes: call.params.as_ref().and_then(|_| call.scopes.recorded()),
            params: call.params.map(|params| object::text(&params).to_owned()),
            server: call.server,
            node: self.roster.get().map(|roster| roster.node().hex()),
        };
        let record = TaskRecord::begun(head.clone());
        let (value, deadline) = (record.encode(), Some(head.expires()));
        let store = self.store.as_ref();
        let version =
            match read_back::put(store, record_key(key), value.clone(), Expected::Absent, deadline).await {
                Ok(version) => version,
                Err(error) => {
                    if error == StoreError::Unknown {
                        self.take_back(key, WriteOutcome::Perhaps(value), count_guard);
                    }
                    return Err(unavailable(error));
                }
            };
        count_guard.keep();
        tracing::debug!(task = %label(key), tool = %head.tool, "task begun");
        let live = Arc::new(LiveTask::new(id, key, head, version, Weak::clone(&self.me)));
        self.live.lock().insert(key, Arc::clone(&live));
        self.observe(&live, |tool| Happened::TaskBegun { tool });
        Ok(BegunTask { tasks: self, live: Some(live) })
    }

    fn observe<'a>(&self, live: &'a LiveTask, what: impl FnOnce(&'a str) -> Happened<'a>) {
        let TaskHead { route, tool, .. } = &live.head;
        self.observer.tell(&label(live.key), &live.head.owner(), route.as_deref(), what(tool));
    }

    pub(super) async fn get(&self, whose: &Whose, id: TaskId) -> Result<RawJson, Error> {
        Ok(match self.find(whose, id).await? {
            FoundTask::Live(live) => live.view(),
            FoundTask::Kept(record) | FoundTask::Elsewhere(_, record) => record.write(&id),
        })
    }

    /// Finds a task of that owner at that endpoint.
    pub(super) async fn find(&self, whose: &Whose, id: TaskId) -> Result<FoundTask, Error> {
        let key = id.key(&whose.owner, &whose.route);
        // The table before the store: a task stays in the table until its end is in the store.
        let live = self.live.lock().get(&key).cloned();
        if let Some(live) = live {
            if let Some(roster) = self.roster.get() {
                // Before that it is not known whether the node still has its name.
                roster.confirmed().await?;
            }
            if self.is_of_this_node(&live) {
                return Ok(FoundTask::Live(live));
            }
            // The node has lost the name under which it began the task, so another one may have ended it.
            tracing::warn!(task = %label(key), tool = %live.head.tool, "a task of a name that this node has lost is no longer its own");
            self.live.lock().remove(&key);
        }
        self.wake(whose, id, key).await
    }

    /// Whether a task that runs here was begun under the name that this node has now.
    fn is_of_this_node(&self, live: &LiveTask) -> bool {
        match (self.roster.get(), live.head.node()) {
            (Some(roster), Some(node)) => roster.node() == node,
            _ => true,
        }
    }

    /// Writes the end of a task. Retries until the write succeeds, can never succeed, or the process stops.
    async fn save(&self, live: &Arc<LiveTask>) {
        let (mut version, mut backoff) = (live.version, Backoff::new(AGAIN_FIRST, AGAIN_LAST));
        let (mut too_large_before, mut is_logged) = (false, false);
        while let Some(end) = live.end() {
            match self.try_save(live, &end, &mut version).await {
                Ok(()) => break,
                // An error in place of the outcome is small. If the store refuses even that, it will refuse everything.
                Err(Unsaved::TooLarge) if !too_large_before => {
                    too_large_before = true;
                    live.decide_anew(TaskEnd::Failed(too_large(self.store.capabilities().max_value_bytes)));
                    continue;
                }
                Err(Unsaved::TooLarge) => return self.give_up(live, &StoreError::TooLarge),
                Err(Unsaved::Unreadable(error)) => return self.give_up(live, &error),
                // Logged for the first failure only.
                Err(Unsaved::NotYet(error)) if !std::mem::replace(&mut is_logged, true) => {
                    warn(live.key, &error)
                }
                Err(Unsaved::NotYet(_)) => {}
            }
            if !backoff.wait(&self.stop).await {
                // The next process will find the task interrupted.
                return;
            }
        }
        tracing::debug!(task = %label(live.key), tool = %live.head.tool, "task ended");
        self.live.lock().remove(&live.key);
        live.saved.cancel();
        self.tell_end(live);
    }

    /// Writes the end over the last known version of the record.
    async fn try_save(&self, live: &LiveTask, end: &TaskEnd, version: &mut Version) -> Result<(), Unsaved> {
        let record = TaskRecord::ended(live.head.clone(), end, self.clock.now());
        let (key, deadline) = (record_key(live.key), Some(record.head.expires()));
        match self.store.put(key, record.encode(), Expected::Version(*version), deadline).await {
            Ok(_) => return Ok(()),
            Err(StoreError::TooLarge) => return Err(Unsaved::TooLarge),
            // The write may have succeeded although its answer was lost.
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

    /// Gives up a task whose end can never be written. Clients will see it as interrupted.
    fn give_up(&self, live: &LiveTask, error: &dyn std::error::Error) {
        tracing::error!(task = %label(live.key), tool = %live.head.tool, %error, "the end of a task cannot be written");
        self.live.lock().remove(&live.key);
        self.tell_end(live);
    }

    /// Notifies the watchers of a task that has ended, at all nodes.
    fn tell_end(&self, live: &LiveTask) {
        self.tell(live.key);
        if let Some(peers) = self.peers.get() {
            peers.task_ended(&live.head.route(), live.key);
        }
    }

    /// The record of a task.
    pub(super) async fn kept(&self, key: SessionKey) -> Result<Option<(Version, TaskRecord)>, Error> {
        let Some(kept) = self.store.get(record_key(key)).await.map_err(unavailable)? else { return Ok(None) };
        match TaskRecord::decode(&kept.value) {
            Ok(record) => Ok(Some((kept.version, record))),
            Err(error) => {
                tracing::error!(task = %label(key), %error, "a task cannot be read");
                let what = match error.is_newer() {
                    true => {
                        "The task was written by a newer version of the server, which this node cannot read"
                    }
                    false => "The task cannot be read",
                };
                Err(Error::new(Reason::StoreUnavailable, what).caused_by(error))
            }
        }
    }

    /// Notifies the watchers of a task.
    pub(super) fn tell(&self, key: SessionKey) {
        self.watchers.tell(key);
    }

    /// Removes a task whose client never learned of it.
    fn forget(self: &Arc<Self>, live: &LiveTask) {
        self.live.lock().remove(&live.key);
        let count_guard = self.counts.guard_of(live.key, &live.head.owner());
        self.take_back(live.key, WriteOutcome::As(live.version), count_guard);
    }

    fn take_back(self: &Arc<Self>, key: SessionKey, written: WriteOutcome, count_guard: CountGuard) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            take_back(inner.store.as_ref(), record_key(key), written, count_guard, &inner.stop).await;
        });
    }
}

/// Why the end of a task is not in the store.
enum Unsaved {
    /// The write may succeed the next time.
    NotYet(StoreError),
    /// It is too large for the store.
    TooLarge,
    /// The current record cannot be read.
    Unreadable(UnreadableFrame),
}

/// A task that has begun. If this is dropped without `keep`, its client never learns of the task, and it is removed.
pub(crate) struct BegunTask {
    tasks: Arc<TasksInner>,
    live: Option<Arc<LiveTask>>,
}

impl BegunTask {
    /// The client will learn of the task, so it stays.
    pub(crate) fn keep(mut self) -> Arc<LiveTask> {
        self.live.take().expect("it is given away once, with itself")
    }
}

impl Drop for BegunTask {
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

/// The error for a task that does not exist, or belongs to another caller.
pub(crate) fn not_found() -> Error {
    Error::new(Reason::TaskNotFound, "There is no such task")
}

/// The error for a task that another node has to be asked for.
fn elsewhere(node: NodeId) -> Error {
    Error::new(Reason::StoreUnavailable, "The task is at another node; try again").with("node", node.hex())
}

pub(super) fn unavailable(error: StoreError) -> Error {
    Error::new(Reason::StoreUnavailable, "The store of tasks is not available").caused_by(error)
}

fn too_large(limit: usize) -> RpcError {
    let message = format!("The outcome of the task is larger than {limit} bytes");
    Error::new(Reason::EventTooLarge, message).with("limit", limit).to_rpc()
}

fn warn(key: SessionKey, error: &StoreError) {
    tracing::warn!(task = %label(key), %error, "the end of a task could not be written; retrying");
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 2)
}
