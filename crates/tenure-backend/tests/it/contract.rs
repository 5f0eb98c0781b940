//! Both in-process backends against the contracts of the backend port and of the responder port, with the same tools
//! behind each.

use std::sync::{Arc, LazyLock};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ContentBlock, ProgressNotificationParam,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tenure_backend::native::{Handler, Introduction, Native};
use tenure_backend::rmcp::RmcpBackend;
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_protocol::modern::capability::{Capabilities, Capability};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Responder};
use tenure_session::call::{Fanout, News};
use tenure_store::memory::Memory;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::{backend_contract, responder_contract};
use tokio::sync::Semaphore;

/// The capabilities of both servers.
static CAPABILITIES: LazyLock<Value> = LazyLock::new(|| json!({ "tools": { "listChanged": true } }));

/// How many calls of `linger` were withdrawn.
#[derive(Clone)]
struct Withdrawn(Arc<Semaphore>);

impl Withdrawn {
    fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    async fn one(&self) {
        self.0.acquire().await.expect("never closed").forget();
    }
}

/// One call of `linger`.
struct Lingering(Withdrawn);

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.0.add_permits(1);
    }
}

struct NativeTools(Fanout, Withdrawn);

impl Handler for NativeTools {
    fn introduction(&self) -> Introduction {
        Introduction { name: "tools", version: "1", capabilities: CAPABILITIES.clone(), instructions: None }
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
            "linger" => {
                let _lingering = Lingering(self.1.clone());
                call.context.progress(1.0, None, None).await.map_err(|error| error.to_rpc())?;
                call.context.cancelled().await;
                "stopped".to_owned()
            }
            "after_linger" => {
                self.1.one().await;
                "one was withdrawn".to_owned()
            }
            "change" => {
                self.0.list_changed(News::Tools);
                "changed".to_owned()
            }
            "sampler" => {
                let client = Capabilities::parse(call.context.capabilities());
                client
                    .expect("an object")
                    .require(&[Capability::Sampling])
                    .map_err(|error| error.to_rpc())?;
                "sampled".to_owned()
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

struct RmcpTools(Withdrawn);

impl ServerHandler for RmcpTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
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
            "linger" => {
                let _lingering = Lingering(self.0.clone());
                let token = context.meta.get_progress_token().expect("a token");
                context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.expect("sent");
                context.ct.cancelled().await;
                "stopped".to_owned()
            }
            "after_linger" => {
                self.0.one().await;
                "one was withdrawn".to_owned()
            }
            "change" => {
                context.peer.notify_tool_list_changed().await.expect("sent");
                "changed".to_owned()
            }
            "sampler" => {
                if context.client_capabilities().is_none_or(|client| client.sampling.is_none()) {
                    let needed = ClientCapabilities::builder().enable_sampling().build();
                    return Err(ErrorData::missing_required_client_capability(needed));
                }
                "sampled".to_owned()
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

fn native() -> Arc<dyn Backend> {
    let withdrawn = Withdrawn::new();
    Arc::new(Native::new(move |made| NativeTools(made.fanout().clone(), withdrawn.clone())))
}

fn rmcp() -> Arc<dyn Backend> {
    let withdrawn = Withdrawn::new();
    Arc::new(RmcpBackend::new(move || RmcpTools(withdrawn.clone())))
}

#[tokio::test]
async fn native_handlers_keep_the_contract() {
    backend_contract::all(native, || Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn rmcp_handlers_keep_the_contract() {
    backend_contract::all(rmcp, || Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn native_handlers_keep_the_contract_without_sessions() {
    responder_contract::all(|| native().responder().expect("they know both eras")).await;
}

#[tokio::test]
async fn rmcp_handlers_keep_the_contract_without_sessions() {
    responder_contract::all(|| rmcp().responder().expect("they know both eras")).await;
}

#[tokio::test]
async fn exchanges_are_answered_by_either_through_a_bridge() {
    for backend in [native(), rmcp()] {
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
        // Drop the call while it runs.
        let hangs = tokio::time::timeout(std::time::Duration::from_millis(50), call("hang")).await;
        assert!(hangs.is_err());
        assert_eq!(bridge.sessions(), 0);
        assert_eq!(call("nonsense").await.expect_err("there is no such tool").code(), -32602);
        let discovered = bridge.respond(client.call(2, "server/discover", json!({}))).await;
        let discovered: Value = discovered.expect("a result").read().expect("JSON");
        assert_eq!(discovered["capabilities"], *CAPABILITIES);
        bridge.close().await;
        assert_eq!(bridge.sessions(), 0);
    }
}
