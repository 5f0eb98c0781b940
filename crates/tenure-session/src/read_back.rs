//! Writes and removals whose outcome is read back from the store if the store's answer was lost.

use bytes::Bytes;

use crate::port::clock::Time;
use crate::port::store::{Expected, Record, RecordKey, Store, StoreError, Version};

/// Writes a record. If the store's answer is unknown, this writes it again, since the first write may still happen until
/// a later one is finished, and then reads the record: `Ok` means that it is as written, and a conflict that it is not,
/// because another writer came before or after it. It stays unknown if that cannot be found out either.
///
/// # Errors
/// As for [`Store::put`].
pub(crate) async fn put(
    store: &dyn Store,
    key: RecordKey,
    value: Bytes,
    expected: Expected,
    deadline: Option<Time>,
) -> Result<Version, StoreError> {
    let is_new = |record: &Record| expected != Expected::Version(record.version);
    let first = store.put(key, value.clone(), expected, deadline).await;
    if first != Err(StoreError::Unknown) {
        return first;
    }
    let again = store.put(key, value.clone(), expected, deadline).await;
    if again.is_ok() {
        return again;
    }
    match store.get(key).await {
        Ok(Some(record)) if record.value == value && is_new(&record) => Ok(record.version),
        // Only a finished write makes this final.
        Ok(record) if matches!(again, Err(StoreError::Conflict { .. })) => {
            Err(StoreError::Conflict { current: record.map(|record| record.version) })
        }
        Ok(_) | Err(_) => Err(StoreError::Unknown),
    }
}

/// Removes a record. If the store's answer is unknown, this reads the record again: `Ok` means that the record is gone,
/// and a conflict means that another writer came first.
///
/// # Errors
/// As for [`Store::delete`].
pub(crate) async fn remove(store: &dyn Store, key: RecordKey, version: Version) -> Result<(), StoreError> {
    match store.delete(key, version).await {
        Err(StoreError::Unknown) => match store.get(key).await?.map(|record| record.version) {
            None => Ok(()),
            Some(same) if same == version => Err(StoreError::Unknown),
            current => Err(StoreError::Conflict { current }),
        },
        outcome => outcome,
    }
}
