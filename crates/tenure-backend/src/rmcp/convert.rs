//! Converts between raw JSON-RPC and rmcp's types.

use std::sync::Arc;

use ::rmcp::ErrorData;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ClientResult, ErrorCode,
    GetExtensions, GetMeta, JsonRpcMessage, NumberOrString, RequestId, RequestMetaObject,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RpcError, message};
use tenure_session::call::CallContext;

/// Reads a request into rmcp's type, with its `_meta` apart, as rmcp hands them to a handler.
pub(super) fn typed_request(request: &Request) -> Result<(ClientRequest, RequestMetaObject), RpcError> {
    let invalid = |error: String| RpcError::of(Reason::InvalidParams, error);
    // By far the most frequent method is read straight into its type; the rest goes through rmcp's
    // union, which tries one type after the other.
    if request.method == Method::ToolsCall {
        let params = request.params.as_ref().ok_or_else(|| invalid("params are missing".into()))?;
        let mut params: CallToolRequestParams = params.read().map_err(|error| invalid(error.to_string()))?;
        let meta = params.meta.take().unwrap_or_default();
        return Ok((ClientRequest::CallToolRequest(CallToolRequest::new(params)), meta));
    }
    let whole = message::write_notification(&request.method, request.params.as_ref());
    let mut typed: ClientRequest =
        serde_json::from_slice(&whole).map_err(|error| invalid(error.to_string()))?;
    if matches!(typed, ClientRequest::CustomRequest(_)) && !may_be_custom(&request.method) {
        return Err(invalid(format!("the params do not fit {}", request.method)));
    }
    let meta = std::mem::take(typed.get_meta_mut());
    Ok((typed, meta))
}

/// The same for a request without a session. There, a known method with params that rmcp cannot parse is an error,
/// since only unknown methods can be a handler's own.
pub(super) fn typed_exchange(request: &Request) -> Result<(ClientRequest, RequestMetaObject), RpcError> {
    let typed = typed_request(request)?;
    if matches!(typed.0, ClientRequest::CustomRequest(_)) && !matches!(request.method, Method::Other(_)) {
        let message = format!("the params do not fit {}", request.method);
        return Err(RpcError::of(Reason::InvalidParams, message));
    }
    Ok(typed)
}

/// Whether a handler may define this method itself, because sessions do not have it. Then the handler judges params
/// that rmcp has no type for.
fn may_be_custom(method: &Method) -> bool {
    matches!(
        method,
        Method::Other(_)
            | Method::Discover
            | Method::Listen
            | Method::TasksGet
            | Method::TasksUpdate
            | Method::TasksCancel
            | Method::TasksResult
            | Method::TasksList
    )
}

/// Puts `_meta` and our context where rmcp's loop looks for them.
pub(super) fn put_back(request: &mut ClientRequest, meta: RequestMetaObject, context: Arc<CallContext>) {
    *request.get_meta_mut() = meta;
    request.extensions_mut().insert(context);
}

/// Reads a notification into rmcp's type.
pub(super) fn typed_notification<T: DeserializeOwned>(notification: &Notification) -> Option<T> {
    let whole = message::write_notification(&notification.method, notification.params.as_ref());
    serde_json::from_slice(&whole).ok()
}

/// The method and params of a handler's message, ready to be passed on.
pub(super) fn spoken<T: Serialize>(message: &T) -> Option<(Method, Option<RawJson>)> {
    #[derive(Deserialize)]
    struct MethodAndParams<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let whole = serde_json::to_vec(message).ok()?;
    let parts: MethodAndParams<'_> = serde_json::from_slice(&whole).ok()?;
    let params = parts.params.map(|params| RawJson::trusted(params.get().as_bytes().to_vec()));
    Some((Method::new(&parts.method), params))
}

/// The client's answer to a handler's question, for rmcp's loop.
pub(super) fn answered(id: RequestId, answer: Reply) -> ClientJsonRpcMessage {
    let result = answer.and_then(|result| {
        result.read::<ClientResult>().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))
    });
    match result {
        Ok(result) => JsonRpcMessage::response(result, id),
        Err(error) => JsonRpcMessage::error(error_data(&error), Some(id)),
    }
}

/// The client's request id as rmcp knows it; one that rmcp cannot hold goes by its text.
pub(super) fn request_id(id: &tenure_protocol::RequestId) -> RequestId {
    serde_json::from_slice(id.raw())
        .unwrap_or_else(|_| NumberOrString::String(String::from_utf8_lossy(id.raw()).into()))
}

/// rmcp's error as the object that goes on the wire.
pub(super) fn mcp_error(error: &ErrorData) -> RpcError {
    RpcError::from_raw(RawJson::of(error))
}

/// An error object from the wire as rmcp's error.
pub(super) fn error_data(error: &RpcError) -> ErrorData {
    error.raw().read().unwrap_or_else(|_| ErrorData::new(ErrorCode::INTERNAL_ERROR, "unreadable error", None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_are_judged_only_for_methods_of_sessions() {
        let typed = |method: &str| {
            let id = tenure_protocol::RequestId::from_number(1);
            let params = Some(RawJson::trusted(r#"{"x":1}"#));
            typed_request(&Request { id, method: Method::new(method), params })
        };
        for method in ["prompts/get", "resources/read", "completion/complete"] {
            assert_eq!(typed(method).unwrap_err().code(), -32602, "{method}");
        }
        // A handler may have these methods or not, and decides that itself.
        for method in ["tasks/list", "tasks/result", "tasks/get", "tasks/update", "tasks/cancel", "x/y"] {
            assert!(matches!(typed(method), Ok((ClientRequest::CustomRequest(_), _))), "{method}");
        }
    }
}
