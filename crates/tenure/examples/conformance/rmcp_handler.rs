//! The fixtures as an rmcp `ServerHandler`, to show that any such handler runs on our stack.

#![expect(deprecated, reason = "logging and sampling belong to the revisions that sessions speak")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ErrorCode, GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenure_session::runtime::CallContext;

use crate::catalog;

const PAUSE: Duration = Duration::from_millis(50);

/// Every fixture; nothing is kept between calls.
pub(crate) struct Fixtures;

type Context = RequestContext<RoleServer>;

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_logging()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        typed(catalog::tools())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let result: CallToolResult = typed(tool(&request.name, &arguments, &context).await?)?;
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        typed(catalog::resources())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        typed(catalog::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let missing =
            || ErrorData::new(ErrorCode(-32002), "Resource not found", Some(json!({ "uri": request.uri })));
        let result: ReadResourceResult = typed(catalog::read(&request.uri).ok_or_else(missing)?)?;
        Ok(result.into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        typed(catalog::prompts())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = serde_json::to_value(request.arguments.unwrap_or_default()).unwrap_or_default();
        let prompt = catalog::prompt(&request.name, arguments.as_object().unwrap_or(&Map::new()));
        let result: GetPromptResult =
            typed(prompt.ok_or_else(|| ErrorData::invalid_params("Unknown prompt", None))?)?;
        Ok(result.into())
    }

    async fn complete(&self, _: CompleteRequestParams, _: Context) -> Result<CompleteResult, ErrorData> {
        typed(json!({ "completion": { "values": [], "total": 0, "hasMore": false } }))
    }
}

async fn tool(name: &str, arguments: &Map<String, Value>, context: &Context) -> Result<Value, ErrorData> {
    if let Some(content) = catalog::content(name) {
        return Ok(json!({ "content": content }));
    }
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str, default: u64| arguments.get(name).and_then(Value::as_u64).unwrap_or(default);
    match name {
        "test_error_handling" => {
            let mut result = text("This tool intentionally returns an error for testing");
            result["isError"] = true.into();
            Ok(result)
        }
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
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, line.into());
                context.peer.notify_logging_message(message).await.map_err(failed)?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(text("Tool with logging executed successfully"))
        }
        "test_reconnection" => {
            // Our own context of the request comes along with rmcp's.
            let ours = context.extensions.get::<Arc<CallContext>>();
            ours.ok_or_else(|| ErrorData::internal_error("not on our stack", None))?.close_connection();
            tokio::time::sleep(PAUSE * 2).await;
            Ok(text("Reconnection test completed successfully"))
        }
        "test_sampling" => {
            let message =
                json!({ "role": "user", "content": { "type": "text", "text": argument("prompt") } });
            let params = typed(json!({ "messages": [message], "maxTokens": 100 }))?;
            let answer = context.peer.create_message(params).await.map_err(failed)?;
            let answer = serde_json::to_value(&answer).unwrap_or_default();
            Ok(text(&format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default())))
        }
        "test_elicitation" => {
            let answer = elicit(context, argument("message"), name).await?;
            Ok(text(&format!("User response: {answer}")))
        }
        "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
            let answer = elicit(context, "Please fill in the form", name).await?;
            let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
            Ok(text(&format!("Elicitation completed: action={action}, content={content}")))
        }
        _ => Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
    }
}

async fn report(context: &Context, step: f64, total: f64) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else { return Ok(()) };
    let progress = ProgressNotificationParam::new(token, step).with_total(total);
    context.peer.notify_progress(progress).await.map_err(failed)
}

async fn elicit(context: &Context, message: &str, tool: &str) -> Result<Value, ErrorData> {
    let schema = catalog::elicitation_schema(tool);
    let params = typed(json!({ "mode": "form", "message": message, "requestedSchema": schema }))?;
    let answer = context.peer.create_elicitation(params).await.map_err(failed)?;
    serde_json::to_value(&answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn failed(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
