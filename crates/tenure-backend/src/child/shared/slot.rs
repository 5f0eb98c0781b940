//! The one server that sessions share: started by the first that needs it, ended when the last has left.
//!
//! Those who need it while it is being started wait for the same start, and fail together. If they all give up, so
//! does the start. The next one begins when all that is left of the last is gone: servers that are shared are often those
//! of which there may be only one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tenure_protocol::RpcError;
use tenure_session::backend::{Open, Opened};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::Inner;
use super::super::pool::{Taken, Wanted};
use super::link::SharedLink;
use super::server::{NoServer, Server};
use crate::pending::gone;

/// Whose failures they are, for the pauses between them.
const LABEL: &str = "shared";

/// How often a server may end between its start and the moment when a session takes its place.
const TRIES: usize = 3;

/// Where the server is. What was there last stays until there is another one, so that can wait for its end.
#[derive(Default)]
pub(in super::super) struct Slot(Mutex<Option<Flight>>);

/// What became of a start; nothing until it is over.
type Outcome = Option<Result<Arc<Server>, RpcError>>;

/// A server, or the attempt to start it.
struct Flight {
    outcome: watch::Receiver<Outcome>,
    /// Those who wait for it and have not joined.
    openers: usize,
    /// Tells it from another one.
    number: u64,
    /// Cancelled: nobody wants it any more.
    given_up: CancellationToken,
    /// Ends when there is a server, or nothing is left of the start.
    starting: JoinHandle<()>,
}

/// Opens a link to the one server.
pub(in super::super) async fn open(inner: &Arc<Inner>, open: Open) -> Result<Opened, RpcError> {
    for _ in 0..TRIES {
        let mut opener = Opener::new(inner);
        let server = opener.server().await?;
        if let Some(member) = server.crowd.join(open.outlet.clone(), open.fanout.clone()) {
            let result = server.introduction(open.revision);
            let link = SharedLink { server, member, has_left: AtomicBool::new(false) };
            return Ok(Opened { link: Box::new(link), result });
        }
        // It has ended since; another one is needed.
    }
    Err(gone())
}

/// One who waits for the server.
struct Opener {
    inner: Arc<Inner>,
    number: u64,
    outcome: watch::Receiver<Outcome>,
}

impl Opener {
    fn new(inner: &Arc<Inner>) -> Self {
        let mut slot = inner.slot.0.lock();
        if slot.as_ref().is_none_or(Flight::is_over) {
            *slot = Some(Flight::after(slot.take(), inner));
        }
        let flight = slot.as_mut().expect("there is one now");
        flight.openers += 1;
        Self { inner: Arc::clone(inner), number: flight.number, outcome: flight.outcome.clone() }
    }

    async fn server(&mut self) -> Result<Arc<Server>, RpcError> {
        match self.outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // The task was aborted or panicked.
            Ok(None) | Err(_) => Err(gone()),
        }
    }
}

impl Drop for Opener {
    /// Whoever was the last to wait and has not joined leaves nothing behind.
    fn drop(&mut self) {
        let mut slot = self.inner.slot.0.lock();
        let Some(flight) = slot.as_mut().filter(|flight| flight.number == self.number) else { return };
        flight.openers -= 1;
        if flight.openers > 0 {
            return;
        }
        if flight.outcome.borrow().is_none() {
            flight.given_up.cancel();
        }
        // Looked at again: it may have come up just now, without having seen that nobody wants it.
        if let Some(Ok(server)) = &*flight.outcome.borrow() {
            server.end_if_empty();
        }
    }
}

impl Flight {
    fn after(last: Option<Self>, inner: &Arc<Inner>) -> Self {
        let (tell, outcome) = watch::channel(None);
        let number = last.as_ref().map_or(0, |last| last.number) + 1;
        let given_up = CancellationToken::new();
        let (inner, unwanted, began) = (Arc::clone(inner), given_up.clone(), Instant::now());
        #[expect(clippy::disallowed_methods, reason = "ends at once when nobody waits for it any more")]
        let starting = tokio::spawn(async move {
            // Also if nobody waits for us any more: the next one waits for us.
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

    /// Resolves when nothing is left of it. Only for one that is over.
    async fn gone(self) {
        // It may have panicked, and then its process goes all the same.
        drop(self.starting.await);
        let server = self.outcome.borrow().clone().and_then(Result::ok);
        if let Some(server) = server {
            server.end().await;
        }
    }

    /// Whether it was given up, it failed, or the server has ended.
    fn is_over(&self) -> bool {
        if self.given_up.is_cancelled() {
            return true;
        }
        match &*self.outcome.borrow() {
            None => false,
            Some(Ok(server)) => server.crowd.is_closed(),
            Some(Err(_)) => true,
        }
    }
}

/// Starts a server; `None` if it was given up, and then nothing is left of it.
async fn start(
    inner: &Inner,
    began: Instant,
    given_up: &CancellationToken,
) -> Option<Result<Server, RpcError>> {
    let (starter, mut wanted) = (&inner.starter, Wanted::Any);
    let limits = &starter.command.limits;
    loop {
        let taken = given_up.run_until_cancelled(starter.process(LABEL, wanted)).await?;
        let Taken { process, is_spare } = match taken {
            Ok(taken) => taken,
            Err(error) => return Some(Err(error)),
        };
        // The session waits since we began, and shall hear from us why it failed; a server gets half the time at least.
        let patience = limits.start_timeout.saturating_sub(began.elapsed()).max(limits.start_timeout / 2);
        match Server::start(process, limits, patience, given_up).await {
            Ok((server, life)) => {
                tracing::info!(child = server.id(), "a server for all sessions has come up");
                starter.backoff.came_up(LABEL.to_owned(), life);
                return Some(Ok(server));
            }
            Err(NoServer::GivenUp) => {
                tracing::debug!("no session waits any more for the server that was being started");
                return None;
            }
            Err(NoServer::Failed(failure))
                if is_spare && wanted == Wanted::Any && failure.ended_by_itself =>
            {
                starter.threw_away(LABEL, &failure);
                wanted = Wanted::Fresh;
            }
            Err(NoServer::Failed(failure)) => return Some(Err(starter.failed(LABEL, &failure))),
        }
    }
}
