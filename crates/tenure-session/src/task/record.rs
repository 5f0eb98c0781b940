//! The record of a task: its owner, its times, its status, and its outcome.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_protocol::json::object;
use tenure_protocol::translate::tasks::Status;
use tenure_protocol::{RawJson, RpcError};

use super::TaskId;
use crate::framed::{Frame, UnreadableFrame};
use crate::id::{NodeId, Principal, Route};
use crate::kept::NotedServer;
use crate::port::clock::Time;
use crate::state::Date;

const FRAME: Frame = Frame { of: "task", format: 1 };

/// Everything about a task but its outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct TaskHead {
    /// `None` for anonymous.
    pub(super) owner: Option<String>,
    /// `None` for the endpoint without a name.
    pub(super) route: Option<String>,
    pub(super) tool: String,
    pub(super) created: u64,
    /// When it last changed, as far as the store knows.
    pub(super) updated: u64,
    pub(super) ttl_ms: u64,
    pub(super) poll_ms: u64,
    pub(super) status: Status,
    /// The params of the call, as JSON text, if another process may start it again; until the end of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) params: Option<String>,
    /// The scopes that the call was sent with, for a process that starts it again; `None` if none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scopes: Option<Vec<Box<str>>>,
    /// The server that handles the call, for a process that starts it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<NotedServer>,
    /// The node of a cluster at which it runs, until its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TaskEnd {
    /// With a result, which may report that the tool failed.
    Completed(RawJson),
    /// With an error.
    Failed(RpcError),
    /// Its client cancelled it.
    Cancelled,
}

/// A record as it is kept.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TaskRecord {
    pub(super) head: TaskHead,
    /// The result or the error; empty until the end, and for a cancelled task.
    pub(super) outcome: Bytes,
}

impl TaskHead {
    pub(super) fn owner(&self) -> Principal {
        self.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named)
    }

    /// The node at which it runs.
    pub(super) fn node(&self) -> Option<NodeId> {
        NodeId::parse(self.node.as_deref()?)
    }

    pub(super) fn route(&self) -> Route {
        Route::from(self.route.as_deref())
    }

    /// When the record expires. An ended task is kept for `ttl_ms` after its end. A task without an end is kept for
    /// twice `ttl_ms`: by then no process can still run it.
    pub(super) fn expires(&self) -> Time {
        let from =
            if self.status.is_terminal() { self.updated } else { self.created.saturating_add(self.ttl_ms) };
        Time(from.saturating_add(self.ttl_ms))
    }

    /// The task as its client sees it, with its questions or its outcome.
    pub(super) fn write(&self, id: &TaskId, holds: Holds<'_>) -> RawJson {
        let (status, more) = match holds {
            Holds::Nothing => (self.status, None),
            Holds::Questions(questions) => (Status::InputRequired, Some(("inputRequests", questions))),
            Holds::Outcome(outcome) => match self.status {
                Status::Completed => (self.status, Some(("result", outcome))),
                Status::Failed => (self.status, Some(("error", outcome))),
                Status::Working | Status::InputRequired | Status::Cancelled => (self.status, None),
            },
        };
        let mut written = format!(
            r#"{{"taskId":"{}","status":{},"createdAt":"{}","lastUpdatedAt":"{}","ttlMs":{},"pollIntervalMs":{}"#,
            id.expose(),
            status.as_json(),
            Date::of(Time(self.created)).as_str(),
            Date::of(Time(self.updated)).as_str(),
            self.ttl_ms,
            self.poll_ms,
        );
        if let Some((name, value)) = more {
            written.push_str(",\"");
            written.push_str(name);
            written.push_str("\":");
            written.push_str(object::text(value));
        }
        written.push('}');
        RawJson::trusted(written)
    }
}

/// The part of a task that is not in its head.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holds<'a> {
    Nothing,
    /// The open questions of its server, by key.
    Questions(&'a RawJson),
    /// The result or the error.
    Outcome(&'a RawJson),
}

impl TaskRecord {
    /// The record of a task that has just begun.
    pub(super) fn begun(head: TaskHead) -> Self {
        Self { head, outcome: Bytes::new() }
    }

    /// The record of an ended task.
    pub(super) fn ended(mut head: TaskHead, end: &TaskEnd, now: Time) -> Self {
        head.updated = now.0;
        head.params = None;
        head.scopes = None;
        head.server = None;
        head.node = None;
        let outcome = match end {
            TaskEnd::Completed(result) => {
                head.status = Status::Completed;
                result.bytes().clone()
            }
            TaskEnd::Failed(error) => {
                head.status = Status::Failed;
                error.raw().bytes().clone()
            }
            TaskEnd::Cancelled => {
                head.status = Status::Cancelled;
                Bytes::new()
            }
        };
        Self { head, outcome }
    }

    /// The task as its client sees it.
    pub(super) fn write(&self, id: &TaskId) -> RawJson {
        match self.outcome.is_empty() {
            true => self.head.write(id, Holds::Nothing),
            false => self.head.write(id, Holds::Outcome(&RawJson::trusted(self.outcome.clone()))),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        FRAME.encode(&self.head, &self.outcome)
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, UnreadableFrame> {
        FRAME.decode(bytes).map(|(head, outcome)| Self { head, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> TaskHead {
        TaskHead {
            owner: Some("ann".to_owned()),
            route: None,
            tool: "dig".to_owned(),
            created: 1_771_857_000_999,
            updated: 1_771_857_001_000,
            ttl_ms: 60_000,
            poll_ms: 500,
            status: Status::Working,
            params: None,
            scopes: None,
            server: None,
            node: None,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let result = RawJson::trusted(r#"{ "content":[1.50] }"#);
        let ended = TaskRecord::ended(head(), &TaskEnd::Completed(result), Time(1_771_857_002_000));
        let (params, scopes) = (Some(r#"{"name":"dig"}"#.to_owned()), Some(vec!["a:read".into()]));
        let with_params = TaskHead { params, scopes, ..head() };
        for record in [TaskRecord::begun(head()), TaskRecord::begun(with_params), ended] {
            assert_eq!(TaskRecord::decode(&record.encode()).unwrap(), record);
        }
    }

    #[test]
    fn the_params_are_kept_until_the_end() {
        let working = TaskHead { params: Some("{}".to_owned()), ..head() };
        assert_eq!(
            TaskRecord::ended(working, &TaskEnd::Cancelled, Time(1_771_857_002_000)).head.params,
            None
        );
    }

    #[test]
    fn a_newer_writer_with_the_same_format_may_add_to_the_head() {
        let more = RawJson::of(&head());
        let more = object::text(&more).replacen('{', r#"{"more":[1],"#, 1);
        let bytes =
            [&[FRAME.format], &(more.len() as u32).to_be_bytes()[..], more.as_bytes(), b"{}"].concat();
        let read = TaskRecord::decode(&bytes.into()).unwrap();
        assert_eq!((read.head, &read.outcome[..]), (head(), &b"{}"[..]));
    }

    #[test]
    fn a_newer_format_is_refused_by_name_and_anything_else_is_broken() {
        let error = TaskRecord::decode(&Bytes::from_static(b"\x02anything")).unwrap_err();
        assert_eq!(error.to_string(), "task format 2 is newer than 1, the newest this version reads");
        let whole = TaskRecord::begun(head()).encode();
        for cut in 0..whole.len() {
            assert!(
                matches!(TaskRecord::decode(&whole.slice(..cut)), Err(UnreadableFrame::Broken(_))),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_its_client_sees() {
        let id = TaskId::parse("0123456789abcdef0123456789abcdef").unwrap();
        let questions = RawJson::trusted(r#"{"q1":{}}"#);
        let end = |end| TaskRecord::ended(head(), &end, Time(1_771_857_009_000)).write(&id);
        let seen = [
            head().write(&id, Holds::Nothing),
            head().write(&id, Holds::Questions(&questions)),
            end(TaskEnd::Completed(RawJson::trusted(r#"{"content":[],"isError":true}"#))),
            end(TaskEnd::Failed(RpcError::new(-32603, "broken"))),
            end(TaskEnd::Cancelled),
        ];
        let seen: Vec<_> = seen.iter().map(object::text).collect();
        expect_test::expect![[r#"
            {"taskId":"0123456789abcdef0123456789abcdef","status":"working","createdAt":"2026-02-23T14:30:00Z","lastUpdatedAt":"2026-02-23T14:30:01Z","ttlMs":60000,"pollIntervalMs":500}
            {"taskId":"0123456789abcdef0123456789abcdef","status":"input_required","createdAt":"2026-02-23T14:30:00Z","lastUpdatedAt":"2026-02-23T14:30:01Z","ttlMs":60000,"pollIntervalMs":500,"inputRequests":{"q1":{}}}
            {"taskId":"0123456789abcdef0123456789abcdef","status":"completed","createdAt":"2026-02-23T14:30:00Z","lastUpdatedAt":"2026-02-23T14:30:09Z","ttlMs":60000,"pollIntervalMs":500,"result":{"content":[],"isError":true}}
            {"taskId":"0123456789abcdef0123456789abcdef","status":"failed","createdAt":"2026-02-23T14:30:00Z","lastUpdatedAt":"2026-02-23T14:30:09Z","ttlMs":60000,"pollIntervalMs":500,"error":{"code":-32603,"message":"broken"}}
            {"taskId":"0123456789abcdef0123456789abcdef","status":"cancelled","createdAt":"2026-02-23T14:30:00Z","lastUpdatedAt":"2026-02-23T14:30:09Z","ttlMs":60000,"pollIntervalMs":500}"#]]
        .assert_eq(&seen.join("\n"));
    }
}
