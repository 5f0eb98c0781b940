//! Appends rmcp's events: finds or makes the log of a stream, and writes to it.
//!
//! Before a write to a log, the deadline of the stream's record must be far enough away; the log is dropped only after
//! that deadline. So an event never goes into a log that no record names.

use bytes::Bytes;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tenure_session::id::{Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Expected, Keep, NewEvent, Record, RecordKey, StoreError,
};

use super::lanes::Lane;
use super::layout::{self, RmcpRecord};
use super::names::{self, EventName};
use super::replay::RmcpReplay;
use super::{RmcpStore, RmcpStoreError, STREAM, TRIES};

impl RmcpStore {
    /// Stores an event on a stream and returns its id.
    pub(super) async fn append(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> Result<String, RmcpStoreError> {
        let (stream, now) = (names::stream(stream_id), self.clock.now());
        let body = layout::write_event(event)?;
        // Before any step that can fail, because the sweep makes room in a full engine.
        self.sweep(now).await;
        for _ in 0..TRIES {
            let lane = self.lane(stream, now).await?;
            let place = self.place_of(&lane.log, event);
            match self.append_to(lane, body.clone(), place, now).await {
                Ok(position) => {
                    if place == EntryPlace::End {
                        self.answered(&lane.log);
                    }
                    self.bound(stream, lane, body.len(), now).await;
                    return Ok(EventName { log: lane.log, position }.to_string());
                }
                // Another process took the stream over, or found it expired.
                Err(StoreError::Fenced) => self.shared.lanes.lock().forget(&stream),
                Err(error) => return Err(error.into()),
            }
        }
        Err(RmcpStoreError::Contended)
    }

    /// Replays the events after this one on its stream.
    pub(super) async fn replay(&self, last_event_id: &str) -> Result<RmcpReplay, RmcpStoreError> {
        let after = EventName::parse(last_event_id).ok_or(RmcpStoreError::EventId)?;
        // Every log with events has an owner, because logs are never released.
        if self.store.owner(after.log).await?.is_none() {
            return Err(RmcpStoreError::UnknownStream);
        }
        if let Err(error) = self.settle(after.log).await {
            tracing::warn!(log = ?after.log, %error, "a request that was cut off could not be answered");
        }
        Ok(RmcpReplay::new(self.store.clone(), after))
    }

    async fn append_to(
        &self,
        lane: Lane,
        body: Bytes,
        place: EntryPlace,
        now: Time,
    ) -> Result<Position, StoreError> {
        let event = NewEvent { stream: STREAM, body, place, at: now };
        let positions = self.store.append(lane.log, lane.epoch, vec![event]).await?;
        positions.first().copied().ok_or(StoreError::Unknown)
    }

    /// The log to write to, from the cache or from the store.
    async fn lane(&self, stream: RecordKey, now: Time) -> Result<Lane, RmcpStoreError> {
        let known = self.shared.lanes.lock().get(&stream);
        if let Some(lane) = known.filter(|lane| self.is_fresh(lane.deadline, now)) {
            return Ok(lane);
        }
        for _ in 0..TRIES {
            if let Some(lane) = self.open(stream, now).await? {
                self.shared.lanes.lock().set(stream, lane);
                return Ok(lane);
            }
        }
        Err(RmcpStoreError::Contended)
    }

    /// Makes or finds the stream; `None` if another writer changed its record meanwhile.
    async fn open(&self, stream: RecordKey, now: Time) -> Result<Option<Lane>, StoreError> {
        let (log, deadline) = (names::fresh_log(stream), self.deadline(now));
        let value = RmcpRecord::Stream(log).write();
        // Tries to make it first: nearly every stream is new, because every request has its own.
        match self.store.put(stream, value, Expected::Absent, Some(deadline)).await {
            Ok(_) => {
                let epoch = self.store.claim(log, self.shared.node, None).await?;
                Ok(Some(Lane { log, epoch, deadline, events: 0, bytes: 0 }))
            }
            Err(StoreError::Conflict { .. }) => match self.store.get(stream).await? {
                Some(record) => self.reopen(stream, record, now).await,
                None => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    async fn reopen(&self, stream: RecordKey, record: Record, now: Time) -> Result<Option<Lane>, StoreError> {
        let log = match RmcpRecord::read(&record.value) {
            Some(RmcpRecord::Stream(log)) => log,
            Some(RmcpRecord::Dropping(log)) => {
                self.finish(stream, record.version, log).await?;
                return Ok(None);
            }
            Some(RmcpRecord::Session(_)) | None => {
                tracing::error!("the record of a stream is damaged; the stream begins anew");
                self.delete_version(stream, record.version).await?;
                return Ok(None);
            }
        };
        let deadline = match record.deadline {
            Some(deadline) if self.is_fresh(deadline, now) => deadline,
            // Prolonged before it is claimed, so that no other process finds it expired after the claim.
            _ => {
                let deadline = self.deadline(now);
                let expected = Expected::Version(record.version);
                match self.store.put(stream, record.value, expected, Some(deadline)).await {
                    Ok(_) => deadline,
                    Err(StoreError::Conflict { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        let Some(epoch) = self.own(log).await? else { return Ok(None) };
        let kept = self.store.survey(log).await?.kept;
        Ok(Some(Lane { log, epoch, deadline, events: kept.events, bytes: kept.bytes }))
    }

    /// Makes this process the owner of a log; `None` if another process claimed it at the same time.
    pub(super) async fn own(&self, log: SessionKey) -> Result<Option<Epoch>, StoreError> {
        let expected = match self.store.owner(log).await? {
            // This process claimed it and forgot it since. Another claim would fence tasks that still use the epoch.
            Some((node, epoch)) if node == self.shared.node => return Ok(Some(epoch)),
            other => other.map(|(_, epoch)| epoch),
        };
        match self.store.claim(log, self.shared.node, expected).await {
            Ok(epoch) => Ok(Some(epoch)),
            Err(StoreError::Fenced) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts a written event, and trims the oldest events if there are too many.
    async fn bound(&self, stream: RecordKey, lane: Lane, bytes: usize, now: Time) {
        let counted = self.shared.lanes.lock().count(&stream, lane.log, bytes);
        let bounds = self.bounds;
        // A stream that is no longer in the cache is counted when it is next opened.
        let Some(lane) = counted.filter(|is| is.events > bounds.max_events || is.bytes > bounds.max_bytes)
        else {
            return;
        };
        // Trim a little more than necessary, so that the next event needs no trim; but never the event that was just
        // written, because a client is about to get its id.
        let keep = Keep {
            events: (bounds.max_events - bounds.max_events / 8).max(1),
            bytes: (bounds.max_bytes - bounds.max_bytes / 8).max(bytes),
            since: now.before(bounds.event_ttl),
        };
        match self.store.trim(lane.log, keep).await {
            Ok(kept) => self.shared.lanes.lock().recount(&stream, lane.log, kept.events, kept.bytes),
            // The event is stored; the next append tries to trim again.
            Err(error) => tracing::warn!(log = ?lane.log, %error, "could not trim old events"),
        }
    }

    /// The deadline of a stream that is written to now.
    fn deadline(&self, now: Time) -> Time {
        now.after(self.bounds.event_ttl).after(self.bounds.event_ttl / 2)
    }

    /// Whether this deadline keeps an event that is written now long enough.
    fn is_fresh(&self, deadline: Time, now: Time) -> bool {
        deadline >= now.after(self.bounds.event_ttl)
    }
}
