//! Tasks between 2025-11-25, where they are part of the protocol, and the extension of the modern era.
//!
//! Serves the rows on tasks upstream in both directions. What the two kinds of tasks have in common, and what not:
//!
//! | | 2025-11-25 | extension |
//! |---|---|---|
//! | asked for | `task` in the params, if the tool allows it | the request declares the extension, the server decides |
//! | created | `{task: {..., ttl, pollInterval}}` | flat, `resultType: "task"`, `ttlMs`, `pollIntervalMs` |
//! | outcome | `tasks/result`, with the task's id in `_meta` | within `tasks/get`, without |
//! | a tool's own error | `failed` | `completed` |
//! | input | requests of the server, with the task's id in `_meta` | within `tasks/get`, answered by `tasks/update` |
//!
//! A task never crosses a bridge as itself: towards a modern client it becomes one that is kept here, and a client in
//! a session gets the outcome. So nothing here turns one kind into the other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::keys::RELATED_TASK;
use crate::message::Reply;
use crate::translate::codes::fault_of_server;
use crate::translate::questions::{self, Question};

/// The longest time that servers can be asked to keep a task for: timers of many of them count no further, and one
/// that is told more forgets the task at once.
const MAX_TTL: Duration = Duration::from_millis(0x7fff_ffff);

/// The extension, as it stands among capabilities.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// How a tool of a session's server wants to be called.
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

/// Whether a session's server makes tasks of calls, by its answer to `initialize`.
pub fn served(initialized: &RawJson) -> bool {
    let mut at = Object::read(object::text(initialized)).and_then(|it| it.get("capabilities"));
    for name in ["tasks", "requests", "tools", "call"] {
        at = at.and_then(Object::read).and_then(|it| it.get(name));
    }
    at.is_some_and(object::is_object)
}

/// The tools in one page of a session's `tools/list`, and where the next page begins.
pub fn listed(page: &RawJson) -> (Vec<(String, Support)>, Option<String>) {
    let page = Object::read(object::text(page));
    let tools = page.as_ref().and_then(|page| object::elements(page.get("tools")?));
    let read = |tool: &str| {
        let tool = Object::read(tool)?;
        let support = tool.get("execution").and_then(Object::read).and_then(|it| it.get("taskSupport"));
        let support = support.and_then(|support| serde_json::from_str(support).ok());
        let name = object::unquoted(tool.get("name")?)?.into_owned();
        // Nothing said is as good as no.
        Some((name, support.unwrap_or(Support::Forbidden)))
    };
    let next = page.as_ref().and_then(|page| object::unquoted(page.get("nextCursor")?));
    (tools.unwrap_or_default().into_iter().filter_map(read).collect(), next.map(Into::into))
}

/// The params of a call that a session's server is to make a task of, which need not be kept for longer than this.
///
/// # Errors
/// When the params are no object.
pub fn augmented(params: &RawJson, ttl: Duration) -> Result<RawJson, RpcError> {
    let mut object = Object::read(object::text(params))
        .ok_or_else(|| RpcError::of(Reason::InvalidParams, "The params are not an object"))?;
    object.set("task", format!(r#"{{"ttl":{}}}"#, ttl.min(MAX_TTL).as_millis()));
    Ok(object::kept(params, object.write()))
}

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is worked on.
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
    /// Whether it will stay like this.
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

/// A task of either kind, as far as both have the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub status: Status,
    /// What its server says about that.
    pub message: Option<String>,
    /// How long it is kept from its beginning on; without a limit there is none.
    pub ttl: Option<Duration>,
    /// How often its server wants to be asked for it.
    pub poll: Option<Duration>,
}

/// A task of either kind, in whatever it came: a created task, or the answer to `tasks/get`.
pub fn seen(task: &RawJson) -> Option<Seen> {
    let object = Object::read(object::text(task))?;
    let task = object.get("task").and_then(Object::read).unwrap_or(object);
    let status = serde_json::from_str(task.get("status")?).ok()?;
    let time = |names: [&str; 2]| {
        let text = names.into_iter().find_map(|name| task.get(name))?;
        // Milliseconds are whole, and a negative time is none.
        let millis = text.parse::<f64>().ok().filter(|millis| *millis >= 0.0)?;
        Some(Duration::from_millis(millis as u64))
    };
    Some(Seen {
        id: object::unquoted(task.get("taskId")?)?.into_owned(),
        status,
        message: task.get("statusMessage").and_then(object::unquoted).map(Into::into),
        ttl: time(["ttlMs", "ttl"]),
        poll: time(["pollIntervalMs", "pollInterval"]),
    })
}

/// The task that a session's server made of a call; `None` if it answered it.
pub fn created(result: &RawJson) -> Option<Seen> {
    let is_task = Object::read(object::text(result))?.get("task").is_some_and(object::is_object);
    seen(result).filter(|_| is_task)
}

/// The params of a request about a task, without what every modern request says of its sender.
pub fn named(task_id: &str) -> RawJson {
    RawJson::trusted(format!(r#"{{"taskId":{}}}"#, object::quoted(task_id)))
}

/// Whether a modern server has tasks, by its answer to `server/discover`.
pub fn advertised(discovery: &RawJson) -> bool {
    let mut at = Object::read(object::text(discovery)).and_then(|it| it.get("capabilities"));
    for name in ["extensions", EXTENSION] {
        at = at.and_then(Object::read).and_then(|it| it.get(name));
    }
    at.is_some_and(object::is_object)
}

/// Capabilities of a server or a client that say nothing of extensions, and tasks.
pub fn declared(capabilities: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(object::text(capabilities)) else { return capabilities.clone() };
    object.set("extensions", format!(r#"{{{}:{{}}}}"#, object::quoted(EXTENSION)));
    RawJson::trusted(object.write().into_owned())
}

/// What a modern server's task came to; `None` as long as it has not.
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

/// What a modern server's task waits for.
///
/// # Errors
/// When it waits for something that cannot be asked.
pub fn asked(task: &RawJson) -> Result<Vec<Question>, RpcError> {
    let waits = seen(task).is_some_and(|task| task.status == Status::InputRequired);
    let map = Object::read(object::text(task)).and_then(|object| object.get("inputRequests"));
    map.filter(|_| waits).map_or(Ok(Vec::new()), |map| questions::asked(task, map).ok_or_else(broken))
}

/// The params of a `tasks/update` that answers a question, without what every modern request says of its sender.
pub fn update(task_id: &str, key: &str, answer: &RawJson) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"taskId":{},"inputResponses":{{{}:{}}}}}"#,
        object::quoted(task_id),
        object::quoted(key),
        object::text(answer),
    ))
}

/// An answer to a question of a session's server that belongs to a task, which says so like the question.
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
