//! The tools that do more than answer with fixed content.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::modern::capability::{self, Capability};
use tenure_protocol::{Method, RawJson, Reason, RpcError};
use tenure_session::call::{CallContext, Fanout, News};

use super::rounds::capabilities;
use super::{Named, parse, text};
use crate::catalog;

const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn call(context: &CallContext, fanout: &Fanout, call: &Named) -> Result<Value, RpcError> {
    let name = call.name.as_str();
    if let Some(content) = catalog::content(name) {
        return Ok(json!({ "content": content }));
    }
    if let Some(question) = catalog::question(name, &call.arguments) {
        let params = RawJson::of(&question.params);
        let answer = context.ask(&Method::new(question.kind.method()), Some(&params)).await?;
        return Ok(text(&catalog::answered(name, &parse(&answer)?)));
    }
    let number =
        |name: &str, default: u64| call.arguments.get(name).and_then(Value::as_u64).unwrap_or(default);
    match name {
        "test_error_handling" => Ok(failed("This tool intentionally returns an error for testing")),
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
        "test_reconnection" => {
            context.close_connection();
            tokio::time::sleep(PAUSE * 2).await;
            Ok(text("Reconnection test completed successfully"))
        }
        "test_missing_capability" => match capabilities(context).has(&Capability::Sampling) {
            true => Ok(text("The client lets its model be asked")),
            false => Err(capability::missing(&[Capability::Sampling]).to_rpc()),
        },
        "test_trigger_tool_change" => {
            fanout.list_changed(News::Tools);
            Ok(text("The list of tools is said to have changed"))
        }
        "test_trigger_prompt_change" => {
            fanout.list_changed(News::Prompts);
            Ok(text("The list of prompts is said to have changed"))
        }
        "test_trigger_resource_update" => {
            fanout.resource_updated(catalog::WATCHED);
            Ok(text("The watched resource is said to have changed"))
        }
        _ => Err(RpcError::of(Reason::InvalidParams, format!("Unknown tool: {name}"))),
    }
}

/// A result that says that the tool failed.
pub(super) fn failed(why: &str) -> Value {
    let mut result = text(why);
    result["isError"] = true.into();
    result
}

async fn report(context: &CallContext, step: f64, total: f64) -> Result<(), RpcError> {
    context.progress(step, Some(total), Some("working")).await.map_err(|error| error.to_rpc())
}

async fn log(context: &CallContext, line: &str) -> Result<(), RpcError> {
    let params = RawJson::of(&json!({ "level": "info", "logger": "fixtures", "data": line }));
    context.notify(&Method::LogMessage, Some(&params)).await.map_err(|error| error.to_rpc())
}
