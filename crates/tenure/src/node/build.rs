//! From a configuration and the parts of an embedder to a running node.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_layers::data::KindOfState;
use tenure_session::backend::Backend;
use tenure_session::port::members::Members;
use tenure_session::port::observer::SessionObserver;
use tenure_session::port::store::Store;
use tenure_transport::observe::RequestObserver;
use tenure_transport::serve::{self, HttpServer, Stages};
use tokio_util::task::TaskTracker;

use super::store::{Keep, open_to_serve};
use super::{MountedNode, Node, OperatorDoors, watched};
use crate::admin::{AddressBefore, AdminApi, AdminListener, OperatorKeys};
use crate::config::Config;
use crate::control::{self, Control, ControlSocket, HandOver};
use crate::failure::Failure;
use crate::figures::MetricsPage;
use crate::operator::Operator;
use crate::shutdown::{self, ControlEnd};
use crate::socket::{AfterUs, Socket};
use crate::wire::{self, Assembled, Auth, EmbeddedObservers, Engine, OpenedStore, Program, Served};

/// The parts of a node. The configuration decides every part that is not added here.
#[must_use]
pub struct NodeBuilder<'a> {
    config: &'a Config,
    backend: Option<Arc<dyn Backend>>,
    kinds: Vec<KindOfState>,
    store: Option<Arc<dyn Store>>,
    members: Option<Arc<dyn Members>>,
    observers: EmbeddedObservers,
}

impl<'a> NodeBuilder<'a> {
    pub(super) fn new(config: &'a Config) -> Self {
        let observers = EmbeddedObservers::default();
        Self { config, backend: None, kinds: Vec::new(), store: None, members: None, observers }
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
    /// operators do not reach it. Only one node may use a store at a time, unless it is [shared](Self::with_members).
    pub fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Shares the store with the nodes of these records: any of them serves any session. The configuration says how they
    /// reach each other. Only with [`with_store`](Self::with_store).
    pub fn with_members(self, members: Arc<dyn Members>) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Tells this observer what happens to sessions and tasks. Several are told in the order in which they were added.
    pub fn with_observer(mut self, observer: Arc<dyn SessionObserver>) -> Self {
        self.observers.sessions.push(observer);
        self
    }

    /// Tells this observer of every request that has ended.
    pub fn with_request_observer(mut self, observer: Arc<dyn RequestObserver>) -> Self {
        self.observers.requests.push(observer);
        self
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
        let (operator, api) = node.for_operators(self.config, kinds, (None, None), &end);
        let control = folder.and_then(|folder| Control::bind(&folder, operator, None, api.clone()));
        let doors = OperatorDoors { control, admin: None, api };
        let (router, stages) = (node.router.clone(), node.stages.clone());
        node.tasks.spawn(async move {
            tokio::join!(serve::drain_mounted(&router, &stages, drain), watched(doors, end));
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
        let runtime_socket =
            control::runtime_socket(self.config).map(ControlSocket::bind_at).transpose()?.flatten();
        self.serve((served, auth), socket, runtime_socket).await
    }

    fn served(&self, program: Program) -> Result<(Served, Option<Auth>), Failure> {
        let auth = Auth::new(self.config)?;
        let mut served = match &self.backend {
            Some(backend) => Served::embedded(Arc::clone(backend), self.kinds.clone(), self.config)?,
            None => wire::served(self.config, auth.as_ref(), program)?,
        };
        served.observers = self.observers.clone();
        Ok((served, auth))
    }

    fn keep(&self) -> Keep {
        let lent = |store| Keep::Lent(store, self.members.clone());
        self.store.clone().map_or(Keep::Configured, lent)
    }

    async fn serve(
        self,
        (served, auth): (Served, Option<Auth>),
        socket: Socket,
        runtime_socket: Option<ControlSocket>,
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
        // Before the store is opened, so that faults of the configuration are reported before anything was touched.
        let operator_keys = OperatorKeys::new(config, auth.as_ref().map(|auth| auth.authenticator.clone()))?;
        let before = if predecessor.is_some() { AddressBefore::OfPredecessor } else { AddressBefore::Free };
        let admin = AdminListener::bind(config, &operator_keys, before)?;
        let admin_address = admin.as_ref().map(AdminListener::address);
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
        operator_keys.read_revocations(running.store().store.as_ref()).await;
        let (operator, api) =
            running.for_operators(config, kinds, (Some(&operator_keys), folder.as_deref()), &end);
        let control = match (folder, runtime_socket) {
            (Some(folder), _) => Control::bind(&folder, operator, Some(hand_over.clone()), api.clone()),
            // No hand-over: another process could not read the sessions in this one's memory, and other nodes take
            // those of a node that stops.
            (None, Some(socket)) => Some(Control::on(socket, operator, None, api.clone())),
            (None, None) => None,
        };
        let doors = OperatorDoors { control, admin, api };
        let passing = hand_over.clone();
        running.tasks.spawn(async move {
            tokio::join!(served, watched(doors, end));
            passing.end().await;
        });
        running.tasks.close();
        Ok(Node { address, scheme, admin: admin_address, hand_over, running })
    }

    /// Starts everything but the socket. Also returns the folder of the store, if it has one.
    async fn assemble(
        &self,
        served: (Served, Option<Auth>),
        opened: OpenedStore,
    ) -> Result<(MountedNode, Option<PathBuf>), Failure> {
        let (stages, tasks) = (Stages::default(), TaskTracker::new());
        // Bound first: what fails here must not leave runtimes behind.
        let bound =
            self.config.metrics.listen.map(|address| MetricsPage::bind(address, served.0.figures.clone()));
        let page = match bound.transpose() {
            Ok(page) => page,
            Err(failure) => {
                opened.close().await;
                return Err(failure);
            }
        };
        let Assembled { runtimes, front: router, folder } =
            wire::assemble(self.config, served, opened, stages.stop.clone()).await?;
        if let Some(auth) = &runtimes.auth {
            tasks.spawn(auth.run(runtimes.sessions.loops(), stages.stop.clone()));
        }
        let loops = runtimes.sessions.loops();
        if self.config.metrics.collect {
            tasks.spawn(runtimes.figures.run(loops, stages.stop.clone()));
        }
        runtimes.traces.spawn(&tasks, loops);
        if let Some(every) = self.config.metrics.report {
            tasks.spawn(runtimes.figures.report(every, loops, stages.stop.clone()));
        }
        let metrics = page.as_ref().map(MetricsPage::address);
        if let Some(page) = page {
            tasks.spawn(page.run(stages.stop.clone()));
        }
        tasks.spawn(runtimes.limits.run(loops, stages.stop.clone()));
        tasks.spawn(runtimes.limits.watch(loops, runtimes.budget.clone(), stages.stop.clone()));
        if let Some(cluster) = &runtimes.cluster {
            tasks.spawn(runtimes.limits.divide(loops, cluster.roster.clone(), stages.stop.clone()));
        }
        Ok((MountedNode { runtimes, router, stages, tasks, metrics }, folder))
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

    /// What commands ask, and the API beside it.
    fn for_operators(
        &self,
        config: &Config,
        kinds: Vec<KindOfState>,
        (keys, folder): (Option<&OperatorKeys>, Option<&Path>),
        end: &ControlEnd,
    ) -> (Operator, AdminApi) {
        let operator = Operator::online(&self.runtimes, kinds)
            .with_budget(self.runtimes.budget.clone())
            .with_engine(Engine::of(config))
            .with_authenticator(keys.and_then(OperatorKeys::own).cloned());
        if let Some(cluster) = &self.runtimes.cluster {
            cluster.answer(Arc::new(operator.clone()));
            let (loops, stop) = (self.runtimes.sessions.loops(), self.stages.stop.clone());
            if let Some(following) = operator.follow_revocations(loops, stop) {
                self.tasks.spawn(following);
            }
        }
        let api = AdminApi::new(config, operator.clone(), self.runtimes.clone(), folder, end.over.clone());
        (operator, api)
    }
}

impl std::fmt::Debug for NodeBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").finish_non_exhaustive()
    }
}
