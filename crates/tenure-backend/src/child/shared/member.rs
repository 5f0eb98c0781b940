//! One of the sessions that share a server, and what is on its way to it.
//!
//! Whatever the server says to a session comes in order: what belongs to a request before its answer. A session whose
//! log has no room just now holds up nobody: what it is told meanwhile waits here, and beyond a bound it is not told.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::call::{CallContext, Outlet};
use tenure_session::port::BoxFuture;
use tokio::sync::oneshot;

/// Messages that may wait for a session.
const WAITING: usize = 256;
/// Bytes of their params that may wait.
const WAITING_BYTES: usize = 4 << 20;

pub(super) struct Member {
    pub(super) number: u64,
    pub(super) outlet: Outlet,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Said>,
    bytes: usize,
    /// Somebody passes something on, and goes on with what waits.
    is_busy: bool,
    /// The session has left; nothing new is for it.
    has_left: bool,
    has_dropped: bool,
}

/// Something for the session.
pub(super) enum Said {
    /// A notification, on the stream of a request or on the session's own.
    News(Option<Arc<CallContext>>, Method, Option<RawJson>),
    /// The answer to a request.
    Answer(oneshot::Sender<Reply>, Reply),
}

impl Member {
    pub(super) fn new(number: u64, outlet: Outlet) -> Arc<Self> {
        Arc::new(Self { number, outlet, queue: Mutex::default() })
    }

    /// Passes something on when all that came before it is. Never waits.
    pub(super) fn tell(self: &Arc<Self>, said: Said) {
        let mut next = {
            let mut queue = self.queue.lock();
            if queue.has_left {
                return;
            }
            if queue.is_busy {
                return queue.push(said, self);
            }
            queue.is_busy = true;
            Some(said)
        };
        while let Some(said) = next {
            let mut passing = self.pass(said);
            // Nearly always there is room, and then there is nothing to wait for.
            if (&mut passing).now_or_never().is_none() {
                let member = Arc::clone(self);
                #[expect(
                    clippy::disallowed_methods,
                    reason = "ends when the session takes what waits, or is over"
                )]
                tokio::spawn(async move {
                    passing.await;
                    while let Some(said) = member.next() {
                        member.pass(said).await;
                    }
                });
                return;
            }
            next = self.next();
        }
    }

    /// From here on nothing new is passed on.
    pub(super) fn leave(&self) {
        self.queue.lock().has_left = true;
    }

    pub(super) fn has_left(&self) -> bool {
        self.queue.lock().has_left
    }

    fn next(&self) -> Option<Said> {
        let mut queue = self.queue.lock();
        let next = queue.waiting.pop_front();
        match &next {
            Some(said) => queue.bytes -= said.bytes(),
            None => (queue.is_busy, queue.has_dropped) = (false, false),
        }
        next
    }

    fn pass(self: &Arc<Self>, said: Said) -> BoxFuture<()> {
        let (context, method, params) = match said {
            // Whoever asked may have left.
            Said::Answer(to, reply) => {
                drop(to.send(reply));
                return Box::pin(std::future::ready(()));
            }
            Said::News(context, method, params) => (context, method, params),
        };
        let outlet = self.outlet.clone();
        Box::pin(async move {
            let told = match &context {
                Some(context) => context.notify(&method, params.as_ref()).await,
                None => outlet.notify(&method, params.as_ref()).await,
            };
            if let Err(error) = told {
                tracing::debug!(session = outlet.session_label(), %method, %error, "could not pass a message on");
            }
        })
    }
}

impl Queue {
    fn push(&mut self, said: Said, member: &Member) {
        let is_full = self.waiting.len() >= WAITING || self.bytes >= WAITING_BYTES;
        // There are never more answers than requests in flight, and somebody waits for each.
        if is_full && matches!(said, Said::News(..)) {
            if !std::mem::replace(&mut self.has_dropped, true) {
                let session = member.outlet.session_label();
                tracing::warn!(session, "the session is behind; dropped what a shared server says to it");
            }
            return;
        }
        let said = said.detached();
        self.bytes += said.bytes();
        self.waiting.push_back(said);
    }
}

impl Said {
    fn bytes(&self) -> usize {
        match self {
            Self::News(_, _, params) => params.as_ref().map_or(0, |params| params.bytes().len()),
            Self::Answer(_, reply) => reply.as_ref().map_or(0, |result| result.bytes().len()),
        }
    }

    /// In a buffer of its own: the one that it came in belongs to many lines.
    fn detached(self) -> Self {
        match self {
            Self::News(context, method, params) => {
                Self::News(context, method, params.map(|params| params.detached()))
            }
            Self::Answer(to, reply) => Self::Answer(to, reply.map(|result| result.detached())),
        }
    }
}
