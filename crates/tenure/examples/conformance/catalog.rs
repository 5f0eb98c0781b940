//! The fixed content of the fixtures.

use serde_json::{Value, json};

pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
pub(crate) const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

pub(crate) fn tools() -> Value {
    let plain = [
        ("test_simple_text", "Answers with a text"),
        ("test_image_content", "Answers with an image"),
        ("test_audio_content", "Answers with a sound"),
        ("test_embedded_resource", "Answers with an embedded resource"),
        ("test_multiple_content_types", "Answers with several kinds of content"),
        ("test_error_handling", "Fails on purpose"),
        ("test_tool_with_progress", "Reports progress"),
        ("test_tool_with_logging", "Writes log messages"),
        ("test_elicitation_sep1034_defaults", "Elicits with default values"),
        ("test_elicitation_sep1330_enums", "Elicits with all kinds of enums"),
        ("test_reconnection", "Closes its connection before it answers"),
    ];
    let mut tools: Vec<Value> = plain
        .into_iter()
        .map(|(name, description)| tool(name, description, &json!({ "type": "object", "properties": {} })))
        .collect();
    let text = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    tools.push(tool("test_sampling", "Asks the client's model", &text("prompt")));
    tools.push(tool("test_elicitation", "Asks the client's user", &text("message")));
    tools.push(tool(
        "test_long_task",
        "Reports progress in steps, then answers",
        &json!({ "type": "object", "properties": { "steps": { "type": "integer" }, "interval_ms": { "type": "integer" } } }),
    ));
    tools.push(tool("json_schema_2020_12_tool", "Has a schema with many keywords", &schema_2020_12()));
    json!({ "tools": tools })
}

fn tool(name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": schema })
}

pub(crate) fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

pub(crate) fn resources() -> Value {
    json!({ "resources": [
        { "uri": "test://static-text", "name": "static-text", "description": "A text", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "static-binary", "description": "An image", "mimeType": "image/png" },
        { "uri": "test://watched-resource", "name": "watched-resource", "description": "To subscribe to", "mimeType": "text/plain" },
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
        "test://watched-resource" => text("text/plain", "Watched resource content".into()),
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

/// The content of the tools that only answer.
pub(crate) fn content(tool: &str) -> Option<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image = || json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, mime: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } });
    Some(match tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image()]),
        "test_audio_content" => json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => {
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "json_schema_2020_12_tool" => json!([text("The schema is the point of this tool.")]),
        _ => return None,
    })
}

pub(crate) fn elicitation_schema(tool: &str) -> Value {
    match tool {
        "test_elicitation_sep1034_defaults" => json!({ "type": "object", "properties": {
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        }, "required": [] }),
        "test_elicitation_sep1330_enums" => {
            let titled = json!([
                { "const": "value1", "title": "First" }, { "const": "value2", "title": "Second" },
                { "const": "value3", "title": "Third" },
            ]);
            json!({ "type": "object", "properties": {
                "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
                "titledSingle": { "type": "string", "oneOf": titled },
                "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"] },
                "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
                "titledMulti": { "type": "array", "items": { "anyOf": titled } },
            }, "required": [] })
        }
        _ => json!({ "type": "object", "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        }, "required": ["username", "email"] }),
    }
}
