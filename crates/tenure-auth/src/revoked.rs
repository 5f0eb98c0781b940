//! Principals whose credentials were revoked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::identity::{CredentialKind, Identity};
use crate::time::{LEEWAY, UnixSeconds};

/// From which time on the credentials of a principal count again.
#[derive(Debug, Default)]
pub(crate) struct Revoked(RwLock<HashMap<Arc<str>, UnixSeconds>>);

impl Revoked {
    /// Refuses credentials issued to the principal up to this time.
    pub(crate) fn add(&self, principal: &str, until: UnixSeconds) {
        let mut revoked = self.0.write();
        let entry = revoked.entry(principal.into()).or_default();
        *entry = until.max(*entry);
    }

    /// Lets the principal in again.
    pub(crate) fn remove(&self, principal: &str) {
        self.0.write().remove(principal);
    }

    /// Whether these credentials were revoked. Credentials without a time of issue count as old.
    pub(crate) fn contains(&self, identity: &Identity) -> bool {
        let revoked = self.0.read();
        let until = revoked.get(identity.principal());
        // The clock of an issuer may be ahead of ours; keys are made by our own.
        let leeway = if identity.kind() == CredentialKind::Token { LEEWAY } else { Duration::ZERO };
        until.is_some_and(|&until| identity.issued().is_none_or(|issued| issued <= until.plus(leeway)))
    }
}
