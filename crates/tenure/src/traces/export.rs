//! The queue of spans, and the loop that posts them to the collector.
//!
//! The queue is bounded: a span that finds it full is dropped and counted, and so is a batch that the collector does not take after a few
//! attempts. Nothing waits for the collector but that loop. In: spans that have ended. Out: posts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::supervise::Loops;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::context::Ratio;
use super::otlp;
use super::settings::TraceSettings;
use super::span::Span;
use crate::failure::Failure;

/// Attempts at one batch.
const ATTEMPTS: u32 = 3;

/// The first pause between two attempts, which doubles, and the longest that a collector may ask for.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long the last batches may take when the process stops.
const LAST: Duration = Duration::from_secs(2);

/// What became of spans.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanCounts {
    pub(crate) exported: Counter,
    pub(crate) dropped: Counter,
}

/// Traces requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tracer(Arc<Inner>);

struct Inner {
    ratio: Ratio,
    queue: mpsc::Sender<Span>,
    counts: SpanCounts,
    collector: Collector,
    /// The other end of the queue, while no loop has it.
    waiting: Mutex<Option<mpsc::Receiver<Span>>>,
    /// Whether the last post worked, so that a failure is logged once and not for every batch.
    is_well: Mutex<bool>,
}

struct Collector {
    client: Client,
    settings: TraceSettings,
    headers: HeaderMap,
}

impl Tracer {
    /// Sends spans as these settings say.
    pub(crate) fn new(settings: TraceSettings, counts: SpanCounts) -> Result<Self, Failure> {
        let bad = |what: String| Failure::new("cannot send traces").because(what);
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let wrong = || bad(format!("the header `{name}` cannot be sent"));
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).map_err(|_| wrong())?, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        // Without a crypto provider, building a client with TLS panics. Fails if one is installed already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::builder()
            .timeout(settings.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| bad(error.to_string()))?;
        let (queue, waiting) = mpsc::channel(settings.queue);
        let ratio = Ratio::new(settings.share);
        let (waiting, is_well) = (Mutex::new(Some(waiting)), Mutex::new(true));
        let collector = Collector { client, settings, headers };
        Ok(Self(Arc::new(Inner { ratio, queue, counts, collector, waiting, is_well })))
    }

    pub(super) fn ratio(&self) -> Ratio {
        self.0.ratio
    }

    pub(super) fn now(&self) -> Time {
        SystemClock.now()
    }

    /// Takes a span that has ended. Never waits.
    pub(super) fn ended(&self, span: Span) {
        if self.0.queue.try_send(span).is_err() {
            self.0.counts.dropped.inc();
        }
    }

    /// Sends spans until it is stopped, and then those that wait.
    pub(crate) fn run(
        &self,
        loops: &Loops,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (tracer, stopped) = (self.clone(), stop.clone());
        loops.keep("export of traces", stop, move || {
            let (tracer, stop) = (tracer.clone(), stopped.clone());
            async move { tracer.export(&stop).await }
        })
    }

    async fn export(&self, stop: &CancellationToken) {
        let most = self.0.collector.settings.batch;
        let mut batch = Vec::with_capacity(most);
        let Some(mut waiting) = Lent::take(&self.0) else { return stop.cancelled().await };
        while stop.run_until_cancelled(self.gather(waiting.spans(), &mut batch)).await.is_some() {
            let spans = std::mem::take(&mut batch);
            let count = spans.len() as u64;
            let sent = stop.run_until_cancelled(self.post(spans)).await;
            self.count(sent == Some(true), count);
        }
        let until = Instant::now() + LAST;
        loop {
            while batch.len() < most
                && let Ok(span) = waiting.spans().try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            let spans = std::mem::take(&mut batch);
            let count = spans.len() as u64;
            let sent = tokio::time::timeout_at(until, self.post(spans)).await;
            self.count(sent == Ok(true), count);
        }
    }

    /// Waits for a span, and then for others until there are enough or it has waited long enough.
    async fn gather(&self, waiting: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
        let settings = &self.0.collector.settings;
        let Some(first) = waiting.recv().await else { return std::future::pending().await };
        batch.push(first);
        let more = async {
            while batch.len() < settings.batch {
                let room = settings.batch - batch.len();
                waiting.recv_many(batch, room).await;
            }
        };
        // Late or not, there is at least one.
        drop(tokio::time::timeout(settings.delay, more).await);
    }

    fn count(&self, is_sent: bool, spans: u64) {
        let counts = &self.0.counts;
        if is_sent {
            counts.exported.inc_by(spans)
        } else {
            counts.dropped.inc_by(spans)
        };
        let was_well = std::mem::replace(&mut *self.0.is_well.lock(), is_sent);
        match (was_well, is_sent) {
            (true, false) => tracing::warn!(spans, "the collector takes no traces; spans are dropped"),
            (false, true) => tracing::info!("the collector takes traces again"),
            _ => {}
        }
    }

    /// Posts a batch, a few times if the collector asks for that or cannot be reached. Returns whether it was taken.
    async fn post(&self, spans: Vec<Span>) -> bool {
        let Collector { client, settings, headers } = &self.0.collector;
        let body = bytes::Bytes::from(otlp::body(&settings.resource, spans));
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            let posted = client.post(&settings.url).headers(headers.clone()).body(body.clone()).send().await;
            let asked = match posted {
                Ok(response) if response.status().is_success() => return true,
                Ok(response) => {
                    let status = response.status();
                    tracing::debug!(%status, attempt, "the collector refused a batch of spans");
                    if !may_try_again(status) {
                        return false;
                    }
                    let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok());
                    after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
                }
                Err(error) => {
                    let error = error.without_url();
                    tracing::debug!(%error, attempt, "the collector cannot be reached");
                    None
                }
            };
            if attempt < ATTEMPTS {
                tokio::time::sleep(asked.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                pause *= 2;
            }
        }
        false
    }
}

/// The answers after which OTLP lets a client try again.
fn may_try_again(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// The end of the queue, in the hands of the loop. A loop that panics gives it back, for the next one.
struct Lent<'a>(&'a Inner, Option<mpsc::Receiver<Span>>);

impl<'a> Lent<'a> {
    fn take(inner: &'a Inner) -> Option<Self> {
        let spans = inner.waiting.lock().take()?;
        Some(Self(inner, Some(spans)))
    }

    fn spans(&mut self) -> &mut mpsc::Receiver<Span> {
        self.1.as_mut().expect("it is given back only at the end")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock() = self.1.take();
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("ratio", &self.0.ratio).finish_non_exhaustive()
    }
}
