//! The demo server's resources: a fixed text, the workspace's notebook, and a number that all sessions share.

use serde_json::{Value, json};
use tenure_protocol::RpcError;
use tenure_session::call::CallContext;

use super::kept;

/// The notebook of the workspace that a request names by its cookie.
pub(super) const NOTEBOOK: &str = "demo://notebook";
/// How many sessions there have been; the same for all clients.
pub(super) const VISITORS: &str = "demo://visitors";
const ABOUT: &str = "demo://about";

pub(super) fn list() -> Value {
    json!({ "resources": [
        { "uri": ABOUT, "name": "about", "description": "What this server is.", "mimeType": "text/plain" },
        { "uri": NOTEBOOK, "name": "notebook", "description": "The notebook of your data session; changes with every note.", "mimeType": "text/plain" },
        { "uri": VISITORS, "name": "visitors", "description": "How many sessions there have been; changes with each.", "mimeType": "text/plain" },
    ] })
}

pub(super) fn templates() -> Value {
    json!({ "resourceTemplates": [
        { "uriTemplate": "demo://notebook/{number}", "name": "note", "description": "One note, by its number from 1.", "mimeType": "text/plain" },
    ] })
}

pub(super) fn read(context: &CallContext, visitors: u64, uri: &str) -> Result<Value, RpcError> {
    let text = match uri {
        ABOUT => "The Tenure demo server: what you store here lies in your workspace.".to_owned(),
        NOTEBOOK => kept::notes(context)?.join("\n"),
        VISITORS => visitors.to_string(),
        other => {
            let number =
                other.strip_prefix("demo://notebook/").and_then(|number| number.parse::<usize>().ok());
            let index = number.and_then(|number| number.checked_sub(1)).ok_or_else(|| not_found(uri))?;
            kept::notes(context)?.into_iter().nth(index).ok_or_else(|| not_found(uri))?
        }
    };
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": text }] }))
}

/// Accepts subscriptions to all known resources. The one that never changes just gets no notifications.
pub(super) fn check(uri: &str) -> Result<(), RpcError> {
    match uri {
        ABOUT | NOTEBOOK | VISITORS => Ok(()),
        _ => Err(not_found(uri)),
    }
}

fn not_found(uri: &str) -> RpcError {
    RpcError::with_data(-32002, "Resource not found", &json!({ "uri": uri }))
}
