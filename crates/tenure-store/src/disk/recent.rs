//! Records that were read lately, so that reading them again costs no thread and no disk.
//!
//! Only the writer changes what is here, after its commit and before it answers. A reader that fetched a record
//! from the engine leaves it here only if the writer did not touch it meanwhile: it holds a place for it while it
//! reads, and the writer takes the place away.

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle, PlaceholderGuard};
use tenure_session::port::store::{Record, RecordKey};

/// What all of them may take.
const MAX_BYTES: u64 = 32 << 20;

/// What an entry takes beside its value, about: its key, its place in the tables, the allocation's own head.
const ENTRY_BYTES: u64 = 160;

/// How many there are likely to be, which sizes the tables at the start.
const LIKELY: usize = 1 << 12;

#[derive(Clone)]
pub(super) struct Weight;

impl Weighter<RecordKey, Record> for Weight {
    fn weight(&self, _: &RecordKey, record: &Record) -> u64 {
        ENTRY_BYTES + record.value.len() as u64
    }
}

type Hasher = foldhash::fast::RandomState;

/// The place that a reader holds.
pub(super) type Place<'a> =
    PlaceholderGuard<'a, RecordKey, Record, Weight, Hasher, DefaultLifecycle<RecordKey, Record>>;

pub(super) struct Recent(Cache<RecordKey, Record, Weight, Hasher>);

impl Recent {
    pub(super) fn new() -> Self {
        let (weight, hasher) = (Weight, Hasher::default());
        Self(Cache::with(LIKELY, MAX_BYTES, weight, hasher, DefaultLifecycle::default()))
    }

    pub(super) fn get(&self, key: &RecordKey) -> Option<Record> {
        self.0.get(key)
    }

    /// The record, or a place for whoever goes to fetch it. Waits for another that has gone already.
    pub(super) async fn get_or_hold(&self, key: &RecordKey) -> Result<Record, Place<'_>> {
        self.0.get_value_or_guard_async(key).await
    }

    /// A record was written. It stays only if somebody reads it: most are never read while their session lives.
    pub(super) fn written(&self, key: RecordKey, record: Record) {
        if self.0.peek(&key).is_some() {
            self.0.insert(key, record);
        } else {
            self.forget(&key);
        }
    }

    /// A record was removed, or nobody knows what became of it.
    pub(super) fn forget(&self, key: &RecordKey) {
        // Takes away a reader's place too.
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
        let Err(place) = recent.get_or_hold(&key()).await else { panic!("nothing was read yet") };
        assert!(place.insert(record(1)).is_ok());
        assert_eq!(recent.get(&key()), Some(record(1)));
        recent.written(key(), record(2));
        assert_eq!(recent.get(&key()), Some(record(2)));
        recent.forget(&key());
        assert_eq!(recent.get(&key()), None);
    }

    #[tokio::test]
    async fn what_was_read_before_a_write_does_not_stay() {
        let recent = Recent::new();
        let Err(place) = recent.get_or_hold(&key()).await else { panic!("nothing was read yet") };
        recent.written(key(), record(2));
        assert!(place.insert(record(1)).is_err());
        assert_eq!(recent.get(&key()), None);

        let Err(place) = recent.get_or_hold(&key()).await else { panic!("nothing stayed") };
        recent.forget(&key());
        assert!(place.insert(record(2)).is_err());
        assert_eq!(recent.get(&key()), None);
    }

    #[test]
    fn what_nobody_reads_takes_no_room() {
        let recent = Recent::new();
        recent.written(key(), record(1));
        assert_eq!(recent.get(&key()), None);
    }
}
