//! A node over a server without sessions whose every answer a test gives, and requests as clients send them.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure::Node;
use tenure_protocol::{Method, Reason, RpcError};
use tenure_session::backend::{Backend, Open, Opened, Responder};
use tenure_session::port::BoxFuture;
use tenure_testkit::fake_responder::{Exchanged, FakeRequest, FakeResponder};

use crate::support::client::Ask;
use crate::support::node::config;
use crate::support::wait::until;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// A node with a scripted server.
pub(crate) struct Steered {
    pub(crate) node: Node,
    pub(crate) server: Exchanged,
}

/// A backend that has no sessions.
pub(crate) struct Standing(pub(crate) Arc<FakeResponder>);

impl Backend for Standing {
    fn open(&self, _: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let refusal = RpcError::of(Reason::BackendUnavailable, "there are no sessions here");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::clone(&self.0) as _)
    }
}

impl Steered {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let (responder, server) = FakeResponder::new();
        let node =
            Node::with_backend(&config(settings), Arc::new(Standing(responder))).await.expect("a node");
        Self { node, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// Waits until nothing is going on.
    pub(crate) async fn idle(&self) {
        let tallies = || self.node.exchanges().tallies();
        until("nothing is going on", || (tallies().running, tallies().parked) == (0, 0)).await;
    }
}

/// A request with all that it needs, as a JSON value.
pub(crate) fn message(method: &str, mut params: Value) -> Value {
    params["_meta"][VERSION] = json!(MODERN);
    params["_meta"][CAPABILITIES] = json!({ "elicitation": {} });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// The request over HTTP, with the headers that repeat what it says.
pub(crate) fn post(message: &Value) -> Ask {
    let ask = Ask::post(message.to_string())
        .header("MCP-Protocol-Version", MODERN)
        .header("Mcp-Method", message["method"].as_str().expect("a method"));
    let params = &message["params"];
    match ["name", "uri", "taskId"].iter().find_map(|name| params[name].as_str()) {
        Some(name) => ask.header("Mcp-Name", name),
        None => ask,
    }
}

/// A call of a tool.
pub(crate) fn call() -> Value {
    message("tools/call", json!({ "name": "t", "arguments": {}, "_meta": { LEVEL: "debug" } }))
}

/// A listen for changes of the list of tools.
pub(crate) fn listen() -> Value {
    message("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }))
}

/// Says something on a call's stream.
pub(crate) async fn say(call: &FakeRequest, text: &str) {
    call.say(&Method::LogMessage, &json!({ "level": "info", "data": text })).await;
}
