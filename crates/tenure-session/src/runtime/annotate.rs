//! Changes the metadata of a session by its hashed name: of one in memory, of a dormant one, or in a store that no server
//! has open. Each change is made to the version that was read, or again.

use super::save::Metadata;
use super::sessions::{Sessions, store_failed};
use crate::error::Error;
use crate::id::SessionKey;
use crate::port::store::{Expected, RecordKey, Store, StoreError};
use crate::record::Kept;

impl Sessions {
    /// Sets members of a session's metadata, and removes those that are `null`. Returns all of it; nothing if there is
    /// no session that lives.
    ///
    /// # Errors
    /// When the session ends meanwhile or the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// The change is made or not made, in the store and in memory.
    pub async fn annotate(&self, key: &SessionKey, changes: &Metadata) -> Result<Option<Metadata>, Error> {
        match self.0.live.by_key(key) {
            Some(session) => {
                session.update_metadata(|metadata| merge(metadata, changes)).await?;
                Ok(Some(session.metadata().0))
            }
            None => annotate(self.0.store.as_ref(), *key, changes).await.map_err(store_failed),
        }
    }
}

/// The same in a store that no server has open, or that has the session not in memory.
///
/// # Errors
/// When the store fails.
///
/// # Cancel safety
/// The change is made or not made.
pub async fn annotate(
    store: &dyn Store,
    key: SessionKey,
    changes: &Metadata,
) -> Result<Option<Metadata>, StoreError> {
    let key = RecordKey::session(key);
    loop {
        let Some(record) = store.get(key).await? else { return Ok(None) };
        let Ok(Kept::Session(mut session)) = Kept::decode(&record.value) else { return Ok(None) };
        merge(&mut session.metadata, changes);
        let expected = Expected::Version(record.version);
        match store.put(key, session.encode(), expected, record.deadline).await {
            Ok(_) => return Ok(Some(session.metadata)),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

fn merge(metadata: &mut Metadata, changes: &Metadata) {
    for (name, value) in changes {
        match value {
            serde_json::Value::Null => metadata.remove(name),
            value => metadata.insert(name.clone(), value.clone()),
        };
    }
}
