//! A running Tenure process, or one inside another program.
//!
//! Three kinds: [`Node`] has its own socket, [`MountedNode`] is mounted in the server of an embedder, and [`StdioNode`]
//! has one client. [`NodeBuilder`] makes the first two, also with a backend or a store of the embedder.

mod build;
mod stdio;
mod store;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use tenure_session::backend::Backend;
use tenure_session::budget::Budget;
use tenure_session::exchange::Exchanges;
use tenure_session::id::NodeId;
use tenure_session::session::Sessions;
use tenure_session::state::States;
use tenure_transport::http::{Endpoint, Router};
use tenure_transport::serve::Stages;
use tokio_util::task::TaskTracker;

pub use build::NodeBuilder;
pub use stdio::StdioNode;

use crate::admin::{AdminApi, AdminListener};
use crate::config::Config;
use crate::control::{Control, HandOver};
use crate::failure::Failure;
use crate::shutdown::ControlEnd;
use crate::wire::{OpenedStore, Runtimes};

/// A server with its sessions and its own socket, running until it is stopped.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    scheme: &'static str,
    admin: Option<SocketAddr>,
    hand_over: HandOver,
    running: MountedNode,
}

impl Node {
    /// Begins a node with this configuration; the builder's methods add other parts.
    pub fn builder(config: &Config) -> NodeBuilder<'_> {
        NodeBuilder::new(config)
    }

    /// Starts a server in front of the servers that the configuration names, or of the demo if it names none.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        Self::builder(config).start().await
    }

    /// Starts a server in front of this backend.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn with_backend(config: &Config, backend: Arc<dyn Backend>) -> Result<Self, Failure> {
        Self::builder(config).with_backend(backend).start().await
    }

    /// The MCP endpoint.
    pub fn url(&self) -> String {
        format!("{}://{}/mcp", self.scheme, self.address)
    }

    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the page and the API for operators, if the configuration asks for them.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Waits until another process asks to take over. Then the caller has to stop this node.
    pub(crate) async fn taken_over(&self) {
        self.hand_over.asked().await;
    }

    /// Stops: takes no new sessions, finishes within the grace period the requests that the next process could not go
    /// on with, closes the store, and returns.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

/// The parts of the node: its service, its sessions, its store.
impl Deref for Node {
    type Target = MountedNode;

    fn deref(&self) -> &MountedNode {
        &self.running
    }
}

/// A server without a socket, running until it is stopped: its service is mounted in the server of an embedder.
#[derive(Debug)]
pub struct MountedNode {
    runtimes: Runtimes,
    router: Router,
    stages: Stages,
    tasks: TaskTracker,
    metrics: Option<SocketAddr>,
}

impl MountedNode {
    /// All paths of a node, as a `tower` service: `/mcp`, `/mcp/NAME` where there are several servers, `/healthz`,
    /// `/readyz`, and the doors that the configuration opens. In axum, use it as a `fallback_service`, or as a
    /// `nest_service`, which puts a prefix in front of these paths.
    ///
    /// It checks Host and Origin of every request as the configuration says. A middleware can put a
    /// [`Remote`](tenure_transport::http::Remote) into the extensions of a request, so that handlers know the caller.
    /// After [`stop`](Self::stop) it answers that it shuts down.
    pub fn service(&self) -> Router {
        self.router.clone()
    }

    /// The MCP endpoint alone, as a `tower` service for any path.
    pub fn endpoint(&self) -> Endpoint {
        self.router.endpoint().clone()
    }

    /// The sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.runtimes.sessions
    }

    /// The requests without a session.
    pub fn exchanges(&self) -> &Exchanges {
        &self.runtimes.exchanges
    }

    /// The data sessions.
    pub fn states(&self) -> &States {
        &self.runtimes.states
    }

    /// Counts what clients make the process hold.
    pub fn budget(&self) -> &Budget {
        &self.runtimes.budget
    }

    /// What the process counts of itself, as `/metrics` shows it.
    pub fn metrics_text(&self) -> String {
        self.runtimes.figures.metrics_text()
    }

    /// The address at which `/metrics` is served, if it is.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Puts the file of the audit log aside and begins another one, if there is a log.
    pub(crate) fn rotate_audit(&self) {
        if let Some(audit) = &self.runtimes.audit {
            audit.rotate();
        }
    }

    /// This node of its cluster, if it is of one.
    pub fn name(&self) -> Option<NodeId> {
        self.runtimes.cluster.as_ref().map(|cluster| cluster.roster.node())
    }

    /// The store.
    pub fn store(&self) -> &OpenedStore {
        &self.runtimes.store
    }

    /// Stops: takes no new sessions, finishes within the grace period the requests that the next process could not go
    /// on with, ends the streams of clients, closes the store, and returns. The server around it has to go on serving
    /// until then, and can stop afterwards.
    pub async fn stop(self) {
        self.stages.leaving.cancel();
        self.tasks.wait().await;
    }
}

/// The ways in for operators.
struct OperatorDoors {
    control: Option<Control>,
    admin: Option<AdminListener>,
    api: AdminApi,
}

/// Serves operators until everything else has stopped: they want to look at a server that stops slowly.
async fn watched(doors: OperatorDoors, end: ControlEnd) {
    let OperatorDoors { control, admin, api } = doors;
    let control = async {
        if let Some(control) = control {
            control.run(end.over.clone()).await;
        }
    };
    let admin = async {
        if let Some(admin) = admin {
            admin.run(api, end.over.clone()).await;
        }
    };
    tokio::join!(control, admin);
    end.ended.cancel();
}
