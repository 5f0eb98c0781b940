//! From a configuration and the parts of an embedder to a running node.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_layers::data::KindOfState;
use tenure_session::backend::Backend;
use tenure_session::port::store::Store;
use tenure_transport::serve::{self, HttpServer, Stages};
use tokio_util::task::TaskTracker;

use super::store::{Keep, open_to_serve};
use super::{MountedNode, Node, watched};
use crate::config::Config;
use crate::control::{self, Control, HandOver};
use crate::failure::Failure;
use crate::operator::Operator;
use crate::shutdown::{self, ControlEnd};
use crate::socket::{AfterUs, Socket};
use crate::wire::{self, Assembled, Auth, OpenedStore, Program, Served};

/// The parts of a node. The configuration decides every part that is not added here.
#[must_use]
pub struct NodeBuilder<'a> {
    config: &'a Config,
    backend: Option<Arc<dyn Backend>>,
    kinds: Vec<KindOfState>,
    store: Option<Arc<dyn Store>>,
}

impl<'a> NodeBuilder<'a> {
    pub(super) fn new(config: &'a Config) -> Self {
        Self { config, backend: None, kinds: Vec::new(), store: None }
    }

    /// Serves this backend instead of the servers that the configuration names. The configuration should then also name
    /// the store (`store`, or `name` for one of the user's folders), because it cannot tell this server from others.
    pub fn with_backend(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend: Some(backend), ..self }
    }

    /// The tools of the backend work on these kinds of state.
    pub fn with_kinds(self, kinds: Vec<KindOfState>) -> Self {
        Self { kinds, ..self }
    }

    /// Keeps sessions in this store instead of the one that the configuration names; the configured keys and
    /// durability do not apply to it. A stopped node no longer uses the store, but does not close it. Commands for
    /// operators do not reach it. Only one node may use a store at a time.
    pub fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Starts a server on the address that the configuration names.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn start(self) -> Result<Node, Failure> {
        let (served, auth) = self.served(Program::Other)?;
        let socket = Socket::bind(self.config.listen)?;
        self.serve((served, auth), socket, None).await
    }

    /// Starts a server that has no socket: its [service](MountedNode::service) is mounted in another one. The
    /// configured address, TLS and bounds of connections do not apply.
    ///
    /// # Errors
    /// When the store cannot be set up, or hosts other than this machine are allowed and callers need no credentials.
    pub async fn mount(self) -> Result<MountedNode, Failure> {
        let (served, auth) = self.served(Program::Other)?;
        if auth.is_none() {
            wire::check_mounted_without_auth(self.config)?;
        }
        let kinds = served.kinds.clone();
        let (opened, _) = open_to_serve(self.config, self.keep()).await?;
        let (node, folder) = self.assemble((served, auth), opened).await?;
        let end = ControlEnd::default();
        let drain = node.wind_down(self.config, end.clone(), None);
        let control = folder.and_then(|folder| Control::bind(&folder, node.operator(kinds), None));
        let (router, stages) = (node.router.clone(), node.stages.clone());
        node.tasks.spawn(async move {
            tokio::join!(serve::drain_mounted(&router, &stages, drain), watched(control, end));
        });
        node.tasks.close();
        Ok(node)
    }

    /// Starts the server of the command `tenure` on a socket that already listens. If the socket comes from another
    /// process that has the store open, waits for that process.
    #[cfg(feature = "cli")]
    pub(crate) async fn start_on(self, socket: Socket) -> Result<Node, Failure> {
        let (served, auth) = self.served(Program::Tenure)?;
        // Only the command has one: tests and embedders may run several nodes in one process.
        let memory = (self.config.store == "memory:").then(|| control::memory_socket(self.config)).flatten();
        self.serve((served, auth), socket, memory).await
    }

    fn served(&self, program: Program) -> Result<(Served, Option<Auth>), Failure> {
        let auth = Auth::new(self.config)?;
        let served = match &self.backend {
            Some(backend) => Served::embedded(Arc::clone(backend), self.kinds.clone()),
            None => wire::served(self.config, auth.as_ref(), program)?,
        };
        Ok((served, auth))
    }

    fn keep(&self) -> Keep {
        self.store.clone().map_or(Keep::Configured, Keep::Lent)
    }

    async fn serve(
        self,
        (served, auth): (Served, Option<Auth>),
        socket: Socket,
        memory: Option<PathBuf>,
    ) -> Result<Node, Failure> {
        let config = self.config;
        let Socket { listener, after_us, predecessor } = socket;
        let shared = listener.try_clone();
        let shared = shared.map_err(|error| Failure::new("cannot share the socket").caused_by(error))?;
        let hand_over = HandOver::new(shared);
        let (listener, tls) = wire::listening(config, listener)?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::new("cannot tell the address that was bound").caused_by(error))?;
        let kinds = served.kinds.clone();
        let keep = predecessor.map_or_else(|| self.keep(), Keep::After);
        let (opened, kept) = open_to_serve(config, keep).await?;
        let (running, folder) = self.assemble((served, auth), opened).await?;
        let server = HttpServer::new(listener, running.router.clone(), tls, config.bounds.clone());
        let server = match kept {
            Some(kept) => server.with_kept(kept),
            None => server,
        };
        let scheme = server.scheme();
        let end = ControlEnd::default();
        let drain = running.wind_down(config, end.clone(), Some((hand_over.clone(), after_us)));
        let served = server.run(running.stages.clone(), drain);
        let control = match (folder, memory) {
            (Some(folder), _) => Control::bind(&folder, running.operator(kinds), Some(hand_over.clone())),
            // No hand-over: another process could not read the sessions in this one's memory.
            (None, Some(path)) => Control::bind_at(path, running.operator(kinds), None),
            (None, None) => None,
        };
        let passing = hand_over.clone();
        running.tasks.spawn(async move {
            tokio::join!(served, watched(control, end));
            passing.end().await;
        });
        running.tasks.close();
        Ok(Node { address, scheme, hand_over, running })
    }

    /// Starts everything but the socket. Also returns the folder of the store, if it has one.
    async fn assemble(
        &self,
        served: (Served, Option<Auth>),
        opened: OpenedStore,
    ) -> Result<(MountedNode, Option<PathBuf>), Failure> {
        let Assembled { runtimes, front: router, folder } =
            wire::assemble(self.config, served, opened).await?;
        let (stages, tasks) = (Stages::default(), TaskTracker::new());
        if let Some(auth) = &runtimes.auth {
            tasks.spawn(auth.run(runtimes.sessions.loops(), stages.stop.clone()));
        }
        tasks.spawn(runtimes.limits.run(runtimes.sessions.loops(), stages.stop.clone()));
        Ok((MountedNode { runtimes, router, stages, tasks }, folder))
    }
}

impl MountedNode {
    /// Stops everything, in order, once the node has to leave. `socket` is the node's own, if it has one.
    fn wind_down(
        &self,
        config: &Config,
        control: ControlEnd,
        socket: Option<(HandOver, AfterUs)>,
    ) -> impl Future<Output = ()> + use<> {
        shutdown::wind_down(shutdown::NodeParts {
            runtimes: self.runtimes.clone(),
            stages: self.stages.clone(),
            control,
            socket,
            grace: config.shutdown_grace,
        })
    }

    fn operator(&self, kinds: Vec<KindOfState>) -> Operator {
        Operator::online(&self.runtimes, kinds).with_budget(self.runtimes.budget.clone())
    }
}

impl std::fmt::Debug for NodeBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").finish_non_exhaustive()
    }
}
