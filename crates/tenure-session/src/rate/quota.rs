//! Calls of a day, counted for each principal and kept in the store.
//!
//! Counters are in memory while they are in use, and written every few seconds ([`Quotas::flush`]): a kill loses what was counted
//! since the last flush. What is written is what was added, so several processes with one store may count the same principal. If the
//! store cannot be read or written, calls go on and are counted in memory. In: a principal whose call begins. Out: yes, or when
//! the next day begins. A day begins at midnight UTC.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tenure_protocol::Error;
use tokio::sync::{OnceCell, Semaphore};

use super::quota_exceeded;
use crate::framed::Frame;
use crate::id::{Principal, SessionKey};
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, RecordKey, Space, Store, StoreError, Version};
use crate::read_back::{put, remove};

const FRAME: Frame = Frame { of: "quota", format: 1 };

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Principals whose calls are counted at once. Beyond it calls of further principals are not counted until the next flush.
const MOST: usize = 100_000;

/// How long a call waits for the store to say what was counted before.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Records of past days that are removed at a time.
const PAGE: usize = 256;

/// The calls of a day of every principal. Cheap to clone.
#[derive(Clone)]
pub struct Quotas(Arc<Inner>);

struct Inner {
    limit: u64,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    counters: Mutex<HashMap<Principal, Arc<Counter>>>,
    /// One flush at a time.
    flushing: Semaphore,
}

struct Counter {
    key: RecordKey,
    /// Set when the record was read, or could not be read.
    read: OnceCell<()>,
    day: Mutex<Day>,
}

/// The calls of one day.
#[derive(Clone, Copy, Default)]
struct Day {
    number: u64,
    /// As the store has it.
    written: u64,
    /// Counted since.
    added: u64,
    version: Option<Version>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    day: u64,
    calls: u64,
}

/// How much of a quota is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaUse {
    /// Calls of today.
    pub used: u64,
    /// The calls of a day.
    pub limit: u64,
    /// When the next day begins.
    pub reset: Time,
}

impl Quotas {
    /// So many calls a day for each principal.
    pub fn new(limit: u64, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let (counters, flushing) = (Mutex::default(), Semaphore::new(1));
        Self(Arc::new(Inner { limit, store, clock, counters, flushing }))
    }

    /// Counts a call.
    ///
    /// # Errors
    /// When the principal has no call left today.
    ///
    /// # Cancel safety
    /// The call is counted or not.
    pub async fn count(&self, principal: &Principal) -> Result<(), Error> {
        let Some(counter) = self.counter(principal) else { return Ok(()) };
        self.know(&counter).await;
        let now = self.0.clock.now();
        let mut day = counter.day.lock();
        day.turn(now);
        if day.written + day.added >= self.0.limit {
            let reset = day.end();
            return Err(quota_exceeded(self.0.limit, reset.since(now), reset.0 / 1000));
        }
        day.added += 1;
        Ok(())
    }

    /// Counts a call at once, if it is known what was counted before; otherwise `None`, and [`Quotas::count`] has to be asked.
    ///
    /// # Errors
    /// As for `count`.
    pub fn count_now(&self, principal: &Principal) -> Option<Result<(), Error>> {
        let known = self.0.counters.lock().get(principal).is_some_and(|counter| counter.read.initialized());
        known.then(|| futures_util::FutureExt::now_or_never(self.count(principal))).flatten()
    }

    /// How much a principal has used.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn usage(&self, principal: &Principal) -> QuotaUse {
        let now = self.0.clock.now();
        let found = self.0.counters.lock().get(principal).map(Arc::clone);
        let counter = found.unwrap_or_else(|| Arc::new(Counter::new(principal)));
        self.know(&counter).await;
        let mut day = counter.day.lock();
        day.turn(now);
        QuotaUse { used: day.written + day.added, limit: self.0.limit, reset: day.end() }
    }

    /// The calls of a day.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    fn counter(&self, principal: &Principal) -> Option<Arc<Counter>> {
        let mut counters = self.0.counters.lock();
        if let Some(counter) = counters.get(principal) {
            return Some(Arc::clone(counter));
        }
        if counters.len() >= MOST {
            return None;
        }
        let counter = Arc::new(Counter::new(principal));
        counters.insert(principal.clone(), Arc::clone(&counter));
        Some(counter)
    }

    /// Reads what was counted before, once.
    async fn know(&self, counter: &Counter) {
        let read = async {
            match tokio::time::timeout(READ_TIMEOUT, self.read(counter)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a quota cannot be read; counting from zero"),
                Err(_) => tracing::warn!("a quota is not read in time; counting from zero"),
            }
        };
        counter.read.get_or_init(|| read).await;
    }

    async fn read(&self, counter: &Counter) -> Result<(), StoreError> {
        let Some(record) = self.0.store.get(counter.key).await? else {
            counter.day.lock().version = None;
            return Ok(());
        };
        let kept = FRAME.decode::<Kept>(&record.value);
        let mut day = counter.day.lock();
        day.version = Some(record.version);
        match kept {
            Ok((kept, _)) if kept.day == day.number => day.written = kept.calls,
            // What was counted here meanwhile belongs to a day that is over, or to the same one if nothing was.
            Ok((kept, _)) if kept.day > day.number => {
                let added = if day.number == 0 { day.added } else { 0 };
                *day = Day { number: kept.day, written: kept.calls, added, ..*day };
            }
            Ok(_) => day.written = 0,
            // It is written over with the next flush.
            Err(error) => tracing::warn!(%error, "a quota cannot be read; counting from zero"),
        }
        Ok(())
    }

    /// Writes what was counted, forgets principals that count nothing, and removes records of past days.
    ///
    /// # Errors
    /// When the store fails. What could not be written is kept for the next time.
    ///
    /// # Cancel safety
    /// A write may be lost; the next flush reads what is there.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let _one = self.0.flushing.acquire().await;
        let now = self.0.clock.now();
        let counters: Vec<Arc<Counter>> = self.0.counters.lock().values().map(Arc::clone).collect();
        let mut failed = None;
        for counter in &counters {
            if let Err(error) = self.write(counter).await {
                failed = Some(error);
            }
        }
        drop(counters);
        {
            let mut counters = self.0.counters.lock();
            counters.retain(|_, counter| Arc::strong_count(counter) > 1 || counter.day.lock().added > 0);
            if counters.capacity() > 4 * counters.len().max(64) {
                counters.shrink_to_fit();
            }
        }
        for (key, version) in self.0.store.expired(Space::Quota, now, PAGE).await? {
            match remove(self.0.store.as_ref(), key, version).await {
                Ok(()) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn write(&self, counter: &Counter) -> Result<(), StoreError> {
        let mut attempts = 0;
        loop {
            let now = *counter.day.lock();
            if now.added == 0 {
                return Ok(());
            }
            let kept = Kept { day: now.number, calls: now.written + now.added };
            let expected = now.version.map_or(Expected::Absent, Expected::Version);
            // For a day longer than it counts, so that a clock that is set back finds it.
            let deadline = now.end().after(Duration::from_millis(DAY_MS));
            let value = FRAME.encode(&kept, &[]);
            match put(self.0.store.as_ref(), counter.key, value, expected, Some(deadline)).await {
                Ok(version) => {
                    let mut day = counter.day.lock();
                    day.version = Some(version);
                    if day.number == now.number {
                        day.written += now.added;
                        day.added -= now.added;
                    }
                    return Ok(());
                }
                // Another process counts too, or removed the record of a past day.
                Err(StoreError::Conflict { .. }) if attempts < 3 => self.read(counter).await?,
                Err(error) => return Err(error),
            }
            attempts += 1;
        }
    }
}

impl Counter {
    fn new(principal: &Principal) -> Self {
        let name = principal.name();
        let hash = Sha256::new()
            .chain_update(b"tenure quota\0")
            .chain_update([u8::from(name.is_some())])
            .chain_update(name.unwrap_or_default());
        let mut key = [0; 16];
        key.copy_from_slice(&hash.finalize()[..16]);
        let key = RecordKey { space: Space::Quota, key: SessionKey::from_bytes(key) };
        Self { key, read: OnceCell::new(), day: Mutex::default() }
    }
}

impl Day {
    /// Begins a new day if the last one is over. A clock that is set back begins none.
    fn turn(&mut self, now: Time) {
        let number = now.0 / DAY_MS;
        if number > self.number {
            *self = Self { number, written: 0, added: 0, version: self.version };
        }
    }

    fn end(&self) -> Time {
        Time((self.number + 1) * DAY_MS)
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.counters.lock().len();
        f.debug_struct("Quotas").field("limit", &self.0.limit).field("count", &count).finish_non_exhaustive()
    }
}
