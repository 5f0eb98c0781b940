//! The requests of many exchanges on their way to one child, and what it says to each.
//!
//! Every request has a number of ours, which is its id towards the child and, if the client wants to hear of progress,
//! part of a token of ours. What comes back (`hear`) is put into a queue of the request's own, so that none waits for
//! another's client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::keys::LEVEL;
use tenure_protocol::{Method, RawJson, RequestId, RpcError, message};
use tenure_session::backend::Call;
use tenure_session::backend::probe::Answer;
use tenure_session::call::CallContext;
use tokio::sync::{Notify, mpsc, oneshot};

use super::super::splice::{self, Marks};
use crate::pending::line;

/// What may wait for one request's client. Beyond that, progress and the like is dropped, and a listen ends.
const NEWS: usize = 256;

pub(super) struct Traffic {
    /// Lines to the child.
    pub(super) out: mpsc::Sender<Bytes>,
    pub(super) label: Box<str>,
    next: AtomicU64,
    pub(super) state: Mutex<State>,
    /// Told when the last request has left.
    quiet: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: HashMap<u64, Waiting>,
    /// Nothing more is taken; what is there may still be answered.
    pub(super) is_closed: bool,
}

/// A request in flight.
pub(super) struct Waiting {
    /// The client's id for it.
    pub(super) id: RequestId,
    pub(super) is_listen: bool,
    pub(super) wants_logs: bool,
    pub(super) marks: Option<Marks>,
    pub(super) news: mpsc::Sender<Said>,
    answer: oneshot::Sender<Answer>,
}

/// Something that belongs to a request.
pub(super) type Said = (Method, Option<RawJson>);

/// A request on its way. It is forgotten when this is dropped, and withdrawn if there is no answer yet.
struct Sent<'a> {
    traffic: &'a Traffic,
    number: u64,
    /// The child has heard of it, or will.
    is_taken: bool,
}

impl Traffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, label: &str) -> Arc<Self> {
        let (next, state, quiet) = (AtomicU64::new(1), Mutex::default(), Notify::new());
        Arc::new(Self { out, label: label.into(), next, state, quiet })
    }

    /// Carries a request; everything but its id and its token passes as it is. `None`: the child did not take it.
    ///
    /// # Cancel safety
    /// A request that nobody waits for is withdrawn.
    pub(super) async fn carry(&self, Call { request, context }: &Call) -> Option<Answer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (params, marks) = match splice::marked(request.params.clone(), number) {
            Ok(marked) => marked,
            Err(error) => return Some(Answer::NotAsked(error)),
        };
        let (news, mut heard) = mpsc::channel(NEWS);
        let (answer, mut answered) = oneshot::channel();
        let level = params.as_ref().and_then(|params| splice::in_meta(params, LEVEL));
        let waiting = Waiting {
            id: request.id.clone(),
            is_listen: request.method == Method::Listen,
            wants_logs: level.is_some_and(|level| level.get() != "null"),
            marks,
            news,
            answer,
        };
        let mut sent = self.enter(number, waiting)?;
        let id = RequestId::from_number(number);
        let text = line(&message::write_request(&id, &request.method, params.as_ref()));
        tokio::select! {
            biased;
            // The child is gone before there was room for it.
            _ = &mut answered => return None,
            taken = self.out.send(text) => if taken.is_err() {
                // It takes nothing any more, though it may go on answering.
                self.close();
                return None;
            },
        }
        sent.is_taken = true;
        let answer = loop {
            tokio::select! {
                biased;
                Some(said) = heard.recv() => tell(context, said).await,
                answer = &mut answered => break answer,
            }
        };
        // What was said before the answer is heard before it.
        while let Ok(said) = heard.try_recv() {
            tell(context, said).await;
        }
        Some(answer.unwrap_or_else(|_| Answer::Nothing(RpcError::server_lost())))
    }

    fn enter(&self, number: u64, waiting: Waiting) -> Option<Sent<'_>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.calls.insert(number, waiting);
        Some(Sent { traffic: self, number, is_taken: false })
    }

    /// Takes a request out, if it is still there.
    pub(super) fn take(&self, number: u64) -> Option<Waiting> {
        let mut state = self.state.lock();
        let waiting = state.calls.remove(&number)?;
        if state.calls.is_empty() {
            self.quiet.notify_one();
        }
        Some(waiting)
    }

    /// Resolves when there was no request for this long; there will be none then.
    pub(super) async fn unused_for(&self, idle: Duration) {
        loop {
            let seen = self.next.load(Ordering::Relaxed);
            if !self.state.lock().calls.is_empty() {
                self.quiet.notified().await;
                continue;
            }
            tokio::time::sleep(idle).await;
            let mut state = self.state.lock();
            if state.calls.is_empty() && self.next.load(Ordering::Relaxed) == seen {
                state.is_closed = true;
                return;
            }
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    pub(super) fn cancel(&self, number: u64) {
        let id = RequestId::from_number(number);
        let text = line(&message::write_cancelled(&id, "nobody waits for the answer any more"));
        let Err(mpsc::error::TrySendError::Full(text)) = self.out.try_send(text) else { return };
        // Not waited for here, but said: nothing else would stop it.
        let out = self.out.clone();
        #[expect(clippy::disallowed_methods, reason = "ends when the child takes it, or takes nothing more")]
        tokio::spawn(async move { drop(out.send(text).await) });
    }
}

async fn tell(context: &CallContext, (method, params): Said) {
    if let Err(error) = context.notify(&method, params.as_ref()).await {
        tracing::debug!(%method, %error, "could not pass a message on");
    }
}

impl Waiting {
    pub(super) fn answer(self, answer: Answer) {
        // Whoever asked may have left.
        drop(self.answer.send(answer));
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if self.traffic.take(self.number).is_some() && self.is_taken {
            self.traffic.cancel(self.number);
        }
    }
}
