//! The questions that the rest of the process asks about the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Error, Reason};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fitness::{self, Fitness};
use super::lease::{Lease, LeaseTerm};
use super::node_info::{NodeInfo, NodeRecord};
use super::peers::Peers;
use super::renewals;
use crate::id::NodeId;
use crate::port::clock::Clock;
use crate::port::members::{Members, Renewal};
use crate::port::store::StoreError;
use crate::single_flight::{Attempt, Attempting};
use crate::supervise::Loops;

/// How long a request waits for this node to be confirmed: an engine without a leader elects one in up to 8 s.
const HOLD: Duration = Duration::from_secs(10);

/// How long one operation of the engine may take.
pub(super) const ANSWER: Duration = Duration::from_secs(1);

/// Whether a node is gone, if the engine has answered.
type IsGone = Result<bool, StoreError>;

/// The nodes of the cluster, and this node's place among them. Cheap to clone.
#[derive(Clone)]
pub struct Roster(pub(super) Arc<RosterInner>);

pub(super) struct RosterInner {
    pub(super) members: Arc<dyn Members>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lease: Lease,
    pub(super) state: Mutex<RosterState>,
    /// It was found that this node must not act.
    pub(super) is_unfit: AtomicBool,
    /// The marks that are being written, each for all who ask for its node: a lost node may have had thousands of sessions.
    marks: Mutex<HashMap<NodeId, Attempt<IsGone>, RandomState>>,
    /// Counts renewals, lost names and seen changes of other nodes, for those who wait for one.
    pub(super) changes: watch::Sender<u64>,
    /// Renews at once, because the node's record has changed.
    pub(super) renew_now: Arc<Notify>,
    tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    loops: Loops,
}

pub(super) struct RosterState {
    pub(super) node: NodeId,
    pub(super) info: NodeInfo,
    /// The last renewal that is known to have happened.
    pub(super) last: Option<Renewal>,
    /// A renewal after it had no answer, so it may have happened too.
    pub(super) is_in_doubt: bool,
    pub(super) peers: Peers,
    pub(super) fitness: Fitness,
    /// The last two renewals that were acknowledged, the newer one first: a list may be from before the newest.
    pub(super) acked: [Option<Acked>; 2],
    /// When the last acknowledged renewal was sent that did not confirm the node, because it was not known to be fit.
    pub(super) held: Option<Duration>,
    /// The node has left and renews no more.
    pub(super) has_left: bool,
}

/// An own renewal.
#[derive(Clone, Copy)]
pub(super) struct Acked {
    pub(super) renewal: Renewal,
    /// The wall clock that it carries.
    pub(super) wall_ms: u64,
    /// How long it took.
    pub(super) took: Duration,
}

/// A node as this one knows it.
#[derive(Clone, Debug)]
pub struct SeenNode {
    /// Its name.
    pub node: NodeId,
    /// Its record.
    pub info: NodeInfo,
    /// How long ago its last renewal was sent or, if it is another node, first seen. `None` before the first one.
    pub renewed: Option<Duration>,
}

impl Roster {
    /// Joins the cluster: a loop writes the node's record and renews it. Must be called within a tokio runtime. The
    /// node is confirmed as soon as the engine has acknowledged its record.
    pub fn start(members: Arc<dyn Members>, clock: Arc<dyn Clock>, node: NodeId, info: NodeInfo) -> Self {
        let info = NodeInfo {
            reads_from: fitness::READS_FROM,
            writes: fitness::WRITES,
            unfit: Some(fitness::JOINING.to_owned()),
            ..info
        };
        let state = RosterState {
            node,
            info,
            last: None,
            is_in_doubt: false,
            peers: Peers::default(),
            fitness: Fitness::default(),
            acked: [None; 2],
            held: None,
            has_left: false,
        };
        let inner = Arc::new(RosterInner {
            members,
            clock,
            lease: Lease::new(),
            state: Mutex::new(state),
            is_unfit: AtomicBool::new(false),
            marks: Mutex::default(),
            changes: watch::Sender::new(0),
            renew_now: Arc::new(Notify::new()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            loops: Loops::default(),
        });
        let (stop, renewed) = (inner.stop.clone(), Arc::downgrade(&inner));
        inner
            .tasks
            .spawn(inner.loops.keep("renewals of the node", stop, move || renewals::run(renewed.clone())));
        Self(inner)
    }

    /// This node's name. It has another one after it was removed from the cluster.
    pub fn node(&self) -> NodeId {
        self.0.state.lock().node
    }

    /// This node's name, and the time during which it has it.
    pub fn name(&self) -> (NodeId, LeaseTerm) {
        // Under one lock: with a name and the term of another name, the node would act for sessions that it lost.
        let state = self.0.state.lock();
        (state.node, self.0.lease.term())
    }

    /// The time during which this node has its name.
    pub fn term(&self) -> LeaseTerm {
        self.0.lease.term()
    }

    /// Whether this node may act: its last acknowledged renewal was sent less than 3 s ago.
    pub fn is_confirmed(&self) -> bool {
        self.0.lease.is_confirmed(self.0.clock.uptime())
    }

    /// Whether this node may act for sessions that it owns since that term.
    pub fn is_confirmed_in(&self, term: LeaseTerm) -> bool {
        self.0.lease.is_confirmed_in(term, self.0.clock.uptime())
    }

    /// Why this node must not act among the others, in words; `None` if it may, or has not looked at them yet.
    pub fn unfit(&self) -> Option<String> {
        let state = self.0.state.lock();
        state.info.unfit.clone().filter(|_| state.fitness.is_judged)
    }

    /// Whether it was found that this node must not act.
    pub fn is_unfit(&self) -> bool {
        self.0.is_unfit.load(Ordering::Acquire)
    }

    /// The error for every request, if this node must not act.
    pub fn refusal(&self) -> Option<Error> {
        self.is_unfit().then(unfit_error)
    }

    /// Tells the other nodes that a principal was revoked or reinstated. The mark only grows.
    pub fn set_revocations(&self, mark: u64) {
        {
            let mut state = self.0.state.lock();
            if state.info.revocations >= mark {
                return;
            }
            state.info.revocations = mark;
        }
        self.0.renew_now.notify_one();
    }

    /// The newest mark of revocations of all nodes.
    pub fn revocations(&self) -> u64 {
        let state = self.0.state.lock();
        state.peers.revocations().max(state.info.revocations)
    }

    /// Waits until this node may act, at most 10 s.
    ///
    /// # Errors
    /// When it is still not confirmed. The request can be sent again, also to another node.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn confirmed(&self) -> Result<(), Error> {
        if self.is_confirmed() {
            return Ok(());
        }
        let mut changes = self.0.changes.subscribe();
        let confirmed = async {
            while !self.is_confirmed() {
                if let Some(refusal) = self.refusal() {
                    return Err(refusal);
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            Ok(())
        };
        tokio::time::timeout(HOLD, confirmed).await.unwrap_or_else(|_| {
            Err(Error::new(Reason::StoreUnavailable, "This node has no contact with its cluster; try again"))
        })
    }

    /// The record of another node; `None` if it is gone, or not known.
    pub fn peer(&self, node: NodeId) -> Option<NodeInfo> {
        self.0.state.lock().peers.info(node)
    }

    /// Whether a node was in the last list, and is not known to be gone.
    pub fn is_listed(&self, node: NodeId) -> bool {
        self.0.state.lock().peers.is_listed(node)
    }

    /// The other nodes, by name.
    pub fn peers(&self) -> Vec<(NodeId, NodeInfo)> {
        self.0.state.lock().peers.list()
    }

    /// The other nodes that take new requests: those that do not stop, and fit.
    pub fn takers(&self) -> Vec<NodeId> {
        let peers = self.0.state.lock().peers.list();
        peers
            .into_iter()
            .filter(|(_, info)| !info.is_draining && info.unfit.is_none())
            .map(|(node, _)| node)
            .collect()
    }

    /// All nodes, this one first, and how old their last known renewals are.
    pub fn all(&self) -> Vec<SeenNode> {
        let now = Instant::now();
        let state = self.0.state.lock();
        let own = SeenNode {
            node: state.node,
            info: state.info.clone(),
            renewed: self.0.lease.age(self.0.clock.uptime()),
        };
        let others = state.peers.seen().into_iter().map(|(node, info, since)| SeenNode {
            node,
            info,
            renewed: Some(now.saturating_duration_since(since)),
        });
        std::iter::once(own).chain(others).collect()
    }

    /// Whether another node has the key with this hash.
    pub fn has_key(&self, pin: &str) -> bool {
        self.0.state.lock().peers.has_key(pin)
    }

    /// The record of this node.
    pub fn info(&self) -> NodeInfo {
        self.0.state.lock().info.clone()
    }

    /// Whether a node is known to be gone. False does not mean that it is there.
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.0.state.lock().peers.is_gone(node)
    }

    /// Finds out whether a node that owns something is gone. A node that is not in the list is tested by a write
    /// that only works if it has no record; the list may be late.
    ///
    /// # Errors
    /// When the engine does not answer.
    ///
    /// # Cancel safety
    /// A mark of a gone node may stay for some seconds.
    pub async fn find_gone(&self, node: NodeId) -> Result<bool, StoreError> {
        loop {
            {
                let state = self.0.state.lock();
                if state.peers.is_gone(node) {
                    return Ok(true);
                }
                if state.node == node || state.peers.is_listed(node) {
                    return Ok(false);
                }
            }
            let attempt = match self.begin_mark(node) {
                Ok(marking) => {
                    let outcome = self.mark_gone(node).await;
                    marking.done(outcome.clone());
                    return outcome;
                }
                Err(attempt) => attempt,
            };
            // Without an outcome, the task that wrote the mark was dropped.
            if let Some(outcome) = attempt.outcome().await {
                return outcome;
            }
        }
    }

    /// Begins the one mark of a node at a time, or finds the one that is under way.
    fn begin_mark(&self, node: NodeId) -> Result<Marking<'_>, Attempt<IsGone>> {
        let mut marks = self.0.marks.lock();
        if let Some(attempt) = marks.get(&node) {
            return Err(attempt.clone());
        }
        let (attempting, attempt) = Attempting::begin();
        marks.insert(node, attempt);
        Ok(Marking { inner: &self.0, node, attempting: Some(attempting) })
    }

    async fn mark_gone(&self, node: NodeId) -> IsGone {
        let mark = self.0.members.renew(node, NodeRecord::GONE, None);
        let renewal = match tokio::time::timeout(ANSWER, mark).await {
            Ok(Ok(renewal)) => renewal,
            // Its own record, or the mark of another node, which the next list shows.
            Ok(Err(StoreError::Conflict { .. })) => return Ok(false),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(StoreError::Unknown),
        };
        self.0.state.lock().peers.is_gone_now(node);
        self.0.changed();
        // If this fails, some node removes the mark like any record that is not renewed.
        drop(tokio::time::timeout(ANSWER, self.0.members.remove(node, renewal)).await);
        Ok(true)
    }

    /// Waits until a node is known to be gone.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn gone(&self, node: NodeId) {
        let mut changes = self.0.changes.subscribe();
        while !self.is_gone(node) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this node has lost the name that it had in a term.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn term_over(&self, term: LeaseTerm) {
        let mut changes = self.0.changes.subscribe();
        while self.term() == term {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// This node's part of work that all living nodes divide among themselves: the index of its part, and the number of
    /// parts. Nodes that see different lists may do some work twice or leave it for a while.
    pub fn share(&self) -> (u32, u32) {
        let state = self.0.state.lock();
        let peers = state.peers.list();
        let acts = |info: &NodeInfo| info.unfit.as_deref().is_none_or(|why| why == fitness::JOINING);
        let acting: Vec<_> = peers.iter().filter(|(_, info)| acts(info)).collect();
        let before = acting.iter().filter(|(node, _)| *node < state.node).count();
        let part = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        (part(before), part(acting.len() + 1))
    }

    /// Tells the other nodes that this one stops soon.
    pub fn set_draining(&self) {
        self.0.state.lock().info.is_draining = true;
        self.0.renew_now.notify_one();
    }

    /// Tells the other nodes with the next renewal how many sessions are in memory here.
    pub fn set_load(&self, load: u64) {
        self.0.state.lock().info.load = load;
    }

    /// Leaves the cluster: from now on the node is not confirmed, and others may take its sessions. Call it after
    /// everything was given back.
    ///
    /// # Cancel safety
    /// The node is no longer confirmed; its record may stay until the others hold it gone.
    pub async fn leave(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        drop(tokio::time::timeout(ANSWER * 4, self.0.tasks.wait()).await);
        let (node, last) = {
            let mut state = self.0.state.lock();
            if std::mem::replace(&mut state.has_left, true) {
                return;
            }
            self.0.lease.end_term();
            (state.node, state.last)
        };
        self.0.changed();
        if let Some(last) = last
            && !matches!(tokio::time::timeout(ANSWER, self.0.members.remove(node, last)).await, Ok(Ok(())))
        {
            tracing::warn!(?node, "could not leave the cluster in order; the others notice within seconds");
        }
    }

    /// The background loops of the cluster.
    pub fn loops(&self) -> &Loops {
        &self.0.loops
    }
}

/// The error for a request at a node that must not act.
fn unfit_error() -> Error {
    Error::new(Reason::StoreUnavailable, "This node is not ready to serve its cluster; try another one")
}

impl RosterInner {
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A mark that is being written. If it is dropped early it is forgotten, and the next caller writes it.
struct Marking<'a> {
    inner: &'a RosterInner,
    node: NodeId,
    attempting: Option<Attempting<IsGone>>,
}

impl Marking<'_> {
    fn done(mut self, outcome: IsGone) {
        let attempting = self.attempting.take();
        drop(self);
        if let Some(attempting) = attempting {
            attempting.done(outcome);
        }
    }
}

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        // Forgotten before its outcome is there, so that a later caller gets a newer answer.
        self.inner.marks.lock().remove(&self.node);
    }
}

impl Drop for RosterInner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl std::fmt::Debug for Roster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roster").field("node", &self.node()).finish_non_exhaustive()
    }
}
