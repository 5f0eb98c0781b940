//! The session of a request, as far as the handler that answers it may read and change it.
//!
//! Not the session itself: a handler has no business with its secret id, its streams or its end.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::Error;

use crate::port::store::Version;
use crate::session::{IdleTtl, Metadata, Session};

/// The session that a request belongs to. Not to be kept longer than the request is answered: a session that somebody
/// holds does not go dormant.
#[derive(Clone)]
pub struct CallSession(Arc<Session>);

impl CallSession {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        Self(Arc::clone(session))
    }

    /// Its name in logs.
    pub fn label(&self) -> &str {
        self.0.label()
    }

    /// The metadata, and the version of the session that had them.
    pub fn metadata(&self) -> (Metadata, Version) {
        self.0.metadata()
    }

    /// Replaces the metadata, if the session still has the version that the caller saw.
    ///
    /// # Errors
    /// When it has another ([`Reason::Conflict`](tenure_protocol::Reason::Conflict)), which any other write of its record makes,
    /// when the metadata are larger than `Limits::max_metadata_bytes`, when the session is over, or the store fails.
    /// Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn set_metadata(&self, seen: Version, metadata: Metadata) -> Result<Version, Error> {
        self.0.set_metadata(seen, metadata).await
    }

    /// Changes the metadata; if another change comes first, tries again. What `change` refuses is not written.
    ///
    /// # Errors
    /// As for [`CallSession::set_metadata`], but for the version. `Ok(Err(..))` is a refusal.
    ///
    /// # Cancel safety
    /// As for [`CallSession::set_metadata`].
    pub async fn change_metadata<R, E>(
        &self,
        mut change: impl FnMut(&mut Metadata) -> Result<R, E> + Send,
    ) -> Result<Result<R, E>, Error> {
        self.0.change_settings(|settings| change(&mut settings.metadata)).await
    }

    /// How long the session lives without use, as it was set for this session.
    pub fn ttl(&self) -> IdleTtl {
        self.0.ttl()
    }

    /// The same as it is in force, with the limits where nothing was set. `None`: for ever.
    pub fn idle_ttl(&self) -> Option<Duration> {
        self.0.idle_ttl()
    }

    /// Sets how long the session lives without use. That counts from now on, and is kept as long as the session;
    /// `Limits::max_lifetime` still ends it by its age.
    ///
    /// # Errors
    /// When the session is over, or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// As for [`CallSession::set_metadata`].
    pub async fn set_ttl(&self, ttl: IdleTtl) -> Result<(), Error> {
        self.0.set_ttl(ttl).await
    }
}

impl std::fmt::Debug for CallSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CallSession").field(&self.label()).finish()
    }
}
