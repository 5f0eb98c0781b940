//! Lists records in the order of their keys.
//!
//! The engine gives the last messages of at most 1024 subjects at once, in its own order. So keys are listed by their
//! first digits: with none if there are few records, with up to three if there are many.
//!
//! Any replica answers, and it may be behind. So the leader is asked first how far its stream goes, and an answer counts
//! when its replica had come at least that far.
//!
//! An answer also ends where it becomes large. The rest is read from there on.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use tenure_session::id::SessionKey;
use tenure_session::port::store::{Record, Space, StoreError};

use crate::fetch;
use crate::names::{Names, Shard};
use crate::parts::Parts;
use crate::record_form::{self, unreadable};
use crate::wire::{Doubt, Fault, Which};

/// The most digits that subjects of records have as tokens of their own.
const MAX_DEPTH: usize = 3;
/// Shards that are read at the same time.
const AT_ONCE: usize = 8;
/// Large answers of one shard that are read under the same digits, if more digits would make them smaller.
const LARGE_ANSWERS: usize = 4;

#[derive(Deserialize)]
struct StreamEnd {
    state: StreamEndState,
}

#[derive(Deserialize)]
struct StreamEndState {
    last_seq: u64,
}

/// The records under some digits.
enum Under {
    These(Vec<(SessionKey, Record)>),
    TooMany,
}

/// The digits of the first prefix that can have keys from this key on.
fn prefix_of(after: Option<SessionKey>, depth: usize) -> usize {
    let digits = after.map_or_else(String::new, |key| key.hex()[..depth].to_owned());
    usize::from_str_radix(&digits, 16).unwrap_or(0)
}

fn digits(prefix: usize, depth: usize) -> String {
    if depth == 0 { String::new() } else { format!("{prefix:0depth$x}") }
}

impl Parts {
    pub(crate) async fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, Record)>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let ends = self.ends().await?;
        let mut depth = self.depth.load(Ordering::Relaxed).min(MAX_DEPTH);
        let mut prefix = prefix_of(after, depth);
        let mut found: Vec<(SessionKey, Record)> = Vec::new();
        let mut looks = 0;
        while prefix < 16usize.pow(u32::try_from(depth).unwrap_or(0)) && found.len() < limit {
            let mut page = match self.under(space, &digits(prefix, depth), &ends).await? {
                Under::These(page) => page,
                Under::TooMany if depth == MAX_DEPTH => {
                    return Err(StoreError::Unavailable("there are too many records to list".to_owned()));
                }
                Under::TooMany => {
                    depth += 1;
                    prefix = (prefix * 16).max(prefix_of(after, depth));
                    self.depth.fetch_max(depth, Ordering::Relaxed);
                    continue;
                }
            };
            looks += 1;
            if page.len() > limit.saturating_mul(8) {
                // Next time with one more digit: most of what was read is not wanted yet.
                self.depth.store((depth + 1).min(MAX_DEPTH), Ordering::Relaxed);
            } else if looks > 16 {
                self.depth.store(depth.saturating_sub(1), Ordering::Relaxed);
            }
            page.retain(|(key, _)| after.is_none_or(|after| *key > after));
            page.sort_unstable_by_key(|(key, _)| *key);
            found.append(&mut page);
            prefix += 1;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// How far the stream of every shard goes, by its leader.
    async fn ends(&self) -> Result<Vec<u64>, StoreError> {
        let asked: Vec<_> = self.names.shards().iter().map(|shard| self.end(shard)).collect();
        stream::iter(asked).buffered(AT_ONCE).try_collect().await
    }

    async fn end(&self, shard: &Shard) -> Result<u64, StoreError> {
        let mut tries = self.wire.tries();
        loop {
            match self.wire.ask::<StreamEnd>(tries.until, shard.info.clone(), String::new()).await {
                Ok(info) => return Ok(info.state.last_seq),
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        }
    }

    async fn under(&self, space: Space, digits: &str, ends: &[u64]) -> Result<Under, StoreError> {
        let shards = self.names.shards().iter().zip(ends);
        let reads: Vec<_> = shards.map(|(shard, end)| self.under_in(shard, space, digits, *end)).collect();
        let mut pages = stream::iter(reads).buffer_unordered(AT_ONCE);
        let mut all = Vec::new();
        while let Some(page) = pages.next().await {
            match page? {
                Under::These(mut page) => all.append(&mut page),
                Under::TooMany => return Ok(Under::TooMany),
            }
        }
        Ok(Under::These(all))
    }

    async fn under_in(
        &self,
        shard: &Shard,
        space: Space,
        digits: &str,
        end: u64,
    ) -> Result<Under, StoreError> {
        let filter = self.names.records_under(shard, space, digits);
        // The marker is always there: an answer without it would not say how far the replica is.
        let marker = self.names.marker(shard);
        let (mut from, mut answers) = (0, 0);
        // A record that was written anew between two answers is in both; the later one counts.
        let mut found: BTreeMap<SessionKey, Option<Record>> = BTreeMap::new();
        let mut tries = self.wire.tries();
        loop {
            let page = fetch::last(&self.wire, tries.until, shard, &[&filter, &marker], from).await;
            let page = match page {
                Ok(page) if page.is_too_much => return Ok(Under::TooMany),
                // Without messages it does not say how far the replica is.
                Ok(page) if page.messages.is_empty() && from > 0 => {
                    if self.wire.get(&mut tries, shard, Which::Next(&filter, from)).await?.is_none() {
                        break;
                    }
                    tries.again(Fault::NotNow, Doubt::None).await?;
                    continue;
                }
                Ok(page) if page.up_to >= end => page,
                Ok(_) => {
                    tries.again(Fault::NotNow, Doubt::None).await?;
                    continue;
                }
                Err(fault) => {
                    tries.again(fault, Doubt::None).await?;
                    continue;
                }
            };
            from = page.messages.last().map_or(from, |message| message.sequence + 1);
            for message in page.messages {
                let Some(key) = Names::key_of_record(&message.subject) else { continue };
                // A message without content says that the record was removed.
                let record = match message.payload.is_empty() {
                    true => None,
                    false => {
                        let read = record_form::decode(message.sequence, &message.payload);
                        Some(read.ok_or_else(|| unreadable(&key.label()))?.record)
                    }
                };
                found.insert(key, record);
            }
            if !page.is_cut {
                break;
            }
            answers += 1;
            if answers == LARGE_ANSWERS && digits.len() < MAX_DEPTH {
                return Ok(Under::TooMany);
            }
            tries = self.wire.tries();
        }
        Ok(Under::These(found.into_iter().filter_map(|(key, record)| Some((key, record?))).collect()))
    }
}
