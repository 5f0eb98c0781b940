//! One POST of a request, and its answer.

use bytes::Bytes;
use http::HeaderMap;
use tenure_protocol::translate::evidence::AnsweredOver;
use tenure_protocol::{Message, Reply, Request, RequestId, RpcError, message};
use tenure_session::backend::probe::{ProbeAnswer, ProbeAttempt};
use tenure_session::call::CallContext;

use super::super::events::UpstreamEvents;
use super::super::link::{no_answer, refusal};
use super::super::outage::{Away, Fault};
use super::ModernRemote;
use crate::pending::too_long;
use crate::remote::credentials::OnBehalf;
use crate::remote::http_client::{HttpAnswer, error_of};

impl ModernRemote {
    /// Posts a request and reads its answer. Notifications before the answer go through the context, if there is one.
    ///
    /// # Errors
    /// When the server is away.
    pub(super) async fn post(
        &self,
        request: &Request,
        headers: HeaderMap,
        whom: &OnBehalf,
        context: Option<&CallContext>,
    ) -> Result<ProbeAttempt, Away> {
        let body = message::write_request(&request.id, &request.method, request.params.as_ref());
        let came = match self.http.post_alone(whom, headers, body).await {
            Ok(came) => came,
            Err(Fault::Away(away)) => return Err(away),
            Err(Fault::Final(error)) => return Ok(nothing(None, error)),
        };
        Ok(match came {
            HttpAnswer::Json(body) => match self.hear(&body, &request.id, context).await {
                Some(reply) => said(200, reply),
                // An error without an id is not a valid response, but it has the reason.
                None => match error_of(&body) {
                    Some(error) => said(200, Err(error)),
                    None => nothing(Some(200), no_answer()),
                },
            },
            HttpAnswer::Stream(events) => return self.follow(events, &request.id, context).await,
            HttpAnswer::Refused(status, body) => match error_of(&body) {
                Some(error) => said(status.as_u16(), Err(error)),
                None => nothing(Some(status.as_u16()), refusal(HttpAnswer::Refused(status, body))),
            },
            HttpAnswer::Unauthorized(status) => {
                nothing(Some(status.as_u16()), refusal(HttpAnswer::Unauthorized(status)))
            }
            came @ (HttpAnswer::Accepted | HttpAnswer::Unknown) => nothing(Some(202), refusal(came)),
        })
    }

    /// Reads events until the answer comes.
    async fn follow(
        &self,
        mut events: UpstreamEvents,
        id: &RequestId,
        context: Option<&CallContext>,
    ) -> Result<ProbeAttempt, Away> {
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

    /// Handles the messages in the data; returns the answer if it is among them.
    async fn hear(&self, data: &Bytes, id: &RequestId, context: Option<&CallContext>) -> Option<Reply> {
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
                Message::Notification(told) => {
                    let Some(context) = context else { continue };
                    if let Err(error) = context.notify(&told.method, told.params.as_ref()).await {
                        tracing::debug!(method = %told.method, %error, "could not pass on a message");
                    }
                }
                // Servers of this era may not ask questions, and there is no way to answer.
                Message::Request(asked) => {
                    tracing::warn!(
                        url = self.http.place(), method = %asked.method,
                        "the server upstream asked a question on the stream of an answer; dropped"
                    );
                }
            }
        }
        answer
    }
}

fn said(status: u16, reply: Reply) -> ProbeAttempt {
    ProbeAttempt { way: AnsweredOver::Http(Some(status)), answer: ProbeAnswer::Said(reply) }
}

fn nothing(status: Option<u16>, error: RpcError) -> ProbeAttempt {
    ProbeAttempt { way: AnsweredOver::Http(status), answer: ProbeAnswer::Nothing(error) }
}
