//! The requests of all sessions that are in flight at one server, and their answers.
//!
//! Every request has a number of ours, which is its id towards the server and, if the client wants progress, part of
//! our progress token. So two sessions may use the same ids and tokens at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, Response, RpcError, message};
use tenure_session::call::CallContext;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::super::splice::{TokenPair, replace_token};
use super::member::{MemberMessage, MemberSession};
use crate::pending::{gone, line};

/// Most answers to the server's questions that wait to be written. Further questions get no answer.
const ANSWERS: usize = 128;

pub(super) struct SharedTraffic {
    /// Lines to the server.
    out: mpsc::Sender<Bytes>,
    answering: Arc<Semaphore>,
    next: AtomicU64,
    /// How long the server may take to answer our own requests.
    patience: Duration,
    state: Mutex<SharedTrafficState>,
}

#[derive(Default)]
struct SharedTrafficState {
    calls: HashMap<u64, SharedCall>,
    /// Set when the server has ended: the error for everything that waits.
    over: Option<RpcError>,
}

struct SharedCall {
    /// `None` for a request of our own.
    caller: Option<SharedCaller>,
    answer: oneshot::Sender<Reply>,
}

/// The request of a session.
#[derive(Clone)]
pub(super) struct SharedCaller {
    pub(super) member: Arc<MemberSession>,
    pub(super) context: Arc<CallContext>,
    /// The progress tokens, if the client wants progress.
    pub(super) tokens: Option<TokenPair>,
}

/// A request in flight. Dropping it removes the entry, and cancels the request at the server if it is unanswered.
struct SharedRequestGuard {
    traffic: Arc<SharedTraffic>,
    number: u64,
    /// The request was sent, so the server needs a cancellation.
    is_taken: bool,
    answer: oneshot::Receiver<Reply>,
}

impl SharedTraffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, patience: Duration) -> Arc<Self> {
        let answering = Arc::new(Semaphore::new(ANSWERS));
        Arc::new(Self { out, answering, next: AtomicU64::new(0), patience, state: Mutex::default() })
    }

    /// Sends the request of a session and waits for its answer. Replaces only the id and the progress token.
    ///
    /// # Cancel safety
    /// Dropping it cancels the request at the server.
    pub(super) async fn carry(
        self: Arc<Self>,
        member: Arc<MemberSession>,
        request: Request,
        context: CallContext,
    ) -> Reply {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Request { method, params, .. } = request;
        let (params, tokens) = replace_token(params, number)?;
        let context = Arc::new(context);
        let caller = SharedCaller { member, context: Arc::clone(&context), tokens };
        let sent = self.enter(number, Some(caller))?;
        let id = RequestId::from_number(number);
        let text = line(&message::write_request(&id, &method, params.as_ref()));
        tokio::select! {
            biased;
            reply = sent.go(text) => reply,
            // Dropping `sent` sends the cancellation, as it does after a timeout.
            () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
        }
    }

    /// Sends a request of our own. It has a timeout, because other tasks wait for the caller's permit meanwhile.
    ///
    /// # Cancel safety
    /// As for [`SharedTraffic::carry`].
    pub(super) async fn ask(self: &Arc<Self>, method: &Method, params: &RawJson) -> Reply {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sent = self.enter(number, None)?;
        let id = RequestId::from_number(number);
        let going = sent.go(line(&message::write_request(&id, method, Some(params))));
        tokio::time::timeout(self.patience, going).await.unwrap_or_else(|_| {
            Err(RpcError::of(Reason::TimedOut, format!("The server did not answer {method} in time")))
        })
    }

    fn enter(
        self: &Arc<Self>,
        number: u64,
        caller: Option<SharedCaller>,
    ) -> Result<SharedRequestGuard, RpcError> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state.lock();
        if state.over.is_some() || caller.as_ref().is_some_and(|caller| caller.member.has_left()) {
            return Err(RpcError::refused("The server has ended"));
        }
        state.calls.insert(number, SharedCall { caller, answer });
        Ok(SharedRequestGuard { traffic: Arc::clone(self), number, is_taken: false, answer: answered })
    }

    /// Sends a notification; returns `false` if the queue is full or closed.
    pub(super) fn notify(&self, method: &Method, params: Option<&RawJson>) -> bool {
        self.out.try_send(line(&message::write_notification(method, params))).is_ok()
    }

    /// Takes an answer of the server.
    pub(super) fn answered(&self, Response { id, outcome }: Response) {
        let number = std::str::from_utf8(id.raw()).ok().and_then(|text| text.parse::<u64>().ok());
        match number.and_then(|number| self.state.lock().calls.remove(&number)) {
            Some(waiting) => waiting.answer(outcome),
            None => tracing::debug!(?id, "the server answered a request that is not in flight; dropped"),
        }
    }

    /// The answer to this request was too long and is dropped: fails the request, which would wait for ever.
    pub(super) fn answer_is_too_long(&self, number: u64) {
        let waiting = self.state.lock().calls.remove(&number);
        if let Some(waiting) = waiting {
            let words = "The server's answer is longer than a line may be";
            waiting.answer(Err(RpcError::of(Reason::EventTooLarge, words)));
        }
    }

    /// The request of this number, if it is a session's.
    pub(super) fn caller(&self, number: u64) -> Option<SharedCaller> {
        self.state.lock().calls.get(&number)?.caller.clone()
    }

    /// The client's request in flight, if there is exactly one in all sessions.
    pub(super) fn only_one(&self) -> Option<SharedCaller> {
        let state = self.state.lock();
        let callers = state.calls.values().filter_map(|waiting| waiting.caller.as_ref());
        let mut clients = callers.filter(|caller| !caller.context.is_our_own());
        match (clients.next(), clients.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Refuses a question of the server, which cannot say which of its clients it asks.
    pub(super) fn refuse(&self, request: &Request) {
        let Request { id, method, .. } = request;
        let reply = match method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            _ => Err(RpcError::of(
                Reason::MethodNotFound,
                format!("{method}: this server is shared by several clients, so it cannot ask one of them"),
            )),
        };
        let text = line(&message::write_response(id, &reply));
        let Err(mpsc::error::TrySendError::Full(text)) = self.out.try_send(text) else { return };
        // Do not wait here: the reader must go on even if the server does not read.
        let Ok(permit) = Arc::clone(&self.answering).try_acquire_owned() else { return };
        let out = self.out.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "ends when the server takes it, or takes nothing more"
        )]
        tokio::spawn(async move {
            let _permit = permit;
            // Fails only if the server has ended, and then it needs no answer.
            let _ = out.send(text).await;
        });
    }

    /// A session has left: fails its requests and cancels them at the server.
    pub(super) fn withdraw(&self, member: &MemberSession) {
        let of_member = |waiting: &mut SharedCall| {
            waiting.caller.as_ref().is_some_and(|caller| caller.member.number == member.number)
        };
        let calls: Vec<_> = self.state.lock().calls.extract_if(|_, waiting| of_member(waiting)).collect();
        for (number, waiting) in calls {
            drop(waiting.answer.send(Err(gone())));
            self.cancel(number);
        }
    }

    /// The server has ended: fails all requests in flight.
    pub(super) fn over(&self, error: &RpcError) {
        let calls = {
            let mut state = self.state.lock();
            state.over.get_or_insert_with(|| error.clone());
            std::mem::take(&mut state.calls)
        };
        for (_, waiting) in calls {
            waiting.answer(Err(error.clone()));
        }
    }

    fn cancel(&self, number: u64) {
        let id = RequestId::from_number(number);
        let text = message::write_cancelled(&id, "the client no longer waits for the answer");
        // If the queue is full the cancellation is lost. Then the server's answer is dropped when it comes.
        let _ = self.out.try_send(line(&text));
    }
}

impl SharedCall {
    fn answer(self, reply: Reply) {
        match self.caller {
            // Through the member's queue, so that it comes after the request's notifications.
            Some(caller) => caller.member.tell(MemberMessage::Answer(self.answer, reply)),
            // The receiver may have been dropped.
            None => drop(self.answer.send(reply)),
        }
    }
}

impl SharedRequestGuard {
    async fn go(mut self, text: Bytes) -> Reply {
        let out = self.traffic.out.clone();
        self.is_taken = tokio::select! {
            biased;
            // The server ended or the session left before the queue had room.
            answer = &mut self.answer => return answer.unwrap_or_else(|_| Err(gone())),
            sent = out.send(text) => sent.is_ok(),
        };
        match (&mut self.answer).await {
            // The server takes no more messages, and by now the sessions know.
            _ if !self.is_taken => Err(RpcError::refused("The server has ended")),
            Ok(answer) => answer,
            Err(_) => Err(gone()),
        }
    }
}

impl Drop for SharedRequestGuard {
    fn drop(&mut self) {
        let unanswered = self.traffic.state.lock().calls.remove(&self.number);
        if unanswered.is_some() && self.is_taken {
            self.traffic.cancel(self.number);
        }
    }
}
