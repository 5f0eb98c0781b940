//! What operators see of sessions: a row of a list, and everything about one.
//!
//! Times are milliseconds since 1970. Unknown values are left out: a dormant session has no requests in flight, an
//! ended one has very few values.

use serde::{Deserialize, Serialize};
use tenure_session::record::EndCause;
use tenure_session::settings::Settings;

/// Where a session stands.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShownState {
    /// In the memory of a running server.
    Awake,
    /// In the store only; its next request wakes it.
    Dormant,
    /// Over.
    Ended,
    /// Its record cannot be decoded.
    #[default]
    Unreadable,
}

/// Some rows of a list, in the order of their keys.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Page<Row> {
    pub(crate) rows: Vec<Row>,
    /// The next page begins after this key; `None` on the last page.
    #[serde(default)]
    pub(crate) next: Option<String>,
}

/// One session in a list.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct SessionRow {
    /// The hashed id, all of it.
    pub(crate) key: String,
    /// The name in logs.
    pub(crate) label: String,
    pub(crate) state: ShownState,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<EndCause>,
    /// The principal that may use it; left out for an anonymous session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// What its client calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "client_name")]
    pub(crate) client: Option<String>,
    /// The endpoint it was begun at, if that has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_used: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<u64>,
    /// When the sweep looks at its record: then it expires, or its tombstone is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<u64>,
    /// Requests that wait for their answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calls: Option<usize>,
    /// When the oldest of them began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_call: Option<u64>,
    /// Streams that have a reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) readers: Option<usize>,
    /// Events kept for resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<usize>,
    /// The node that has it in memory, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

/// One session in a list for the page, with what it waits for and what looks wrong with it.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct ListedSession {
    #[serde(flatten)]
    pub(crate) row: SessionRow,
    /// Questions that its client has not answered.
    pub(crate) waiting_for_client: usize,
    pub(crate) problems: Vec<String>,
    /// The tool that was called last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_tool: Option<String>,
    /// Where the last request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transport: Option<String>,
}

/// Some rows of a search, in the order of their keys.
#[derive(Serialize, Debug)]
pub(crate) struct Found<Row> {
    pub(crate) rows: Vec<Row>,
    /// The search goes on after this key; left out if it has seen everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// How many were looked at, if the search was cut before it had found as many as it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) looked_at: Option<usize>,
    /// How many there are then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<usize>,
}

/// Everything that is known of one session.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) row: SessionRow,
    /// What looks wrong, in words.
    #[serde(rename = "signs")]
    pub(crate) problems: Vec<String>,
    /// The client, as it called itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<Party>,
    /// The server behind, as it called itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Party>,
    /// How that server is configured: a program or an address, and the beginning of a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) configured: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_level: Option<String>,
    #[serde(default)]
    pub(crate) subscriptions: Vec<String>,
    /// The settings of this session alone.
    #[serde(flatten)]
    pub(crate) settings: Settings,
    /// Requests since it was created or woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    /// Those of them that ended in an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
    /// Requests that wait for their answer; only while it is awake.
    #[serde(default)]
    pub(crate) in_flight: Vec<CallView>,
    /// Streams that the store knows.
    #[serde(default)]
    pub(crate) streams: Vec<StreamView>,
    /// Connections that read one of them; only while it is awake.
    #[serde(default)]
    pub(crate) reader_rows: Vec<ReaderView>,
    pub(crate) kept: EventTotals,
    /// The version of the record.
    pub(crate) version: u64,
    /// The record as the store has it. While the session is awake it may be a little behind.
    pub(crate) record: serde_json::Value,
}

/// A background loop of a running server.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoopView {
    /// What it does.
    pub(crate) name: String,
    /// How often it panicked and was started again, since the server began.
    pub(crate) restarts: u64,
    /// Whether it has panicked and waits for its restart.
    pub(crate) is_down: bool,
    /// When it panicked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) panicked: Option<u64>,
}

/// A client or a server, as it called itself.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Party {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
}

/// A request that waits for its answer.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct CallView {
    /// The client's id for it, as JSON.
    pub(crate) id: serde_json::Value,
    pub(crate) method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// When it began; not known for a dormant session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<u64>,
    /// When the server last reported progress on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progressed: Option<u64>,
    /// Questions to the client that it waits for.
    #[serde(default)]
    pub(crate) asking: usize,
    /// The stream that its answer comes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<u32>,
    /// Whether that stream has a reader.
    #[serde(default)]
    pub(crate) is_read: bool,
}

/// A stream that the store knows.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct StreamView {
    /// 0 is the one that GET opens.
    pub(crate) number: u32,
    /// Whether more events may follow on it.
    pub(crate) open: bool,
    /// The position of its last event.
    pub(crate) last: u64,
    /// The requests that it was opened for, while it is open.
    #[serde(default)]
    pub(crate) requests: Vec<CallView>,
}

/// A connection that reads a stream.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct ReaderView {
    pub(crate) stream: u32,
    /// The last event that was delivered on it.
    pub(crate) position: u64,
    /// Events in memory that wait to be read.
    pub(crate) lag: usize,
}

/// How many of a session's events are kept.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EventTotals {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    /// When the oldest of them happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<u64>,
}

impl ShownState {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Dormant => "dormant",
            Self::Ended => "ended",
            Self::Unreadable => "unreadable",
        }
    }
}

impl CallView {
    /// The method, with the tool if there is one.
    pub(crate) fn title(&self) -> String {
        match &self.tool {
            Some(tool) => format!("{} {tool}", self.method),
            None => self.method.clone(),
        }
    }
}
