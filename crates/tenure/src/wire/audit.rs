//! The audit log, from the configuration, and the places where it listens.

use std::sync::Arc;

use tenure_session::backend::Backend;
use tenure_session::port::clock::SystemClock;
use tenure_transport::observe::Observers;

use crate::audit::{Audit, AuditSettings, Audited};
use crate::config::{AuditDurability, Config};
use crate::failure::Failure;
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
        redact: audit.redact.clone(),
        max_bytes: audit.max_bytes as u64,
    };
    Audit::open(&settings, Arc::new(SystemClock)).map(Some)
}

/// Who hears of requests that have ended.
pub(super) fn observers(config: &Config, audit: Option<&Arc<Audit>>) -> Observers {
    let access = config.log.access.then(logs::access).flatten();
    Observers::new(access.into_iter().chain(audit.map(Audit::of_refusals)))
}

/// Records the calls of a server, if there is a log.
pub(super) fn audited(backend: Arc<dyn Backend>, audit: Option<&Arc<Audit>>) -> Arc<dyn Backend> {
    match audit {
        Some(audit) => Arc::new(Audited::new(backend, Arc::clone(audit))),
        None => backend,
    }
}
