//! A cluster in one process: runtimes with rosters on one engine in memory, and a relay between them without sockets.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Error, Reason, Request, Response};
use tenure_session::call::Caller;
use tenure_session::cluster::{NodeInfo, Place, Roster};
use tenure_session::id::NodeId;
use tenure_session::port::store::Store;
use tenure_session::session::{Answer, Reader, SessionParts};
use tenure_session::{Limits, Principal, Session, SessionId, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::memory_members::MemoryMembers;
use tenure_testkit::node_view::{NodeView, SharedEngine, ViewFaults};
use tokio::time::Instant;

use super::servers::{Servers, ServersOfNode};

/// How long a request is tried at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause before a request is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// One process.
pub(super) struct Node {
    pub(super) sessions: Sessions,
    pub(super) roster: Roster,
    pub(super) view: Arc<NodeView>,
    /// The process is gone: nothing reaches it, and nothing it does counts.
    pub(super) is_dead: Arc<std::sync::atomic::AtomicBool>,
}

/// All processes, past and present.
pub(super) struct Cluster {
    pub(super) engine: Arc<SharedEngine>,
    pub(super) memory: Arc<Memory>,
    pub(super) clock: Arc<TurnableClock>,
    pub(super) servers: Arc<Servers>,
    pub(super) limits: Limits,
    pub(super) seed: u64,
    pub(super) nodes: parking_lot::Mutex<Vec<Arc<Node>>>,
}

/// What a client wants of a session.
#[derive(Clone)]
pub(super) enum Wish {
    Request(Request),
    /// Its answer to a question.
    Respond(Response),
    Listen(String),
    Delete,
}

/// What it gets.
#[derive(Debug)]
pub(super) enum Got {
    Answer(Answer),
    Reader(Reader),
    Taken,
    Deleted,
}

impl Cluster {
    pub(super) fn new(seed: u64, limits: Limits) -> Arc<Self> {
        let memory = Arc::new(Memory::new());
        let engine = SharedEngine::new(memory.clone(), Arc::new(MemoryMembers::new()));
        Arc::new(Self {
            engine,
            servers: Servers::new(memory.clone()),
            memory,
            clock: Arc::new(TurnableClock::start()),
            limits,
            seed,
            nodes: parking_lot::Mutex::default(),
        })
    }

    /// Starts a process.
    pub(super) fn start_node(&self) -> Arc<Node> {
        let number = self.nodes.lock().len() as u64;
        let seed = self.seed.wrapping_mul(31) + number + 1;
        let view = NodeView::new(Arc::clone(&self.engine), seed, &format!("node-{number}"));
        let name = NodeId::from_bytes((self.seed << 8 | (number + 1)).to_be_bytes());
        let info = NodeInfo { peer_address: format!("node-{number}:1"), ..NodeInfo::default() };
        let roster = Roster::start(view.clone(), self.clock.clone(), name, info);
        let is_dead = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let parts = SessionParts {
            store: view.clone(),
            backend: Arc::new(ServersOfNode {
                servers: Arc::clone(&self.servers),
                roster: roster.clone(),
                is_dead: Arc::clone(&is_dead),
            }),
            clock: self.clock.clone(),
            limits: self.limits.clone(),
            roster: Some(roster.clone()),
        };
        let node = Arc::new(Node { sessions: Sessions::start(parts), roster, view, is_dead });
        self.nodes.lock().push(Arc::clone(&node));
        node
    }

    /// Starts so many processes and waits until they know each other.
    pub(super) async fn start_nodes(&self, count: usize) -> Vec<Arc<Node>> {
        let nodes: Vec<_> = (0..count).map(|_| self.start_node()).collect();
        for node in &nodes {
            while node.roster.peers().len() + 1 < count {
                tokio::time::sleep(AGAIN).await;
            }
            node.roster.confirmed().await.unwrap();
        }
        nodes
    }

    pub(super) fn named(&self, name: NodeId) -> Option<Arc<Node>> {
        self.nodes.lock().iter().find(|node| node.roster.node() == name).cloned()
    }

    /// Serves a wish that reached this node, here or at the owner, as the relay between the nodes does.
    pub(super) async fn serve(&self, at: &Arc<Node>, id: &SessionId, wish: Wish) -> Result<Got, Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            if at.is_dead() {
                return Err(unreachable());
            }
            let place = tokio::time::timeout_at(until, at.sessions.place(id, &Principal::ANONYMOUS)).await;
            match place.map_err(|_| unreachable())?? {
                Place::Here => match at.serve(id, wish.clone()).await {
                    Err(error) if at.has_lost(id, &error).await => {}
                    served => return served,
                },
                Place::There(name) => {
                    let peer = self.named(name).filter(|node| !node.is_dead());
                    if let Some(peer) = peer
                        && let Some(Ok(Place::Here)) = tokio::select! {
                            place = peer.sessions.place(id, &Principal::ANONYMOUS) => Some(place),
                            () = at.roster.gone(name) => None,
                            () = tokio::time::sleep_until(until) => None,
                        }
                    {
                        match peer.serve(id, wish.clone()).await {
                            Err(error) if peer.has_lost(id, &error).await => {}
                            served => return served,
                        }
                    }
                    at.sessions.forget_place(id);
                }
            }
            if Instant::now() >= until {
                return Err(unreachable());
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The owner of a session in the engine.
    pub(super) async fn owner(&self, id: &SessionId) -> Option<NodeId> {
        self.memory.owner(id.key()).await.unwrap().map(|(node, _)| node)
    }
}

impl Node {
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Ends the process without warning.
    pub(super) fn kill(&self) {
        self.is_dead.store(true, std::sync::atomic::Ordering::SeqCst);
        self.view.set(ViewFaults { is_cut: true, ..ViewFaults::default() });
    }

    /// Ends the process in order.
    pub(super) async fn stop(&self) {
        self.stop_within(Duration::from_secs(2)).await;
    }

    /// The same with so much time for what runs there, as a server does it.
    pub(super) async fn stop_within(&self, grace: Duration) {
        self.roster.set_draining();
        self.sessions.drain();
        self.sessions.calm(grace).await;
        self.sessions.shut_down(grace).await;
        self.roster.leave().await;
        self.kill();
    }

    /// Waits until another node is gone, whichever node removes its record.
    pub(super) async fn sees_gone(&self, name: NodeId) {
        while !self.roster.find_gone(name).await.unwrap_or(false) {
            tokio::time::sleep(AGAIN).await;
        }
    }

    pub(super) async fn find(&self, id: &SessionId) -> Result<Arc<Session>, Error> {
        self.sessions.find(id, &Principal::ANONYMOUS).await
    }

    /// Whether a request failed because another node has the session: it was faster, or this one lost it.
    async fn has_lost(&self, id: &SessionId, error: &Error) -> bool {
        error.reason() == Reason::StoreUnavailable
            && matches!(self.sessions.place(id, &Principal::ANONYMOUS).await, Ok(Place::There(_)))
    }

    async fn serve(&self, id: &SessionId, wish: Wish) -> Result<Got, Error> {
        match wish {
            Wish::Request(request) => {
                let session = self.find(id).await?;
                session.request(request, Caller::anonymous("chance")).await.map(Got::Answer)
            }
            Wish::Respond(response) => {
                let session = self.find(id).await?;
                session.response(response).map(|()| Got::Taken)
            }
            Wish::Listen(after) => {
                let session = self.find(id).await?;
                session.listen(Some(after.as_bytes())).await.map(Got::Reader)
            }
            Wish::Delete => {
                self.sessions.delete(id, &Principal::ANONYMOUS).await?;
                Ok(Got::Deleted)
            }
        }
    }
}

/// The error of a relay that cannot reach the owner.
fn unreachable() -> Error {
    Error::new(Reason::StoreUnavailable, "the owner cannot be reached")
}
