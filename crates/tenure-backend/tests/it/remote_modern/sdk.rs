//! Tests with the server of an SDK that knows the modern era.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, SubscriptionFilter,
    Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tenure_protocol::Method;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::Verdict;
use tenure_session::backend::Responder;
use tenure_session::backend::probe::Probe;
use tokio::sync::Notify;

use super::{ask, client, responder, soon, value};

/// Channels between a test and the server's handlers.
#[derive(Default, Clone)]
struct Signals {
    cancelled: Arc<Notify>,
    changed: Arc<Notify>,
    closed: Arc<Notify>,
}

struct Tools(Signals);

fn region() -> Tool {
    let schema =
        json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    Tool::new("region", "says where", schema.as_object().unwrap().clone())
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![region()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == "region").then(region)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            "hang" => {
                let token = context.meta.get_progress_token().expect("a token");
                context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.expect("sent");
                context.ct.cancelled().await;
                self.0.cancelled.notify_one();
            }
            "progress" => {
                let token = context.meta.get_progress_token().expect("a token");
                for step in [1.0, 2.0, 3.0] {
                    let progress = ProgressNotificationParam::new(token.clone(), step);
                    context.peer.notify_progress(progress).await.expect("sent");
                }
            }
            "region" => {}
            _ => return Err(ErrorData::invalid_params("no such tool", None)),
        }
        Ok(CallToolResult::success(vec![ContentBlock::text(request.name.to_string())]).into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.0.changed.notified().await;
        context.sink().notify_tool_list_changed().await.expect("sent");
        tokio::select! {
            () = self.0.closed.notified() => {}
            () = context.cancelled() => self.0.cancelled.notify_one(),
        }
        Ok(())
    }
}

/// Starts the server; returns its address and the channels of its handlers.
async fn serve() -> (String, Signals) {
    let signals = Signals::default();
    let made = signals.clone();
    let service = StreamableHttpService::new(
        move || Ok(Tools(made.clone())),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default().with_sse_keep_alive(Some(Duration::from_millis(100))),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = axum::Router::new().route_service("/mcp", service);
    #[expect(clippy::disallowed_methods, reason = "ends with the test")]
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, signals)
}

#[tokio::test]
async fn it_is_found_to_be_modern_and_answers() {
    let (url, _signals) = serve().await;
    let (responder, client) = (responder(&url), client());
    let attempt = soon(responder.probe(client.call(1, "server/discover", json!({})))).await;
    assert_eq!(attempt.verdict(MODERN), Verdict::Yes);
    let list = value(ask(&responder, &client, "tools/list", json!({})).await);
    assert_eq!(list["tools"][0]["name"], "region");
    let missing = ask(&responder, &client, "tools/call", json!({"name": "none"})).await.unwrap_err();
    assert_eq!(missing.code(), -32602);
    let unknown = ask(&responder, &client, "no/such", json!({})).await.unwrap_err();
    assert_eq!(unknown.code(), -32601, "{unknown:?}");
}

#[tokio::test]
async fn it_gets_the_header_that_it_wants_although_no_client_listed_its_tools() {
    let (url, _signals) = serve().await;
    let params = json!({"name": "region", "arguments": {"region": "Zürich"}});
    let reply = value(ask(&responder(&url), &client(), "tools/call", params).await);
    assert_eq!(reply["content"][0]["text"], "region");
}

#[tokio::test]
async fn its_progress_comes_in_order_under_the_clients_token() {
    let (url, _signals) = serve().await;
    let client = client();
    let params = json!({"name": "progress", "_meta": {"progressToken": "mine"}});
    ask(&responder(&url), &client, "tools/call", params).await.unwrap();
    let heard: Vec<_> = client.heard().into_iter().map(|(_, params)| params).collect();
    let steps: Vec<_> = heard.iter().map(|params| params["progress"].as_f64().unwrap()).collect();
    assert_eq!(steps, [1.0, 2.0, 3.0]);
    assert!(heard.iter().all(|params| params["progressToken"] == "mine"));
}

#[tokio::test]
async fn it_hears_that_a_request_was_dropped() {
    let (url, signals) = serve().await;
    let (responder, client) = (responder(&url), client());
    let params = json!({"name": "hang", "_meta": {"progressToken": 1}});
    let mut call = responder.respond(client.call(7, "tools/call", params));
    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        _ = client.hear() => {}
    }
    drop(call);
    soon(signals.cancelled.notified()).await;
}

#[tokio::test]
async fn a_listen_is_acknowledged_hears_news_and_ends() {
    let (url, signals) = serve().await;
    let (responder, client) = (responder(&url), client());
    let listen =
        || client.call(7, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut call = responder.respond(listen());
    let hear = |expected: Method| {
        let client = &client;
        async move {
            let (method, params) = client.hear().await;
            assert_eq!(method, expected);
            assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
        }
    };
    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        () = hear(Method::Acknowledged) => {}
    }
    signals.changed.notify_one();
    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        () = hear(Method::ToolsListChanged) => {}
    }
    signals.closed.notify_one();
    assert_eq!(value(soon(call).await)["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);

    // The same for a request that is dropped.
    let mut call = responder.respond(listen());
    signals.changed.notify_one();
    for method in [Method::Acknowledged, Method::ToolsListChanged] {
        tokio::select! {
            reply = &mut call => panic!("{reply:?}"),
            () = hear(method) => {}
        }
    }
    drop(call);
    soon(signals.cancelled.notified()).await;
}
