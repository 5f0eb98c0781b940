//! The cache of records that were read lately: a hit needs no blocking thread and no disk.
//!
//! Only the writer changes an entry, after its commit and before it answers. A reader holds a placeholder while it
//! fetches a record from the engine. If the writer changes that record meanwhile, it removes the placeholder, and the
//! fetched value, which is outdated, does not enter the cache.

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle, PlaceholderGuard};
use tenure_session::port::store::{Record, RecordKey};

/// The most bytes of all entries together.
const MAX_BYTES: u64 = 32 << 20;

/// Estimated bytes of an entry besides its value: its key, its slot in the tables, the head of its allocation.
const ENTRY_BYTES: u64 = 160;

/// The expected number of entries, which sizes the tables at the start.
const LIKELY: usize = 1 << 12;

#[derive(Clone)]
pub(super) struct RecordWeight;

impl Weighter<RecordKey, Record> for RecordWeight {
    fn weight(&self, _: &RecordKey, record: &Record) -> u64 {
        ENTRY_BYTES + record.value.len() as u64
    }
}

type Hasher = foldhash::fast::RandomState;

/// The placeholder that a reader holds while it fetches a record.
pub(super) type CachePlaceholder<'a> =
    PlaceholderGuard<'a, RecordKey, Record, RecordWeight, Hasher, DefaultLifecycle<RecordKey, Record>>;

pub(super) struct Recent(Cache<RecordKey, Record, RecordWeight, Hasher>);

impl Recent {
    pub(super) fn new() -> Self {
        let (weight, hasher) = (RecordWeight, Hasher::default());
        Self(Cache::with(LIKELY, MAX_BYTES, weight, hasher, DefaultLifecycle::default()))
    }

    pub(super) fn get(&self, key: &RecordKey) -> Option<Record> {
        self.0.get(key)
    }

    /// The record, or a placeholder for the caller to fill. Waits while another caller holds the placeholder.
    pub(super) async fn get_or_hold(&self, key: &RecordKey) -> Result<Record, CachePlaceholder<'_>> {
        self.0.get_value_or_guard_async(key).await
    }

    /// Updates a record only if it is in the cache: most records are never read while their session lives.
    pub(super) fn written(&self, key: RecordKey, record: Record) {
        if self.0.peek(&key).is_some() {
            self.0.insert(key, record);
        } else {
            self.forget(&key);
        }
    }

    /// Removes a record that was deleted, or whose commit failed, so that its value is not known.
    pub(super) fn forget(&self, key: &RecordKey) {
        // This removes a reader's placeholder too.
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tenure_session::id::SessionKey;
    use tenure_session::port::store::{Record, RecordKey, Space, Version};

    use super::Recent;

    fn key() -> RecordKey {
        RecordKey { space: Space::Session, key: SessionKey::from_bytes([7; 16]) }
    }

    fn record(version: u64) -> Record {
        Record { version: Version(version), deadline: None, value: Bytes::from_static(b"value") }
    }

    #[tokio::test]
    async fn what_is_read_stays() {
        let recent = Recent::new();
        let Err(placeholder) = recent.get_or_hold(&key()).await else { panic!("nothing was read yet") };
        assert!(placeholder.insert(record(1)).is_ok());
        assert_eq!(recent.get(&key()), Some(record(1)));
        recent.written(key(), record(2));
        assert_eq!(recent.get(&key()), Some(record(2)));
        recent.forget(&key());
        assert_eq!(recent.get(&key()), None);
    }

    #[tokio::test]
    async fn what_was_read_before_a_write_does_not_stay() {
        let recent = Recent::new();
        let Err(placeholder) = recent.get_or_hold(&key()).await else { panic!("nothing was read yet") };
        recent.written(key(), record(2));
        assert!(placeholder.insert(record(1)).is_err());
        assert_eq!(recent.get(&key()), None);

        let Err(placeholder) = recent.get_or_hold(&key()).await else { panic!("nothing stayed") };
        recent.forget(&key());
        assert!(placeholder.insert(record(2)).is_err());
        assert_eq!(recent.get(&key()), None);
    }

    #[test]
    fn a_record_that_is_never_read_takes_no_room() {
        let recent = Recent::new();
        recent.written(key(), record(1));
        assert_eq!(recent.get(&key()), None);
    }
}
