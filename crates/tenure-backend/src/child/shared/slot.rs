//! The one server that sessions share: started by the first that needs it, ended when the last has left.
//!
//! Those who need it while it is being started wait for the same start, and fail together. If they all give up, so
//! does the start.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tenure_session::RpcError;
use tenure_session::port::backend::{Open, Opened};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::super::pool::NoChild;
use super::super::{Inner, PATIENCE, not_started};
use super::link::SharedLink;
use super::server::Server;
use crate::traffic::gone;

/// Whose failures they are, for the pauses between them.
const LABEL: &str = "shared";

/// How often a server may end between its start and the moment when a session takes its place.
const TRIES: usize = 3;

/// Where the server is.
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
    _starting: AbortOnDropHandle<()>,
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
        let unused = {
            let mut slot = self.inner.slot.0.lock();
            let Some(flight) = slot.as_mut().filter(|flight| flight.number == self.number) else { return };
            flight.openers -= 1;
            let is_needed = flight.openers > 0
                || match &*flight.outcome.borrow() {
                    Some(Ok(server)) => !server.crowd.close_if_empty(),
                    Some(Err(_)) | None => false,
                };
            if is_needed { None } else { slot.take() }
        };
        // What is left of it ends when it is dropped: the start, or the server.
        drop(unused);
    }
}

impl Flight {
    fn after(last: Option<Self>, inner: &Arc<Inner>) -> Self {
        let (tell, outcome) = watch::channel(None);
        let number = last.as_ref().map_or(0, |last| last.number) + 1;
        let inner = Arc::clone(inner);
        #[expect(clippy::disallowed_methods, reason = "held here, and aborted with this")]
        let starting = tokio::spawn(async move {
            // Servers that are shared are often those of which there may be only one.
            let last = last.and_then(|last| last.outcome.borrow().clone()?.ok());
            if let Some(last) = last {
                last.end().await;
            }
            let started = start(&inner).await;
            tell.send_replace(Some(started.map(Arc::new)));
        });
        Self { outcome, openers: 0, number, _starting: AbortOnDropHandle::new(starting) }
    }

    /// Whether it failed, or the server has ended.
    fn is_over(&self) -> bool {
        match &*self.outcome.borrow() {
            None => false,
            Some(Ok(server)) => server.crowd.is_closed(),
            Some(Err(_)) => true,
        }
    }
}

async fn start(inner: &Inner) -> Result<Server, RpcError> {
    inner.wait_out(LABEL).await?;
    let limits = &inner.command.limits;
    let process = match inner.pool.take_only(PATIENCE).await {
        Ok(process) => process,
        Err(NoChild::Full) => return Err(inner.full()),
        Err(NoChild::Failed(error)) => return Err(inner.failed(LABEL, &not_started(&error))),
    };
    match Server::start(process, limits.max_line_bytes, limits.start_timeout).await {
        Ok((server, life)) => {
            tracing::info!(child = server.id(), "a server for all sessions has come up");
            inner.backoff.came_up(LABEL.to_owned(), life);
            Ok(server)
        }
        Err(failure) => Err(inner.failed(LABEL, &failure)),
    }
}
