//! What the layer reads and writes in rmcp's messages.

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, ContentBlock, CustomRequest, GetMeta as _, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde_json::{Value, json};

use crate::{
    cookie::{Cookie, Object},
    dialect::{self, Call, Dialect, Refusal},
};

/// A request of ours, as rmcp sends it.
pub(super) fn request(call: Call, id: RequestId, modern: Option<&Object>) -> ClientJsonRpcMessage {
    // Without params rmcp writes `null`, which JSON-RPC does not allow; an empty object says the same.
    let mut params = Some(call.params.unwrap_or_else(|| json!({})));
    let meta = params.as_mut().and_then(Value::as_object_mut).and_then(|params| params.remove("_meta"));
    let mut request = CustomRequest::new(call.method, params);
    // rmcp writes `_meta` from here, and would write it twice if it were in the params as well.
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

/// Puts the cookie on a request. One that the program put there itself stays, and is returned.
pub(super) fn attach(request: &mut ClientRequest, dialect: Dialect, cookie: Option<&Cookie>) -> Attached {
    if let Some(own) = request.get_meta().0.0.get(dialect.meta_key()) {
        let own = own.as_object().and_then(|fields| Cookie::from_fields(dialect, fields.clone()));
        return Attached::ByProgram(own);
    }
    if let Some(cookie) = cookie {
        request.get_meta_mut().0.0.insert(dialect.meta_key().to_owned(), dialect.to_send(cookie));
    }
    Attached::ByUs
}

pub(super) enum Attached {
    ByUs,
    ByProgram(Option<Cookie>),
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
        // What has `_meta` and nothing that rmcp knows comes as this.
        ServerResult::CustomResult(result) => return result.0.get("_meta")?.as_object(),
        _ => return None,
    };
    meta.as_ref().map(|meta| &meta.0)
}

/// Whether a tool's result says that a session is missing.
pub(super) fn tool_refusal(result: &ServerResult) -> Option<Refusal> {
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

/// Some servers return a number as a text; rmcp lets them, so we do.
pub(super) fn numeric(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::String(text) => text.parse().ok().map(RequestId::Number),
        RequestId::Number(_) => None,
    }
}
