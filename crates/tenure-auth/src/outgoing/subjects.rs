//! Tokens of callers that were verified, lent for token exchange until they expire.
//!
//! In: the token of each verified request, if any server behind exchanges them. Out: the newest token of a caller. They are in
//! the memory of this process, and of the nodes of a cluster that serve a request of the caller, and nowhere else. A
//! request that runs again after a restart finds none until its caller's next request. A caller is a principal through a client, with the scopes of the request: a token of the same
//! principal that grants more is another caller's.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::identity::{CredentialKind, Identity};
use crate::observer::CredentialObserverPlace;
use crate::scope::ScopeSet;
use crate::time::UnixSeconds;

/// How many tokens are lent at once. One that had to go is lent again by the next request that has it.
const CAPACITY: usize = 4096;

/// A caller as a request names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallerName {
    /// The principal, such as `corp:alice`.
    pub principal: Arc<str>,
    /// The client that acts for it.
    pub client: Option<Arc<str>>,
    /// The scopes of its request; `None` for what belongs to no request: then its newest token counts.
    pub scopes: Option<ScopeSet>,
}

/// Tokens of callers. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct SubjectTokens(Arc<Lent>);

struct Lent {
    tokens: Cache<CallerName, Arc<Subject>>,
    /// What was made of these tokens: one for each server behind.
    exchanged: Mutex<Vec<Weak<dyn OfSubjects>>>,
    observer: CredentialObserverPlace,
}

/// What is made of tokens of callers, and goes with them.
pub(super) trait OfSubjects: Send + Sync {
    /// Takes back what was made of the tokens of a principal.
    fn forget(&self, principal: &str);
}

/// The token of a caller.
pub(crate) struct Subject {
    pub(crate) token: Box<str>,
    pub(crate) expires: UnixSeconds,
    scopes: ScopeSet,
}

impl Default for SubjectTokens {
    fn default() -> Self {
        let (exchanged, observer) = (Mutex::default(), CredentialObserverPlace::default());
        Self(Arc::new(Lent { tokens: Cache::new(CAPACITY), exchanged, observer }))
    }
}

impl CallerName {
    /// The caller of a request with this identity.
    pub(crate) fn of(identity: &Identity) -> Self {
        Self {
            principal: identity.principal_shared(),
            client: identity.client_shared(),
            scopes: Some(identity.scopes().clone()),
        }
    }
}

impl SubjectTokens {
    /// Lends the token of a verified request. Static keys and certificates are nothing that could be exchanged.
    pub(crate) fn lend(&self, identity: &Identity, token: &str) {
        self.lend_until(identity, token, identity.expires());
    }

    /// The same for a token that expires at this time: it may be a newer one of the same caller.
    pub(crate) fn lend_until(&self, identity: &Identity, token: &str, expires: UnixSeconds) {
        if identity.kind() != CredentialKind::Token {
            return;
        }
        let name = CallerName::of(identity);
        let newest = CallerName { scopes: None, ..name.clone() };
        for name in [name, newest] {
            // Nearly every request has the same token as the one before.
            if self.0.tokens.get(&name).is_none_or(|known| *known.token != *token) {
                let (token, scopes) = (token.into(), identity.scopes().clone());
                let subject = Subject { token, expires, scopes };
                self.0.tokens.insert(name, Arc::new(subject));
            }
        }
    }

    /// The caller with the scopes of its newest token, if it has none of its own: both use the same token. `None` if there is
    /// no token.
    pub(crate) fn named(&self, caller: &CallerName, now: UnixSeconds) -> Option<CallerName> {
        let scopes = match &caller.scopes {
            Some(scopes) => scopes.clone(),
            None => self.of(caller, now)?.scopes.clone(),
        };
        Some(CallerName { scopes: Some(scopes), ..caller.clone() })
    }

    /// The token of a caller, if there is one that has not expired.
    pub(crate) fn of(&self, caller: &CallerName, now: UnixSeconds) -> Option<Arc<Subject>> {
        let subject = self.0.tokens.get(caller)?;
        if subject.expires <= now {
            self.0.tokens.remove(caller);
            return None;
        }
        Some(subject)
    }

    /// Takes back all tokens of a principal, and the tokens that were exchanged for them.
    pub fn forget(&self, principal: &str) {
        // First the tokens, or others could be got with them in between.
        self.0.tokens.retain(|name, _| *name.principal != *principal);
        let exchanged: Vec<_> = self.0.exchanged.lock().iter().filter_map(Weak::upgrade).collect();
        for of_subjects in exchanged {
            of_subjects.forget(principal);
        }
    }

    /// Hears of tokens that are exchanged.
    pub(crate) fn observer(&self) -> &CredentialObserverPlace {
        &self.0.observer
    }

    /// What is made of these tokens is told when they are taken back, as long as it is there.
    pub(super) fn tell(&self, of_subjects: Weak<dyn OfSubjects>) {
        let mut exchanged = self.0.exchanged.lock();
        exchanged.retain(|known| known.strong_count() > 0);
        exchanged.push(of_subjects);
    }
}

/// It would show tokens.
impl fmt::Debug for SubjectTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectTokens").field("lent", &self.0.tokens.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(user: &str, client: &str, scopes: &str, expires: u64) -> Identity {
        let mut identity = Identity::new("corp", user, CredentialKind::Token);
        identity.client = Some(client.into());
        identity.scopes = ScopeSet::parse(scopes).unwrap();
        identity.expires = UnixSeconds(expires);
        identity
    }

    fn caller(user: &str, client: &str, scopes: Option<&str>) -> CallerName {
        CallerName {
            principal: format!("corp:{user}").into(),
            client: Some(client.into()),
            scopes: scopes.map(|scopes| ScopeSet::parse(scopes).unwrap()),
        }
    }

    #[test]
    fn a_caller_gets_its_own_token_alone_and_until_it_expires() {
        let subjects = SubjectTokens::default();
        subjects.lend(&identity("ann", "app", "read", 100), "narrow");
        subjects.lend(&identity("ann", "app", "read write", 90), "wide");
        subjects.lend(&identity("bob", "app", "read", 100), "bobs");
        let of = |caller: &CallerName, now| subjects.of(caller, UnixSeconds(now)).map(|it| it.token.clone());
        assert_eq!(of(&caller("ann", "app", Some("read")), 1).as_deref(), Some("narrow"));
        assert_eq!(of(&caller("ann", "app", Some("write read")), 1).as_deref(), Some("wide"));
        assert_eq!(of(&caller("ann", "app", None), 1).as_deref(), Some("wide"), "the newest");
        for (user, client, scopes) in
            [("ann", "other", None), ("ann", "app", Some("")), ("eve", "app", Some("read"))]
        {
            assert_eq!(of(&caller(user, client, scopes), 1), None);
        }
        assert_eq!(of(&caller("ann", "app", Some("read write")), 90), None, "expired");
        subjects.forget("corp:ann");
        assert_eq!(of(&caller("ann", "app", Some("read")), 1), None);
        assert_eq!(of(&caller("bob", "app", Some("read")), 1).as_deref(), Some("bobs"));
        assert!(!format!("{subjects:?}").contains("bobs"));
    }

    #[test]
    fn keys_and_certificates_are_not_lent() {
        let subjects = SubjectTokens::default();
        let mut key = identity("ci", "app", "", 100);
        key.kind = CredentialKind::Key;
        subjects.lend(&key, "tnr_x");
        assert!(subjects.of(&caller("ci", "app", None), UnixSeconds(1)).is_none());
    }
}
