//! Requests of the modern era, by a client that knows data sessions: each stands alone.

use serde_json::{Value, json};

use super::client::Ask;
use super::session::request;

const VERSION: &str = "2026-07-28";

/// The params with what every request says of its client.
pub(crate) fn with_meta(params: &Value) -> Value {
    let mut params = params.clone();
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
    meta["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "extensions": { "dev.tenure/sessions": {} } });
    params
}

/// A request over HTTP, with the headers that repeat what it says.
pub(crate) fn ask(id: u64, method: &str, params: &Value) -> Ask {
    let body = request(id, method, &with_meta(params)).to_string();
    let ask = Ask::post(body).header("MCP-Protocol-Version", VERSION).header("Mcp-Method", method);
    let ask = match params["name"].as_str() {
        Some(name) => ask.header("Mcp-Name", name),
        None => ask,
    };
    match params["arguments"]["workspace_id"].as_str() {
        Some(handle) => ask.header("Mcp-Param-Workspace-Id", handle),
        None => ask,
    }
}
