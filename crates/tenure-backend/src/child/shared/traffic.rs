//! The requests of all sessions that are in flight at one server, and their answers.
//!
//! Every request has a number of ours, which is its id towards the server and, if the client wants progress, part of
//! our progress token. So two sessions may use the same ids and tokens at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, Response, RpcError, message};
use tenure_session::call::CallContext;
use tokio::sync::mpsc;

use super::super::splice::{TokenPair, replace_token};
use super::member::{MemberMessage, MemberSession};
use crate::pending::{InFlight, Pending, Waiting, gone, too_long, unless_cancelled};

pub(super) struct SharedTraffic {
    /// Requests of our own have no caller.
    pending: Arc<Pending<Option<SharedCaller>>>,
    /// How long the server may take to answer our own requests.
    patience: Duration,
}

/// The request of a session.
#[derive(Clone)]
pub(super) struct SharedCaller {
    pub(super) member: Arc<MemberSession>,
    pub(super) context: Arc<CallContext>,
    /// The progress tokens, if the client wants progress.
    pub(super) tokens: Option<TokenPair>,
}

impl SharedTraffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, patience: Duration) -> Arc<Self> {
        Arc::new(Self { pending: Pending::new(out, 0), patience })
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
        let number = self.pending.number();
        let Request { method, params, .. } = request;
        let (params, tokens) = replace_token(params, number)?;
        let context = Arc::new(context);
        let caller = SharedCaller { member: Arc::clone(&member), context: Arc::clone(&context), tokens };
        let entered = self.enter(number, Some(caller))?;
        // Checked after the request was entered: a session that leaves later withdraws the request.
        if member.has_left() {
            return Err(RpcError::refused("The server has ended"));
        }
        let text = message::write_request(&entered.id(), &method, params.as_ref());
        unless_cancelled(&context, entered.ask(text)).await
    }

    /// Sends a request of our own. It has a timeout, because other tasks wait for the caller's permit meanwhile.
    ///
    /// # Cancel safety
    /// As for [`SharedTraffic::carry`].
    pub(super) async fn ask(&self, method: &Method, params: &RawJson) -> Reply {
        let entered = self.enter(self.pending.number(), None)?;
        let text = message::write_request(&entered.id(), method, Some(params));
        tokio::time::timeout(self.patience, entered.ask(text)).await.unwrap_or_else(|_| {
            Err(RpcError::of(Reason::TimedOut, format!("The server did not answer {method} in time")))
        })
    }

    fn enter(
        &self,
        number: u64,
        caller: Option<SharedCaller>,
    ) -> Result<InFlight<Option<SharedCaller>>, RpcError> {
        self.pending.enter(number, caller).ok_or_else(|| RpcError::refused("The server has ended"))
    }

    /// Sends a notification; returns `false` if the queue is full or closed.
    pub(super) fn notify(&self, method: &Method, params: Option<&RawJson>) -> bool {
        self.pending.try_send(message::write_notification(method, params))
    }

    /// Takes an answer of the server.
    pub(super) fn answered(&self, Response { id, outcome }: Response) {
        if let Some(waiting) = self.pending.answered(&id) {
            answer(waiting, outcome);
        }
    }

    /// The answer to this request was too long and is dropped: fails the request, which would wait for ever.
    pub(super) fn answer_is_too_long(&self, number: u64) {
        if let Some(waiting) = self.pending.take(number) {
            answer(waiting, Err(too_long()));
        }
    }

    /// The request of this number, if it is a session's.
    pub(super) fn caller(&self, number: u64) -> Option<SharedCaller> {
        self.pending.of(number, Clone::clone)
    }

    /// The client's request in flight, if there is exactly one in all sessions.
    pub(super) fn only_one(&self) -> Option<SharedCaller> {
        self.pending.only(|_, caller| caller.clone().filter(|caller| !caller.context.is_our_own()))
    }

    /// Refuses a question of the server, which cannot say which of its clients it asks.
    pub(super) fn refuse(&self, request: &Request) {
        self.pending
            .refuse(request, "this server is shared by several clients, so it cannot ask one of them");
    }

    /// A session has left: fails its requests and cancels them at the server.
    pub(super) fn withdraw(&self, member: &MemberSession) {
        let is_its = |caller: &Option<SharedCaller>| {
            caller.as_ref().is_some_and(|caller| caller.member.number == member.number)
        };
        for waiting in self.pending.withdraw(is_its) {
            drop(waiting.answer.send(Err(gone())));
        }
    }

    /// The server has ended: fails all requests in flight.
    pub(super) fn over(&self) {
        for waiting in self.pending.end() {
            answer(waiting, Err(gone()));
        }
    }
}

fn answer(Waiting { caller, answer }: Waiting<Option<SharedCaller>>, reply: Reply) {
    match caller {
        // Through the member's queue, so that it comes after the request's notifications.
        Some(caller) => caller.member.tell(MemberMessage::Answer(answer, reply)),
        // The receiver may have been dropped.
        None => drop(answer.send(reply)),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cancellation_waits_for_room_in_the_queue() {
        let (out, mut lines) = mpsc::channel(1);
        let traffic = SharedTraffic::new(out, Duration::from_secs(60));
        // The request fills the queue, and then is given up.
        let params = RawJson::EMPTY_OBJECT;
        let mut asking = Box::pin(traffic.ask(&Method::ToolsList, &params));
        assert!((&mut asking).now_or_never().is_none());
        drop(asking);
        let mut next = async || tokio::time::timeout(Duration::from_secs(1), lines.recv()).await;
        assert!(next().await.is_ok_and(|line| line.is_some()));
        let cancelled = next().await.expect("the cancellation is not lost").unwrap();
        assert!(cancelled.starts_with(br#"{"jsonrpc":"2.0","method":"notifications/cancelled""#));
    }
}
