//! MCP servers that are child processes and speak over their standard input and output.
//!
//! A session has a child of its own, started for it or taken from a few that were started ahead. Messages pass as
//! they are: only envelopes are read, and ids are ours towards the child (`traffic`). A child lives in a process
//! group of its own and goes with all it started (`process`). One that keeps dying is not started again at once
//! (`backoff`).

mod backoff;
mod command;
mod lines;
mod link;
mod pool;
mod process;
mod tail;
mod warden;

use std::sync::Arc;
use std::time::Duration;

use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Backend, Open, Opened};
use tenure_session::{Reason, RpcError};
use tokio::time::Instant;

pub use self::command::{ChildCommand, ChildLimits};
pub use self::warden::{Warden, watch};

use self::backoff::Backoff;
use self::pool::Pool;

/// The longest pause that a session waits for.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A backend that starts a child process for every session.
pub struct ChildBackend {
    shared: Arc<Shared>,
}

struct Shared {
    command: ChildCommand,
    pool: Pool,
    backoff: Backoff,
}

impl ChildBackend {
    /// A backend that runs this command. The warden, if there is one, ends the children should we be killed.
    ///
    /// Must be called within a tokio runtime if children are started ahead.
    pub fn new(command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        let pool = Pool::new(command.clone(), warden);
        let shared = Arc::new(Shared { command, pool, backoff: Backoff::default() });
        shared.pool.fill();
        Self { shared }
    }
}

impl Backend for ChildBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let label = open.outlet.session_label();
            // A short pause is waited for; nobody is kept waiting for a long one. Looked at again after each, because
            // the end of the last server may be noticed only now.
            let patience = Instant::now() + PATIENCE;
            while let Some(wait) = shared.backoff.wait(&label) {
                if Instant::now() + wait > patience {
                    let seconds = wait.as_secs_f32();
                    let words = format!(
                        "The server keeps failing; it is started again in {seconds:.1} s at the earliest"
                    );
                    return Err(RpcError::of(Reason::BackendUnavailable, words));
                }
                tokio::time::sleep(wait).await;
            }
            match link::open(&shared.pool, open).await {
                Ok((opened, life)) => {
                    shared.backoff.came_up(label, life);
                    Ok(opened)
                }
                Err(failure) => {
                    let next_try_ms = u64::try_from(shared.backoff.failed().as_millis()).unwrap_or(u64::MAX);
                    let program = shared.command.program.display();
                    tracing::error!(
                        session = label, %program, stderr = failure.tail, next_try_ms,
                        "the server could not be started: {}", failure.what
                    );
                    Err(failure.error)
                }
            }
        })
    }
}

impl std::fmt::Debug for ChildBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChildBackend").field(&self.shared.command.program).finish()
    }
}
