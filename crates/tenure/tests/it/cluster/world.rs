//! Nodes of one cluster in this process. Each has a runtime of its own, so that it can be lost at once, with everything that it
//! was about to do: its sockets close, and its record stays.

use std::net::SocketAddr;
use std::sync::Arc;

use tenure::Node;
use tenure_session::backend::Backend;
use tenure_session::id::{NodeId, SessionId};
use tenure_session::port::members::Members;
use tenure_session::port::store::Store;
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::{FakeBackend, Opens, Script};
use tenure_testkit::fake_responder::{Exchanged, FakeResponder};
use tenure_testkit::memory_members::MemoryMembers;
use tokio::runtime::Runtime;

use crate::modern::support::Standing;
use crate::support::node::config;
use crate::support::session::Session;
use crate::support::wait::within;

/// What the nodes share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) store: Arc<Memory>,
    pub(crate) members: Arc<MemoryMembers>,
    settings: Vec<(String, String)>,
}

/// A node that can be lost. What a test does not ask of it, it answers by hand.
pub(crate) struct Lone<S = Script> {
    pub(crate) address: SocketAddr,
    pub(crate) script: S,
    running: Option<(Runtime, Node)>,
}

impl Shared {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self {
            store: Arc::new(Memory::new()),
            members: Arc::new(MemoryMembers::new()),
            settings: settings.collect(),
        }
    }

    /// The same cluster, for a node that has more settings.
    pub(crate) fn with(&self, settings: &[(&str, &str)]) -> Self {
        let mut shared = self.clone();
        let more = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        shared.settings.extend(more);
        shared
    }

    /// A node in front of a server that the test plays.
    pub(crate) async fn node(&self) -> Lone {
        let (backend, script) = FakeBackend::new();
        self.in_front_of(backend, script).await
    }

    /// A node in front of a server that opens no session.
    pub(crate) async fn refusing(&self) -> Lone {
        let (backend, script) = FakeBackend::new();
        backend.set_opens(Opens::Refuses);
        self.in_front_of(backend, script).await
    }

    /// A node in front of a server without sessions that the test plays.
    pub(crate) async fn modern(&self) -> Lone<Exchanged> {
        let (responder, server) = FakeResponder::new();
        self.in_front_of(Arc::new(Standing(responder)), server).await
    }

    async fn in_front_of<S>(&self, backend: Arc<dyn Backend>, script: S) -> Lone<S> {
        let shared = self.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let started = runtime.spawn(async move {
            let settings: Vec<_> =
                shared.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let config = config(&settings);
            let node = Node::builder(&config).with_backend(backend);
            let node = node.with_store(shared.store.clone()).with_members(shared.members.clone());
            node.start().await.expect("a node")
        });
        let node = within("a node", started).await.expect("no panic");
        Lone { address: node.address(), script, running: Some((runtime, node)) }
    }

    /// Two nodes that know each other.
    pub(crate) async fn pair(&self) -> (Lone, Lone) {
        (self.node().await, self.node().await)
    }

    /// A node with the demo behind it, in this runtime.
    pub(crate) async fn demo(&self) -> Node {
        let settings: Vec<_> =
            self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let config = config(&settings);
        let node = Node::builder(&config).with_store(self.store.clone()).with_members(self.members.clone());
        node.start().await.expect("a node")
    }

    /// The node that has a session.
    pub(crate) async fn owner(&self, session: &Session) -> Option<NodeId> {
        let id = SessionId::parse(session.id.as_bytes()).expect("an id");
        self.store.owner(id.key()).await.expect("memory").map(|(node, _)| node)
    }

    /// Removes the record of a node that was lost, as the others do when it has been silent for some seconds.
    pub(crate) async fn remove(&self, node: NodeId) {
        let members = self.members.members().await.expect("memory");
        let member = members.iter().find(|member| member.node == node).expect("its record");
        self.members.remove(node, member.renewal).await.expect("it renews no more");
    }

    /// The peer ports of all nodes.
    pub(crate) async fn peer_ports(&self) -> Vec<SocketAddr> {
        let members = self.members.members().await.expect("memory");
        let ports = members.iter().map(|member| {
            let record: serde_json::Value = serde_json::from_slice(&member.info).expect("JSON");
            record["peer_address"].as_str().expect("an address").parse().expect("an address")
        });
        ports.collect()
    }
}

impl Lone {
    /// A session of this node whose server is in place.
    pub(crate) async fn session(&mut self) -> Session {
        let session = Session::start(self.address).await;
        self.script.opened().await;
        session
    }
}

impl<S> Lone<S> {
    /// Its name.
    pub(crate) fn name(&self) -> NodeId {
        let (_, node) = self.running.as_ref().expect("it runs");
        node.name().expect("it is of a cluster")
    }

    /// Stops the node in order, in the background.
    pub(crate) fn stop(&mut self) -> tokio::task::JoinHandle<()> {
        let (runtime, node) = self.running.take().expect("it runs");
        tokio::spawn(async move {
            runtime.spawn(node.stop()).await.expect("no panic");
            runtime.shutdown_background();
        })
    }

    /// The node is lost: it does nothing more, and its connections end.
    pub(crate) async fn lose(&mut self) {
        let (runtime, node) = self.running.take().expect("it runs");
        // Dropped where it may block: everything that runs is dropped with it.
        tokio::task::spawn_blocking(move || {
            drop(runtime);
            drop(node);
        })
        .await
        .expect("no panic");
    }
}

impl<S> Drop for Lone<S> {
    fn drop(&mut self) {
        if let Some((runtime, node)) = self.running.take() {
            runtime.shutdown_background();
            drop(node);
        }
    }
}
