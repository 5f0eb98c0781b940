//! Headers that repeat the body, and learning them from lists of tools.

use serde_json::{Value, json};
use tenure_session::backend::Responder;

use super::{ask, client, responder, soon, value};
use crate::raw::{self, Answer, Asked, Raw};

fn tool(name: &str, kind: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object",
        "properties": {"region": {"type": kind, "x-mcp-header": "Region"}}}})
}

fn complete(asked: &Asked) -> Answer {
    raw::result(asked, &json!({"resultType": "complete"}))
}

#[tokio::test]
async fn a_request_is_posted_as_the_client_wrote_it() {
    let mut server = Raw::start(|_, asked| complete(asked)).await;
    let responder = responder(&server.url);
    let params =
        json!({"name": " Zürich", "arguments": {"region": "eu"}, "_meta": {"progressToken": 3, "x/y": [1]}});
    let mut call = client().call(7, "tools/call", params.clone());
    let sent: Value = call.request.params.as_ref().unwrap().read().unwrap();
    let mut caller = call.context.caller().clone();
    caller.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    let client = client();
    call.context = tenure_session::call::CallContext::new(client, &call.request, caller);
    soon(responder.respond(call)).await.unwrap();
    let asked = server.asked().await;
    assert_eq!(asked.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(asked.header("mcp-method"), Some("tools/call"));
    assert_eq!(asked.header("mcp-name"), Some("=?base64?IFrDvHJpY2g=?="));
    assert_eq!(asked.header("mcp-param-region"), None, "the tool was not listed yet");
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(asked.header("traceparent").map(str::len), Some(55));
    assert_eq!(asked.header("mcp-session-id"), None);
    assert_eq!(asked.body["params"], sent);
    assert_eq!(asked.body["id"], 7);
}

#[tokio::test]
async fn tools_that_were_listed_are_called_with_their_headers() {
    let mut server = Raw::start(|_, asked| match asked.body["method"].as_str() {
        Some("tools/list") => raw::result(
            asked,
            &json!({"resultType": "complete", "tools": [tool("good", "string"), tool("bad", "number")]}),
        ),
        _ => complete(asked),
    })
    .await;
    let (responder, client) = (responder(&server.url), client());
    let list = value(ask(&responder, &client, "tools/list", json!({})).await);
    assert_eq!(list["tools"], json!([tool("good", "string")]), "the other makes no sense");
    let params = json!({"name": "good", "arguments": {"region": "us west"}});
    ask(&responder, &client, "tools/call", params).await.unwrap();
    server.asked().await;
    assert_eq!(server.asked().await.header("mcp-param-region"), Some("us west"));
}

#[tokio::test]
async fn a_server_that_misses_a_header_is_asked_once_more_with_it() {
    let mut server =
        Raw::start(|_, asked| match (asked.body["method"].as_str(), asked.header("mcp-param-region")) {
            (Some("tools/list"), _) if asked.body["params"]["cursor"].is_null() => {
                raw::result(asked, &json!({"tools": [tool("other", "string")], "nextCursor": "2"}))
            }
            (Some("tools/list"), _) => raw::result(asked, &json!({"tools": [tool("good", "string")]})),
            (_, Some("eu")) => complete(asked),
            _ => raw::error(
                "400 Bad Request",
                asked,
                &json!({"code": -32020, "message": "Mcp-Param-Region is missing"}),
            ),
        })
        .await;
    let (responder, client) = (responder(&server.url), client());
    let params = json!({"name": "good", "arguments": {"region": "eu"}, "_meta": {"progressToken": 1}});
    ask(&responder, &client, "tools/call", params).await.unwrap();
    let methods = ["tools/call", "tools/list", "tools/list", "tools/call"];
    for (number, method) in methods.into_iter().enumerate() {
        let asked = server.asked().await;
        assert_eq!(asked.body["method"], method, "request {number}");
        assert_eq!(asked.header("mcp-method"), Some(method));
        let meta = &asked.body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        assert_eq!(meta["progressToken"].is_null(), method == "tools/list");
    }
    assert_eq!(server.left(), 0);
}

#[tokio::test]
async fn a_server_that_is_never_content_is_asked_no_more_than_twice() {
    let mut server = Raw::start(|_, asked| match asked.body["method"].as_str() {
        // The server returns the same page for ever.
        Some("tools/list") => raw::result(asked, &json!({"tools": [], "nextCursor": "again"})),
        _ => raw::error("400 Bad Request", asked, &json!({"code": -32020, "message": "no"})),
    })
    .await;
    let (responder, client) = (responder(&server.url), client());
    let refused = ask(&responder, &client, "tools/call", json!({"name": "t"})).await.unwrap_err();
    assert_eq!((refused.code(), &*refused.message()), (-32020, "no"));
    let mut calls = 0;
    let mut lists = 0;
    for _ in 0..4 {
        match server.asked().await.body["method"].as_str() {
            Some("tools/call") => calls += 1,
            _ => lists += 1,
        }
    }
    assert_eq!((calls, lists, server.left()), (2, 2, 0));

    // For other requests a list of tools would not help.
    ask(&responder, &client, "prompts/get", json!({"name": "p"})).await.unwrap_err();
    server.asked().await;
    assert_eq!(server.left(), 0);
}
