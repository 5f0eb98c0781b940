//! Reads the answer to one request from the stream of its POST, or from the streams that resume it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Message, Method, Reply, RequestId};
use tenure_session::call::CallContext;

use super::events::UpstreamEvents;
use super::link::Remote;
use super::outage::{Away, Fault};
use crate::pending::too_long;
use crate::remote::http_client::{HttpAnswer, may_pass, resume_after};

/// The pause before resuming, unless the server sets one.
const RETRY: Duration = Duration::from_secs(1);
/// How often a stream is resumed without a new event before it is given up.
const MAX_TRIES: u32 = 10;

impl Remote {
    /// Reads events until the answer comes; resumes the stream if it breaks.
    pub(super) async fn follow(
        self: &Arc<Self>,
        mut events: UpstreamEvents,
        id: &RequestId,
        context: &Arc<CallContext>,
    ) -> Result<Reply, Away> {
        let (mut last, mut retry, mut tries) = (None, RETRY, 0);
        loop {
            while let Some(event) = events.next().await {
                tries = 0;
                last = event.id.or(last);
                if event.too_long.is_some() {
                    return Ok(Err(too_long()));
                }
                let Some(data) = event.data else { continue };
                if let Some(reply) = self.hear(&data, id, context).await {
                    return Ok(reply);
                }
            }
            retry = events.retry().unwrap_or(retry);
            let Some(after) = last.as_deref().and_then(resume_after) else {
                return Err(Away::broke_off("The server broke off its answer"));
            };
            let mut waits = self.http.waits();
            events = loop {
                tries += 1;
                if tries > MAX_TRIES {
                    return Err(Away::broke_off(
                        "The server broke off its answer, and does not go on with it",
                    ));
                }
                tokio::time::sleep(retry).await;
                let session = self.session.for_caller(context.caller());
                match self.http.get(&session, Some(after.clone())).await {
                    Ok(HttpAnswer::Stream(events)) => break events,
                    // The server has forgotten the session, or cannot resume. Only the first is a loss for other
                    // requests.
                    Ok(HttpAnswer::Unknown) if self.is_gone().await => return Ok(Err(self.lost())),
                    Ok(HttpAnswer::Unknown) => {
                        return Err(Away::broke_off(
                            "The server broke off its answer, and cannot go on with it",
                        ));
                    }
                    Ok(HttpAnswer::Refused(status, _)) if may_pass(status) => {}
                    Ok(
                        HttpAnswer::Accepted
                        | HttpAnswer::Json(_)
                        | HttpAnswer::Unauthorized(_)
                        | HttpAnswer::Refused(..),
                    ) => {
                        return Err(Away::broke_off("The server broke off its answer"));
                    }
                    // While we wait for a server that is away, attempts do not count.
                    Err(Fault::Away(away)) => {
                        if let Some(pause) = waits.pause(&away) {
                            tries -= 1;
                            tokio::time::sleep(pause.saturating_sub(retry)).await;
                        }
                    }
                    Err(Fault::Final(_)) => {}
                }
            };
        }
    }

    /// Handles the messages in an event of a request's stream; returns the answer if it is among them.
    pub(super) async fn hear(
        &self,
        data: &Bytes,
        id: &RequestId,
        context: &Arc<CallContext>,
    ) -> Option<Reply> {
        let mut answer = None;
        for message in self.http.messages(data) {
            match message {
                // Handle the rest of the batch before returning the answer: afterwards the request is over.
                Message::Response(response) if response.id == *id => {
                    answer.get_or_insert(response.outcome);
                }
                Message::Response(response) => {
                    tracing::debug!(id = ?response.id, "an answer to another request; dropped");
                }
                // The client got the question under an id of ours, so it would not know this id.
                Message::Notification(told) if told.method == Method::Cancelled => {
                    self.questions.withdrawn(told.params.as_ref());
                }
                Message::Notification(told) => {
                    if let Err(error) = context.notify(&told.method, told.params.as_ref()).await {
                        tracing::debug!(method = %told.method, %error, "could not pass on a message");
                    }
                }
                Message::Request(asked) => {
                    let context = Arc::clone(context);
                    self.questions.take(asked, |method, params| async move {
                        context.ask(&method, params.as_ref()).await
                    });
                }
            }
        }
        answer
    }
}
