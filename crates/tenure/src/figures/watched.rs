//! Values that are read on demand: numbers that the parts of a node keep anyway.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tenure_auth::Authenticator;
use tenure_auth::issuer::IssuerStatus;
use tenure_session::budget::{Budget, Resource};
use tenure_session::cluster::Roster;
use tenure_session::exchange::Exchanges;
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::port::store::{Grade, Store};
use tenure_session::session::Sessions;

use super::process::{Process, now_s};

/// The parts of a node that are asked. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Watched(Arc<Parts>);

struct Parts {
    sessions: Sessions,
    exchanges: Exchanges,
    budget: Budget,
    store: Arc<dyn Store>,
    folder: Option<PathBuf>,
    authenticator: Option<Authenticator>,
    roster: Option<Roster>,
    /// In seconds since 1970.
    began: f64,
}

impl Watched {
    /// These parts. `folder` is the store's, if it has one.
    pub(crate) fn new(
        (sessions, exchanges): (Sessions, Exchanges),
        budget: Budget,
        (store, folder): (Arc<dyn Store>, Option<PathBuf>),
        (authenticator, roster): (Option<Authenticator>, Option<Roster>),
    ) -> Self {
        let began = now_s();
        Self(Arc::new(Parts { sessions, exchanges, budget, store, folder, authenticator, roster, began }))
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }
}

#[derive(EncodeLabelSet, Debug)]
struct ByState {
    state: &'static str,
}

#[derive(EncodeLabelSet, Debug)]
struct ByLoop {
    r#loop: &'static str,
}

#[derive(EncodeLabelSet, Debug)]
struct ByIssuer {
    issuer: String,
}

#[derive(EncodeLabelSet, Debug)]
struct Build {
    version: &'static str,
}

#[derive(EncodeLabelSet, Debug)]
struct ByResource {
    resource: &'static str,
}

/// Writes one metric after the other.
struct Lines<'a>(DescriptorEncoder<'a>);

impl Lines<'_> {
    fn gauge<N: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: N) -> std::fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) -> std::fmt::Result {
        let counter = ConstCounter::new(value);
        counter.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, i64)>,
    ) -> std::fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The free space of the disk with a folder.
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[expect(clippy::cast_possible_wrap, reason = "counts of things in memory")]
fn count(number: u64) -> i64 {
    number as i64
}

impl Collector for Watched {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let (parts, mut lines) = (&*self.0, Lines(encoder));
        let tallies = parts.sessions.tallies();
        let dormant = tallies.sessions.saturating_sub(tallies.awake);
        lines.gauges(
            "tenure_sessions",
            "Sessions now, in memory or in the store alone",
            [("awake", tallies.awake), ("dormant", dormant)]
                .map(|(state, number)| (ByState { state }, count(number as u64))),
        )?;
        lines.gauge(
            "tenure_exchanges_waiting",
            "Requests without a session that had to wait, and are not answered",
            count(parts.exchanges.list().len() as u64),
        )?;
        let resources = [
            ("memory", Resource::Memory),
            ("sessions", Resource::Sessions),
            ("calls", Resource::Calls),
            ("disk", Resource::Disk),
        ];
        lines.gauges(
            "tenure_held_percent",
            "How much of the room for clients is in use, in percent",
            resources.map(|(resource, which)| {
                (ByResource { resource }, count(parts.budget.percent(which) as u64))
            }),
        )?;
        let loops = parts.sessions.loops().list();
        lines.gauges(
            "tenure_loop_up",
            "Whether a background loop runs; 0 while it waits for its restart after a panic",
            loops.iter().map(|info| (ByLoop { r#loop: info.name }, i64::from(!info.is_down))),
        )?;
        let mut encoder = lines.0.encode_descriptor(
            "tenure_loop_restarts",
            "How often a background loop panicked and was started again",
            None,
            MetricType::Counter,
        )?;
        for info in &loops {
            let labels = ByLoop { r#loop: info.name };
            ConstCounter::new(info.restarts).encode(encoder.encode_family(&labels)?)?;
        }
        let trouble = parts.store.trouble().map(|trouble| trouble.grade);
        lines.gauges(
            "tenure_store_state",
            "The state of the store: 1 for the one that it is in",
            [
                ("well", None),
                ("degraded", Some(Grade::Degraded)),
                ("down", Some(Grade::Down)),
                ("lost", Some(Grade::Lost)),
            ]
            .map(|(state, grade)| (ByState { state }, i64::from(trouble == grade))),
        )?;
        if let Some(free) = parts.folder.as_deref().and_then(free_bytes) {
            lines.gauge("tenure_store_free_bytes", "Bytes that are free where the store is", count(free))?;
        }
        lines.gauges(
            "tenure_build_info",
            "The version of this program",
            [(Build { version: env!("CARGO_PKG_VERSION") }, 1)],
        )?;
        self.encode_cluster(&mut lines)?;
        self.encode_issuers(&mut lines)?;
        self.encode_process(&mut lines)
    }
}

impl Watched {
    /// A process that is in no cluster has no peers and may always act.
    fn encode_cluster(&self, lines: &mut Lines<'_>) -> std::fmt::Result {
        let roster = self.0.roster.as_ref();
        let peers = roster.map_or(0, |roster| roster.peers().len() as u64);
        lines.gauge("tenure_peers", "Other nodes of the cluster that this one knows of", count(peers))?;
        let may_act = roster.is_none_or(Roster::is_confirmed);
        lines.gauge("tenure_node_confirmed", "Whether this node may act for its sessions", i64::from(may_act))
    }

    fn encode_issuers(&self, lines: &mut Lines<'_>) -> std::fmt::Result {
        let Some(authenticator) = &self.0.authenticator else { return Ok(()) };
        let issuers = authenticator.issuers();
        if issuers.is_empty() {
            return Ok(());
        }
        let by = |issuer: &IssuerStatus| ByIssuer { issuer: issuer.name.clone() };
        let help = "How often the keys of an issuer were asked for";
        let mut encoder =
            lines.0.encode_descriptor("tenure_jwks_fetches", help, None, MetricType::Counter)?;
        for issuer in &issuers {
            ConstCounter::new(issuer.fetches).encode(encoder.encode_family(&by(issuer))?)?;
        }
        let now = SystemClock.now().0 / 1000;
        let ages = issuers.iter().filter_map(|issuer| {
            let age = now.saturating_sub(issuer.fetched?.0);
            Some((by(issuer), count(age)))
        });
        lines.gauges("tenure_jwks_age_seconds", "How old the keys of an issuer are that are in use", ages)
    }

    fn encode_process(&self, lines: &mut Lines<'_>) -> std::fmt::Result {
        let process = Process::read();
        lines.gauge(
            "process_start_time_seconds",
            "When the process began, in seconds since 1970",
            self.0.began,
        )?;
        if let Some(bytes) = process.rss_bytes {
            lines.gauge("process_resident_memory_bytes", "Resident memory", count(bytes))?;
        }
        if let Some(bytes) = process.virtual_bytes {
            lines.gauge("process_virtual_memory_bytes", "Virtual memory", count(bytes))?;
        }
        if let Some(seconds) = process.cpu_s {
            lines.counter("process_cpu_seconds", "Processor time of the process", seconds)?;
        }
        if let Some(open) = process.descriptors {
            lines.gauge("process_open_fds", "Open file descriptors", count(open))?;
        }
        if let Some(most) = process.max_descriptors {
            lines.gauge("process_max_fds", "File descriptors that the process may have", count(most))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}
