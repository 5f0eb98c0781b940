//! Which names of tools become labels, and how each tool did in the last hour.
//!
//! Only names from a server's own list count, at most 200 for each endpoint; all others together are `_other`. A client can
//! therefore not make series. In: answers to `tools/list` that passed, and calls that ended. Out: a name that is shared by all that
//! use it, and the histogram of the calls that went well.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::histogram::Histogram;
use serde::Deserialize;
use tenure_protocol::RawJson;
use tokio::time::Instant;

use super::latency::LatencySnapshot;
use super::view::ToolRow;

/// Names for each endpoint.
const MOST: usize = 200;

/// The longest name that becomes a label.
const LONGEST: usize = 128;

/// The name of all tools that are not in a list.
pub(super) const OTHER: &str = "_other";

/// Parts of the hour.
const PARTS: usize = 6;
const PART: Duration = Duration::from_secs(600);

/// The tools of all endpoints.
#[derive(Debug)]
pub(super) struct Tools {
    began: Instant,
    /// By the name of the endpoint, which the configuration decides; empty for the one without a name.
    endpoints: RwLock<HashMap<Box<str>, Endpoint, RandomState>>,
}

#[derive(Debug)]
struct Endpoint {
    tools: HashMap<Arc<str>, Arc<Tool>, RandomState>,
    other: Arc<Tool>,
}

/// A tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: Arc<str>,
    endpoint: Option<Box<str>>,
    hour: Mutex<Hour>,
    /// The histograms of calls that went well, so that most calls need not look them up by all of their labels.
    well: RwLock<Vec<(CallKind, Histogram)>>,
}

/// The labels in which calls of one tool differ that go well: the revision and the transport. There are a dozen pairs.
pub(super) type CallKind = (Option<&'static str>, &'static str);

#[derive(Debug, Default)]
struct Hour {
    /// The number of the newest part.
    newest: u64,
    parts: [Part; PARTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    calls: u64,
    errors: u64,
    latency: LatencySnapshot,
}

impl Endpoint {
    fn new(endpoint: Option<&str>) -> Self {
        Self { tools: HashMap::default(), other: Tool::new(OTHER, endpoint) }
    }
}

impl Tool {
    fn new(name: &str, endpoint: Option<&str>) -> Arc<Self> {
        let endpoint = endpoint.map(Box::from);
        Arc::new(Self { name: name.into(), endpoint, hour: Mutex::default(), well: RwLock::default() })
    }

    /// Counts a call that ended in this part of an hour.
    pub(super) fn count(&self, part: u64, took: Duration, has_failed: bool) {
        let mut hour = self.hour.lock();
        let part = hour.part(part);
        part.calls += 1;
        part.errors += u64::from(has_failed);
        part.latency.add(took);
    }

    /// Adds a call that went well to its histogram, which is made or looked up only the first time.
    pub(super) fn observe_well(&self, kind: CallKind, took: Duration, histogram: impl FnOnce() -> Histogram) {
        let seconds = took.as_secs_f64();
        if let Some((_, known)) = self.well.read().iter().find(|(known, _)| *known == kind) {
            return known.observe(seconds);
        }
        let histogram = histogram();
        histogram.observe(seconds);
        let mut well = self.well.write();
        // Another call may have been first.
        if !well.iter().any(|(known, _)| *known == kind) {
            well.push((kind, histogram));
        }
    }
}

impl Hour {
    /// The part that is now; those that are older than an hour are emptied.
    fn part(&mut self, now: u64) -> &mut Part {
        let gone = now.saturating_sub(self.newest).min(PARTS as u64);
        for back in 0..gone {
            self.parts[Self::place(now - back)] = Part::default();
        }
        self.newest = self.newest.max(now);
        &mut self.parts[Self::place(now)]
    }

    fn place(part: u64) -> usize {
        usize::try_from(part % PARTS as u64).unwrap_or_default()
    }

    fn sum(&mut self, now: u64) -> Part {
        self.part(now);
        self.parts.iter().fold(Part::default(), |mut sum, part| {
            sum.calls += part.calls;
            sum.errors += part.errors;
            sum.latency.merge(&part.latency);
            sum
        })
    }
}

impl Tools {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), endpoints: RwLock::default() }
    }

    /// Takes the names out of an answer to `tools/list`.
    pub(super) fn learn(&self, endpoint: Option<&str>, result: &RawJson) {
        #[derive(Deserialize)]
        struct Listed {
            tools: Vec<Named>,
        }
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let Ok(listed) = result.read::<Listed>() else { return };
        let place = endpoint.unwrap_or_default();
        let is_known =
            |known: &Endpoint| listed.tools.iter().all(|tool| known.tools.contains_key(&*tool.name));
        if self.endpoints.read().get(place).is_some_and(is_known) {
            return;
        }
        let mut endpoints = self.endpoints.write();
        let known = endpoints.entry(place.into()).or_insert_with(|| Endpoint::new(endpoint));
        for Named { name } in &listed.tools {
            if known.tools.len() >= MOST {
                break;
            }
            if name.len() <= LONGEST && !known.tools.contains_key(&**name) {
                let tool = Tool::new(name, endpoint);
                known.tools.insert(Arc::clone(&tool.name), tool);
            }
        }
    }

    /// The tool of this name, or the one for all others.
    pub(super) fn find(&self, endpoint: Option<&str>, name: &str) -> Arc<Tool> {
        let place = endpoint.unwrap_or_default();
        if let Some(known) = self.endpoints.read().get(place) {
            return Arc::clone(known.tools.get(name).unwrap_or(&known.other));
        }
        let mut endpoints = self.endpoints.write();
        let known = endpoints.entry(place.into()).or_insert_with(|| Endpoint::new(endpoint));
        Arc::clone(known.tools.get(name).unwrap_or(&known.other))
    }

    /// How many names of an endpoint are known.
    pub(super) fn count(&self, endpoint: Option<&str>) -> usize {
        self.endpoints.read().get(endpoint.unwrap_or_default()).map_or(0, |known| known.tools.len())
    }

    /// The number of the part of an hour that is now.
    pub(super) fn part_now(&self) -> u64 {
        self.began.elapsed().as_secs() / PART.as_secs()
    }

    /// The tools that were called in the last hour, the slowest first.
    pub(super) fn slowest(&self) -> Vec<ToolRow> {
        let tools: Vec<_> = {
            let endpoints = self.endpoints.read();
            endpoints.values().flat_map(|known| known.tools.values().chain([&known.other])).cloned().collect()
        };
        let now = self.part_now();
        let mut rows: Vec<_> = tools.iter().filter_map(|tool| tool.row(now)).collect();
        let by = |row: &ToolRow| row.p99_ms.unwrap_or_default();
        rows.sort_by(|one, other| by(other).total_cmp(&by(one)).then_with(|| one.tool.cmp(&other.tool)));
        rows
    }
}

impl Tool {
    fn row(&self, now: u64) -> Option<ToolRow> {
        let sum = self.hour.lock().sum(now);
        (sum.calls > 0).then(|| ToolRow {
            tool: self.name.to_string(),
            backend: self.endpoint.as_deref().map(str::to_owned),
            calls: sum.calls,
            errors: sum.errors,
            p50_ms: sum.latency.quantile(0.5),
            p99_ms: sum.latency.quantile(0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_listed_names_become_labels_and_not_more_than_two_hundred() {
        let tools = Tools::new();
        assert_eq!(&*tools.find(None, "echo").name, OTHER, "no list was seen");
        tools.learn(
            None,
            &RawJson::of(&json!({ "tools": [{ "name": "echo" }, { "name": "x".repeat(129) }] })),
        );
        assert_eq!(&*tools.find(None, "echo").name, "echo");
        assert_eq!(&*tools.find(Some("files"), "echo").name, OTHER, "another endpoint has other tools");
        assert_eq!(&*tools.find(None, &"x".repeat(129)).name, OTHER);
        let many: Vec<_> =
            (0..100_000).map(|number| json!({ "name": format!("made-up-{number}") })).collect();
        tools.learn(None, &RawJson::of(&json!({ "tools": many })));
        assert_eq!(tools.count(None), MOST);
        assert_eq!(&*tools.find(None, "made-up-99999").name, OTHER);
    }

    #[test]
    fn a_histogram_is_looked_up_once_for_each_revision_and_transport() {
        let tools = Tools::new();
        let tool = tools.find(None, "echo");
        let (mut made, took) = (Vec::new(), Duration::from_millis(2));
        for kind in [(Some("2025-11-25"), "tcp"), (None, "tcp"), (Some("2025-11-25"), "tcp"), (None, "tcp")] {
            tool.observe_well(kind, took, || {
                let histogram = Histogram::new([1.0]);
                made.push(histogram.clone());
                histogram
            });
        }
        let counts: Vec<_> = made.iter().map(|histogram| format!("{histogram:?}")).collect();
        assert_eq!(counts.len(), 2);
        assert!(counts.iter().all(|text| text.contains("count: 2")), "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_tools_are_those_of_the_last_hour() {
        let tools = Tools::new();
        tools.learn(None, &RawJson::of(&json!({ "tools": [{ "name": "fast" }, { "name": "slow" }] })));
        tools.find(None, "fast").count(tools.part_now(), Duration::from_millis(2), false);
        tools.find(None, "slow").count(tools.part_now(), Duration::from_secs(4), true);
        let rows = tools.slowest();
        let short: Vec<_> = rows.iter().map(|row| (&*row.tool, row.calls, row.errors)).collect();
        assert_eq!(short, [("slow", 1, 1), ("fast", 1, 0)]);
        tokio::time::advance(Duration::from_secs(1_800)).await;
        tools.find(None, "fast").count(tools.part_now(), Duration::from_millis(2), false);
        tokio::time::advance(Duration::from_secs(2_000)).await;
        let rows = tools.slowest();
        assert_eq!(rows.iter().map(|row| (&*row.tool, row.calls)).collect::<Vec<_>>(), [("fast", 1)]);
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert!(tools.slowest().is_empty());
    }
}
