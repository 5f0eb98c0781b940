//! A10.04: what handlers learn of their caller.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tenure::Node;
use tenure_backend::native::{Handler, Introduction, Made, Native};
use tenure_backend::rmcp::RmcpBackend;
use tenure_protocol::{RawJson, Reply};
use tenure_session::backend::{Backend, Call};
use tenure_session::call::CallContext;

use crate::auth::world::{Bearing, World, config};
use crate::support::session::Session;

/// All that a context says of its caller.
fn told(context: &CallContext) -> Value {
    let caller = context.caller();
    json!({
        "transport": caller.transport,
        "principal": caller.principal.name(),
        "app": caller.principal.client(),
        "client": context.client_name(),
        "scopes": caller.scopes.scopes().map(|scopes| scopes.to_vec()),
        "address": caller.remote.map(|remote| remote.ip().to_string()),
        "session": context.session_label().starts_with("s-"),
        "method": context.method().as_str(),
        "id": serde_json::from_slice::<Value>(context.request_id().raw()).ok(),
        "correlation": context.correlation(),
        "traceparent": caller.traceparent,
        "tracestate": caller.tracestate,
        "started": context.started().0 > 0,
        "timeout": !context.timeout().is_zero(),
    })
}

struct Rmcp;

impl ServerHandler for Rmcp {
    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ours = context.extensions.get::<Arc<CallContext>>().expect("the context of the call");
        Ok(CallToolResult::success(vec![ContentBlock::text(told(ours).to_string())]).into())
    }
}

struct Plain;

impl Handler for Plain {
    fn introduction(&self) -> Introduction {
        Introduction { name: "plain", version: "1", capabilities: json!({ "tools": {} }), instructions: None }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        let text = told(&call.context).to_string();
        Ok(RawJson::of(&json!({ "content": [{ "type": "text", "text": text }] })))
    }
}

#[tokio::test]
async fn a10_04_handlers_of_both_kinds_learn_who_calls_from_where_and_in_which_trace() {
    let backends: [Arc<dyn Backend>; 2] =
        [Arc::new(RmcpBackend::new(|| Rmcp)), Arc::new(Native::new(|_: &Made<'_>| Plain))];
    for backend in backends {
        let world = World::start().await;
        let folder = tempfile::tempdir().unwrap();
        let settings = [("http.trusted_proxies", "127.0.0.1")];
        let config = config(&world.issuer.url, &folder, "", &settings);
        let node = Node::with_backend(&config, backend).await.expect("a node");
        let token = world.token_with("alice", &json!({ "scope": "b a" }));
        let session = {
            let response =
                crate::support::session::initialize("2025-11-25").bearer(&token).send(node.address()).await;
            let session = Session::of(node.address(), "/mcp", &response);
            let ready = crate::support::session::notification("notifications/initialized");
            session.post(&ready).bearer(&token).send(node.address()).await;
            session
        };
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let call = session
            .request(7, "tools/call", &json!({ "name": "any", "arguments": {} }))
            .bearer(&token)
            .header("X-Forwarded-For", "203.0.113.7")
            .header("X-Request-Id", "f3c1-77")
            .header("Traceparent", parent)
            .header("Tracestate", "vendor=1");
        let answer = call.send(node.address()).await.json();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let told: Value = serde_json::from_str(text).unwrap();
        let expected = json!({
            "transport": "http", "principal": "corp:alice", "app": "app", "client": "it", "scopes": ["a", "b"],
            "address": "203.0.113.7", "session": true, "method": "tools/call", "id": 7, "correlation": "f3c1-77",
            "traceparent": parent, "tracestate": "vendor=1", "started": true, "timeout": true,
        });
        assert_eq!(told, expected);
        node.stop().await;
    }
}
