//! One of the sessions that share a server, and its queue of messages.
//!
//! A session gets the server's messages in order, so notifications of a request come before its answer. A session
//! whose log is full delays no other session: its messages wait in this bounded queue. When the queue is full,
//! notifications are dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::call::{CallContext, Outlet};
use tenure_session::port::BoxFuture;
use tokio::sync::oneshot;

/// Most messages in the queue of a session.
const WAITING: usize = 256;
/// Most bytes of params and results in the queue.
const WAITING_BYTES: usize = 4 << 20;

pub(super) struct MemberSession {
    pub(super) number: u64,
    pub(super) outlet: Outlet,
    queue: Mutex<CallQueue>,
}

#[derive(Default)]
struct CallQueue {
    waiting: VecDeque<MemberMessage>,
    bytes: usize,
    /// A task or caller is passing on messages, and will empty the queue.
    is_busy: bool,
    /// The session has left; new messages are dropped.
    has_left: bool,
    has_dropped: bool,
}

/// A message for the session.
pub(super) enum MemberMessage {
    /// A notification, on the stream of a request or on the session's own.
    News(Option<Arc<CallContext>>, Method, Option<RawJson>),
    /// The answer to a request.
    Answer(oneshot::Sender<Reply>, Reply),
}

impl MemberSession {
    pub(super) fn new(number: u64, outlet: Outlet) -> Arc<Self> {
        Arc::new(Self { number, outlet, queue: Mutex::default() })
    }

    /// Passes on a message after all earlier ones. Never waits.
    pub(super) fn tell(self: &Arc<Self>, message: MemberMessage) {
        let mut next = {
            let mut queue = self.queue.lock();
            if queue.has_left {
                return;
            }
            if queue.is_busy {
                return queue.push(message, self);
            }
            queue.is_busy = true;
            Some(message)
        };
        while let Some(message) = next {
            let mut passing = self.pass(message);
            // Nearly always the log has room, and the future is ready at once.
            if (&mut passing).now_or_never().is_none() {
                let member = Arc::clone(self);
                #[expect(
                    clippy::disallowed_methods,
                    reason = "ends when the session takes what waits, or is over"
                )]
                tokio::spawn(async move {
                    passing.await;
                    while let Some(message) = member.next() {
                        member.pass(message).await;
                    }
                });
                return;
            }
            next = self.next();
        }
    }

    /// Drops all later messages.
    pub(super) fn leave(&self) {
        self.queue.lock().has_left = true;
    }

    pub(super) fn has_left(&self) -> bool {
        self.queue.lock().has_left
    }

    fn next(&self) -> Option<MemberMessage> {
        let mut queue = self.queue.lock();
        let next = queue.waiting.pop_front();
        match &next {
            Some(message) => queue.bytes -= message.bytes(),
            None => (queue.is_busy, queue.has_dropped) = (false, false),
        }
        next
    }

    fn pass(self: &Arc<Self>, message: MemberMessage) -> BoxFuture<()> {
        let (context, method, params) = match message {
            // The receiver may have been dropped.
            MemberMessage::Answer(to, reply) => {
                drop(to.send(reply));
                return Box::pin(std::future::ready(()));
            }
            MemberMessage::News(context, method, params) => (context, method, params),
        };
        let outlet = self.outlet.clone();
        Box::pin(async move {
            let told = match &context {
                Some(context) => context.notify(&method, params.as_ref()).await,
                None => outlet.notify(&method, params.as_ref()).await,
            };
            if let Err(error) = told {
                tracing::debug!(
                    session = outlet.session_label(), %method, %error,
                    "could not pass on a message"
                );
            }
        })
    }
}

impl CallQueue {
    fn push(&mut self, message: MemberMessage, member: &MemberSession) {
        let is_full = self.waiting.len() >= WAITING || self.bytes >= WAITING_BYTES;
        // Answers are never dropped: a caller waits for each, and there are no more of them than requests in flight.
        if is_full && matches!(message, MemberMessage::News(..)) {
            if !std::mem::replace(&mut self.has_dropped, true) {
                let session = member.outlet.session_label();
                tracing::warn!(session, "the session's queue is full; dropped messages of a shared server");
            }
            return;
        }
        let message = message.detached();
        self.bytes += message.bytes();
        self.waiting.push_back(message);
    }
}

impl MemberMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::News(_, _, params) => params.as_ref().map_or(0, |params| params.bytes().len()),
            Self::Answer(_, reply) => reply.as_ref().map_or(0, |result| result.bytes().len()),
        }
    }

    /// A copy in its own buffer: the original buffer holds many lines.
    fn detached(self) -> Self {
        match self {
            Self::News(context, method, params) => {
                Self::News(context, method, params.map(|params| params.detached()))
            }
            Self::Answer(to, reply) => Self::Answer(to, reply.map(|result| result.detached())),
        }
    }
}
