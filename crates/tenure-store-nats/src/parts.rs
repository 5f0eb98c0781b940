//! The parts that all operations share: the connection, the names, and the caches of records and logs.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_session::port::clock::Clock;
use tenure_session::port::store::RecordKey;

use crate::ages::Ages;
use crate::log_cache::LogCache;
use crate::names::Names;
use crate::record_form::Filed;
use crate::swap::WriteIds;
use crate::wire::Wire;

/// How many records to remember the buckets of. A record that is not remembered is filed once more than needed.
const REMEMBERED: usize = 1 << 16;

/// The parts of an open engine.
pub(crate) struct Parts {
    pub(crate) wire: Wire,
    pub(crate) names: Names,
    pub(crate) ids: WriteIds,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) filed: quick_cache::sync::Cache<RecordKey, Filed>,
    pub(crate) logs: LogCache,
    /// How old the messages of each shard are, by its number.
    pub(crate) ages: Mutex<HashMap<u16, Ages, RandomState>>,
    pub(crate) max_value_bytes: usize,
    pub(crate) max_batch_bytes: usize,
    /// With how many digits of the key the records of a space are listed at once; see `listing`.
    pub(crate) depth: std::sync::atomic::AtomicUsize,
}

impl Parts {
    pub(crate) fn new(
        wire: Wire,
        names: Names,
        ids: WriteIds,
        clock: Arc<dyn Clock>,
        max_message_bytes: usize,
    ) -> Self {
        Self {
            wire,
            names,
            ids,
            clock,
            filed: quick_cache::sync::Cache::new(REMEMBERED),
            logs: LogCache::default(),
            ages: Mutex::default(),
            max_value_bytes: max_message_bytes,
            max_batch_bytes: max_message_bytes,
            depth: std::sync::atomic::AtomicUsize::new(0),
        }
    }
}
