//! The tools that do more than answer with fixed content.

#![expect(deprecated, reason = "logging belongs to the revisions that sessions speak")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
};
use serde_json::{Map, Value, json};
use tenure_session::call::CallContext;

use super::news::{self, Change, Newsroom};
use super::{Context, failed, is_modern, rounds, text};
use crate::catalog;

const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn call(
    name: &str,
    arguments: &Map<String, Value>,
    context: &Context,
    newsroom: Option<&Newsroom>,
) -> Result<Value, ErrorData> {
    if let Some(content) = catalog::content(name) {
        return Ok(json!({ "content": content }));
    }
    if let Some(question) = catalog::question(name, arguments) {
        let (_, answer) = rounds::ask(context, &question).await?;
        return Ok(text(&catalog::answered(name, &answer)));
    }
    let number = |name: &str, default: u64| arguments.get(name).and_then(Value::as_u64).unwrap_or(default);
    match name {
        "test_error_handling" => Ok(tool_error("This tool intentionally returns an error for testing")),
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
                log(context, line).await?;
                tokio::time::sleep(PAUSE).await;
            }
            Ok(text("Tool with logging executed successfully"))
        }
        "test_logging_tool" => {
            log(context, "Tool execution logged").await?;
            Ok(text("Logged, if anybody wants to hear of it"))
        }
        "test_missing_capability" => match context.client_capabilities().unwrap_or_default().sampling {
            Some(_) => Ok(text("The client lets its model be asked")),
            None => {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                Err(ErrorData::missing_required_client_capability(needed))
            }
        },
        "test_trigger_tool_change" => {
            news::publish(context, newsroom, Change::Tools).await?;
            Ok(text("The list of tools is said to have changed"))
        }
        "test_trigger_prompt_change" => {
            news::publish(context, newsroom, Change::Prompts).await?;
            Ok(text("The list of prompts is said to have changed"))
        }
        "test_trigger_resource_update" => {
            news::publish(context, newsroom, Change::Watched).await?;
            Ok(text("The watched resource is said to have changed"))
        }
        "test_reconnection" => {
            // Our own context of the request comes along with rmcp's.
            let ours = context.extensions.get::<Arc<CallContext>>();
            ours.ok_or_else(|| ErrorData::internal_error("not on our stack", None))?.close_connection();
            tokio::time::sleep(PAUSE * 2).await;
            Ok(text("Reconnection test completed successfully"))
        }
        _ => Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
    }
}

/// A result that says that the tool failed.
pub(super) fn tool_error(why: &str) -> Value {
    let mut result = text(why);
    result["isError"] = true.into();
    result
}

/// Sessions are told everything; a request of the modern era says whether it wants to hear.
async fn log(context: &Context, line: &str) -> Result<(), ErrorData> {
    if is_modern(context) && context.meta.log_level().is_none() {
        return Ok(());
    }
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, line.into());
    context.peer.notify_logging_message(message).await.map_err(failed)
}

async fn report(context: &Context, step: f64, total: f64) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else { return Ok(()) };
    let progress = ProgressNotificationParam::new(token, step).with_total(total);
    context.peer.notify_progress(progress).await.map_err(failed)
}
