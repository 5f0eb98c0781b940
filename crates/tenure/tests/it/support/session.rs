//! A session as its client holds it: the server's address, the id, and requests that carry it.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::client::{Ask, Response};
use super::events::Events;

/// The client's end of a session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) server: SocketAddr,
    pub(crate) id: String,
    /// The endpoint.
    pub(crate) path: String,
}

impl Session {
    /// Starts a session of the newest revision.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        Self::of_revision(server, "2025-11-25").await
    }

    /// Starts a session of this revision.
    pub(crate) async fn of_revision(server: SocketAddr, revision: &str) -> Self {
        Self::begin(server, revision).await.initialized().await
    }

    /// Says that the client is ready.
    pub(crate) async fn initialized(self) -> Self {
        let said = self.post(&notification("notifications/initialized")).send(self.server).await;
        assert_eq!(said.status(), 202, "{said:?}");
        self
    }

    /// Sends `initialize` and nothing more.
    pub(crate) async fn begin(server: SocketAddr, revision: &str) -> Self {
        let response = initialize(revision).send(server).await;
        Self::of(server, "/mcp", &response)
    }

    /// The session that this response began.
    pub(crate) fn of(server: SocketAddr, path: &str, response: &Response) -> Self {
        let id = response.header("mcp-session-id");
        let id = id.unwrap_or_else(|| panic!("no session: {response:?}")).to_owned();
        Self { server, id, path: path.to_owned() }
    }

    /// The same session at another address.
    pub(crate) fn moved_to(&self, server: SocketAddr) -> Self {
        Self { server, ..self.clone() }
    }

    /// A message in this session.
    pub(crate) fn post(&self, message: &Value) -> Ask {
        self.post_raw(message.to_string())
    }

    pub(crate) fn post_raw(&self, body: impl AsRef<[u8]>) -> Ask {
        Ask::post(body).at(&self.path).header("Mcp-Session-Id", &self.id)
    }

    /// A request in this session.
    pub(crate) fn request(&self, id: u64, method: &str, params: &Value) -> Ask {
        self.post(&request(id, method, params))
    }

    /// Calls a tool and reads the whole response.
    pub(crate) async fn tool(&self, id: u64, name: &str, arguments: &Value) -> Response {
        let params = json!({ "name": name, "arguments": arguments });
        self.request(id, "tools/call", &params).send(self.server).await
    }

    /// Makes a workspace in the demo, and returns its handle.
    pub(crate) async fn workspace(&self) -> String {
        let made = self.tool(900, "create_workspace", &json!({})).await.json();
        let handle = made["result"]["structuredContent"]["workspace_id"].as_str();
        handle.unwrap_or_else(|| panic!("no workspace: {made}")).to_owned()
    }

    pub(crate) fn get(&self) -> Ask {
        Ask::get().at(&self.path).header("Mcp-Session-Id", &self.id)
    }

    /// Opens the standalone stream.
    pub(crate) async fn listen(&self) -> Events {
        self.get().open(self.server).await
    }

    /// Resumes a stream after an event.
    pub(crate) async fn resume(&self, after: &str) -> Events {
        self.get().header("Last-Event-ID", after).open(self.server).await
    }

    pub(crate) fn delete(&self) -> Ask {
        Ask::new("DELETE", &self.path).header("Mcp-Session-Id", &self.id)
    }
}

/// An `initialize` by a client that can do everything.
pub(crate) fn initialize(revision: &str) -> Ask {
    Ask::post(request(0, "initialize", &initialize_params(revision)).to_string())
}

pub(crate) fn initialize_params(revision: &str) -> Value {
    json!({
        "protocolVersion": revision,
        "capabilities": { "sampling": {}, "elicitation": {}, "roots": {} },
        "clientInfo": { "name": "it", "version": "1" },
    })
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn notification(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method })
}
