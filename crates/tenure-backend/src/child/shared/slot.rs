//! The one server that sessions share: the first session starts it, and it ends when the last session has left.
//!
//! Starting is single-flight: sessions that need the server meanwhile wait for the same start, and fail together. If
//! they all give up, the start is cancelled. The next start waits until the last server has ended completely, because
//! there may often be only one instance of a shared server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tenure_protocol::RpcError;
use tenure_session::backend::{Open, Opened};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::ChildBackendInner;
use super::super::pool::{TakenChild, WantedChild};
use super::link::SharedLink;
use super::server::{NoServer, SharedServer};
use crate::pending::gone;

/// The label of the shared server's failures in the back-off.
const LABEL: &str = "shared";

/// How many servers may end before a session has joined one of them.
const TRIES: usize = 3;

/// The current start or server. The last one stays here until the next start, which waits for its end.
#[derive(Default)]
pub(in super::super) struct SharedChild(Mutex<Option<SharedStart>>);

/// The outcome of a start; `None` until there is one.
type StartOutcome = Option<Result<Arc<SharedServer>, RpcError>>;

/// A server, or the attempt to start it.
struct SharedStart {
    outcome: watch::Receiver<StartOutcome>,
    /// How many sessions wait for the server and have not joined.
    openers: usize,
    /// Identifies this start.
    number: u64,
    /// Cancelled when no session waits for the server any more.
    given_up: CancellationToken,
    /// Ends when the server is up, or the failed start is cleaned up.
    starting: JoinHandle<()>,
}

/// Opens a link to the one server.
pub(in super::super) async fn open(inner: &Arc<ChildBackendInner>, open: Open) -> Result<Opened, RpcError> {
    for _ in 0..TRIES {
        let mut opener = Opener::new(inner);
        let server = opener.server().await?;
        if let Some(member) = server.members.join(open.outlet.clone(), open.fanout.clone()) {
            let result = server.introduction(open.revision);
            let link = SharedLink { server, member, has_left: AtomicBool::new(false) };
            return Ok(Opened { link: Box::new(link), result });
        }
        // The server has ended meanwhile; start another one.
    }
    Err(gone())
}

/// A session that waits for the server.
struct Opener {
    inner: Arc<ChildBackendInner>,
    number: u64,
    outcome: watch::Receiver<StartOutcome>,
}

impl Opener {
    fn new(inner: &Arc<ChildBackendInner>) -> Self {
        let mut current = inner.shared.0.lock();
        if current.as_ref().is_none_or(SharedStart::is_over) {
            *current = Some(SharedStart::after(current.take(), inner));
        }
        let start = current.as_mut().expect("there is one now");
        start.openers += 1;
        Self { inner: Arc::clone(inner), number: start.number, outcome: start.outcome.clone() }
    }

    async fn server(&mut self) -> Result<Arc<SharedServer>, RpcError> {
        match self.outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // The task was aborted or panicked.
            Ok(None) | Err(_) => Err(gone()),
        }
    }
}

impl Drop for Opener {
    /// If no session waits any more and none has joined, cancels the start or ends the server.
    fn drop(&mut self) {
        let mut current = self.inner.shared.0.lock();
        let Some(start) = current.as_mut().filter(|start| start.number == self.number) else { return };
        start.openers -= 1;
        if start.openers > 0 {
            return;
        }
        if start.outcome.borrow().is_none() {
            start.given_up.cancel();
        }
        // Check again: the server may have come up just now, before it saw the cancellation.
        if let Some(Ok(server)) = &*start.outcome.borrow() {
            server.end_if_empty();
        }
    }
}

impl SharedStart {
    fn after(last: Option<Self>, inner: &Arc<ChildBackendInner>) -> Self {
        let (tell, outcome) = watch::channel(None);
        let number = last.as_ref().map_or(0, |last| last.number) + 1;
        let given_up = CancellationToken::new();
        let (inner, unwanted, began) = (Arc::clone(inner), given_up.clone(), Instant::now());
        #[expect(clippy::disallowed_methods, reason = "ends soon after no session waits for it")]
        let starting = tokio::spawn(async move {
            // Wait even if this start is cancelled already: the next start waits only for this one.
            if let Some(last) = last {
                last.gone().await;
            }
            let Some(started) = start(&inner, began, &unwanted).await else { return };
            let started = started.map(Arc::new);
            tell.send_replace(Some(started.clone()));
            if let Ok(server) = started
                && unwanted.is_cancelled()
            {
                server.end_if_empty();
            }
        });
        Self { outcome, openers: 0, number, given_up, starting }
    }

    /// Resolves when the start is cleaned up and its server has ended. Only for a start that is over.
    async fn gone(self) {
        // If the task panicked, its process was ended by the drop.
        drop(self.starting.await);
        let server = self.outcome.borrow().clone().and_then(Result::ok);
        if let Some(server) = server {
            server.end().await;
        }
    }

    /// Whether the start was given up or failed, or the server has ended.
    fn is_over(&self) -> bool {
        if self.given_up.is_cancelled() {
            return true;
        }
        match &*self.outcome.borrow() {
            None => false,
            Some(Ok(server)) => server.members.is_closed(),
            Some(Err(_)) => true,
        }
    }
}

/// Starts a server; `None` if it was given up, and then its process has ended.
async fn start(
    inner: &ChildBackendInner,
    began: Instant,
    given_up: &CancellationToken,
) -> Option<Result<SharedServer, RpcError>> {
    let (starter, mut wanted) = (&inner.starter, WantedChild::Any);
    let limits = &starter.command.limits;
    loop {
        let taken = given_up.run_until_cancelled(starter.process(LABEL, wanted, &[])).await?;
        let TakenChild { process, is_spare } = match taken {
            Ok(taken) => taken,
            Err(error) => return Some(Err(error)),
        };
        // The session waits since `began` and should get our error before its own timeout. A server still gets at least
        // half of the time.
        let patience = limits.start_timeout.saturating_sub(began.elapsed()).max(limits.start_timeout / 2);
        match SharedServer::start(process, limits, patience, given_up).await {
            Ok((server, life)) => {
                tracing::info!(child = server.id(), "the shared server has started");
                starter.restarts.came_up(LABEL.to_owned(), life);
                return Some(Ok(server));
            }
            Err(NoServer::GivenUp) => {
                tracing::debug!("no session waits for the shared server any more; gave up its start");
                return None;
            }
            Err(NoServer::Failed(failure))
                if is_spare && wanted == WantedChild::Any && failure.ended_by_itself =>
            {
                starter.threw_away(LABEL, &failure);
                wanted = WantedChild::Fresh;
            }
            Err(NoServer::Failed(failure)) => return Some(Err(starter.failed(LABEL, &failure))),
        }
    }
}
