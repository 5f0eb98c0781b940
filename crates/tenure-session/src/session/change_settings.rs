//! Changes the settings of a session by its hashed name: of one in memory, of a dormant one, or in a store that no
//! server has open. Each change is made to the version that was read, or again.

use serde::{Deserialize, Serialize};
use tenure_protocol::Error;

use crate::id::SessionKey;
use crate::limits::Limits;
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, Store, StoreError};
use crate::record::Kept;
use crate::session::idle_ttl::{self, IdleTtl};
use crate::session::sessions::{Sessions, store_failed};
use crate::session::settings::{Metadata, Settings, check_size};

/// What an operator changes of a session.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Members of the metadata that are set; those that are `null` are removed.
    #[serde(default)]
    pub metadata: Metadata,
    /// How long it lives when nobody uses it, from now on.
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
    /// Changes the settings of a session. Returns all of it; nothing if there is no session that lives.
    ///
    /// # Errors
    /// When the session ends meanwhile, the metadata are too large, or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn annotate(&self, key: &SessionKey, changes: &Changes) -> Result<Option<Settings>, Error> {
        let inner = &self.0;
        let Some(session) = inner.live.by_key(key) else {
            return annotate(inner.store.as_ref(), *key, changes, &inner.limits, inner.clock.now()).await;
        };
        let changed = session.change_settings(|settings| {
            changes.apply(settings);
            Ok::<_, std::convert::Infallible>(settings.clone())
        });
        changed.await.map(|Ok(settings)| Some(settings))
    }
}

/// The same in a store that no server has open, or that has the session not in memory. The limits say what a session
/// without a time of its own gets.
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
        let Ok(Kept::Session(mut session)) = Kept::decode(&record.value) else { return Ok(None) };
        // One whose time is over has ended, whether or not somebody has come by: nothing brings it back.
        if idle_ttl::due(&session, record.deadline, limits).is_some_and(|due| due <= now) {
            return Ok(None);
        }
        let metadata = std::mem::take(&mut session.metadata);
        let mut settings = Settings { metadata, ttl: IdleTtl::of_ms(session.ttl_ms) };
        changes.apply(&mut settings);
        check_size(&settings.metadata, limits)?;
        session.metadata.clone_from(&settings.metadata);
        let deadline = match changes.ttl {
            Some(ttl) => idle_ttl::begin_anew(&mut session, ttl, limits, now),
            None => record.deadline,
        };
        match store.put(key, session.encode(), Expected::Version(record.version), deadline).await {
            Ok(_) => return Ok(Some(settings)),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(store_failed(error)),
        }
    }
}
