//! The requests of one session in flight on a single stream, and which of them each message belongs to.
//!
//! Towards the server every request has an id of ours. In: the server's messages. A response is matched by its id,
//! progress by its token. A log message or a question goes to the client's request if exactly one is in flight.
//! Everything else goes to the session's outlet.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::{
    Message, Method, Notification, RawJson, Reason, Reply, Request, RequestId, Response, RpcError, message,
    params,
};
use tenure_session::call::{CallContext, Outlet};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// Questions of the server that may be in flight at once. Further questions are refused.
const QUESTIONS: usize = 128;

pub(super) struct PendingRequests {
    outlet: Outlet,
    /// Messages to the server. For a child, each is one line.
    out: mpsc::Sender<Bytes>,
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    next: u64,
    handshake: Option<oneshot::Sender<Reply>>,
    calls: HashMap<u64, PendingCall>,
    /// Questions to the client in flight, by the server's id; dropping a handle withdraws the question.
    asking: HashMap<RequestId, AbortOnDropHandle<()>>,
    /// A question was refused before, so the log has the warning already.
    asks_too_much: bool,
    /// Set when the server has ended: the error for everything that waits.
    over: Option<RpcError>,
}

struct PendingCall {
    context: Arc<CallContext>,
    token: Option<RawJson>,
    answer: oneshot::Sender<Reply>,
}

/// A request in flight. Dropping it removes the entry, and cancels the request at the server if it is unanswered.
pub(super) struct RequestGuard {
    pending: Arc<PendingRequests>,
    pub(super) number: u64,
    /// The request was sent, so the server needs a cancellation.
    pub(super) is_taken: bool,
    pub(super) answer: oneshot::Receiver<Reply>,
}

impl PendingRequests {
    pub(super) fn new(outlet: Outlet, out: mpsc::Sender<Bytes>) -> Self {
        Self { outlet, out, state: Mutex::default() }
    }

    /// Adds an entry for a request. The caller has still to send the request.
    pub(super) fn enter(self: &Arc<Self>, context: &Arc<CallContext>) -> Result<RequestGuard, RpcError> {
        let (answer, answered) = oneshot::channel();
        let token = context.progress_token();
        let mut state = self.state.lock();
        if state.over.is_some() {
            return Err(RpcError::refused("The server has ended"));
        }
        state.next += 1;
        let number = state.next;
        state.calls.insert(number, PendingCall { context: Arc::clone(context), token, answer });
        Ok(RequestGuard { pending: Arc::clone(self), number, is_taken: false, answer: answered })
    }

    /// Waits for the answer to `initialize`, which is request 0.
    pub(super) fn await_handshake(&self) -> impl Future<Output = Reply> + use<> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state.lock();
        match &state.over {
            Some(over) => drop(answer.send(Err(over.clone()))),
            None => state.handshake = Some(answer),
        }
        async move { answered.await.unwrap_or_else(|_| Err(gone())) }
    }

    /// Sends a line; waits while the queue is full.
    pub(super) async fn send(&self, line: Bytes) -> Result<(), RpcError> {
        match self.out.send(line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.state.lock().over.clone().unwrap_or_else(gone)),
        }
    }

    /// Sends a line; returns `false` if the queue is full or closed.
    pub(super) fn try_send(&self, line: Bytes) -> bool {
        self.out.try_send(line).is_ok()
    }

    /// The server has ended: fails all requests, the handshake and the questions in flight.
    pub(super) fn over(&self, error: &RpcError) {
        let calls = {
            let mut state = self.state.lock();
            state.over.get_or_insert_with(|| error.clone());
            state.asking.clear();
            if let Some(handshake) = state.handshake.take() {
                drop(handshake.send(Err(error.clone())));
            }
            std::mem::take(&mut state.calls)
        };
        for (_, call) in calls {
            // The receiver may have been dropped.
            drop(call.answer.send(Err(error.clone())));
        }
    }

    /// Takes a message of the server.
    pub(super) async fn hear(self: &Arc<Self>, message: Message) {
        match message {
            Message::Response(response) => self.answered(response),
            Message::Notification(notification) => self.told(notification).await,
            Message::Request(request) => self.asked(request),
        }
    }

    fn answered(&self, Response { id, outcome }: Response) {
        let number = std::str::from_utf8(id.raw()).ok().and_then(|text| text.parse::<u64>().ok());
        if number == Some(0)
            && let Some(handshake) = self.state.lock().handshake.take()
        {
            return drop(handshake.send(outcome));
        }
        let call = number.and_then(|number| self.state.lock().calls.remove(&number));
        match call {
            // The outcome shares its buffer with many lines. Code that keeps it must copy it.
            Some(call) => drop(call.answer.send(outcome)),
            None => tracing::debug!(
                session = self.outlet.session_label(),
                ?id,
                "the server answered a request that is not in flight; dropped"
            ),
        }
    }

    /// The answer to this request was too long and is dropped: fails the request, which would wait for ever.
    pub(super) fn answer_is_too_long(&self, number: u64) {
        let call = self.state.lock().calls.remove(&number);
        if let Some(call) = call {
            let error =
                RpcError::of(Reason::EventTooLarge, "The server's answer is longer than a message may be");
            drop(call.answer.send(Err(error)));
        }
    }

    async fn told(&self, notification: Notification) {
        let Notification { method, params } = notification;
        let context = match method {
            Method::Progress => self.by_token(params.as_ref()),
            Method::LogMessage => self.only_one(),
            Method::Cancelled => {
                if let Some(id) = params::cancelled_id(params.as_ref()) {
                    self.state.lock().asking.remove(&id);
                }
                return;
            }
            _ => None,
        };
        let told = match &context {
            Some(context) => context.notify(&method, params.as_ref()).await,
            // Progress for an unknown request: it has ended, or never existed.
            None if method == Method::Progress => return,
            None => self.outlet.notify(&method, params.as_ref()).await,
        };
        if let Err(error) = told {
            tracing::debug!(
                session = self.outlet.session_label(), %method, %error,
                "could not pass on a message"
            );
        }
    }

    fn asked(self: &Arc<Self>, request: Request) {
        let (pending, id) = (Arc::clone(self), request.id.clone());
        let context = self.only_one();
        let ask = async move {
            let Request { id, method, params } = request;
            let reply = match (&method, context) {
                (Method::Ping, _) => Ok(RawJson::EMPTY_OBJECT),
                (_, Some(context)) => match context.ask(&method, params.as_ref()).await {
                    // The request was answered before its stream took the question, so ask on the session instead.
                    Err(error) if is_over(&error) && context.is_cancelled() => {
                        pending.outlet.ask(&method, params.as_ref()).await
                    }
                    reply => reply,
                },
                (_, None) => pending.outlet.ask(&method, params.as_ref()).await,
            };
            let answer = line(&message::write_response(&id, &reply));
            // Fails only if the server has ended, and then it needs no answer.
            let Ok(room) = pending.out.reserve().await else { return };
            // Before `send`, since the server may reuse the id as soon as it has the answer. This aborts our own task,
            // so there must be no await after it.
            pending.state.lock().asking.remove(&id);
            room.send(answer);
        };
        let mut state = self.state.lock();
        if state.asking.len() >= QUESTIONS && !state.asking.contains_key(&id) {
            let is_first = !std::mem::replace(&mut state.asks_too_much, true);
            drop(state);
            self.refuse(&id, is_first);
        } else if state.over.is_none() {
            #[expect(clippy::disallowed_methods, reason = "held, and aborted when the link ends")]
            let asking = tokio::spawn(ask);
            state.asking.insert(id, AbortOnDropHandle::new(asking));
        }
    }

    /// Refuses a question beyond the limit. If the queue is full as well, the server gets no answer.
    fn refuse(&self, id: &RequestId, is_first: bool) {
        if is_first {
            tracing::warn!(
                session = self.outlet.session_label(),
                limit = QUESTIONS,
                "the server has too many questions in flight; refused"
            );
        }
        let error = RpcError::of(Reason::TooManyRequests, "As many questions are under way as may be");
        let _ = self.try_send(line(&message::write_error(Some(id), &error)));
    }

    fn by_token(&self, params: Option<&RawJson>) -> Option<Arc<CallContext>> {
        #[derive(Deserialize)]
        struct ProgressMessage<'a> {
            #[serde(rename = "progressToken", borrow)]
            token: &'a RawValue,
        }
        let progress: ProgressMessage<'_> = params?.read().ok()?;
        let state = self.state.lock();
        let of = |call: &&PendingCall| call.token.as_ref().is_some_and(|token| same(token, progress.token));
        state.calls.values().find(of).map(|call| Arc::clone(&call.context))
    }

    fn only_one(&self) -> Option<Arc<CallContext>> {
        let state = self.state.lock();
        // Skip our own requests, such as setting the log level: the server's log messages are not about those.
        let mut calls = state.calls.values().filter(|call| !call.context.is_our_own());
        match (calls.next(), calls.next()) {
            (Some(only), None) => Some(Arc::clone(&only.context)),
            _ => None,
        }
    }
}

/// Whether two tokens are equal. A server may have written the same string with other escapes.
fn same(token: &RawJson, other: &RawValue) -> bool {
    let read = |text: &[u8]| serde_json::from_slice::<String>(text).ok();
    let other = other.get().as_bytes();
    token.bytes() == other || read(other).is_some_and(|other| read(token.bytes()) == Some(other))
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let unanswered = self.pending.state.lock().calls.remove(&self.number);
        if unanswered.is_some() && self.is_taken {
            let id = RequestId::from_number(self.number);
            let text = message::write_cancelled(&id, "the client no longer waits for the answer");
            // If the queue is full the cancellation is lost. Then the server's answer is dropped when it comes.
            let _ = self.pending.try_send(line(&text));
        }
    }
}

/// A message as one line. Line breaks become spaces: in valid JSON they stand only between tokens.
pub(super) fn line(message: &Bytes) -> Bytes {
    let mut line = bytes::BytesMut::with_capacity(message.len() + 1);
    line.extend_from_slice(message);
    for byte in line.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.extend_from_slice(b"\n");
    line.freeze()
}

pub(super) fn gone() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "The server has ended")
}

/// Whether the error says that the request is no longer in flight.
fn is_over(error: &RpcError) -> bool {
    error.code() == i64::from(Reason::Cancelled.code())
}
