//! Tasks between 2025-11-25, where they are part of the protocol, and the extension of the modern era.
//!
//! Serves the rows on tasks upstream in both directions, and the comparison of the two kinds of tasks:
//!
//! | | 2025-11-25 | extension |
//! |---|---|---|
//! | asked for | `task` in the params | the request declares the extension, the server decides |
//! | created | `{task: {..., ttl, pollInterval}}` | flat, `resultType: "task"`, `ttlMs`, `pollIntervalMs` |
//! | outcome | `tasks/result`, with the task's id in `_meta` | within `tasks/get`, without |
//! | a tool's own error | `failed` | `completed` |
//! | input | requests of the server, with the task's id in `_meta` | within `tasks/get`, answered by `tasks/update` |
//!
//! Not here: what only somebody who keeps tasks can do, such as lists of tasks, blocking until there is an outcome,
//! and the answer to a cancellation.

use serde::{Deserialize, Serialize};

use super::codes::{self, fault_of_server};
use super::edit::{self, Object};
use super::names::{RELATED_TASK, SERVER, SUBSCRIPTION};
use super::questions::{self, Question};
use super::result;
use crate::error::{Reason, RpcError};
use crate::message::RawJson;
use crate::method::Method;
use crate::port::backend::Reply;
use crate::protocol::Revision;

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

/// The tools in a session's `tools/list` that can be called as tasks.
pub fn supported(tools: &RawJson) -> Vec<(String, Support)> {
    let tools = Object::read(edit::text(tools)).and_then(|list| edit::elements(list.get("tools")?));
    let read = |tool: &str| {
        let tool = Object::read(tool)?;
        let support = Object::read(tool.get("execution")?)?.get("taskSupport")?;
        Some((edit::unquoted(tool.get("name")?)?.into_owned(), serde_json::from_str(support).ok()?))
    };
    let supported: Vec<(String, Support)> = tools.unwrap_or_default().into_iter().filter_map(read).collect();
    supported.into_iter().filter(|(_, support)| *support != Support::Forbidden).collect()
}

/// The params of a call that a session's server is to make a task of.
///
/// # Errors
/// When the params are no object.
pub fn augmented(params: &RawJson, ttl_ms: Option<u64>) -> Result<RawJson, RpcError> {
    let mut object = Object::read(edit::text(params))
        .ok_or_else(|| RpcError::of(Reason::InvalidParams, "The params are not an object"))?;
    object.set("task", ttl_ms.map_or_else(|| "{}".to_owned(), |ttl| format!(r#"{{"ttl":{ttl}}}"#)));
    Ok(edit::kept(params, object.write()))
}

/// A session's client's wish that its call becomes a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// For how long it wants the task to be kept, in milliseconds.
    pub ttl_ms: Option<u64>,
}

/// The wish in the params of a call, if there is one.
pub fn wish(params: Option<&RawJson>) -> Option<Wish> {
    let params = Object::read(edit::text(params?))?;
    let task = Object::read(params.get("task")?)?;
    let ttl = task.get("ttl").and_then(|ttl| serde_json::from_str::<f64>(ttl).ok());
    // Milliseconds are whole, and a negative time is none.
    Some(Wish { ttl_ms: ttl.filter(|ttl| *ttl >= 0.0).map(|ttl| ttl as u64) })
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

    pub(crate) fn as_json(self) -> &'static str {
        match self {
            Self::Working => r#""working""#,
            Self::InputRequired => r#""input_required""#,
            Self::Completed => r#""completed""#,
            Self::Failed => r#""failed""#,
            Self::Cancelled => r#""cancelled""#,
        }
    }
}

/// The id and the status in a task of either kind, in whatever it came: a created task, the answer to `tasks/get`, or
/// news of it.
pub fn seen(task: &RawJson) -> Option<(String, Status)> {
    let object = Object::read(edit::text(task))?;
    let task = object.get("task").and_then(Object::read).unwrap_or(object);
    let status = serde_json::from_str(task.get("status")?).ok()?;
    Some((edit::unquoted(task.get("taskId")?)?.into_owned(), status))
}

/// A task that a session's server created, for a modern client.
///
/// # Errors
/// When it is none.
pub fn created_to_modern(result: &RawJson) -> Result<RawJson, RpcError> {
    let object = Object::read(edit::text(result)).ok_or_else(broken)?;
    let mut task = object.get("task").and_then(Object::read).ok_or_else(broken)?;
    seen(result).ok_or_else(broken)?;
    let meta = object.get("_meta").and_then(Object::read);
    to_modern_names(&mut task);
    task.set("resultType", r#""task""#);
    if let Some(mut meta) = meta {
        meta.remove(RELATED_TASK);
        if !meta.is_empty() {
            task.set("_meta", meta.write());
        }
    }
    Ok(RawJson::trusted(task.write().into_owned()))
}

/// A task that a modern server created, for a session's client.
///
/// # Errors
/// When it is none.
pub fn created_to_legacy(result: &RawJson) -> Result<RawJson, RpcError> {
    let mut task = Object::read(edit::text(result)).ok_or_else(broken)?;
    seen(result).ok_or_else(broken)?;
    let mut meta = task.get("_meta").and_then(Object::read);
    task.remove("_meta");
    to_legacy_names(&mut task);
    let mut written = format!(r#"{{"task":{}"#, task.write());
    if let Some(meta) = &mut meta {
        meta.remove(SERVER);
    }
    if let Some(meta) = meta.filter(|meta| !meta.is_empty()) {
        written += &format!(r#","_meta":{}"#, meta.write());
    }
    written.push('}');
    Ok(RawJson::trusted(written))
}

/// What is known of a session's task beside its status.
#[derive(Clone, Copy, Debug)]
pub enum Holds<'a> {
    /// Nothing yet.
    Nothing,
    /// What the server wants to know.
    Questions(&'a [Question]),
    /// What `tasks/result` said.
    Outcome(&'a Reply),
}

/// A session's task for a modern client: the answer to `tasks/get`, or the news of it. What is known counts for more
/// than the status: a tool's own error completes a task, and a task whose questions are not known yet is worked on.
///
/// # Errors
/// When it is no task, or has an outcome that is not known.
pub fn got_to_modern(task: &RawJson, holds: Holds<'_>) -> Result<RawJson, RpcError> {
    let (_, status) = seen(task).ok_or_else(broken)?;
    let mut object = Object::read(edit::text(task)).ok_or_else(broken)?;
    to_modern_names(&mut object);
    object.within("_meta", |meta| meta.remove(RELATED_TASK));
    let status = match (status, holds) {
        (Status::Cancelled, _) => Status::Cancelled,
        (_, Holds::Outcome(Ok(outcome))) => {
            let outcome = result::to_modern(&Method::ToolsCall, outcome);
            object.set("result", edit::text(&outcome).to_owned());
            Status::Completed
        }
        (_, Holds::Outcome(Err(error))) => {
            object.set("error", edit::text(codes::to_modern(None, error).raw()).to_owned());
            Status::Failed
        }
        (Status::Completed | Status::Failed, _) => {
            return Err(fault_of_server("The outcome of the task is not known".to_owned()));
        }
        (_, Holds::Questions(asked)) if !asked.is_empty() => {
            object.set("inputRequests", edit::text(&questions::requests(asked)).to_owned());
            Status::InputRequired
        }
        (Status::Working | Status::InputRequired, _) => Status::Working,
    };
    object.set("status", status.as_json());
    Ok(RawJson::trusted(object.write().into_owned()))
}

/// A modern server's task for a session's client: the answer to `tasks/get`, or the news of it.
///
/// # Errors
/// When it is no task.
pub fn got_to_legacy(task: &RawJson) -> Result<RawJson, RpcError> {
    seen(task).ok_or_else(broken)?;
    let mut object = Object::read(edit::text(task)).ok_or_else(broken)?;
    let result = object.get("result").and_then(Object::read);
    if result.is_some_and(|result| result.get("isError") == Some("true")) {
        object.set("status", Status::Failed.as_json());
    }
    for name in ["result", "error", "inputRequests", "requestState"] {
        object.remove(name);
    }
    to_legacy_names(&mut object);
    object.within("_meta", |meta| {
        meta.remove(SERVER);
        meta.remove(SUBSCRIPTION);
    });
    Ok(edit::kept(task, object.write()))
}

/// What a modern server's task came to, as the answer to a session's `tasks/result`; `None` as long as it has not.
pub fn outcome(task: &RawJson, revision: Revision) -> Option<Reply> {
    let (id, status) = seen(task)?;
    let object = Object::read(edit::text(task))?;
    let read = |name: &str| object.get(name).filter(|it| edit::is_object(it)).map(|it| edit::part(task, it));
    Some(match status {
        Status::Working | Status::InputRequired => return None,
        Status::Completed => read("result")
            .ok_or_else(broken)
            .map(|outcome| related(Some(&result::to_legacy(&Method::ToolsCall, &outcome, revision)), &id)),
        Status::Failed => Err(read("error")
            .map_or_else(broken, |error| codes::to_legacy(&Method::ToolsCall, &RpcError::from_raw(error)))),
        Status::Cancelled => Err(RpcError::of(Reason::Cancelled, "The task was cancelled")),
    })
}

/// What a modern server's task waits for.
pub fn asked(task: &RawJson) -> Vec<Question> {
    let waits = seen(task).is_some_and(|(_, status)| status == Status::InputRequired);
    let map = Object::read(edit::text(task)).and_then(|object| object.get("inputRequests"));
    map.filter(|_| waits).and_then(|map| questions::asked(task, map)).unwrap_or_default()
}

/// Params or a result of a session with the id of the task that they belong to.
pub fn related(to: Option<&RawJson>, task_id: &str) -> RawJson {
    let Some(mut object) = Object::read(to.map_or("{}", edit::text)) else {
        return to.cloned().unwrap_or(RawJson::EMPTY_OBJECT);
    };
    let mut meta = object.get("_meta").and_then(Object::read).unwrap_or_else(edit::nothing);
    meta.set(RELATED_TASK, format!(r#"{{"taskId":{}}}"#, edit::quoted(task_id)));
    object.set("_meta", meta.write());
    RawJson::trusted(object.write().into_owned())
}

/// The params of a `tasks/update` that answers questions, without what every modern request says of its sender.
pub fn update(task_id: &str, answers: &[(String, RawJson)]) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"taskId":{},"inputResponses":{}}}"#,
        edit::quoted(task_id),
        edit::text(&questions::map_of(answers)),
    ))
}

fn to_modern_names(task: &mut Object<'_>) {
    // How long a task is kept has to be said; without a limit it is null in both.
    let ttl = task.get("ttl").unwrap_or("null");
    task.remove("ttl");
    task.set("ttlMs", ttl);
    if let Some(interval) = task.get("pollInterval") {
        task.remove("pollInterval");
        task.set("pollIntervalMs", interval);
    }
}

fn to_legacy_names(task: &mut Object<'_>) {
    task.remove("resultType");
    let ttl = task.get("ttlMs").unwrap_or("null");
    task.remove("ttlMs");
    task.set("ttl", ttl);
    if let Some(interval) = task.get("pollIntervalMs") {
        task.remove("pollIntervalMs");
        task.set("pollInterval", interval);
    }
}

fn broken() -> RpcError {
    fault_of_server("The server's task cannot be read".to_owned())
}

#[cfg(test)]
mod tests;
