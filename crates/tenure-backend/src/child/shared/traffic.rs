//! The requests of all sessions on their way to one server, and their answers.
//!
//! Every request has a number of ours, which is its id towards the server and, if the client wants to hear of
//! progress, a token of ours too. So two sessions may use the same ids and tokens at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, Response, RpcError, message};
use tenure_session::call::CallContext;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::super::splice::{Marks, marked};
use super::member::{Member, Said};
use crate::pending::{gone, line};

/// Answers to questions of the server that may wait to be written. Beyond that it gets none.
const ANSWERS: usize = 128;

pub(super) struct Traffic {
    /// Lines to the server.
    out: mpsc::Sender<Bytes>,
    answering: Arc<Semaphore>,
    next: AtomicU64,
    /// How long the server may take to answer what we ask ourselves.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: HashMap<u64, Waiting>,
    /// Why nothing more will come.
    over: Option<RpcError>,
}

struct Waiting {
    /// Nobody: it is a request of our own.
    caller: Option<Caller>,
    answer: oneshot::Sender<Reply>,
}

/// The request of a session.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) member: Arc<Member>,
    pub(super) context: Arc<CallContext>,
    /// What it is called in progress notifications, if the client wants any.
    pub(super) tokens: Option<Marks>,
}

/// A request on its way. It is forgotten when this is dropped, and withdrawn if there is no answer yet.
struct Sent {
    traffic: Arc<Traffic>,
    number: u64,
    /// The server has heard of it, or will.
    is_taken: bool,
    answer: oneshot::Receiver<Reply>,
}

impl Traffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, patience: Duration) -> Arc<Self> {
        let answering = Arc::new(Semaphore::new(ANSWERS));
        Arc::new(Self { out, answering, next: AtomicU64::new(0), patience, state: Mutex::default() })
    }

    /// Carries the request of a session; everything but its id and its token passes as it is.
    ///
    /// # Cancel safety
    /// A request that nobody waits for is withdrawn.
    pub(super) async fn carry(
        self: Arc<Self>,
        member: Arc<Member>,
        request: Request,
        context: CallContext,
    ) -> Reply {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Request { method, params, .. } = request;
        let (params, tokens) = marked(params, number)?;
        let context = Arc::new(context);
        let caller = Caller { member, context: Arc::clone(&context), tokens };
        let sent = self.enter(number, Some(caller))?;
        let id = RequestId::from_number(number);
        let text = line(&message::write_request(&id, &method, params.as_ref()));
        tokio::select! {
            biased;
            reply = sent.go(text) => reply,
            // The server is told when `sent` is dropped, as it is when the time is up.
            () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
        }
    }

    /// Asks the server something ourselves. It does not wait for ever: others wait for their turn to ask.
    ///
    /// # Cancel safety
    /// As for [`Traffic::carry`].
    pub(super) async fn ask(self: &Arc<Self>, method: &Method, params: &RawJson) -> Reply {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sent = self.enter(number, None)?;
        let id = RequestId::from_number(number);
        let going = sent.go(line(&message::write_request(&id, method, Some(params))));
        tokio::time::timeout(self.patience, going).await.unwrap_or_else(|_| {
            Err(RpcError::of(Reason::TimedOut, format!("The server did not answer {method} in time")))
        })
    }

    fn enter(self: &Arc<Self>, number: u64, caller: Option<Caller>) -> Result<Sent, RpcError> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state.lock();
        if state.over.is_some() || caller.as_ref().is_some_and(|caller| caller.member.has_left()) {
            return Err(RpcError::refused("The server has ended"));
        }
        state.calls.insert(number, Waiting { caller, answer });
        Ok(Sent { traffic: Arc::clone(self), number, is_taken: false, answer: answered })
    }

    /// Sends a notification if there is room for it now.
    pub(super) fn notify(&self, method: &Method, params: Option<&RawJson>) -> bool {
        self.out.try_send(line(&message::write_notification(method, params))).is_ok()
    }

    /// Takes an answer of the server.
    pub(super) fn answered(&self, Response { id, outcome }: Response) {
        let number = std::str::from_utf8(id.raw()).ok().and_then(|text| text.parse::<u64>().ok());
        match number.and_then(|number| self.state.lock().calls.remove(&number)) {
            Some(waiting) => waiting.answer(outcome),
            None => tracing::debug!(?id, "an answer nobody waits for"),
        }
    }

    /// The answer to a request cannot be taken; whoever waits for it shall not wait for ever.
    pub(super) fn answer_is_too_long(&self, number: u64) {
        let waiting = self.state.lock().calls.remove(&number);
        if let Some(waiting) = waiting {
            let words = "The server's answer is longer than a line may be";
            waiting.answer(Err(RpcError::of(Reason::EventTooLarge, words)));
        }
    }

    /// The request of this number, if it is one of a session's.
    pub(super) fn caller(&self, number: u64) -> Option<Caller> {
        self.state.lock().calls.get(&number)?.caller.clone()
    }

    /// The one request of a client's that is in flight, if there is only one in all.
    pub(super) fn only_one(&self) -> Option<Caller> {
        let state = self.state.lock();
        let callers = state.calls.values().filter_map(|waiting| waiting.caller.as_ref());
        let mut clients = callers.filter(|caller| !caller.context.is_our_own());
        match (clients.next(), clients.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Answers a question of the server: it cannot say which of its clients it asks.
    pub(super) fn refuse(&self, request: &Request) {
        let Request { id, method, .. } = request;
        let reply = match method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            _ => Err(RpcError::of(
                Reason::MethodNotFound,
                format!(
                    "{method}: this server is shared by several clients, so there is none that it could ask"
                ),
            )),
        };
        let text = line(&message::write_response(id, &reply));
        let Err(mpsc::error::TrySendError::Full(text)) = self.out.try_send(text) else { return };
        // Not waited for here: a server that does not read must be listened to all the same.
        let Ok(permit) = Arc::clone(&self.answering).try_acquire_owned() else { return };
        let out = self.out.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "ends when the server takes it, or takes nothing more"
        )]
        tokio::spawn(async move {
            let _permit = permit;
            // A server that is gone has no use for the answer.
            let _ = out.send(text).await;
        });
    }

    /// A session has left: what it waits for is over, and the server need not go on with it.
    pub(super) fn withdraw(&self, member: &Member) {
        let of_member = |waiting: &mut Waiting| {
            waiting.caller.as_ref().is_some_and(|caller| caller.member.number == member.number)
        };
        let calls: Vec<_> = self.state.lock().calls.extract_if(|_, waiting| of_member(waiting)).collect();
        for (number, waiting) in calls {
            drop(waiting.answer.send(Err(gone())));
            self.cancel(number);
        }
    }

    /// The server will say nothing more: everything that waits for it fails.
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
        let text = message::write_cancelled(&id, "nobody waits for the answer any more");
        // Should the server have no room for it, it finds out by itself that nobody wants the answer.
        let _ = self.out.try_send(line(&text));
    }
}

impl Waiting {
    fn answer(self, reply: Reply) {
        match self.caller {
            // After all that was said about the request before.
            Some(caller) => caller.member.tell(Said::Answer(self.answer, reply)),
            // Whoever asked may have left.
            None => drop(self.answer.send(reply)),
        }
    }
}

impl Sent {
    async fn go(mut self, text: Bytes) -> Reply {
        let out = self.traffic.out.clone();
        self.is_taken = tokio::select! {
            biased;
            // The server is gone, or the session has left, before there was room for it.
            answer = &mut self.answer => return answer.unwrap_or_else(|_| Err(gone())),
            sent = out.send(text) => sent.is_ok(),
        };
        match (&mut self.answer).await {
            // It takes nothing any more, and by now the sessions know.
            _ if !self.is_taken => Err(RpcError::refused("The server has ended")),
            Ok(answer) => answer,
            Err(_) => Err(gone()),
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let unanswered = self.traffic.state.lock().calls.remove(&self.number);
        if unanswered.is_some() && self.is_taken {
            self.traffic.cancel(self.number);
        }
    }
}
