//! A running Tenure process, or one inside a test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_session::budget::Budget;
use tenure_session::data::KindOfState;
use tenure_session::exchange::Exchanges;
use tenure_session::port::backend::Backend;
use tenure_session::runtime::Sessions;
use tenure_session::state::States;
use tenure_transport::serve::Stages;
use tenure_transport::stdio::Stdio;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::Failure;
use crate::config::Config;
use crate::control::{self, Control, HandOver};
use crate::operator::{DataDesk, Operator};
use crate::socket::Socket;
use crate::stopping::{self, ControlEnd};
use crate::wire::{self, Assembled, AssembledStdio, Opened, Served};

/// A server with its sessions, running until it is stopped.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    scheme: &'static str,
    sessions: Sessions,
    exchanges: Exchanges,
    states: States,
    store: Opened,
    budget: Budget,
    stages: Stages,
    hand_over: HandOver,
    tasks: TaskTracker,
}

impl Node {
    /// Starts a server with what the configuration names behind it; the demo, if it names nothing.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        Self::serve(config, wire::served(config)?, Socket::bind(config.listen)?, None).await
    }

    /// The same on a socket that listens already. If another process has the store open, it is waited for.
    pub(crate) async fn start_on(config: &Config, socket: Socket) -> Result<Self, Failure> {
        // Only for a process of its own: several nodes in one process are a test's or an embedder's.
        let memory = (config.store == "memory:").then(|| control::memory_socket(config)).flatten();
        Self::serve(config, wire::served(config)?, socket, memory).await
    }

    /// Starts a server with this backend behind it.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn with_backend(config: &Config, backend: Arc<dyn Backend>) -> Result<Self, Failure> {
        Self::with_kinds(config, backend, Vec::new()).await
    }

    /// Starts a server with this backend behind it, whose tools work on these kinds of state.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn with_kinds(
        config: &Config,
        backend: Arc<dyn Backend>,
        kinds: Vec<KindOfState>,
    ) -> Result<Self, Failure> {
        Self::serve(config, Served::embedded(backend, kinds), Socket::bind(config.listen)?, None).await
    }

    async fn serve(
        config: &Config,
        served: Served,
        socket: Socket,
        memory: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let after_us = socket.after_us;
        let shared = socket.listener.try_clone();
        let shared = shared.map_err(|error| Failure::new("cannot share the socket").caused_by(error))?;
        let hand_over = HandOver::new(shared);
        let kinds = served.kinds.clone();
        let Assembled { sessions, exchanges, states, server, store, budget, folder } =
            wire::assemble(config, served, socket).await?;
        let address = server
            .local_addr()
            .map_err(|error| Failure::new("cannot tell the address that was bound").caused_by(error))?;
        let scheme = server.scheme();
        let (stages, tasks, end) = (Stages::default(), TaskTracker::new(), ControlEnd::default());
        let drain = stopping::wind_down(stopping::Parts {
            sessions: sessions.clone(),
            exchanges: exchanges.clone(),
            states: states.clone(),
            store: store.clone(),
            stages: stages.clone(),
            control: end.clone(),
            hand_over: hand_over.clone(),
            after_us,
            grace: config.shutdown_grace,
        });
        let served = server.run(stages.clone(), drain);
        let data = DataDesk::online(states.clone(), kinds);
        let operator = Operator::online(store.clone(), sessions.clone(), data)
            .with_exchanges(exchanges.clone())
            .with_budget(budget.clone());
        let offered = Some(hand_over.clone());
        let control = match (folder, memory) {
            (Some(folder), _) => Control::bind(&folder, operator, offered),
            // There is no store that another process could go on with.
            (None, Some(path)) => Control::bind_at(path, operator, None),
            (None, None) => None,
        };
        let passing = hand_over.clone();
        tasks.spawn(async move {
            tokio::join!(served, watched(control, end));
            passing.end().await;
        });
        tasks.close();
        Ok(Self { address, scheme, sessions, exchanges, states, store, budget, stages, hand_over, tasks })
    }

    /// The MCP endpoint.
    pub fn url(&self) -> String {
        format!("{}://{}/mcp", self.scheme, self.address)
    }

    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The requests without a session.
    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    /// The data sessions.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// What clients make it hold.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The store.
    pub fn store(&self) -> &Opened {
        &self.store
    }

    /// Waits until another process wants to take over. Then this one has to be stopped.
    pub(crate) async fn taken_over(&self) {
        self.hand_over.asked().await;
    }

    /// Stops: takes no new sessions, finishes within the grace period what cannot be left to the next process, closes the
    /// store, and returns.
    pub async fn stop(self) {
        self.stages.leaving.cancel();
        self.tasks.wait().await;
    }
}

/// A process with one client, over a pair of byte streams.
#[derive(Debug)]
pub struct StdioNode {
    sessions: Sessions,
    states: States,
    stdio: Stdio,
    // Until the end, for operators.
    control: Option<Control>,
}

impl StdioNode {
    /// Gets ready to serve what the configuration names; the demo, if it names nothing.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        Self::serve(config, wire::served(config)?).await
    }

    /// Gets ready to serve this backend.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn with_backend(config: &Config, backend: Arc<dyn Backend>) -> Result<Self, Failure> {
        Self::serve(config, Served::embedded(backend, Vec::new())).await
    }

    async fn serve(config: &Config, served: Served) -> Result<Self, Failure> {
        let kinds = served.kinds.clone();
        let AssembledStdio { sessions, exchanges, states, stdio, store, folder } =
            wire::assemble_stdio(config, served).await?;
        let data = DataDesk::online(states.clone(), kinds);
        let operator = Operator::online(store, sessions.clone(), data).with_exchanges(exchanges);
        let control = folder.and_then(|folder| Control::bind(&folder, operator, None));
        Ok(Self { sessions, states, stdio, control })
    }

    /// The sessions, of which there will be one.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Serves until the client closes its end, nobody reads the output, or it is told to stop; finishes what is in
    /// flight within the grace period, which ends at once if it is told to stop meanwhile; deletes the session.
    ///
    /// # Cancel safety
    /// Dropping it drops everything that is under way; the session is left to expire.
    pub async fn run<R, W>(self, input: R, output: W, stop: CancellationToken)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Send + 'static,
    {
        let end = ControlEnd::default();
        let served = async {
            self.stdio.run(input, output, stop).await;
            end.over.cancel();
        };
        tokio::join!(served, watched(self.control, end.clone()));
        self.states.stop().await;
    }
}

/// Operators can look until all is done: a server that takes long to stop is what they look at.
async fn watched(control: Option<Control>, end: ControlEnd) {
    if let Some(control) = control {
        control.run(end.over).await;
    }
    end.ended.cancel();
}
