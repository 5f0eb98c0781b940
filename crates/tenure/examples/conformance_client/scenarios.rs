//! What the scenarios of the suite want a client to do.

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::client::Client;

/// Does what a scenario wants.
pub(crate) async fn play(client: &Client, scenario: &str, context: &Value) -> anyhow::Result<()> {
    match scenario {
        "initialize" | "json-schema-ref-no-deref" => drop(client.tools().await?),
        "tools_call" => {
            client.tools().await?;
            client.call("add_numbers", &json!({ "a": 5, "b": 3 })).await?;
        }
        "elicitation-sep1034-client-defaults" => {
            client.call("test_client_elicitation_defaults", &json!({})).await?;
        }
        "sse-retry" => {
            client.tools().await?;
            client.call("test_reconnection", &json!({})).await?;
        }
        // Any requests will do: the suite refuses the first, and looks at all.
        "request-metadata" => {
            client.tools().await?;
            client.call("any", &json!({})).await?;
        }
        "sep-2322-client-request-state" => {
            client.tools().await?;
            for tool in ["echo_state", "unrelated", "no_state", "no_result_type"] {
                client.call(&format!("test_mrtr_{tool}"), &json!({})).await?;
            }
        }
        "http-standard-headers" => everything(client).await?,
        "http-custom-headers" => {
            client.tools().await?;
            let calls = context["toolCalls"].as_array().context("the suite names no calls")?;
            for call in calls {
                client.call(call["name"].as_str().unwrap_or_default(), &call["arguments"]).await?;
            }
        }
        // The gateway gets a token by itself; any requests will do.
        "auth/client-credentials-basic" | "auth/client-credentials-jwt" => {
            client.tools().await?;
            client.call("test-tool", &json!({})).await?;
        }
        // All that the gateway lists: it must have left out what makes no sense.
        "http-invalid-tool-headers" => {
            for tool in client.tools().await? {
                let arguments = example(&tool["inputSchema"]);
                client.call(tool["name"].as_str().unwrap_or_default(), &arguments).await?;
            }
        }
        "json-schema-2020-12-preservation" => {
            let tools = client.tools().await?;
            let focal = tools.iter().find(|tool| tool["name"] == "json_schema_2020_12_tool");
            let schema = &focal.context("the tool is not listed")?["inputSchema"];
            client.call("json_schema_echo", &json!({ "schema": schema })).await?;
        }
        other => bail!("there is no scenario {other}"),
    }
    Ok(())
}

/// Lists everything, and uses the first of each.
async fn everything(client: &Client) -> anyhow::Result<()> {
    let first = |list: &Value, member: &str| list[0][member].clone();
    let tools = Value::from(client.tools().await?);
    let tool = first(&tools, "name");
    client.call(tool.as_str().unwrap_or_default(), &example(&tools[0]["inputSchema"])).await?;
    let resources = client.request("resources/list", json!({})).await?;
    client.request("resources/read", json!({ "uri": first(&resources["resources"], "uri") })).await?;
    let prompts = client.request("prompts/list", json!({})).await?;
    client.request("prompts/get", json!({ "name": first(&prompts["prompts"], "name") })).await?;
    Ok(())
}

/// Some value for everything that a schema has, defaults first.
pub(crate) fn example(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let some = |schema: &Value| match schema["type"].as_str() {
        _ if !schema["default"].is_null() => schema["default"].clone(),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => example(schema),
        _ => json!("something"),
    };
    properties.map(|(name, schema)| (name.clone(), some(schema))).collect::<serde_json::Map<_, _>>().into()
}
