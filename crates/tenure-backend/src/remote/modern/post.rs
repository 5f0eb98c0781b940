//! One POST, and whatever comes back for it.

use bytes::Bytes;
use http::HeaderMap;
use tenure_protocol::translate::evidence::Way;
use tenure_protocol::{Message, Reply, Request, RequestId, RpcError, message};
use tenure_session::backend::probe::{Answer, Attempt};
use tenure_session::call::CallContext;

use super::super::events::Events;
use super::super::link::{no_answer, refusal};
use super::super::outage::{Away, Fault};
use super::Server;
use crate::remote::http_client::{Answer as Came, error_of, too_long};

impl Server {
    /// Posts a request and reads its answer. What is said before it goes through the context, if there is one.
    ///
    /// # Errors
    /// When the server is away.
    pub(super) async fn post(
        &self,
        request: &Request,
        headers: HeaderMap,
        context: Option<&CallContext>,
    ) -> Result<Attempt, Away> {
        let body = message::write_request(&request.id, &request.method, request.params.as_ref());
        let came = match self.door.post_alone(headers, body).await {
            Ok(came) => came,
            Err(Fault::Away(away)) => return Err(away),
            Err(Fault::Final(error)) => return Ok(nothing(None, error)),
        };
        Ok(match came {
            Came::Json(body) => match self.hear(&body, &request.id, context).await {
                Some(reply) => said(200, reply),
                // An error without an id is no response, but says what is wrong.
                None => match error_of(&body) {
                    Some(error) => said(200, Err(error)),
                    None => nothing(Some(200), no_answer()),
                },
            },
            Came::Stream(events) => return self.follow(events, &request.id, context).await,
            Came::Refused(status, body) => match error_of(&body) {
                Some(error) => said(status.as_u16(), Err(error)),
                None => nothing(Some(status.as_u16()), refusal(Came::Refused(status, body))),
            },
            came @ (Came::Accepted | Came::Unknown) => nothing(Some(202), refusal(came)),
        })
    }

    /// Reads a stream until the answer is there.
    async fn follow(
        &self,
        mut events: Events,
        id: &RequestId,
        context: Option<&CallContext>,
    ) -> Result<Attempt, Away> {
        while let Some(event) = events.next().await {
            if event.too_long.is_some() {
                return Ok(nothing(None, too_long()));
            }
            let Some(data) = event.data else { continue };
            if let Some(reply) = self.hear(&data, id, context).await {
                return Ok(said(200, reply));
            }
        }
        Err(Away::broke_off("The server broke off its answer"))
    }

    /// Takes what came; returns the answer if that is among it.
    async fn hear(&self, data: &Bytes, id: &RequestId, context: Option<&CallContext>) -> Option<Reply> {
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
                Message::Notification(told) => {
                    let Some(context) = context else { continue };
                    if let Err(error) = context.notify(&told.method, told.params.as_ref()).await {
                        tracing::debug!(method = %told.method, %error, "could not pass a message on");
                    }
                }
                // There are none in this era, and no way to answer.
                Message::Request(asked) => {
                    tracing::warn!(url = self.door.place(), method = %asked.method, "the server upstream asks something in the middle of an answer; not passed on");
                }
            }
        }
        answer
    }
}

fn said(status: u16, reply: Reply) -> Attempt {
    Attempt { way: Way::Http(Some(status)), answer: Answer::Said(reply) }
}

fn nothing(status: Option<u16>, error: RpcError) -> Attempt {
    Attempt { way: Way::Http(status), answer: Answer::Nothing(error) }
}
