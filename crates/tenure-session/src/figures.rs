//! The counters of one session, and the events of its life, both bounded.
//!
//! Kept in memory while the session is awake and in its record otherwise. The record is never written for them alone, so a
//! kill of the process loses what was counted since the last write. In: requests from the transport, events from the
//! runtime. Out: numbers for operators.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use tenure_protocol::Method;

use crate::port::clock::Time;

/// Entries of a timeline. When it is full, the oldest goes.
pub const LONGEST_TIMELINE: usize = 32;

/// Upper bounds of the latency classes in ms; one more class has no bound.
const BOUNDS_MS: [u32; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/// The longest name of a tool that is kept.
const LONGEST_TOOL: usize = 128;

/// The counters of one session since it was created.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(default)]
pub struct SessionFigures {
    /// Requests that were answered, or given up by the client.
    #[serde(skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Those of them that called a tool.
    #[serde(skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
    /// Those of them that read a resource.
    #[serde(skip_serializing_if = "is_zero")]
    pub resource_reads: u64,
    /// Those of them that ended with an error, or with a result that says that the tool failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub errors: u64,
    /// Bytes of requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes_in: u64,
    /// Bytes of answers.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes_out: u64,
    /// How long answers took.
    #[serde(skip_serializing_if = "LatencyCounts::is_empty")]
    pub latency: LatencyCounts,
    /// The tool that was called last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_tool: Option<Box<str>>,
    /// The address that the last request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// The transport of the last request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Box<str>>,
    /// What happened to the session, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelineEntry>,
}

/// How many answers took how long.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(default)]
pub struct LatencyCounts {
    /// Answers in each class; classes at the end without any are left out.
    counts: Vec<u32>,
    /// All of them together.
    sum_ms: u64,
    /// The longest.
    max_ms: u64,
}

/// One thing that happened to a session, or the same thing several times in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimelineEntry {
    /// When it happened last.
    pub at: Time,
    /// What happened.
    pub what: TimelineEvent,
    /// How often in a row.
    pub times: u32,
}

macro_rules! timeline_events {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $is_well:literal, $text:literal;)*) => {
        /// An event in the life of a session. Its beginning and its end are not among them: the record has these.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum TimelineEvent {
            $($(#[doc = $doc])+ $variant,)*
            /// A word of a newer version of this program.
            Unknown,
        }

        impl TimelineEvent {
            /// The word for it in records and answers.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* Self::Unknown => "unknown" }
            }

            /// A sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* Self::Unknown => "something that this version does not know" }
            }

            /// Whether it is in order; otherwise the client may have had trouble.
            pub const fn is_well(self) -> bool {
                match self { $(Self::$variant => $is_well,)* Self::Unknown => true }
            }

            fn of_word(word: &str) -> Self {
                match word { $($word => Self::$variant,)* _ => Self::Unknown }
            }
        }
    };
}

timeline_events! {
    /// Its next request woke it.
    Woken = "woken", true, "a request woke the session";
    /// It was not used and left the memory.
    Slept = "slept", true, "the session was not used and went dormant";
    /// A connection of a stream broke before the stream was over.
    Dropped = "dropped", false, "a connection broke while its stream went on";
    /// The client came back to a stream and got everything.
    Resumed = "resumed", true, "the client came back and got everything that it had missed";
    /// The client came back to a stream of which events were no longer kept.
    ResumedWithGap = "resumed_with_gap", false, "the client came back, and some events were no longer kept";
    /// The client came back with an id that is not of this session.
    ResumedForeign = "resumed_foreign", false, "the client came back with an event id that is not of this session";
    /// A new connection replaced the reader of a stream.
    Replaced = "replaced", true, "a new connection took the place of the reader of a stream";
    /// A request that was open when the process ended was answered with an error.
    Interrupted = "interrupted", false, "a request was interrupted by a restart and answered with an error";
    /// A request that was open when the process ended was run again.
    RunAgain = "rerun", true, "a request that was open at a restart was run again";
    /// Another node had it before.
    TakenOver = "taken_over", true, "this node took the session over from another one";
    /// The client was asked something.
    Asked = "asked", true, "the server asked the client something";
    /// The client answered.
    Answered = "answered", true, "the client answered";
    /// The client did not answer, or with an error.
    NotAnswered = "not_answered", false, "the client did not answer the question, or answered with an error";
    /// Its metadata or its idle time were changed.
    Annotated = "annotated", true, "its metadata or its lifetime were changed";
}

impl Serialize for TimelineEntry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.at.0, self.what.word(), self.times).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TimelineEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (at, word, times) = <(u64, String, u32)>::deserialize(deserializer)?;
        Ok(Self { at: Time(at), what: TimelineEvent::of_word(&word), times })
    }
}

/// A request that has ended, for the figures of its session.
#[derive(Clone, Copy, Debug)]
pub struct RequestFigures<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The tool or resource that it names.
    pub name: Option<&'a str>,
    /// Whether it ended with an error, or with a result that says that the tool failed.
    pub has_failed: bool,
    /// How long it took, if it was answered.
    pub took: Option<Duration>,
    /// Bytes of the request.
    pub bytes_in: u64,
    /// Bytes of the answer.
    pub bytes_out: u64,
    /// The address it came from.
    pub remote: Option<SocketAddr>,
    /// Its transport.
    pub transport: &'static str,
}

impl SessionFigures {
    /// Counts a request that has ended.
    pub fn count(&mut self, request: &RequestFigures<'_>) {
        self.requests += 1;
        self.errors += u64::from(request.has_failed);
        self.bytes_in += request.bytes_in;
        self.bytes_out += request.bytes_out;
        if let Some(took) = request.took {
            self.latency.add(took);
        }
        self.remote = request.remote.or(self.remote);
        if self.transport.as_deref() != Some(request.transport) {
            self.transport = Some(request.transport.into());
        }
        match request.method {
            Method::ToolsCall => {
                self.tool_calls += 1;
                let tool = request.name.map(|name| &name[..name.floor_char_boundary(LONGEST_TOOL)]);
                if tool.is_some() && self.last_tool.as_deref() != tool {
                    self.last_tool = tool.map(Box::from);
                }
            }
            Method::ResourcesRead => self.resource_reads += 1,
            _ => {}
        }
    }

    /// Notes something that happened.
    pub fn note(&mut self, at: Time, what: TimelineEvent) {
        if let Some(last) = self.timeline.last_mut().filter(|last| last.what == what) {
            (last.at, last.times) = (at, last.times.saturating_add(1));
            return;
        }
        if self.timeline.len() >= LONGEST_TIMELINE {
            self.timeline.remove(0);
        }
        self.timeline.push(TimelineEntry { at, what, times: 1 });
    }

    /// Takes back the last note, if it is this one.
    pub(crate) fn take_back(&mut self, what: TimelineEvent) {
        if let Some(last) = self.timeline.pop_if(|last| last.what == what)
            && last.times > 1
        {
            self.timeline.push(TimelineEntry { times: last.times - 1, ..last });
        }
    }
}

impl LatencyCounts {
    fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Counts an answer.
    pub fn add(&mut self, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let class = BOUNDS_MS.iter().position(|bound| took <= Duration::from_millis((*bound).into()));
        let class = class.unwrap_or(BOUNDS_MS.len());
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] = self.counts[class].saturating_add(1);
        self.sum_ms = self.sum_ms.saturating_add(ms);
        self.max_ms = self.max_ms.max(ms);
    }

    /// The time in ms that this share of the answers (0 to 1) did not exceed, as far as the classes tell. `None` without
    /// answers.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let bounds = BOUNDS_MS.map(f64::from);
        let found = quantile(self.counts.iter().map(|count| u64::from(*count)), &bounds, share)?;
        #[expect(clippy::cast_precision_loss, reason = "a time in ms")]
        Some(found.min(self.max_ms.max(1) as f64))
    }

    /// The longest in ms.
    pub fn max_ms(&self) -> u64 {
        self.max_ms
    }

    /// The mean in ms.
    #[expect(clippy::cast_precision_loss, reason = "a mean need not be exact")]
    pub fn mean_ms(&self) -> Option<f64> {
        let count: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        (count > 0).then(|| self.sum_ms as f64 / count as f64)
    }
}

/// The value that this share of what was counted does not exceed. Within a class it is interpolated; the class without an
/// upper bound counts as its lower bound. `None` if nothing was counted.
#[expect(clippy::cast_precision_loss, reason = "a quantile need not be exact")]
pub fn quantile(counts: impl Iterator<Item = u64> + Clone, bounds: &[f64], share: f64) -> Option<f64> {
    let total: u64 = counts.clone().sum();
    if total == 0 {
        return None;
    }
    let wanted = share * total as f64;
    let (mut before, mut lower) = (0, 0.0);
    for (class, count) in counts.enumerate() {
        let Some(upper) = bounds.get(class).copied() else { return Some(lower) };
        if count > 0 && (before + count) as f64 >= wanted {
            let within = ((wanted - before as f64) / count as f64).clamp(0.0, 1.0);
            return Some(lower + (upper - lower) * within);
        }
        (before, lower) = (before + count, upper);
    }
    Some(lower)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Reads figures from a record. Figures that cannot be read are left out: the session must not be lost for them.
pub(crate) fn of_record<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<SessionFigures>>, D::Error> {
    let raw = Option::<Box<serde_json::value::RawValue>>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(method: &'a Method, name: Option<&'a str>, ms: u64) -> RequestFigures<'a> {
        RequestFigures {
            method,
            name,
            has_failed: ms > 1_000,
            took: Some(Duration::from_millis(ms)),
            bytes_in: 10,
            bytes_out: 100,
            remote: None,
            transport: "http",
        }
    }

    #[test]
    fn figures_count_what_was_asked_and_come_back_from_their_record() {
        let mut figures = SessionFigures::default();
        for _ in 0..98 {
            figures.count(&request(&Method::ToolsCall, Some("echo"), 3));
        }
        figures.count(&request(&Method::ResourcesRead, Some("file:///a"), 4));
        figures.count(&request(&Method::ToolsCall, Some("slow"), 7_000));
        figures.note(Time(5), TimelineEvent::Dropped);
        figures.note(Time(9), TimelineEvent::Dropped);
        figures.note(Time(10), TimelineEvent::Resumed);
        assert_eq!(
            (figures.requests, figures.tool_calls, figures.resource_reads, figures.errors),
            (100, 99, 1, 1)
        );
        assert_eq!((figures.bytes_in, figures.bytes_out, figures.latency.max_ms()), (1_000, 10_000, 7_000));
        assert_eq!(figures.last_tool.as_deref(), Some("slow"));
        let (median, last) = (figures.latency.quantile(0.5).unwrap(), figures.latency.quantile(1.0).unwrap());
        assert!((2.0..=5.0).contains(&median) && (last - 7_000.0).abs() < 1.0, "{median} {last}");
        let written = serde_json::to_string(&figures).unwrap();
        assert!(written.contains(r#""timeline":[[9,"dropped",2],[10,"resumed",1]]"#), "{written}");
        assert_eq!(serde_json::from_str::<SessionFigures>(&written).unwrap(), figures);
        figures.take_back(TimelineEvent::Slept);
        figures.take_back(TimelineEvent::Resumed);
        figures.take_back(TimelineEvent::Dropped);
        assert_eq!(figures.timeline, [TimelineEntry { at: Time(9), what: TimelineEvent::Dropped, times: 1 }]);
    }

    #[test]
    fn a_timeline_is_bounded_and_takes_words_of_newer_versions() {
        let mut figures = SessionFigures::default();
        for at in 0..1_000 {
            let what = if at % 2 == 0 { TimelineEvent::Slept } else { TimelineEvent::Woken };
            figures.note(Time(at), what);
        }
        assert_eq!(figures.timeline.len(), LONGEST_TIMELINE);
        assert_eq!(figures.timeline.last().unwrap().at, Time(999));
        let read: SessionFigures =
            serde_json::from_str(r#"{"timeline":[[1,"teleported",1]],"x":1}"#).unwrap();
        assert_eq!(read.timeline[0].what, TimelineEvent::Unknown);
    }

    #[test]
    fn quantiles_are_interpolated_within_their_class() {
        let bounds = [10.0, 20.0];
        let of = |counts: [u64; 3], share| quantile(counts.into_iter(), &bounds, share);
        assert_eq!(of([0, 0, 0], 0.5), None);
        assert_eq!(of([10, 0, 0], 0.5), Some(5.0));
        assert_eq!(of([5, 5, 0], 0.9), Some(18.0));
        assert_eq!(of([0, 0, 3], 0.5), Some(20.0), "beyond the last bound nothing more is known");
    }
}
