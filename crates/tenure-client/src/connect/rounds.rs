//! A request with all that the server asks before it answers.
//!
//! A server of the modern era answers with questions instead of asking them, or asks to come back later, and the
//! request is sent again with the answers and what the server wants back. The time limit holds for each wait for the
//! server; the time that a user takes to answer does not count, in either era.

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

use super::Client;
use crate::call::{CORRELATION_KEY, CallOptions, DEFAULT_TIMEOUT};

/// How many times a server may ask before it answers.
const MAX_QUESTIONS: usize = 64;
/// The shortest and the longest pause before a server that only asked to come back is asked again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl<H: Service<RoleClient>> Client<H> {
    /// Sends a request, lets the handler answer what the server asks meanwhile, and returns the result.
    ///
    /// # Errors
    ///
    /// rmcp's own, among them `ServiceError::Timeout`, `ServiceError::McpError`, and
    /// `ServiceError::InputRequiredRoundsExceeded` for a server that never stops asking.
    ///
    /// # Cancel safety
    ///
    /// The request stays with the server, and its answer is ignored.
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
            // In a transport session a server asks while the request runs.
            if options.is_answering() {
                deadline = Instant::now() + timeout;
                continue;
            }
            withdraw(self.peer(), id).await;
            return Err(ServiceError::Timeout { timeout });
        }
    }

    /// Answers one after the other, as a person does.
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

/// Puts the answers, and what the server wants back, into the request for its next round.
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

/// Tells the server that an answer is not wanted any more. Whether it hears it makes no difference here.
async fn withdraw(peer: &Peer<RoleClient>, id: RequestId) {
    let params = CancelledNotificationParam::new(Some(id), Some("no answer in time".to_owned()));
    if let Err(error) = peer.notify_cancelled(params).await {
        tracing::debug!(%error, "the server could not be told that a request is not wanted any more");
    }
}
