//! Events about credentials, for the audit log.
//!
//! In: changes of the file of static keys, and tokens of callers that were exchanged. Out: one [`CredentialEvent`] each, to the
//! observer, if there is one. Never a secret.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Something that happened to credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CredentialEvent<'a> {
    /// The file of static keys has a key that it did not have.
    KeyAdded {
        /// Its name.
        name: &'a str,
    },
    /// The file of static keys lacks a key that it had.
    KeyRemoved {
        /// Its name.
        name: &'a str,
    },
    /// The token of a caller was exchanged for one for a server behind, or could not be.
    TokenExchanged {
        /// The principal, such as `corp:alice`.
        principal: &'a str,
        /// The client that acts for it.
        client: Option<&'a str>,
        /// The URL of the server behind, without what may be secret in it.
        server: &'a str,
        /// Why there is no token; `None` if there is one.
        refusal: Option<&'static str>,
    },
}

/// Hears of what happens to credentials.
///
/// 1. `happened` is called once for each event, without a lock held. It must not wait.
pub trait CredentialObserver: Send + Sync + 'static {
    /// Something happened.
    fn happened(&self, event: &CredentialEvent<'_>);
}

/// The place of the observer, which is set once. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct CredentialObserverPlace(Arc<OnceLock<Arc<dyn CredentialObserver>>>);

impl CredentialObserverPlace {
    /// Sets it. A second one is dropped.
    pub(crate) fn set(&self, observer: Arc<dyn CredentialObserver>) {
        drop(self.0.set(observer));
    }

    /// Tells it.
    pub(crate) fn tell(&self, event: CredentialEvent<'_>) {
        if let Some(observer) = self.0.get() {
            observer.happened(&event);
        }
    }
}

impl fmt::Debug for CredentialObserverPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CredentialObserverPlace").field(&self.0.get().is_some()).finish()
    }
}
