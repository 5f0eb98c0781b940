//! The figures as operators get them. Times are milliseconds since 1970, durations are in milliseconds, and unknown values are left
//! out, but for the series of a history, where `null` stands for a step without one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_session::figures::{SessionFigures, TimelineEntry};
use tenure_session::port::clock::Time;

/// The state of the process.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Now {
    pub(crate) rates: Rates,
    /// Requests of clients that were admitted and are not over.
    pub(crate) in_flight: u64,
    /// Questions that clients have not answered.
    pub(crate) waiting_for_client: u64,
    /// Connections that read a stream.
    pub(crate) readers: u64,
    /// Clients that came back, since the start.
    pub(crate) resumes: ResumeCounts,
    /// Requests that were refused, by reason, since the start.
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) process: ProcessFigures,
    pub(crate) backends: Vec<BackendRow>,
}

/// Averages of the last ten seconds.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) calls_per_s: f64,
    pub(crate) errors_per_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
    pub(crate) refused_per_s: f64,
    pub(crate) resumes_per_s: f64,
}

/// The results of clients' resumes.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ResumeCounts {
    pub(crate) replayed: u64,
    pub(crate) gap: u64,
    pub(crate) foreign: u64,
    pub(crate) fresh: u64,
}

/// Values of the operating system about the process.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ProcessFigures {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rss_bytes: Option<u64>,
    /// Processor time since the start, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    /// How late timers were in the last second, at most.
    pub(crate) loop_lag_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) descriptors: Option<u64>,
}

/// Which history.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Span {
    /// Ten minutes, second by second.
    #[serde(rename = "10m")]
    TenMinutes,
    /// A day, in steps of ten seconds.
    #[serde(rename = "24h")]
    Day,
}

/// The last minutes or hours, the oldest step first.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub(crate) struct History {
    pub(crate) step_ms: u64,
    /// When the first step began.
    pub(crate) from: u64,
    /// `calls`, `errors`, `p50_ms`, `p99_ms`, `sessions_awake`, `refused` and `resumes`, all of the same length.
    pub(crate) series: BTreeMap<String, Vec<Option<f64>>>,
}

/// How a call ended.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallOutcome {
    Result,
    /// A result that says that the tool failed.
    ToolError,
    Error,
    /// Refused by a limit.
    Limited,
    /// Its client went away before the answer, or came back for it later.
    Gone,
}

/// A call that has ended.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct RecentCall {
    /// When it ended.
    pub(crate) at: u64,
    /// The session, or the call itself if it has none, by its name in logs.
    pub(crate) label: String,
    /// The key of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    pub(crate) method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    pub(crate) ms: f64,
    pub(crate) outcome: CallOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
}

/// A tool in the last hour.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct ToolRow {
    /// `_other` for tools that no server has listed.
    pub(crate) tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
}

/// A session that has ended.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub(crate) struct EndedRow {
    pub(crate) key: String,
    pub(crate) label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "client_name")]
    pub(crate) client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    /// Not known of a session that was dormant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<u64>,
    pub(crate) ended: u64,
    /// `deleted`, `expired` or `revoked`.
    pub(crate) end: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
}

/// The counters of one session, and its timeline.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub(crate) struct SessionStory {
    pub(crate) figures: StoryFigures,
    pub(crate) timeline: Vec<TimelineRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transport: Option<String>,
}

/// The numbers of one session since it was created.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct StoryFigures {
    pub(crate) requests: u64,
    pub(crate) tool_calls: u64,
    pub(crate) resource_reads: u64,
    pub(crate) errors: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ms: Option<LatencyMs>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// How long answers took.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct LatencyMs {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

/// One event of a session.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimelineRow {
    pub(crate) at: u64,
    pub(crate) what: String,
    pub(crate) text: String,
    /// Whether it is in order; otherwise the client may have had trouble.
    pub(crate) ok: bool,
    /// How often in a row; left out if it is once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) times: Option<u32>,
}

/// A server behind.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub(crate) struct BackendRow {
    pub(crate) name: String,
    /// `child`, `url`, `native` or `demo`.
    pub(crate) kind: String,
    /// Its program or its address, without secrets.
    pub(crate) target: String,
    /// Whether the last attempt to reach it worked; true before the first.
    pub(crate) up: bool,
    pub(crate) in_flight: u64,
    /// Links that were opened.
    pub(crate) starts: u64,
    /// Attempts to open a link that failed.
    pub(crate) failed_starts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<TimedText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<ServerName>,
    /// The revision that its last answer to `initialize` named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) era: Option<String>,
    /// Tools in the lists that were seen.
    pub(crate) tools: usize,
}

/// A text, and when it was written.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimedText {
    pub(crate) at: u64,
    pub(crate) text: String,
}

/// A server, as it calls itself.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerName {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
}

/// Something that just happened.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Live {
    /// A call ended.
    Call(RecentCall),
    /// Something happened to a session.
    Session(LiveSession),
}

/// Something that just happened to a session.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LiveSession {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) what: String,
    pub(crate) at: u64,
    pub(crate) text: String,
}

impl SessionStory {
    /// Of the figures that are kept with a session; `created` is the first row of its timeline.
    pub(crate) fn of(figures: &SessionFigures, created: Option<Time>) -> Self {
        let latency = &figures.latency;
        let begin = created.map(|at| TimelineRow {
            at: at.0,
            what: "created".to_owned(),
            text: "the client began the session".to_owned(),
            ok: true,
            times: None,
        });
        Self {
            figures: StoryFigures {
                requests: figures.requests,
                tool_calls: figures.tool_calls,
                resource_reads: figures.resource_reads,
                errors: figures.errors,
                latency_ms: latency.mean_ms().map(|mean| LatencyMs {
                    p50: latency.quantile(0.5).unwrap_or_default(),
                    p99: latency.quantile(0.99).unwrap_or_default(),
                    #[expect(clippy::cast_precision_loss, reason = "a time in ms")]
                    max: latency.max_ms() as f64,
                    mean,
                }),
                bytes_in: figures.bytes_in,
                bytes_out: figures.bytes_out,
            },
            timeline: begin.into_iter().chain(figures.timeline.iter().map(TimelineRow::of)).collect(),
            last_tool: figures.last_tool.as_deref().map(str::to_owned),
            remote: figures.remote.map(|remote| remote.to_string()),
            transport: figures.transport.as_deref().map(str::to_owned),
        }
    }
}

impl TimelineRow {
    fn of(entry: &TimelineEntry) -> Self {
        let TimelineEntry { at, what, times } = *entry;
        Self {
            at: at.0,
            what: what.word().to_owned(),
            text: what.text().to_owned(),
            ok: what.is_well(),
            times: (times > 1).then_some(times),
        }
    }
}
