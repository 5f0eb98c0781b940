//! The fixtures that become tasks. Where their clients cannot deal with one, most of them just take their time.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson, Reason, RpcError};
use tenure_session::call::{CallContext, TaskWish};

use super::tools::failed;
use super::{Named, parse, text};

/// Under which name a client of the modern era sees a question, in its `_meta`.
const INPUT_KEY: &str = "dev.tenure/inputKey";

/// Long enough to be seen at work, and short enough for a suite that waits.
const PAUSE: Duration = Duration::from_millis(500);

const WISH: TaskWish =
    TaskWish { ttl: Some(Duration::from_secs(300)), poll: Some(Duration::from_millis(200)) };

/// The answer of a fixture that becomes a task. `None`: it is not ours.
pub(super) async fn answer(context: &CallContext, call: &Named) -> Option<Result<Value, RpcError>> {
    Some(match call.name.as_str() {
        "greet" => Ok(text(&format!("Hello, {}!", argument(call, "name")))),
        "slow_compute" => slow_compute(context, call).await,
        "failing_job" => failing_job(context).await,
        "protocol_error_job" => protocol_error_job(context).await,
        "confirm_delete" => confirm_delete(context, argument(call, "filename")).await,
        "multi_input" => multi_input(context).await,
        "test_tool_with_task" => asks_first(context).await,
        _ => return None,
    })
}

fn argument<'a>(call: &'a Named, name: &str) -> &'a str {
    call.arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

async fn slow_compute(context: &CallContext, call: &Named) -> Result<Value, RpcError> {
    let seconds = call.arguments.get("seconds").and_then(Value::as_f64).unwrap_or(1.0);
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| RpcError::of(Reason::InvalidParams, "seconds is no time"))?;
    if !time.is_zero() {
        context.become_task(WISH).await?;
        tokio::time::sleep(time).await;
    }
    Ok(text(&format!("{} took {seconds} s", argument(call, "label"))))
}

async fn failing_job(context: &CallContext) -> Result<Value, RpcError> {
    context.requires_task()?;
    context.become_task(WISH).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(failed("This job always fails"))
}

async fn protocol_error_job(context: &CallContext) -> Result<Value, RpcError> {
    context.become_task(WISH).await?;
    tokio::time::sleep(PAUSE).await;
    Err(RpcError::of(Reason::Internal, "This job always ends with an error"))
}

async fn confirm_delete(context: &CallContext, file: &str) -> Result<Value, RpcError> {
    context.become_task(WISH).await?;
    let question = format!("Delete {file}?");
    let answer = elicit(context, "confirm", &question, &json!({ "confirm": { "type": "boolean" } })).await?;
    let is_confirmed = answer["action"] == "accept" && answer["content"]["confirm"] == true;
    Ok(text(&format!("{file} is {}", if is_confirmed { "deleted" } else { "kept" })))
}

async fn multi_input(context: &CallContext) -> Result<Value, RpcError> {
    context.become_task(WISH).await?;
    let name = json!({ "name": { "type": "string" } });
    let (first, second) = tokio::join!(
        elicit(context, "first", "The first name?", &name),
        elicit(context, "second", "The second name?", &name),
    );
    Ok(text(&format!("{} and {}", first?["content"], second?["content"])))
}

async fn asks_first(context: &CallContext) -> Result<Value, RpcError> {
    context.requires_task()?;
    let name = json!({ "name": { "type": "string" } });
    let answer = elicit(context, "user_name", "What is your name?", &name).await?;
    context.become_task(WISH).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(text(&format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or("nobody"))))
}

async fn elicit(
    context: &CallContext,
    key: &str,
    message: &str,
    properties: &Value,
) -> Result<Value, RpcError> {
    let schema = json!({ "type": "object", "properties": properties });
    let params = json!({
        "mode": "form", "message": message, "requestedSchema": schema, "_meta": { INPUT_KEY: key },
    });
    parse(&context.ask(&Method::ElicitationCreate, Some(&RawJson::of(&params))).await?)
}
