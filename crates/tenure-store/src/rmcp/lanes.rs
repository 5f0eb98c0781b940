//! A cache of the streams that are being written: the log of each, and how many events it has.
//!
//! It only saves reads from the store, so it may forget any entry. rmcp opens a stream for every request and never says
//! that a stream is over; so the cache has two generations and forgets the older one as a whole.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::id::SessionKey;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Epoch, RecordKey};

/// The number of streams in a generation.
const GENERATION: usize = 4096;

/// A stream that this process may write to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lane {
    pub(super) log: SessionKey,
    pub(super) epoch: Epoch,
    /// The deadline of its record. No process drops the log before that.
    pub(super) deadline: Time,
    pub(super) events: usize,
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(super) struct Lanes {
    young: HashMap<RecordKey, Lane, RandomState>,
    old: HashMap<RecordKey, Lane, RandomState>,
}

impl Lanes {
    pub(super) fn get(&mut self, stream: &RecordKey) -> Option<Lane> {
        if let Some(lane) = self.young.get(stream) {
            return Some(*lane);
        }
        let lane = self.old.remove(stream)?;
        self.set(*stream, lane);
        Some(lane)
    }

    pub(super) fn set(&mut self, stream: RecordKey, lane: Lane) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(stream, lane);
    }

    pub(super) fn forget(&mut self, stream: &RecordKey) {
        self.young.remove(stream);
        self.old.remove(stream);
    }

    /// Counts an event that was written to this log, and returns the new counts.
    pub(super) fn count(&mut self, stream: &RecordKey, log: SessionKey, bytes: usize) -> Option<Lane> {
        let lane = self.young.get_mut(stream).filter(|lane| lane.log == log)?;
        lane.events += 1;
        lane.bytes += bytes;
        Some(*lane)
    }

    /// Sets the counts of a log after a trim.
    pub(super) fn recount(&mut self, stream: &RecordKey, log: SessionKey, events: usize, bytes: usize) {
        if let Some(lane) = self.young.get_mut(stream).filter(|lane| lane.log == log) {
            (lane.events, lane.bytes) = (events, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rmcp::names;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let lane = |number: u64| Lane {
            log: SessionKey::from_bytes([1; 16]),
            epoch: Epoch(number),
            deadline: Time(0),
            events: 0,
            bytes: 0,
        };
        let mut lanes = Lanes::default();
        let busy = names::stream("busy");
        lanes.set(busy, lane(u64::MAX));
        for number in 0..10 * GENERATION as u64 {
            lanes.set(names::stream(&number.to_string()), lane(number));
            assert_eq!(lanes.get(&busy), Some(lane(u64::MAX)));
            assert!(lanes.young.len() + lanes.old.len() <= 2 * GENERATION);
        }
        assert_eq!(lanes.get(&names::stream("0")), None);
        lanes.forget(&busy);
        assert_eq!(lanes.get(&busy), None);
    }
}
