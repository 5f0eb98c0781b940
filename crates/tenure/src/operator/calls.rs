//! What operators see of running calls: requests of sessions, and requests without a session.

use serde::{Deserialize, Serialize};
use tenure_session::exchange::{CallStanding, ExchangeInfo, Exchanges, WaitsFor};
use tenure_session::session::{CallInfo, SessionInfo, Sessions};

use super::key::key_text;

/// Rows of one answer, at most.
const MOST: usize = 10_000;

/// The calls of a server, the oldest first.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct CallList {
    pub(crate) rows: Vec<CallRow>,
    /// How many calls there are; more than rows if the list was cut.
    pub(crate) found: usize,
}

/// One call in a list. Times are milliseconds since 1970.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct CallRow {
    /// Its name in logs; if it belongs to a session, the name of the session.
    pub(crate) label: String,
    /// Whether it belongs to a session.
    pub(crate) in_session: bool,
    /// The key of that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The client's id for it, if it belongs to a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<serde_json::Value>,
    /// The principal that asked; left out for anonymous callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// The endpoint it came to, if that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    pub(crate) method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    pub(crate) started: u64,
    pub(crate) state: CallState,
    pub(crate) waits_for: CallWait,
    /// The last sign of progress, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<CallProgress>,
    /// Questions that its client has not answered.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) questions: usize,
    /// The client's attempts at it; left out for calls in a session, which have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<u64>,
    /// The node that is at work on it, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

/// Progress of a call.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct CallProgress {
    /// When it was told.
    pub(crate) at: u64,
}

/// How the client of a call gets its result.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallState {
    /// The client waits for the answer, or can resume the stream on which the answer arrives.
    Running,
    /// The client was asked a question and has not come back yet.
    Parked,
    /// The client asks for the outcome later.
    Task,
    /// The client listens for changes.
    Listening,
}

impl CallState {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Task => "task",
            Self::Listening => "listening",
        }
    }
}

/// What a call waits for.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallWait {
    Server,
    /// Answers of its client.
    Client,
    /// The client, to read the events in its queue.
    Reader,
    News,
    NextProcess,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// The running calls of a server.
pub(super) fn calls(sessions: &Sessions, exchanges: Option<&Exchanges>) -> CallList {
    let mut rows = without_session(exchanges);
    for session in sessions.list() {
        rows.extend(session.calls.iter().map(|call| of_session(&session, call)));
    }
    rows.sort_by_key(|row| row.started);
    let found = rows.len();
    rows.truncate(MOST);
    CallList { rows, found }
}

/// Those that belong to no session.
pub(super) fn without_session(exchanges: Option<&Exchanges>) -> Vec<CallRow> {
    let without = exchanges.map(Exchanges::list).unwrap_or_default();
    without.iter().map(of_exchange).collect()
}

fn of_exchange(exchange: &ExchangeInfo) -> CallRow {
    let (waits_for, questions) = match exchange.waits_for {
        WaitsFor::Server => (CallWait::Server, 0),
        WaitsFor::Client { questions } => (CallWait::Client, questions),
        WaitsFor::Reader => (CallWait::Reader, 0),
        WaitsFor::News => (CallWait::News, 0),
        WaitsFor::NextProcess => (CallWait::NextProcess, 0),
    };
    CallRow {
        label: exchange.label.clone(),
        in_session: false,
        session: None,
        id: None,
        owner: exchange.principal.name().map(str::to_owned),
        backend: exchange.route.name().map(str::to_owned),
        method: exchange.method.as_str().to_owned(),
        tool: exchange.tool.clone(),
        started: exchange.started.0,
        state: match exchange.standing {
            CallStanding::Running => CallState::Running,
            CallStanding::Parked => CallState::Parked,
            CallStanding::Task => CallState::Task,
            CallStanding::Listening => CallState::Listening,
        },
        waits_for,
        progress: None,
        questions,
        attempts: Some(exchange.attempts),
        node: None,
    }
}

fn of_session(session: &SessionInfo, call: &CallInfo) -> CallRow {
    CallRow {
        label: session.key.label(),
        in_session: true,
        session: Some(key_text(&session.key)),
        id: serde_json::from_slice(call.id.raw()).ok(),
        owner: session.owner.name().map(str::to_owned),
        backend: session.route.name().map(str::to_owned),
        method: call.method.as_str().to_owned(),
        tool: call.tool.clone(),
        started: call.started.0,
        state: CallState::Running,
        waits_for: if call.asking > 0 { CallWait::Client } else { CallWait::Server },
        progress: call.progressed.map(|at| CallProgress { at: at.0 }),
        questions: call.asking,
        attempts: None,
        node: None,
    }
}
