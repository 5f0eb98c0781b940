//! One call of a handler with a request of a session.
//!
//! rmcp itself refuses an `input_required` result for a client with a session. We let it pass: the backend asks the
//! client the questions in it and calls the handler again with the answers.

use ::rmcp::model::{CallToolResponse, ClientCapabilities, ClientRequest, ServerResult};
use ::rmcp::service::{RequestContext, RoleServer, Service};
use ::rmcp::{ErrorData, ServerHandler};

/// Calls the handler. Removes the result type, which only clients of the modern era know, as rmcp does.
pub(super) async fn attempt<H: ServerHandler>(
    handler: &H,
    request: ClientRequest,
    context: RequestContext<RoleServer>,
) -> Result<ServerResult, ErrorData> {
    // A request of a session should not name a version. If it does, rmcp's own rules decide.
    if context.meta.protocol_version().is_some() {
        return handler.handle_request(request, context).await;
    }
    let mut result: ServerResult = match request {
        ClientRequest::CallToolRequest(request) => {
            let knows_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
            match handler.call_tool(request.params, context).await? {
                CallToolResponse::Task(_) if !knows_tasks => {
                    let needed = ClientCapabilities::builder().enable_tasks().build();
                    return Err(ErrorData::missing_required_client_capability(needed));
                }
                answer => answer.into(),
            }
        }
        ClientRequest::GetPromptRequest(request) => handler.get_prompt(request.params, context).await?.into(),
        ClientRequest::ReadResourceRequest(request) => {
            handler.read_resource(request.params, context).await?.into()
        }
        request => return handler.handle_request(request, context).await,
    };
    result.strip_result_type_for_legacy_peer();
    Ok(result)
}
