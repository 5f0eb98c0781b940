//! What modern servers said of themselves, for as long as they allow it to be kept.
//!
//! Kept for one caller at an endpoint, or for all of them if the server says that it is the same for everybody.
//! Bounded: what does not fit is asked for again.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::RawJson;
use tenure_session::id::{Principal, Route};
use tenure_session::port::clock::{Clock, Time};

/// How many answers are kept.
const MAX_KEPT: usize = 1024;
/// How long an answer is kept at most, whatever its server allows: a server may have been replaced.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// For whom an answer is kept; `None` is everybody.
type For = (Route, Option<Principal>);

/// Answers to `server/discover`.
pub(super) struct Discoveries {
    clock: Arc<dyn Clock>,
    kept: Mutex<HashMap<For, (RawJson, Time), RandomState>>,
}

impl Discoveries {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, kept: Mutex::default() }
    }

    /// What the server last said, if that may still be used.
    pub(super) fn get(&self, route: &Route, principal: &Principal) -> Option<RawJson> {
        let now = self.clock.now();
        let kept = self.kept.lock();
        let fresh = |whom: Option<Principal>| {
            let (result, until) = kept.get(&(route.clone(), whom))?;
            (now < *until).then(|| result.clone())
        };
        fresh(Some(principal.clone())).or_else(|| fresh(None))
    }

    /// Keeps an answer for as long and for whom it says.
    pub(super) fn keep(&self, route: &Route, principal: &Principal, result: &RawJson) {
        #[derive(Deserialize)]
        struct Said {
            #[serde(rename = "ttlMs", default)]
            ttl: serde_json::Value,
            #[serde(rename = "cacheScope", default)]
            scope: serde_json::Value,
        }
        let Ok(said) = result.read::<Said>() else { return };
        let ttl = Duration::from_millis(said.ttl.as_u64().unwrap_or_default()).min(MAX_AGE);
        if ttl.is_zero() {
            return;
        }
        let now = self.clock.now();
        let whom = (said.scope != "public").then(|| principal.clone());
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (_, until)| now < *until);
        }
        if kept.len() < MAX_KEPT {
            // Detached: it would otherwise hold the buffer that it was read into.
            kept.insert((route.clone(), whom), (result.detached(), now.after(ttl)));
        }
    }

    /// The server is not what it was.
    pub(super) fn forget(&self) {
        self.kept.lock().clear();
    }
}
