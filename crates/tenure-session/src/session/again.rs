//! A request that another node may have begun already: that node was lost, or its connection, before the answer came.
//!
//! If the request is in flight here, from a note in the log or because this node began it, the sender gets its stream.
//! Otherwise it is carried out only if that may happen twice, or else answered with `interrupted`. So no request
//! that is not safe is ever carried out twice.

use std::sync::Arc;

use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Error, Message, Reason, Request, RpcError, message};

use crate::call::Caller;
use crate::id::{Position, StreamId};
use crate::session::live_session::Session;
use crate::session::request::Answer;

impl Session {
    /// Answers a request that another node may have begun.
    ///
    /// # Errors
    /// As for [`Session::request`].
    ///
    /// # Cancel safety
    /// As for `request`.
    pub async fn request_again(self: &Arc<Self>, request: Request, caller: Caller) -> Result<Answer, Error> {
        self.touch();
        if let Some(answer) = self.attached(&request) {
            return Ok(self.once_noted(request.id, answer).await);
        }
        let is_safe = match params::repeat(&request.method) {
            Repeat::Never => false,
            Repeat::Safe => true,
            Repeat::AskTool => match params::tool_name(request.params.as_ref()) {
                Some(name) => self.repeatable_tools().await.contains(&name),
                None => false,
            },
        };
        if is_safe {
            return self.request(request, caller).await;
        }
        tracing::info!(session = %self.label, request = ?request.id, method = %request.method, "a request of a node that was lost is not carried out again");
        Ok(Answer::Json(message::write_error(Some(&request.id), &interrupted())))
    }

    /// Answers an array of messages that another node may have begun.
    ///
    /// # Errors
    /// As for [`Session::batch`].
    pub fn batch_again(
        self: &Arc<Self>,
        messages: Vec<Message>,
        caller: &Caller,
    ) -> Result<Option<Answer>, Error> {
        self.touch();
        let mut requests = messages.iter().filter_map(|message| match message {
            Message::Request(request) => Some(request),
            Message::Notification(_) | Message::Response(_) => None,
        });
        // They share a stream.
        if let Some(answer) = requests.clone().find_map(|request| self.attached(request)) {
            return Ok(Some(answer));
        }
        if requests.clone().all(|request| params::repeat(&request.method) == Repeat::Safe) {
            return self.batch(messages, caller);
        }
        let error = interrupted();
        let mut all = bytes::BytesMut::from(&b"["[..]);
        if let Some(first) = requests.next() {
            all.extend_from_slice(&message::write_error(Some(&first.id), &error));
        }
        for request in requests {
            all.extend_from_slice(b",");
            all.extend_from_slice(&message::write_error(Some(&request.id), &error));
        }
        all.extend_from_slice(b"]");
        Ok(Some(Answer::Json(all.freeze())))
    }

    /// The stream of a request that is in flight here, from its start.
    fn attached(self: &Arc<Self>, request: &Request) -> Option<Answer> {
        let mut state = self.state.lock();
        let call = state.calls.get(&request.id)?;
        // A client that uses an id for two requests gets an error for the second one.
        let bytes =
            |params: &Option<tenure_protocol::RawJson>| params.as_ref().map(|params| params.bytes().clone());
        if call.method != request.method || bytes(&call.params) != bytes(&request.params) {
            return None;
        }
        let (stream, number): (Option<StreamId>, u64) = (call.stream, call.number);
        let stream = match stream {
            Some(stream) => stream,
            // Its connection broke while the answer could still have been JSON.
            None => self.stream_of(&mut state, &request.id, number).ok()?,
        };
        let reader = self.reader(&mut state, stream, Some(Position::START));
        drop(state);
        self.flush();
        Some(Answer::Stream(reader))
    }
}

fn interrupted() -> RpcError {
    RpcError::of(
        Reason::Interrupted,
        "The node that had begun the request was lost; the request may or may not have been carried out",
    )
}
