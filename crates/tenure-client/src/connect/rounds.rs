//! Sends a request and answers the server's questions until the final result comes.
//!
//! A modern server answers `input_required`: with questions, or with a request to come back later. Then the request is
//! sent again with the answers and the server's state. The time limit applies to each wait for the server; the time in
//! which a user answers does not count, in either era.

use std::time::Duration;

use rmcp::{
    Peer, RoleClient, Service, ServiceError,
    model::{
        CancelledNotificationParam, ClientRequest, ClientResult, ErrorData, InputRequest, InputRequests,
        InputRequiredResult, InputResponses, RequestId, RequestMetaObject, ServerRequest, ServerResult,
    },
    service::{PeerRequestOptions, RequestContext},
};
use serde_json::Value;
use tokio::time::Instant;

use super::ConnectedClient;
use crate::call::{CORRELATION_KEY, CallOptions, DEFAULT_TIMEOUT};

/// How many times a server may ask before its final answer.
const MAX_QUESTIONS: usize = 64;
/// The shortest and the longest pause before a retry that a server asked for without questions.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl<H: Service<RoleClient>> ConnectedClient<H> {
    /// Sends a request, lets the handler answer the server's questions, and returns the final result.
    ///
    /// # Errors
    ///
    /// rmcp's own, among them `ServiceError::Timeout`, `ServiceError::McpError`, and
    /// `ServiceError::InputRequiredRoundsExceeded` for a server that asks too often.
    ///
    /// # Cancel safety
    ///
    /// The server still handles the request, and its answer is ignored.
    pub async fn request(
        &self,
        request: impl Into<ClientRequest>,
        options: &CallOptions,
    ) -> Result<ServerResult, ServiceError> {
        let mut request = request.into();
        let timeout = options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let mut deadline = Instant::now() + timeout;
        let (mut questions, mut pause) = (0, SHORTEST_PAUSE);
        loop {
            let asked = match self.send_once(request.clone(), options, timeout, deadline).await? {
                ServerResult::InputRequiredResult(asked) => asked,
                result => return Ok(result),
            };
            let InputRequiredResult { input_requests, request_state, .. } = asked;
            let inputs = input_requests.unwrap_or_default();
            let answers = if inputs.is_empty() {
                if request_state.is_none() {
                    return Err(ServiceError::UnexpectedResponse);
                }
                if Instant::now() + pause >= deadline {
                    return Err(ServiceError::Timeout { timeout });
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                None
            } else {
                questions += 1;
                if questions > MAX_QUESTIONS {
                    return Err(ServiceError::InputRequiredRoundsExceeded { max_rounds: MAX_QUESTIONS });
                }
                let answers = self.answer(inputs).await?;
                deadline = Instant::now() + timeout;
                pause = SHORTEST_PAUSE;
                Some(answers)
            };
            give(&mut request, answers, request_state)?;
        }
    }

    async fn send_once(
        &self,
        request: ClientRequest,
        options: &CallOptions,
        timeout: Duration,
        mut deadline: Instant,
    ) -> Result<ServerResult, ServiceError> {
        let mut sending = PeerRequestOptions::no_options();
        let mut meta = RequestMetaObject::default();
        meta.0.0.extend(options.meta.clone());
        if let Some(correlation) = &options.correlation {
            meta.0.0.insert(CORRELATION_KEY.to_owned(), Value::from(correlation.as_str()));
        }
        sending.meta = Some(meta);
        let handle = self.peer().send_request_with_option(request, sending).await?;
        let id = handle.id.clone();
        let answer = handle.await_response();
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep_until(deadline) => {}
            }
            // In a transport session the server asks while the request is in flight.
            if options.is_answering() {
                deadline = Instant::now() + timeout;
                continue;
            }
            withdraw(self.peer(), id).await;
            return Err(ServiceError::Timeout { timeout });
        }
    }

    /// Answers the questions one by one, because a person may answer them.
    async fn answer(&self, questions: InputRequests) -> Result<InputResponses, ServiceError> {
        let mut answers = InputResponses::new();
        for (key, question) in questions {
            let request = match question {
                InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
                InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
                InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
                _ => return Err(ServiceError::UnexpectedResponse),
            };
            let context = RequestContext::new(RequestId::String(key.as_str().into()), self.peer().clone());
            let answer = self.service().handle_request(request, context).await;
            let answer = match answer.map_err(ServiceError::McpError)? {
                ClientResult::CreateMessageResult(result) => serde_json::to_value(result),
                ClientResult::ElicitResult(result) => serde_json::to_value(result),
                ClientResult::ListRootsResult(result) => serde_json::to_value(result),
                _ => return Err(ServiceError::UnexpectedResponse),
            };
            let unwritable = |error: serde_json::Error| {
                ServiceError::McpError(ErrorData::internal_error(error.to_string(), None))
            };
            answers.insert(key, answer.map_err(unwritable)?);
        }
        Ok(answers)
    }
}

/// Puts the answers and the server's state into the request for the next round.
fn give(
    request: &mut ClientRequest,
    answers: Option<InputResponses>,
    state: Option<String>,
) -> Result<(), ServiceError> {
    let (input_responses, request_state) = match request {
        ClientRequest::CallToolRequest(request) => {
            (&mut request.params.input_responses, &mut request.params.request_state)
        }
        ClientRequest::GetPromptRequest(request) => {
            (&mut request.params.input_responses, &mut request.params.request_state)
        }
        ClientRequest::ReadResourceRequest(request) => {
            (&mut request.params.input_responses, &mut request.params.request_state)
        }
        _ => return Err(ServiceError::UnexpectedResponse),
    };
    *input_responses = answers;
    *request_state = state;
    Ok(())
}

/// Cancels a request at the server. A failure is only logged.
async fn withdraw(peer: &Peer<RoleClient>, id: RequestId) {
    let params = CancelledNotificationParam::new(Some(id), Some("no answer in time".to_owned()));
    if let Err(error) = peer.notify_cancelled(params).await {
        tracing::debug!(%error, "cannot cancel a request at the server");
    }
}
