//! A running Tenure process, or one inside a test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_session::port::backend::Backend;
use tenure_session::runtime::Sessions;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::Failure;
use crate::config::Config;
use crate::control::Control;
use crate::operator::Operator;
use crate::wire::{self, Assembled, Opened};

/// A server with its sessions, running until it is stopped.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    scheme: &'static str,
    sessions: Sessions,
    store: Opened,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Node {
    /// Starts a server with the demo behind it.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        Self::with_backend(config, wire::backend()).await
    }

    /// Starts a server with this backend behind it.
    ///
    /// # Errors
    /// When the store, TLS or the address cannot be set up.
    pub async fn with_backend(config: &Config, backend: Arc<dyn Backend>) -> Result<Self, Failure> {
        let Assembled { sessions, server, store, folder } = wire::assemble(config, backend).await?;
        let address = server
            .local_addr()
            .map_err(|error| Failure::new("cannot tell the address that was bound").caused_by(error))?;
        let scheme = server.scheme();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let drain = drain(sessions.clone(), config.shutdown_grace);
        let served = server.run(stop.clone(), drain);
        let operator = Operator::online(store.clone(), sessions.clone());
        match folder.and_then(|folder| Control::bind(&folder, operator)) {
            None => tasks.spawn(served),
            // Operators can look until all is done: a server that takes long to stop is what they look at.
            Some(control) => tasks.spawn(async move {
                let over = CancellationToken::new();
                let served = async {
                    served.await;
                    over.cancel();
                };
                tokio::join!(served, control.run(over.clone()));
            }),
        };
        tasks.close();
        Ok(Self { address, scheme, sessions, store, stop, tasks })
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

    /// The store.
    pub fn store(&self) -> &Opened {
        &self.store
    }

    /// Stops: takes nothing new, finishes what is in flight within the grace period, then returns.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn drain(sessions: Sessions, grace: Duration) {
    let interrupted = sessions.shut_down(grace).await;
    if interrupted > 0 {
        tracing::warn!(interrupted, "requests were still running at the end of the grace period");
    }
}
