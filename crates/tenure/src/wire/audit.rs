//! The audit log, from the configuration, and the places where it listens.

use std::sync::Arc;

use tenure_layers::merge::ToolPrefixes;
use tenure_session::backend::Backend;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::observer::{self, SessionObserver};
use tenure_transport::observe::Observers;

use super::backends::EmbeddedObservers;
use super::node::Runtimes;
use crate::audit::{Audit, AuditSettings, Audited};
use crate::config::{AuditDurability, Config};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::logs;

/// Opens the log, if one is configured.
pub(super) fn open(config: &Config) -> Result<Option<Arc<Audit>>, Failure> {
    let audit = &config.audit;
    let Some(file) = &audit.file else { return Ok(None) };
    let settings = AuditSettings {
        file: file.clone(),
        key_file: audit.key_file.clone(),
        head_file: audit.head_file.clone(),
        is_required: audit.durability == AuditDurability::Required,
        arguments: audit.arguments.clone(),
        prefixes: prefixes(config),
        redact: audit.redact.clone(),
        max_bytes: audit.max_bytes as u64,
    };
    Audit::open(&settings, Arc::new(SystemClock)).map(Some)
}

/// The servers behind `/mcp` by the prefixes of their tools, if there are several.
pub(super) fn prefixes(config: &Config) -> Option<ToolPrefixes> {
    let several = config.backends.iter().map(|behind| (behind.prefix.clone(), behind.name.clone()));
    (!config.backends.is_empty()).then(|| ToolPrefixes::new(several))
}

/// The observers of requests that have ended.
pub(super) fn observers(config: &Config, runtimes: &Runtimes) -> Observers {
    let access = config.log.access.then(logs::access).flatten();
    let audit = runtimes.audit.as_ref().map(Audit::of_refusals);
    let figures = config.metrics.collect.then(|| runtimes.figures.of_requests());
    let embedded = runtimes.embedded.requests.iter().cloned();
    Observers::new(access.into_iter().chain(audit).chain(figures).chain(embedded))
}

/// The observers of events of sessions and tasks.
pub(super) fn session_observers(
    config: &Config,
    audit: Option<&Arc<Audit>>,
    (figures, embedded): (&Figures, &EmbeddedObservers),
) -> Option<Arc<dyn SessionObserver>> {
    let audit = audit.map(|audit| Arc::clone(audit) as _);
    let figures = config.metrics.collect.then(|| figures.of_sessions());
    observer::all_of(audit.into_iter().chain(figures).chain(embedded.sessions.iter().cloned()))
}

/// Records the calls of a server, if there is a log.
pub(super) fn audited(backend: Arc<dyn Backend>, audit: Option<&Arc<Audit>>) -> Arc<dyn Backend> {
    match audit {
        Some(audit) => Arc::new(Audited::new(backend, Arc::clone(audit))),
        None => backend,
    }
}
