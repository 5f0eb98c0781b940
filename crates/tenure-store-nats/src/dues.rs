//! Finds the records that are due without looking at the others.
//!
//! Before a record with a deadline is written, its key is filed in the bucket of that deadline, a subject for every ten
//! seconds. A later deadline does not move it: a reader of the bucket finds that the record is due later, and files it
//! anew. So a session that is used again and again is filed once for each of its deadlines that really came. An entry
//! decides nothing: the record says when it is due, and an extra entry only costs a read.
//!
//! An obsolete entry is removed only when it is old. The record of a young one may be about to be written,
//! and would never be found due (`ages`).

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tenure_session::id::SessionKey;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, RecordKey, Space, StoreError, Version};
use tokio::time::Instant;

use crate::fetch;
use crate::names::{Names, Shard};
use crate::parts::Parts;
use crate::record_form::{FiledRecord, bucket_of};
use crate::wire::{Doubt, Fault, Tries};

/// Shards that are looked at, and records that are read in each, at the same time.
const SHARDS_AT_ONCE: usize = 8;
const READS_AT_ONCE: usize = 16;
/// Entries that are read at once.
const PAGE: usize = 512;

/// A record that is due.
type Due = (Time, RecordKey, Version);

/// The meaning of an entry of a bucket.
enum EntryVerdict {
    Due(Due),
    /// The record is due later, within the time of the same bucket.
    Waits,
    /// Nothing: the record is gone, or filed elsewhere.
    Settled,
}

#[derive(Deserialize)]
struct DueSubjects {
    state: DueSubjectsState,
}

#[derive(Deserialize)]
struct DueSubjectsState {
    last_seq: u64,
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

impl Parts {
    /// Files a record that is about to be written, unless it is filed early enough. Returns the bucket.
    pub(crate) async fn file(
        &self,
        tries: &mut Tries,
        key: RecordKey,
        expected: Expected,
        at: Time,
    ) -> Result<u32, StoreError> {
        let (wanted, now) = (bucket_of(at), bucket_of(self.clock.now()));
        if let Expected::Version(version) = expected
            && let Some(filed) = self.filed.get(&key)
            && filed.version == version
            && filed.bucket <= wanted
            // A bucket that has come, by any node's clock, may have been emptied already.
            && filed.bucket > now + 1
        {
            return Ok(filed.bucket);
        }
        self.file_in(tries, key, wanted).await?;
        Ok(wanted)
    }

    async fn file_in(&self, tries: &mut Tries, key: RecordKey, bucket: u32) -> Result<(), StoreError> {
        let shard = self.names.shard(&key.key);
        let subject = self.names.due(shard, key.space, bucket);
        let entry = Bytes::copy_from_slice(key.key.as_bytes());
        loop {
            let sent =
                self.wire.publish(tries.until, subject.as_str().into(), HeaderMap::new(), entry.clone());
            match sent.await {
                Ok(_) => return Ok(()),
                // The record is not written yet, so nothing is in doubt: an extra entry does no harm.
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        }
    }

    /// Lists the records of a space that are due, earliest first, in the shards that `is_mine` selects.
    pub(crate) async fn expired(
        &self,
        space: Space,
        now: Time,
        limit: usize,
        is_mine: impl Fn(u16) -> bool,
    ) -> Result<Vec<(RecordKey, Version)>, StoreError> {
        let shards = self.names.shards().iter().filter(|shard| is_mine(shard.number));
        let looks: Vec<_> = shards.map(|shard| self.expired_in(shard, space, now, limit)).collect();
        let found: Vec<Vec<Due>> = stream::iter(looks).buffer_unordered(SHARDS_AT_ONCE).try_collect().await?;
        let mut found: Vec<Due> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|(at, key, _)| (*at, *key));
        found.dedup_by_key(|(_, key, _)| *key);
        found.truncate(limit);
        Ok(found.into_iter().map(|(_, key, version)| (key, version)).collect())
    }

    async fn expired_in(
        &self,
        shard: &Shard,
        space: Space,
        now: Time,
        limit: usize,
    ) -> Result<Vec<Due>, StoreError> {
        let mut found = Vec::new();
        let (buckets, old) = self.buckets(shard, space).await?;
        for bucket in buckets {
            if bucket > bucket_of(now) || found.len() >= limit {
                break;
            }
            self.look_into(shard, space, bucket, (now, old, limit), &mut found).await?;
        }
        Ok(found)
    }

    /// The buckets that have entries, earliest first, and up to where entries are old. The leader is asked, so it is as
    /// fresh as an acknowledgement.
    async fn buckets(&self, shard: &Shard, space: Space) -> Result<(Vec<u32>, u64), StoreError> {
        let body = format!(r#"{{"subjects_filter":"{}"}}"#, self.names.all_due(shard, space));
        let mut tries = self.wire.tries();
        let asked = Instant::now();
        let info: DueSubjects = loop {
            match self.wire.ask(tries.until, shard.info.clone(), body.clone()).await {
                Ok(info) => break info,
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        };
        let subjects = info.state.subjects.unwrap_or_default();
        let mut buckets: Vec<u32> =
            subjects.keys().filter_map(|subject| Names::bucket_of_due(subject)).collect();
        buckets.sort_unstable();
        let mut ages = self.ages.lock();
        let ages = ages.entry(shard.number).or_default();
        ages.are_there(space, &buckets);
        let old = ages.came(asked, info.state.last_seq);
        Ok((buckets, old))
    }

    /// Adds the due records of a bucket, until there are enough, and removes the old obsolete entries.
    async fn look_into(
        &self,
        shard: &Shard,
        space: Space,
        bucket: u32,
        (now, old, limit): (Time, u64, usize),
        found: &mut Vec<Due>,
    ) -> Result<(), StoreError> {
        let subject = self.names.due(shard, space, bucket);
        let begin = self.ages.lock().entry(shard.number).or_default().begin(space, bucket, old);
        let (mut from, mut settled, mut stands) = (begin, Vec::new(), begin > 1);
        // Whether an entry here has to be read again, and up to where none has.
        let (mut is_clear, mut clear) = (true, begin);
        // In pages: a bucket may have many more entries than are asked for. Later entries are found next time.
        while found.len() < limit {
            let mut tries = self.wire.tries();
            let page = loop {
                match fetch::next(&self.wire, tries.until, shard, &subject, from, PAGE).await {
                    Ok(page) => break page,
                    Err(fault) => tries.again(fault, Doubt::None).await?,
                }
            };
            let Some(last) = page.last() else { break };
            from = last.sequence + 1;
            // A key may be filed more than once, and is read once.
            let mut entries: BTreeMap<SessionKey, Vec<u64>> = BTreeMap::new();
            for entry in page {
                match <[u8; 16]>::try_from(entry.payload.as_ref()) {
                    Ok(key) => entries.entry(SessionKey::from_bytes(key)).or_default().push(entry.sequence),
                    Err(_) => settled.push(entry.sequence),
                }
            }
            let judge = |(key, sequences): (SessionKey, Vec<u64>)| async move {
                let verdict = self.judge(RecordKey { space, key }, bucket, now).await?;
                Ok::<_, StoreError>((sequences, verdict))
            };
            let judged: Vec<_> = entries.into_iter().map(judge).collect();
            let judged: Vec<(Vec<u64>, EntryVerdict)> =
                stream::iter(judged).buffer_unordered(READS_AT_ONCE).try_collect().await?;
            for (sequences, verdict) in judged {
                match verdict {
                    EntryVerdict::Settled => {
                        let young = sequences.iter().any(|sequence| *sequence > old);
                        stands |= young;
                        settled.extend(sequences.into_iter().filter(|sequence| *sequence <= old));
                    }
                    EntryVerdict::Waits => (stands, is_clear) = (true, false),
                    EntryVerdict::Due(due) => {
                        (stands, is_clear) = (true, false);
                        found.push(due);
                    }
                }
            }
            if is_clear {
                clear = from;
            }
        }
        if clear > 1 && clear - 1 > old {
            self.ages.lock().entry(shard.number).or_default().is_clear(space, bucket, clear);
        }
        self.remove_entries(shard, &subject, &settled, from, stands).await;
        Ok(())
    }

    async fn judge(&self, key: RecordKey, bucket: u32, now: Time) -> Result<EntryVerdict, StoreError> {
        let Some(FiledRecord { record, bucket: filed }) = self.get_filed(key).await? else {
            return Ok(EntryVerdict::Settled);
        };
        let Some(at) = record.deadline else { return Ok(EntryVerdict::Settled) };
        if at <= now {
            return Ok(EntryVerdict::Due((at, key, record.version)));
        }
        let belongs = bucket_of(at);
        if belongs <= bucket {
            return Ok(EntryVerdict::Waits);
        }
        // It is due later. If it was filed again since, that entry stands for it.
        if filed <= bucket {
            self.file_in(&mut self.wire.tries(), key, belongs).await?;
        }
        Ok(EntryVerdict::Settled)
    }

    /// Removes entries; an entry that cannot be removed now is tried again.
    async fn remove_entries(&self, shard: &Shard, subject: &str, settled: &[u64], end: u64, stands: bool) {
        if settled.is_empty() {
            return;
        }
        let until = self.wire.tries().until;
        let bodies: Vec<String> = if stands {
            settled.iter().map(|sequence| format!(r#"{{"seq":{sequence},"no_erase":true}}"#)).collect()
        } else {
            // All entries before `end` are obsolete; the others come after it.
            vec![format!(r#"{{"filter":"{subject}","seq":{end}}}"#)]
        };
        let api = if stands { &shard.delete } else { &shard.purge };
        let remove = |body| self.wire.ask::<IgnoredAny>(until, api.clone(), body);
        let removals: Vec<_> = bodies.into_iter().map(remove).collect();
        let outcomes: Vec<Result<_, Fault>> =
            stream::iter(removals).buffer_unordered(READS_AT_ONCE).collect().await;
        if let Some(fault) = outcomes.into_iter().find_map(Result::err) {
            tracing::debug!(subject, ?fault, "could not remove due entries");
        }
    }
}
