//! The lists of the demo server: its tools, its prompt, its completions.

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_protocol::{Reason, RpcError};

/// The tools, in a stable order.
pub(super) fn tools() -> Value {
    let none = || object(&json!({}), &[]);
    let text = |name: &str, about: &str| {
        object(&json!({ name: { "type": "string", "description": about } }), &[name])
    };
    let pair = |first: &str, second: &str| {
        object(&json!({ first: { "type": "string" }, second: { "type": "string" } }), &[first, second])
    };
    let action = json!({ "type": "string", "enum": ["status", "revoke", "new"], "default": "status" });
    let probe = object(&json!({ "action": action }), &[]);
    let label = json!({ "label": { "type": "string", "maxLength": 200, "description": "A name for it" } });
    json!({ "tools": [
        tool("public_echo", "Says back what you say.", &text("text", "What to say back"), true),
        tool("echo", "Says back what you say, to those who have a workspace.", &text("text", "What to say back"), true),
        tool("whoami", "Tells which workspace is yours, and what was said when it was made.", &none(), true),
        tool("session_start", "Makes a fresh workspace, as create_workspace does.", &object(&label, &[]), false),
        tool("session_probe", "Tells how your workspace stands, revokes it, or makes a new one in its place.", &probe, false),
        tool("session_reset", "Empties your workspace.", &none(), false),
        tool("session_counter_inc", "Adds one to the workspace's counter.", &none(), false),
        tool("session_counter_get", "Tells the workspace's counter.", &none(), true),
        tool("link_counter_inc", "Adds one to a counter in the memory of this server, which begins anew when your session wakes.", &none(), false),
        tool("notebook_append", "Adds a note to the workspace's notebook.", &text("text", "The note"), false),
        tool("notebook_read", "Reads the workspace's notebook.", &none(), true),
        tool("notebook_clear", "Empties the workspace's notebook.", &none(), false),
        tool("notebook_status", "Tells how many notes the notebook holds.", &none(), true),
        tool("hashcheck_store", "Keeps the SHA-256 of a text under a name.", &pair("name", "text"), false),
        tool("hashcheck_verify", "Checks a text against the hash kept under a name.", &pair("name", "text"), true),
        tool("hashcheck_list", "Lists the names of kept hashes.", &none(), true),
        tool("hashcheck_delete", "Forgets the hash under a name.", &text("name", "The name"), false),
        tool("client_notes_add", "Adds a note to those that your client may carry for you.", &text("text", "The note"), false),
        tool("client_notes_list", "Lists the notes that your client may carry for you.", &none(), true),
        tool("client_notes_clear", "Removes the notes that your client may carry for you.", &none(), false),
        tool("client_notes_status", "Tells how many notes your client may carry for you.", &none(), true),
        tool(
            "long_task",
            "Works for some seconds and reports progress each second.",
            &object(
                &json!({
                    "seconds": { "type": "integer", "minimum": 1, "maximum": 3600 },
                    "interval_ms": {
                        "type": "integer", "minimum": 1, "maximum": 10000, "default": 1000,
                        "description": "How long each of these seconds lasts",
                    },
                }),
                &["seconds"],
            ),
            true,
        ),
        tool(
            "count_slowly",
            "Counts aloud: a log message per number. Counts anew each time, so it is not safe to repeat.",
            &object(
                &json!({
                    "to": { "type": "integer", "minimum": 1, "maximum": 1000 },
                    "interval_ms": { "type": "integer", "minimum": 1, "maximum": 10000 },
                    "tag": { "type": "string", "description": "Stands in every message, to tell counts apart" },
                }),
                &["to", "interval_ms", "tag"],
            ),
            false,
        ),
        tool("ask_name", "Asks you for your name through an elicitation, and greets you.", &none(), true),
    ] })
}

fn tool(name: &str, description: &str, schema: &Value, read_only: bool) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": { "readOnlyHint": read_only },
    })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The prompts.
pub(super) fn prompts() -> Value {
    json!({ "prompts": [{
        "name": "summarize_notebook",
        "description": "Asks for a summary of the notebook.",
        "arguments": [{ "name": "style", "description": "How to write it", "required": false }],
    }] })
}

#[derive(Deserialize)]
pub(super) struct PromptCall {
    name: String,
    #[serde(default)]
    arguments: serde_json::Map<String, Value>,
}

/// One prompt, filled in.
pub(super) fn prompt(call: &PromptCall) -> Result<Value, RpcError> {
    if call.name != "summarize_notebook" {
        return Err(RpcError::of(Reason::InvalidParams, format!("Unknown prompt: {}", call.name)));
    }
    let style = call.arguments.get("style").and_then(Value::as_str).unwrap_or("short");
    let text = format!("Read the notebook with notebook_read and write a {style} summary of it.");
    Ok(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] }))
}

#[derive(Deserialize)]
pub(super) struct Completion {
    argument: Argument,
}

#[derive(Deserialize)]
struct Argument {
    value: String,
}

/// Completes the prompt's style.
pub(super) fn complete(completion: &Completion) -> Value {
    let styles = ["short", "detailed", "formal", "friendly"];
    let values: Vec<_> =
        styles.into_iter().filter(|style| style.starts_with(&completion.argument.value)).collect();
    json!({ "completion": { "total": values.len(), "values": values, "hasMore": false } })
}
