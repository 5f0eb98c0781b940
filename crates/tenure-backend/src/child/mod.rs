//! MCP servers that are child processes and speak over their standard input and output.
//!
//! A session has a child of its own, started for it or taken from a few that were started ahead, unless all of them
//! share one (`shared`). Messages pass as
//! they are: only envelopes are read, and ids are ours towards the child (`traffic`). A child lives in a process
//! group of its own and goes with all it started (`process`). One that keeps dying is not started again at once
//! (`starter`, `backoff`).
//!
//! All that is for servers with sessions. Requests without one, of the modern era, share a child ([`modern`]).

mod backoff;
mod command;
mod find;
mod lines;
mod link;
pub mod modern;
mod pipes;
mod pool;
mod process;
mod shared;
mod splice;
mod starter;
mod stderr_tail;
mod warden;

use std::sync::Arc;

use tenure_protocol::RpcError;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;

pub use self::command::{ChildCommand, ChildLimits, Inherit};
pub use self::find::NotFound;
pub use self::modern::ChildResponder;
pub use self::warden::{Warden, watch};

use self::backoff::Backoff;
use self::pool::{Pool, Taken, Wanted};
use self::starter::Starter;

/// A backend that starts a child process for every session, or one for all.
pub struct ChildBackend {
    inner: Arc<Inner>,
}

struct Inner {
    starter: Starter,
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
        let pool = Arc::new(Pool::new(command.clone(), warden));
        pool.fill();
        let starter = Starter { command, pool, backoff: Backoff::default() };
        Self { inner: Arc::new(Inner { starter, slot: shared::Slot::default() }) }
    }

    /// The other half of the same program, for requests without a session. The bounds on processes count for both
    /// together. Whether the program is of that era is for it to say; see [`tenure_session::backend::probe`].
    pub fn modern(&self) -> ChildResponder {
        let Starter { command, pool, .. } = &self.inner.starter;
        // Failures of their own: a server of sessions that does not come up says nothing of the other kind.
        let starter =
            Starter { command: command.clone(), pool: Arc::clone(pool), backoff: Backoff::default() };
        ChildResponder::of(starter)
    }
}

impl Backend for ChildBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            if inner.starter.command.is_shared {
                return shared::open(&inner, open).await;
            }
            inner.starter.open(&open).await
        })
    }
}

impl Starter {
    /// Opens a link to a child that serves this session alone.
    async fn open(&self, open: &Open) -> Result<Opened, RpcError> {
        let (label, mut wanted) = (open.outlet.session_label(), Wanted::Any);
        loop {
            let Taken { process, is_spare } = self.process(&label, wanted).await?;
            self.pool.fill();
            match link::open(process, self.command.limits.max_line_bytes, open).await {
                Ok((opened, life)) => {
                    self.backoff.came_up(label, life);
                    return Ok(opened);
                }
                Err(failure) if is_spare && wanted == Wanted::Any && failure.ended_by_itself => {
                    self.threw_away(&label, &failure);
                    wanted = Wanted::Fresh;
                }
                Err(failure) => return Err(self.failed(&label, &failure)),
            }
        }
    }
}

impl std::fmt::Debug for ChildBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChildBackend").field(&self.inner.starter.command.program).finish()
    }
}
