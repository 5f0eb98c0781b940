//! Reads and writes tasks of both kinds: those of 2025-11-25, where they are part of the protocol, and those of the
//! modern extension.
//!
//! The differences:
//!
//! | | 2025-11-25 | extension |
//! |---|---|---|
//! | request | `task` in the params, if the tool allows it | the request declares the extension, the server decides |
//! | created | `{task: {..., ttl, pollInterval}}` | flat, `resultType: "task"`, `ttlMs`, `pollIntervalMs` |
//! | outcome | `tasks/result`, with the task's id in `_meta` | within `tasks/get`, without |
//! | a tool's own error | `failed` | `completed` |
//! | input | requests of the server, with the task's id in `_meta` | within `tasks/get`, answered by `tasks/update` |
//!
//! A bridge never passes a server's task on: for a modern client the gateway creates its own task, and a client in a
//! session gets only the outcome. So no function here converts one kind into the other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::keys::RELATED_TASK;
use crate::message::Reply;
use crate::translate::codes::fault_of_server;
use crate::translate::questions::{self, Question};

/// The longest `ttl` that servers are asked for: the timers of many servers are 32-bit, and with a longer time they
/// would forget the task at once.
const MAX_TTL: Duration = Duration::from_millis(0x7fff_ffff);

/// The name of the extension in capabilities.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Whether a tool of a session's server can be called as a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// Never as a task.
    Forbidden,
    /// Either way.
    Optional,
    /// Only as a task.
    Required,
}

/// Whether a session's server can run calls as tasks, according to its answer to `initialize`.
pub fn served(initialized: &RawJson) -> bool {
    let mut at = Object::read(object::text(initialized)).and_then(|it| it.get("capabilities"));
    for name in ["tasks", "requests", "tools", "call"] {
        at = at.and_then(Object::read).and_then(|it| it.get(name));
    }
    at.is_some_and(object::is_object)
}

/// The tools in one page of a session's `tools/list`, and the cursor of the next page.
pub fn listed(page: &RawJson) -> (Vec<(String, Support)>, Option<String>) {
    let page = Object::read(object::text(page));
    let tools = page.as_ref().and_then(|page| object::elements(page.get("tools")?));
    let read = |tool: &str| {
        let tool = Object::read(tool)?;
        let support = tool.get("execution").and_then(Object::read).and_then(|it| it.get("taskSupport"));
        let support = support.and_then(|support| serde_json::from_str(support).ok());
        let name = object::unquoted(tool.get("name")?)?.into_owned();
        // Absent means forbidden.
        Some((name, support.unwrap_or(Support::Forbidden)))
    };
    let next = page.as_ref().and_then(|page| object::unquoted(page.get("nextCursor")?));
    (tools.unwrap_or_default().into_iter().filter_map(read).collect(), next.map(Into::into))
}

/// The params of a call that a session's server shall run as a task, and keep for `ttl`.
///
/// # Errors
/// When the params are not an object.
pub fn augmented(params: &RawJson, ttl: Duration) -> Result<RawJson, RpcError> {
    let mut object = Object::read(object::text(params))
        .ok_or_else(|| RpcError::of(Reason::InvalidParams, "The params are not an object"))?;
    object.set("task", format!(r#"{{"ttl":{}}}"#, ttl.min(MAX_TTL).as_millis()));
    Ok(object::kept(params, object.write()))
}

/// The status of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The server works on it.
    Working,
    /// It waits for answers.
    InputRequired,
    /// It has a result.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// Whether the status is final.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The status as JSON text.
    pub fn as_json(self) -> &'static str {
        match self {
            Self::Working => r#""working""#,
            Self::InputRequired => r#""input_required""#,
            Self::Completed => r#""completed""#,
            Self::Failed => r#""failed""#,
            Self::Cancelled => r#""cancelled""#,
        }
    }
}

/// The members that tasks of both kinds have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSnapshot {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: Status,
    /// The server's text about the status.
    pub message: Option<String>,
    /// How long it is kept after its creation; `None` is without limit.
    pub ttl: Option<Duration>,
    /// The poll interval that the server suggests.
    pub poll: Option<Duration>,
}

/// Reads a task of either kind from the result that created it, or from the answer to `tasks/get`.
pub fn seen(task: &RawJson) -> Option<TaskSnapshot> {
    let object = Object::read(object::text(task))?;
    let task = object.get("task").and_then(Object::read).unwrap_or(object);
    let status = serde_json::from_str(task.get("status")?).ok()?;
    let time = |names: [&str; 2]| {
        let text = names.into_iter().find_map(|name| task.get(name))?;
        // Fractions of a millisecond are cut off, and a negative time is ignored.
        let millis = text.parse::<f64>().ok().filter(|millis| *millis >= 0.0)?;
        Some(Duration::from_millis(millis as u64))
    };
    Some(TaskSnapshot {
        id: object::unquoted(task.get("taskId")?)?.into_owned(),
        status,
        message: task.get("statusMessage").and_then(object::unquoted).map(Into::into),
        ttl: time(["ttlMs", "ttl"]),
        poll: time(["pollIntervalMs", "pollInterval"]),
    })
}

/// The task that a session's server created for a call; `None` if the result is the answer itself.
pub fn created(result: &RawJson) -> Option<TaskSnapshot> {
    let is_task = Object::read(object::text(result))?.get("task").is_some_and(object::is_object);
    seen(result).filter(|_| is_task)
}

/// The params of a request about a task, without the `_meta` of the sender.
pub fn named(task_id: &str) -> RawJson {
    RawJson::trusted(format!(r#"{{"taskId":{}}}"#, object::quoted(task_id)))
}

/// Whether a modern server has tasks, according to its answer to `server/discover`.
pub fn advertised(discovery: &RawJson) -> bool {
    let mut at = Object::read(object::text(discovery)).and_then(|it| it.get("capabilities"));
    for name in ["extensions", EXTENSION] {
        at = at.and_then(Object::read).and_then(|it| it.get(name));
    }
    at.is_some_and(object::is_object)
}

/// Adds the extension for tasks to capabilities that have no `extensions`.
pub fn declared(capabilities: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(object::text(capabilities)) else { return capabilities.clone() };
    object.set("extensions", format!(r#"{{{}:{{}}}}"#, object::quoted(EXTENSION)));
    RawJson::trusted(object.write().into_owned())
}

/// The outcome of a modern server's task; `None` while it runs.
pub fn outcome(task: &RawJson) -> Option<Reply> {
    let object = Object::read(object::text(task))?;
    let read =
        |name: &str| object.get(name).filter(|it| object::is_object(it)).map(|it| object::part(task, it));
    Some(match seen(task)?.status {
        Status::Working | Status::InputRequired => return None,
        Status::Completed => read("result").ok_or_else(broken),
        Status::Failed => Err(read("error").map_or_else(broken, RpcError::from_raw)),
        Status::Cancelled => Err(RpcError::of(Reason::Cancelled, "The server cancelled the task")),
    })
}

/// The questions that a modern server's task waits for.
///
/// # Errors
/// When one of them is not a question that clients answer.
pub fn asked(task: &RawJson) -> Result<Vec<Question>, RpcError> {
    let waits = seen(task).is_some_and(|task| task.status == Status::InputRequired);
    let map = Object::read(object::text(task)).and_then(|object| object.get("inputRequests"));
    map.filter(|_| waits).map_or(Ok(Vec::new()), |map| questions::asked(task, map).ok_or_else(broken))
}

/// The params of a `tasks/update` that answers a question, without the `_meta` of the sender.
pub fn update(task_id: &str, key: &str, answer: &RawJson) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"taskId":{},"inputResponses":{{{}:{}}}}}"#,
        object::quoted(task_id),
        object::quoted(key),
        object::text(answer),
    ))
}

/// Copies the related task from the `_meta` of a session server's question into the answer.
pub fn related(answer: &RawJson, question: Option<&RawJson>) -> RawJson {
    let task =
        question.and_then(|question| Object::read(object::text(question))).and_then(|it| it.get("_meta"));
    let task = task.and_then(Object::read).and_then(|meta| meta.get(RELATED_TASK));
    let (Some(task), Some(mut object)) = (task, Object::read(object::text(answer))) else {
        return answer.clone();
    };
    let mut meta = object.get("_meta").and_then(Object::read).unwrap_or_else(object::nothing);
    meta.set(RELATED_TASK, task);
    let meta = meta.write().into_owned();
    object.set("_meta", meta);
    RawJson::trusted(object.write().into_owned())
}

fn broken() -> RpcError {
    fault_of_server("The server's task cannot be read".to_owned())
}

#[cfg(test)]
mod tests;
