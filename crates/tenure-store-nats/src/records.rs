//! Records: put, get and delete by compare-and-swap.
//!
//! A record is the last message of its subject, and its version is that message's sequence.

use bytes::Bytes;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, Record, RecordKey, StoreError, Version};

use crate::parts::Parts;
use crate::record_form::{self, Filed, FiledRecord, NOT_FILED, unreadable};
use crate::swap::{self, SwapError, there};
use crate::wire::Kept;

fn conflict(current: Option<Kept>) -> StoreError {
    StoreError::Conflict { current: there(current).map(|kept| Version(kept.sequence)) }
}

impl Parts {
    pub(crate) async fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Result<Version, StoreError> {
        if value.len() > self.max_value_bytes {
            return Err(StoreError::TooLarge);
        }
        let mut tries = self.wire.tries();
        let bucket = match deadline {
            // Before the record: a record that is not filed would never be listed as due.
            Some(at) => self.file(&mut tries, key, expected, at).await?,
            None => NOT_FILED,
        };
        let payload = record_form::encode(deadline, bucket, &value);
        let (shard, subject) = (self.names.shard(&key.key), self.names.record(key));
        let written = match expected {
            Expected::Absent => {
                swap::create(&self.wire, &self.ids, &mut tries, shard, &subject, payload).await
            }
            Expected::Version(Version(sequence)) => {
                // 0 would mean that there is no record.
                let sequence = sequence.max(1);
                swap::swap(&self.wire, &self.ids, &mut tries, shard, &subject, sequence, payload).await
            }
        };
        match written {
            Ok(sequence) => {
                self.filed.insert(key, Filed { version: Version(sequence), bucket });
                Ok(Version(sequence))
            }
            Err(SwapError::Mismatch(current)) => Err(conflict(current)),
            Err(SwapError::Store(error)) => Err(error),
        }
    }

    pub(crate) async fn get(&self, key: RecordKey) -> Result<Option<Record>, StoreError> {
        let Some(FiledRecord { record, bucket }) = self.get_filed(key).await? else { return Ok(None) };
        self.filed.insert(key, Filed { version: record.version, bucket });
        Ok(Some(record))
    }

    pub(crate) async fn get_filed(&self, key: RecordKey) -> Result<Option<FiledRecord>, StoreError> {
        let (shard, subject) = (self.names.shard(&key.key), self.names.record(key));
        let kept = there(self.wire.last(&mut self.wire.tries(), shard, &subject).await?);
        let Some(kept) = kept else { return Ok(None) };
        record_form::decode(kept.sequence, &kept.payload).map(Some).ok_or_else(|| unreadable(&key.label()))
    }

    pub(crate) async fn delete(&self, key: RecordKey, expected: Version) -> Result<(), StoreError> {
        let (shard, subject) = (self.names.shard(&key.key), self.names.record(key));
        let (mut tries, sequence) = (self.wire.tries(), expected.0.max(1));
        let removed =
            swap::swap(&self.wire, &self.ids, &mut tries, shard, &subject, sequence, Bytes::new()).await;
        match removed {
            Ok(_) => {
                self.filed.remove(&key);
                Ok(())
            }
            Err(SwapError::Mismatch(current)) => Err(conflict(current)),
            Err(SwapError::Store(error)) => Err(error),
        }
    }
}
