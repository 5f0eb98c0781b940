//! The headers of a request without a session. They repeat parts of the body for proxies that route by headers.

use http::{HeaderMap, HeaderName, HeaderValue};
use tenure_protocol::modern::{HeaderParams, header_value, validate};
use tenure_protocol::{Reason, Request, RpcError, params};

use crate::remote::http_client::VERSION;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The headers of a request in this version. `tool` says which arguments are repeated as well.
///
/// # Errors
/// When a value cannot be a header.
pub(super) fn write(
    request: &Request,
    version: &str,
    tool: Option<&HeaderParams>,
    traceparent: Option<&str>,
) -> Result<HeaderMap, RpcError> {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(VERSION, value("The version", version)?);
    headers.insert(METHOD, value("The method", request.method.as_str())?);
    if let Some(name) = validate::named_by(&request.method).and_then(|member| text(request, member)) {
        headers.insert(NAME, value("The name", &header_value::encode(&name))?);
    }
    let repeated = tool.map(|tool| tool.headers_for(request.params.as_ref())).unwrap_or_default();
    for (name, argument) in repeated {
        // The name was checked when the tool was listed, and the value is encoded for headers.
        if let (Ok(name), Ok(argument)) = (HeaderName::try_from(name), HeaderValue::try_from(argument)) {
            headers.insert(name, argument);
        }
    }
    if let Some(traceparent) = traceparent.and_then(|parent| HeaderValue::from_str(parent).ok()) {
        headers.insert(TRACEPARENT, traceparent);
    }
    Ok(headers)
}

fn value(what: &str, text: &str) -> Result<HeaderValue, RpcError> {
    HeaderValue::from_str(text)
        .map_err(|_| RpcError::of(Reason::InvalidRequest, format!("{what} cannot be sent in a header")))
}

/// A string member of the params.
pub(super) fn text(request: &Request, member: &str) -> Option<String> {
    params::text_member(request.params.as_ref(), member)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_protocol::{Method, RawJson, RequestId};

    use super::*;

    fn written(method: &str, params: &serde_json::Value, tool: Option<serde_json::Value>) -> Vec<String> {
        let request = Request {
            id: RequestId::from_number(1),
            method: Method::new(method),
            params: Some(RawJson::of(params)),
        };
        let tool = tool.map(|tool| HeaderParams::of_schema(&tool.to_string()).unwrap());
        let headers = write(&request, "2026-07-28", tool.as_ref(), None).unwrap();
        let text =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        headers.iter().map(text).skip(1).collect()
    }

    #[test]
    fn headers_repeat_the_body() {
        let table = [
            ("tools/list", json!({}), None, vec!["mcp-method: tools/list"]),
            ("tools/call", json!({"name": "t"}), None, vec!["mcp-method: tools/call", "mcp-name: t"]),
            (
                "prompts/get",
                json!({"name": "é"}),
                None,
                vec!["mcp-method: prompts/get", "mcp-name: =?base64?w6k=?="],
            ),
            (
                "resources/read",
                json!({"uri": "a:b"}),
                None,
                vec!["mcp-method: resources/read", "mcp-name: a:b"],
            ),
            ("tasks/get", json!({"taskId": "7"}), None, vec!["mcp-method: tasks/get", "mcp-name: 7"]),
            // The server will refuse the params, since the name is not a string.
            ("tools/call", json!({"name": 7}), None, vec!["mcp-method: tools/call"]),
            (
                "tools/call",
                json!({"name": "t", "arguments": {"region": "ü", "many": 3, "none": null}}),
                Some(json!({"type": "object", "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "many": {"type": "integer", "x-mcp-header": "Many"},
                    "none": {"type": "boolean", "x-mcp-header": "None"}}})),
                vec![
                    "mcp-method: tools/call",
                    "mcp-name: t",
                    "mcp-param-many: 3",
                    "mcp-param-region: =?base64?w7w=?=",
                ],
            ),
        ];
        for (method, params, tool, mut expected) in table {
            let mut found = written(method, &params, tool);
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_not_sent() {
        let request = Request { id: RequestId::from_number(1), method: Method::new("a\nb"), params: None };
        let refused = write(&request, "2026-07-28", None, None).unwrap_err();
        assert!(refused.is(Reason::InvalidRequest), "{refused}");
    }
}
