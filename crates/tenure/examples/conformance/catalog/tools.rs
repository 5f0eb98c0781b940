//! The tools: their list, and what those answer that only answer.

use serde_json::{Value, json};

use super::{PNG, WAV};

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
        ("test_missing_capability", "Needs a client that lets it ask its model"),
        ("test_logging_tool", "Writes a log message, if anybody wants one"),
        ("test_streaming_elicitation", "Asks the user"),
        ("test_trigger_tool_change", "Says that the list of tools changed"),
        ("test_trigger_prompt_change", "Says that the list of prompts changed"),
        ("test_trigger_resource_update", "Says that the watched resource changed"),
        ("test_input_required_result_elicitation", "Asks the user for a name"),
        ("test_input_required_result_sampling", "Asks the model a question"),
        ("test_input_required_result_list_roots", "Asks for the roots"),
        ("test_input_required_result_request_state", "Asks, and gives a state along"),
        ("test_input_required_result_tampered_state", "Asks, and takes no state that is not its own"),
        ("test_input_required_result_multiple_inputs", "Asks several questions at once"),
        ("test_input_required_result_multi_round", "Asks twice"),
        ("test_input_required_result_capabilities", "Asks only what the client can answer"),
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
    tools.push(tool(
        "test_custom_header",
        "Has an argument that stands in a header too",
        &json!({ "type": "object", "properties": { "value": { "type": "string", "x-mcp-header": "Value" } } }),
    ));
    tools.push(tool("greet", "Greets at once", &text("name")));
    tools.push(tool(
        "slow_compute",
        "Computes for a while, as a task if the client can deal with one",
        &json!({ "type": "object", "properties": { "seconds": { "type": "number" }, "label": { "type": "string" } } }),
    ));
    tools.push(tool("confirm_delete", "Asks the user before it deletes, as a task", &text("filename")));
    let nothing = json!({ "type": "object", "properties": {} });
    for (name, description) in [
        ("failing_job", "A task whose tool fails"),
        ("protocol_error_job", "A task that fails with an error"),
        ("multi_input", "A task that asks two questions at once"),
        ("test_tool_with_task", "Asks the user first, and becomes a task then"),
    ] {
        tools.push(tool(name, description, &nothing));
    }
    tools.push(tool("json_schema_2020_12_tool", "Has a schema with many keywords", &schema_2020_12()));
    json!({ "tools": tools })
}

fn tool(name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": schema })
}

fn schema_2020_12() -> Value {
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
        "test_custom_header" => json!([text("The header is the point of this tool.")]),
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
