//! The requests of many exchanges that are in flight at one child.
//!
//! Every request has a number of ours, which is its id towards the child and, if the client wants progress, part of our
//! progress token. Each request has its own queue for the child's messages (`hear`), so that no request waits for
//! another client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::keys::LEVEL;
use tenure_protocol::{Method, RawJson, RequestId, RpcError, message};
use tenure_session::backend::Call;
use tenure_session::backend::probe::ProbeAnswer;
use tenure_session::call::CallContext;
use tokio::sync::{Notify, mpsc, oneshot};

use super::super::splice::{self, TokenPair};
use crate::pending::line;

/// Capacity of one request's queue. When it is full, notifications are dropped, and a listen ends.
const NEWS: usize = 256;

pub(super) struct ModernTraffic {
    /// Lines to the child.
    pub(super) out: mpsc::Sender<Bytes>,
    pub(super) label: Box<str>,
    next: AtomicU64,
    pub(super) state: Mutex<ModernTrafficState>,
    /// Notified when no request is in flight any more.
    quiet: Notify,
}

#[derive(Default)]
pub(super) struct ModernTrafficState {
    pub(super) calls: HashMap<u64, ModernCall>,
    /// New requests are refused; requests in flight may still be answered.
    pub(super) is_closed: bool,
}

/// A request in flight.
pub(super) struct ModernCall {
    /// The client's id for it.
    pub(super) id: RequestId,
    pub(super) is_listen: bool,
    pub(super) wants_logs: bool,
    pub(super) tokens: Option<TokenPair>,
    pub(super) news: mpsc::Sender<CallNotification>,
    answer: oneshot::Sender<ProbeAnswer>,
}

/// A notification that belongs to a request.
pub(super) type CallNotification = (Method, Option<RawJson>);

/// A request in flight. Dropping it removes the entry, and cancels the request at the child if it is unanswered.
struct ModernRequestGuard<'a> {
    traffic: &'a ModernTraffic,
    number: u64,
    /// The request was sent, so the child needs a cancellation.
    is_taken: bool,
}

impl ModernTraffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, label: &str) -> Arc<Self> {
        let (next, state, quiet) = (AtomicU64::new(1), Mutex::default(), Notify::new());
        Arc::new(Self { out, label: label.into(), next, state, quiet })
    }

    /// Sends a request and waits for its answer. Replaces only the id and the progress token. `None`: the child did
    /// not take the request.
    ///
    /// # Cancel safety
    /// Dropping it cancels the request at the child.
    pub(super) async fn carry(&self, Call { request, context }: &Call) -> Option<ProbeAnswer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (params, tokens) = match splice::replace_token(request.params.clone(), number) {
            Ok(marked) => marked,
            Err(error) => return Some(ProbeAnswer::NotAsked(error)),
        };
        let (news, mut heard) = mpsc::channel(NEWS);
        let (answer, mut answered) = oneshot::channel();
        let level = params.as_ref().and_then(|params| splice::in_meta(params, LEVEL));
        let waiting = ModernCall {
            id: request.id.clone(),
            is_listen: request.method == Method::Listen,
            wants_logs: level.is_some_and(|level| level.get() != "null"),
            tokens,
            news,
            answer,
        };
        let mut sent = self.enter(number, waiting)?;
        let id = RequestId::from_number(number);
        let text = line(&message::write_request(&id, &request.method, params.as_ref()));
        tokio::select! {
            biased;
            // The child ended before the queue had room.
            _ = &mut answered => return None,
            taken = self.out.send(text) => if taken.is_err() {
                // The child takes no more requests, though it may still answer earlier ones.
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
        // Pass on the notifications that came before the answer first.
        while let Ok(said) = heard.try_recv() {
            tell(context, said).await;
        }
        Some(answer.unwrap_or_else(|_| ProbeAnswer::Nothing(RpcError::server_lost())))
    }

    fn enter(&self, number: u64, waiting: ModernCall) -> Option<ModernRequestGuard<'_>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.calls.insert(number, waiting);
        Some(ModernRequestGuard { traffic: self, number, is_taken: false })
    }

    /// Removes a request, if it is still in flight.
    pub(super) fn take(&self, number: u64) -> Option<ModernCall> {
        let mut state = self.state.lock();
        let waiting = state.calls.remove(&number)?;
        if state.calls.is_empty() {
            self.quiet.notify_one();
        }
        Some(waiting)
    }

    /// Resolves after this long without requests. From then on new requests are refused.
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
        let text = line(&message::write_cancelled(&id, "the client no longer waits for the answer"));
        let Err(mpsc::error::TrySendError::Full(text)) = self.out.try_send(text) else { return };
        // The queue is full: send from a task, because without the cancellation the child would not stop working.
        let out = self.out.clone();
        #[expect(clippy::disallowed_methods, reason = "ends when the child takes it, or takes nothing more")]
        tokio::spawn(async move { drop(out.send(text).await) });
    }
}

async fn tell(context: &CallContext, (method, params): CallNotification) {
    if let Err(error) = context.notify(&method, params.as_ref()).await {
        tracing::debug!(%method, %error, "could not pass on a message");
    }
}

impl ModernCall {
    pub(super) fn answer(self, answer: ProbeAnswer) {
        // The receiver may have been dropped.
        drop(self.answer.send(answer));
    }
}

impl Drop for ModernRequestGuard<'_> {
    fn drop(&mut self) {
        if self.traffic.take(self.number).is_some() && self.is_taken {
            self.traffic.cancel(self.number);
        }
    }
}
