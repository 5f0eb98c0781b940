//! All counters of the process, in one value.
//!
//! In: the events of `observers` and `behind`. Out: answers for operators, the text of `/metrics`, and live events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tenure_session::SessionKey;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::supervise::Loops;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::behind::Servers;
use super::calls::RecentCalls;
use super::ended::EndedSessions;
use super::history::{Steps, Totals};
use super::latency::Latency;
use super::metrics::{ByKind, ByOutcome, Metrics};
use super::process::Process;
use super::tools::Tools;
use super::uncounted::Uncounted;
use super::view::{
    EndedRow, History, Live, Now, ProcessFigures, RecentCall, ResumeCounts, SessionStory, Span, ToolRow,
};
use super::watched::Watched;

/// Rows that wait for a subscriber; one that is slower loses the oldest.
const LIVE_ROWS: usize = 1024;

/// The length of a step.
const STEP: Duration = Duration::from_secs(1);

/// How often the lateness of timers is measured, and requests that have ended are counted.
const LAG_LOOK: Duration = Duration::from_millis(100);

/// All counters of the process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Figures(pub(super) Arc<Counted>);

pub(super) struct Counted {
    pub(super) uncounted: Uncounted,
    pub(super) metrics: Metrics,
    pub(super) tools: Tools,
    pub(super) servers: Servers,
    pub(super) latency: Latency,
    pub(super) calls: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) tool_calls: AtomicU64,
    pub(super) resource_reads: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) answered_us: AtomicU64,
    pub(super) recent: RecentCalls,
    pub(super) ended: EndedSessions,
    pub(super) live: broadcast::Sender<Live>,
    pub(super) watched: OnceLock<Watched>,
    steps: Steps,
    /// How late timers were in the last second, in microseconds.
    lag_us: AtomicU64,
}

impl Figures {
    pub(crate) fn new() -> Self {
        let metrics = Metrics::new();
        metrics.begin();
        Self(Arc::new(Counted {
            uncounted: Uncounted::new(),
            metrics,
            tools: Tools::new(),
            servers: Servers::default(),
            latency: Latency::default(),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            tool_calls: AtomicU64::new(0),
            resource_reads: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            answered_us: AtomicU64::new(0),
            recent: RecentCalls::default(),
            ended: EndedSessions::default(),
            live: broadcast::Sender::new(LIVE_ROWS),
            watched: OnceLock::new(),
            steps: Steps::default(),
            lag_us: AtomicU64::new(0),
        }))
    }

    /// Gives it the parts of the node that are read on demand. Called once.
    pub(crate) fn watch(&self, watched: Watched) {
        self.0.metrics.add(watched.clone());
        drop(self.0.watched.set(watched));
    }

    /// The counters of spans: those that the collector took, and those that were dropped.
    pub(crate) fn of_spans(&self) -> (Counter, Counter) {
        (self.0.metrics.spans_exported.clone(), self.0.metrics.spans_dropped.clone())
    }

    /// The state of the process.
    pub(crate) fn now(&self) -> Now {
        self.0.count_all();
        let metrics = &self.0.metrics;
        let process = Process::read();
        let resumes = |outcome| metrics.resumes.get_or_create_owned(&ByOutcome { outcome }).get();
        let readers = |kind| metrics.streams.get_or_create_owned(&ByKind { kind }).get();
        let backends = self.0.servers.rows(&self.0.tools);
        Now {
            rates: self.0.steps.rates(),
            in_flight: backends.iter().map(|row| row.in_flight).sum(),
            waiting_for_client: u64::try_from(metrics.waiting.get()).unwrap_or_default(),
            readers: u64::try_from(readers("standalone") + readers("request")).unwrap_or_default(),
            resumes: ResumeCounts {
                replayed: resumes("replayed"),
                gap: resumes("gap"),
                foreign: resumes("foreign"),
                fresh: resumes("fresh"),
            },
            refused: self.refused(),
            process: ProcessFigures {
                rss_bytes: process.rss_bytes,
                cpu_s: process.cpu_s,
                #[expect(clippy::cast_precision_loss, reason = "a time in ms")]
                loop_lag_ms: self.0.lag_us.load(Ordering::Relaxed) as f64 / 1000.0,
                descriptors: process.descriptors,
            },
            backends,
        }
    }

    /// Requests that were refused, by reason.
    fn refused(&self) -> BTreeMap<String, u64> {
        let of = |reason: &tenure_protocol::Reason| {
            let labels = super::metrics::ByReason { reason: reason.as_str() };
            let count = self.0.metrics.refused.get(&labels).map(|count| count.get())?;
            Some((reason.as_str().to_owned(), count))
        };
        tenure_protocol::Reason::ALL.iter().filter_map(of).collect()
    }

    /// The last minutes, or the last day.
    pub(crate) fn history(&self, span: Span) -> History {
        self.0.steps.history(span)
    }

    /// The calls that ended last, the newest first.
    pub(crate) fn recent_calls(&self, limit: usize) -> Vec<RecentCall> {
        self.0.count_all();
        self.0.recent.last(limit)
    }

    /// The tools that were called in the last hour, the slowest first.
    pub(crate) fn slowest(&self) -> Vec<ToolRow> {
        self.0.count_all();
        self.0.tools.slowest()
    }

    /// The sessions that ended last, the newest first.
    pub(crate) fn ended_sessions(&self, limit: usize) -> Vec<EndedRow> {
        self.0.ended.last(limit)
    }

    /// How many sessions ended since then, of those that ended last.
    pub(crate) fn ended_since(&self, since: Time) -> usize {
        self.0.ended.since(since)
    }

    /// What was counted of a session, awake or dormant, and what happened to it.
    ///
    /// # Cancel safety
    /// It only reads.
    pub(crate) async fn of_session(&self, key: &SessionKey) -> Option<SessionStory> {
        let watched = self.0.watched.get()?;
        let (figures, created) = watched.sessions().figures_of(key).await?;
        Some(SessionStory::of(&figures, Some(created)))
    }

    /// The events from now on. A subscriber that is too slow loses the oldest rows, and is told how many.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Live> {
        self.0.live.subscribe()
    }

    /// The text of `/metrics`, for tools that know only the older format.
    pub(crate) fn metrics_text(&self) -> String {
        self.0.count_all();
        self.0.metrics.text()
    }

    /// The same as OpenMetrics.
    pub(crate) fn open_metrics(&self) -> String {
        self.0.count_all();
        self.0.metrics.open_metrics()
    }

    /// Keeps the history until it is stopped.
    pub(crate) fn run(
        &self,
        loops: &Loops,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (figures, stopped) = (self.clone(), stop.clone());
        loops.keep("history of figures", stop, move || {
            let (figures, stop) = (figures.clone(), stopped.clone());
            async move {
                stop.run_until_cancelled(figures.keep_history()).await;
            }
        })
    }

    async fn keep_history(self) {
        let mut next = Instant::now() + STEP;
        let mut lag = Duration::ZERO;
        loop {
            let due = Instant::now() + LAG_LOOK;
            tokio::time::sleep_until(due).await;
            lag = lag.max(due.elapsed());
            self.0.count_all();
            if Instant::now() < next {
                continue;
            }
            // A process that was stopped for a while does not make up for the steps that it missed.
            next = (next + STEP).max(Instant::now());
            self.0.lag_us.store(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.0.metrics.loop_lag.set(lag.as_secs_f64());
            lag = Duration::ZERO;
            self.end_step();
        }
    }

    fn end_step(&self) {
        let totals = self.totals();
        self.0.steps.end_step(SystemClock.now(), totals);
    }

    pub(super) fn totals(&self) -> Totals {
        self.0.count_all();
        let metrics = &self.0.metrics;
        let resumes = |outcome| metrics.resumes.get_or_create_owned(&ByOutcome { outcome }).get();
        let awake = self.0.watched.get().map_or(0, |watched| watched.sessions().tallies().awake as u64);
        Totals {
            calls: self.0.calls.load(Ordering::Relaxed),
            errors: self.0.errors.load(Ordering::Relaxed),
            refused: self.refused().values().sum(),
            resumes: ["replayed", "gap", "foreign", "fresh"].map(resumes).iter().sum(),
            awake,
            latency: self.0.latency.snapshot(),
        }
    }
}

impl std::fmt::Debug for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Figures")
    }
}
