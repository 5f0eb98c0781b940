//! Both in-process backends against the backend port's contract, with the same tools behind each.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ProgressNotificationParam, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tenure_backend::native::{Handler, Introduction, Native};
use tenure_backend::rmcp::RmcpBackend;
use tenure_session::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_session::port::backend::{Backend, Call, Reply};
use tenure_session::port::responder::Responder;
use tenure_session::{Method, RawJson, Reason, RpcError};
use tenure_store::memory::Memory;
use tenure_testkit::backend_contract;
use tenure_testkit::fake_client::FakeClient;

struct NativeTools;

impl Handler for NativeTools {
    fn introduction(&self) -> Introduction {
        Introduction { name: "tools", version: "1", capabilities: json!({ "tools": {} }), instructions: None }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        if call.request.method != Method::ToolsCall {
            return Err(RpcError::of(Reason::MethodNotFound, "no such method"));
        }
        let params: Value = call.request.params.as_ref().expect("params").read().expect("JSON");
        let text = match params["name"].as_str().expect("a name") {
            "echo" => params["arguments"]["text"].as_str().expect("a text").to_owned(),
            "hang" => {
                call.context.cancelled().await;
                "stopped".to_owned()
            }
            "panic" => panic!("a panic for testing"),
            "progress" => {
                for step in [1.0, 2.0, 3.0] {
                    call.context.progress(step, None, None).await.map_err(|error| error.to_rpc())?;
                }
                "done".to_owned()
            }
            "ask" => {
                let answer: Value = call.context.ask(&Method::RootsList, None).await?.read().expect("JSON");
                format!("{} roots", answer["roots"].as_array().expect("a list").len())
            }
            _ => return Err(RpcError::of(Reason::InvalidParams, "no such tool")),
        };
        Ok(RawJson::of(&json!({ "content": [{ "type": "text", "text": text }] })))
    }
}

struct RmcpTools;

impl ServerHandler for RmcpTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    #[expect(deprecated, reason = "roots belong to the revisions that sessions speak")]
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, ErrorData> {
        let text = match &*request.name {
            "echo" => request.arguments.expect("arguments")["text"].as_str().expect("a text").to_owned(),
            "hang" => {
                context.ct.cancelled().await;
                "stopped".to_owned()
            }
            "panic" => panic!("a panic for testing"),
            "progress" => {
                let token = context.meta.get_progress_token().expect("a token");
                for step in [1.0, 2.0, 3.0] {
                    let progress = ProgressNotificationParam::new(token.clone(), step);
                    context.peer.notify_progress(progress).await.expect("sent");
                }
                "done".to_owned()
            }
            "ask" => {
                let roots = context.peer.list_roots().await.expect("an answer").roots;
                format!("{} roots", roots.len())
            }
            _ => return Err(ErrorData::invalid_params("no such tool", None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

#[tokio::test]
async fn native_handlers_keep_the_contract() {
    backend_contract::all(|| Arc::new(Native::new(|_| NativeTools)), || Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn rmcp_handlers_keep_the_contract() {
    backend_contract::all(|| Arc::new(RmcpBackend::new(|| RmcpTools)), || Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn exchanges_are_answered_by_either_through_a_bridge() {
    let backends: [Arc<dyn Backend>; 2] =
        [Arc::new(Native::new(|_| NativeTools)), Arc::new(RmcpBackend::new(|| RmcpTools))];
    for backend in backends {
        let bridge = ExchangesOnSessions::new(backend, PoolLimits::default());
        let client = FakeClient::new(json!({ "roots": {} }));
        client.answer(|_, _| Ok(RawJson::of(&json!({ "roots": [{ "uri": "file:///" }] }))));
        let call = |name: &str| {
            let params =
                json!({ "name": name, "arguments": { "text": "hello" }, "_meta": { "progressToken": "p" } });
            bridge.respond(client.call(1, "tools/call", params))
        };
        for (name, expected) in [("echo", "hello"), ("ask", "1 roots"), ("progress", "done")] {
            let result: Value = call(name).await.expect("a result").read().expect("JSON");
            assert_eq!(result["content"][0]["text"], expected);
        }
        let told: Vec<_> = client.heard().into_iter().map(|(_, params)| params).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.iter().all(|params| params["progressToken"] == "p"), "{told:?}");
        assert_eq!(bridge.sessions(), 1);
        // Given up in the middle.
        let hangs = tokio::time::timeout(std::time::Duration::from_millis(50), call("hang")).await;
        assert!(hangs.is_err());
        assert_eq!(bridge.sessions(), 0);
        assert_eq!(call("nonsense").await.expect_err("there is no such tool").code(), -32602);
        let discovered = bridge.respond(client.call(2, "server/discover", json!({}))).await;
        let discovered: Value = discovered.expect("a result").read().expect("JSON");
        assert_eq!(discovered["capabilities"], json!({ "tools": {} }));
        bridge.close().await;
        assert_eq!(bridge.sessions(), 0);
    }
}
