//! Reads and changes rmcp's messages for the layer: cookies, `_meta`, ids and refusals.

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, ContentBlock, CustomRequest, GetMeta as _, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde_json::{Value, json};

use crate::{
    cookie::{Object, SessionCookie},
    dialect::{self, Dialect, DialectRequest, SessionRefusal},
};

/// Our own request in rmcp's type.
pub(super) fn request(call: DialectRequest, id: RequestId, modern: Option<&Object>) -> ClientJsonRpcMessage {
    // Without params rmcp writes `null`, which JSON-RPC does not allow; an empty object means the same.
    let mut params = Some(call.params.unwrap_or_else(|| json!({})));
    let meta = params.as_mut().and_then(Value::as_object_mut).and_then(|params| params.remove("_meta"));
    let mut request = CustomRequest::new(call.method, params);
    // rmcp writes `_meta` from here, and would repeat it if it were also in the params.
    if let Some(Value::Object(meta)) = meta {
        request.get_meta_mut().0.0 = meta;
    }
    if let Some(modern) = modern {
        request.get_meta_mut().0.0.extend(modern.clone());
    }
    ClientJsonRpcMessage::request(ClientRequest::CustomRequest(request), id)
}

pub(super) fn cancellation(id: RequestId, reason: &str) -> ClientJsonRpcMessage {
    let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
    ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(CancelledNotification::new(
        params,
    )))
}

/// Adds the cookie to a request. A cookie that the program added itself stays, and is returned.
pub(super) fn attach(
    request: &mut ClientRequest,
    dialect: Dialect,
    cookie: Option<&SessionCookie>,
) -> Attached {
    if let Some(own) = request.get_meta().0.0.get(dialect.key()) {
        let own = own.as_object().and_then(|fields| SessionCookie::from_fields(dialect, fields.clone()));
        return Attached::ByProgram(own);
    }
    if let Some(cookie) = cookie {
        request.get_meta_mut().0.0.insert(dialect.key().to_owned(), cookie.to_send(dialect));
    }
    Attached::ByUs
}

pub(super) enum Attached {
    ByUs,
    ByProgram(Option<SessionCookie>),
}

/// The metadata of a result.
pub(super) fn meta(result: &ServerResult) -> Option<&Object> {
    let meta = match result {
        ServerResult::CallToolResult(result) => &result.meta,
        ServerResult::ReadResourceResult(result) => &result.meta,
        ServerResult::GetPromptResult(result) => &result.meta,
        ServerResult::ListToolsResult(result) => &result.meta,
        ServerResult::ListResourcesResult(result) => &result.meta,
        ServerResult::ListResourceTemplatesResult(result) => &result.meta,
        ServerResult::ListPromptsResult(result) => &result.meta,
        ServerResult::CompleteResult(result) => &result.meta,
        ServerResult::InputRequiredResult(result) => &result.meta,
        ServerResult::CreateTaskResult(result) => &result.meta,
        ServerResult::GetTaskResult(result) => &result.meta,
        ServerResult::TaskAckResult(result) => &result.meta,
        // A result with `_meta` and no member that rmcp knows has this type.
        ServerResult::CustomResult(result) => return result.0.get("_meta")?.as_object(),
        _ => return None,
    };
    meta.as_ref().map(|meta| &meta.0)
}

/// The refusal in a tool's result, if its text reports a session error.
pub(super) fn tool_refusal(result: &ServerResult) -> Option<SessionRefusal> {
    let ServerResult::CallToolResult(result) = result else { return None };
    if result.is_error != Some(true) {
        return None;
    }
    result.content.iter().find_map(|block| match block {
        ContentBlock::Text(text) => dialect::of_tool_text(&text.text),
        _ => None,
    })
}

/// The same answer under another id.
pub(super) fn renamed(mut answer: ServerJsonRpcMessage, id: RequestId) -> ServerJsonRpcMessage {
    match &mut answer {
        JsonRpcMessage::Response(response) => response.id = id,
        JsonRpcMessage::Error(error) => error.id = Some(id),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
    }
    answer
}

/// Some servers return a numeric id as a string; rmcp accepts that, so we do too.
pub(super) fn numeric(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::String(text) => text.parse().ok().map(RequestId::Number),
        RequestId::Number(_) => None,
    }
}
