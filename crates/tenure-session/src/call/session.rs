//! The settings of a request's session, for the handler to read and change.
//!
//! It gives no access to the session's secret id, its streams or its end.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Error, Reason};

use crate::port::BoxFuture;
use crate::port::store::Version;
use crate::settings::{IdleTtl, Metadata, Settings};

/// The most retries of a change. Each failure means that another write succeeded.
const MAX_TRIES: usize = 10_000;

/// A session with settings.
pub(crate) trait HasSettings: Send + Sync + 'static {
    /// Its name in logs.
    fn label(&self) -> &str;
    /// The settings, and the version of the session that had them.
    fn settings(&self) -> (Settings, Version);
    /// Replaces the settings if the session still has the version that the caller saw. On an error nothing is changed.
    fn set_settings(self: Arc<Self>, seen: Version, settings: Settings) -> BoxFuture<Result<Version, Error>>;
    /// How long it lives without use; `None`: for ever.
    fn idle_ttl(&self) -> Option<Duration>;
}

/// Changes the settings; if another change comes first, tries again. If `change` refuses, nothing is written.
pub(crate) async fn change_settings<R, E>(
    session: &Arc<dyn HasSettings>,
    mut change: impl FnMut(&mut Settings) -> Result<R, E> + Send,
) -> Result<Result<R, E>, Error> {
    let mut tries = 0;
    loop {
        let (mut settings, seen) = session.settings();
        let outcome = match change(&mut settings) {
            Ok(outcome) => outcome,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match Arc::clone(session).set_settings(seen, settings).await {
            Ok(_) => return Ok(Ok(outcome)),
            Err(error) if error.reason() == Reason::Conflict && tries < MAX_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The session that a request belongs to. A handler must not keep it longer than it answers the request, because a
/// session cannot become dormant while this exists.
#[derive(Clone)]
pub struct CallSession(Arc<dyn HasSettings>);

impl CallSession {
    /// The part of a session that a handler may use.
    pub(crate) fn new(session: Arc<dyn HasSettings>) -> Self {
        Self(session)
    }

    /// Its name in logs.
    pub fn label(&self) -> &str {
        self.0.label()
    }

    /// The metadata, and the version of the session that has them.
    pub fn metadata(&self) -> (Metadata, Version) {
        let (settings, version) = self.0.settings();
        (settings.metadata, version)
    }

    /// Replaces the metadata, if the session still has the version that the caller saw.
    ///
    /// # Errors
    /// When it has another ([`Reason::Conflict`](tenure_protocol::Reason::Conflict)), which any other write of its
    /// record makes, when the metadata are larger than `Limits::max_metadata_bytes`, when the session is over, or the
    /// store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn set_metadata(&self, seen: Version, metadata: Metadata) -> Result<Version, Error> {
        let ttl = self.ttl();
        Arc::clone(&self.0).set_settings(seen, Settings { metadata, ttl }).await
    }

    /// Changes the metadata; if another change comes first, tries again. If `change` refuses, nothing is written.
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
        change_settings(&self.0, |settings| change(&mut settings.metadata)).await
    }

    /// The idle time that is set for this session.
    pub fn ttl(&self) -> IdleTtl {
        self.0.settings().0.ttl
    }

    /// The effective idle time: that of the limits if none is set for the session. `None`: no limit.
    pub fn idle_ttl(&self) -> Option<Duration> {
        self.0.idle_ttl()
    }

    /// Sets how long the session lives without use, from now on and for the rest of its life. `Limits::max_lifetime`
    /// still ends it by its age.
    ///
    /// # Errors
    /// When the session is over, or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// As for [`CallSession::set_metadata`].
    pub async fn set_ttl(&self, ttl: IdleTtl) -> Result<(), Error> {
        let changed = change_settings(&self.0, |settings| {
            settings.ttl = ttl;
            Ok::<_, std::convert::Infallible>(())
        });
        changed.await.map(|Ok(())| ())
    }
}

impl std::fmt::Debug for CallSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CallSession").field(&self.label()).finish()
    }
}
