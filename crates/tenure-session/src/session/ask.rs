//! A request to the client: sampling, elicitation, roots, ping.
//!
//! The question goes out on the stream of the request that caused it, under our own id, which is unique in the session.
//! The client answers in another POST. An answer to an unknown question is logged and dropped.

use std::sync::Arc;

use tenure_protocol::{Error, Method, RawJson, Reason, Reply, RequestId, Response, RpcError, message};
use tokio::sync::oneshot;

use crate::call::Origin;
use crate::figures::TimelineEvent;
use crate::port::observer::{Happened, answer_word};
use crate::session::claim::elsewhere;
use crate::session::live_session::{InFlight, Session, SessionState, ended_error};

/// A question that waits for the client's answer.
pub(super) struct Ask {
    answer: oneshot::Sender<Reply>,
}

/// Cancels the question if the task that waits for its answer is dropped.
struct QuestionGuard {
    session: Arc<Session>,
    origin: Origin,
    number: u64,
    /// What it asks, once the observer was told of it.
    told: Option<Method>,
}

impl Session {
    /// Asks the client and waits for its answer.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the question: the client is told, and a late answer is ignored.
    pub(super) async fn put_question(
        self: &Arc<Self>,
        origin: Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> Result<RawJson, RpcError> {
        let (answer, answered) = oneshot::channel();
        let limits = &self.inner.limits;
        let mut asked = {
            let mut state = self.state.lock();
            self.check_alive(&state).map_err(|error| error.to_rpc())?;
            if !state.client_can(method) {
                return Err(RpcError::of(
                    Reason::MethodNotFound,
                    format!("The client does not support {method}"),
                ));
            }
            if state.asks.len() >= limits.max_pending {
                return Err(RpcError::of(
                    Reason::TooManyRequests,
                    "Too many questions to the client are open",
                ));
            }
            state.next_ask += 1;
            let number = state.next_ask;
            state.asks.insert(number, Ask { answer });
            if let Some(call) = state.call_of(&origin) {
                call.asking += 1;
            }
            QuestionGuard { session: Arc::clone(self), origin, number, told: None }
        };
        let body = message::write_request(&self.ask_id(asked.number), method, params);
        self.emit(&asked.origin, body).await.map_err(|error| error.to_rpc())?;
        asked.told = Some(method.clone());
        self.note(TimelineEvent::Asked);
        self.tell_observer(Happened::Asked { method });
        let reply = match tokio::time::timeout(limits.ask_timeout, answered).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(self.unanswerable()),
            Err(_) => {
                tracing::warn!(session = %self.label, %method, "no answer from the client in time");
                let seconds = limits.ask_timeout.as_secs_f32();
                Err(RpcError::of(Reason::TimedOut, format!("The client gave no answer within {seconds} s")))
            }
        };
        asked.told = None;
        self.note(if reply.is_ok() { TimelineEvent::Answered } else { TimelineEvent::NotAnswered });
        self.tell_observer(Happened::Answered { method, how: answer_word(&reply) });
        reply
    }

    /// Takes an answer of the client.
    ///
    /// # Errors
    /// When the session has ended, or while this node may not act for it.
    pub fn response(self: &Arc<Self>, response: Response) -> Result<(), Error> {
        self.touch();
        if !self.may_act() {
            return Err(elsewhere());
        }
        self.take_response(response)
    }

    /// As `response`, for a caller that has asked whether this node may act.
    pub(super) fn take_response(self: &Arc<Self>, response: Response) -> Result<(), Error> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        let ask = self.ask_number(&response.id).and_then(|number| state.asks.remove(&number));
        drop(state);
        match ask {
            // Fails if the waiting task is gone; then the answer is not needed.
            Some(ask) => drop(ask.answer.send(response.outcome)),
            None => {
                tracing::debug!(session = %self.label, id = ?response.id, "dropped an answer to an unknown question")
            }
        }
        Ok(())
    }

    /// Our id for a question. It contains the epoch, so that an answer to a question from before a restart does not
    /// match a later question.
    fn ask_id(&self, number: u64) -> RequestId {
        RequestId::from_text(&format!("{:x}-{number}", self.epoch.0))
    }

    fn ask_number(&self, id: &RequestId) -> Option<u64> {
        let (epoch, number) = id.as_text()?.split_once('-')?;
        (u64::from_str_radix(epoch, 16) == Ok(self.epoch.0)).then(|| number.parse().ok())?
    }

    fn unanswerable(&self) -> RpcError {
        match self.state.lock().end {
            Some(end) => ended_error(end).to_rpc(),
            None => RpcError::of(Reason::ClientGone, "The client went away before it answered"),
        }
    }
}

impl SessionState {
    /// The request in flight that an origin names.
    fn call_of(&mut self, origin: &Origin) -> Option<&mut InFlight> {
        match origin {
            Origin::Unasked => None,
            Origin::Call { id, number } => self.calls.get_mut(id).filter(|call| call.number == *number),
        }
    }
}

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        let now = self.session.inner.clock.now();
        let open = {
            let mut state = self.session.state.lock();
            if let Some(call) = state.call_of(&self.origin) {
                call.asking = call.asking.saturating_sub(1);
                call.goes_on(now);
            }
            state.asks.remove(&self.number).is_some()
        };
        if let Some(method) = &self.told {
            self.session.note(TimelineEvent::NotAnswered);
            self.session.tell_observer(Happened::QuestionWithdrawn { method });
        }
        if !open {
            return;
        }
        let id = self.session.ask_id(self.number);
        let body = message::write_cancelled(&id, "no longer needed");
        // Fails if the originating request has ended; its answer already tells the client.
        if let Err(error) = self.session.emit_now(&self.origin, body) {
            tracing::debug!(session = %self.session.label, %error, "could not cancel a question");
        }
    }
}
