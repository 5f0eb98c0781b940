//! A process with one client, over a pair of byte streams.

use std::sync::Arc;

use tenure_session::backend::Backend;
use tenure_session::session::Sessions;
use tenure_transport::stdio::Stdio;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{OperatorDoors, watched};
use crate::admin::AdminApi;
use crate::config::Config;
use crate::control::Control;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::shutdown::ControlEnd;
use crate::wire::{self, Assembled, OpenedStore, Program, Runtimes, Served};

/// A process with one client, over a pair of byte streams.
pub struct StdioNode {
    runtimes: Runtimes,
    stdio: Stdio,
    // Kept until the end, so that operators can look at the process.
    doors: OperatorDoors,
    end: ControlEnd,
}

impl StdioNode {
    /// Prepares to serve the servers that the configuration names, or the demo if it names none.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn start(config: &Config) -> Result<Self, Failure> {
        Self::serve(config, wire::served(config, None, Program::Other)?).await
    }

    /// The same in a process of the command `tenure`.
    #[cfg(feature = "cli")]
    pub(crate) async fn start_own(config: &Config) -> Result<Self, Failure> {
        Self::serve(config, wire::served(config, None, Program::Tenure)?).await
    }

    /// Prepares to serve this backend.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn with_backend(config: &Config, backend: Arc<dyn Backend>) -> Result<Self, Failure> {
        Self::serve(config, Served::embedded(backend, Vec::new(), config)?).await
    }

    async fn serve(config: &Config, served: Served) -> Result<Self, Failure> {
        let kinds = served.kinds.clone();
        let Assembled { runtimes, front: stdio, folder } = wire::assemble_stdio(config, served).await?;
        let (operator, end) = (Operator::online(&runtimes, kinds), ControlEnd::default());
        let api = AdminApi::new(config, operator.clone(), runtimes.clone(), None, end.over.clone());
        let control = folder.and_then(|folder| Control::bind(&folder, operator, None, api.clone()));
        // No port: a client may start several such processes.
        let doors = OperatorDoors { control, admin: None, api };
        Ok(Self { runtimes, stdio, doors, end })
    }

    /// The store.
    pub fn store(&self) -> &OpenedStore {
        &self.runtimes.store
    }

    /// The sessions, of which there will be one.
    pub fn sessions(&self) -> &Sessions {
        &self.runtimes.sessions
    }

    /// Serves until the client closes the input, the output fails, or `stop` is cancelled. Then finishes the running
    /// requests within the grace period (`stop` ends that at once too), and deletes the session.
    ///
    /// # Cancel safety
    /// Dropping it drops everything that is under way; the session is left to expire.
    pub async fn run<R, W>(self, input: R, output: W, stop: CancellationToken)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Send + 'static,
    {
        let end = self.end;
        let served = async {
            self.stdio.run(input, output, stop).await;
            end.over.cancel();
        };
        let limits = &self.runtimes.limits;
        let tending = limits.run(self.runtimes.sessions.loops(), end.over.clone());
        let (loops, sending) = (self.runtimes.sessions.loops(), TaskTracker::new());
        self.runtimes.traces.spawn(&sending, loops);
        let counting = self.runtimes.figures.run(self.runtimes.sessions.loops(), end.over.clone());
        tokio::join!(served, watched(self.doors, end.clone()), tending, counting);
        self.runtimes.traces.close();
        sending.close();
        sending.wait().await;
        limits.tend().await;
        self.runtimes.states.stop().await;
        if let Some(audit) = &self.runtimes.audit {
            audit.close().await;
        }
    }
}

impl std::fmt::Debug for StdioNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdioNode").field("runtimes", &self.runtimes).finish_non_exhaustive()
    }
}
