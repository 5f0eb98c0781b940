//! News that may concern many: what servers tell all at once, and who listens.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tenure_protocol::Method;

use crate::id::Route;

/// News that may concern everybody who uses a server.
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

    /// The notification that says so.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsListChanged,
            Self::Prompts => Method::PromptsListChanged,
            Self::Resources => Method::ResourcesListChanged,
        }
    }
}

/// Somebody whom news may concern. It must not wait.
pub trait Listener: Send + Sync + 'static {
    /// A resource changed at an endpoint.
    fn resource_updated(&self, route: &Route, uri: &str);
    /// A list changed at an endpoint.
    fn list_changed(&self, route: &Route, news: News);
}

/// All who listen in a process.
#[derive(Default)]
pub(crate) struct Hub(Mutex<Vec<Weak<dyn Listener>>>);

impl Hub {
    pub(crate) fn add(&self, listener: Weak<dyn Listener>) {
        self.0.lock().push(listener);
    }

    fn listeners(&self) -> Vec<Arc<dyn Listener>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Tells all who use an endpoint at once.
#[derive(Clone)]
pub struct Fanout {
    hub: Arc<Hub>,
    route: Route,
}

impl Fanout {
    /// For an endpoint where nobody listens yet.
    pub fn new(route: Route) -> Self {
        Self::within(Arc::default(), route)
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

    /// Tells everybody who watches `uri` that it changed. Nobody watches: nothing happens.
    pub fn resource_updated(&self, uri: &str) {
        for listener in self.hub.listeners() {
            listener.resource_updated(&self.route, uri);
        }
    }

    /// Tells everybody that a list changed.
    pub fn list_changed(&self, news: News) {
        for listener in self.hub.listeners() {
            listener.list_changed(&self.route, news);
        }
    }

    /// Lets somebody listen too, as long as it lives.
    pub fn add(&self, listener: Weak<dyn Listener>) {
        self.hub.add(listener);
    }
}

impl std::fmt::Debug for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fanout").field(&self.route).finish()
    }
}
