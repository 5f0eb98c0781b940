//! Which message from a single stream belongs to which request.
//!
//! Towards the child every request has an id of ours. What comes back is put where it belongs: a response by its
//! id, progress by its token, a log message or a question with the one request of the client's that is in flight, if
//! there is one, and everything else with the session.

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

/// Questions of a child that may be under way at once. Beyond that they are refused.
const QUESTIONS: usize = 128;

pub(super) struct Traffic {
    outlet: Outlet,
    /// Lines to the child.
    out: mpsc::Sender<Bytes>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    handshake: Option<oneshot::Sender<Reply>>,
    calls: HashMap<u64, Waiting>,
    /// Questions to the client under way, by the child's id for them; dropping one withdraws it.
    asking: HashMap<RequestId, AbortOnDropHandle<()>>,
    /// It has been refused some, which is said once.
    asks_too_much: bool,
    /// Why nothing more will come.
    over: Option<RpcError>,
}

struct Waiting {
    context: Arc<CallContext>,
    token: Option<RawJson>,
    answer: oneshot::Sender<Reply>,
}

/// A request on its way. It is forgotten when this is dropped, and withdrawn if there is no answer yet.
pub(super) struct Sent {
    traffic: Arc<Traffic>,
    pub(super) number: u64,
    /// The child has heard of it, or will.
    pub(super) is_taken: bool,
    pub(super) answer: oneshot::Receiver<Reply>,
}

impl Traffic {
    pub(super) fn new(outlet: Outlet, out: mpsc::Sender<Bytes>) -> Self {
        Self { outlet, out, state: Mutex::default() }
    }

    /// Enters a request; it has still to be sent.
    pub(super) fn enter(self: &Arc<Self>, context: &Arc<CallContext>) -> Result<Sent, RpcError> {
        let (answer, answered) = oneshot::channel();
        let token = context.progress_token();
        let mut state = self.state.lock();
        if state.over.is_some() {
            return Err(RpcError::refused("The server has ended"));
        }
        state.next += 1;
        let number = state.next;
        state.calls.insert(number, Waiting { context: Arc::clone(context), token, answer });
        Ok(Sent { traffic: Arc::clone(self), number, is_taken: false, answer: answered })
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

    /// Sends a line, when there is room for it.
    pub(super) async fn send(&self, line: Bytes) -> Result<(), RpcError> {
        match self.out.send(line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.state.lock().over.clone().unwrap_or_else(gone)),
        }
    }

    /// Sends a line if there is room for it now.
    pub(super) fn try_send(&self, line: Bytes) -> bool {
        self.out.try_send(line).is_ok()
    }

    /// The child will say nothing more: everything that waits for it fails.
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
            // Whoever asked may have left.
            drop(call.answer.send(Err(error.clone())));
        }
    }

    /// Takes what the child said.
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
            // The buffer that it came in belongs to many lines; what is kept is copied by whoever keeps it.
            Some(call) => drop(call.answer.send(outcome)),
            None => tracing::debug!(session = self.outlet.session_label(), ?id, "an answer nobody waits for"),
        }
    }

    /// The answer to a request cannot be taken; whoever waits for it shall not wait for ever.
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
            // Progress of a request that is over, or never was.
            None if method == Method::Progress => return,
            None => self.outlet.notify(&method, params.as_ref()).await,
        };
        if let Err(error) = told {
            tracing::debug!(session = self.outlet.session_label(), %method, %error, "could not pass a message on");
        }
    }

    fn asked(self: &Arc<Self>, request: Request) {
        let (traffic, id) = (Arc::clone(self), request.id.clone());
        let context = self.only_one();
        let ask = async move {
            let Request { id, method, params } = request;
            let reply = match (&method, context) {
                (Method::Ping, _) => Ok(RawJson::EMPTY_OBJECT),
                (_, Some(context)) => match context.ask(&method, params.as_ref()).await {
                    // The request was answered before the question was on its stream; then it is the session's.
                    Err(error) if is_over(&error) && context.is_cancelled() => {
                        traffic.outlet.ask(&method, params.as_ref()).await
                    }
                    reply => reply,
                },
                (_, None) => traffic.outlet.ask(&method, params.as_ref()).await,
            };
            // A child that is gone has no use for the answer.
            drop(traffic.send(line(&message::write_response(&id, &reply))).await);
            traffic.state.lock().asking.remove(&id);
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

    /// The child has asked too much already. If it does not read either, it gets no answer.
    fn refuse(&self, id: &RequestId, is_first: bool) {
        if is_first {
            tracing::warn!(
                session = self.outlet.session_label(),
                limit = QUESTIONS,
                "the server asks more than may be under way"
            );
        }
        let error = RpcError::of(Reason::TooManyRequests, "As many questions are under way as may be");
        let _ = self.try_send(line(&message::write_error(Some(id), &error)));
    }

    fn by_token(&self, params: Option<&RawJson>) -> Option<Arc<CallContext>> {
        #[derive(Deserialize)]
        struct Progress<'a> {
            #[serde(rename = "progressToken", borrow)]
            token: &'a RawValue,
        }
        let progress: Progress<'_> = params?.read().ok()?;
        let state = self.state.lock();
        let of = |call: &&Waiting| call.token.as_ref().is_some_and(|token| same(token, progress.token));
        state.calls.values().find(of).map(|call| Arc::clone(&call.context))
    }

    fn only_one(&self) -> Option<Arc<CallContext>> {
        let state = self.state.lock();
        // What a child says while we tell it of the log level and the like is not about that.
        let mut calls = state.calls.values().filter(|call| !call.context.is_our_own());
        match (calls.next(), calls.next()) {
            (Some(only), None) => Some(Arc::clone(&only.context)),
            _ => None,
        }
    }
}

/// Whether two tokens are the same. A server may have written a text with other escapes.
fn same(token: &RawJson, other: &RawValue) -> bool {
    let read = |text: &[u8]| serde_json::from_slice::<String>(text).ok();
    let other = other.get().as_bytes();
    token.bytes() == other || read(other).is_some_and(|other| read(token.bytes()) == Some(other))
}

impl Drop for Sent {
    fn drop(&mut self) {
        let unanswered = self.traffic.state.lock().calls.remove(&self.number);
        if unanswered.is_some() && self.is_taken {
            let id = RequestId::from_number(self.number);
            let text = message::write_cancelled(&id, "nobody waits for the answer any more");
            // Should the child have no room for it, it finds out by itself that nobody wants the answer.
            let _ = self.traffic.try_send(line(&text));
        }
    }
}

/// A message as a line. One that has line breaks in it is written anew: between tokens they mean nothing.
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

/// Whether a request is not in flight any more.
fn is_over(error: &RpcError) -> bool {
    error.code() == i64::from(Reason::Cancelled.code())
}
