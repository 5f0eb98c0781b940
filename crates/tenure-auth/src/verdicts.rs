//! Verdicts about credentials that were seen lately, so that a call costs one hash and no signature check.
//!
//! A verdict is found by the whole SHA-256 of the resource and the credentials: shorter keys, or keys from claims, would let
//! one token be taken for another.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use ring::digest::{Context, SHA256};

use crate::claims::Confirmation;
use crate::identity::Identity;
use crate::keys::Key;
use crate::refusal::AuthRefusal;
use crate::resource::ProtectedResource;
use crate::time::UnixSeconds;

const CAPACITY: usize = 20_000;

/// The longest that a good verdict counts.
const GOOD_FOR: Duration = Duration::from_secs(300);

/// The longest that an answer of an introspection counts.
pub(crate) const INTROSPECTED_FOR: Duration = Duration::from_secs(60);

/// How long a refusal counts: long enough that a client that repeats a bad token costs nothing.
const BAD_FOR: Duration = Duration::from_secs(10);

pub(crate) type VerdictKey = [u8; 32];

/// The outcome for credentials: who they belong to and what they are bound to, or why they are refused.
pub(crate) type Outcome = Result<Good, AuthRefusal>;

#[derive(Clone, Debug)]
pub(crate) struct Good {
    pub(crate) identity: Arc<Identity>,
    pub(crate) bound: Option<Arc<Confirmation>>,
    /// The static key, to note when it is used.
    pub(crate) key: Option<Arc<Key>>,
    /// The longest that this counts without another look.
    pub(crate) counts_for: Duration,
}

impl Good {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity: Arc::new(identity), bound: None, key: None, counts_for: GOOD_FOR }
    }
}

/// An outcome, and how long it counts.
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) until: UnixSeconds,
    pub(crate) generation: u64,
}

impl Verdict {
    /// Whether it still counts. Another generation means that keys or revocations changed since.
    pub(crate) fn counts(&self, generation: u64, now: UnixSeconds) -> bool {
        now < self.until && self.generation == generation
    }
}

pub(crate) struct Verdicts(Cache<VerdictKey, Arc<Verdict>>);

impl Default for Verdicts {
    fn default() -> Self {
        Self(Cache::new(CAPACITY))
    }
}

impl Verdicts {
    /// The name of these credentials at this resource.
    pub(crate) fn key(resource: &ProtectedResource, credentials: &str) -> VerdictKey {
        let mut context = Context::new(&SHA256);
        context.update(resource.uri().as_bytes());
        context.update(&[0]);
        context.update(credentials.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(context.finish().as_ref());
        key
    }

    /// The verdict, if it still counts.
    pub(crate) fn get(&self, key: &VerdictKey, generation: u64, now: UnixSeconds) -> Option<Arc<Verdict>> {
        self.0.get(key).filter(|verdict| verdict.counts(generation, now))
    }

    /// Makes a verdict, and keeps it. A token counts no longer than it lives, and a refusal because the issuer is missing is not kept.
    pub(crate) fn keep(
        &self,
        key: VerdictKey,
        outcome: Outcome,
        generation: u64,
        now: UnixSeconds,
    ) -> Arc<Verdict> {
        let until = match &outcome {
            Ok(good) => now.plus(good.counts_for).min(good.identity.expires()),
            Err(AuthRefusal::Unavailable { .. }) => now,
            Err(_) => now.plus(BAD_FOR),
        };
        let verdict = Arc::new(Verdict { outcome, until, generation });
        if now < until {
            self.0.insert(key, Arc::clone(&verdict));
        }
        verdict
    }
}

impl std::fmt::Debug for Verdicts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verdicts").field("kept", &self.0.len()).finish()
    }
}
