//! The settings of one session: metadata of its handlers and operators, and its own idle time.
//!
//! The record keeps both. Each change is a compare-and-swap on the version that the caller saw, and is applied in
//! memory after the store has it: a failed change changes nothing. A new idle time counts from the moment it is set.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Error, Reason};

use crate::call::{self, HasSettings};
use crate::finish::finish;
use crate::limits::Limits;
use crate::port::BoxFuture;
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::session::live_session::Session;
use crate::settings::{IdleTtl, Metadata, Settings};

impl Session {
    /// The session's metadata and the version it had then.
    pub fn metadata(&self) -> (Metadata, Version) {
        let state = self.state.lock();
        (state.settings.metadata.clone(), state.version)
    }

    /// The idle time that was set for this session.
    pub fn ttl(&self) -> IdleTtl {
        self.state.lock().settings.ttl
    }

    /// Replaces the metadata if the record still has the version that the caller saw.
    ///
    /// # Errors
    /// When it has changed meanwhile ([`Reason::Conflict`] with `data.version`), when the metadata are too large, or
    /// the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn set_metadata(self: &Arc<Self>, seen: Version, metadata: Metadata) -> Result<Version, Error> {
        let ttl = self.ttl();
        self.set_settings(seen, Settings { metadata, ttl }).await
    }

    /// Changes the settings; if another change comes first, tries again. Writes nothing if `change` refuses.
    ///
    /// # Errors
    /// When the session has ended, the metadata are too large, or the store fails. `Ok(Err(..))` is a refusal. Nothing
    /// is changed then.
    ///
    /// # Cancel safety
    /// As for [`Session::set_metadata`].
    pub(crate) async fn change_settings<R, E>(
        self: &Arc<Self>,
        mut change: impl FnMut(&mut Settings) -> Result<R, E> + Send,
    ) -> Result<Result<R, E>, Error> {
        let session: Arc<dyn HasSettings> = Arc::clone(self) as _;
        call::change_settings(&session, &mut change).await
    }

    /// Changes the metadata; if another change comes first, tries again.
    ///
    /// # Errors
    /// When the session ends meanwhile, the metadata are too large, or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// As for [`Session::set_metadata`].
    pub async fn update_metadata(
        self: &Arc<Self>,
        mut change: impl FnMut(&mut Metadata) + Send,
    ) -> Result<(), Error> {
        let changed = self.change_settings(|settings| {
            change(&mut settings.metadata);
            Ok::<_, std::convert::Infallible>(())
        });
        changed.await.map(|Ok(())| ())
    }

    /// Sets the idle time of the session, counted from now on.
    ///
    /// # Errors
    /// When the session ends meanwhile, the metadata are too large, or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// As for [`Session::set_metadata`].
    pub async fn set_ttl(self: &Arc<Self>, ttl: IdleTtl) -> Result<(), Error> {
        let changed = self.change_settings(|settings| {
            settings.ttl = ttl;
            Ok::<_, std::convert::Infallible>(())
        });
        changed.await.map(|Ok(())| ())
    }

    async fn set_settings(self: &Arc<Self>, seen: Version, settings: Settings) -> Result<Version, Error> {
        check_size(&settings.metadata, &self.inner.limits)?;
        let session = Arc::clone(self);
        finish(&self.inner.tasks, async move { session.write_settings(seen, settings).await }).await
    }

    /// Must run to its end.
    async fn write_settings(self: &Arc<Self>, seen: Version, settings: Settings) -> Result<Version, Error> {
        let _alone = self.writing.acquire().await;
        let (value, deadline) = {
            let state = self.state.lock();
            self.check_alive(&state)?;
            if state.version != seen {
                return Err(changed(state.version));
            }
            if state.settings.ttl != settings.ttl {
                self.used_now();
                // A caller that sets the idle time uses the session.
                self.stop_waiting(&state);
            }
            self.record(&state, &settings)
        };
        let key = RecordKey::session(self.key);
        match self.inner.store.put(key, value, Expected::Version(seen), deadline).await {
            Ok(version) => {
                let mut state = self.state.lock();
                self.set_idle_ttl(settings.ttl);
                state.settings = settings;
                state.version = version;
                if state.end.is_none() {
                    self.schedule(&mut state, self.inner.clock.now());
                }
                Ok(version)
            }
            Err(StoreError::Conflict { .. }) => {
                self.reconcile().await.map_err(not_saved)?;
                let state = self.state.lock();
                self.check_alive(&state)?;
                Err(changed(state.version))
            }
            Err(error) => Err(not_saved(error)),
        }
    }
}

impl HasSettings for Session {
    fn label(&self) -> &str {
        Session::label(self)
    }

    fn settings(&self) -> (Settings, Version) {
        let state = self.state.lock();
        (state.settings.clone(), state.version)
    }

    fn set_settings(self: Arc<Self>, seen: Version, settings: Settings) -> BoxFuture<Result<Version, Error>> {
        Box::pin(async move { Session::set_settings(&self, seen, settings).await })
    }

    fn idle_ttl(&self) -> Option<Duration> {
        Session::idle_ttl(self)
    }
}

/// Checks the size of the metadata against the limit.
pub(super) fn check_size(metadata: &Metadata, limits: &Limits) -> Result<(), Error> {
    let bytes = serde_json::to_vec(metadata).map_or(usize::MAX, |json| json.len());
    let limit = limits.max_metadata_bytes;
    if metadata.is_empty() || bytes <= limit {
        return Ok(());
    }
    let error = Error::new(Reason::MetadataTooLarge, "The session's metadata would be too large");
    Err(error.with("bytes", bytes).with("limit", limit))
}

fn not_saved(error: StoreError) -> Error {
    Error::new(Reason::StoreUnavailable, "could not save the session").caused_by(error)
}

fn changed(current: Version) -> Error {
    Error::new(Reason::Conflict, "the session has changed meanwhile").with("version", current.0)
}
