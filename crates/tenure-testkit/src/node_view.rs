//! An engine as one node of a cluster sees it: slow, cut off, with lost answers, with writes that happen late.
//!
//! Several views stand around one [`SharedEngine`]. A write whose answer is lost is answered `Unknown`; it was done, or
//! was not, or happens later, but never after the write that settles it (clause 22 of the store, clause 6 of the
//! members). All chances come from a seed, and all pauses pass on tokio's clock, so a run on paused time is repeated by
//! its seed. Each operation is a line at level `trace`, with the node's label, for the history of a run.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::forward_store;
use tenure_session::id::{NodeId, Position, SessionKey};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::port::members::{Member, Members, Renewal};
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, Record, RecordKey, SavedLog, Store, StoreCapabilities,
    StoreDurability, StoreError, Stored, Version,
};

/// How long a view waits for an answer that does not come.
const TIMEOUT: Duration = Duration::from_millis(900);

/// How late a write without an answer happens at most.
const LATEST: Duration = Duration::from_secs(6);

/// The write that a later one settles: of a record, of a session's log, or of a node's record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Settles {
    Record(RecordKey),
    Log(SessionKey),
    Node(NodeId),
}

/// The engine that all nodes share.
pub struct SharedEngine {
    store: Arc<dyn Store>,
    members: Arc<dyn Members>,
    /// How many settling writes were finished, by what they settle.
    finished: Mutex<HashMap<Settles, u64>>,
}

impl SharedEngine {
    /// An engine.
    pub fn new(store: Arc<dyn Store>, members: Arc<dyn Members>) -> Arc<Self> {
        Arc::new(Self { store, members, finished: Mutex::default() })
    }

    /// The store itself, without faults.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The members themselves, without faults.
    pub fn members(&self) -> &Arc<dyn Members> {
        &self.members
    }

    fn finished(&self, settles: Settles) -> u64 {
        self.finished.lock().get(&settles).copied().unwrap_or(0)
    }

    fn finish(&self, settles: Settles) {
        *self.finished.lock().entry(settles).or_default() += 1;
    }
}

impl std::fmt::Debug for SharedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedEngine")
    }
}

/// What goes wrong between a node and the engine, as chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct ViewFaults {
    /// Nothing reaches the engine, and nothing comes back.
    pub is_cut: bool,
    /// Every operation waits up to this long before it reaches the engine, and again before it is answered.
    pub delay: Duration,
    /// The answer of a write is lost; the write is done.
    pub lost_answers: u32,
    /// A write is lost: it is not done, and not answered.
    pub lost_writes: u32,
    /// A write is not answered, and happens later.
    pub late_writes: u32,
    /// A release, or the end of a log, is lost, like a lost write.
    pub lost_releases: u32,
    /// The list of nodes is an earlier one.
    pub late_lists: u32,
}

/// The engine as one node sees it.
pub struct NodeView {
    engine: Arc<SharedEngine>,
    /// The name of the node in the history.
    label: Arc<str>,
    faults: Mutex<ViewFaults>,
    dice: AtomicU64,
    /// The last list of nodes that was given.
    listed: Arc<Mutex<Vec<Member>>>,
}

/// What becomes of one write.
#[derive(Debug)]
enum Fate {
    Done,
    AnswerLost,
    Lost,
    Late(Duration),
}

impl NodeView {
    /// A view without faults.
    pub fn new(engine: Arc<SharedEngine>, seed: u64, label: &str) -> Arc<Self> {
        let dice = AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (faults, listed) = (Mutex::default(), Arc::default());
        Arc::new(Self { engine, label: label.into(), faults, dice, listed })
    }

    /// Sets the faults from now on. Operations under way keep theirs.
    pub fn set(&self, faults: ViewFaults) {
        tracing::trace!(at = %self.label, ?faults, "faults");
        *self.faults.lock() = faults;
    }

    /// The faults in force.
    pub fn faults(&self) -> ViewFaults {
        *self.faults.lock()
    }

    fn roll(&self, sides: u64) -> u64 {
        let mut dice = self.dice.load(Ordering::Relaxed);
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        self.dice.store(dice, Ordering::Relaxed);
        dice % sides.max(1)
    }

    fn some_of(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(if most == 0 { 0 } else { self.roll(most + 1) })
    }

    fn fate(&self, faults: &ViewFaults) -> Fate {
        if faults.is_cut {
            return Fate::Lost;
        }
        let chance = self.roll(1000);
        let (lost_answers, lost_writes) = (u64::from(faults.lost_answers), u64::from(faults.lost_writes));
        let late = u64::from(faults.late_writes);
        match chance {
            chance if chance < lost_answers => Fate::AnswerLost,
            chance if chance < lost_answers + lost_writes => Fate::Lost,
            chance if chance < lost_answers + lost_writes + late => Fate::Late(self.some_of(LATEST)),
            _ => Fate::Done,
        }
    }

    fn look<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Stored<T>) -> Stored<T> {
        let faults = self.faults();
        if faults.is_cut {
            return Box::pin(async {
                tokio::time::sleep(TIMEOUT).await;
                Err(StoreError::Unavailable("the engine does not answer".to_owned()))
            });
        }
        let before = self.some_of(faults.delay);
        if faults.delay.is_zero() {
            return operation(self.engine.store.as_ref());
        }
        // Read at once and answered later: what it says may be outdated by then.
        let read = operation(self.engine.store.as_ref());
        Box::pin(async move {
            let answer = read.await;
            tokio::time::sleep(before).await;
            answer
        })
    }

    /// A write. If it is a settling one, no earlier write of the same can happen after it is finished.
    fn write<T: Debug + Send + 'static>(
        &self,
        name: impl Debug + Send + 'static,
        settles: Settles,
        is_settling: bool,
        operation: impl FnOnce(&SharedEngine) -> BoxFuture<Result<T, StoreError>> + Send + 'static,
    ) -> Stored<T> {
        let faults = self.faults();
        let (fate, engine) = (self.fate(&faults), Arc::clone(&self.engine));
        let (before, after) = (self.some_of(faults.delay), self.some_of(faults.delay));
        let issued = engine.finished(settles);
        let label = Arc::clone(&self.label);
        tracing::trace!(at = %label, ?name, ?fate, "write");
        let act = async move |engine: &SharedEngine| {
            // A settled write never happens.
            if engine.finished(settles) != issued && !is_settling {
                tracing::trace!(at = %label, ?name, "never happens");
                return Err(StoreError::Unknown);
            }
            let outcome = operation(engine).await;
            tracing::trace!(at = %label, ?name, ?outcome, "happens");
            // A conflict is an answer too: from then on no earlier write can happen.
            if is_settling && !matches!(outcome, Err(StoreError::Unknown)) {
                engine.finish(settles);
            }
            outcome
        };
        Box::pin(async move {
            match fate {
                Fate::Done => {
                    sleep(before).await;
                    let outcome = act(&engine).await;
                    sleep(after).await;
                    outcome
                }
                Fate::AnswerLost => {
                    sleep(before).await;
                    drop(act(&engine).await);
                    sleep(TIMEOUT).await;
                    Err(StoreError::Unknown)
                }
                Fate::Lost => {
                    sleep(TIMEOUT).await;
                    Err(StoreError::Unknown)
                }
                Fate::Late(by) => {
                    let late = async move {
                        sleep(by).await;
                        if engine.finished(settles) == issued {
                            drop(act(&engine).await);
                        }
                    };
                    #[expect(clippy::disallowed_methods, reason = "an engine does not end with its caller")]
                    drop(tokio::spawn(late));
                    sleep(TIMEOUT).await;
                    Err(StoreError::Unknown)
                }
            }
        })
    }

    fn write_record<T: Debug + Send + 'static>(
        &self,
        name: impl Debug + Send + 'static,
        key: RecordKey,
        operation: impl FnOnce(&dyn Store) -> Stored<T> + Send + 'static,
    ) -> Stored<T> {
        self.write(name, Settles::Record(key), true, move |engine| operation(engine.store.as_ref()))
    }

    fn write_log<T: Debug + Send + 'static>(
        &self,
        name: impl Debug + Send + 'static,
        key: SessionKey,
        operation: impl FnOnce(&dyn Store) -> Stored<T> + Send + 'static,
    ) -> Stored<T> {
        self.write(name, Settles::Log(key), false, move |engine| operation(engine.store.as_ref()))
    }

    /// The last write of an owner.
    fn write_last(
        &self,
        name: impl Debug + Send + 'static,
        key: SessionKey,
        operation: impl FnOnce(&dyn Store) -> Stored<()> + Send + 'static,
    ) -> Stored<()> {
        if self.roll(1000) < u64::from(self.faults().lost_releases) {
            tracing::trace!(at = %self.label, ?name, "lost");
            return Box::pin(async {
                sleep(TIMEOUT).await;
                Err(StoreError::Unknown)
            });
        }
        self.write_log(name, key, operation)
    }
}

async fn sleep(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

impl Store for NodeView {
    forward_store!(look: get, expired, list, owner, read, tail, survey);

    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        let name = ("put", key.label(), expected, deadline);
        self.write_record(name, key, move |store| store.put(key, value, expected, deadline))
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        let _ = key;
        None
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        let name = ("delete", key.label(), expected);
        self.write_record(name, key, move |store| store.delete(key, expected))
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        let name = ("claim", session.label(), node, expected);
        self.write(name, Settles::Log(session), true, move |engine| {
            engine.store.claim(session, node, expected)
        })
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        let name = ("release", session.label(), epoch);
        self.write_last(name, session, move |store| store.release(session, epoch))
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        let name = ("append", session.label(), epoch, batch.clone());
        self.write_log(name, session, move |store| store.append(session, epoch, batch))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        let name = ("trim", session.label());
        self.write_log(name, session, move |store| store.trim(session, keep))
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        let name = ("drop_session", session.label());
        self.write_last(name, session, move |store| store.drop_session(session))
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        let name = ("restore", session.label());
        self.write_log(name, session, move |store| store.restore(session, log))
    }

    fn capabilities(&self) -> StoreCapabilities {
        let durability = StoreDurability::Replicated { majority_synced: true };
        StoreCapabilities { durability, ..self.engine.store.capabilities() }
    }
}

impl Members for NodeView {
    fn renew(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Stored<Renewal> {
        let name = ("renew", node, last);
        self.write(name, Settles::Node(node), true, move |engine| engine.members.renew(node, info, last))
    }

    fn remove(&self, node: NodeId, seen: Renewal) -> Stored<()> {
        let name = ("remove", node, seen);
        self.write(name, Settles::Node(node), true, move |engine| engine.members.remove(node, seen))
    }

    fn members(&self) -> Stored<Vec<Member>> {
        let faults = self.faults();
        if faults.is_cut {
            return Box::pin(async {
                sleep(TIMEOUT).await;
                Err(StoreError::Unavailable("the engine does not answer".to_owned()))
            });
        }
        let is_late = self.roll(1000) < u64::from(faults.late_lists);
        let (list, listed, delay) =
            (self.engine.members.members(), Arc::clone(&self.listed), self.some_of(faults.delay));
        Box::pin(async move {
            let list = list.await?;
            sleep(delay).await;
            let mut last = listed.lock();
            if !is_late {
                *last = list;
            }
            Ok(last.clone())
        })
    }
}

impl std::fmt::Debug for NodeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeView").field("faults", &self.faults()).finish_non_exhaustive()
    }
}
