//! The answer to one request, wherever it comes: on the stream of its POST, or on those that resume it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Message, Method, RawJson, Reply, RequestId};
use tenure_session::call::CallContext;

use super::events::Events;
use super::link::Remote;
use super::outage::{Away, Fault};
use crate::remote::http_client::{Answer, may_pass, resume_after, too_long};

/// How long to wait before coming back, unless the server says.
const RETRY: Duration = Duration::from_secs(1);
/// How often a stream is resumed without anything new on it before it is given up.
const MAX_TRIES: u32 = 10;

impl Remote {
    /// Reads a stream until the answer is there.
    pub(super) async fn follow(
        self: &Arc<Self>,
        mut events: Events,
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
            let mut waits = self.door.waits();
            events = loop {
                tries += 1;
                if tries > MAX_TRIES {
                    return Err(Away::broke_off(
                        "The server broke off its answer, and does not go on with it",
                    ));
                }
                tokio::time::sleep(retry).await;
                match self.door.get(&self.visit, Some(after.clone())).await {
                    Ok(Answer::Stream(events)) => break events,
                    // It does not know the session any more, or cannot resume. Only the first costs other requests theirs.
                    Ok(Answer::Unknown) if self.is_gone().await => return Ok(Err(self.lost())),
                    Ok(Answer::Unknown) => {
                        return Err(Away::broke_off(
                            "The server broke off its answer, and cannot go on with it",
                        ));
                    }
                    Ok(Answer::Refused(status, _)) if may_pass(status) => {}
                    Ok(Answer::Accepted | Answer::Json(_) | Answer::Refused(..)) => {
                        return Err(Away::broke_off("The server broke off its answer"));
                    }
                    // As long as it is waited for, that it is away is no try.
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

    /// Takes what came while a request is answered; returns the answer if that is among it.
    pub(super) async fn hear(
        &self,
        data: &Bytes,
        id: &RequestId,
        context: &Arc<CallContext>,
    ) -> Option<Reply> {
        let mut answer = None;
        for message in self.door.messages(data) {
            match message {
                // What else came with it is heard first: afterwards it has no place to go.
                Message::Response(response) if response.id == *id => {
                    answer.get_or_insert(response.outcome);
                }
                Message::Response(response) => {
                    tracing::debug!(id = ?response.id, "an answer to another request");
                }
                // The question went on under an id of ours, so the client would not know what is meant.
                Message::Notification(told) if told.method == Method::Cancelled => {
                    self.questions.withdrawn(told.params.as_ref());
                }
                Message::Notification(told) => {
                    if let Err(error) = context.notify(&told.method, told.params.as_ref()).await {
                        tracing::debug!(method = %told.method, %error, "could not pass a message on");
                    }
                }
                Message::Request(asked) => {
                    let context = Arc::clone(context);
                    self.questions.take(asked.id, async move {
                        match asked.method {
                            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
                            method => context.ask(&method, asked.params.as_ref()).await,
                        }
                    });
                }
            }
        }
        answer
    }
}
