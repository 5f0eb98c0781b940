//! A request to the client: sampling, elicitation, roots, ping.
//!
//! It goes out on the stream of the request that caused it, under an id of ours that is unique in the
//! session, and its answer comes back in a POST of its own. An answer to nothing is logged and dropped.

use std::sync::Arc;

use tenure_protocol::{Error, Method, RawJson, Reason, Reply, RequestId, Response, RpcError, message};
use tokio::sync::oneshot;

use crate::session::session::{InFlight, Session, State, ended_error};
use crate::session::stream::Origin;

/// A question that waits for the client's answer.
pub(super) struct Ask {
    answer: oneshot::Sender<Reply>,
}

/// Takes the question back if nobody waits for its answer any more.
struct Asked {
    session: Arc<Session>,
    origin: Origin,
    number: u64,
}

impl Session {
    /// Asks the client and waits for its answer.
    ///
    /// # Cancel safety
    /// A dropped question is withdrawn: the client is told, a late answer is ignored.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        origin: Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> Result<RawJson, RpcError> {
        let (answer, answered) = oneshot::channel();
        let limits = &self.inner.limits;
        let asked = {
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
            Asked { session: Arc::clone(self), origin, number }
        };
        let body = message::write_request(&self.ask_id(asked.number), method, params);
        self.emit(&asked.origin, body).await.map_err(|error| error.to_rpc())?;
        match tokio::time::timeout(limits.ask_timeout, answered).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(self.unanswerable()),
            Err(_) => {
                tracing::warn!(session = %self.label, %method, "no answer from the client in time");
                let seconds = limits.ask_timeout.as_secs_f32();
                Err(RpcError::of(Reason::TimedOut, format!("The client gave no answer within {seconds} s")))
            }
        }
    }

    /// Takes an answer of the client.
    ///
    /// # Errors
    /// When the session is over.
    pub fn response(self: &Arc<Self>, response: Response) -> Result<(), Error> {
        self.touch();
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        let ask = self.ask_number(&response.id).and_then(|number| state.asks.remove(&number));
        drop(state);
        match ask {
            // The asker may have gone meanwhile; then nobody wants the answer.
            Some(ask) => drop(ask.answer.send(response.outcome)),
            None => {
                tracing::debug!(session = %self.label, id = ?response.id, "an answer to no open question; dropped")
            }
        }
        Ok(())
    }

    /// Our id for a question. It names the epoch, so that an answer to a question from before a restart is
    /// never taken for an answer to a later one.
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

impl State {
    /// The request in flight that an origin names.
    fn call_of(&mut self, origin: &Origin) -> Option<&mut InFlight> {
        match origin {
            Origin::Session => None,
            Origin::Call { id, number } => self.calls.get_mut(id).filter(|call| call.number == *number),
        }
    }
}

impl Drop for Asked {
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
        if !open {
            return;
        }
        let id = self.session.ask_id(self.number);
        let body = message::write_cancelled(&id, "no longer needed");
        // The originating request may be over; then its stream takes no more and the client knows.
        if let Err(error) = self.session.emit_now(&self.origin, body) {
            tracing::debug!(session = %self.session.label, %error, "could not withdraw a question");
        }
    }
}
