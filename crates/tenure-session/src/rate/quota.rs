//! Calls of a day and of a month, counted for each principal and kept in the store.
//!
//! Counts are in memory while they are in use, and written every few seconds ([`Quotas::flush`]): a kill loses what was counted
//! since the last flush. A flush adds to the stored number, so several processes with one store may count the same principal. If the
//! store cannot be read or written, calls go on and are counted in memory. In: a principal whose call begins. Out: yes, or when
//! the next period begins. Days and months are those of UTC.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tenure_protocol::Error;
use tokio::sync::{OnceCell, Semaphore};

use super::period::Period;
use super::quota_exceeded;
use crate::framed::Frame;
use crate::id::{Principal, SessionKey};
use crate::port::clock::{Clock, Time};
use crate::port::store::{Expected, RecordKey, Space, Store, StoreError, Version};
use crate::read_back::{put, remove};

const FRAME: Frame = Frame { of: "quota", format: 1 };

/// How long a record is kept after its period, so that a clock that is set back finds it.
const KEPT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Principals whose calls are counted at once. Beyond it calls of further principals are not counted until the next flush.
const MOST: usize = 100_000;

/// How long a call waits for the stored counts.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Records of past periods that are removed at a time.
const PAGE: usize = 256;

/// The calls of a day and of a month of every principal. Cheap to clone.
#[derive(Clone)]
pub struct Quotas(Arc<Inner>);

/// How many calls of tools a principal has; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuotaLimits {
    /// A day.
    pub day: Option<u64>,
    /// A month.
    pub month: Option<u64>,
}

type LimitsOf = Arc<dyn Fn(&Principal) -> QuotaLimits + Send + Sync>;

struct Inner {
    limits_of: LimitsOf,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    counters: Mutex<HashMap<Principal, Arc<Counter>>>,
    /// One flush at a time.
    flushing: Semaphore,
}

/// The counts of one principal.
struct Counter {
    /// Its limits.
    quotas: Vec<Quota>,
    /// Set when the records were read, or could not be read.
    read: OnceCell<()>,
    /// One for each quota, in the same order. All of them under one lock, so that a call counts everywhere or nowhere.
    counts: Mutex<Vec<Count>>,
}

struct Quota {
    period: Period,
    limit: u64,
    key: RecordKey,
}

/// The calls of one period.
#[derive(Clone, Copy, Default)]
struct Count {
    /// The number of the period.
    number: u64,
    /// As the store has it.
    written: u64,
    /// Counted since.
    added: u64,
    version: Option<Version>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    /// The number of the period. Records of days were there first, and the name has stayed.
    #[serde(rename = "day")]
    number: u64,
    calls: u64,
}

/// How much of a quota is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaUse {
    /// What it is about.
    pub period: Period,
    /// Calls since the period began.
    pub used: u64,
    /// The calls of a period.
    pub limit: u64,
    /// When the next one begins.
    pub reset: Time,
}

impl Quotas {
    /// The same limits for each principal.
    pub fn new(limits: QuotaLimits, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self::of_each(move |_| limits, store, clock)
    }

    /// The limits of a principal in these settings.
    pub fn of_each(
        limits_of: impl Fn(&Principal) -> QuotaLimits + Send + Sync + 'static,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (limits_of, counters, flushing) = (Arc::new(limits_of), Mutex::default(), Semaphore::new(1));
        Self(Arc::new(Inner { limits_of, store, clock, counters, flushing }))
    }

    /// Counts a call.
    ///
    /// # Errors
    /// When the principal has no call left.
    ///
    /// # Cancel safety
    /// The call is counted or not.
    pub async fn count(&self, principal: &Principal) -> Result<(), Error> {
        let Some(counter) = self.counter(principal) else { return Ok(()) };
        if counter.quotas.is_empty() {
            return Ok(());
        }
        self.know(&counter).await;
        counter.count(self.0.clock.now())
    }

    /// Counts a call at once, if the stored counts are known; otherwise `None`, and [`Quotas::count`] has to be asked.
    ///
    /// # Errors
    /// As for `count`.
    pub fn count_now(&self, principal: &Principal) -> Option<Result<(), Error>> {
        let is_known = |counter: &Arc<Counter>| counter.quotas.is_empty() || counter.read.initialized();
        let known = self.0.counters.lock().get(principal).is_some_and(is_known);
        known.then(|| futures_util::FutureExt::now_or_never(self.count(principal))).flatten()
    }

    /// How much a principal has used of each of its quotas.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn usage(&self, principal: &Principal) -> Vec<QuotaUse> {
        let now = self.0.clock.now();
        let found = self.0.counters.lock().get(principal).map(Arc::clone);
        let counter = found.unwrap_or_else(|| Arc::new(self.0.counter(principal)));
        self.know(&counter).await;
        counter.usage(now)
    }

    fn counter(&self, principal: &Principal) -> Option<Arc<Counter>> {
        let mut counters = self.0.counters.lock();
        if let Some(counter) = counters.get(principal) {
            return Some(Arc::clone(counter));
        }
        if counters.len() >= MOST {
            return None;
        }
        let counter = Arc::new(self.0.counter(principal));
        counters.insert(principal.clone(), Arc::clone(&counter));
        Some(counter)
    }

    /// Reads the stored counts, once.
    async fn know(&self, counter: &Counter) {
        let read = async {
            let all = async {
                for place in 0..counter.quotas.len() {
                    self.read(counter, place).await?;
                }
                Ok::<(), StoreError>(())
            };
            match tokio::time::timeout(READ_TIMEOUT, all).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a quota cannot be read; counting from zero"),
                Err(_) => tracing::warn!("a quota is not read in time; counting from zero"),
            }
        };
        counter.read.get_or_init(|| read).await;
    }

    async fn read(&self, counter: &Counter, place: usize) -> Result<(), StoreError> {
        let Some(record) = self.0.store.get(counter.quotas[place].key).await? else {
            counter.counts.lock()[place].version = None;
            return Ok(());
        };
        let kept = FRAME.decode::<Kept>(&record.value);
        let mut counts = counter.counts.lock();
        let count = &mut counts[place];
        count.version = Some(record.version);
        match kept {
            Ok((kept, _)) if kept.number == count.number => count.written = kept.calls,
            // Calls counted here belong to a period that is over, unless no period was known yet (0).
            Ok((kept, _)) if kept.number > count.number => {
                let added = if count.number == 0 { count.added } else { 0 };
                *count = Count { number: kept.number, written: kept.calls, added, ..*count };
            }
            Ok(_) => count.written = 0,
            // It is written over with the next flush.
            Err(error) => tracing::warn!(%error, "a quota cannot be read; counting from zero"),
        }
        Ok(())
    }

    /// Writes the counts, forgets principals without counts, and removes records of past periods.
    ///
    /// # Errors
    /// When the store fails. Counts that could not be written are kept for the next flush.
    ///
    /// # Cancel safety
    /// A write may be lost; the next flush reads what is there.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let _one = self.0.flushing.acquire().await;
        let now = self.0.clock.now();
        let counters: Vec<Arc<Counter>> = self.0.counters.lock().values().map(Arc::clone).collect();
        let mut failed = None;
        for counter in &counters {
            for place in 0..counter.quotas.len() {
                if let Err(error) = self.write(counter, place).await {
                    failed = Some(error);
                }
            }
        }
        drop(counters);
        {
            let mut counters = self.0.counters.lock();
            counters.retain(|_, counter| Arc::strong_count(counter) > 1 || counter.has_unwritten());
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

    async fn write(&self, counter: &Counter, place: usize) -> Result<(), StoreError> {
        let Quota { period, key, .. } = counter.quotas[place];
        let mut attempts = 0;
        loop {
            let now = counter.counts.lock()[place];
            if now.added == 0 {
                return Ok(());
            }
            let kept = Kept { number: now.number, calls: now.written + now.added };
            let expected = now.version.map_or(Expected::Absent, Expected::Version);
            let deadline = period.end(now.number).after(KEPT_AFTER);
            let value = FRAME.encode(&kept, &[]);
            match put(self.0.store.as_ref(), key, value, expected, Some(deadline)).await {
                Ok(version) => {
                    let mut counts = counter.counts.lock();
                    let count = &mut counts[place];
                    count.version = Some(version);
                    if count.number == now.number {
                        count.written += now.added;
                        count.added -= now.added;
                    }
                    return Ok(());
                }
                // Another process counts too, or removed the record of a past period.
                Err(StoreError::Conflict { .. }) if attempts < 3 => self.read(counter, place).await?,
                Err(error) => return Err(error),
            }
            attempts += 1;
        }
    }
}

impl Inner {
    fn counter(&self, principal: &Principal) -> Counter {
        let QuotaLimits { day, month } = (self.limits_of)(principal);
        let limits = [(Period::Day, day), (Period::Month, month)];
        let quotas: Vec<Quota> = limits
            .into_iter()
            .filter_map(|(period, limit)| {
                limit.map(|limit| Quota { period, limit, key: key(period, principal) })
            })
            .collect();
        let counts = Mutex::new(vec![Count::default(); quotas.len()]);
        Counter { quotas, read: OnceCell::new(), counts }
    }
}

/// The record of a quota. A hash, since a store may show the names of its records.
fn key(period: Period, principal: &Principal) -> RecordKey {
    let name = principal.name();
    let domain: &[u8] = match period {
        Period::Day => b"tenure quota\0",
        Period::Month => b"tenure quota of a month\0",
    };
    let hash = Sha256::new()
        .chain_update(domain)
        .chain_update([u8::from(name.is_some())])
        .chain_update(name.unwrap_or_default());
    let mut key = [0; 16];
    key.copy_from_slice(&hash.finalize()[..16]);
    RecordKey { space: Space::Quota, key: SessionKey::from_bytes(key) }
}

impl Counter {
    /// Counts a call in every quota, or in none. The error names the used-up quota with the longest period.
    fn count(&self, now: Time) -> Result<(), Error> {
        let mut counts = self.counts.lock();
        let mut used_up = None;
        for (quota, count) in self.quotas.iter().zip(&mut *counts) {
            count.turn(quota.period, now);
            if count.written + count.added >= quota.limit {
                let reset = quota.period.end(count.number);
                if used_up.is_none_or(|(_, last)| reset > last) {
                    used_up = Some((quota, reset));
                }
            }
        }
        if let Some((quota, reset)) = used_up {
            return Err(quota_exceeded((quota.limit, quota.period), reset.since(now), reset.0 / 1000));
        }
        for count in &mut *counts {
            count.added += 1;
        }
        Ok(())
    }

    fn usage(&self, now: Time) -> Vec<QuotaUse> {
        let mut counts = self.counts.lock();
        let each = self.quotas.iter().zip(&mut *counts).map(|(quota, count)| {
            count.turn(quota.period, now);
            let (period, limit, used) = (quota.period, quota.limit, count.written + count.added);
            QuotaUse { period, used, limit, reset: period.end(count.number) }
        });
        each.collect()
    }

    fn has_unwritten(&self) -> bool {
        self.counts.lock().iter().any(|count| count.added > 0)
    }
}

impl Count {
    /// Begins a new period if the last one is over. A clock that is set back begins none.
    fn turn(&mut self, period: Period, now: Time) {
        let number = period.number(now);
        if number > self.number {
            *self = Self { number, written: 0, added: 0, version: self.version };
        }
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.counters.lock().len();
        f.debug_struct("Quotas").field("count", &count).finish_non_exhaustive()
    }
}
