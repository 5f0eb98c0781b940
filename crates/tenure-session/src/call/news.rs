//! News from servers to many clients: the fan-out, and its listeners.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tenure_protocol::Method;

use crate::id::{Route, SessionKey};
use crate::port::observer::ObserverPlace;

/// News for all clients of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The list of tools changed.
    Tools,
    /// The list of prompts changed.
    Prompts,
    /// The list of resources changed.
    Resources,
}

impl News {
    pub(crate) const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Its notification.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsListChanged,
            Self::Prompts => Method::PromptsListChanged,
            Self::Resources => Method::ResourcesListChanged,
        }
    }
}

/// Receives the news of servers. Its methods must not block.
pub trait NewsListener: Send + Sync + 'static {
    /// A resource changed at an endpoint.
    fn resource_updated(&self, route: &Route, uri: &str);
    /// A list changed at an endpoint.
    fn list_changed(&self, route: &Route, news: News);
    /// A task of an endpoint has ended. Those who watch it in this process know already, so only other nodes are told.
    fn task_ended(&self, _route: &Route, _task: SessionKey) {}
}

/// All listeners of a process.
#[derive(Default)]
pub(crate) struct Hub {
    listeners: Mutex<Vec<Weak<dyn NewsListener>>>,
    /// Tells the other nodes of a cluster.
    peers: OnceLock<Arc<dyn NewsListener>>,
    /// Hears what happens to the clients of the process.
    pub(crate) observer: ObserverPlace,
}

impl Hub {
    pub(crate) fn add(&self, listener: Weak<dyn NewsListener>) {
        self.listeners.lock().push(listener);
    }

    /// Tells the news of this process to the other nodes too. Called once.
    pub(crate) fn tell_peers(&self, peers: Arc<dyn NewsListener>) {
        drop(self.peers.set(peers));
    }

    fn listeners(&self) -> Vec<Arc<dyn NewsListener>> {
        self.listeners.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Sends news to all clients of an endpoint.
#[derive(Clone)]
pub struct Fanout {
    hub: Arc<Hub>,
    route: Route,
}

impl Fanout {
    /// A fan-out without listeners.
    pub fn new(route: Route) -> Self {
        Self::within(Arc::default(), route)
    }

    /// Hears what happens to the clients of the process.
    pub(crate) fn observer(&self) -> &ObserverPlace {
        &self.hub.observer
    }

    pub(crate) fn within(hub: Arc<Hub>, route: Route) -> Self {
        Self { hub, route }
    }

    /// The endpoint.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The same for another endpoint.
    #[must_use]
    pub fn on(&self, route: Route) -> Self {
        Self { hub: Arc::clone(&self.hub), route }
    }

    /// Reports to all clients that watch `uri` that it changed, in a cluster also at the other nodes.
    pub fn resource_updated(&self, uri: &str) {
        self.resource_updated_elsewhere(uri);
        if let Some(peers) = self.hub.peers.get() {
            peers.resource_updated(&self.route, uri);
        }
    }

    /// Reports to all clients that a list changed, in a cluster also at the other nodes.
    pub fn list_changed(&self, news: News) {
        self.list_changed_elsewhere(news);
        if let Some(peers) = self.hub.peers.get() {
            peers.list_changed(&self.route, news);
        }
    }

    /// Reports to the clients of this process that watch `uri` that it changed, as another node says.
    pub fn resource_updated_elsewhere(&self, uri: &str) {
        for listener in self.hub.listeners() {
            listener.resource_updated(&self.route, uri);
        }
    }

    /// Reports to the clients of this process that a list changed, as another node says.
    pub fn list_changed_elsewhere(&self, news: News) {
        for listener in self.hub.listeners() {
            listener.list_changed(&self.route, news);
        }
    }

    /// Adds a listener. It gets news until it is dropped.
    pub fn add(&self, listener: Weak<dyn NewsListener>) {
        self.hub.add(listener);
    }
}

impl std::fmt::Debug for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fanout").field(&self.route).finish()
    }
}
