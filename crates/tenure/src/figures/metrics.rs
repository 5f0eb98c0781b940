//! The metrics that are counted as things happen, by their names in Prometheus.
//!
//! A handle is made once; where labels differ from event to event, all of them are of a bounded set. The values of things that can be
//! read on demand are in `watched`. `docs/metrics.md` lists all names, and a test holds both against each other.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The buckets that the conventions of OpenTelemetry for MCP name, in seconds.
const OPERATION_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The same for sessions, which live longer than those end at.
const SESSION_BUCKETS: [f64; 13] = [
    1.0,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1_800.0,
    7_200.0,
    21_600.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
];

/// For waking a session, which may start a program.
const WAKE_BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

/// For an append, which may wait for a disk.
const APPEND_BUCKETS: [f64; 10] = [0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The labels of an operation. Unset ones are written as empty, which is the same as missing.
#[derive(Clone, Hash, PartialEq, Eq, EncodeLabelSet, Debug)]
pub(super) struct OperationLabels {
    pub(super) mcp_method_name: &'static str,
    pub(super) gen_ai_tool_name: Option<Arc<str>>,
    pub(super) error_type: Option<&'static str>,
    pub(super) mcp_protocol_version: Option<&'static str>,
    pub(super) network_transport: &'static str,
    pub(super) tenure_backend: Arc<str>,
}

/// The labels of an operation at a server behind.
#[derive(Clone, Hash, PartialEq, Eq, EncodeLabelSet, Debug)]
pub(super) struct ClientLabels {
    pub(super) mcp_method_name: &'static str,
    pub(super) gen_ai_tool_name: Option<Arc<str>>,
    pub(super) error_type: Option<&'static str>,
    pub(super) tenure_backend: Arc<str>,
}

macro_rules! one_label {
    ($($name:ident: $label:ident;)*) => {
        $(#[derive(Clone, Hash, PartialEq, Eq, EncodeLabelSet, Debug)]
        pub(super) struct $name {
            pub(super) $label: &'static str,
        })*
    };
}

one_label! {
    ByReason: reason;
    ByOutcome: outcome;
    ByKind: kind;
    ByCause: cause;
}

#[derive(Clone, Hash, PartialEq, Eq, EncodeLabelSet, Debug)]
pub(super) struct AuthLabels {
    pub(super) result: &'static str,
    pub(super) reason: &'static str,
}

#[derive(Clone, Hash, PartialEq, Eq, EncodeLabelSet, Debug)]
pub(super) struct StartLabels {
    pub(super) backend: Arc<str>,
    pub(super) outcome: &'static str,
}

#[derive(Clone, Hash, PartialEq, Eq, EncodeLabelSet, Debug)]
pub(super) struct ByBackend {
    pub(super) backend: Arc<str>,
}

/// The metrics, and the registry that writes them.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Mutex<Registry>,
    pub(super) operations: Histograms<OperationLabels>,
    pub(super) client_operations: Histograms<ClientLabels>,
    pub(super) session_duration: Histogram,
    pub(super) created: Counter,
    pub(super) ended: Family<ByReason, Counter>,
    pub(super) wake_duration: Histogram,
    pub(super) wakes: Family<ByOutcome, Counter>,
    pub(super) streams: Family<ByKind, Gauge>,
    pub(super) resumes: Family<ByOutcome, Counter>,
    pub(super) replayed: Counter,
    pub(super) waiting: Gauge,
    pub(super) interrupted: Family<ByOutcome, Counter>,
    pub(super) detached: Family<ByCause, Counter>,
    pub(super) refused: Family<ByReason, Counter>,
    pub(super) limited: Family<ByReason, Counter>,
    pub(super) auth: Family<AuthLabels, Counter>,
    pub(super) in_flight: Family<ByBackend, Gauge>,
    pub(super) backend_up: Family<ByBackend, Gauge>,
    pub(super) starts: Family<StartLabels, Counter>,
    pub(super) append_duration: Histogram,
    pub(super) unlogged: Counter,
    pub(super) takeovers: Counter,
    pub(super) given_up: Counter,
    pub(super) spans_exported: Counter,
    pub(super) spans_dropped: Counter,
    pub(super) loop_lag: Gauge<f64, AtomicU64>,
}

fn operations() -> Histogram {
    Histogram::new(OPERATION_BUCKETS)
}

impl Metrics {
    pub(super) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            operations: Family::new_with_constructor(operations),
            client_operations: Family::new_with_constructor(operations),
            session_duration: Histogram::new(SESSION_BUCKETS),
            created: Counter::default(),
            ended: Family::default(),
            wake_duration: Histogram::new(WAKE_BUCKETS),
            wakes: Family::default(),
            streams: Family::default(),
            resumes: Family::default(),
            replayed: Counter::default(),
            waiting: Gauge::default(),
            interrupted: Family::default(),
            detached: Family::default(),
            refused: Family::default(),
            limited: Family::default(),
            auth: Family::default(),
            in_flight: Family::default(),
            backend_up: Family::default(),
            starts: Family::default(),
            append_duration: Histogram::new(APPEND_BUCKETS),
            unlogged: Counter::default(),
            takeovers: Counter::default(),
            given_up: Counter::default(),
            spans_exported: Counter::default(),
            spans_dropped: Counter::default(),
            loop_lag: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let registry = &mut *self.registry.lock();
        macro_rules! add {
            ($($name:literal, $help:literal, $($field:ident).+;)*) => {
                $(registry.register($name, $help, self.$($field).+.clone());)*
            };
        }
        add! {
            "mcp_server_operation_duration_seconds", "How long requests of clients took, from their head to the end of their answer", operations;
            "mcp_client_operation_duration_seconds", "How long requests to servers behind took", client_operations;
            "mcp_server_session_duration_seconds", "How long sessions lived that ended while they were in memory", session_duration;
            "tenure_sessions_created", "Sessions created", created;
            "tenure_sessions_ended", "Sessions ended, by how", ended;
            "tenure_session_wake_duration_seconds", "How long it took to wake dormant sessions", wake_duration;
            "tenure_wakes", "Attempts to wake a dormant session", wakes;
            "tenure_streams", "Streams that a connection reads", streams;
            "tenure_stream_resumes", "Clients that came back to a stream, by outcome", resumes;
            "tenure_events_replayed", "Events that were read from the log for clients that came back", replayed;
            "tenure_calls_waiting_for_client", "Questions to clients that are open", waiting;
            "tenure_calls_interrupted", "Calls that were open when a process ended: run again, or answered with an error", interrupted;
            "tenure_readers_detached", "Connections that stopped reading a stream: it broke, or it was done", detached;
            "tenure_refused", "Requests that were answered with an error of our own, by reason", refused;
            "tenure_limited", "Requests that a limit refused, by reason", limited;
            "tenure_auth", "Requests by whether their credentials were good, where credentials are asked for", auth;
            "tenure_calls_in_flight", "Requests that a server behind has not answered", in_flight;
            "tenure_backend_up", "Whether the last attempt to reach the server worked", backend_up;
            "tenure_backend_starts", "Links to servers behind that were opened, or could not be", starts;
            "tenure_store_append_duration_seconds", "How long it took to write events to the log", append_duration;
            "tenure_events_unlogged", "Events that could not be written to the log", unlogged;
            "tenure_takeovers", "Sessions that this node took over from another one", takeovers;
            "tenure_given_up", "Sessions that this node gave up to another one", given_up;
            "tenure_spans_exported", "Spans that the collector took", spans_exported;
            "tenure_spans_dropped", "Spans that were dropped: too many waited, or the collector did not take them", spans_dropped;
            "tenure_loop_lag_seconds", "How late timers were in the last second, at most", loop_lag;
        }
    }

    /// Adds the values that are read on demand.
    pub(super) fn add(&self, collector: impl prometheus_client::collector::Collector) {
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// Sets the labels that are known beforehand, so that a counter is 0 before its first event and not missing.
    pub(super) fn begin(&self) {
        for reason in ["deleted", "expired", "revoked"] {
            drop(self.ended.get_or_create_owned(&ByReason { reason }));
        }
        for outcome in ["replayed", "gap", "foreign", "fresh"] {
            drop(self.resumes.get_or_create_owned(&ByOutcome { outcome }));
        }
        for outcome in ["rerun", "error"] {
            drop(self.interrupted.get_or_create_owned(&ByOutcome { outcome }));
        }
        for outcome in ["woken", "failed"] {
            drop(self.wakes.get_or_create_owned(&ByOutcome { outcome }));
        }
        for kind in ["standalone", "request"] {
            drop(self.streams.get_or_create_owned(&ByKind { kind }));
        }
        for cause in ["broken", "done"] {
            drop(self.detached.get_or_create_owned(&ByCause { cause }));
        }
        drop(self.auth.get_or_create_owned(&AuthLabels { result: "accepted", reason: "" }));
        for reason in ["rate_limited", "quota_exceeded"] {
            drop(self.limited.get_or_create_owned(&ByReason { reason }));
        }
    }

    /// All of it as OpenMetrics.
    pub(super) fn open_metrics(&self) -> String {
        let mut text = String::with_capacity(64 << 10);
        let written = text::encode(&mut text, &self.registry.lock());
        debug_assert!(written.is_ok(), "a text can always be written to");
        text
    }

    /// All of it in the text format of Prometheus, which tools of the command line read.
    pub(super) fn text(&self) -> String {
        plain(&self.open_metrics())
    }
}

/// Rewrites OpenMetrics as the older text format: there the name of a counter has its suffix in the comments too.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 1024);
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let is_counter = |name: &str, kind: Option<&&str>| {
            kind.is_some_and(|kind| {
                kind.strip_prefix("# TYPE ").is_some_and(|rest| rest == format!("{name} counter"))
            })
        };
        let renamed = match line.split_once(' ') {
            Some(("#", rest)) => match rest.split_once(' ') {
                Some(("HELP", rest)) => {
                    let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
                    is_counter(name, lines.peek()).then(|| format!("# HELP {name}_total {help}"))
                }
                Some(("TYPE", rest)) => {
                    rest.strip_suffix(" counter").map(|name| format!("# TYPE {name}_total counter"))
                }
                _ => None,
            },
            _ => None,
        };
        text.push_str(renamed.as_deref().unwrap_or(line));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_form_names_counters_as_their_samples_are_named() {
        let metrics = Metrics::new();
        metrics.created.inc_by(3);
        metrics.resumes.get_or_create(&ByOutcome { outcome: "gap" }).inc();
        let text = metrics.text();
        assert!(text.contains("# HELP tenure_sessions_created_total Sessions created.\n# TYPE tenure_sessions_created_total counter\ntenure_sessions_created_total 3\n"), "{text}");
        assert!(text.contains("tenure_stream_resumes_total{outcome=\"gap\"} 1\n"), "{text}");
        assert!(text.contains("# TYPE tenure_loop_lag_seconds gauge\n") && !text.contains("# EOF"), "{text}");
        assert!(metrics.open_metrics().ends_with("# EOF\n"));
    }
}
