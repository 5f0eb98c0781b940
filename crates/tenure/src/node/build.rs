//! From a configuration, and what an embedder brings, to a node that runs.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_layers::data::KindOfState;
use tenure_session::backend::Backend;
use tenure_session::port::store::Store;
use tenure_transport::serve::{self, Server, Stages};
use tokio_util::task::TaskTracker;

use super::{MountedNode, Node, watched};
use crate::config::Config;
use crate::control::{self, Control, HandOver};
use crate::failure::Failure;
use crate::operator::{DataDesk, Operator};
use crate::socket::{AfterUs, Socket};
use crate::stopping::{self, ControlEnd};
use crate::wire::{self, Assembled, Keep, Opened, Program, Served};

/// What a node is made of. Everything that is not added is as the configuration says.
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

    /// Serves this, and none of the servers that the configuration names. Then the configuration should also name the
    /// store (`store`, or `name` for a folder among those of the user): it cannot tell this server from others.
    pub fn with_backend(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend: Some(backend), ..self }
    }

    /// The tools of the backend work on these kinds of state.
    pub fn with_kinds(self, kinds: Vec<KindOfState>) -> Self {
        Self { kinds, ..self }
    }

    /// Keeps sessions in this store, and not in the one that the configuration names; its keys for encryption and its
    /// durability do not count then. The node leaves it when it is stopped, and does not close it. Commands for operators
    /// do not reach it. Only one node may use a store at a time.
    pub fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Starts a server on the address that the configuration names.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn start(self) -> Result<Node, Failure> {
        let served = self.served(Program::Other)?;
        let socket = Socket::bind(self.config.listen)?;
        self.serve(served, socket, None).await
    }

    /// Starts a server that has no socket: its [service](MountedNode::service) is mounted in another one. What the
    /// configuration says of the address, of TLS and of the bounds of connections does not count.
    ///
    /// # Errors
    /// When the store cannot be set up.
    pub async fn mount(self) -> Result<MountedNode, Failure> {
        let served = self.served(Program::Other)?;
        let kinds = served.kinds.clone();
        let (opened, _) = wire::open_to_serve(self.config, self.keep()).await?;
        let (node, folder) = self.assemble(served, opened).await?;
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

    /// Starts what the command `tenure` serves, on a socket that listens already. If another process has the store open,
    /// it is waited for.
    #[cfg(feature = "cli")]
    pub(crate) async fn start_on(self, socket: Socket) -> Result<Node, Failure> {
        let served = self.served(Program::Tenure)?;
        // Only for a process of its own: several nodes in one process are a test's or an embedder's.
        let memory = (self.config.store == "memory:").then(|| control::memory_socket(self.config)).flatten();
        self.serve(served, socket, memory).await
    }

    fn served(&self, program: Program) -> Result<Served, Failure> {
        match &self.backend {
            Some(backend) => Ok(Served::embedded(Arc::clone(backend), self.kinds.clone())),
            None => wire::served(self.config, program),
        }
    }

    fn keep(&self) -> Keep {
        self.store.clone().map_or(Keep::Configured, Keep::Lent)
    }

    async fn serve(self, served: Served, socket: Socket, memory: Option<PathBuf>) -> Result<Node, Failure> {
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
        let (opened, kept) = wire::open_to_serve(config, keep).await?;
        let (running, folder) = self.assemble(served, opened).await?;
        let server = Server::new(listener, running.router.clone(), tls, config.bounds.clone());
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
            // There is no store that another process could go on with.
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

    /// What runs in any case, and the folder of the store, if it has one.
    async fn assemble(
        &self,
        served: Served,
        opened: Opened,
    ) -> Result<(MountedNode, Option<PathBuf>), Failure> {
        let Assembled { sessions, exchanges, states, router, store, budget, folder } =
            wire::assemble(self.config, served, opened).await?;
        let (stages, tasks) = (Stages::default(), TaskTracker::new());
        Ok((MountedNode { sessions, exchanges, states, store, budget, router, stages, tasks }, folder))
    }
}

impl MountedNode {
    /// The way down, with the socket if there is one of our own.
    fn wind_down(
        &self,
        config: &Config,
        control: ControlEnd,
        socket: Option<(HandOver, AfterUs)>,
    ) -> impl Future<Output = ()> + use<> {
        stopping::wind_down(stopping::Parts {
            sessions: self.sessions.clone(),
            exchanges: self.exchanges.clone(),
            states: self.states.clone(),
            store: self.store.clone(),
            stages: self.stages.clone(),
            control,
            socket,
            grace: config.shutdown_grace,
        })
    }

    fn operator(&self, kinds: Vec<KindOfState>) -> Operator {
        let data = DataDesk::online(self.states.clone(), kinds);
        Operator::online(self.store.clone(), self.sessions.clone(), data)
            .with_exchanges(self.exchanges.clone())
            .with_budget(self.budget.clone())
    }
}

impl std::fmt::Debug for NodeBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").finish_non_exhaustive()
    }
}
