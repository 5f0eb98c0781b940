//! MCP servers that are child processes and speak over their standard input and output.
//!
//! A session has a child of its own, started for it or taken from a few that were started ahead, unless all of them
//! share one (`shared`). Messages pass as
//! they are: only envelopes are read, and ids are ours towards the child (`traffic`). A child lives in a process
//! group of its own and goes with all it started (`process`). One that keeps dying is not started again at once
//! (`backoff`).

mod backoff;
mod command;
mod find;
mod lines;
mod link;
mod pipes;
mod pool;
mod process;
mod shared;
mod tail;
mod warden;

use std::sync::Arc;
use std::time::Duration;

use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Backend, Open, Opened};
use tenure_session::{Error, Reason, RpcError};
use tokio::time::Instant;

pub use self::command::{ChildCommand, ChildLimits};
pub use self::find::NotFound;
pub use self::warden::{Warden, watch};

use self::backoff::Backoff;
use self::link::Failure;
use self::pool::{NoChild, Pool};

/// The longest pause that a session waits for.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A backend that starts a child process for every session, or one for all.
pub struct ChildBackend {
    inner: Arc<Inner>,
}

struct Inner {
    command: ChildCommand,
    pool: Pool,
    backoff: Backoff,
    /// The one child, if sessions share it.
    slot: shared::Slot,
}

impl ChildBackend {
    /// A backend that runs this command. The warden, if there is one, ends the children should we be killed.
    ///
    /// Must be called within a tokio runtime if children are started ahead.
    pub fn new(mut command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        if command.is_shared {
            command.limits.warm = command.limits.warm.min(1);
        }
        let pool = Pool::new(command.clone(), warden);
        let slot = shared::Slot::default();
        let inner = Arc::new(Inner { command, pool, backoff: Backoff::default(), slot });
        inner.pool.fill();
        Self { inner }
    }
}

impl Backend for ChildBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            if inner.command.is_shared {
                return shared::open(&inner, open).await;
            }
            let label = open.outlet.session_label();
            inner.wait_out(&label).await?;
            let process = match inner.pool.take(PATIENCE).await {
                Ok(process) => process,
                Err(NoChild::Full) => return Err(inner.full()),
                Err(NoChild::Failed(error)) => return Err(inner.failed(&label, &not_started(&error))),
            };
            match link::open(process, inner.command.limits.max_line_bytes, open).await {
                Ok((opened, life)) => {
                    inner.backoff.came_up(label, life);
                    Ok(opened)
                }
                Err(failure) => Err(inner.failed(&label, &failure)),
            }
        })
    }
}

impl Inner {
    /// A short pause is waited for; nobody is kept waiting for a long one. Looked at again after each, because the end of
    /// the last server may be noticed only now.
    async fn wait_out(&self, label: &str) -> Result<(), RpcError> {
        let patience = Instant::now() + PATIENCE;
        while let Some(wait) = self.backoff.wait(label) {
            if Instant::now() + wait > patience {
                let seconds = wait.as_secs_f32();
                let words = format!(
                    "The server keeps failing; it is started again in {seconds:.1} s at the earliest"
                );
                return Err(RpcError::of(Reason::BackendUnavailable, words));
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn full(&self) -> RpcError {
        let words = "As many servers run as may; try again later";
        Error::new(Reason::TooManyProcesses, words).with("limit", self.command.limits.max).to_rpc()
    }

    /// It did not come up: it is not tried again at once.
    fn failed(&self, label: &str, failure: &Failure) -> RpcError {
        let next_try_ms = u64::try_from(self.backoff.failed().as_millis()).unwrap_or(u64::MAX);
        let program = self.command.program.display();
        tracing::error!(
            session = label, %program, stderr = failure.tail, next_try_ms,
            "the server could not be started: {}", failure.what
        );
        failure.error.clone()
    }
}

fn not_started(error: &std::io::Error) -> Failure {
    Failure {
        error: RpcError::of(Reason::BackendUnavailable, "The server could not be started"),
        what: error.to_string(),
        tail: String::new(),
    }
}

impl std::fmt::Debug for ChildBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChildBackend").field(&self.inner.command.program).finish()
    }
}
