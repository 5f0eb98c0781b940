//! The fixtures that become tasks. Where their clients cannot deal with one, most of them just take their time.

use std::time::Duration;

use rmcp::ErrorData;
use serde_json::{Map, Value, json};
use tenure_backend::rmcp::ToolTask;
use tenure_session::call::TaskWish;

use super::rounds::ask;
use super::tools::tool_error;
use super::{Context, text};
use crate::catalog::{Kind, Question};

/// Long enough to be seen at work, and short enough for a suite that waits.
const PAUSE: Duration = Duration::from_millis(500);

const WISH: TaskWish =
    TaskWish { ttl: Some(Duration::from_secs(300)), poll: Some(Duration::from_millis(200)) };

/// The answer of a fixture that becomes a task. `None`: it is not ours.
pub(super) async fn answer(
    context: &Context,
    name: &str,
    arguments: &Map<String, Value>,
) -> Option<Result<Value, ErrorData>> {
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let task = ToolTask::of(context);
    Some(match name {
        "greet" => Ok(text(&format!("Hello, {}!", argument("name")))),
        "slow_compute" => {
            let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or(1.0);
            slow_compute(&task, seconds, argument("label")).await
        }
        "failing_job" => failing_job(&task).await,
        "protocol_error_job" => protocol_error_job(&task).await,
        "confirm_delete" => confirm_delete(&task, context, argument("filename")).await,
        "multi_input" => multi_input(&task, context).await,
        "test_tool_with_task" => asks_first(&task, context).await,
        _ => return None,
    })
}

async fn slow_compute(task: &ToolTask, seconds: f64, label: &str) -> Result<Value, ErrorData> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| ErrorData::invalid_params("seconds is no time", None))?;
    if !time.is_zero() {
        task.begin(WISH).await?;
        tokio::time::sleep(time).await;
    }
    Ok(text(&format!("{label} took {seconds} s")))
}

async fn failing_job(task: &ToolTask) -> Result<Value, ErrorData> {
    task.require()?;
    task.begin(WISH).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(tool_error("This job always fails"))
}

async fn protocol_error_job(task: &ToolTask) -> Result<Value, ErrorData> {
    task.begin(WISH).await?;
    tokio::time::sleep(PAUSE).await;
    Err(ErrorData::internal_error("This job always ends with an error", None))
}

async fn confirm_delete(task: &ToolTask, context: &Context, file: &str) -> Result<Value, ErrorData> {
    task.begin(WISH).await?;
    let question = form("confirm", &format!("Delete {file}?"), &json!({ "confirm": { "type": "boolean" } }));
    let (_, answer) = ask(context, &question).await?;
    let is_confirmed = answer["action"] == "accept" && answer["content"]["confirm"] == true;
    Ok(text(&format!("{file} is {}", if is_confirmed { "deleted" } else { "kept" })))
}

async fn multi_input(task: &ToolTask, context: &Context) -> Result<Value, ErrorData> {
    task.begin(WISH).await?;
    let name = json!({ "name": { "type": "string" } });
    let (first, second) =
        (form("first", "The first name?", &name), form("second", "The second name?", &name));
    let (first, second) = tokio::try_join!(ask(context, &first), ask(context, &second))?;
    Ok(text(&format!("{} and {}", first.1["content"], second.1["content"])))
}

async fn asks_first(task: &ToolTask, context: &Context) -> Result<Value, ErrorData> {
    task.require()?;
    let question = form("user_name", "What is your name?", &json!({ "name": { "type": "string" } }));
    let (_, answer) = ask(context, &question).await?;
    task.begin(WISH).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(text(&format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or("nobody"))))
}

fn form(key: &'static str, message: &str, properties: &Value) -> Question {
    let schema = json!({ "type": "object", "properties": properties });
    Question {
        key,
        kind: Kind::Elicitation,
        params: json!({ "mode": "form", "message": message, "requestedSchema": schema }),
    }
}
