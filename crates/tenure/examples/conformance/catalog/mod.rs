//! The fixed content of the fixtures.

mod rounds;
mod tools;

use serde_json::{Value, json};

pub(crate) use rounds::{Kind, Question, Round, Step, answered, done, question, rounds, step};
pub(crate) use tools::{content, elicitation_schema, tools};

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// The resource to watch.
pub(crate) const WATCHED: &str = "test://watched-resource";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

pub(crate) fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "logging": {},
        "completions": {},
    })
}

pub(crate) fn resources() -> Value {
    json!({ "resources": [
        { "uri": "test://static-text", "name": "static-text", "description": "A text", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "static-binary", "description": "An image", "mimeType": "image/png" },
        { "uri": WATCHED, "name": "watched-resource", "description": "To subscribe to", "mimeType": "text/plain" },
    ] })
}

pub(crate) fn templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data by id", "mimeType": "application/json",
    }] })
}

pub(crate) fn read(uri: &str) -> Option<Value> {
    let text = |mime: &str, text: String| json!({ "uri": uri, "mimeType": mime, "text": text });
    let content = match uri {
        "test://static-text" => text("text/plain", "This is the content of the static text resource.".into()),
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        WATCHED => text("text/plain", "Watched resource content".into()),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            text("application/json", data.to_string())
        }
    };
    Some(json!({ "contents": [content] }))
}

pub(crate) fn prompts() -> Value {
    let argument = |name: &str| json!({ "name": name, "description": "An argument", "required": true });
    json!({ "prompts": [
        { "name": "test_simple_prompt", "description": "A simple prompt" },
        { "name": "test_prompt_with_arguments", "description": "With arguments", "arguments": [argument("arg1"), argument("arg2")] },
        { "name": "test_prompt_with_embedded_resource", "description": "With a resource", "arguments": [argument("resourceUri")] },
        { "name": "test_prompt_with_image", "description": "With an image" },
        { "name": "test_input_required_result_prompt", "description": "Asks the user first" },
    ] })
}

pub(crate) fn prompt(name: &str, arguments: &serde_json::Map<String, Value>) -> Option<Value> {
    let user = |content: Value| json!({ "role": "user", "content": content });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let messages = match name {
        "test_simple_prompt" => vec![user(text("This is a simple prompt for testing."))],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            vec![user(text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'")))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri"), "mimeType": "text/plain", "text": "Embedded resource content for testing.",
            });
            vec![
                user(json!({ "type": "resource", "resource": resource })),
                user(text("Please process the embedded resource above.")),
            ]
        }
        "test_prompt_with_image" => vec![
            user(json!({ "type": "image", "data": PNG, "mimeType": "image/png" })),
            user(text("Please analyze the image above.")),
        ],
        _ => return None,
    };
    Some(json!({ "messages": messages }))
}
