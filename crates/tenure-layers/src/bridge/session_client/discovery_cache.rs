//! Cache of `server/discover` results, each for as long as its server allows.
//!
//! A result is kept for one caller at an endpoint, or for all callers if the server declares it public. The cache is
//! bounded: a result that does not fit is not kept, and the server is asked again.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::RawJson;
use tenure_session::id::{Principal, Route};
use tenure_session::port::clock::{Clock, Time};

/// How many results are kept.
const MAX_KEPT: usize = 1024;
/// How long a result is kept at most, whatever its server allows: a server may have been replaced.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// The endpoint and the caller that a result is kept for; `None` means all callers.
type DiscoveryKey = (Route, Option<Principal>);

/// Results of `server/discover`.
pub(super) struct DiscoveryCache {
    clock: Arc<dyn Clock>,
    kept: Mutex<HashMap<DiscoveryKey, (RawJson, Time), RandomState>>,
}

impl DiscoveryCache {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, kept: Mutex::default() }
    }

    /// The server's last result, if it is still fresh.
    pub(super) fn get(&self, route: &Route, principal: &Principal) -> Option<RawJson> {
        let now = self.clock.now();
        let kept = self.kept.lock();
        let fresh = |whom: Option<Principal>| {
            let (result, until) = kept.get(&(route.clone(), whom))?;
            (now < *until).then(|| result.clone())
        };
        fresh(Some(principal.clone())).or_else(|| fresh(None))
    }

    /// Keeps a result for the time and the scope that it names.
    pub(super) fn keep(&self, route: &Route, principal: &Principal, result: &RawJson) {
        #[derive(Deserialize)]
        struct CacheHints {
            #[serde(rename = "ttlMs", default)]
            ttl: serde_json::Value,
            #[serde(rename = "cacheScope", default)]
            scope: serde_json::Value,
        }
        let Ok(hints) = result.read::<CacheHints>() else { return };
        let ttl = Duration::from_millis(hints.ttl.as_u64().unwrap_or_default()).min(MAX_AGE);
        if ttl.is_zero() {
            return;
        }
        let now = self.clock.now();
        let whom = (hints.scope != "public").then(|| principal.clone());
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (_, until)| now < *until);
        }
        if kept.len() < MAX_KEPT {
            // Detached: the result would otherwise keep its whole read buffer alive.
            kept.insert((route.clone(), whom), (result.detached(), now.after(ttl)));
        }
    }

    /// Forgets all results, because the server was replaced.
    pub(super) fn forget(&self) {
        self.kept.lock().clear();
    }
}
