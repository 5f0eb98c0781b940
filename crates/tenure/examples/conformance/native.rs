//! The fixtures as a native handler.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_backend::native::{Handler, Introduction};
use tenure_session::port::backend::{Call, Reply};
use tenure_session::runtime::CallContext;
use tenure_session::{Method, RawJson, Reason, RpcError};

use crate::catalog;

const PAUSE: Duration = Duration::from_millis(50);

/// Every fixture; nothing is kept between calls.
pub(crate) struct Fixtures;

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Deserialize)]
struct Uri {
    uri: String,
}

impl Handler for Fixtures {
    fn introduction(&self) -> Introduction {
        Introduction {
            name: "tenure-conformance",
            version: env!("CARGO_PKG_VERSION"),
            capabilities: json!({
                "tools": { "listChanged": true },
                "prompts": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "logging": {},
                "completions": {},
            }),
            instructions: None,
        }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        answer(&call).await.map(|result| RawJson::of(&result))
    }
}

async fn answer(call: &Call) -> Result<Value, RpcError> {
    let params = &call.request.params;
    match &call.request.method {
        Method::ToolsList => Ok(catalog::tools()),
        Method::ToolsCall => tool(&call.context, read(params.as_ref())?).await,
        Method::ResourcesList => Ok(catalog::resources()),
        Method::ResourcesTemplatesList => Ok(catalog::templates()),
        Method::ResourcesRead => {
            let uri = read::<Uri>(params.as_ref())?.uri;
            catalog::read(&uri)
                .ok_or_else(|| RpcError::with_data(-32002, "Resource not found", &json!({ "uri": uri })))
        }
        Method::ResourcesSubscribe | Method::ResourcesUnsubscribe | Method::LoggingSetLevel => Ok(json!({})),
        Method::PromptsList => Ok(catalog::prompts()),
        Method::PromptsGet => {
            let named: Named = read(params.as_ref())?;
            catalog::prompt(&named.name, &named.arguments)
                .ok_or_else(|| RpcError::of(Reason::InvalidParams, "Unknown prompt"))
        }
        Method::CompletionComplete => {
            Ok(json!({ "completion": { "values": [], "total": 0, "hasMore": false } }))
        }
        method => Err(RpcError::of(Reason::MethodNotFound, format!("Method not found: {method}"))),
    }
}

async fn tool(context: &CallContext, call: Named) -> Result<Value, RpcError> {
    let name = call.name.as_str();
    if let Some(content) = catalog::content(name) {
        return Ok(json!({ "content": content }));
    }
    let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let number =
        |name: &str, default: u64| call.arguments.get(name).and_then(Value::as_u64).unwrap_or(default);
    match name {
        "test_error_handling" => Ok(json!({
            "content": [{ "type": "text", "text": "This tool intentionally returns an error for testing" }],
            "isError": true,
        })),
        "test_tool_with_progress" => {
            for step in [0.0, 50.0, 100.0] {
                report(context, step, 100.0).await?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(text("Progress reported"))
        }
        "test_long_task" => {
            let (steps, interval) = (number("steps", 5), Duration::from_millis(number("interval_ms", 100)));
            for step in 1..=steps {
                report(context, step as f64, steps as f64).await?;
                tokio::time::sleep(interval).await;
            }
            Ok(text(&format!("done after {steps} steps")))
        }
        "test_tool_with_logging" => {
            for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                let params = RawJson::of(&json!({ "level": "info", "logger": "fixtures", "data": line }));
                context.notify(&Method::LogMessage, Some(&params)).await.map_err(|error| error.to_rpc())?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(text("Tool with logging executed successfully"))
        }
        "test_reconnection" => {
            context.close_connection();
            tokio::time::sleep(PAUSE * 2).await;
            Ok(text("Reconnection test completed successfully"))
        }
        "test_sampling" => sample(context, argument("prompt")).await,
        "test_elicitation" => {
            let answer = elicit(context, argument("message"), name).await?;
            Ok(text(&format!("User response: {answer}")))
        }
        "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
            let answer = elicit(context, "Please fill in the form", name).await?;
            let (action, content) = (&answer["action"], &answer["content"]);
            let action = action.as_str().unwrap_or_default();
            Ok(text(&format!("Elicitation completed: action={action}, content={content}")))
        }
        _ => Err(RpcError::of(Reason::InvalidParams, format!("Unknown tool: {name}"))),
    }
}

async fn report(context: &CallContext, step: f64, total: f64) -> Result<(), RpcError> {
    context.progress(step, Some(total), Some("working")).await.map_err(|error| error.to_rpc())
}

async fn sample(context: &CallContext, prompt: &str) -> Result<Value, RpcError> {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let params = RawJson::of(&json!({ "messages": [message], "maxTokens": 100 }));
    let answer = context.ask(&Method::SamplingCreateMessage, Some(&params)).await?;
    let answer: Value = parse(&answer)?;
    Ok(text(&format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default())))
}

async fn elicit(context: &CallContext, message: &str, tool: &str) -> Result<Value, RpcError> {
    let schema = catalog::elicitation_schema(tool);
    let params = RawJson::of(&json!({ "message": message, "requestedSchema": schema }));
    parse(&context.ask(&Method::ElicitationCreate, Some(&params)).await?)
}

fn parse(answer: &RawJson) -> Result<Value, RpcError> {
    answer.read().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))
}

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawJson>) -> Result<T, RpcError> {
    let params = params.ok_or_else(|| RpcError::of(Reason::InvalidParams, "params are missing"))?;
    params.read().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
