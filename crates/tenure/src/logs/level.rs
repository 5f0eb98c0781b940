//! Changes the log filter while the process runs.
//!
//! A change is for a while: its maker restores the configured level, unless another change came since.

use std::sync::OnceLock;

use parking_lot::Mutex;
use serde::Serialize;
use tracing::Subscriber;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::reload;

use super::{access, filter};
use crate::failure::Failure;

static LEVEL: OnceLock<Level> = OnceLock::new();

struct Level {
    set: Box<dyn Fn(Targets) -> bool + Send + Sync>,
    configured: String,
    now: Mutex<Changed>,
}

/// What was changed.
struct Changed {
    /// Counts changes.
    number: u64,
    level: String,
    until: Option<u64>,
}

/// What is logged now.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogLevelNow {
    pub(crate) level: String,
    /// Until when, if it was changed for a while. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<u64>,
}

/// The layer for a filter that can be changed. Called once.
pub(super) fn changeable<S: Subscriber + 'static>(
    filter: Targets,
    levels: &str,
) -> reload::Layer<Targets, S> {
    let (layer, handle) = reload::Layer::new(filter);
    let level = Level {
        set: Box::new(move |filter| {
            // Lines about requests go past the subscriber.
            let has_requests = access::is_shown_by(&filter);
            let is_set = handle.reload(filter).is_ok();
            if is_set {
                access::show(has_requests);
            }
            is_set
        }),
        configured: levels.to_owned(),
        now: Mutex::new(Changed { number: 0, level: levels.to_owned(), until: None }),
    };
    drop(LEVEL.set(level));
    layer
}

/// What is logged now; `None` if the log of this process is not ours.
pub(crate) fn level() -> Option<LogLevelNow> {
    let now = LEVEL.get()?.now.lock();
    Some(LogLevelNow { level: now.level.clone(), until: now.until })
}

/// Logs by another filter until [`restore_level`]. Returns the number of the change, and the filter before it; `None` if the log of this
/// process is not ours.
///
/// # Errors
/// When the filter cannot be read.
pub(crate) fn set_level(levels: &str, until: u64) -> Result<Option<(u64, LogLevelNow)>, Failure> {
    let filter = filter(levels)?;
    let Some(level) = LEVEL.get() else { return Ok(None) };
    let mut now = level.now.lock();
    if !(level.set)(filter) {
        return Ok(None);
    }
    let before =
        LogLevelNow { level: std::mem::replace(&mut now.level, levels.to_owned()), until: now.until };
    now.number += 1;
    now.until = Some(until);
    Ok(Some((now.number, before)))
}

/// Logs as configured again, unless there was another change after this one.
pub(crate) fn restore_level(number: u64) {
    let Some(level) = LEVEL.get() else { return };
    let mut now = level.now.lock();
    let configured = filter(&level.configured).ok().filter(|_| now.number == number);
    if configured.is_some_and(|filter| (level.set)(filter)) {
        (now.level, now.until) = (level.configured.clone(), None);
    }
}
