//! Changes the settings of a session by its hashed id: in memory, dormant, or in a store that no server has open.
//!
//! Each change is a compare-and-swap on the version that was read; after a conflict it is tried again.

use serde::{Deserialize, Serialize};
use tenure_protocol::Error;

use crate::figures::TimelineEvent;
use crate::id::SessionKey;
use crate::limits::Limits;
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, Store, StoreError};
use crate::record::{StoredSession, UnreadableRecord};
use crate::session::sessions::{Sessions, store_failed};
use crate::session::settings::check_size;
use crate::session::wake::unreadable;
use crate::settings::{self, IdleTtl, Metadata, Settings};

/// An operator's changes to the settings of a session.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Metadata members to set; a `null` removes the member.
    #[serde(default)]
    pub metadata: Metadata,
    /// The new idle time, from now on.
    #[serde(default, rename = "ttl_ms")]
    pub ttl: Option<IdleTtl>,
}

impl Changes {
    fn apply(&self, settings: &mut Settings) {
        for (name, value) in &self.metadata {
            match value {
                serde_json::Value::Null => settings.metadata.remove(name),
                value => settings.metadata.insert(name.clone(), value.clone()),
            };
        }
        settings.ttl = self.ttl.unwrap_or(settings.ttl);
    }
}

impl Sessions {
    /// Changes the settings of a session. Returns all its settings; `None` if there is no such session.
    ///
    /// # Errors
    /// When the session ends meanwhile, the metadata are too large, or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn annotate(&self, key: &SessionKey, changes: &Changes) -> Result<Option<Settings>, Error> {
        let inner = &self.0;
        let Some(session) = inner.awake_by_key(key) else {
            return annotate(inner.store.as_ref(), *key, changes, &inner.limits, inner.clock.now()).await;
        };
        // Before the change, because that writes the record.
        session.note(TimelineEvent::Annotated);
        let changed = session.change_settings(|settings| {
            changes.apply(settings);
            Ok::<_, std::convert::Infallible>(settings.clone())
        });
        changed.await.map(|Ok(settings)| Some(settings))
    }
}

/// The same for a dormant session, or in a store that no server has open. `limits` gives the default idle time.
///
/// # Errors
/// When the metadata are too large, or the store fails.
///
/// # Cancel safety
/// The change is made or not made.
pub async fn annotate(
    store: &dyn Store,
    key: SessionKey,
    changes: &Changes,
    limits: &Limits,
    now: Time,
) -> Result<Option<Settings>, Error> {
    let key = RecordKey::session(key);
    loop {
        let Some(record) = store.get(key).await.map_err(store_failed)? else { return Ok(None) };
        let mut session = match StoredSession::decode(&record.value) {
            Ok(StoredSession::Session(session)) => session,
            Err(error @ UnreadableRecord::Newer(_)) => return Err(unreadable(key.key, error)),
            Ok(StoredSession::Tombstone(_)) | Err(UnreadableRecord::Broken(_)) => return Ok(None),
        };
        // A session that is past its deadline has ended, even if the sweep has not removed it yet.
        if settings::due(&session, record.deadline, limits).is_some_and(|due| due <= now) {
            return Ok(None);
        }
        let metadata = std::mem::take(&mut session.metadata);
        let mut settings = Settings { metadata, ttl: IdleTtl::of_ms(session.ttl_ms) };
        changes.apply(&mut settings);
        check_size(&settings.metadata, limits)?;
        session.metadata.clone_from(&settings.metadata);
        let deadline = match changes.ttl {
            Some(ttl) => settings::begin_anew(&mut session, ttl, limits, now),
            None => record.deadline,
        };
        match store.put(key, session.encode(), Expected::Version(record.version), deadline).await {
            Ok(_) => return Ok(Some(settings)),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(store_failed(error)),
        }
    }
}
