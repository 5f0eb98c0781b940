//! MCP servers that are child processes and speak over their standard input and output.
//!
//! Each session has its own child (`link`), either started for it or taken from a pool of children that were started
//! ahead (`pool`), unless all sessions share one child (`shared`). We pass messages on unchanged: we read only the
//! envelopes, and replace the ids with ours towards the child (`crate::pending`). A child has its own process group,
//! which ends together with it (`process`). A child that keeps dying is restarted with back-off (`starter`, `restarts`).
//!
//! All this is for servers with sessions. Requests without a session, of the modern era, share a child (`modern`).

mod command;
mod find;

mod link;
mod modern;
mod shared;

mod pool;
mod restarts;
mod starter;

mod lines;
mod pipes;
mod process;
mod stderr_tail;
mod warden;

mod splice;

use std::sync::Arc;

use tenure_protocol::RpcError;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::id::Principal;
use tenure_session::port::BoxFuture;

pub use self::command::{ChildCommand, ChildLimits, Inherit};
pub use self::find::NotFound;
pub use self::modern::ChildResponder;
pub use self::warden::{Warden, watch};

use self::pool::{Pool, TakenChild, WantedChild};
use self::restarts::Restarts;
use self::starter::Starter;

/// A backend that starts a child process for every session, or one for all.
pub struct ChildBackend {
    inner: Arc<ChildBackendInner>,
}

struct ChildBackendInner {
    starter: Starter,
    /// The one child, if all sessions share it.
    shared: shared::SharedChild,
}

impl ChildBackend {
    /// A backend that runs this command. The warden, if there is one, ends the children if we are killed.
    ///
    /// Must be called within a tokio runtime if children are started ahead.
    pub fn new(mut command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        if command.is_shared {
            command.limits.warm = command.limits.warm.min(1);
        }
        if command.tells_principal && !command.is_shared {
            // A child that was started ahead would not know whose it is.
            command.limits.warm = 0;
        }
        let pool = Arc::new(Pool::new(command.clone(), warden));
        pool.fill();
        let starter = Starter { command, pool, restarts: Restarts::default() };
        Self { inner: Arc::new(ChildBackendInner { starter, shared: shared::SharedChild::default() }) }
    }

    /// Lets operators restart its children.
    pub fn restarter(&self) -> ChildRestarter {
        ChildRestarter(Arc::clone(&self.inner.starter.pool))
    }

    /// The responder of the same program, for requests without a session. Both count towards the same limit of
    /// processes. Only the program itself can say whether it knows that era; see [`tenure_session::backend::probe`].
    pub fn modern(&self) -> ChildResponder {
        let Starter { command, pool, .. } = &self.inner.starter;
        // A separate back-off: whether a server with sessions starts says nothing about requests without sessions.
        let starter =
            Starter { command: command.clone(), pool: Arc::clone(pool), restarts: Restarts::default() };
        ChildResponder::of(starter)
    }
}

/// Restarts the children of one command. Cheap to clone.
#[derive(Clone)]
pub struct ChildRestarter(Arc<Pool>);

impl ChildRestarter {
    /// Ends all children; each session gets another one with its next request, and requests in flight that are safe to repeat are
    /// sent again. Must be called within a tokio runtime.
    pub fn restart(&self) {
        self.0.restart();
    }
}

impl std::fmt::Debug for ChildRestarter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChildRestarter")
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
        let (label, mut wanted) = (open.outlet.session_label(), WantedChild::Any);
        let owner = match self.command.tells_principal {
            true => owner(&open.outlet.principal()),
            false => Vec::new(),
        };
        loop {
            let TakenChild { process, is_spare } = self.process(&label, wanted, &owner).await?;
            self.pool.fill();
            match link::open(process, self.command.limits.max_line_bytes, open).await {
                Ok((opened, life)) => {
                    self.restarts.came_up(label, life);
                    return Ok(opened);
                }
                Err(failure) if is_spare && wanted == WantedChild::Any && failure.ended_by_itself => {
                    self.threw_away(&label, &failure);
                    wanted = WantedChild::Fresh;
                }
                Err(failure) => return Err(self.failed(&label, &failure)),
            }
        }
    }
}

/// The variables that tell a child whose it is. An anonymous client has none.
fn owner(principal: &Principal) -> Vec<(&'static str, String)> {
    let told = [("TENURE_PRINCIPAL", principal.name()), ("TENURE_CLIENT", principal.client())];
    told.into_iter().filter_map(|(variable, name)| Some((variable, name?.to_owned()))).collect()
}

impl std::fmt::Debug for ChildBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChildBackend").field(&self.inner.starter.command.program).finish()
    }
}
