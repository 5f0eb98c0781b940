//! Removes expired records and logs now and then, as part of a write.
//!
//! A stream is removed in three steps: mark its record, drop its events, remove the record. A removal that is
//! interrupted leaves the mark, and the next process that finds the mark continues. If the stream is written to again
//! before it is marked, its deadline has moved, so the mark fails and the stream stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_session::id::SessionKey;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, RecordKey, Space, StoreError, Version};

use super::RmcpStore;
use super::layout::RmcpRecord;

/// The interval between two sweeps, once no expired record is left.
const EVERY: Duration = Duration::from_secs(30);

/// The most records that one write removes.
const AT_ONCE: usize = 64;

/// When the next sweep is due, in milliseconds since 1970.
#[derive(Default)]
pub(super) struct NextSweep(AtomicU64);

impl NextSweep {
    /// Whether a sweep is due; returns `true` to only one of many callers.
    fn take(&self, now: Time) -> bool {
        let due = self.0.load(Ordering::Relaxed);
        let later = now.after(EVERY).0;
        now.0 >= due && self.0.compare_exchange(due, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn hurry(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl RmcpStore {
    /// Removes some expired records if a sweep is due. A failure does not fail the write that it is part of.
    pub(super) async fn sweep(&self, now: Time) {
        if !self.shared.next_sweep.take(now) {
            return;
        }
        let due = match self.store.expired(Space::Rmcp, now, AT_ONCE).await {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "could not list expired records"),
        };
        if due.len() == AT_ONCE {
            self.shared.next_sweep.hurry();
        }
        // Concurrently, so that they share the engine's commits.
        let removed = join_all(due.into_iter().map(|(key, version)| self.remove(key, version))).await;
        if let Some(error) = removed.into_iter().find_map(Result::err) {
            tracing::warn!(%error, "could not remove an expired record");
        }
    }

    async fn remove(&self, key: RecordKey, version: Version) -> Result<(), StoreError> {
        let Some(record) = self.store.get(key).await?.filter(|record| record.version == version) else {
            return Ok(());
        };
        match RmcpRecord::read(&record.value) {
            Some(RmcpRecord::Stream(log)) => {
                let mark = RmcpRecord::Dropping(log).write();
                let expected = Expected::Version(version);
                match self.store.put(key, mark, expected, record.deadline).await {
                    Ok(version) => self.finish(key, version, log).await,
                    Err(StoreError::Conflict { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Some(RmcpRecord::Dropping(log)) => self.finish(key, version, log).await,
            // A record that cannot be read is useless.
            Some(RmcpRecord::Session(_)) | None => self.delete_version(key, version).await,
        }
    }

    /// Drops the events of a marked stream, and then its record. The key of a log is never used again, so two processes
    /// may do this at the same time.
    pub(super) async fn finish(
        &self,
        key: RecordKey,
        version: Version,
        log: SessionKey,
    ) -> Result<(), StoreError> {
        self.store.drop_session(log).await?;
        self.delete_version(key, version).await
    }

    /// Removes this version of a record, but no other version.
    pub(super) async fn delete_version(&self, key: RecordKey, version: Version) -> Result<(), StoreError> {
        match self.store.delete(key, version).await {
            Ok(()) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rmcp::transport::streamable_http_server::session::ServerSseMessage;
    use tenure_session::port::store::Store;
    use tenure_testkit::faulty::Faulty;

    use super::*;
    use crate::memory::Memory;
    use crate::rmcp::names::{self, EventName};

    async fn append(store: &RmcpStore) -> EventName {
        let event = ServerSseMessage::retry(Duration::from_secs(1));
        EventName::parse(&store.append("s", &event).await.unwrap()).unwrap()
    }

    async fn version(engine: &Memory) -> Version {
        engine.get(names::stream("s")).await.unwrap().unwrap().version
    }

    #[tokio::test]
    async fn a_stream_that_was_prolonged_after_it_was_found_expired_stays() {
        let engine = Arc::new(Memory::new());
        let event = append(&RmcpStore::new(engine.clone())).await;
        let found = version(&engine).await;
        // With a longer time to live, another process prolongs the record at its next write.
        let store = RmcpStore::new(engine.clone()).with_event_ttl(Duration::from_secs(1 << 20));
        assert_eq!(append(&store).await.log, event.log);
        assert_ne!(version(&engine).await, found);
        store.remove(names::stream("s"), found).await.unwrap();
        assert_eq!(engine.survey(event.log).await.unwrap().kept.events, 2);
        assert_eq!(append(&store).await.log, event.log);
    }

    #[tokio::test]
    async fn a_removal_that_was_interrupted_is_finished_by_the_next_writer() {
        let engine = Arc::new(Memory::new());
        let faulty = Arc::new(Faulty::new(engine.clone()));
        let store = RmcpStore::new(faulty.clone());
        let event = append(&store).await;
        // Reading and marking the record work; dropping the events fails.
        faulty.fail_nth(2);
        store.remove(names::stream("s"), version(&engine).await).await.unwrap_err();
        assert_eq!(engine.survey(event.log).await.unwrap().kept.events, 1);
        let next = append(&RmcpStore::new(engine.clone())).await;
        assert_ne!(next.log, event.log, "an event must not go where others may be dropping");
        assert_eq!(engine.owner(event.log).await.unwrap(), None);
        assert_eq!(engine.list(Space::Rmcp, None, 9).await.unwrap().len(), 1);
    }

    #[test]
    fn one_of_many_sweeps_and_not_again_for_a_while() {
        let next = NextSweep::default();
        let now = Time(1_000_000);
        assert!(next.take(now));
        assert!(!next.take(now));
        assert!(!next.take(now.after(EVERY).before(Duration::from_millis(1))));
        assert!(next.take(now.after(EVERY)));
        next.hurry();
        assert!(next.take(now));
    }
}
